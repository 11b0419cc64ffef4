// SPDX-License-Identifier: GPL-2.0-only
/*
 * The address space of taken CPUs. It is the process's, as for an IOMMU with shared
 * virtual addressing (Documentation/mm/mmu_notifier.rst): all or most of the page
 * tables are Linux's own.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/sched/mm.h>

#include "driver.h"

/* The process ends, or the notifier is removed. */
void detach_release_space(struct mmu_notifier *notifier, struct mm_struct *mm)
{
	struct detach_core *core = container_of(notifier, struct detach_core, notifier);
	unsigned long flags;

	detach_stop(core);
	raw_spin_lock_irqsave(&core->lock, flags);
	core->user_entries = NULL;
	detach_space_copy(core);
	raw_spin_unlock_irqrestore(&core->lock, flags);
}

void detach_unbind(struct detach_core *core)
{
	lockdep_assert_held(&core->use);
	if (!core->mm)
		return;
	/* No thread runs. The notifier holds the last reference. */
	detach_space_unbind(core);
	mmu_notifier_unregister(&core->notifier, core->mm);
	core->mm = NULL;
}

/* Prepares the CPU for threads of the current process. */
int detach_bind(struct detach_core *core)
{
	unsigned long flags;
	int error;

	lockdep_assert_held(&core->use);
	if (core->mm == current->mm)
		return 0;
	detach_unbind(core);
	core->notifier.ops = &detach_notifier;
	error = mmu_notifier_register(&core->notifier, current->mm);
	if (error)
		return error;
	core->mm = current->mm;
	error = detach_space_bind(core);
	if (error) {
		mmu_notifier_unregister(&core->notifier, core->mm);
		core->mm = NULL;
		return error;
	}
	raw_spin_lock_irqsave(&core->lock, flags);
	core->user_entries = current->mm->pgd;
	raw_spin_unlock_irqrestore(&core->lock, flags);
	return 0;
}

/* Handles a page fault of the current process, as far as Linux can without its registers. */
int detach_fix_fault(const struct detach_fault *fault, bool *fixed)
{
	struct mm_struct *mm = current->mm;
	unsigned int flags = fault->write ? FAULT_FLAG_WRITE : 0;
	struct vm_area_struct *area;
	bool unlocked = false;
	int result = -EFAULT;

	*fixed = false;
	if (fault->address >= TASK_SIZE_MAX)
		return 0;
	if (mmap_read_lock_killable(mm))
		return -EINTR;
	/*
	 * fixup_user_fault() does not check the permission to execute, and does not let a stack
	 * grow, which newer kernels report.
	 */
	area = vma_lookup(mm, fault->address);
	if (area && (!fault->execute || area->vm_flags & VM_EXEC))
		result = fixup_user_fault(mm, fault->address, flags, &unlocked);
	mmap_read_unlock(mm);
	*fixed = !result;
	return 0;
}
