/* SPDX-License-Identifier: GPL-2.0-only WITH Linux-syscall-note */
/*
 * /dev/rampart-detach: takes CPUs from Linux, and runs threads of ordinary
 * processes on them without interrupts.
 *
 * An open file holds at most one CPU. The CPU is given back when the last copy
 * of the descriptor is closed, whatever ends its process.
 */
#ifndef _UAPI_RAMPART_DETACH_H
#define _UAPI_RAMPART_DETACH_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Version of this interface; rampart_detach_machine.version is the module's. */
#define RAMPART_DETACH_VERSION	1

/* What the module supports on this machine. */
struct rampart_detach_machine {
	__u32 version;		/* RAMPART_DETACH_VERSION of the module */
	/* Size of the extended state: XSAVE's standard format; on arm64 struct fpsimd_context. */
	__u32 state_bytes;
	__u64 state_components;	/* its components, bits as in XCR0; on arm64 1 */
	__u64 counter_khz;	/* frequency of the time stamp counter, on arm64 of CNTVCT_EL0 */
};

/* rampart_detach_state.state */
#define RAMPART_DETACH_TAKEN	1	/* taken, no thread */
#define RAMPART_DETACH_RUNNING	2	/* a thread runs */
#define RAMPART_DETACH_STOPPED	3	/* its thread is in Linux: a system call, a fault */
#define RAMPART_DETACH_FAILED	4	/* did not answer and was halted */

/* The CPU of this file. */
struct rampart_detach_state {
	__s32 cpu;		/* -1: none */
	__u32 state;
	__s32 thread;		/* its thread, as gettid(2) of the caller sees it; 0: none */
	__u32 events;		/* takes and gives of all CPUs; poll(2) reports a change */
	/* Since the CPU was taken: */
	__u64 system_calls;
	__u64 faults;		/* page faults and other exceptions */
	__u64 kicks;		/* interrupts that the module sent */
	__u64 flushes;		/* of translations, when the process changed its memory; x86-64 */
	__u64 interrupts;	/* any other interrupt; expected: 0 */
};

/* In the order of struct sigcontext. */
#ifdef __aarch64__
struct rampart_detach_registers {
	__u64 x[31];
	__u64 sp, pc, pstate;
};
#else
struct rampart_detach_registers {
	__u64 r8, r9, r10, r11, r12, r13, r14, r15;
	__u64 rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, rflags;
};
#endif

/* rampart_detach_run.flags */
#define RAMPART_DETACH_BEGIN	0x1	/* detach the calling thread; without it: continue */

/* rampart_detach_run.exit */
#define RAMPART_DETACH_SYSTEM_CALL	1	/* number in rax or x8; rip or pc is behind it */
/* With these the thread is attached again: */
#define RAMPART_DETACH_EXCEPTION	2	/* rip or pc is at the instruction */
#define RAMPART_DETACH_SIGNAL		3	/* the thread has work in Linux */
#define RAMPART_DETACH_GIVEN		4	/* the CPU is given back */
#define RAMPART_DETACH_LOST		5	/* the CPU failed; the registers are lost */

/*
 * Runs the calling thread on the CPU until it needs Linux. While it runs, the
 * signals in `signals` are blocked; one that is not stops it.
 *
 * RAMPART_DETACH_RUN fails with
 *   ENXIO	if the file has no CPU
 *   EBUSY	if another thread uses it
 *   EIO		if the CPU failed
 *   EINVAL	with unknown flags, if rip is no user address, if the buffer is too
 *		small, or without RAMPART_DETACH_BEGIN if the caller is not detached
 *   EOPNOTSUPP	if the thread has a state that is not carried (shadow stack, 32 bits,
 *		a counter, CPUID or speculation that prctl(2) restricts)
 */
struct rampart_detach_run {
	__u32 flags;
	__u32 exit;
	__u64 signals;		/* as in sigprocmask(2) */
	struct rampart_detach_registers registers;
	__u32 mxcsr;		/* with RAMPART_DETACH_BEGIN, x86-64 */
	__u16 fcw;
	__u16 reserved;		/* 0 */
	__u32 vector;		/* of an exception; on arm64 its class, ESR_EL1.EC */
	__u32 error;		/* on arm64 ESR_EL1 */
	__u64 address;		/* of a page fault */
	__u64 buffer;		/* gets the extended state at every exit but LOST */
	__u32 bytes;		/* at least rampart_detach_machine.state_bytes */
	__u32 reserved_2;	/* 0 */
};

#define RAMPART_DETACH_MACHINE	_IOR(0xb6, 0, struct rampart_detach_machine)
/*
 * Takes the CPU with the number in the argument. Needs CAP_SYS_ADMIN, or that the
 * CPU has the caller's user as owner (owners in sysfs). Fails with
 *   EPERM	without both
 *   EAGAIN	if its owner took it less than a second ago
 *   EBUSY	if the file has one, or Linux cannot do without the CPU
 *   ENODEV	if the CPU is offline or does not exist
 *   EIO	if it did not answer and Linux has it again
 */
#define RAMPART_DETACH_TAKE	_IO(0xb6, 1)
/* Gives the CPU back to Linux. A detached thread is stopped first. */
#define RAMPART_DETACH_GIVE	_IO(0xb6, 2)
#define RAMPART_DETACH_STATE	_IOR(0xb6, 3, struct rampart_detach_state)
#define RAMPART_DETACH_RUN	_IOWR(0xb6, 4, struct rampart_detach_run)
/* After an exit for a system call: attaches the calling thread. */
#define RAMPART_DETACH_LEAVE	_IO(0xb6, 5)

#endif /* _UAPI_RAMPART_DETACH_H */
