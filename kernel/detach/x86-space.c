// SPDX-License-Identifier: GPL-2.0-only
/*
 * x86-64: page tables of taken CPUs. The user half of the top level is copied from
 * the process, the lower levels are Linux's own. Whenever Linux changes
 * translations, it calls the notifier, which copies the top level again, makes
 * the CPU flush, and returns when it has.
 */
#include <linux/mem_encrypt.h>
#include <linux/mm.h>
#include <linux/vmalloc.h>
#include <asm/pgtable.h>

#include "driver.h"

#define USER_ENTRIES	256
#define STUB_ENTRY	256
#define MODULE_ENTRY	511

static u64 *detach_new_table(struct detach_core *core)
{
	u64 *table;

	if (core->arch.table_count == DETACH_MOST_TABLES)
		return NULL;
	table = (u64 *)get_zeroed_page(GFP_KERNEL);
	if (table)
		core->arch.tables[core->arch.table_count++] = table;
	return table;
}

/* Maps a page for the supervisor in the idle tables. */
static int detach_map(struct detach_core *core, u64 address, u64 entry)
{
	u64 *table = core->arch.idle_space;
	unsigned int level;

	for (level = detach_machine.levels - 1; level; level--) {
		u64 *slot = &table[(address >> (PAGE_SHIFT + 9 * level)) & 511];

		if (*slot & _PAGE_PRESENT) {
			table = __va(*slot & PTE_PFN_MASK);
			continue;
		}
		table = detach_new_table(core);
		if (!table)
			return -ENOMEM;
		*slot = __pa(table) | _KERNPG_TABLE;
	}
	table[(address >> PAGE_SHIFT) & 511] = entry | _PAGE_PRESENT | _PAGE_ACCESSED;
	return 0;
}

int detach_space_new(struct detach_core *core)
{
	u64 base = detach_machine.base;
	u64 takeover = (u64)detach_takeover;
	u64 writable = _PAGE_RW | _PAGE_DIRTY | _PAGE_NX;
	int error;

	core->arch.idle_space = detach_new_table(core);
	core->arch.user_space = detach_new_table(core);
	if (!core->arch.idle_space || !core->arch.user_space)
		return -ENOMEM;
	error = detach_map(core, base + STUB_CODE, __sme_pa(core->arch.code));
	error = error ?: detach_map(core, base + STUB_DATA, __sme_pa(core->data) | writable);
	error = error ?: detach_map(core, base + STUB_STACKS,
				    __sme_pa(core->arch.stacks) | writable);
	error = error ?: detach_map(core, base + STUB_IDT, __sme_pa(core->arch.idt) | _PAGE_NX);
	error = error ?: detach_map(core, base + STUB_EXTENDED,
				    __sme_pa(core->extended) | writable);
	error = error ?: detach_map(core, base + STUB_APIC,
				    detach_machine.apic_address | writable | _PAGE_PCD | _PAGE_PWT);
	/* The page of the takeover, until the CPU is taken. */
	error = error ?: detach_map(core, takeover & PAGE_MASK,
				    __sme_set(PFN_PHYS(vmalloc_to_pfn(detach_takeover))));
	if (error)
		return error;
	core->arch.user_space[STUB_ENTRY] = core->arch.idle_space[STUB_ENTRY];
	core->data->idle_cr3 = __sme_pa(core->arch.idle_space);
	core->data->user_cr3 = __sme_pa(core->arch.user_space);
	return 0;
}

void detach_space_free(struct detach_core *core)
{
	while (core->arch.table_count)
		free_page((unsigned long)core->arch.tables[--core->arch.table_count]);
}

/* Copies the user half of the top level. Page-table isolation sets bit 63 there. */
void detach_space_copy(struct detach_core *core)
{
	unsigned int slot;

	lockdep_assert_held(&core->lock);
	for (slot = 0; slot < USER_ENTRIES; slot++) {
		u64 entry = 0;

		if (core->user_entries)
			entry = READ_ONCE(core->user_entries[slot].pgd) & ~_PAGE_NX;
		WRITE_ONCE(core->arch.user_space[slot], entry);
	}
}

static bool detach_has_flushed(const struct detach_core *core)
{
	const struct stub_data *data = core->data;

	if (READ_ONCE(data->state) != STUB_STATE_RUNNING)
		return true;
	return READ_ONCE(data->flush_done) == data->flush_wanted;
}

/* Called with spinlocks held. A CPU that does not run flushes when it starts. */
static void detach_invalidate(struct mmu_notifier *notifier, struct mm_struct *mm,
			      unsigned long start, unsigned long end)
{
	struct detach_core *core = container_of(notifier, struct detach_core, notifier);
	unsigned long flags;

	raw_spin_lock_irqsave(&core->lock, flags);
	detach_space_copy(core);
	/* Linux has changed its tables before it reads the state. */
	smp_mb();
	if (READ_ONCE(core->data->state) == STUB_STATE_RUNNING) {
		core->flushes++;
		WRITE_ONCE(core->data->flush_wanted, core->data->flush_wanted + 1);
		detach_wait(core, detach_has_flushed);
	}
	raw_spin_unlock_irqrestore(&core->lock, flags);
}

int detach_space_bind(struct detach_core *core)
{
	core->data->barrier = boot_cpu_has(X86_FEATURE_IBPB);
	return 0;
}

void detach_space_unbind(struct detach_core *core)
{
}

const struct mmu_notifier_ops detach_notifier = {
	.release = detach_release_space,
#ifdef DETACH_HAS_SECONDARY_TLBS
	.arch_invalidate_secondary_tlbs = detach_invalidate,
#else
	.invalidate_range = detach_invalidate,
#endif
};
