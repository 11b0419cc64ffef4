/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * librampart-detach: runs a thread on a CPU that Linux has given up, in the same
 * address space, without interrupts. docs/detached.md has what that means for a
 * program; examples/control_loop.c is one.
 *
 * Functions return 0, or -1 with errno. A `struct rampart_detached` is used by
 * one thread at a time.
 */
#ifndef RAMPART_DETACHED_H
#define RAMPART_DETACHED_H

#include <stdint.h>

struct rampart_detached;

/* What happens on a system call of a detached thread. */
enum rampart_system_calls {
	/* Linux executes it for the thread, on another CPU. The default. */
	RAMPART_PROXIED,
	/* It fails with ENOSYS. */
	RAMPART_REFUSED,
	/* The thread is attached and executes it itself. */
	RAMPART_REATTACH,
};

/* Since the CPU was taken. */
struct rampart_counts {
	uint64_t system_calls;
	uint64_t faults;	/* page faults and other exceptions */
	uint64_t kicks;		/* interrupts by the driver: starts, stops, flushes */
	uint64_t flushes;	/* of translations, because the process changed its memory */
	uint64_t interrupts;	/* any other interrupt; expected: 0 */
};

/*
 * Takes a CPU from Linux, which needs CAP_SYS_ADMIN or a plan that names the user as
 * its owner; or uses it if `rampart` passed it to this program. -1: the first CPU
 * that was passed.
 */
struct rampart_detached *rampart_detached_take(int cpu);

/*
 * Uses an open file of /dev/rampart-detach that has a CPU, for example one that
 * another process took and passed on. Closes it in rampart_detached_close().
 */
struct rampart_detached *rampart_detached_from_descriptor(int descriptor);

/* Closes the file. The CPU is Linux's again if no other process has the file. */
void rampart_detached_close(struct rampart_detached *detached);

/* Sets what happens on system calls, from the next detaching on. */
void rampart_detached_on_system_calls(struct rampart_detached *detached,
				      enum rampart_system_calls what);

/*
 * Detaches the calling thread: it returns on the taken CPU. The thread is attached
 * again by rampart_reattach(), and by what needs Linux: a signal, an exception that
 * is a signal, a system call that creates or ends threads or processes or changes
 * signals. Test rampart_is_detached() in each turn of a loop.
 */
int rampart_detach(struct rampart_detached *detached);

/* Attaches the calling thread. Does nothing if it is attached. */
void rampart_reattach(struct rampart_detached *detached);

/* Returns whether the thread is detached. Costs a read of memory. */
int rampart_is_detached(const struct rampart_detached *detached);

/* Calls a function on the taken CPU. */
int rampart_run_detached(struct rampart_detached *detached, void (*function)(void *argument),
			 void *argument);

/* Reads the counts. A system call. */
int rampart_detached_counts(const struct rampart_detached *detached,
			    struct rampart_counts *counts);

/* Returns the time stamp counter, or on arm64 the virtual counter, in nanoseconds, without a system call. */
uint64_t rampart_clock(const struct rampart_detached *detached);

/* Returns the frequency of that counter in hertz. */
uint64_t rampart_clock_frequency(const struct rampart_detached *detached);

/*
 * Waits, without a system call, until rampart_clock() is at least `time`: by TPAUSE, or
 * by WFE if the time is far, where the CPU has them; otherwise it spins.
 */
void rampart_sleep_until(const struct rampart_detached *detached, uint64_t time);

#endif /* RAMPART_DETACHED_H */
