// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a thread on its CPU. The thread itself waits in Linux meanwhile, as a
 * virtual CPU's does in KVM_RUN, and handles what its other half needs.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/jiffies.h>
#include <linux/sched/signal.h>
#include <linux/signal.h>
#include <linux/uaccess.h>

#include "driver.h"

/* Between looks at the state, should the doorbell be lost because its CPU goes offline. */
#define LOOK_AGAIN		(HZ / 10)
/* The same fault so often in a row is not fixed. */
#define MOST_REPEATS		3

/* Returns whether the CPU was started. */
static bool detach_resume(struct detach_core *core)
{
	struct stub_data *data = core->data;
	unsigned long flags;
	bool ready;

	raw_spin_lock_irqsave(&core->lock, flags);
	ready = !core->revoked && !core->failed && core->user_entries;
	if (ready) {
		detach_space_copy(core);
		detach_fill_doorbell(core);
		WRITE_ONCE(data->stop, 0);
		WRITE_ONCE(data->state, STUB_STATE_RUNNING);
		smp_wmb(); /* The command is last. */
		WRITE_ONCE(data->command, STUB_COMMAND_RUN);
	}
	raw_spin_unlock_irqrestore(&core->lock, flags);
	if (ready)
		detach_kick(core);
	return ready;
}

/* Waits until the thread stops; stops it if it has a signal. */
static void detach_await(struct detach_core *core)
{
	while (!detach_has_stopped(core)) {
		long left = swait_event_interruptible_timeout_exclusive(core->waiters,
									detach_has_stopped(core),
									LOOK_AGAIN);

		if (left < 0)
			detach_stop(core);
		else if (READ_ONCE(core->data->command))
			detach_kick(core);
	}
	/* What the CPU wrote before. */
	smp_rmb();
}

/* Runs until there is something that this driver cannot handle. Returns the reason. */
static u32 detach_run_on(struct detach_core *core, struct rampart_detach_run *run)
{
	const struct stub_data *data = core->data;
	const struct stub_frame *frame = &data->frame;
	u64 pc = 0, address = 0;
	struct detach_fault fault;
	int repeats = 0;
	bool fixed;

	for (;;) {
		if (signal_pending(current))
			return RAMPART_DETACH_SIGNAL;
		if (!detach_resume(core))
			return RAMPART_DETACH_GIVEN;
		detach_await(core);
		if (READ_ONCE(data->state) != STUB_STATE_STOPPED) {
			if (!core->failed)
				pr_err("CPU %d: exception %llu in the stub at %llx\n", core->cpu,
				       data->crash_vector, data->crash_pc & (PAGE_SIZE - 1));
			WRITE_ONCE(core->failed, true);
			return RAMPART_DETACH_LOST;
		}
		detach_from_frame(&run->registers, frame);
		if (frame->vector == STUB_VECTOR_SYSTEM_CALL)
			return RAMPART_DETACH_SYSTEM_CALL;
		/* Stopped by Linux: a signal, or the CPU is to be given back. */
		if (frame->vector == STUB_VECTOR_KICK)
			return READ_ONCE(core->revoked) ? RAMPART_DETACH_GIVEN :
							  RAMPART_DETACH_SIGNAL;
		if (!detach_read_exception(data, run, &fault))
			return RAMPART_DETACH_EXCEPTION;
		repeats = detach_pc(frame) == pc && fault.address == address ? repeats + 1 : 0;
		pc = detach_pc(frame);
		address = fault.address;
		if (repeats == MOST_REPEATS)
			return RAMPART_DETACH_EXCEPTION;
		if (detach_fix_fault(&fault, &fixed))
			return RAMPART_DETACH_SIGNAL;
		if (!fixed)
			return RAMPART_DETACH_EXCEPTION;
	}
}

/* Returns whether the thread that used the CPU exists; another program may have its number. */
static bool detach_is_used(const struct detach_core *core)
{
	struct task_struct *task;
	bool used;

	rcu_read_lock();
	task = pid_task(core->thread, PIDTYPE_PID);
	used = task && READ_ONCE(task->mm) == core->mm;
	rcu_read_unlock();
	return used;
}

static bool detach_is_mine(const struct detach_core *core)
{
	return core->thread == task_pid(current) && core->mm == current->mm;
}

static void detach_set_thread(struct detach_core *core, struct pid *thread)
{
	struct pid *before;
	unsigned long flags;

	raw_spin_lock_irqsave(&core->lock, flags);
	before = core->thread;
	core->thread = thread;
	raw_spin_unlock_irqrestore(&core->lock, flags);
	put_pid(before);
}

/* Nothing of the thread stays in memory of the CPU. */
static void detach_attach(struct detach_core *core)
{
	detach_state_end(core);
	memset(&core->data->frame, 0, sizeof(core->data->frame));
	detach_set_thread(core, NULL);
}

static int detach_run_begin(struct detach_core *core, const struct rampart_detach_run *run)
{
	int error;

	if (READ_ONCE(core->failed))
		return -EIO;
	if (detach_is_used(core))
		return -EBUSY;
	error = detach_bind(core);
	error = error ?: detach_state_begin(core, run);
	if (error)
		return error;
	detach_set_thread(core, get_pid(task_pid(current)));
	return 0;
}

/* Runs, with the state of the thread in the CPU's memory. */
static int detach_run_locked(struct detach_core *core, struct rampart_detach_run *run)
{
	sigset_t blocked = {}, before;
	int error = 0;

	detach_to_frame(&core->data->frame, &run->registers);
	blocked.sig[0] = run->signals;
	sigdelsetmask(&blocked, sigmask(SIGKILL) | sigmask(SIGSTOP));
	sigprocmask(SIG_SETMASK, &blocked, &before);
	run->exit = detach_run_on(core, run);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (run->exit != RAMPART_DETACH_LOST &&
	    copy_to_user(u64_to_user_ptr(run->buffer), core->extended, detach_machine.state_bytes))
		error = -EFAULT;
	if (run->exit != RAMPART_DETACH_SYSTEM_CALL)
		detach_attach(core);
	return error;
}

int detach_run(struct detach_core *core, struct rampart_detach_run *run)
{
	int error;

	if (run->flags & ~RAMPART_DETACH_BEGIN || run->reserved || run->reserved_2 ||
	    run->bytes < detach_machine.state_bytes)
		return -EINVAL;
	error = detach_check(run);
	if (error)
		return error;
	if (!mutex_trylock(&core->use))
		return -EBUSY;
	if (run->flags & RAMPART_DETACH_BEGIN)
		error = detach_run_begin(core, run);
	else if (!detach_is_mine(core))
		error = -EINVAL;
	error = error ?: detach_run_locked(core, run);
	mutex_unlock(&core->use);
	return error;
}

int detach_leave(struct detach_core *core)
{
	int error = 0;

	if (!mutex_trylock(&core->use))
		return -EBUSY;
	if (detach_is_mine(core))
		detach_attach(core);
	else
		error = -EINVAL;
	mutex_unlock(&core->use);
	return error;
}
