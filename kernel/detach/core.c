// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taken CPUs: their memory, interrupts to them and from them.
 *
 * A CPU gets an interrupt that its thread cannot mask, and answers with one that
 * Linux allocates for this module. Both sides also see each other's state in
 * memory, and repeat.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/slab.h>

#include "driver.h"

struct detach_machine detach_machine;
/* Serialises taking and giving. */
DEFINE_MUTEX(detach_lock);
struct cpumask detach_taken;
LIST_HEAD(detach_cores);
DEFINE_RAW_SPINLOCK(detach_cores_lock);
atomic_t detach_events = ATOMIC_INIT(0);
DECLARE_WAIT_QUEUE_HEAD(detach_pollers);

/* Sends interrupts until the CPU has done something. Halts it if it does not answer. */
bool detach_wait(struct detach_core *core, bool (*done)(const struct detach_core *core))
{
	u64 end = ktime_get_ns() + DETACH_ANSWER_NS;
	int turn;

	do {
		detach_kick(core);
		for (turn = 0; turn < 100; turn++) {
			if (done(core))
				return true;
			udelay(1);
		}
	} while (ktime_get_ns() < end);
	pr_err("CPU %d does not answer and is halted\n", core->cpu);
	detach_halt(core);
	return false;
}

bool detach_has_stopped(const struct detach_core *core)
{
	return READ_ONCE(core->data->state) != STUB_STATE_RUNNING;
}

/* Makes the CPU leave its thread. Afterwards it does not run. */
void detach_stop(struct detach_core *core)
{
	WRITE_ONCE(core->data->stop, 1);
	if (!detach_has_stopped(core))
		detach_wait(core, detach_has_stopped);
}

irqreturn_t detach_rung(int irq, void *unused)
{
	struct detach_core *core;
	unsigned long flags;

	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list)
		if (detach_has_stopped(core))
			swake_up_one(&core->waiters);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	return IRQ_HANDLED;
}

static void detach_core_free(struct kref *references)
{
	struct detach_core *core = container_of(references, struct detach_core, references);

	if (!core->lost)
		detach_core_clear(core);
	put_pid(core->thread);
	kfree(core);
}

void detach_core_put(struct detach_core *core)
{
	kref_put(&core->references, detach_core_free);
}

struct detach_core *detach_core_new(int cpu)
{
	struct detach_core *core = kzalloc(sizeof(*core), GFP_KERNEL);

	if (!core)
		return NULL;
	kref_init(&core->references);
	INIT_LIST_HEAD(&core->list);
	mutex_init(&core->use);
	raw_spin_lock_init(&core->lock);
	init_swait_queue_head(&core->waiters);
	init_completion(&core->given);
	core->cpu = cpu;
	if (detach_core_fill(core)) {
		detach_core_put(core);
		return NULL;
	}
	return core;
}
