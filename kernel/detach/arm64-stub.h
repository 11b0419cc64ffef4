/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The memory of a taken CPU, shared by the driver and the stub. The stub finds
 * everything relative to its own address.
 */
#ifndef _RAMPART_DETACH_ARM64_STUB_H
#define _RAMPART_DETACH_ARM64_STUB_H

/* Pages of 4 KiB from the stub's base on, in physical and in virtual memory. */
#define STUB_CODE		0x0000
#define STUB_DATA		0x1000
/* Only in physical memory: two levels of page tables, and an empty one. */
#define STUB_DIRECTORY		0x2000
#define STUB_TABLE		0x3000
#define STUB_EMPTY		0x4000
#define STUB_BYTES		0x8000
/* Only in virtual memory: registers of the interrupt distributor. */
#define STUB_DISTRIBUTOR	0x2000

/* The smallest upper half: 32 MiB, translated by two levels. */
#define STUB_T1SZ		39
#define STUB_BASE		(~0ULL << (64 - STUB_T1SZ))

/* Offsets in the page of data. */
#define STUB_STATE		0x000
#define STUB_COMMAND		0x004
#define STUB_FRESH		0x008
#define STUB_STOP		0x00c
#define STUB_FEATURES		0x010
#define STUB_DOORBELL		0x014
#define STUB_DOORBELL_BIT	0x018
#define STUB_SYSTEM_CALLS	0x020
#define STUB_FAULTS		0x028
#define STUB_KICKS		0x030
#define STUB_INTERRUPTS		0x038
#define STUB_CRASH_PC		0x040
#define STUB_CRASH_VECTOR	0x048
#define STUB_HCR		0x050
#define STUB_MDCR		0x058
#define STUB_MAIR		0x060
#define STUB_TCR		0x068
#define STUB_SCTLR		0x070
#define STUB_CNTKCTL		0x078
#define STUB_VIRTUAL_BASE	0x080
#define STUB_IDLE_TTBR0		0x088
#define STUB_IDLE_TTBR1		0x090
#define STUB_USER_TTBR0		0x098
#define STUB_USER_TTBR1		0x0a0
#define STUB_USER_SCTLR		0x0a8
#define STUB_TPIDR		0x0b0
#define STUB_KEYS		0x0b8
/* The registers of the thread. Its first two are saved relative to the stack pointer. */
#define STUB_FRAME		0x110
#define STUB_FRAME_SP		(STUB_FRAME + 8 * 31)
#define STUB_FRAME_PC		(STUB_FRAME + 8 * 32)
#define STUB_FRAME_PSTATE	(STUB_FRAME + 8 * 33)
#define STUB_FRAME_VECTOR	(STUB_FRAME + 8 * 34)
#define STUB_FRAME_SYNDROME	(STUB_FRAME + 8 * 35)
#define STUB_FRAME_ADDRESS	(STUB_FRAME + 8 * 36)
/* As struct fpsimd_context. */
#define STUB_EXTENDED		0x300
#define STUB_FPSR		(STUB_EXTENDED + 8)
#define STUB_FPCR		(STUB_EXTENDED + 12)
#define STUB_VECTORS		(STUB_EXTENDED + 16)

#define STUB_STATE_NEW		0
#define STUB_STATE_STOPPED	1
#define STUB_STATE_RUNNING	2
#define STUB_STATE_CRASHED	3

#define STUB_COMMAND_RUN	1
#define STUB_COMMAND_OFF	2

/* Bits of the features. */
#define STUB_VHE		0	/* Linux runs at EL2 */
#define STUB_HVC		1	/* PSCI by HVC */
#define STUB_PMU		2
#define STUB_AMU		3
#define STUB_FINE_TRAPS		4
#define STUB_HCRX		5
#define STUB_ADDRESS_KEYS	6
#define STUB_GENERIC_KEY	7
#define STUB_TAGS		8	/* memory tagging */
#define STUB_ACTIVITY_TRAPS	9	/* fine-grained traps of the AMU */
#define STUB_SHADOW_STACK	10	/* guarded control stacks */

/* The interrupt from Linux: software-generated, and not secure on any machine. */
#define STUB_KICK_INTERRUPT	7

/* Beyond the classes of exceptions, ESR_EL1.EC. */
#define STUB_VECTOR_KICK	64
#define STUB_VECTOR_SYSTEM_CALL	65

/* The class of a system call by AArch64. */
#define STUB_CLASS_SVC		0x15

#ifndef __ASSEMBLY__

#include <linux/types.h>
#include <asm/sigcontext.h>

struct stub_frame {
	u64 x[31], sp, pc, pstate;
	u64 vector, syndrome, address;
};

static inline u64 detach_pc(const struct stub_frame *frame)
{
	return frame->pc;
}

struct stub_data {
	u32 state;
	u32 command;
	u32 fresh;
	u32 stop;
	u32 features;
	u32 doorbell;
	u32 doorbell_bit;
	u32 reserved;
	u64 system_calls;
	u64 faults;
	u64 kicks;
	u64 interrupts;
	u64 crash_pc;
	u64 crash_vector;
	u64 hcr;
	u64 mdcr;
	u64 mair;
	u64 tcr;
	u64 sctlr;
	u64 cntkctl;
	u64 virtual_base;
	u64 idle_ttbr0;
	u64 idle_ttbr1;
	u64 user_ttbr0;
	u64 user_ttbr1;
	u64 user_sctlr;
	u64 tpidr;
	u64 keys[10];
	u64 reserved_2;
	struct stub_frame frame;
	u8 reserved_3[STUB_EXTENDED - STUB_FRAME - sizeof(struct stub_frame)];
	struct fpsimd_context extended;
};

/* The stub's code, which is copied, and its entry. */
extern const char stub_begin[], stub_end[], stub_entry[];

#endif /* __ASSEMBLY__ */

#endif /* _RAMPART_DETACH_ARM64_STUB_H */
