// SPDX-License-Identifier: GPL-2.0-only
/*
 * What the hypervisor says of itself in its status pages, in sysfs and by poll.
 */
#include <linux/fs.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "driver.h"

/* The hypervisor interrupts nobody; a failure has to be told within 100 ms. */
#define WATCH_INTERVAL	msecs_to_jiffies(20)

static const char * const states[] = {
	[RAMPART_CELL_FREE] = "free",
	[RAMPART_CELL_CREATED] = "created",
	[RAMPART_CELL_LOADABLE] = "loadable",
	[RAMPART_CELL_RUNNING] = "running",
	[RAMPART_CELL_STOPPED] = "stopped",
	[RAMPART_CELL_FAILED] = "failed",
};

static DECLARE_WAIT_QUEUE_HEAD(readers);
static atomic64_t changes = ATOMIC64_INIT(0);
static void watch(struct work_struct *work);
static DECLARE_DELAYED_WORK(watcher, watch);

/* Changes go on counting over a disable and an enable. */
static u64 seen_in_status;

static void watch(struct work_struct *work)
{
	struct rampart_answer answer;
	u64 now;

	/* The hypervisor never runs by itself: asked, it looks after the cells' watchdogs. */
	rampart_call(RAMPART_CALL_INTERFACE, 0, 0, &answer);
	now = READ_ONCE(rampart.status->changes);
	if (now != seen_in_status) {
		atomic64_add(now - seen_in_status, &changes);
		seen_in_status = now;
		wake_up_interruptible(&readers);
	}
	queue_delayed_work(system_unbound_wq, &watcher, WATCH_INTERVAL);
}

void rampart_watch_begin(void)
{
	seen_in_status = 0;
	queue_delayed_work(system_unbound_wq, &watcher, WATCH_INTERVAL);
}

void rampart_watch_end(void)
{
	cancel_delayed_work_sync(&watcher);
}

/* The count of changes; waits for one that this opening has not read. */
ssize_t rampart_status_read(struct file *file, char __user *buffer, size_t size, loff_t *offset)
{
	u64 *seen = &((struct rampart_opening *)file->private_data)->seen;
	u64 now = atomic64_read(&changes);
	int error;

	if (size < sizeof(now))
		return -EINVAL;
	while (now == *seen) {
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		error = wait_event_interruptible(readers, atomic64_read(&changes) != *seen);
		if (error)
			return error;
		now = atomic64_read(&changes);
	}
	if (copy_to_user(buffer, &now, sizeof(now)))
		return -EFAULT;
	*seen = now;
	return sizeof(now);
}

__poll_t rampart_status_poll(struct file *file, poll_table *table)
{
	u64 *seen = &((struct rampart_opening *)file->private_data)->seen;

	poll_wait(file, &readers, table);
	return atomic64_read(&changes) != *seen ? EPOLLIN | EPOLLRDNORM : 0;
}

static ssize_t enabled_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%d\n", READ_ONCE(rampart.enabled));
}

static DEVICE_ATTR_RO(enabled);

static struct attribute *device_attributes[] = {
	&dev_attr_enabled.attr,
	NULL
};

static const struct attribute_group device_group = {
	.attrs = device_attributes,
};

const struct attribute_group *rampart_groups[] = {
	&device_group,
	NULL
};

static struct rampart_member *member_of(struct kobject *kobject)
{
	return container_of(kobject, struct rampart_member, kobject);
}

static ssize_t name_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%s\n", member_of(kobject)->blob->name);
}

static struct kobj_attribute name_attribute = __ATTR_RO(name);

static ssize_t cpus_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%*pbl\n", cpumask_pr_args(&member_of(kobject)->cpus));
}

static struct kobj_attribute cpus_attribute = __ATTR_RO(cpus);

/* While a cell is in sysfs, there is a hypervisor. */
static struct rampart_cell_status *status_of(struct kobject *kobject)
{
	return &rampart.status->cells[member_of(kobject)->number];
}

static ssize_t state_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)
{
	u32 state = READ_ONCE(status_of(kobject)->state);

	if (state >= ARRAY_SIZE(states))
		return sysfs_emit(text, "%u\n", state);
	return sysfs_emit(text, "%s\n", states[state]);
}

static struct kobj_attribute state_attribute = __ATTR_RO(state);

/* A number of interface.h: RAMPART_STOP_... */
static ssize_t stop_reason_show(struct kobject *kobject, struct kobj_attribute *attribute,
				char *text)
{
	return sysfs_emit(text, "%u\n", READ_ONCE(status_of(kobject)->stop_reason));
}

static struct kobj_attribute stop_reason_attribute = __ATTR_RO(stop_reason);

static struct attribute *member_attrs[] = {
	&name_attribute.attr,
	&cpus_attribute.attr,
	&state_attribute.attr,
	&stop_reason_attribute.attr,
	NULL
};
ATTRIBUTE_GROUPS(member);

static void member_release(struct kobject *kobject)
{
	struct rampart_member *member = member_of(kobject);

	kfree(member->blob);
	kfree(member);
}

struct kobj_type rampart_member_type = {
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = member_groups,
	.release = member_release,
};

/* /sys/devices/virtual/misc/rampart/cells */
int rampart_status_begin(struct device *device)
{
	rampart.cells = kobject_create_and_add("cells", &device->kobj);
	return rampart.cells ? 0 : -ENOMEM;
}

void rampart_status_end(void)
{
	kobject_put(rampart.cells);
}
