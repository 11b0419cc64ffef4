/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RAMPART_DETACH_X86_H
#define _RAMPART_DETACH_X86_H

#include <asm/msr.h>

#include "x86-stub.h"

#ifndef DETACH_HAS_RDMSRQ
#define rdmsrq			rdmsrl
#define wrmsrq			wrmsrl
#define rdmsrq_safe_on_cpu	rdmsrl_safe_on_cpu
#endif

/* Commands of the local APIC: Intel SDM 3A, 10.6.1. */
#define DETACH_SEND_NMI		0x4400
#define DETACH_SEND_INIT	0xc500
#define DETACH_SEND_VECTOR	0x4000

/* Enough for three paths of page tables with five levels. */
#define DETACH_MOST_TABLES	16

struct detach_arch {
	u32 apic_id;
	/* The stub's pages, and page tables. */
	void *code;
	void *stacks;
	void *idt;
	u64 *idle_space;
	u64 *user_space;
	void *tables[DETACH_MOST_TABLES];
	unsigned int table_count;
};

/* What the machine has, constant after the module is loaded. */
struct detach_machine {
	u32 counter_khz;
	u64 components;
	u32 state_bytes;
	int doorbell;
	bool x2apic;
	void __iomem *apic;
	phys_addr_t apic_address;
	unsigned int levels;
	u64 base;
	u32 mxcsr_mask;
	u32 pkru_offset;
};

struct detach_core;

extern const char detach_takeover[];
extern u64 detach_takeover_entry;
extern u64 detach_takeover_cr3;

/* x86-space.c */
int detach_space_new(struct detach_core *core);
void detach_space_free(struct detach_core *core);

#endif /* _RAMPART_DETACH_X86_H */
