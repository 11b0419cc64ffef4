/* SPDX-License-Identifier: GPL-2.0-only */
/* What the tests know of x86-64. */
#ifndef MACHINE_X86_64_H
#define MACHINE_X86_64_H

#include <asm/hwcap2.h>
#include <sys/auxv.h>

#define INITIAL_FCW	0x37f
#define PC_STEP		1
/* Linux sends the CPU's flushes as messages. */
#define FLUSHES_BY_BROADCAST	0
/* Calls that do not return to their caller; uretprobe and uprobe are SIGILL. */
#define MACHINE_CALLS_EXCLUDED	SYS_pause, SYS_fork, SYS_vfork, 335, 336,

/* An IRET to a kernel address would fault at ring 0. */
static const int can_begin_anywhere = 0;

static uint64_t *pc_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rip;
}

static uint64_t *flags_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rflags;
}

static uint64_t *result_of(struct rampart_detach_registers *registers)
{
	return (uint64_t *)&registers->rax;
}

static long call_without_library(long number, long first, long second, long third)
{
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(first), "S"(second), "d"(third)
		     : "rcx", "r11", "memory");
	return result;
}

/* Random bytes are instructions often enough. */
static void make_instructions(unsigned char *code, size_t bytes)
{
	(void)code;
	(void)bytes;
}

/* A call that Linux does not have attaches (ATTACH_CALL of the library). */
static int keeps_thread_pointer(void)
{
	const uint64_t written = 0x123450;
	uint64_t before, after, found;

	if (!(getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE))
		return 1;
	asm volatile("rdfsbase %0" : "=r"(before));
	asm volatile("wrgsbase %0" : : "r"(written));
	call_without_library(0x72640001, 0, 0, 0);
	asm volatile("rdgsbase %0" : "=r"(found));
	asm volatile("rdfsbase %0" : "=r"(after));
	return found == written && before == after;
}

extern const char fault_here[];

static void fault_with_registers(void *unused)
{
	static const unsigned char pattern[16] = "vector register";

	asm volatile("movdqu %0, %%xmm5\n"
		     "movl $0x101, %%ebx\n movl $0x112, %%r12d\n movl $0x115, %%r15d\n"
		     "movl $0x18, %%eax\n"
		     ".globl fault_here\n fault_here:\n"
		     "movl (%%rax), %%ecx\n"
		     : : "m"(pattern)
		     : "rax", "rbx", "rcx", "r12", "r15", "xmm5", "memory");
}

static const void *vector_5_of(const ucontext_t *context)
{
	return context->uc_mcontext.fpregs->_xmm[5].element;
}

static int has_fault_registers(const ucontext_t *context, const void *address)
{
	const greg_t *registers = context->uc_mcontext.gregs;

	return registers[REG_RIP] == (greg_t)(uintptr_t)fault_here && registers[REG_RAX] == 0x18 &&
	       registers[REG_RBX] == 0x101 && registers[REG_R12] == 0x112 &&
	       registers[REG_R15] == 0x115 && registers[REG_CR2] == 0x18 &&
	       address == (void *)0x18;
}

static int load_kernel(const char *kernel, const char *archive, const char *command_line)
{
	int files[] = { open(kernel, O_RDONLY), open(archive, O_RDONLY) };

	return syscall(SYS_kexec_file_load, files[0], files[1], strlen(command_line) + 1,
		       command_line, 0L);
}

/* Half of each vector register from 8 on, and selectors of segments. */
#define FILL_REGISTERS() \
	asm volatile("pcmpeqd %%xmm8, %%xmm8; movdqa %%xmm8, %%xmm9; movdqa %%xmm8, %%xmm12; " \
		     "movdqa %%xmm8, %%xmm15; movw %%ss, %%ax; movw %%ax, %%ds; movw %%ax, %%es; " \
		     "movw %%ax, %%gs" : : : "rax", "xmm8", "xmm9", "xmm12", "xmm15")
#define READ_REGISTERS(to) \
	asm volatile("movdqu %%xmm8, (%0); movdqu %%xmm9, 16(%0); movdqu %%xmm10, 32(%0); " \
		     "movdqu %%xmm11, 48(%0); movdqu %%xmm12, 64(%0); movdqu %%xmm13, 80(%0); " \
		     "movdqu %%xmm14, 96(%0); movdqu %%xmm15, 112(%0); movw %%ds, 128(%0); " \
		     "movw %%es, 130(%0); movw %%gs, 132(%0)" : : "r"(to) : "memory")

#endif /* MACHINE_X86_64_H */
