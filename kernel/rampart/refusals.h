/* SPDX-License-Identifier: GPL-2.0-only */
/* The reasons for refusing a configuration. A test compares them with refusal_text.rs of core. */
#ifndef _RAMPART_REFUSALS_H
#define _RAMPART_REFUSALS_H

static const char *const rampart_refusals[] = {
	[RAMPART_REFUSAL_TRUNCATED] = "the configuration is shorter than its header states",
	[RAMPART_REFUSAL_TOO_LONG] =
		"the configuration is longer than its header states or than 32 KiB",
	[RAMPART_REFUSAL_WRONG_MAGIC] =
		"the magic number is not that of a configuration of this kind",
	[RAMPART_REFUSAL_WRONG_REVISION] = "the configuration's revision is not the hypervisor's",
	[RAMPART_REFUSAL_TOO_MANY_ENTRIES] = "a table has too many entries",
	[RAMPART_REFUSAL_RESERVED_NOT_ZERO] = "a reserved field or flag is not 0",
	[RAMPART_REFUSAL_BAD_NAME] =
		"the name is empty, in use, or has characters other than letters, digits, - _ .",
	[RAMPART_REFUSAL_NO_CPU] = "the configuration has no CPU, and is not that of a standby",
	[RAMPART_REFUSAL_CPU_TWICE] = "the CPU is listed twice",
	[RAMPART_REFUSAL_CPU_UNKNOWN] = "the machine has no such CPU",
	[RAMPART_REFUSAL_CPU_OWNED] =
		"the CPU belongs to another cell, or is the last CPU of the root",
	[RAMPART_REFUSAL_MEMORY_UNALIGNED] =
		"the region is not a whole number of 4 KiB pages, or with colours of 128 KiB",
	[RAMPART_REFUSAL_MEMORY_RANGE] = "the region is empty or exceeds the address space",
	[RAMPART_REFUSAL_MEMORY_FLAGS] =
		"the region's flags contradict each other or those of the root's region",
	[RAMPART_REFUSAL_MEMORY_OVERLAPS_GUEST] =
		"the region overlaps another region at its guest address",
	[RAMPART_REFUSAL_MEMORY_OVERLAPS_PHYSICAL] =
		"the region overlaps another region at its physical address",
	[RAMPART_REFUSAL_MEMORY_NOT_ROOT] = "the region is not entirely memory of the root",
	[RAMPART_REFUSAL_MEMORY_OWNED] = "the region belongs to another cell",
	[RAMPART_REFUSAL_MEMORY_RESERVED] =
		"the region belongs to the hypervisor or the interrupt controller",
	[RAMPART_REFUSAL_MEMORY_TWO_WRITERS] = "the shared region has two writers",
	[RAMPART_REFUSAL_ENTRY_OUTSIDE] =
		"the entry point is not in an executable, loadable region",
	[RAMPART_REFUSAL_INTERRUPT_RANGE] = "the machine has no such shared peripheral interrupt",
	[RAMPART_REFUSAL_INTERRUPT_TWICE] = "the interrupt is listed twice",
	[RAMPART_REFUSAL_INTERRUPT_OWNED] =
		"the interrupt belongs to another cell or to the hypervisor",
	[RAMPART_REFUSAL_REGISTER_SHAPE] = "the register's width, alignment or bits are invalid",
	[RAMPART_REFUSAL_REGISTER_ORDER] = "the registers overlap or are not in ascending order",
	[RAMPART_REFUSAL_REGISTER_BITS_OWNED] = "bits of the register belong to another cell",
	[RAMPART_REFUSAL_REGISTER_DIFFERS] =
		"another cell has the register with a different width or behaviour",
	[RAMPART_REFUSAL_REGISTER_LOCATION] =
		"the register is not in a device page that the root can share",
	[RAMPART_REFUSAL_SMC_RANGE] =
		"the range of SMC functions is empty, or has standard services or functions of the root",
	[RAMPART_REFUSAL_DOORBELL_RANGE] = "the doorbell is not a shared peripheral interrupt",
	[RAMPART_REFUSAL_TOO_MANY_SHARED] = "the hypervisor has no space for more shared registers",
	[RAMPART_REFUSAL_PLATFORM_SHAPE] =
		"the interrupt controller's frames are unaligned or overlap",
	[RAMPART_REFUSAL_STREAM_RANGE] = "the root has no such stream of an SMMU or PCI function",
	[RAMPART_REFUSAL_STREAM_OWNED] = "the stream or the PCI function belongs to another cell",
	[RAMPART_REFUSAL_SMMU_UNSUITABLE] =
		"the SMMU is in use, or lacks stage 2, coherent tables, streams or address bits",
};

#endif /* _RAMPART_REFUSALS_H */
