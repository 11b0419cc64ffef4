/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What detached.c needs to know of arm64: registers, the signal frame, instructions. */
#ifndef RAMPART_DETACHED_AARCH64_H
#define RAMPART_DETACHED_AARCH64_H

#include <asm/hwcap.h>
#include <sys/auxv.h>

/* As rt_sigreturn(2) expects it: arch/arm64/kernel/signal.c. */
struct rampart_frame {
	siginfo_t information;
	ucontext_t context;
};

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 asm("x8") = number;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;
	register long x3 asm("x3") = d;
	register long x4 asm("x4") = e;
	register long x5 asm("x5") = f;

	asm volatile("svc #0"
		     : "+r"(x0)
		     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		     : "memory");
	return x0;
}

/* What a call keeps, and the control of floating point (AAPCS64, 6.1). */
asm(".text\n"
    ".globl rampart_detached_switch, rampart_detached_return\n"
    ".hidden rampart_detached_switch, rampart_detached_return\n"
    ".type rampart_detached_switch, @function\n"
    "rampart_detached_switch:\n"
    "	hint #34\n" /* BTI c */
    "	sub sp, sp, #176\n"
    "	stp x19, x20, [sp]\n"
    "	stp x21, x22, [sp, #16]\n"
    "	stp x23, x24, [sp, #32]\n"
    "	stp x25, x26, [sp, #48]\n"
    "	stp x27, x28, [sp, #64]\n"
    "	stp x29, x30, [sp, #80]\n"
    "	stp d8, d9, [sp, #96]\n"
    "	stp d10, d11, [sp, #112]\n"
    "	stp d12, d13, [sp, #128]\n"
    "	stp d14, d15, [sp, #144]\n"
    "	mrs x9, fpcr\n"
    "	str x9, [sp, #160]\n"
    "	mov x9, sp\n"
    "	str x9, [x0]\n"
    /*
     * For debuggers and unwinders the caller is the first half, as if a signal had
     * interrupted it: its registers are before the saved stack pointer, where the
     * driver stores them, and [sp] has that address. DWARF 5, 6.4.2; 32 is PC.
     */
    "	sub sp, x1, #16\n"
    "	str x0, [sp]\n"
    "	mov x0, x3\n"
    ".macro register_at register offset\n"
    "	.cfi_escape 0x10, \\register, 7, 0x8f, 0, 6, 0xb, (\\offset) & 0xff, ((\\offset) >> 8) & 0xff, 0x22\n"
    ".endm\n"
    "	.cfi_startproc\n"
    "	.cfi_signal_frame\n"
    "	.cfi_return_column 32\n"
    "	.cfi_escape 0x0f, 4, 0x8f, 0, 6, 6\n"
    ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, "
    "25, 26, 27, 28, 29, 30\n"
    "	register_at \\number, 8 * (\\number - 31)\n"
    ".endr\n"
    "	register_at 32, 8\n"
    "	blr x2\n"
    "	udf #0\n"
    "	.cfi_endproc\n"
    ".type rampart_detached_return, @function\n"
    "rampart_detached_return:\n"
    "	ldr x9, [sp, #160]\n"
    "	msr fpcr, x9\n"
    "	ldp x19, x20, [sp]\n"
    "	ldp x21, x22, [sp, #16]\n"
    "	ldp x23, x24, [sp, #32]\n"
    "	ldp x25, x26, [sp, #48]\n"
    "	ldp x27, x28, [sp, #64]\n"
    "	ldp x29, x30, [sp, #80]\n"
    "	ldp d8, d9, [sp, #96]\n"
    "	ldp d10, d11, [sp, #112]\n"
    "	ldp d12, d13, [sp, #128]\n"
    "	ldp d14, d15, [sp, #144]\n"
    "	add sp, sp, #176\n"
    "	ret\n");

static uint64_t *number_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->x[8];
}

static uint64_t *result_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->x[0];
}

static uint64_t *argument_of(struct rampart_detach_registers *registers, int which)
{
	return (uint64_t *)&registers->x[which];
}

static uint64_t *stack_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->sp;
}

static uint64_t *pc_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->pc;
}

/* Bytes of the instruction of a system call. */
#define CALL_BYTES	4

/* The switch keeps all that a call keeps. */
static void fill_run(struct rampart_detach_run *run)
{
	(void)run;
}

static void fill_frame(struct rampart_frame *frame, const struct rampart_detach_run *run,
		       unsigned char *extended, const struct rampart_detach_machine *machine)
{
	mcontext_t *to = &frame->context.uc_mcontext;

	memcpy(to->regs, run->registers.x, sizeof(run->registers.x));
	to->sp = run->registers.sp;
	to->pc = run->registers.pc;
	to->pstate = run->registers.pstate;
	/* A struct fpsimd_context; the zeros behind it end the list. */
	memcpy(to->__reserved, extended, machine->state_bytes);
}

static void return_to_frame(struct rampart_frame *frame) __attribute__((noreturn));
static void return_to_frame(struct rampart_frame *frame)
{
	asm volatile("mov sp, %0\n"
		     "mov x8, %1\n"
		     "svc #0\n"
		     "udf #0"
		     :
		     : "r"(frame), "i"(SYS_rt_sigreturn)
		     : "x8", "memory");
	__builtin_unreachable();
}

/* Returns from rampart_detached_switch() with a result. */
static void return_with(uint64_t stack, long result) __attribute__((noreturn));
static void return_with(uint64_t stack, long result)
{
	register long x0 asm("x0") = result;

	asm volatile("mov sp, %0\n"
		     "b rampart_detached_return"
		     :
		     : "r"(stack), "r"(x0)
		     : "memory");
	__builtin_unreachable();
}

/* CHKFEAT clears the bit of a guarded control stack, and does nothing on CPUs without it. */
static int has_shadow_stack(void)
{
	register uint64_t features asm("x16") = 1;

	asm volatile("hint #40" : "+r"(features));
	return !features;
}

static uint64_t read_clock(const struct rampart_detach_machine *machine)
{
	uint64_t count, frequency;

	(void)machine;
	asm volatile("mrs %0, cntfrq_el0" : "=r"(frequency));
	asm volatile("isb\n mrs %0, cntvct_el0" : "=r"(count) : : "memory");
	return (unsigned __int128)count * 1000000000 / frequency;
}

/* Twice the period of the events that Linux lets the counter make (ARCH_TIMER_EVT_STREAM_PERIOD_US). */
#define EVENT_NS	200000

/* WFE until the next event, if the time is far and there are such events. */
static void pause_until(const struct rampart_detach_machine *machine, uint64_t now, uint64_t time)
{
	static int has_events = -1;

	(void)machine;
	if (has_events < 0)
		has_events = getauxval(AT_HWCAP) & HWCAP_EVTSTRM ? 1 : 0;
	if (has_events && time - now > EVENT_NS)
		asm volatile("wfe" : : : "memory");
	else
		asm volatile("yield");
}

#endif /* RAMPART_DETACHED_AARCH64_H */
