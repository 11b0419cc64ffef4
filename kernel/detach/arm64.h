/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RAMPART_DETACH_ARM64_H
#define _RAMPART_DETACH_ARM64_H

#include <asm/pgtable.h>

#include "arm64-stub.h"

struct detach_arch {
	u64 mpidr;
	/* The stub's memory, in physical memory one range. */
	void *code;
	/* The CPU's registers for software-generated interrupts. */
	void __iomem *redistributor;
	u64 asid;
};

/* What the machine has, constant after the module is loaded. */
struct detach_machine {
	u32 counter_khz;
	u64 components;
	u32 state_bytes;
	int doorbell;
	u32 doorbell_number;
	bool hvc;
	phys_addr_t distributor;
};

struct detach_core;

/* arm64-gic.c */
int detach_gic_begin(void);
void detach_gic_end(void);
void __iomem *detach_redistributor_of(u64 mpidr);
void detach_enable_kick(const struct detach_core *core);

#endif /* _RAMPART_DETACH_ARM64_H */
