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

#include <asm/msr.h>
#include <asm/pkru.h>
#include <asm/trapnr.h>

#include "driver.h"

/* Between looks at the state, should the doorbell be lost because its CPU goes offline. */
#define LOOK_AGAIN		(HZ / 10)
/* The same fault so often in a row is not fixed. */
#define MOST_REPEATS		3

/* The same bits as for a signal handler, without the single-step and alignment flags. */
#define RFLAGS_USER		0xcd5

/* Offsets in the extended state, Intel SDM 1, 13.4. */
#define EXTENDED_MXCSR		24
#define EXTENDED_COMPONENTS	512

static void detach_to_frame(struct stub_frame *frame, const struct rampart_detach_registers *from)
{
	*frame = (struct stub_frame){
		.r15 = from->r15, .r14 = from->r14, .r13 = from->r13, .r12 = from->r12,
		.rbp = from->rbp, .rbx = from->rbx, .r11 = from->r11, .r10 = from->r10,
		.r9 = from->r9, .r8 = from->r8, .rax = from->rax, .rcx = from->rcx,
		.rdx = from->rdx, .rsi = from->rsi, .rdi = from->rdi,
		.rip = from->rip, .cs = __USER_CS, .ss = __USER_DS, .rsp = from->rsp,
		.rflags = (from->rflags & RFLAGS_USER) | X86_EFLAGS_IF | X86_EFLAGS_FIXED,
	};
}

static void detach_from_frame(struct rampart_detach_registers *to, const struct stub_frame *frame)
{
	*to = (struct rampart_detach_registers){
		.r15 = frame->r15, .r14 = frame->r14, .r13 = frame->r13, .r12 = frame->r12,
		.rbp = frame->rbp, .rbx = frame->rbx, .r11 = frame->r11, .r10 = frame->r10,
		.r9 = frame->r9, .r8 = frame->r8, .rax = frame->rax, .rcx = frame->rcx,
		.rdx = frame->rdx, .rsi = frame->rsi, .rdi = frame->rdi,
		.rip = frame->rip, .rsp = frame->rsp, .rflags = frame->rflags,
	};
}

/* Prepares the initial extended state and the bases of segments of the current thread. */
static int detach_begin(struct detach_core *core, const struct rampart_detach_run *run)
{
	struct stub_data *data = core->data;
	u64 components = 3;
	u8 *extended = core->extended;

#ifdef X86_FEATURE_USER_SHSTK
	if (boot_cpu_has(X86_FEATURE_USER_SHSTK)) {
		u64 value;

		rdmsrq(MSR_IA32_U_CET, value);
		if (value)
			return -EOPNOTSUPP;
	}
#endif
	memset(extended, 0, PAGE_SIZE);
	memcpy(extended, &run->fcw, sizeof(run->fcw));
	*(u32 *)(extended + EXTENDED_MXCSR) = run->mxcsr & detach_machine.mxcsr_mask;
	if (boot_cpu_has(X86_FEATURE_OSPKE) && detach_machine.pkru_offset) {
		*(u32 *)(extended + detach_machine.pkru_offset) = rdpkru();
		components |= BIT_ULL(9);
	}
	*(u64 *)(extended + EXTENDED_COMPONENTS) = components & detach_machine.components;
	preempt_disable();
	rdmsrq(MSR_FS_BASE, data->fs_base);
	rdmsrq(MSR_KERNEL_GS_BASE, data->gs_base);
	preempt_enable();
	data->fresh = 1;
	return 0;
}

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

static bool detach_stopped(const struct detach_core *core)
{
	return READ_ONCE(core->data->state) != STUB_STATE_RUNNING;
}

/* Waits until the thread stops; stops it if it has a signal. */
static void detach_await(struct detach_core *core)
{
	while (!detach_stopped(core)) {
		long left = swait_event_interruptible_timeout_exclusive(core->waiters,
									detach_stopped(core),
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
	u64 rip = 0, address = 0;
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
				       data->crash_vector, data->crash_rip - detach_machine.base);
			WRITE_ONCE(core->failed, true);
			return RAMPART_DETACH_LOST;
		}
		detach_from_frame(&run->registers, frame);
		if (frame->vector == STUB_VECTOR_SYSTEM_CALL)
			return RAMPART_DETACH_SYSTEM_CALL;
		/* Stopped by Linux: a signal, or the CPU is to be given back. */
		if (frame->vector == X86_TRAP_NMI)
			return READ_ONCE(core->revoked) ? RAMPART_DETACH_GIVEN :
							  RAMPART_DETACH_SIGNAL;
		run->vector = frame->vector;
		run->error = frame->error;
		run->address = frame->vector == X86_TRAP_PF ? data->cr2 : 0;
		if (frame->vector != X86_TRAP_PF)
			return RAMPART_DETACH_EXCEPTION;
		repeats = frame->rip == rip && data->cr2 == address ? repeats + 1 : 0;
		rip = frame->rip;
		address = data->cr2;
		if (repeats == MOST_REPEATS)
			return RAMPART_DETACH_EXCEPTION;
		if (detach_fix_fault(address, frame->error, &fixed))
			return RAMPART_DETACH_SIGNAL;
		if (!fixed)
			return RAMPART_DETACH_EXCEPTION;
	}
}

/* Returns whether the thread that used the CPU still exists. */
static bool detach_is_used(const struct detach_core *core)
{
	bool used;

	rcu_read_lock();
	used = core->thread && pid_task(core->thread, PIDTYPE_PID);
	rcu_read_unlock();
	return used;
}

static bool detach_is_mine(const struct detach_core *core)
{
	return core->thread == task_pid(current) && core->mm == current->mm;
}

/* The thread may have changed the bases by WRFSBASE and WRGSBASE. */
static void detach_restore_bases(const struct stub_data *data)
{
	u64 fs, gs;

	if (!boot_cpu_has(X86_FEATURE_FSGSBASE))
		return;
	preempt_disable();
	rdmsrq(MSR_FS_BASE, fs);
	rdmsrq(MSR_KERNEL_GS_BASE, gs);
	if (fs != data->fs_base)
		wrmsrq(MSR_FS_BASE, data->fs_base);
	if (gs != data->gs_base)
		wrmsrq(MSR_KERNEL_GS_BASE, data->gs_base);
	preempt_enable();
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
	if (!core->failed)
		detach_restore_bases(core->data);
	memset(core->extended, 0, PAGE_SIZE);
	memset(&core->data->frame, 0, sizeof(core->data->frame));
	core->data->fs_base = 0;
	core->data->gs_base = 0;
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
	error = error ?: detach_begin(core, run);
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
	int error = 0;

	if (run->flags & ~RAMPART_DETACH_BEGIN || run->reserved || run->reserved_2 ||
	    run->registers.rip >= TASK_SIZE_MAX || run->bytes < detach_machine.state_bytes)
		return -EINVAL;
	if (test_thread_flag(TIF_ADDR32))
		return -EOPNOTSUPP;
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
