// SPDX-License-Identifier: GPL-2.0-only
/*
 * mmap(2) for programs of the root: the status pages, and the regions that
 * cells' configurations share with the root.
 *
 * Locking: faults come with mmap_lock held, and ioctls access user memory with
 * rampart.lock held. Therefore mappings have their own lock, rampart.view, and
 * no user memory is accessed while it is held. It is taken inside rampart.lock.
 */
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/overflow.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "driver.h"

/* All open files; a mapping holds a reference to its own. */
static LIST_HEAD(openings);

void rampart_view_open(struct rampart_opening *opening, struct file *file)
{
	opening->mapping = file->f_mapping;
	mutex_lock(&rampart.view);
	list_add(&opening->list, &openings);
	mutex_unlock(&rampart.view);
}

void rampart_view_close(struct rampart_opening *opening)
{
	mutex_lock(&rampart.view);
	list_del(&opening->list);
	mutex_unlock(&rampart.view);
}

/* Sets the status pages for mmap; NULL for none. */
void rampart_view_status(struct rampart_status *status)
{
	mutex_lock(&rampart.view);
	rampart.status = status;
	mutex_unlock(&rampart.view);
}

/* Unmaps the shared regions of a destroyed cell; later accesses raise SIGBUS. */
void rampart_view_end(const struct rampart_blob_header *blob)
{
	const struct rampart_memory_region *region = rampart_blob_memory(blob);
	struct rampart_opening *opening;
	u32 index;

	mutex_lock(&rampart.view);
	list_for_each_entry(opening, &openings, list)
		for (index = 0; index < blob->memory_count; index++)
			if (region[index].flags & RAMPART_MEMORY_SHARED)
				unmap_mapping_range(opening->mapping, region[index].physical,
						    region[index].bytes, 1);
	mutex_unlock(&rampart.view);
}

/* Returns whether a region has all pages of a range that is inside it. */
static bool has_colours(const struct rampart_memory_region *region, u64 physical, u64 bytes)
{
	u64 page = physical / RAMPART_PAGE_BYTES;
	u64 end = DIV_ROUND_UP(physical + bytes, RAMPART_PAGE_BYTES);

	/* The loop ends with the first page of another colour. */
	for (; region->colours && page < end; page++)
		if (!(region->colours >> page % RAMPART_COLOURS & 1))
			return false;
	return true;
}

/* Returns whether a cell shares the whole range with the root. */
static bool is_shown(u64 physical, u64 bytes, bool writes)
{
	u32 wanted = RAMPART_MEMORY_SHARED | RAMPART_MEMORY_ROOT_READ |
		     (writes ? RAMPART_MEMORY_ROOT_WRITE : 0);
	const struct rampart_memory_region *region;
	const struct rampart_member *member;
	u32 number, index;

	lockdep_assert_held(&rampart.view);
	for (number = 0; number < RAMPART_MAXIMUM_CELLS; number++) {
		member = rampart.members[number];
		if (!member)
			continue;
		region = rampart_blob_memory(member->blob);
		for (index = 0; index < member->blob->memory_count; index++, region++)
			if ((region->flags & wanted) == wanted && physical >= region->physical &&
			    physical - region->physical < region->bytes &&
			    bytes <= region->bytes - (physical - region->physical) &&
			    has_colours(region, physical, bytes))
				return true;
	}
	return false;
}

static vm_fault_t view_fault(struct vm_fault *fault)
{
	vm_fault_t result = VM_FAULT_SIGBUS;
	u64 physical = (u64)fault->pgoff << PAGE_SHIFT;
	bool writes = fault->vma->vm_flags & VM_WRITE;

	mutex_lock(&rampart.view);
	if (is_shown(physical, PAGE_SIZE, writes))
		result = vmf_insert_pfn(fault->vma, fault->address, fault->pgoff);
	mutex_unlock(&rampart.view);
	return result;
}

static const struct vm_operations_struct view_operations = {
	.fault = view_fault,
};

static void change_flags(struct vm_area_struct *area, unsigned long set, unsigned long clear)
{
#if KERNEL_VERSION(6, 3, 0) <= LINUX_VERSION_CODE
	vm_flags_mod(area, set, clear);
#else
	area->vm_flags = (area->vm_flags | set) & ~clear;
#endif
}

/* Stage 2 makes the pages read-only. A mapping that outlives the hypervisor shows unused memory. */
static int map_status(struct vm_area_struct *area)
{
	unsigned long bytes = area->vm_end - area->vm_start;
	int error = -ENODEV;

	if (bytes > RAMPART_STATUS_BYTES)
		return -EINVAL;
	if (area->vm_flags & VM_WRITE)
		return -EPERM;
	change_flags(area, 0, VM_MAYWRITE);
	mutex_lock(&rampart.view);
	if (rampart.status)
		error = remap_pfn_range(area, area->vm_start, PHYS_PFN(rampart.status_address),
					bytes, area->vm_page_prot);
	mutex_unlock(&rampart.view);
	return error;
}

/* Maps the status pages at offset 0, otherwise the shared memory at that physical address. */
int rampart_view_map(struct file *file, struct vm_area_struct *area)
{
	u64 physical = (u64)area->vm_pgoff << PAGE_SHIFT;
	bool writes = area->vm_flags & VM_WRITE;
	bool shown;

	if (!area->vm_pgoff)
		return map_status(area);
	/* A private mapping would become a copy on write. */
	if (!(area->vm_flags & VM_SHARED))
		return -EINVAL;
	if (area->vm_flags & VM_EXEC)
		return -EPERM;
	mutex_lock(&rampart.view);
	shown = is_shown(physical, area->vm_end - area->vm_start, writes);
	mutex_unlock(&rampart.view);
	if (!shown)
		return -EACCES;
	/* Prevent mprotect(2) from adding rights. */
	change_flags(area, VM_IO | VM_PFNMAP | VM_DONTEXPAND | VM_DONTDUMP,
		     VM_MAYEXEC | (writes ? 0 : VM_MAYWRITE));
	/*
	 * Cells access it uncached, as with their MMU off; memory types must not
	 * be mixed.
	 */
	area->vm_page_prot = pgprot_writecombine(area->vm_page_prot);
	area->vm_ops = &view_operations;
	return 0;
}

/* Copies the configuration of the root or a cell to user space. */
int rampart_view_configuration(struct rampart_configuration *request)
{
	const struct rampart_blob_header *blob = NULL;
	u64 capacity = request->configuration_bytes;

	lockdep_assert_held(&rampart.lock);
	if (request->reserved)
		return -EINVAL;
	if (!rampart.enabled)
		return -ENODEV;
	if (request->cell == RAMPART_ROOT)
		blob = rampart.system;
	else if (request->cell < RAMPART_MAXIMUM_CELLS && rampart.members[request->cell])
		blob = rampart.members[request->cell]->blob;
	if (!blob)
		return -ENOENT;
	request->configuration_bytes = blob->bytes;
	if (capacity < blob->bytes)
		return -ENOSPC;
	return copy_to_user(u64_to_user_ptr(request->configuration), blob, blob->bytes) ?
		-EFAULT : 0;
}
