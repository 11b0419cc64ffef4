// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/rampart-detach: takes CPUs from an unpatched Linux, and runs threads of
 * ordinary processes on them. See docs/detached.md.
 *
 * Locking: opening.lock guards the CPU of an open file, detach_lock serialises
 * taking and giving, core.use is held while a thread uses a CPU, core.lock guards
 * its page tables and its start; detach_cores_lock guards the list of CPUs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "driver.h"

struct detach_opening {
	/* Guards core. */
	struct mutex lock;
	struct detach_core *core;
	u32 events;
};

/* Returns the CPU of a file with a reference, or NULL. */
static struct detach_core *detach_of(struct detach_opening *opening)
{
	struct detach_core *core;

	mutex_lock(&opening->lock);
	core = opening->core;
	if (core)
		kref_get(&core->references);
	mutex_unlock(&opening->lock);
	return core;
}

static long detach_query_machine(void __user *address)
{
	struct rampart_detach_machine machine = {
		.version = RAMPART_DETACH_VERSION,
		.state_bytes = detach_machine.state_bytes,
		.state_components = detach_machine.components,
		.counter_khz = detach_machine.counter_khz,
	};

	return copy_to_user(address, &machine, sizeof(machine)) ? -EFAULT : 0;
}

static u32 detach_state_of(const struct detach_core *core)
{
	if (READ_ONCE(core->failed))
		return RAMPART_DETACH_FAILED;
	if (READ_ONCE(core->data->state) == STUB_STATE_RUNNING)
		return RAMPART_DETACH_RUNNING;
	return READ_ONCE(core->thread) ? RAMPART_DETACH_STOPPED : RAMPART_DETACH_TAKEN;
}

static void detach_fill_state(struct detach_opening *opening, struct rampart_detach_state *state)
{
	struct detach_core *core = detach_of(opening);
	unsigned long flags;
	struct pid *thread;

	*state = (struct rampart_detach_state){
		.cpu = -1,
		.events = atomic_read(&detach_events),
	};
	if (core) {
		const struct stub_data *data = core->data;

		state->cpu = core->cpu;
		state->state = detach_state_of(core);
		state->system_calls = READ_ONCE(data->system_calls);
		state->faults = READ_ONCE(data->faults);
		state->kicks = READ_ONCE(data->kicks);
		state->interrupts = READ_ONCE(data->interrupts);
		state->flushes = READ_ONCE(core->flushes);
		raw_spin_lock_irqsave(&core->lock, flags);
		thread = get_pid(core->thread);
		raw_spin_unlock_irqrestore(&core->lock, flags);
		state->thread = pid_vnr(thread);
		put_pid(thread);
		detach_core_put(core);
	}
}

static long detach_query_state(struct detach_opening *opening, void __user *address)
{
	struct rampart_detach_state state;

	detach_fill_state(opening, &state);
	WRITE_ONCE(opening->events, state.events);
	return copy_to_user(address, &state, sizeof(state)) ? -EFAULT : 0;
}

/* The state for those who do not have the file: proc_pid_fdinfo(5). */
static void detach_show_state(struct seq_file *text, struct file *file)
{
	static const char *const names[] = {
		[RAMPART_DETACH_TAKEN] = "taken",
		[RAMPART_DETACH_RUNNING] = "running",
		[RAMPART_DETACH_STOPPED] = "stopped",
		[RAMPART_DETACH_FAILED] = "failed",
	};
	struct rampart_detach_state state;

	detach_fill_state(file->private_data, &state);
	seq_printf(text, "cpu:\t%d\n", state.cpu);
	if (state.cpu < 0)
		return;
	seq_printf(text, "state:\t%s\nthread:\t%d\n", names[state.state], state.thread);
	seq_printf(text, "system_calls:\t%llu\nfaults:\t%llu\nkicks:\t%llu\n", state.system_calls,
		   state.faults, state.kicks);
	seq_printf(text, "flushes:\t%llu\ninterrupts:\t%llu\n", state.flushes, state.interrupts);
}

static long detach_take_for(struct detach_opening *opening, unsigned long cpu)
{
	struct detach_core *core;
	long error = 0;

	if (cpu >= nr_cpu_ids)
		return -ENODEV;
	mutex_lock(&opening->lock);
	if (opening->core) {
		error = -EBUSY;
	} else {
		core = detach_take(cpu);
		if (IS_ERR(core))
			error = PTR_ERR(core);
		else
			opening->core = core;
	}
	mutex_unlock(&opening->lock);
	return error;
}

static long detach_give_of(struct detach_opening *opening)
{
	long error = -ENXIO;

	mutex_lock(&opening->lock);
	if (opening->core) {
		error = detach_give(opening->core);
		if (!error)
			opening->core = NULL;
	}
	mutex_unlock(&opening->lock);
	return error;
}

static long detach_run_for(struct detach_opening *opening, void __user *address)
{
	struct rampart_detach_run run;
	struct detach_core *core;
	long error;

	if (copy_from_user(&run, address, sizeof(run)))
		return -EFAULT;
	core = detach_of(opening);
	if (!core)
		return -ENXIO;
	error = detach_run(core, &run);
	detach_core_put(core);
	if (!error && copy_to_user(address, &run, sizeof(run)))
		error = -EFAULT;
	return error;
}

static long detach_leave_of(struct detach_opening *opening)
{
	struct detach_core *core = detach_of(opening);
	long error;

	if (!core)
		return -ENXIO;
	error = detach_leave(core);
	detach_core_put(core);
	return error;
}

static long detach_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct detach_opening *opening = file->private_data;
	void __user *address = (void __user *)argument;

	switch (command) {
	case RAMPART_DETACH_MACHINE:
		return detach_query_machine(address);
	case RAMPART_DETACH_TAKE:
		return detach_take_for(opening, argument);
	case RAMPART_DETACH_GIVE:
		return detach_give_of(opening);
	case RAMPART_DETACH_STATE:
		return detach_query_state(opening, address);
	case RAMPART_DETACH_RUN:
		return detach_run_for(opening, address);
	case RAMPART_DETACH_LEAVE:
		return detach_leave_of(opening);
	default:
		return -ENOTTY;
	}
}

/* Readable if CPUs were taken or given since the last query of the state; hung up if it failed. */
static __poll_t detach_poll(struct file *file, poll_table *table)
{
	struct detach_opening *opening = file->private_data;
	struct detach_core *core = detach_of(opening);
	__poll_t ready = 0;

	poll_wait(file, &detach_pollers, table);
	if (READ_ONCE(opening->events) != atomic_read(&detach_events))
		ready |= EPOLLIN | EPOLLRDNORM;
	if (core) {
		if (READ_ONCE(core->failed))
			ready |= EPOLLHUP;
		detach_core_put(core);
	}
	return ready;
}

static int detach_open(struct inode *inode, struct file *file)
{
	struct detach_opening *opening;

	/* An open file keeps the module loaded. */
	if (!detach_may_open())
		return -EACCES;
	opening = kzalloc(sizeof(*opening), GFP_KERNEL);
	if (!opening)
		return -ENOMEM;
	mutex_init(&opening->lock);
	opening->events = atomic_read(&detach_events);
	file->private_data = opening;
	return stream_open(inode, file);
}

static int detach_release(struct inode *inode, struct file *file)
{
	struct detach_opening *opening = file->private_data;

	/* No thread is in an ioctl of a file that is released. */
	if (opening->core)
		WARN_ON(detach_give(opening->core));
	kfree(opening);
	return 0;
}

static const struct file_operations detach_operations = {
	.owner = THIS_MODULE,
	.open = detach_open,
	.release = detach_release,
	.poll = detach_poll,
	.unlocked_ioctl = detach_ioctl,
	.show_fdinfo = detach_show_state,
};

static ssize_t taken_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	return sysfs_emit(buffer, "%*pbl\n", cpumask_pr_args(&detach_taken));
}
static DEVICE_ATTR_RO(taken);

static ssize_t running_show(struct device *device, struct device_attribute *attribute,
			    char *buffer)
{
	struct detach_core *core;
	unsigned long flags;
	cpumask_var_t mask;
	ssize_t bytes;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list)
		if (detach_state_of(core) == RAMPART_DETACH_RUNNING)
			cpumask_set_cpu(core->cpu, mask);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	bytes = sysfs_emit(buffer, "%*pbl\n", cpumask_pr_args(mask));
	free_cpumask_var(mask);
	return bytes;
}
static DEVICE_ATTR_RO(running);

static ssize_t owners_show(struct device *device, struct device_attribute *attribute, char *buffer)
{
	return detach_show_owners(buffer);
}

static ssize_t owners_store(struct device *device, struct device_attribute *attribute,
			    const char *buffer, size_t bytes)
{
	char *text;
	int error;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	text = kstrndup(buffer, bytes, GFP_KERNEL);
	if (!text)
		return -ENOMEM;
	error = detach_set_owners(text);
	kfree(text);
	return error ?: bytes;
}
static DEVICE_ATTR_RW(owners);

static struct attribute *detach_attrs[] = {
	&dev_attr_owners.attr,
	&dev_attr_taken.attr,
	&dev_attr_running.attr,
	NULL,
};
ATTRIBUTE_GROUPS(detach);

static struct miscdevice detach_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "rampart-detach",
	.fops = &detach_operations,
	.groups = detach_groups,
	.mode = 0666,
};

static int __init detach_init(void)
{
	int error = detach_machine_begin();

	if (error)
		return error;
	error = detach_take_begin();
	if (error)
		goto end_machine;
	error = misc_register(&detach_device);
	if (error)
		goto end_take;
	return 0;

end_take:
	detach_take_end();
end_machine:
	detach_machine_end();
	return error;
}

/* No CPU is taken, because an open file holds the module. */
static void __exit detach_exit(void)
{
	misc_deregister(&detach_device);
	detach_take_end();
	detach_machine_end();
}

module_init(detach_init);
module_exit(detach_exit);

MODULE_DESCRIPTION("Runs threads on CPUs that Linux has given up");
MODULE_AUTHOR("The Rampart authors");
MODULE_LICENSE("GPL");
