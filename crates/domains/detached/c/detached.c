// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * A detached thread has two halves. One runs on the taken CPU, on the thread's
 * stack. The other waits in an ioctl of the driver, on a second stack, and
 * executes system calls for the first one. To attach, the second half returns
 * from a signal frame that it makes: rt_sigreturn(2) restores all registers and
 * the signal mask at once, so that a signal is delivered with the right ones.
 *
 * The second half uses no libc: errno and locks are the first half's.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "detached.h"
#include "rampart-detach.h"

#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
/* Of glibc alone; a program may be linked with another C library than that of the headers. */
extern const unsigned int __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));
#define HAS_RSEQ (&__rseq_size && __rseq_size)
#else
#define HAS_RSEQ 0
#define RSEQ_SIG 0
#define RSEQ_FLAG_UNREGISTER 0
#define __rseq_size 0
#define __rseq_offset 0
#endif

/* Registers, signal frames and instructions. */
#if defined(__x86_64__)
#include "detached-x86_64.h"
#elif defined(__aarch64__)
#include "detached-aarch64.h"
#else
#error "librampart-detach is for x86-64 and arm64"
#endif

#define STACK_BYTES	65536
/* A system call that Linux does not have: the thread asks to be attached. */
#define ATTACH_CALL	0x72640001
/* The request KVM_RUN of linux/kvm.h: a virtual CPU runs until a signal ends the call. */
#define RUN_VIRTUAL_CPU	0xae80

struct rampart_detached {
	int descriptor;
	int cpu;
	volatile int is_detached;
	enum rampart_system_calls system_calls;
	struct rampart_detach_machine machine;
	struct rampart_detach_run run;
	uint64_t signals;
	/* The thread's memory of the C library; the first half may change the register. */
	char *thread;
	void *stack;
	unsigned char *extended;
	struct rampart_frame frame;
};

/*
 * Saves the stack pointer in *saved, calls loop(argument) on another stack, and
 * returns as often as rampart_detached_return is reached with that stack pointer.
 */
long rampart_detached_switch(uint64_t *saved, void *stack, void (*loop)(void *), void *argument);
void rampart_detached_return(void);

/*
 * Linux keeps the number of the CPU in the thread's rseq area, which would be
 * that of the second half: rseq(2). Unregistered, the C library asks the CPU.
 */
static void set_rseq(const struct rampart_detached *detached, int registered)
{
	long bytes;

	if (!HAS_RSEQ)
		return;
	bytes = __rseq_size > 32 ? __rseq_size : 32;
	call(SYS_rseq, (long)(detached->thread + __rseq_offset), bytes,
	     registered ? 0 : RSEQ_FLAG_UNREGISTER, RSEQ_SIG, 0, 0);
}

/* Through the thread's own memory, which getcpu(2) has just written. */
static void set_cpu(struct rampart_detach_registers *registers, int cpu)
{
	if (*argument_of(registers, 0))
		*(volatile unsigned int *)(uintptr_t)*argument_of(registers, 0) = cpu;
}

static void set_signals(const uint64_t *set, uint64_t *before)
{
	call(SYS_rt_sigprocmask, SIG_SETMASK, (long)set, (long)before, sizeof(*set), 0, 0);
}

/* Continues as the first half, attached, with the registers of the last exit. */
static void attach(struct rampart_detached *detached) __attribute__((noreturn));
static void attach(struct rampart_detached *detached)
{
	struct rampart_frame *frame = &detached->frame;

	memset(frame, 0, sizeof(*frame));
	call(SYS_sigaltstack, 0, (long)&frame->context.uc_stack, 0, 0, 0, 0);
	memcpy(&frame->context.uc_sigmask, &detached->signals, sizeof(detached->signals));
	fill_frame(frame, &detached->run, detached->extended, &detached->machine);
	set_rseq(detached, 1);
	detached->is_detached = 0;
	return_to_frame(frame);
}

/*
 * Returns whether a system call must be executed by the thread itself, with its own
 * registers: it ends a thread or makes one, or a signal may be delivered during it.
 */
static int needs_attachment(struct rampart_detach_registers *registers)
{
	switch (*number_of(registers)) {
	/* With a signal mask, which holds during the call. */
	case SYS_ppoll:
		return *argument_of(registers, 3) != 0;
	case SYS_epoll_pwait:
	case SYS_io_uring_enter:
	case 441: /* epoll_pwait2, which older headers do not have */
		return *argument_of(registers, 4) != 0;
	case SYS_pselect6:
	case SYS_io_pgetevents:
		return *argument_of(registers, 5) != 0;
	case SYS_ioctl:
		return *argument_of(registers, 1) == RUN_VIRTUAL_CPU;
	case SYS_rt_sigprocmask:
	case SYS_rt_sigreturn:
	case SYS_rt_sigtimedwait:
	case SYS_rt_sigsuspend:
	case SYS_sigaltstack:
	case SYS_clone:
	case SYS_clone3:
	case SYS_execve:
	case SYS_execveat:
	case SYS_exit:
	case SYS_exit_group:
	case SYS_prctl:
	case SYS_pkey_alloc:
	case SYS_restart_syscall:
	case SYS_rseq:
#ifdef __x86_64__
	case SYS_pause:
	case SYS_fork:
	case SYS_vfork:
	case SYS_arch_prctl:
	/* uretprobe and uprobe, which older headers do not have. */
	case 335:
	case 336:
#endif
		return 1;
	default:
		return 0;
	}
}

/* Executes a system call as the first half. Its CPU is the taken one. */
static void execute(struct rampart_detached *detached)
{
	struct rampart_detach_registers *registers = &detached->run.registers;
	uint64_t number = *number_of(registers);
	long result = call(number, *argument_of(registers, 0), *argument_of(registers, 1),
			   *argument_of(registers, 2), *argument_of(registers, 3),
			   *argument_of(registers, 4), *argument_of(registers, 5));

	if (number == SYS_getcpu && !result)
		set_cpu(registers, detached->cpu);
	*result_of(registers) = result;
}

static void system_call(struct rampart_detached *detached)
{
	struct rampart_detach_registers *registers = &detached->run.registers;
	uint64_t number = *number_of(registers);

	if (number == ATTACH_CALL) {
		*result_of(registers) = 0;
	} else if (detached->system_calls == RAMPART_REFUSED) {
		*result_of(registers) = -ENOSYS;
		return;
	} else if (detached->system_calls == RAMPART_PROXIED && !needs_attachment(registers)) {
		execute(detached);
		return;
	} else {
		/* The same instruction again. */
		*pc_of(registers) -= CALL_BYTES;
	}
	call(SYS_ioctl, detached->descriptor, RAMPART_DETACH_LEAVE, 0, 0, 0, 0);
	attach(detached);
}

/* The second half. */
static void serve(void *argument)
{
	struct rampart_detached *detached = argument;
	struct rampart_detach_run *run = &detached->run;
	long error;

	for (;;) {
		error = call(SYS_ioctl, detached->descriptor, RAMPART_DETACH_RUN, (long)run, 0, 0,
			     0);
		if (error && run->flags & RAMPART_DETACH_BEGIN) {
			/* Nothing ran: the first half returns with the error. */
			return_with(*stack_of(&run->registers), error);
		}
		run->flags = 0;
		if (error) /* The CPU was given back during a system call. */
			attach(detached);
		switch (run->exit) {
		case RAMPART_DETACH_SYSTEM_CALL:
			system_call(detached);
			break;
		case RAMPART_DETACH_LOST:
			/* There is nothing to continue with. */
			call(SYS_kill, call(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGKILL, 0, 0, 0, 0);
			break;
		default:
			attach(detached);
		}
	}
}

int rampart_detach(struct rampart_detached *detached)
{
	struct rampart_detach_run *run = &detached->run;
	const uint64_t all = ~0ULL;
	long error;

	if (detached->is_detached) {
		if (detached->thread == __builtin_thread_pointer())
			return 0;
		errno = EBUSY;
		return -1;
	}
	/* The driver refuses it too, but then there is no way back from the second stack. */
	if (has_shadow_stack()) {
		errno = EOPNOTSUPP;
		return -1;
	}
	set_signals(&all, &detached->signals);
	detached->thread = __builtin_thread_pointer();
	set_rseq(detached, 0);
	memset(run, 0, sizeof(*run));
	run->flags = RAMPART_DETACH_BEGIN;
	run->signals = detached->signals;
	run->buffer = (uintptr_t)detached->extended;
	run->bytes = detached->machine.state_bytes;
	fill_run(run);
	*pc_of(&run->registers) = (uintptr_t)rampart_detached_return;
	detached->is_detached = 1;
	error = rampart_detached_switch(stack_of(&run->registers),
					(char *)detached->stack + STACK_BYTES, serve, detached);
	if (!error)
		return 0;
	detached->is_detached = 0;
	set_rseq(detached, 1);
	set_signals(&detached->signals, 0);
	errno = -error;
	return -1;
}

void rampart_reattach(struct rampart_detached *detached)
{
	if (detached->is_detached)
		call(ATTACH_CALL, 0, 0, 0, 0, 0, 0);
}

int rampart_is_detached(const struct rampart_detached *detached)
{
	return detached->is_detached;
}

int rampart_run_detached(struct rampart_detached *detached, void (*function)(void *),
			 void *argument)
{
	if (rampart_detach(detached))
		return -1;
	function(argument);
	rampart_reattach(detached);
	return 0;
}

struct rampart_detached *rampart_detached_from_descriptor(int descriptor)
{
	struct rampart_detached *detached = calloc(1, sizeof(*detached));
	struct rampart_detach_state state;
	size_t bytes;

	if (!detached)
		return NULL;
	detached->descriptor = descriptor;
	if (ioctl(descriptor, RAMPART_DETACH_MACHINE, &detached->machine))
		goto free;
	if (detached->machine.version != RAMPART_DETACH_VERSION) {
		errno = EPROTO;
		goto free;
	}
	if (ioctl(descriptor, RAMPART_DETACH_STATE, &state))
		goto free;
	detached->cpu = state.cpu;
	bytes = detached->machine.state_bytes + sizeof(uint32_t);
	detached->extended = aligned_alloc(64, (bytes + 63) / 64 * 64);
	detached->stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (detached->extended && detached->stack != MAP_FAILED)
		return detached;
	if (detached->stack != MAP_FAILED)
		munmap(detached->stack, STACK_BYTES);
	free(detached->extended);
free:
	free(detached);
	return NULL;
}

/*
 * Returns the descriptor of a CPU that `rampart` passed to this program: entries
 * CPU:DESCRIPTOR, separated by commas. Programs that this one starts do not get it.
 */
static int passed_descriptor(int cpu)
{
	const char *next = getenv("RAMPART_DETACHED");
	char *end;

	while (next && *next) {
		long number = strtol(next, &end, 10);
		long descriptor = *end == ':' ? strtol(end + 1, &end, 10) : -1;

		if (descriptor >= 0 && (cpu < 0 || cpu == number) &&
		    !fcntl(descriptor, F_SETFD, FD_CLOEXEC))
			return descriptor;
		next = *end == ',' ? end + 1 : NULL;
	}
	return -1;
}

struct rampart_detached *rampart_detached_take(int cpu)
{
	const struct timespec tenth = { .tv_nsec = 100000000 };
	struct rampart_detached *detached = NULL;
	int descriptor = passed_descriptor(cpu);
	int error, failed, turn;

	if (descriptor >= 0)
		return rampart_detached_from_descriptor(descriptor);
	descriptor = open("/dev/rampart-detach", O_RDWR | O_CLOEXEC);
	if (descriptor < 0)
		return NULL;
	/* The owner of a CPU may take it once a second. */
	for (turn = 0; (failed = ioctl(descriptor, RAMPART_DETACH_TAKE, cpu)); turn++) {
		if (errno != EAGAIN || turn == 20)
			break;
		nanosleep(&tenth, NULL);
	}
	if (!failed)
		detached = rampart_detached_from_descriptor(descriptor);
	if (!detached) {
		error = errno;
		close(descriptor);
		errno = error;
	}
	return detached;
}

void rampart_detached_close(struct rampart_detached *detached)
{
	rampart_reattach(detached);
	close(detached->descriptor);
	munmap(detached->stack, STACK_BYTES);
	free(detached->extended);
	free(detached);
}

void rampart_detached_on_system_calls(struct rampart_detached *detached,
				      enum rampart_system_calls what)
{
	detached->system_calls = what;
}

int rampart_detached_counts(const struct rampart_detached *detached,
			    struct rampart_counts *counts)
{
	struct rampart_detach_state state;

	if (ioctl(detached->descriptor, RAMPART_DETACH_STATE, &state))
		return -1;
	*counts = (struct rampart_counts){
		.system_calls = state.system_calls,
		.faults = state.faults,
		.kicks = state.kicks,
		.flushes = state.flushes,
		.interrupts = state.interrupts,
	};
	return 0;
}

uint64_t rampart_clock(const struct rampart_detached *detached)
{
	return read_clock(&detached->machine);
}

uint64_t rampart_clock_frequency(const struct rampart_detached *detached)
{
	return detached->machine.counter_khz * 1000;
}

void rampart_sleep_until(const struct rampart_detached *detached, uint64_t time)
{
	uint64_t now;

	while ((now = rampart_clock(detached)) < time)
		pause_until(&detached->machine, now, time);
}
