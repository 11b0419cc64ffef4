// SPDX-License-Identifier: GPL-2.0-only
/*
 * Takes CPUs from Linux and gives them back.
 *
 * The CPU goes offline as ever, except that it loads a copy of the interrupt
 * descriptor table before it halts. In the copy the non-maskable interrupt goes
 * to the takeover. Linux's own function must run nevertheless: it reports the
 * death of the CPU, without which the CPU cannot come back. When a CPU comes
 * online, Linux resets it by an INIT, whatever it runs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/reboot.h>
#include <linux/slab.h>
#include <linux/suspend.h>
#include <asm/desc.h>
#include <asm/msr.h>
#include <asm/smp.h>
#include <asm/trapnr.h>

#include "driver.h"

/* What the takeover reads; constant while a CPU is taken. */
u64 detach_takeover_entry;
u64 detach_takeover_cr3;

static gate_desc *takeover_gates;
static struct desc_ptr takeover_idt;
static int takeover_cpu = -1;
static void (*linux_play_dead)(void);
static enum cpuhp_state detach_hotplug;
static struct workqueue_struct *detach_givers;

/* On the CPU that goes offline. */
static void notrace detach_play_dead(void)
{
	if (raw_smp_processor_id() == READ_ONCE(takeover_cpu))
		native_load_idt(&takeover_idt);
	linux_play_dead();
}

static void detach_register(struct detach_core *core, u32 number, u64 value)
{
	struct stub_register *slot = core->data->registers;

	while (slot->number)
		slot++;
	slot->number = number;
	slot->value = value;
}

/* Registers that going offline changes, but a thread needs. */
static void detach_keep(struct detach_core *core, u32 number, bool present)
{
	u64 value;

	if (present && !rdmsrq_safe_on_cpu(core->cpu, number, &value))
		detach_register(core, number, value);
}

static void detach_fill_registers(struct detach_core *core)
{
	u64 entry = detach_machine.base + (stub_system_call - stub_begin);

	detach_register(core, MSR_STAR, 0x0023001000000000);
	detach_register(core, MSR_LSTAR, entry);
	detach_register(core, MSR_CSTAR, entry);
	detach_register(core, MSR_SYSCALL_MASK, 0x257fd5);
	/* Without a selector SYSENTER is a general protection fault. */
	detach_register(core, MSR_IA32_SYSENTER_CS, 0);
	detach_register(core, MSR_IA32_SYSENTER_ESP, 0);
	detach_register(core, MSR_IA32_SYSENTER_EIP, 0);
	/* The first use of tiles is a fault. */
	if (boot_cpu_has(X86_FEATURE_XFD))
		detach_register(core, MSR_IA32_XFD, BIT_ULL(18));
	/* What the last process had: ENQCMD faults, and there is no shadow stack. */
	if (boot_cpu_has(X86_FEATURE_ENQCMD))
		detach_register(core, MSR_IA32_PASID, 0);
#ifdef X86_FEATURE_USER_SHSTK
	if (boot_cpu_has(X86_FEATURE_USER_SHSTK))
		detach_register(core, MSR_IA32_U_CET, 0);
#endif
	detach_keep(core, MSR_IA32_SPEC_CTRL, boot_cpu_has(X86_FEATURE_MSR_SPEC_CTRL));
	detach_keep(core, MSR_HWP_REQUEST, boot_cpu_has(X86_FEATURE_HWP));
	/* Class of service of caches and memory bandwidth. */
	detach_keep(core, 0xc8f, boot_cpu_has(X86_FEATURE_RDT_A));
}

/* Prepares what the NMI of the CPU reads. */
static void detach_prepare(struct detach_core *core)
{
	struct desc_ptr now;

	store_idt(&now);
	memcpy(takeover_gates, (void *)now.address, min_t(size_t, now.size + 1, PAGE_SIZE));
	pack_gate(&takeover_gates[X86_TRAP_NMI], GATE_INTERRUPT, (unsigned long)detach_takeover, 0,
		  0, __KERNEL_CS);
	takeover_idt.address = (unsigned long)takeover_gates;
	takeover_idt.size = PAGE_SIZE - 1;
	detach_takeover_cr3 = core->data->idle_cr3;
	detach_takeover_entry = detach_machine.base + (stub_entry - stub_begin);
	WRITE_ONCE(takeover_cpu, core->cpu);
}

static int detach_offline(struct detach_core *core)
{
	int error;

	detach_prepare(core);
	linux_play_dead = smp_ops.play_dead;
	WRITE_ONCE(smp_ops.play_dead, detach_play_dead);
	error = remove_cpu(core->cpu);
	WRITE_ONCE(smp_ops.play_dead, linux_play_dead);
	/* Positive: it was offline. */
	return error > 0 ? -ENODEV : error;
}

/* Sends the NMI and waits for the stub. */
static bool detach_enter(struct detach_core *core)
{
	u64 end = ktime_get_ns() + DETACH_ANSWER_NS;

	while (ktime_get_ns() < end) {
		detach_kick(core);
		usleep_range(200, 400);
		if (READ_ONCE(core->data->state) == STUB_STATE_STOPPED)
			return true;
	}
	return false;
}

static bool detach_has_answered(const struct detach_core *core)
{
	return READ_ONCE(core->data->flush_done) == core->data->flush_wanted;
}

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

static int detach_online(int cpu)
{
	int error;

	cpumask_clear_cpu(cpu, &detach_taken);
	error = add_cpu(cpu);
	if (error)
		pr_err("CPU %d does not come online: error %d\n", cpu, error);
	return error;
}

static void detach_give_work(struct work_struct *work);

struct detach_core *detach_take(int cpu)
{
	struct detach_core *core;
	int error;

	if (!capable(CAP_SYS_ADMIN))
		return ERR_PTR(-EPERM);
	if (cpu < 0 || cpu >= nr_cpu_ids || !cpu_possible(cpu))
		return ERR_PTR(-ENODEV);
	mutex_lock(&detach_lock);
	if (cpumask_test_cpu(cpu, &detach_taken)) {
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
	detach_fill_registers(core);
	cpumask_set_cpu(cpu, &detach_taken);
	error = detach_offline(core);
	if (error) {
		cpumask_clear_cpu(cpu, &detach_taken);
		goto put;
	}
	if (!detach_enter(core)) {
		pr_err("CPU %d cannot be taken: it does not answer\n", cpu);
		detach_halt(core);
		detach_online(cpu);
		error = -EIO;
		goto put;
	}
	WRITE_ONCE(takeover_cpu, -1);
	/* Nothing of Linux stays mapped. */
	WRITE_ONCE(core->idle_space[511], 0);
	core->data->flush_wanted++;
	if (!detach_wait(core, detach_has_answered)) {
		detach_online(cpu);
		error = -EIO;
		goto put;
	}
	core->data->kicks = 0;
	detach_listed(core, true);
	mutex_unlock(&detach_lock);
	return core;

put:
	WRITE_ONCE(takeover_cpu, -1);
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
	/* The stub's memory is freed. */
	if (detach_online(core->cpu))
		detach_halt(core);
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

	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list)
		detach_halt(core);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	return NOTIFY_DONE;
}

static struct notifier_block detach_reboot_block = {
	.notifier_call = detach_reboot,
};

/* Resuming would bring the CPU online or lose it. */
static int detach_suspend(struct notifier_block *block, unsigned long event, void *unused)
{
	if (event != PM_SUSPEND_PREPARE && event != PM_HIBERNATION_PREPARE)
		return NOTIFY_DONE;
	return cpumask_empty(&detach_taken) ? NOTIFY_DONE : notifier_from_errno(-EBUSY);
}

static struct notifier_block detach_suspend_block = {
	.notifier_call = detach_suspend,
};

int detach_take_begin(void)
{
	int error;

	takeover_gates = (gate_desc *)get_zeroed_page(GFP_KERNEL);
	if (!takeover_gates)
		return -ENOMEM;
	detach_givers = alloc_workqueue("rampart-detach", WQ_UNBOUND, 0);
	if (!detach_givers) {
		error = -ENOMEM;
		goto free;
	}
	error = cpuhp_setup_state_nocalls(CPUHP_BP_PREPARE_DYN, "rampart/detach:prepare",
					  detach_coming_online, NULL);
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
	free_page((unsigned long)takeover_gates);
	return error;
}

void detach_take_end(void)
{
	unregister_pm_notifier(&detach_suspend_block);
	unregister_reboot_notifier(&detach_reboot_block);
	cpuhp_remove_state_nocalls(detach_hotplug);
	destroy_workqueue(detach_givers);
	free_page((unsigned long)takeover_gates);
}
