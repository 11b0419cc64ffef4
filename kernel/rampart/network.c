// SPDX-License-Identifier: GPL-2.0-only
/*
 * The root's ends of networks with cells: a platform device for kernel/net,
 * from memory that the cell's configuration shares with the root.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/irqdomain.h>
#include <linux/platform_device.h>
#include <linux/property.h>

#include "driver.h"

/*
 * The interrupt of all ends and of SCMI, Linux's number; 0 while there is none. Guarded by
 * rampart.lock.
 */
static unsigned int bell;

/* Returns the interrupt by which cells ring the root, 0 for none. */
static u32 bell_of_root(void)
{
	/* The hypervisor has checked the order and the counts (format.rs). */
	const struct rampart_blob_header *blob = rampart.system;
	const u64 *cpus = (const void *)(blob + 1) + sizeof(struct rampart_platform);
	const struct rampart_memory_region *memory = (const void *)(cpus + blob->cpu_count);
	const struct rampart_interrupt_grant *grant = (const void *)(memory + blob->memory_count);
	u32 index;

	for (index = 0; index < blob->interrupt_count; index++)
		if (grant[index].flags & RAMPART_INTERRUPT_DOORBELL)
			return grant[index].number;
	return 0;
}

/* Returns Linux's number of the interrupt by which cells ring the root. */
int rampart_map_bell(unsigned int *interrupt)
{
	u32 number = bell_of_root();

	if (!bell) {
		if (!number) {
			pr_err("the system's configuration has no interrupt for doorbells of cells\n");
			return -ENODEV;
		}
		/* A mapping of another driver is not ours to dispose of. */
		if (rampart_find_interrupt(number)) {
			pr_err("interrupt %u is in use by this kernel: see /proc/interrupts\n",
			       number);
			return -EBUSY;
		}
		bell = rampart_map_interrupt(number);
	}
	*interrupt = bell;
	return bell ? 0 : -ENODEV;
}

/* Finds a region of the cell that begins there and has these flags and no others of the mask. */
bool rampart_find_region(const struct rampart_blob_header *blob, u64 physical, u32 flags,
			 struct resource *found)
{
	const u32 mask = RAMPART_MEMORY_SHARED | RAMPART_MEMORY_WRITE | RAMPART_MEMORY_DEVICE |
			 RAMPART_MEMORY_ROOT_READ | RAMPART_MEMORY_ROOT_WRITE;
	const struct rampart_memory_region *region = rampart_blob_memory(blob);
	u32 index;

	for (index = 0; index < blob->memory_count; index++, region++) {
		if (region->physical != physical || (region->flags & mask) != flags)
			continue;
		*found = (struct resource) {
			.start = physical,
			.end = physical + region->bytes - 1,
			.flags = IORESOURCE_MEM,
		};
		return true;
	}
	return false;
}

int rampart_network_create(const struct rampart_network *request)
{
	const u32 read = RAMPART_MEMORY_SHARED | RAMPART_MEMORY_ROOT_READ;
	struct platform_device_info info = {
		.name = "rampart-net",
		.id = request->cell,
	};
	struct property_entry properties[5] = {};
	struct rampart_member *member;
	struct platform_device *device;
	struct resource resources[3] = {};
	int error;

	lockdep_assert_held(&rampart.lock);
	if (memchr_inv(request->reserved, 0, sizeof(request->reserved)))
		return -EINVAL;
	if (!rampart.enabled)
		return -ENODEV;
	member = request->cell < RAMPART_MAXIMUM_CELLS ? rampart.members[request->cell] : NULL;
	if (!member)
		return -ENOENT;
	if (member->network)
		return -EEXIST;
	if (request->doorbell >= rampart.system->doorbell_count) {
		pr_err("cell %s: the root has no doorbell %u\n", member->blob->name,
		       request->doorbell);
		return -EINVAL;
	}
	if (!rampart_find_region(member->blob, request->own, read | RAMPART_MEMORY_ROOT_WRITE,
				 &resources[0]) ||
	    !rampart_find_region(member->blob, request->other, read | RAMPART_MEMORY_WRITE,
				 &resources[1])) {
		pr_err("cell %s: it has no such regions, one written by the root and one by the cell\n",
		       member->blob->name);
		return -EINVAL;
	}
	error = rampart_map_bell(&bell);
	if (error)
		return error;
	resources[2].start = bell;
	resources[2].end = bell;
	resources[2].flags = IORESOURCE_IRQ;
	properties[0] = PROPERTY_ENTRY_U32("rampart,doorbell", request->doorbell);
	properties[1] = PROPERTY_ENTRY_U8_ARRAY_LEN("local-mac-address", request->address,
						    sizeof(request->address));
	properties[2] = PROPERTY_ENTRY_STRING("label", member->blob->name);
	if (request->cached)
		properties[3] = PROPERTY_ENTRY_BOOL("rampart,cached");
	info.res = resources;
	info.num_res = ARRAY_SIZE(resources);
	info.properties = properties;
	device = platform_device_register_full(&info);
	if (IS_ERR(device))
		return PTR_ERR(device);
	member->network = device;
	return 0;
}

/* Before the memory of a cell is taken away. */
void rampart_network_end(struct rampart_member *member)
{
	platform_device_unregister(member->network);
	member->network = NULL;
}

/* Before the hypervisor ends; no cell exists. */
void rampart_network_release(void)
{
	if (bell)
		irq_dispose_mapping(bell);
	bell = 0;
}
