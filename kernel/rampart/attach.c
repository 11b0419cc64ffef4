// SPDX-License-Identifier: GPL-2.0-only
/*
 * Attaches to a hypervisor that runs already: it has started this kernel from a
 * standby, after the kernel that launched it had ended. Everything comes from the
 * hypervisor, nothing from memory of that kernel.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/err.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/of_address.h>
#include <linux/slab.h>
#include <asm/virt.h>

#include "driver.h"

/* Copies the configuration of the root or of a cell from the status pages. */
static struct rampart_blob_header *read_configuration(const void *status, u32 number, u64 magic,
						      struct rampart_answer *answer)
{
	struct rampart_blob_header *blob;
	u64 bytes;

	rampart_call(RAMPART_CALL_CONFIGURATION, number, 0, answer);
	bytes = answer->values[0];
	if (rampart_error(answer) || bytes < sizeof(*blob) || bytes > RAMPART_MAXIMUM_BLOB_BYTES)
		return ERR_PTR(-EREMOTEIO);
	blob = kmemdup(status + RAMPART_CONFIGURATION_COPY, bytes, GFP_KERNEL);
	if (!blob)
		return ERR_PTR(-ENOMEM);
	if (blob->magic != magic || blob->revision != RAMPART_REVISION || blob->bytes != bytes) {
		kfree(blob);
		return ERR_PTR(-EPROTONOSUPPORT);
	}
	return blob;
}

/* The affinity of a CPU; all bits if the tree has none. */
static u64 affinity_of(int cpu)
{
	struct device_node *node = of_get_cpu_node(cpu, NULL);
	const __be32 *reg = node ? of_get_property(node, "reg", NULL) : NULL;
	u64 affinity = reg ? of_read_number(reg, of_n_addr_cells(node)) : ~0ULL;

	of_node_put(node);
	return affinity;
}

/* The CPUs by their affinity, as the hypervisor counts them. */
static void find_cpus(const struct rampart_status *status)
{
	u32 index;
	int cpu;

	for_each_present_cpu(cpu) {
		rampart.mpidr[cpu] = affinity_of(cpu);
		for (index = 0; index < min(status->cpu_count, RAMPART_MAXIMUM_CPUS); index++)
			if (status->cpus[index].mpidr == rampart.mpidr[cpu])
				rampart.index[cpu] = index;
	}
}

static u32 attach_cells(const struct rampart_status *status)
{
	struct rampart_blob_header *blob;
	struct rampart_answer answer;
	u32 number, count = 0;
	int error;

	for (number = RAMPART_ROOT + 1; number < RAMPART_MAXIMUM_CELLS; number++) {
		if ((u16)status->cells[number].condition == RAMPART_CELL_FREE)
			continue;
		blob = read_configuration(status, number, RAMPART_CELL_MAGIC, &answer);
		error = IS_ERR(blob) ? PTR_ERR(blob) : rampart_cell_attach(number, blob);
		if (error)
			pr_err("cannot attach to cell %u: %d; it runs on\n", number, error);
		else
			count++;
	}
	return count;
}

/* Returns 0 also if this kernel was not started by the hypervisor. */
int rampart_attach(void)
{
	struct device_node *node = of_find_compatible_node(NULL, NULL, "rampart,hypervisor");
	struct rampart_blob_header *system;
	struct rampart_status *status;
	struct rampart_answer answer;
	phys_addr_t address;

	lockdep_assert_held(&rampart.lock);
	if (!node)
		return 0;
	of_node_put(node);
	if (is_kernel_in_hyp_mode()) {
		pr_err("the device tree is that of a standby, but this kernel runs at EL2\n");
		return -ENODEV;
	}
	rampart_call(RAMPART_CALL_INTERFACE, 0, 0, &answer);
	if (rampart_error(&answer) || answer.values[0] != RAMPART_REVISION ||
	    answer.values[1] != RAMPART_ROOT || !answer.values[2]) {
		pr_err("the hypervisor answers %lld, revision %llu: expected revision %u; install driver and image of the same build\n",
		       answer.outcome, answer.values[0], RAMPART_REVISION);
		return -EPROTONOSUPPORT;
	}
	address = answer.values[2];
	status = memremap(address, RAMPART_STATUS_BYTES, MEMREMAP_WB);
	if (!status)
		return -ENOMEM;
	system = read_configuration(status, RAMPART_ROOT, RAMPART_SYSTEM_MAGIC, &answer);
	if (IS_ERR(system) || status->magic != RAMPART_STATUS_MAGIC ||
	    system->bytes < sizeof(*system) + sizeof(struct rampart_platform)) {
		pr_err("the hypervisor does not return the configuration of the system: %lld\n",
		       answer.outcome);
		if (!IS_ERR(system))
			kfree(system);
		memunmap(status);
		return -EPROTO;
	}
	rampart.memory = answer.values[1];
	rampart.memory_bytes = answer.values[2];
	if (!request_mem_region(rampart.memory, rampart.memory_bytes, "rampart hypervisor"))
		pr_warn("the hypervisor's memory is claimed by another driver\n");
	rampart.system = system;
	rampart.status_address = address;
	rampart.event_interrupt = rampart_platform(system)->event_interrupt;
	find_cpus(status);
	rampart_view_status(status);
	rampart.enabled = true;
	rampart.attached = true;
	__module_get(THIS_MODULE);
	pr_info("attached to the hypervisor and %u cells; it has started the root again %llu times\n",
		attach_cells(status), status->cells[RAMPART_ROOT].starts);
	rampart_watch_begin(rampart.event_interrupt);
	return 0;
}
