// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes CPUs from Linux and gives them back. The CPU goes offline as ever, so that
 * threads, timers and interrupts move away; then it is brought into the stub.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cred.h>
#include <linux/delay.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/suspend.h>
#include <linux/sysfs.h>
#include <linux/uidgid.h>
#include <linux/user_namespace.h>

#include "driver.h"

/* Linux suspends, restarts or ends: no CPU can be taken. Read with detach_lock. */
static bool detach_closed;
static enum cpuhp_state detach_hotplug;
static struct workqueue_struct *detach_givers;

static void detach_listed(struct detach_core *core, bool listed)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	if (listed)
		list_add_tail(&core->list, &detach_cores);
	else
		list_del_init(&core->list);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	atomic_inc(&detach_events);
	wake_up_interruptible(&detach_pollers);
}

static void detach_online(struct detach_core *core)
{
	int error = -EIO;

	if (detach_prepare_online(core)) {
		cpumask_clear_cpu(core->cpu, &detach_taken);
		error = add_cpu(core->cpu);
	}
	if (!error)
		return;
	pr_err("CPU %d does not come online: error %d\n", core->cpu, error);
	/* The stub's memory is freed. */
	detach_halt(core);
}

static void detach_give_work(struct work_struct *work);

/* Who may take a CPU without CAP_SYS_ADMIN. */
struct detach_owner {
	kuid_t user;
	/* Taking and giving stops all CPUs for a moment, so it is not permitted all the time. */
	unsigned long again;
};

/* One for each CPU. Guarded by detach_lock. */
static struct detach_owner *detach_owners;

static struct detach_owner *detach_no_owners(void)
{
	struct detach_owner *owners = kvcalloc(nr_cpu_ids, sizeof(*owners), GFP_KERNEL);
	unsigned int cpu;

	for (cpu = 0; owners && cpu < nr_cpu_ids; cpu++)
		owners[cpu] = (struct detach_owner){ .user = INVALID_UID, .again = jiffies };
	return owners;
}

static int detach_parse_owner(struct detach_owner *owners, char *entry)
{
	char *number = strsep(&entry, ":");
	unsigned int cpu;
	u32 user;

	if (!entry || kstrtouint(number, 10, &cpu) || kstrtou32(entry, 10, &user))
		return -EINVAL;
	if (cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return -ENODEV;
	owners[cpu].user = make_kuid(&init_user_ns, user);
	return uid_valid(owners[cpu].user) ? 0 : -EINVAL;
}

/* Replaces all owners by CPU:USER, separated by spaces, or by none. */
int detach_set_owners(char *text)
{
	struct detach_owner *owners = detach_no_owners();
	char *entry;
	int error;

	if (!owners)
		return -ENOMEM;
	while ((entry = strsep(&text, "\n "))) {
		if (!*entry || !strcmp(entry, "none"))
			continue;
		error = detach_parse_owner(owners, entry);
		if (error)
			goto free;
	}
	mutex_lock(&detach_lock);
	swap(owners, detach_owners);
	mutex_unlock(&detach_lock);
	error = 0;
free:
	kvfree(owners);
	return error;
}

ssize_t detach_show_owners(char *buffer)
{
	ssize_t bytes = 0;
	unsigned int cpu;

	mutex_lock(&detach_lock);
	for (cpu = 0; cpu < nr_cpu_ids; cpu++)
		if (uid_valid(detach_owners[cpu].user))
			bytes += sysfs_emit_at(buffer, bytes, "%s%u:%u", bytes ? " " : "", cpu,
					       from_kuid(&init_user_ns, detach_owners[cpu].user));
	mutex_unlock(&detach_lock);
	bytes += sysfs_emit_at(buffer, bytes, bytes ? "\n" : "none\n");
	return bytes;
}

/* Returns whether the caller may take any CPU. */
bool detach_may_open(void)
{
	bool owns = false;
	unsigned int cpu;

	mutex_lock(&detach_lock);
	for (cpu = 0; cpu < nr_cpu_ids && !owns; cpu++)
		owns = uid_eq(detach_owners[cpu].user, current_euid());
	mutex_unlock(&detach_lock);
	return owns || capable(CAP_SYS_ADMIN);
}

/* Returns why the caller may not take a CPU, or 0. Called with detach_lock. */
static int detach_may_take(int cpu)
{
	struct detach_owner *owner = &detach_owners[cpu];

	if (!uid_eq(owner->user, current_euid()))
		return capable(CAP_SYS_ADMIN) ? 0 : -EPERM;
	if (time_before(jiffies, owner->again) && !capable(CAP_SYS_ADMIN))
		return -EAGAIN;
	owner->again = jiffies + HZ;
	return 0;
}

struct detach_core *detach_take(int cpu)
{
	struct detach_core *core;
	int error;

	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return ERR_PTR(-ENODEV);
	mutex_lock(&detach_lock);
	error = detach_may_take(cpu);
	if (error)
		goto unlock;
	if (READ_ONCE(detach_closed) || cpumask_test_cpu(cpu, &detach_taken)) {
		error = -EBUSY;
		goto unlock;
	}
	if (!cpu_online(cpu)) {
		error = -ENODEV;
		goto unlock;
	}
	core = detach_core_new(cpu);
	if (!core) {
		error = -ENOMEM;
		goto unlock;
	}
	INIT_WORK(&core->give, detach_give_work);
	cpumask_set_cpu(cpu, &detach_taken);
	error = detach_offline(core);
	if (error) {
		cpumask_clear_cpu(cpu, &detach_taken);
		goto put;
	}
	if (!detach_enter(core)) {
		pr_err("CPU %d cannot be taken: it does not answer\n", cpu);
		detach_halt(core);
		detach_online(core);
		error = -EIO;
		goto put;
	}
	core->data->kicks = 0;
	detach_listed(core, true);
	mutex_unlock(&detach_lock);
	return core;

put:
	detach_core_put(core);
unlock:
	mutex_unlock(&detach_lock);
	return ERR_PTR(error);
}

/*
 * In a worker, because the thread that closes the last descriptor may have been
 * killed, and Linux starts no kernel threads for such a thread.
 */
static void detach_give_work(struct work_struct *work)
{
	struct detach_core *core = container_of(work, struct detach_core, give);

	mutex_lock(&detach_lock);
	detach_listed(core, false);
	detach_online(core);
	mutex_unlock(&detach_lock);
	complete(&core->given);
	detach_core_put(core);
}

/* Gives the CPU back to Linux. The caller's reference is gone if this succeeds. */
int detach_give(struct detach_core *core)
{
	unsigned long flags;
	int turn;

	raw_spin_lock_irqsave(&core->lock, flags);
	core->revoked = true;
	raw_spin_unlock_irqrestore(&core->lock, flags);
	detach_stop(core);
	swake_up_one(&core->waiters);
	/* The thread may be in a page fault that another process serves. */
	for (turn = 0; !mutex_trylock(&core->use); turn++) {
		if (turn == 5000)
			return -EBUSY;
		usleep_range(1000, 2000);
	}
	detach_unbind(core);
	mutex_unlock(&core->use);
	kref_get(&core->references);
	queue_work(detach_givers, &core->give);
	if (!wait_for_completion_timeout(&core->given, 30 * HZ))
		pr_err("CPU %d is not online after 30 s\n", core->cpu);
	detach_core_put(core);
	return 0;
}

/* Refuses that a taken CPU comes online, which would reset the thread that runs there. */
static int detach_coming_online(unsigned int cpu)
{
	if (cpumask_test_cpu(cpu, &detach_taken))
		return -EBUSY;
	return 0;
}

/* The next kernel must not find a CPU that runs in memory of this one. */
static int detach_reboot(struct notifier_block *block, unsigned long event, void *unused)
{
	struct detach_core *core;
	unsigned long flags;
	bool locked;
	int turn;

	WRITE_ONCE(detach_closed, true);
	/* One may be taken or given now. If that does not end, the restart goes on. */
	for (turn = 0; !(locked = mutex_trylock(&detach_lock)) && turn < 300; turn++)
		msleep(100);
	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list)
		detach_halt(core);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	if (locked)
		mutex_unlock(&detach_lock);
	return NOTIFY_DONE;
}

static struct notifier_block detach_reboot_block = {
	.notifier_call = detach_reboot,
};

/* Linux has moved the interrupt by which taken CPUs answer, if it was that CPU's. */
static int detach_went_offline(unsigned int cpu)
{
	struct detach_core *core;
	unsigned long flags;

	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list) {
		raw_spin_lock(&core->lock);
		detach_fill_doorbell(core);
		raw_spin_unlock(&core->lock);
	}
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	return 0;
}

/*
 * Resuming would bring the CPU online or lose it, and a restored image would replace
 * the memory in which it runs.
 */
static int detach_suspend(struct notifier_block *block, unsigned long event, void *unused)
{
	bool begins = event == PM_SUSPEND_PREPARE || event == PM_HIBERNATION_PREPARE ||
		      event == PM_RESTORE_PREPARE;
	bool refused;

	mutex_lock(&detach_lock);
	refused = begins && !cpumask_empty(&detach_taken);
	if (!refused)
		WRITE_ONCE(detach_closed, begins);
	mutex_unlock(&detach_lock);
	return refused ? notifier_from_errno(-EBUSY) : NOTIFY_DONE;
}

static struct notifier_block detach_suspend_block = {
	.notifier_call = detach_suspend,
};

int detach_take_begin(void)
{
	int error;

	detach_owners = detach_no_owners();
	if (!detach_owners)
		return -ENOMEM;
	error = -ENOMEM;
	detach_givers = alloc_workqueue("rampart-detach", WQ_UNBOUND, 0);
	if (!detach_givers)
		goto free;
	error = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "rampart/detach:prepare",
					  detach_coming_online, detach_went_offline);
	if (error < 0)
		goto destroy;
	detach_hotplug = error;
	error = register_reboot_notifier(&detach_reboot_block);
	if (error)
		goto remove;
	error = register_pm_notifier(&detach_suspend_block);
	if (error)
		goto unregister;
	return 0;

unregister:
	unregister_reboot_notifier(&detach_reboot_block);
remove:
	cpuhp_remove_state_nocalls(detach_hotplug);
destroy:
	destroy_workqueue(detach_givers);
free:
	kvfree(detach_owners);
	return error;
}

void detach_take_end(void)
{
	unregister_pm_notifier(&detach_suspend_block);
	unregister_reboot_notifier(&detach_reboot_block);
	cpuhp_remove_state_nocalls(detach_hotplug);
	destroy_workqueue(detach_givers);
	kvfree(detach_owners);
}
