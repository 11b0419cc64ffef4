/* SPDX-License-Identifier: GPL-2.0-only */
/* Hostile instructions and states of x86-64. */
#ifndef HOSTILE_X86_64_H
#define HOSTILE_X86_64_H

/* The stub's pages. */
#define CODE	"$0xffff800000000000"
#define DATA	"$0xffff800000001000"
#define APIC	"$0xffff800000005000"

/* Privileged instructions and interrupts by software. */
ACTION(do_hlt, "hlt")
ACTION(do_cli, "cli")
ACTION(do_ud2, "ud2")
ACTION(do_int3, "int3")
ACTION(do_icebp, ".byte 0xf1")
ACTION(do_int_2, "int $2")
ACTION(do_int_8, "int $8")
ACTION(do_int_14, "int $14")
ACTION(do_int_18, "int $18")
ACTION(do_int_32, "int $32")
ACTION(do_int_128, "movl $20, %%eax; int $0x80")
ACTION(do_int_255, "int $255")
ACTION(do_sysenter, "movl $20, %%eax; sysenter")
ACTION(do_sysret, "sysretq")
ACTION(do_swapgs, "swapgs")
ACTION(do_vmcall, "vmcall")
ACTION(do_vmmcall, "vmmcall")
ACTION(do_rdpmc, "xorl %%ecx, %%ecx; rdpmc")
ACTION(do_rdmsr, "movl $0xc0000082, %%ecx; rdmsr")
ACTION(do_wrmsr, "movl $0xc0000082, %%ecx; wrmsr")
ACTION(do_read_cr3, "movq %%cr3, %%rax")
ACTION(do_write_cr3, "xorl %%eax, %%eax; movq %%rax, %%cr3")
ACTION(do_write_dr7, "movq %%rax, %%dr7")
ACTION(do_in, "inb $0x80, %%al")
ACTION(do_out, "outb %%al, $0x80")
ACTION(do_wbinvd, "wbinvd")
ACTION(do_invlpg, "invlpg (%%rsp)")
ACTION(do_lidt, "subq $16, %%rsp; lidt (%%rsp)")
ACTION(do_lgdt, "subq $16, %%rsp; lgdt (%%rsp)")
ACTION(do_ltr, "movl $0x40, %%eax; ltr %%ax")
ACTION(do_xsetbv, "xorl %%ecx, %%ecx; movl $1, %%eax; xorl %%edx, %%edx; xsetbv")
ACTION(do_divide, "xorl %%ecx, %%ecx; divl %%ecx")
ACTION(do_mwait, "monitor; mwait")

/* The stub's memory, and addresses that are none. */
ACTION(read_data, "movabsq " DATA ", %%rax; movq (%%rax), %%rax")
ACTION(write_data, "movabsq " DATA ", %%rax; movq %%rax, (%%rax)")
ACTION(read_code, "movabsq " CODE ", %%rax; movq (%%rax), %%rax")
ACTION(jump_code, "movabsq " CODE ", %%rax; jmp *%%rax")
ACTION(write_apic, "movabsq " APIC ", %%rax; movl $0, 0x300(%%rax)")
ACTION(read_kernel, "movq $-2097152, %%rax; movq (%%rax), %%rax")
ACTION(jump_nowhere, "movl $0x1000, %%eax; jmp *%%rax")
ACTION(call_vsyscall, "xorl %%edi, %%edi; movq $-0xa00000, %%rax; addq $0x400, %%rax; call *%%rax")
ACTION(jump_not_canonical, "movabsq $0x8000000000000000, %%rax; jmp *%%rax")
ACTION(jump_end, "movabsq $0x7fffffffffff, %%rax; jmp *%%rax")
ACTION(write_null, "xorl %%eax, %%eax; movq %%rax, (%%rax)")
ACTION(jump_stack, "subq $64, %%rsp; movb $0xc3, (%%rsp); jmp *%%rsp")

/* Stacks that are none. */
ACTION(stack_null_call, "xorl %%esp, %%esp; movl $39, %%eax; syscall; ud2")
ACTION(stack_data_call, "movabsq " DATA ", %%rsp; movl $39, %%eax; syscall; ud2")
ACTION(stack_not_canonical_call, "movabsq $0x8000000000000000, %%rsp; movl $39, %%eax; syscall; ud2")
ACTION(stack_data_push, "movabsq " DATA ", %%rsp; pushq %%rax")
ACTION(stack_odd_fault, "movq $7, %%rsp; ud2")
ACTION(stack_null_int, "xorl %%esp, %%esp; int3")
ACTION(stack_selector_call, "movw %%ss, %%ax; movw %%ax, %%ss; syscall")
ACTION(stack_selector_int, "movw %%ss, %%ax; movw %%ax, %%ss; int3")

/* Flags. */
ACTION(flag_step, "pushfq; orq $0x100, (%%rsp); popfq; nop; nop; movl $39, %%eax; syscall; nop")
ACTION(flag_step_stack, "pushfq; orq $0x100, (%%rsp); movw %%ss, %%ax; popfq; movw %%ax, %%ss; syscall")
ACTION(flag_nested, "pushfq; orq $0x4000, (%%rsp); popfq; movl $39, %%eax; syscall; iretq")
ACTION(flag_alignment, "pushfq; orq $0x40000, (%%rsp); popfq; movl 1(%%rsp), %%eax")
ACTION(flag_direction, "std; movl $39, %%eax; syscall; ud2")
ACTION(flag_iopl, "pushfq; orq $0x3000, (%%rsp); popfq; cli")

/*
 * Far returns and IRET: to 32-bit code, to ring 0, to the task, to none. QEMU before 9.1 reads
 * their stack as the supervisor, which SMAP refuses, and Linux reports a bug for a
 * thread that is not detached too. So they need a machine without SMAP.
 */
#define FAR(name, selector) ACTION(name, "pushq $" selector "; leaq 1f(%%rip), %%rax; pushq %%rax; lretq; 1: nop")
FAR(far_user32, "0x23")
FAR(far_kernel, "0x10")
FAR(far_task, "0x40")
FAR(far_ldt, "0x0f")
ACTION(return_kernel, "movq %%rsp, %%rax; pushq $0x18; pushq %%rax; pushfq; pushq $0x10; leaq 1f(%%rip), %%rax; pushq %%rax; iretq; 1: nop")

/* State of the vector units. */
ACTION(bad_mxcsr, "pushq $-1; ldmxcsr (%%rsp)")
ACTION(bad_fs_base, "movabsq $0x8000000000000000, %%rax; wrfsbase %%rax")
ACTION(kernel_fs_base, "movabsq " DATA ", %%rax; wrfsbase %%rax; movq %%fs:0, %%rax")
ACTION(float_exception, "pushq $0x1f80; andl $~0x200, (%%rsp); ldmxcsr (%%rsp); xorps %%xmm0, %%xmm0; divps %%xmm0, %%xmm0")

static void all_selectors(void)
{
	uint32_t selector;

	/* Those that Linux's table lacks fault, and the thread continues attached. */
	for (selector = 0; selector < 0x80; selector++)
		asm volatile("verr %w0; verw %w0; lar %w0, %%eax; lsl %w0, %%eax"
			     : : "r"(selector) : "eax", "cc");
	for (selector = 0; selector < 4; selector++)
		asm volatile("movw %w0, %%ds; movw %w0, %%es" : : "r"(selector));
	asm volatile("movw %w0, %%gs; movw %w0, %%ds" : : "r"(0x40));
}

static void restore_garbage(void)
{
	unsigned char *area = aligned_alloc(64, 8192);

	memset(area, 0xff, 8192);
	asm volatile("xrstor64 (%0)" : : "r"(area), "a"(-1), "d"(-1) : "memory");
}

static void endless(void)
{
	asm volatile("1: jmp 1b");
}

static void endless_calls(void)
{
	asm volatile("1: movl $39, %%eax; syscall; jmp 1b" : : : "rax", "rcx", "r11");
}

/* The instructions of an endless loop. */
static const unsigned char endless_code[] = { 0xeb, 0xfe };

/* A function that returns the value: a MOV to EAX, and RET. */
static void fill_function(unsigned char *code, int value)
{
	code[0] = 0xb8;
	memcpy(code + 1, &value, 4);
	code[5] = 0xc3;
}

#define MACHINE_ACTIONS \
	ONE(do_hlt), ONE(do_cli), ONE(do_ud2), ONE(do_int3), ONE(do_icebp), ONE(do_int_2), \
	ONE(do_int_8), ONE(do_int_14), ONE(do_int_18), ONE(do_int_32), ONE(do_int_128), \
	ONE(do_int_255), ONE(do_sysenter), ONE(do_sysret), ONE(do_swapgs), ONE(do_vmcall), \
	ONE(do_vmmcall), ONE(do_rdpmc), ONE(do_rdmsr), ONE(do_wrmsr), ONE(do_read_cr3), \
	ONE(do_write_cr3), ONE(do_write_dr7), ONE(do_in), ONE(do_out), ONE(do_wbinvd), \
	ONE(do_invlpg), ONE(do_lidt), ONE(do_lgdt), ONE(do_ltr), ONE(do_xsetbv), ONE(do_divide), \
	ONE(do_mwait), ONE(read_data), ONE(write_data), ONE(read_code), ONE(jump_code), \
	ONE(write_apic), ONE(read_kernel), ONE(jump_nowhere), ONE(call_vsyscall), ONE(jump_not_canonical), \
	ONE(jump_end), ONE(write_null), ONE(jump_stack), ONE(stack_null_call), \
	ONE(stack_data_call), ONE(stack_not_canonical_call), ONE(stack_data_push), \
	ONE(stack_odd_fault), ONE(stack_null_int), ONE(stack_selector_call), \
	ONE(stack_selector_int), ONE(flag_step), ONE(flag_step_stack), WITHOUT_SMAP(flag_nested), \
	ONE(flag_alignment), ONE(flag_direction), ONE(flag_iopl), WITHOUT_SMAP(far_user32), \
	WITHOUT_SMAP(far_kernel), WITHOUT_SMAP(far_task), WITHOUT_SMAP(far_ldt), \
	WITHOUT_SMAP(return_kernel), ONE(bad_mxcsr), \
	ONE(bad_fs_base), ONE(kernel_fs_base), ONE(float_exception), ONE(all_selectors), \
	ONE(restore_garbage),

#endif /* HOSTILE_X86_64_H */
