/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A CPU that is offline arrives here by a non-maskable interrupt and continues in
 * the stub. This code is mapped at the same address in Linux's page tables and
 * in those of the stub; see Intel SDM 3A, 4.10.4.1 on CR4.PGE.
 */
#include <linux/linkage.h>
#include <linux/version.h>
#include <asm/nospec-branch.h>
#include <asm/processor-flags.h>
#include <asm/unwind_hints.h>

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 4, 0)
#define UNWIND_HINT_UNDEFINED	UNWIND_HINT_EMPTY
#endif

	.text
	/* No page boundary within. Filled with INT3: objtool would not know a jump. */
	.balign	64, 0xcc
SYM_CODE_START_NOALIGN(detach_takeover)
	UNWIND_HINT_UNDEFINED
	ENDBR
	movq	detach_takeover_entry(%rip), %rcx
	movq	detach_takeover_cr3(%rip), %rbx
	movq	%cr4, %rax
	movq	%rax, %rsi
	andq	$~X86_CR4_PGE, %rax
	movq	%rax, %cr4
	movq	%rbx, %cr3
	movq	%rsi, %cr4
	ANNOTATE_RETPOLINE_SAFE
	jmp	*%rcx
	int3
SYM_CODE_END(detach_takeover)
