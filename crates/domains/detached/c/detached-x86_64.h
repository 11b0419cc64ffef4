/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What detached.c needs to know of x86-64: registers, the signal frame, instructions. */
#ifndef RAMPART_DETACHED_X86_64_H
#define RAMPART_DETACHED_X86_64_H

#include <cpuid.h>

/* Flags of a signal frame, and marks of its extended state: asm/ucontext.h, asm/sigcontext.h. */
#define FRAME_FLAGS	7
#define FRAME_MAGIC_1	0x46505853U
#define FRAME_MAGIC_2	0x46505845U
#define FRAME_SOFTWARE	464

struct frame_marks {
	uint32_t magic;
	uint32_t bytes_with_end;
	uint64_t components;
	uint32_t bytes;
	uint32_t padding[7];
};

struct rampart_frame {
	ucontext_t context;
};

static long call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

asm(".text\n"
    ".globl rampart_detached_switch, rampart_detached_return\n"
    ".hidden rampart_detached_switch, rampart_detached_return\n"
    ".type rampart_detached_switch, @function\n"
    "rampart_detached_switch:\n"
    "	endbr64\n"
    "	pushq %rbp\n"
    "	pushq %rbx\n"
    "	pushq %r12\n"
    "	pushq %r13\n"
    "	pushq %r14\n"
    "	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    /*
     * For debuggers and unwinders the caller is the first half, as if a signal had
     * interrupted it: its registers are around the saved stack pointer, where the
     * driver stores them, and (%rsp) has that address. DWARF 5, 6.4.2.
     */
    "	pushq %rdi\n"
    "	pushq %rdi\n"
    "	movq %rcx, %rdi\n"
    ".macro register_at register offset\n"
    "	.cfi_escape 0x10, \\register, 6, 0x77, 0, 6, 9, (\\offset) & 0xff, 0x22\n"
    ".endm\n"
    "	.cfi_startproc\n"
    "	.cfi_signal_frame\n"
    "	.cfi_escape 0x0f, 4, 0x77, 0, 6, 6\n"
    "	register_at 0, -16\n"
    "	register_at 1, -24\n"
    "	register_at 2, -8\n"
    "	register_at 3, -32\n"
    "	register_at 4, -48\n"
    "	register_at 5, -56\n"
    "	register_at 6, -40\n"
    "	register_at 8, -120\n"
    "	register_at 9, -112\n"
    "	register_at 10, -104\n"
    "	register_at 11, -96\n"
    "	register_at 12, -88\n"
    "	register_at 13, -80\n"
    "	register_at 14, -72\n"
    "	register_at 15, -64\n"
    "	register_at 16, 8\n"
    "	call *%rdx\n"
    "	ud2\n"
    "	.cfi_endproc\n"
    ".type rampart_detached_return, @function\n"
    "rampart_detached_return:\n"
    "	popq %r15\n"
    "	popq %r14\n"
    "	popq %r13\n"
    "	popq %r12\n"
    "	popq %rbx\n"
    "	popq %rbp\n"
    "	ret\n");

static uint64_t *number_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rax;
}

static uint64_t *result_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rax;
}

static uint64_t *argument_of(struct rampart_detach_registers *registers, int which)
{
	__u64 *const arguments[] = {
		&registers->rdi, &registers->rsi, &registers->rdx,
		&registers->r10, &registers->r8, &registers->r9,
	};

	return (uint64_t *)arguments[which];
}

static uint64_t *stack_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rsp;
}

static uint64_t *pc_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rip;
}

/* Bytes of the instruction of a system call. */
#define CALL_BYTES	2

/* The control of floating point; a call need not keep anything else. */
static void fill_run(struct rampart_detach_run *run)
{
	asm volatile("stmxcsr %0" : "=m"(run->mxcsr));
	asm volatile("fnstcw %0" : "=m"(run->fcw));
}

static void fill_frame(struct rampart_frame *frame, const struct rampart_detach_run *run,
		       unsigned char *extended, const struct rampart_detach_machine *machine)
{
	struct frame_marks *marks = (void *)(extended + FRAME_SOFTWARE);
	ucontext_t *context = &frame->context;
	uint32_t bytes = machine->state_bytes;
	const uint32_t end = FRAME_MAGIC_2;

	memset(marks, 0, sizeof(*marks));
	marks->magic = FRAME_MAGIC_1;
	marks->bytes_with_end = bytes + sizeof(end);
	marks->components = machine->state_components;
	marks->bytes = bytes;
	memcpy(extended + bytes, &end, sizeof(end));
	context->uc_flags = FRAME_FLAGS;
	/* Both are in the order of struct sigcontext. */
	memcpy(context->uc_mcontext.gregs, &run->registers, sizeof(run->registers));
	/* Selectors of 64-bit code and of the stack. */
	context->uc_mcontext.gregs[REG_CSGSFS] = 0x33 | 0x2bLL << 48;
	context->uc_mcontext.fpregs = (void *)extended;
}

static void return_to_frame(struct rampart_frame *frame) __attribute__((noreturn));
static void return_to_frame(struct rampart_frame *frame)
{
	asm volatile("movq %0, %%rsp\n"
		     "movl %1, %%eax\n"
		     "syscall\n"
		     "ud2"
		     :
		     : "r"(&frame->context), "i"(SYS_rt_sigreturn)
		     : "memory");
	__builtin_unreachable();
}

/* Returns from rampart_detached_switch() with a result. */
static void return_with(uint64_t stack, long result) __attribute__((noreturn));
static void return_with(uint64_t stack, long result)
{
	asm volatile("movq %0, %%rsp\n"
		     "jmp rampart_detached_return"
		     :
		     : "r"(stack), "a"(result)
		     : "memory");
	__builtin_unreachable();
}

/* RDSSP does nothing without a shadow stack (Intel SDM 2B). */
static int has_shadow_stack(void)
{
	uint64_t pointer = 0;

	asm volatile("rdsspq %0" : "+r"(pointer));
	return pointer != 0;
}

static uint64_t read_clock(const struct rampart_detach_machine *machine)
{
	uint32_t low, high;

	asm volatile("lfence; rdtsc" : "=a"(low), "=d"(high) : : "memory");
	return (unsigned __int128)((uint64_t)high << 32 | low) * 1000000 / machine->counter_khz;
}

/*
 * TPAUSE, in the state that is left fastest: until the time or an interrupt, or as
 * long as IA32_UMWAIT_CONTROL permits (Intel SDM 2B). Without it PAUSE.
 */
static void pause_until(const struct rampart_detach_machine *machine, uint64_t now, uint64_t time)
{
	static int has_tpause = -1;
	uint32_t eax, ebx, ecx, edx;
	uint64_t end;

	(void)now;
	if (has_tpause < 0)
		has_tpause = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ecx & 1 << 5;
	if (!has_tpause) {
		asm volatile("pause");
		return;
	}
	end = (unsigned __int128)time * machine->counter_khz / 1000000 + 1;
	asm volatile("tpause %%ecx"
		     :
		     : "c"(1), "a"((uint32_t)end), "d"((uint32_t)(end >> 32))
		     : "cc", "memory");
}

#endif /* RAMPART_DETACHED_X86_64_H */
