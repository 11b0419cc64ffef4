/* SPDX-License-Identifier: GPL-2.0-only */
/* Why a configuration is refused, in the words of core (words.rs): a test compares them. */
#ifndef _RAMPART_REFUSALS_H
#define _RAMPART_REFUSALS_H

static const char *const rampart_refusals[] = {
	[RAMPART_REFUSAL_TRUNCATED] = "the configuration is shorter than it says",
	[RAMPART_REFUSAL_TOO_LONG] = "the configuration is longer than it says or than 32 KiB",
	[RAMPART_REFUSAL_WRONG_MAGIC] = "this is no configuration of this kind",
	[RAMPART_REFUSAL_WRONG_REVISION] = "the configuration is of another revision",
	[RAMPART_REFUSAL_TOO_MANY_ENTRIES] = "a table has more entries than it may have",
	[RAMPART_REFUSAL_RESERVED_NOT_ZERO] = "a reserved field or flag is not 0",
	[RAMPART_REFUSAL_BAD_NAME] =
		"the name is empty, has other than letters, digits, - _ . or is in use",
	[RAMPART_REFUSAL_NO_CPU] = "there is no CPU",
	[RAMPART_REFUSAL_CPU_TWICE] = "the CPU is named twice",
	[RAMPART_REFUSAL_CPU_UNKNOWN] = "the machine has no such CPU",
	[RAMPART_REFUSAL_CPU_OWNED] = "the CPU is another cell's, or the last one of the root",
	[RAMPART_REFUSAL_MEMORY_UNALIGNED] = "the region is not in whole pages of 4 KiB",
	[RAMPART_REFUSAL_MEMORY_RANGE] = "the region is empty or beyond the address space",
	[RAMPART_REFUSAL_MEMORY_FLAGS] =
		"the region's flags contradict each other or those of the root's",
	[RAMPART_REFUSAL_MEMORY_OVERLAPS_GUEST] =
		"the region overlaps another one where the cell sees them",
	[RAMPART_REFUSAL_MEMORY_OVERLAPS_PHYSICAL] =
		"the region shows memory that another one shows",
	[RAMPART_REFUSAL_MEMORY_NOT_ROOT] =
		"the region is not, or not in whole, memory of the root",
	[RAMPART_REFUSAL_MEMORY_OWNED] = "the region is another cell's",
	[RAMPART_REFUSAL_MEMORY_RESERVED] =
		"the region is the hypervisor's or the interrupt controller's",
	[RAMPART_REFUSAL_MEMORY_TWO_WRITERS] = "two may write the shared region",
	[RAMPART_REFUSAL_ENTRY_OUTSIDE] = "the entry is not in an executable, loadable region",
	[RAMPART_REFUSAL_INTERRUPT_RANGE] = "the interrupt is no shared one that this machine has",
	[RAMPART_REFUSAL_INTERRUPT_TWICE] = "the interrupt is named twice",
	[RAMPART_REFUSAL_INTERRUPT_OWNED] = "the interrupt is another cell's or the hypervisor's",
	[RAMPART_REFUSAL_REGISTER_SHAPE] = "the register's width, alignment or bits are impossible",
	[RAMPART_REFUSAL_REGISTER_ORDER] = "the registers are not in ascending order or overlap",
	[RAMPART_REFUSAL_REGISTER_BITS_OWNED] = "bits of the register are another cell's",
	[RAMPART_REFUSAL_REGISTER_DIFFERS] =
		"another cell has the register with other width or behaviour",
	[RAMPART_REFUSAL_REGISTER_LOCATION] =
		"the register is in no device page that the root can share",
	[RAMPART_REFUSAL_SMC_RANGE] = "the range of functions is empty or touches PSCI",
	[RAMPART_REFUSAL_DOORBELL_RANGE] = "the doorbell is no shared interrupt",
	[RAMPART_REFUSAL_TOO_MANY_SHARED] =
		"more registers are shared than the hypervisor has room for",
	[RAMPART_REFUSAL_PLATFORM_SHAPE] =
		"the interrupt controller's frames are unaligned or overlap",
};

#endif /* _RAMPART_REFUSALS_H */
