// SPDX-License-Identifier: GPL-2.0-only
/*
 * Creates, loads and destroys cells. Their CPUs leave Linux and return to it
 * by CPU hotplug; their memory is not used by Linux.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bitops.h>
#include <linux/cpu.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "driver.h"

static const u64 *blob_cpus(const struct rampart_blob_header *blob)
{
	return (const u64 *)(blob + 1);
}

const struct rampart_memory_region *rampart_blob_memory(const struct rampart_blob_header *blob)
{
	return (const struct rampart_memory_region *)(blob_cpus(blob) + blob->cpu_count);
}

/* Checks only what this file reads; the hypervisor checks the rest. */
static bool blob_is_whole(const struct rampart_blob_header *blob)
{
	u64 needed = sizeof(*blob);

	if (blob->cpu_count > RAMPART_MAXIMUM_CPUS ||
	    blob->memory_count > RAMPART_MAXIMUM_MEMORY_REGIONS ||
	    blob->interrupt_count > RAMPART_MAXIMUM_INTERRUPTS ||
	    strnlen(blob->name, RAMPART_NAME_BYTES) == RAMPART_NAME_BYTES)
		return false;
	needed += blob->cpu_count * sizeof(u64);
	needed += blob->memory_count * sizeof(struct rampart_memory_region);
	needed += blob->interrupt_count * sizeof(struct rampart_interrupt_grant);
	return needed <= blob->bytes;
}

static int cpu_of(u64 mpidr)
{
	int cpu;

	for_each_present_cpu(cpu)
		if (rampart.mpidr[cpu] == mpidr)
			return cpu;
	return -ENOENT;
}

/* The hypervisor knows the machine's memory, but not which memory this kernel uses. */
static int check_memory(const struct rampart_blob_header *blob)
{
	const struct rampart_memory_region *region = rampart_blob_memory(blob);
	u32 index;

	for (index = 0; index < blob->memory_count; index++, region++) {
		if (region_intersects(region->physical, region->bytes, IORESOURCE_SYSTEM_RAM,
				      IORES_DESC_NONE) == REGION_DISJOINT)
			continue;
		pr_err("cell %s: memory at %#llx is in use by this kernel; use memory reserved by mem= or a reserved-memory node\n",
		       blob->name, region->physical);
		return -EADDRINUSE;
	}
	return 0;
}

/*
 * The hypervisor knows the root's interrupts, but not which of them this kernel has
 * requested: of a device, or without one, as detach does.
 */
static int check_interrupts(const struct rampart_blob_header *blob)
{
	const struct rampart_interrupt_grant *grant =
		(const void *)(rampart_blob_memory(blob) + blob->memory_count);
	u32 index, number;

	for (index = 0; index < blob->interrupt_count; index++, grant++) {
		number = grant->number;
		/* That one the hypervisor refuses itself, with the reason. */
		if (number == rampart.event_interrupt ||
		    !irq_has_action(rampart_find_interrupt(number)))
			continue;
		pr_err("cell %s: interrupt %u is in use by this kernel: see /proc/interrupts; unbind its driver or choose another\n",
		       blob->name, number);
		return -EBUSY;
	}
	return 0;
}

/* Brings the CPUs back online. Logs those that fail, and returns the last error. */
static int return_cpus(const struct cpumask *cpus)
{
	int cpu, error, failed = 0;

	for_each_cpu(cpu, cpus) {
		error = add_cpu(cpu);
		if (!error)
			continue;
		failed = error;
		pr_err("cannot bring CPU %d online: %d; try: echo 1 >/sys/devices/system/cpu/cpu%d/online\n",
		       cpu, error, cpu);
	}
	return failed;
}

static int take_cpus(const struct rampart_blob_header *blob, struct cpumask *taken)
{
	const u64 *mpidr = blob_cpus(blob);
	u32 index;
	int cpu, error;

	cpumask_clear(taken);
	for (index = 0; index < blob->cpu_count; index++) {
		cpu = cpu_of(mpidr[index]);
		if (cpu < 0 || !cpu_online(cpu)) {
			pr_err("cell %s: the CPU with MPIDR %#llx is not online\n",
			       blob->name, mpidr[index]);
			error = -ENODEV;
			goto give_back;
		}
		error = remove_cpu(cpu);
		if (error) {
			pr_err("cell %s: cannot take CPU %d offline: %d\n", blob->name, cpu, error);
			goto give_back;
		}
		cpumask_set_cpu(cpu, taken);
	}
	return 0;

give_back:
	return_cpus(taken);
	return error;
}

/* From here on the last reference frees it. The cell also works without sysfs. */
static void add_member(struct rampart_member *member)
{
	if (kobject_init_and_add(&member->kobject, &rampart_member_type, rampart.cells, "%u",
				 member->number))
		pr_warn("cell %s has no sysfs entry\n", member->blob->name);
	mutex_lock(&rampart.view);
	rampart.members[member->number] = member;
	mutex_unlock(&rampart.view);
}

int rampart_cell_attach(u32 number, struct rampart_blob_header *blob)
{
	struct rampart_member *member;
	u32 index;
	int cpu;

	if (!blob_is_whole(blob)) {
		kfree(blob);
		return -EPROTO;
	}
	member = kzalloc(sizeof(*member), GFP_KERNEL);
	if (!member) {
		kfree(blob);
		return -ENOMEM;
	}
	/* The hypervisor did not let this kernel turn them on. */
	for (index = 0; index < blob->cpu_count; index++) {
		cpu = cpu_of(blob_cpus(blob)[index]);
		if (cpu >= 0)
			cpumask_set_cpu(cpu, &member->cpus);
	}
	member->number = number;
	member->blob = blob;
	add_member(member);
	return 0;
}

int rampart_cell_create(struct rampart_create *request)
{
	struct rampart_blob_header *blob;
	struct rampart_member *member;
	int error;

	lockdep_assert_held(&rampart.lock);
	if (!rampart.enabled)
		return -ENODEV;
	blob = rampart_read_blob(request->configuration, request->configuration_bytes,
				 RAMPART_CELL_MAGIC);
	if (IS_ERR(blob))
		return PTR_ERR(blob);
	error = blob_is_whole(blob) ? check_memory(blob) : -EINVAL;
	if (!error)
		error = check_interrupts(blob);
	if (error)
		goto free_blob;
	member = kzalloc(sizeof(*member), GFP_KERNEL);
	if (!member) {
		error = -ENOMEM;
		goto free_blob;
	}
	error = take_cpus(blob, &member->cpus);
	if (error)
		goto free_member;
	rampart_call(RAMPART_CALL_CELL_CREATE, virt_to_phys(blob), blob->bytes, &request->answer);
	error = rampart_error(&request->answer);
	if (error)
		goto return_cpus;
	member->number = request->answer.values[0];
	if (member->number >= RAMPART_MAXIMUM_CELLS) {
		error = -EPROTO;
		goto return_cpus;
	}
	member->blob = blob;
	add_member(member);
	return 0;

return_cpus:
	return_cpus(&member->cpus);
free_member:
	kfree(member);
free_blob:
	kfree(blob);
	return error;
}

static struct rampart_member *member_of(u32 number)
{
	lockdep_assert_held(&rampart.lock);
	return number < RAMPART_MAXIMUM_CELLS ? rampart.members[number] : NULL;
}

/* Returns the physical address of an offset in the guest memory of a region. */
static u64 physical_of(const struct rampart_memory_region *region, u64 offset)
{
	unsigned long colours = region->colours;
	u32 colour, own, page;
	u64 block;

	if (!colours)
		return region->physical + offset;
	/* A division of 64 bits by a small number, and its remainder. */
	block = div_u64_rem(offset / RAMPART_PAGE_BYTES, hweight32(region->colours), &own);
	page = 0;
	for_each_set_bit(colour, &colours, RAMPART_COLOURS) {
		page = colour;
		if (!own--)
			break;
	}
	return region->physical + block * RAMPART_COLOUR_BLOCK_BYTES +
	       (u64)page * RAMPART_PAGE_BYTES + offset % RAMPART_PAGE_BYTES;
}

/* Returns how many bytes from this offset on are contiguous, at most the wanted ones. */
static u64 contiguous_bytes(const struct rampart_memory_region *region, u64 offset, u64 wanted)
{
	u64 start = physical_of(region, offset);
	u64 bytes = RAMPART_PAGE_BYTES - offset % RAMPART_PAGE_BYTES;

	if (!region->colours)
		return wanted;
	while (bytes < wanted && physical_of(region, offset + bytes) == start + bytes)
		bytes += RAMPART_PAGE_BYTES;
	return min(bytes, wanted);
}

static u64 guest_bytes(const struct rampart_memory_region *region)
{
	if (!region->colours)
		return region->bytes;
	return region->bytes / RAMPART_COLOURS * hweight32(region->colours);
}

/* Returns the loadable region that contains the whole range, or NULL. */
static const struct rampart_memory_region *
region_of(const struct rampart_blob_header *blob, u64 guest, u64 bytes)
{
	const struct rampart_memory_region *region = rampart_blob_memory(blob);
	u32 index;

	for (index = 0; index < blob->memory_count; index++, region++)
		if (region->flags & RAMPART_MEMORY_LOADABLE && guest >= region->guest &&
		    guest - region->guest < guest_bytes(region) &&
		    bytes <= guest_bytes(region) - (guest - region->guest))
			return region;
	return NULL;
}

/* Copies data to contiguous memory. */
static int load_part(u64 physical, const void __user *data, u64 bytes)
{
	void *memory = memremap(physical, bytes, MEMREMAP_WB);
	int error = 0;

	if (!memory)
		return -ENOMEM;
	if (copy_from_user(memory, data, bytes))
		error = -EFAULT;
	rampart_clean(memory, bytes);
	memunmap(memory);
	return error;
}

int rampart_cell_load(struct rampart_load *request)
{
	struct rampart_member *member = member_of(request->cell);
	const struct rampart_memory_region *region;
	u64 done, offset, bytes;
	int error;

	if (!member || !request->bytes)
		return -ENOENT;
	region = region_of(member->blob, request->guest, request->bytes);
	if (!region) {
		pr_err("cell %s: %#llx bytes at %#llx are not in one loadable region\n",
		       member->blob->name, request->bytes, request->guest);
		return -EFAULT;
	}
	rampart_call(RAMPART_CALL_CELL_LOADABLE, request->cell, 0, &request->answer);
	error = rampart_error(&request->answer);
	if (error)
		return error;
	offset = request->guest - region->guest;
	for (done = 0; done < request->bytes && !error; done += bytes) {
		bytes = contiguous_bytes(region, offset + done, request->bytes - done);
		error = load_part(physical_of(region, offset + done),
				  u64_to_user_ptr(request->data + done), bytes);
		cond_resched();
	}
	return error;
}

int rampart_cell_destroy(u32 number, struct rampart_answer *answer)
{
	struct rampart_member *member = member_of(number);
	int error;

	if (!member)
		return -ENOENT;
	rampart_network_end(member);
	rampart_scmi_pause(number, true);
	rampart_call(RAMPART_CALL_CELL_DESTROY, number, 0, answer);
	error = rampart_error(answer);
	if (error) {
		/* Otherwise it may have lost pages; it can only be destroyed. */
		if (rampart_is_running(number))
			rampart_scmi_pause(number, false);
		else
			rampart_scmi_release(number);
		return error;
	}
	mutex_lock(&rampart.view);
	rampart.members[number] = NULL;
	mutex_unlock(&rampart.view);
	rampart_scmi_end(number);
	rampart_view_end(member->blob);
	/* The cell is destroyed even if a CPU does not come back. */
	error = return_cpus(&member->cpus);
	kobject_put(&member->kobject);
	return error;
}

bool rampart_is_running(u32 number)
{
	u64 condition = READ_ONCE(rampart.status->cells[number].condition);

	return (u16)condition == RAMPART_CELL_RUNNING;
}

bool rampart_has_cells(void)
{
	u32 number;

	for (number = 0; number < RAMPART_MAXIMUM_CELLS; number++)
		if (member_of(number))
			return true;
	return false;
}
