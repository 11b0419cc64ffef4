// SPDX-License-Identifier: GPL-2.0-only
/*
 * blocksys: stops CPUs for a known time, as a reference disturbance.
 *
 * A block is an interrupt handler that runs for the requested length, on
 * PREEMPT_RT too. A high-resolution timer in hard interrupt context raises it,
 * so it starts at the requested time whatever the CPU runs: a FIFO 99 thread, a
 * deadline thread or a guest. During a block only NMIs, SMIs and a hypervisor
 * can run on the CPU.
 *
 * The timer callback itself does not block: the kernel treats a long timer
 * interrupt as a hang and delays all timers of that CPU for the same time
 * (hrtimer_interrupt()). The handler is an irq_work, which the CPU raises by a
 * self-IPI at once and which tracers show under its own name.
 *
 * Each CPU has its own timer and its own copy of the pseudo-random sequence, so
 * CPUs that are stopped together do not communicate.
 *
 * Locking: blocksys_mutex serialises start, stop and close. Handlers take only
 * blocksys_ring_lock. CPU hotplug is disabled while timers are started; a CPU
 * that goes offline later cancels its timer.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/atomic.h>
#include <linux/bitops.h>
#include <linux/capability.h>
#include <linux/cpu.h>
#include <linux/cpuhotplug.h>
#include <linux/cpumask.h>
#include <linux/fs.h>
#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/lockdep.h>
#include <linux/math64.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/poll.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/smp.h>
#include <linux/spinlock.h>
#include <linux/timekeeping.h>
#include <linux/timex.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "blocksys.h"

/* Far below the timeouts of the watchdogs (10 s) and of RCU (21 s). */
#define LONGEST_US_LIMIT	(1 * USEC_PER_SEC)
#define SHARE_LIMIT		90
/* Enough for the pending interrupts and a tick. */
#define SHORTEST_PAUSE_NS	(100 * NSEC_PER_USEC)
#define LONGEST_PAUSE_NS	(3600ULL * NSEC_PER_SEC)
#define MOST_BLOCKS		1000000
/* Delay from a start to the first pause: time to reach all CPUs. */
#define LEAD_NS			(1 * NSEC_PER_MSEC)
/* Capacity for unread records: some seconds of the fastest blocks. */
#define RING_RECORDS		32768
/* Maximum delay between a record and the wakeup of readers. */
#define WAKE_INTERVAL		msecs_to_jiffies(10)

static unsigned int longest_us = 100 * USEC_PER_MSEC;
module_param(longest_us, uint, 0444);
MODULE_PARM_DESC(longest_us, "maximum length of a block, in us (1 to 1000000, default 100000)");

static unsigned int share_percent = 50;
module_param(share_percent, uint, 0444);
MODULE_PARM_DESC(share_percent, "maximum share of time for blocks, in percent (1 to 90, default 50)");

/* Blocks of one CPU. Written by its handlers, or while no timer is started. */
struct blocksys_cpu {
	struct hrtimer timer;
	struct irq_work block;
	/* Cut the current block and start no more. */
	bool ending;
	/* Further blocks follow; the code that clears it updates the counters. */
	atomic_t active;
	u32 sequence;
	u64 planned;
	u64 random;
};

static DEFINE_PER_CPU(struct blocksys_cpu, blocksys_cpus);

static DEFINE_MUTEX(blocksys_mutex);
static atomic_t blocksys_owned = ATOMIC_INIT(0);
static enum cpuhp_state blocksys_hotplug;

/* The series; constant while timers are started. */
static struct {
	struct cpumask cpus;
	u64 length;
	u64 pause;
	u32 count;
	u32 flags;
} plan;

static atomic_t blocksys_running = ATOMIC_INIT(0);
static atomic64_t blocksys_made = ATOMIC64_INIT(0);
static atomic64_t blocksys_skipped = ATOMIC64_INIT(0);

/* Ring of records; head and tail only increase. */
static DEFINE_RAW_SPINLOCK(blocksys_ring_lock);
static struct blocksys_record *ring;
static u32 ring_head;
static u32 ring_tail;
static u64 ring_lost;

static DECLARE_WAIT_QUEUE_HEAD(blocksys_readers);

static void ring_push(const struct blocksys_record *record)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&blocksys_ring_lock, flags);
	if (ring_head - ring_tail < RING_RECORDS) {
		ring[ring_head % RING_RECORDS] = *record;
		ring_head++;
	} else {
		ring_lost++;
	}
	raw_spin_unlock_irqrestore(&blocksys_ring_lock, flags);
}

static bool ring_pop(struct blocksys_record *record)
{
	unsigned long flags;
	bool any;

	raw_spin_lock_irqsave(&blocksys_ring_lock, flags);
	any = ring_head != ring_tail;
	if (any) {
		*record = ring[ring_tail % RING_RECORDS];
		ring_tail++;
	}
	raw_spin_unlock_irqrestore(&blocksys_ring_lock, flags);
	return any;
}

static bool ring_has_records(void)
{
	return READ_ONCE(ring_head) != READ_ONCE(ring_tail);
}

/*
 * Readers are woken from here and not from the callbacks, because PREEMPT_RT
 * allows no wait queue there, and a CPU that was stopped should resume its own
 * work at once. An unbound queue does not run on isolated CPUs.
 */
static struct workqueue_struct *blocksys_queue;
static void blocksys_wake(struct work_struct *work);
static DECLARE_DELAYED_WORK(blocksys_waker, blocksys_wake);

static void blocksys_wake(struct work_struct *work)
{
	/* Read first, so that the end is reported after the last record. */
	bool running = atomic_read_acquire(&blocksys_running);

	if (ring_has_records() || !running)
		wake_up_interruptible(&blocksys_readers);
	if (running)
		queue_delayed_work(blocksys_queue, &blocksys_waker, WAKE_INTERVAL);
}

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators). */
static u64 blocksys_random(struct blocksys_cpu *this)
{
	u64 z = this->random += 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static u64 blocksys_pause(struct blocksys_cpu *this)
{
	if (!(plan.flags & BLOCKSYS_RANDOM))
		return plan.pause;
	return plan.pause / 2 + mul_u64_u64_shr(blocksys_random(this), plan.pause, 64);
}

/* Ends the series on this CPU; can be called from any context and more than once. */
static void blocksys_finish(struct blocksys_cpu *this)
{
	if (!atomic_xchg(&this->active, 0))
		return;
	atomic64_add(plan.count - this->sequence, &blocksys_skipped);
	atomic_dec_return_release(&blocksys_running);
}

static void blocksys_block(struct irq_work *work)
{
	struct blocksys_cpu *this = container_of(work, struct blocksys_cpu, block);
	struct blocksys_record record = {
		.cpu = smp_processor_id(),
		.sequence = this->sequence,
		.planned = this->planned,
	};
	u64 now, end;

	lockdep_assert_irqs_disabled();
	if (READ_ONCE(this->ending))
		return;

	/*
	 * Not the NMI-safe clock, which can differ from what user space reads.
	 * The timekeeper is written with interrupts off, so this handler never
	 * interrupts a writer on this CPU and ktime_get() cannot deadlock.
	 */
	record.start = ktime_get_ns();
	record.start_counter = get_cycles();
	end = record.start + plan.length;
	do {
		cpu_relax();
		now = ktime_get_ns();
	} while (now < end && !READ_ONCE(this->ending));
	record.end_counter = get_cycles();
	record.end = now;
	if (now < end)
		record.flags |= BLOCKSYS_CUT;
	ring_push(&record);
	atomic64_inc(&blocksys_made);
	this->sequence++;
	if (this->sequence == plan.count) {
		blocksys_finish(this);
		return;
	}

	/* A late block must not shorten the next pause. */
	this->planned += plan.length + blocksys_pause(this);
	now = max(this->planned, now + plan.pause / 2);
	hrtimer_start(&this->timer, ns_to_ktime(now), HRTIMER_MODE_ABS_PINNED_HARD);
}

static enum hrtimer_restart blocksys_expired(struct hrtimer *timer)
{
	struct blocksys_cpu *this = container_of(timer, struct blocksys_cpu, timer);

	/* A timer whose CPU went offline expires on another CPU, which must not be stopped. */
	if (this != this_cpu_ptr(&blocksys_cpus))
		blocksys_finish(this);
	else if (!READ_ONCE(this->ending))
		irq_work_queue(&this->block);
	return HRTIMER_NORESTART;
}

static void blocksys_arm(void *unused)
{
	struct blocksys_cpu *this = this_cpu_ptr(&blocksys_cpus);

	hrtimer_start(&this->timer, ns_to_ktime(this->planned), HRTIMER_MODE_ABS_PINNED_HARD);
}

/* Ends the blocks of a CPU and waits until its handlers have finished. */
static void blocksys_end(struct blocksys_cpu *this)
{
	WRITE_ONCE(this->ending, true);
	hrtimer_cancel(&this->timer);
	irq_work_sync(&this->block);
	/* A block that read the flag earlier may have started the timer once more. */
	hrtimer_cancel(&this->timer);
	blocksys_finish(this);
}

/* Ends all blocks. */
static void blocksys_stop(void)
{
	int cpu;

	lockdep_assert_held(&blocksys_mutex);
	/* Cut all at once, then wait for each. */
	for_each_cpu(cpu, &plan.cpus)
		WRITE_ONCE(per_cpu_ptr(&blocksys_cpus, cpu)->ending, true);
	for_each_cpu(cpu, &plan.cpus)
		blocksys_end(per_cpu_ptr(&blocksys_cpus, cpu));
}

/* Called on a CPU that goes offline: ends its blocks. */
static int blocksys_cpu_down(unsigned int cpu)
{
	blocksys_end(per_cpu_ptr(&blocksys_cpus, cpu));
	return 0;
}

static int blocksys_check(const struct blocksys_plan *asked)
{
	u64 whole;

	if (!asked->length || !asked->count || asked->reserved ||
	    asked->flags & ~BLOCKSYS_RANDOM)
		return -EINVAL;
	if (asked->length > (u64)longest_us * NSEC_PER_USEC || asked->count > MOST_BLOCKS ||
	    asked->pause < SHORTEST_PAUSE_NS || asked->pause > LONGEST_PAUSE_NS)
		return -ERANGE;
	whole = asked->length + asked->pause;
	if (asked->length * 100 > whole * share_percent)
		return -ERANGE;
	return 0;
}

/* Reads a mask like sched_setaffinity(2): missing bits are 0. */
static int blocksys_read_cpus(const struct blocksys_plan *asked, struct cpumask *cpus)
{
	const void __user *address = u64_to_user_ptr(asked->cpus);
	size_t bytes = min_t(size_t, asked->cpus_bytes, cpumask_size());
	size_t rest;

	cpumask_clear(cpus);
	if (copy_from_user(cpus, address, bytes))
		return -EFAULT;
	/*
	 * Do not silently ignore CPUs beyond nr_cpu_ids: operations on masks look only at
	 * nr_cpu_ids bits, and the last word can have more.
	 */
	if (find_next_bit(cpumask_bits(cpus), bytes * BITS_PER_BYTE, nr_cpu_ids) <
	    bytes * BITS_PER_BYTE)
		return -ENODEV;
	for (rest = bytes; rest < asked->cpus_bytes; rest++) {
		u8 byte;

		if (rest > PAGE_SIZE)
			return -EINVAL;
		if (get_user(byte, (const u8 __user *)address + rest))
			return -EFAULT;
		if (byte)
			return -ENODEV;
	}
	return cpumask_empty(cpus) ? -EINVAL : 0;
}

/* Called with CPU hotplug disabled. */
static void blocksys_begin(const struct blocksys_plan *asked, const struct cpumask *cpus)
{
	u64 base;
	int cpu;

	lockdep_assert_held(&blocksys_mutex);
	cpumask_copy(&plan.cpus, cpus);
	plan.length = asked->length;
	plan.pause = asked->pause;
	plan.count = asked->count;
	plan.flags = asked->flags;
	raw_spin_lock_irq(&blocksys_ring_lock);
	ring_tail = ring_head;
	ring_lost = 0;
	raw_spin_unlock_irq(&blocksys_ring_lock);
	atomic64_set(&blocksys_made, 0);
	atomic64_set(&blocksys_skipped, 0);
	atomic_set(&blocksys_running, cpumask_weight(cpus));

	base = ktime_get_ns() + LEAD_NS;
	for_each_cpu(cpu, cpus) {
		struct blocksys_cpu *this = per_cpu_ptr(&blocksys_cpus, cpu);

		this->ending = false;
		this->sequence = 0;
		this->random = asked->seed;
		this->planned = base + blocksys_pause(this);
		atomic_set(&this->active, 1);
	}
	/* Each timer is started on the CPU that it stops. */
	on_each_cpu_mask(cpus, blocksys_arm, NULL, true);
	queue_delayed_work(blocksys_queue, &blocksys_waker, WAKE_INTERVAL);
}

static int blocksys_start(const struct blocksys_plan __user *address)
{
	struct blocksys_plan asked;
	cpumask_var_t cpus;
	int error;

	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	if (copy_from_user(&asked, address, sizeof(asked)))
		return -EFAULT;
	error = blocksys_check(&asked);
	if (error)
		return error;
	if (!alloc_cpumask_var(&cpus, GFP_KERNEL))
		return -ENOMEM;
	error = blocksys_read_cpus(&asked, cpus);
	if (error)
		goto free;

	mutex_lock(&blocksys_mutex);
	cpus_read_lock();
	if (atomic_read(&blocksys_running))
		error = -EBUSY;
	else if (!cpumask_subset(cpus, cpu_online_mask))
		error = -ENODEV;
	else
		blocksys_begin(&asked, cpus);
	cpus_read_unlock();
	mutex_unlock(&blocksys_mutex);
free:
	free_cpumask_var(cpus);
	return error;
}

static int blocksys_query(struct blocksys_state __user *address)
{
	struct blocksys_state state = {
		.version = BLOCKSYS_VERSION,
		.running = atomic_read(&blocksys_running),
		.longest = (u64)longest_us * NSEC_PER_USEC,
		.shortest_pause = SHORTEST_PAUSE_NS,
		.most_blocks = MOST_BLOCKS,
		.share = share_percent,
		.made = atomic64_read(&blocksys_made),
		.skipped = atomic64_read(&blocksys_skipped),
	};

	raw_spin_lock_irq(&blocksys_ring_lock);
	state.lost = ring_lost;
	raw_spin_unlock_irq(&blocksys_ring_lock);
	return copy_to_user(address, &state, sizeof(state)) ? -EFAULT : 0;
}

static long blocksys_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *address = (void __user *)argument;

	switch (command) {
	case BLOCKSYS_QUERY:
		return blocksys_query(address);
	case BLOCKSYS_START:
		return blocksys_start(address);
	case BLOCKSYS_STOP:
		mutex_lock(&blocksys_mutex);
		blocksys_stop();
		mutex_unlock(&blocksys_mutex);
		return 0;
	default:
		return -ENOTTY;
	}
}

/* Returns whole records; 0 if all were read and no block is to come. */
static ssize_t blocksys_read(struct file *file, char __user *buffer, size_t size, loff_t *offset)
{
	struct blocksys_record record;
	size_t done = 0;
	int error;

	if (size < sizeof(record))
		return -EINVAL;
	while (!ring_has_records()) {
		/* The last record is pushed before its CPU is subtracted from the count. */
		if (!atomic_read_acquire(&blocksys_running)) {
			if (ring_has_records())
				break;
			return 0;
		}
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		error = wait_event_interruptible(blocksys_readers,
						 ring_has_records() ||
						 !atomic_read(&blocksys_running));
		if (error)
			return error;
	}
	while (size - done >= sizeof(record) && ring_pop(&record)) {
		if (copy_to_user(buffer + done, &record, sizeof(record))) {
			/* The record was removed from the ring but not delivered. */
			raw_spin_lock_irq(&blocksys_ring_lock);
			ring_lost++;
			raw_spin_unlock_irq(&blocksys_ring_lock);
			return done ? done : -EFAULT;
		}
		done += sizeof(record);
	}
	return done;
}

static __poll_t blocksys_poll(struct file *file, poll_table *table)
{
	poll_wait(file, &blocksys_readers, table);
	if (ring_has_records())
		return EPOLLIN | EPOLLRDNORM;
	return atomic_read(&blocksys_running) ? 0 : EPOLLIN | EPOLLRDNORM | EPOLLHUP;
}

static int blocksys_open(struct inode *inode, struct file *file)
{
	if (!capable(CAP_SYS_RAWIO))
		return -EPERM;
	if (atomic_cmpxchg(&blocksys_owned, 0, 1))
		return -EBUSY;
	return nonseekable_open(inode, file);
}

static int blocksys_release(struct inode *inode, struct file *file)
{
	mutex_lock(&blocksys_mutex);
	blocksys_stop();
	/* Drop this owner's unread records. */
	raw_spin_lock_irq(&blocksys_ring_lock);
	ring_tail = ring_head;
	raw_spin_unlock_irq(&blocksys_ring_lock);
	mutex_unlock(&blocksys_mutex);
	cancel_delayed_work_sync(&blocksys_waker);
	atomic_set_release(&blocksys_owned, 0);
	return 0;
}

static const struct file_operations blocksys_operations = {
	.owner = THIS_MODULE,
	.open = blocksys_open,
	.release = blocksys_release,
	.read = blocksys_read,
	.poll = blocksys_poll,
	.unlocked_ioctl = blocksys_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};

static struct miscdevice blocksys_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "blocksys",
	.fops = &blocksys_operations,
	.mode = 0600,
};

static int __init blocksys_init(void)
{
	int cpu, error;

	if (!longest_us || longest_us > LONGEST_US_LIMIT) {
		pr_err("longest_us is %u, expected 1 to %lu\n", longest_us,
		       (unsigned long)LONGEST_US_LIMIT);
		return -EINVAL;
	}
	if (!share_percent || share_percent > SHARE_LIMIT) {
		pr_err("share_percent is %u, expected 1 to %u\n", share_percent, SHARE_LIMIT);
		return -EINVAL;
	}
	for_each_possible_cpu(cpu) {
		struct blocksys_cpu *this = per_cpu_ptr(&blocksys_cpus, cpu);
		struct hrtimer *timer = &this->timer;

		this->block = IRQ_WORK_INIT_HARD(blocksys_block);
#ifdef BLOCKSYS_HAS_HRTIMER_SETUP
		hrtimer_setup(timer, blocksys_expired, CLOCK_MONOTONIC,
			      HRTIMER_MODE_ABS_PINNED_HARD);
#else
		hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_PINNED_HARD);
		timer->function = blocksys_expired;
#endif
	}
	ring = vmalloc_array(RING_RECORDS, sizeof(*ring));
	if (!ring)
		return -ENOMEM;
	blocksys_queue = alloc_workqueue("blocksys", WQ_UNBOUND, 0);
	if (!blocksys_queue) {
		error = -ENOMEM;
		goto free;
	}
	error = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "rampart/blocksys:online", NULL,
					  blocksys_cpu_down);
	if (error < 0)
		goto destroy;
	blocksys_hotplug = error;
	error = misc_register(&blocksys_device);
	if (error)
		goto remove;
	return 0;

remove:
	cpuhp_remove_state_nocalls(blocksys_hotplug);
destroy:
	destroy_workqueue(blocksys_queue);
free:
	vfree(ring);
	return error;
}

/* The device is closed, because an open file holds the module. So no timer is started. */
static void __exit blocksys_exit(void)
{
	misc_deregister(&blocksys_device);
	cpuhp_remove_state_nocalls(blocksys_hotplug);
	destroy_workqueue(blocksys_queue);
	vfree(ring);
}

module_init(blocksys_init);
module_exit(blocksys_exit);

MODULE_DESCRIPTION("Stops CPUs for a known time, as a reference disturbance");
MODULE_AUTHOR("The Rampart authors");
MODULE_LICENSE("GPL");
