// SPDX-License-Identifier: GPL-2.0-only
/*
 * Exports the hypervisor's status pages by sysfs, read and poll.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/bits.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/irqdomain.h>
#include <linux/of.h>
#include <linux/of_irq.h>
#include <linux/poll.h>
#include <linux/preempt.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/sysfs.h>
#include <linux/uaccess.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include <asm/barrier.h>
#include <asm/cpufeature.h>
#include <asm/sysreg.h>

#include "driver.h"

/*
 * A failure must be reported within 100 ms, also if the configuration names no
 * event interrupt.
 */
#define WATCH_INTERVAL	msecs_to_jiffies(20)

/* ID_AA64MMFR2_EL1.CCIDX: CCSIDR_EL1 has the fields of 64 bits. */
#define CACHE_INDEX_SHIFT	20

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

/* The count of changes continues across disable and enable. */
static DEFINE_SPINLOCK(counting);
static u64 seen_in_status;
static u64 seen_dma_faults;
/* The Linux number of the event interrupt; 0 for none. */
static unsigned int event_irq;

/* An interrupt without a change is a cell's doorbell and counts as one change. */
static void count_changes(bool rung)
{
	unsigned long flags;
	u64 now, grown;

	spin_lock_irqsave(&counting, flags);
	now = READ_ONCE(rampart.status->changes);
	grown = now - seen_in_status;
	seen_in_status = now;
	spin_unlock_irqrestore(&counting, flags);
	if (!grown && !rung)
		return;
	atomic64_add(grown ? grown : 1, &changes);
	wake_up_interruptible(&readers);
	if (grown)
		rampart_scmi_look();
}

static irqreturn_t rung(int irq, void *unused)
{
	count_changes(true);
	return IRQ_HANDLED;
}

/* Bindings: arm,gic-v3.yaml and arm,gic.yaml. The first one in the tree is that of the CPUs. */
static const struct of_device_id controllers[] = {
	{ .compatible = "arm,gic-v3" },
	{ .compatible = "arm,gic-400" },
	{ .compatible = "arm,cortex-a15-gic" },
	{ .compatible = "arm,cortex-a7-gic" },
	{ .compatible = "arm,cortex-a9-gic" },
	{ .compatible = "brcm,brahma-b15-gic" },
	{ }
};

/* Returns Linux's number of an interrupt of the GIC if it uses the interrupt, otherwise 0. */
unsigned int rampart_find_interrupt(u32 number)
{
	struct device_node *node = of_find_matching_node(NULL, controllers);
	struct irq_domain *domain = node ? irq_find_host(node) : NULL;

	of_node_put(node);
	return domain ? irq_find_mapping(domain, number) : 0;
}

/* Maps a shared interrupt of the GIC by its INTID. */
unsigned int rampart_map_interrupt(u32 number)
{
	struct of_phandle_args binding = {
		.args_count = 3,
		.args = { 0, number - 32, IRQ_TYPE_EDGE_RISING },
	};
	unsigned int irq;

	binding.np = of_find_matching_node(NULL, controllers);
	if (!binding.np)
		return 0;
	irq = irq_create_of_mapping(&binding);
	of_node_put(binding.np);
	return irq;
}

static void event_begin(u32 number)
{
	int error = -ENODEV;

	/* A mapping of another driver is not ours to dispose of. */
	if (rampart_find_interrupt(number))
		error = -EBUSY;
	else
		event_irq = rampart_map_interrupt(number);
	if (event_irq)
		error = request_irq(event_irq, rung, 0, "rampart", &event_irq);
	if (!error)
		return;
	pr_warn("cannot request interrupt %u: %d; polling for changes of cells every %u ms\n",
		number, error, jiffies_to_msecs(WATCH_INTERVAL));
	if (event_irq)
		irq_dispose_mapping(event_irq);
	event_irq = 0;
}

static void event_end(void)
{
	if (!event_irq)
		return;
	free_irq(event_irq, &event_irq);
	irq_dispose_mapping(event_irq);
	event_irq = 0;
}

/* Logs one of the devices' accesses that the SMMU refused since the last call, and their number. */
static void report_dma(void)
{
	u64 now = READ_ONCE(rampart.status->dma_faults);
	u64 grown = now - seen_dma_faults;
	const struct rampart_dma_fault *latest;

	if (!grown)
		return;
	seen_dma_faults = now;
	latest = &rampart.status->dma_fault[(now - 1) % RAMPART_DMA_FAULT_SLOTS];
	pr_warn_ratelimited("the SMMU refused DMA of stream %#x, cell %u: %s of address %#llx, event %#x; %llu in all\n",
			    READ_ONCE(latest->stream), READ_ONCE(latest->cell),
			    READ_ONCE(latest->read) ? "read" : "write", READ_ONCE(latest->address),
			    READ_ONCE(latest->event), now);
}

static void watch(struct work_struct *work)
{
	struct rampart_answer answer;

	/*
	 * The hypervisor never runs by itself: this call makes it check the cells' watchdogs
	 * and park CPUs of cells that have ended. It waits for no other call, so it is made without
	 * rampart.lock, which is held while memory is wiped.
	 */
	rampart_call(RAMPART_CALL_INTERFACE, 0, 0, &answer);
	count_changes(false);
	report_dma();
	queue_delayed_work(system_unbound_wq, &watcher, WATCH_INTERVAL);
}

void rampart_watch_begin(u32 event_interrupt)
{
	seen_in_status = READ_ONCE(rampart.status->changes);
	seen_dma_faults = READ_ONCE(rampart.status->dma_faults);
	if (event_interrupt)
		event_begin(event_interrupt);
	queue_delayed_work(system_unbound_wq, &watcher, WATCH_INTERVAL);
}

void rampart_watch_end(void)
{
	event_end();
	cancel_delayed_work_sync(&watcher);
}

/* Returns the count of changes; waits for a change that this file has not read. */
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

/*
 * The last cache that this CPU describes, as level, sets, ways and bytes of a line
 * (Arm ARM, CLIDR_EL1, CSSELR_EL1, CCSIDR_EL1): what the colours of memory follow
 * where the device tree names no cache. "0 0 0 0": none.
 */
static ssize_t cache_show(struct device *device, struct device_attribute *attribute, char *text)
{
	bool wide = cpuid_feature_extract_unsigned_field(read_sysreg(id_aa64mmfr2_el1),
							 CACHE_INDEX_SHIFT);
	u64 levels, geometry = 0;
	u32 sets, ways;
	int level;

	/* The selection belongs to this CPU. */
	preempt_disable();
	levels = read_sysreg(clidr_el1);
	/* 2, 3 and 4 are a data cache, two caches, and a unified one. */
	for (level = 7; level; level--)
		if ((levels >> 3 * (level - 1) & 7) >= 2)
			break;
	if (level) {
		write_sysreg((u64)(level - 1) << 1, csselr_el1);
		isb();
		geometry = read_sysreg(ccsidr_el1);
	}
	preempt_enable();
	if (!level)
		return sysfs_emit(text, "0 0 0 0\n");
	ways = geometry >> 3 & (wide ? GENMASK(20, 0) : GENMASK(9, 0));
	sets = wide ? geometry >> 32 & GENMASK(23, 0) : geometry >> 13 & GENMASK(14, 0);
	return sysfs_emit(text, "%d %u %u %u\n", level, sets + 1, ways + 1,
			  16U << (geometry & 7));
}

static DEVICE_ATTR_RO(cache);

static struct attribute *device_attributes[] = {
	&dev_attr_enabled.attr,
	&dev_attr_cache.attr,
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

/* The hypervisor is enabled while a cell is in sysfs. */
static struct rampart_cell_status *status_of(struct kobject *kobject)
{
	return &rampart.status->cells[member_of(kobject)->number];
}

static ssize_t state_show(struct kobject *kobject, struct kobj_attribute *attribute, char *text)
{
	u16 state = READ_ONCE(status_of(kobject)->condition);

	if (state >= ARRAY_SIZE(states))
		return sysfs_emit(text, "%u\n", state);
	return sysfs_emit(text, "%s\n", states[state]);
}

static struct kobj_attribute state_attribute = __ATTR_RO(state);

/* RAMPART_STOP_... of interface.h */
static ssize_t stop_reason_show(struct kobject *kobject, struct kobj_attribute *attribute,
				char *text)
{
	u64 condition = READ_ONCE(status_of(kobject)->condition);

	return sysfs_emit(text, "%u\n", (u16)(condition >> 16));
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
