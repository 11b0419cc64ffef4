/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs above EL0 on a taken CPU, at the exception level of Linux. It is data
 * for Linux, which never runs it: the driver copies it to memory that is mapped
 * in the upper half of this CPU alone. It never touches the memory of the
 * process, and ends by PSCI CPU_OFF.
 *
 * While a thread runs, TTBR0 has the process's page tables, with its ASID. While
 * none runs, TTBR0 has an empty table, so that Linux can free page tables.
 *
 * With VHE the names of EL1 registers mean those of EL2 (Arm ARM, D8.11). Interrupts
 * are masked here; the only one that is enabled is the driver's.
 */
#include <asm/sysreg.h>

#include "arm64-stub.h"

/* Arm ARM, D19.2: the bits that are 1, and a CPU without translation. */
#define SCTLR_OFF		0x30c50830
/* EL2 traps no floating point; SVE and SME trap there only if not before. */
#define CPTR_NONE		0x33ff
/* EL1 with all interrupts masked, on its own stack. */
#define SPSR_EL1H		0x3c5
/* Floating point without traps, SVE and SME with them. */
#define CPACR_FLOAT		(3 << 20)
/* Access to the debug channel is trapped. */
#define MDSCR_TDCC		(1 << 12)
#define PSCI_CPU_OFF		0x84000002

/* Debug registers and others that old headers do not name. */
#define HFGRTR			S3_4_C1_C1_4
#define HFGWTR			S3_4_C1_C1_5
#define HFGITR			S3_4_C1_C1_6
#define HDFGRTR			S3_4_C3_C1_4
#define HDFGWTR			S3_4_C3_C1_5
#define HAFGRTR			S3_4_C3_C1_6
#define HCRX			S3_4_C1_C2_2
#define AMUSERENR		S3_3_C13_C2_3
#define GCSCRE0			S3_0_C2_C5_2
#define GCR			S3_0_C1_C0_6
#define RGSR			S3_0_C1_C0_5
#define TFSRE0			S3_0_C5_C6_1
#define ICC_PMR			S3_0_C4_C6_0
#define ICC_IAR1		S3_0_C12_C12_0
#define ICC_EOIR1		S3_0_C12_C12_1
#define ICC_BPR1		S3_0_C12_C12_3
#define ICC_CTLR		S3_0_C12_C12_4
#define ICC_SRE			S3_0_C12_C12_5
#define ICC_IGRPEN1		S3_0_C12_C12_7
#define ICC_SRE_2		S3_4_C12_C9_5
#define ICH_HCR			S3_4_C12_C11_0

.macro without feature, target
	ldr	w9, [x0, #STUB_FEATURES]
	tbz	w9, #\feature, \target
.endm

.macro vector target
	.balign	0x80
	b	\target
.endm

/* Loads or stores the vector registers, at x1. */
.macro vectors instruction
	\instruction	q0, q1, [x1], #32
	\instruction	q2, q3, [x1], #32
	\instruction	q4, q5, [x1], #32
	\instruction	q6, q7, [x1], #32
	\instruction	q8, q9, [x1], #32
	\instruction	q10, q11, [x1], #32
	\instruction	q12, q13, [x1], #32
	\instruction	q14, q15, [x1], #32
	\instruction	q16, q17, [x1], #32
	\instruction	q18, q19, [x1], #32
	\instruction	q20, q21, [x1], #32
	\instruction	q22, q23, [x1], #32
	\instruction	q24, q25, [x1], #32
	\instruction	q26, q27, [x1], #32
	\instruction	q28, q29, [x1], #32
	\instruction	q30, q31, [x1], #32
.endm

/* Loads or stores x2 to x29, in the frame at an address. */
.macro registers instruction, frame
	\instruction	x2, x3, [\frame, #16]
	\instruction	x4, x5, [\frame, #32]
	\instruction	x6, x7, [\frame, #48]
	\instruction	x8, x9, [\frame, #64]
	\instruction	x10, x11, [\frame, #80]
	\instruction	x12, x13, [\frame, #96]
	\instruction	x14, x15, [\frame, #112]
	\instruction	x16, x17, [\frame, #128]
	\instruction	x18, x19, [\frame, #144]
	\instruction	x20, x21, [\frame, #160]
	\instruction	x22, x23, [\frame, #176]
	\instruction	x24, x25, [\frame, #192]
	\instruction	x26, x27, [\frame, #208]
	\instruction	x28, x29, [\frame, #224]
.endm

	.section .rodata.stub, "a"
	.balign	2048
	.globl	stub_begin, stub_end, stub_entry
stub_begin:
begin:
	/* From here, with SP_EL0, and on the stub's stack. */
	.rept	4
	vector	crashed
	.endr
	vector	translated
	.rept	3
	vector	crashed
	.endr
	/* From the thread: synchronous, interrupt, the rest. */
	.balign	0x80
	stp	x0, x1, [sp, #STUB_FRAME]
	b	exception
	.balign	0x80
	stp	x0, x1, [sp, #STUB_FRAME]
	b	interrupt
	vector	crashed
	vector	crashed
	/* From a thread with 32 bits. */
	.rept	4
	vector	crashed
	.endr

/* From PSCI CPU_ON, without translation, with the address of the data. */
stub_entry:
	msr	daifset, #15
	mrs	x1, currentel
	cmp	x1, #8
	b.ne	level_1
	adr	x1, begin
	msr	vbar_el2, x1
	/* What firmware may have left differs; as Linux's own start (el2_setup.h). */
	msr	hstr_el2, xzr
	without	STUB_HCRX, 1f
	msr	HCRX, xzr
1:	without	STUB_FINE_TRAPS, 1f
	msr	HFGRTR, xzr
	msr	HFGWTR, xzr
	msr	HFGITR, xzr
	msr	HDFGRTR, xzr
	msr	HDFGWTR, xzr
	without	STUB_ACTIVITY_TRAPS, 1f
	msr	HAFGRTR, xzr
1:	mov	x1, #0xf
	msr	ICC_SRE_2, x1
	isb
	msr	ICH_HCR, xzr
	ldr	x1, [x0, #STUB_MDCR]
	msr	mdcr_el2, x1
	ldr	x1, [x0, #STUB_HCR]
	without	STUB_VHE, 1f
	msr	hcr_el2, x1
	isb
	b	common
1:	ldr	x2, =SCTLR_OFF
	msr	sctlr_el2, x2
	msr	hcr_el2, x1
	msr	vttbr_el2, xzr
	msr	cntvoff_el2, xzr
	mov	x1, #3
	msr	cnthctl_el2, x1
	mov	x1, #CPTR_NONE
	msr	cptr_el2, x1
	mrs	x1, midr_el1
	msr	vpidr_el2, x1
	mrs	x1, mpidr_el1
	msr	vmpidr_el2, x1
	mov	x1, #SPSR_EL1H
	msr	spsr_el2, x1
	adr	x1, level_1
	msr	elr_el2, x1
	eret

level_1:
	/* A hypervisor that turned Linux's EL2 into EL1 is none that this knows. */
	without	STUB_VHE, common
	b	off

common:
	msr	spsel, #1
	mov	sp, x0
	adr	x1, begin
	msr	vbar_el1, x1
	mov	x1, #CPACR_FLOAT
	msr	cpacr_el1, x1
	mov	x1, #MDSCR_TDCC
	msr	mdscr_el1, x1
	ldr	x1, [x0, #STUB_CNTKCTL]
	msr	cntkctl_el1, x1
	msr	contextidr_el1, xzr
	msr	tpidrro_el0, xzr
	without	STUB_PMU, 1f
	msr	pmuserenr_el0, xzr
1:	without	STUB_AMU, 1f
	msr	AMUSERENR, xzr
1:	without	STUB_SHADOW_STACK, 1f
	msr	GCSCRE0, xzr
1:	ldr	x1, [x0, #STUB_MAIR]
	msr	mair_el1, x1
	ldr	x1, [x0, #STUB_TCR]
	msr	tcr_el1, x1
	ldr	x1, [x0, #STUB_IDLE_TTBR0]
	msr	ttbr0_el1, x1
	ldr	x1, [x0, #STUB_IDLE_TTBR1]
	msr	ttbr1_el1, x1
	ldr	x2, [x0, #STUB_SCTLR]
	ldr	x1, [x0, #STUB_VIRTUAL_BASE]
	add	x0, x1, #STUB_DATA
	tlbi	vmalle1
	ic	iallu
	dsb	nsh
	isb
	/* The next instruction has no translation, and the exception continues the start. */
	msr	vbar_el1, x1
	mov	sp, x0
	isb
	msr	sctlr_el1, x2
	isb
	b	.

translated:
	adr	x0, begin + STUB_DATA
	ldr	w1, [x0, #STUB_STATE]
	cbnz	w1, crashed
	mov	x1, #1
	msr	ICC_SRE, x1
	isb
	mov	x1, #0xf0
	msr	ICC_PMR, x1
	msr	ICC_BPR1, xzr
	msr	ICC_CTLR, xzr
	mov	x1, #1
	msr	ICC_IGRPEN1, x1
	isb
	mov	w1, #STUB_STATE_STOPPED
	add	x2, x0, #STUB_STATE
	stlr	w1, [x2]

/* Waits for a command. A pending interrupt ends the WFI. */
idle:
	adr	x0, begin + STUB_DATA
	dsb	sy
	wfi
	mrs	x1, ICC_IAR1
	dsb	sy
	bl	acknowledge
	add	x1, x0, #STUB_COMMAND
	ldar	w1, [x1]
	cmp	w1, #STUB_COMMAND_OFF
	b.eq	off
	cmp	w1, #STUB_COMMAND_RUN
	b.ne	idle
	str	wzr, [x0, #STUB_COMMAND]
	ldr	w1, [x0, #STUB_FRESH]
	cbz	w1, 2f
	str	wzr, [x0, #STUB_FRESH]
	ldr	x1, [x0, #STUB_TPIDR]
	msr	tpidr_el0, x1
	ldr	x1, [x0, #STUB_USER_SCTLR]
	msr	sctlr_el1, x1
	without	STUB_ADDRESS_KEYS, 1f
	add	x1, x0, #STUB_KEYS
	ldp	x2, x3, [x1]
	msr_s	SYS_APIAKEYLO_EL1, x2
	msr_s	SYS_APIAKEYHI_EL1, x3
	ldp	x2, x3, [x1, #16]
	msr_s	SYS_APIBKEYLO_EL1, x2
	msr_s	SYS_APIBKEYHI_EL1, x3
	ldp	x2, x3, [x1, #32]
	msr_s	SYS_APDAKEYLO_EL1, x2
	msr_s	SYS_APDAKEYHI_EL1, x3
	ldp	x2, x3, [x1, #48]
	msr_s	SYS_APDBKEYLO_EL1, x2
	msr_s	SYS_APDBKEYHI_EL1, x3
1:	without	STUB_GENERIC_KEY, 1f
	ldr	x2, [x0, #STUB_KEYS + 64]
	msr_s	SYS_APGAKEYLO_EL1, x2
	ldr	x2, [x0, #STUB_KEYS + 72]
	msr_s	SYS_APGAKEYHI_EL1, x2
1:	without	STUB_TAGS, 1f
	/* As Linux's default: random tags are 0. */
	mov	x2, #0x1ffff
	msr	GCR, x2
	msr	RGSR, xzr
	msr	TFSRE0, xzr
1:	ldr	w1, [x0, #STUB_FPSR]
	ldr	w2, [x0, #STUB_FPCR]
	msr	fpsr, x1
	msr	fpcr, x2
	add	x1, x0, #STUB_VECTORS
	vectors	ldp
2:	ldr	x1, [x0, #STUB_USER_TTBR0]
	msr	ttbr0_el1, x1
	isb
	ldr	x1, [x0, #STUB_USER_TTBR1]
	msr	ttbr1_el1, x1
	isb
	/* Linux may have used this ASID for another process, or permitted more. */
	tlbi	vmalle1
	dsb	nsh
	ldr	x1, [x0, #STUB_FRAME_SP]
	msr	sp_el0, x1
	ldr	x1, [x0, #STUB_FRAME_PC]
	msr	elr_el1, x1
	ldr	x1, [x0, #STUB_FRAME_PSTATE]
	msr	spsr_el1, x1
	add	x30, x0, #STUB_FRAME
	registers ldp, x30
	ldp	x0, x1, [x30]
	ldr	x30, [x30, #240]
	eret
	/* No speculation beyond. */
	dsb	nsh
	isb

/* Counts and ends the interrupt in x1. Changes x1 and x2. */
acknowledge:
	cmp	w1, #1020
	b.hs	2f
	msr	ICC_EOIR1, x1
	cmp	w1, #STUB_KICK_INTERRUPT
	b.ne	1f
	ldr	x2, [x0, #STUB_KICKS]
	add	x2, x2, #1
	str	x2, [x0, #STUB_KICKS]
	ret
1:	ldr	x2, [x0, #STUB_INTERRUPTS]
	add	x2, x2, #1
	str	x2, [x0, #STUB_INTERRUPTS]
2:	ret

/* From Linux: stop if asked. */
interrupt:
	str	x2, [sp, #STUB_FRAME + 16]
	str	x30, [sp, #STUB_FRAME + 240]
	mov	x0, sp
	mrs	x1, ICC_IAR1
	dsb	sy
	bl	acknowledge
	ldr	x2, [sp, #STUB_FRAME + 16]
	ldr	x30, [sp, #STUB_FRAME + 240]
	ldr	w1, [sp, #STUB_STOP]
	mov	x0, #STUB_VECTOR_KICK
	cbnz	w1, save
	ldp	x0, x1, [sp, #STUB_FRAME]
	eret
	dsb	nsh
	isb

exception:
	mrs	x0, esr_el1
	str	x0, [sp, #STUB_FRAME_SYNDROME]
	lsr	x0, x0, #26
	and	x0, x0, #0x3f
	cmp	x0, #STUB_CLASS_SVC
	b.eq	1f
	ldr	x1, [sp, #STUB_FAULTS]
	add	x1, x1, #1
	str	x1, [sp, #STUB_FAULTS]
	b	save
1:	ldr	x1, [sp, #STUB_SYSTEM_CALLS]
	add	x1, x1, #1
	str	x1, [sp, #STUB_SYSTEM_CALLS]
	mov	x0, #STUB_VECTOR_SYSTEM_CALL
/* Saves the thread, with its exception in x0, and informs Linux. */
save:
	str	x0, [sp, #STUB_FRAME_VECTOR]
	add	x0, sp, #STUB_FRAME
	registers stp, x0
	str	x30, [x0, #240]
	mov	x0, sp
	mrs	x1, sp_el0
	str	x1, [x0, #STUB_FRAME_SP]
	mrs	x1, elr_el1
	str	x1, [x0, #STUB_FRAME_PC]
	mrs	x1, spsr_el1
	str	x1, [x0, #STUB_FRAME_PSTATE]
	mrs	x1, far_el1
	str	x1, [x0, #STUB_FRAME_ADDRESS]
	mrs	x1, tpidr_el0
	str	x1, [x0, #STUB_TPIDR]
	mrs	x1, fpsr
	mrs	x2, fpcr
	str	w1, [x0, #STUB_FPSR]
	str	w2, [x0, #STUB_FPCR]
	add	x1, x0, #STUB_VECTORS
	vectors	stp
	ldr	x1, [x0, #STUB_IDLE_TTBR0]
	msr	ttbr0_el1, x1
	isb
	ldr	x1, [x0, #STUB_IDLE_TTBR1]
	msr	ttbr1_el1, x1
	isb
	/* No value of the thread stays in a general register. */
	.irp	number, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, \
		23, 24, 25, 26, 27, 28, 29, 30
	mov	x\number, xzr
	.endr
	mov	w1, #STUB_STATE_STOPPED
	adr	x30, idle
/* Sets the state in w1, makes the doorbell interrupt pending, and continues at x30. */
ring:
	add	x2, x0, #STUB_STATE
	stlr	w1, [x2]
	ldp	w1, w2, [x0, #STUB_DOORBELL]
	cbz	w2, 1f
	add	x1, x1, #(STUB_DISTRIBUTOR - STUB_DATA)
	dsb	sy
	str	w2, [x0, x1]
1:	br	x30

/* An exception of the stub itself, or one that no thread can make: an error of the hardware. */
crashed:
	adr	x0, begin + STUB_DATA
	mrs	x1, elr_el1
	str	x1, [x0, #STUB_CRASH_PC]
	mrs	x1, esr_el1
	lsr	x1, x1, #26
	str	x1, [x0, #STUB_CRASH_VECTOR]
	/* Without translation there is no distributor, and no program waits yet. */
	mov	w1, #STUB_STATE_CRASHED
	adr	x30, off
	ldr	w2, [x0, #STUB_STATE]
	cbnz	w2, ring

off:
	adr	x0, begin + STUB_DATA
	msr	ICC_IGRPEN1, xzr
	isb
	without	STUB_HVC, 1f
	ldr	w0, =PSCI_CPU_OFF
	hvc	#0
	b	off_failed
1:	ldr	w0, =PSCI_CPU_OFF
	smc	#0
off_failed:
	wfi
	b	off_failed

	.ltorg
stub_end:
	/* An error if the stub needs more than a page. */
	.org	begin + STUB_DATA

	.section .note.GNU-stack, "", %progbits
