/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs at ring 0 on a taken CPU. It is data for Linux, which never runs
 * it: the driver copies it to a page of the CPU's own page tables. It has its
 * own descriptor tables, never touches the memory of the process, and is left
 * for Linux only by an INIT.
 *
 * While a thread runs, CR3 has the process's lower half. While none runs, CR3
 * has only the stub, so that Linux can free page tables without asking.
 *
 * Interrupts are off at ring 0; the local APIC is as offlining left it,
 * disabled by software, which lets NMI and INIT through.
 */
#include <asm/msr-index.h>
#include <asm/processor-flags.h>
#include <asm/segment.h>

#include "x86-stub.h"

#define data(offset)	(begin + STUB_DATA + (offset))(%rip)
#define apic(offset)	(begin + STUB_APIC + (offset))(%rip)

/* In the order of a frame. */
.macro push_registers
	.irp	register, rdi, rsi, rdx, rcx, rax, r8, r9, r10, r11, rbx, rbp, r12, r13, r14, r15
	pushq	%\register
	.endr
.endm
.macro pop_registers
	.irp	register, r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi
	popq	%\register
	.endr
.endm

	.section .rodata.stub, "a"
	.balign	16
	.globl	stub_begin, stub_end, stub_entry, stub_system_call, stub_interrupt, stub_exceptions
stub_begin:
begin:

/* From the takeover, with the idle page tables. */
stub_entry:
	endbr64
	lgdt	data(STUB_GDT_POINTER)
	lidt	data(STUB_IDT_POINTER)
	leaq	data(STUB_FRAME), %rsp
	pushq	$__KERNEL_CS
	leaq	1f(%rip), %rax
	pushq	%rax
	lretq
1:	movl	$__KERNEL_DS, %eax
	movl	%eax, %ss
	xorl	%eax, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %fs
	movl	%eax, %gs
	lldt	%ax
	movq	%rax, %dr7
	movl	$(8 * GDT_ENTRY_TSS), %eax
	ltr	%ax
	/* RDPMC is for ring 0 only. */
	movq	%cr4, %rax
	andq	$~X86_CR4_PCE, %rax
	movq	%rax, %cr4
	leaq	data(STUB_REGISTERS), %rsi
2:	movl	(%rsi), %ecx
	testl	%ecx, %ecx
	jz	3f
	movl	8(%rsi), %eax
	movl	12(%rsi), %edx
	wrmsr
	addq	$16, %rsi
	jmp	2b
	/* NMIs are blocked until an IRET. */
3:	leaq	data(STUB_FRAME), %rax
	pushq	$__KERNEL_DS
	pushq	%rax
	pushq	$X86_EFLAGS_FIXED
	pushq	$__KERNEL_CS
	leaq	4f(%rip), %rax
	pushq	%rax
	iretq
4:	movl	$STUB_STATE_STOPPED, data(STUB_STATE)
	jmp	idle

/* Waits for a command. An NMI in this range continues at its begin, so that none is lost. */
idle:
	cmpl	$STUB_COMMAND_RUN, data(STUB_COMMAND)
	je	resume
	hlt
	jmp	idle
idle_end:

resume:
	movl	$0, data(STUB_COMMAND)
	cmpl	$0, data(STUB_FRESH)
	je	1f
	movl	$0, data(STUB_FRESH)
	/* Nothing that the last process left in the CPU is to be measured by this one. */
	cmpl	$0, data(STUB_BARRIER)
	je	2f
	movl	$0, data(STUB_BARRIER)
	movl	$MSR_IA32_PRED_CMD, %ecx
	movl	$PRED_CMD_IBPB, %eax
	xorl	%edx, %edx
	wrmsr
2:	pushq	$__KERNEL_DS
	verw	(%rsp)
	addq	$8, %rsp
	xorl	%eax, %eax
	movl	%eax, %ds
	movl	%eax, %es
	movl	%eax, %fs
	movl	%eax, %gs
	/*
	 * Without an exception to report, an XRSTOR need not replace the pointers to
	 * the last instruction of the FPU (AMD APM 2, 11.4.4); this replaces them.
	 */
	fnclex
	emms
	fildl	data(STUB_COMPONENTS)
	/* All components, also those that are not carried: they become initial. */
	movl	$-1, %eax
	movl	%eax, %edx
	xrstor64 (begin + STUB_EXTENDED)(%rip)
	movl	data(STUB_FS_BASE), %eax
	movl	data(STUB_FS_BASE + 4), %edx
	movl	$MSR_FS_BASE, %ecx
	wrmsr
	movl	data(STUB_GS_BASE), %eax
	movl	data(STUB_GS_BASE + 4), %edx
	movl	$MSR_GS_BASE, %ecx
	wrmsr
1:	movq	data(STUB_USER_CR3), %rax
	movq	%rax, %cr3
	leaq	data(STUB_FRAME), %rsp
	pop_registers
	addq	$16, %rsp
	iretq

stub_system_call:
	endbr64
	movq	%rsp, data(STUB_SCRATCH)
	leaq	data(STUB_FRAME_END), %rsp
	pushq	$__USER_DS
	pushq	data(STUB_SCRATCH)
	pushq	%r11
	pushq	$__USER_CS
	pushq	%rcx
	incq	data(STUB_SYSTEM_CALLS)
	pushq	$0
	pushq	$STUB_VECTOR_SYSTEM_CALL
	jmp	save

/* Not expected: the local APIC is disabled. */
stub_interrupt:
	endbr64
	incq	data(STUB_INTERRUPTS)
	iretq

exception:
	testb	$3, 24(%rsp)
	jz	crashed
	incq	data(STUB_FAULTS)
save:
	push_registers
/* The frame is complete. */
leave:
	cld
	movq	%cr2, %rax
	movq	%rax, data(STUB_CR2)
	movl	data(STUB_COMPONENTS), %eax
	movl	data(STUB_COMPONENTS + 4), %edx
	xsave64	(begin + STUB_EXTENDED)(%rip)
	movl	$MSR_FS_BASE, %ecx
	rdmsr
	movl	%eax, data(STUB_FS_BASE)
	movl	%edx, data(STUB_FS_BASE + 4)
	movl	$MSR_GS_BASE, %ecx
	rdmsr
	movl	%eax, data(STUB_GS_BASE)
	movl	%edx, data(STUB_GS_BASE + 4)
	movq	data(STUB_IDLE_CR3), %rax
	movq	%rax, %cr3
	/* No value of the thread stays in a register. */
	.irp	register, ebx, ebp, esi, edi, r8d, r9d, r10d, r11d, r12d, r13d, r14d, r15d
	xorl	%\register, %\register
	.endr
	movl	$STUB_STATE_STOPPED, data(STUB_STATE)
	leaq	idle(%rip), %rdi
/* Sends the doorbell interrupt to Linux and continues at RDI. */
ring:
	movl	data(STUB_DESTINATION), %edx
	movl	data(STUB_DOORBELL), %eax
	testl	%eax, %eax
	jz	2f
	cmpl	$0, data(STUB_X2APIC)
	jne	1f
	shll	$24, %edx
	movl	%edx, apic(0x310)
	movl	%eax, apic(0x300)
	jmp	2f
1:	movl	$0x830, %ecx
	/* A WRMSR of the x2APIC does not order earlier stores. */
	mfence
	lfence
	wrmsr
2:	leaq	idle(%rip), %rax
	cmpq	%rax, %rdi
	je	idle
halt:
	cli
	hlt
	jmp	halt

/* An exception of the stub itself. The CPU does not continue: Linux halts the CPU by an INIT. */
crashed:
	popq	data(STUB_CRASH_VECTOR)
	addq	$8, %rsp
	popq	data(STUB_CRASH_PC)
	movq	data(STUB_IDLE_CR3), %rax
	movq	%rax, %cr3
	movl	$STUB_STATE_CRASHED, data(STUB_STATE)
	leaq	halt(%rip), %rdi
	jmp	ring

/* From Linux: flush, and stop if asked. */
nmi:
	pushq	$0
	pushq	$2
	pushq	%rax
	pushq	%rcx
	/* Read before the flush, so that a later request is not acknowledged by it. */
	movl	data(STUB_FLUSH_WANTED), %ecx
	movq	%cr3, %rax
	movq	%rax, %cr3
	movl	%ecx, data(STUB_FLUSH_DONE)
	incq	data(STUB_KICKS)
	testb	$3, 40(%rsp)
	jz	1f
	cmpl	$0, data(STUB_STOP)
	je	2f
	popq	%rcx
	popq	%rax
	jmp	leave_interrupt_stack
1:	leaq	idle(%rip), %rcx
	cmpq	%rcx, 32(%rsp)
	jb	2f
	leaq	idle_end(%rip), %rax
	cmpq	%rax, 32(%rsp)
	jae	2f
	movq	%rcx, 32(%rsp)
2:	popq	%rcx
	popq	%rax
	addq	$16, %rsp
	iretq

debug:
	testb	$3, 8(%rsp)
	jnz	1f
	/*
	 * A load of SS delays what the thread causes by one instruction (Intel SDM 3A,
	 * 6.8.3), which can be its SYSCALL. The stub has no breakpoints.
	 */
	andl	$~X86_EFLAGS_TF, 16(%rsp)
	iretq
1:	pushq	$0
	pushq	$1
	incq	data(STUB_FAULTS)
	jmp	leave_interrupt_stack

machine_check:
	pushq	$0
	pushq	$18
	pushq	%rax
	pushq	%rcx
	pushq	%rdx
	xorl	%eax, %eax
	xorl	%edx, %edx
	movl	$MSR_IA32_MCG_STATUS, %ecx
	wrmsr
	popq	%rdx
	popq	%rcx
	popq	%rax
	testb	$3, 24(%rsp)
	jz	crashed
	incq	data(STUB_FAULTS)
/* Moves the registers from the stack of the interrupt to the frame. */
leave_interrupt_stack:
	push_registers
	cld
	movq	%rsp, %rsi
	leaq	data(STUB_FRAME), %rdi
	movq	%rdi, %rdx
	movl	$STUB_FRAME_WORDS, %ecx
	rep movsq
	pushq	$__KERNEL_DS
	pushq	%rdx
	pushq	$X86_EFLAGS_FIXED
	pushq	$__KERNEL_CS
	leaq	leave(%rip), %rax
	pushq	%rax
	iretq

/* One entry for each exception. Those with an error code: Intel SDM 3A, table 6-1. */
.macro begin_entry
	.balign	STUB_EXCEPTION_BYTES, 0xcc
	endbr64
.endm
.macro entry numbers:vararg
	.irp	number, \numbers
	begin_entry
	pushq	$0
	pushq	$\number
	jmp	exception
	.endr
.endm
.macro entry_with_error numbers:vararg
	.irp	number, \numbers
	begin_entry
	pushq	$\number
	jmp	exception
	.endr
.endm
.macro entry_to target
	begin_entry
	jmp	\target
.endm

	.balign	STUB_EXCEPTION_BYTES, 0xcc
stub_exceptions:
	entry	0
	entry_to debug
	entry_to nmi
	entry	3, 4, 5, 6, 7
	entry_with_error 8
	entry	9
	entry_with_error 10, 11, 12, 13, 14
	entry	15, 16
	entry_with_error 17
	entry_to machine_check
	entry	19, 20
	entry_with_error 21
	entry	22, 23, 24, 25, 26, 27, 28
	entry_with_error 29, 30
	entry	31
stub_end:

	.section .note.GNU-stack, "", @progbits
