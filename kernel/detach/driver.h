/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RAMPART_DETACH_DRIVER_H
#define _RAMPART_DETACH_DRIVER_H

#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mmu_notifier.h>
#include <linux/mutex.h>
#include <linux/pid.h>
#include <linux/spinlock.h>
#include <linux/swait.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

#include "rampart-detach.h"
/* struct stub_data, struct detach_arch, struct detach_machine */
#ifdef CONFIG_X86_64
#include "x86.h"
#else
#include "arm64.h"
#endif

/* Time for a CPU to answer. Some callers are atomic, so it is below the timeouts of watchdogs. */
#define DETACH_ANSWER_NS	(4ULL * NSEC_PER_SEC)

/* A CPU that is taken. */
struct detach_core {
	struct list_head list;
	struct kref references;
	int cpu;

	/* The stub's memory. */
	struct detach_arch arch;
	struct stub_data *data;
	void *extended;

	/* Held while a thread uses the CPU; guards mm, and thread together with lock. */
	struct mutex use;
	struct mm_struct *mm;
	struct mmu_notifier notifier;
	struct pid *thread;
	struct swait_queue_head waiters;

	/* Guards what the CPU has as page tables, user_entries, revoked and each start. */
	raw_spinlock_t lock;
	/* The top level of the process's page tables; NULL: none */
	pgd_t *user_entries;
	bool revoked;
	bool failed;
	/* It could not be halted, so its memory is not freed. */
	bool lost;
	u64 flushes;

	struct work_struct give;
	struct completion given;
};

/* A page fault of the thread. */
struct detach_fault {
	u64 address;
	bool write;
	bool execute;
};

extern struct detach_machine detach_machine;
extern struct mutex detach_lock;
extern struct cpumask detach_taken;
extern struct list_head detach_cores;
extern raw_spinlock_t detach_cores_lock;
extern atomic_t detach_events;
extern struct wait_queue_head detach_pollers;

/* core.c */
struct detach_core *detach_core_new(int cpu);
void detach_core_put(struct detach_core *core);
bool detach_has_stopped(const struct detach_core *core);
void detach_stop(struct detach_core *core);
bool detach_wait(struct detach_core *core, bool (*done)(const struct detach_core *core));
irqreturn_t detach_rung(int irq, void *unused);

/* take.c */
bool detach_may_open(void);
int detach_set_owners(char *text);
ssize_t detach_show_owners(char *buffer);
struct detach_core *detach_take(int cpu);
int detach_give(struct detach_core *core);
int detach_take_begin(void);
void detach_take_end(void);

/* space.c */
int detach_bind(struct detach_core *core);
void detach_unbind(struct detach_core *core);
int detach_fix_fault(const struct detach_fault *fault, bool *fixed);

/* run.c */
int detach_run(struct detach_core *core, struct rampart_detach_run *run);
int detach_leave(struct detach_core *core);

/* The architecture: */

int detach_machine_begin(void);
void detach_machine_end(void);
/* The stub's memory of a CPU that is online. */
int detach_core_fill(struct detach_core *core);
void detach_core_clear(struct detach_core *core);

/* Takes the CPU offline, brings it into the stub, and back to where Linux can start it. */
int detach_offline(struct detach_core *core);
bool detach_enter(struct detach_core *core);
bool detach_prepare_online(struct detach_core *core);
/* Interrupts the CPU. */
void detach_kick(const struct detach_core *core);
/* Stops the CPU, whatever it does. It can only be given back afterwards. May be atomic. */
void detach_halt(struct detach_core *core);
void detach_fill_doorbell(struct detach_core *core);

/* Returns why the current thread cannot run so, or 0. */
int detach_check(const struct rampart_detach_run *run);
/* Prepares what the CPU needs of the current thread beside its registers. */
int detach_state_begin(struct detach_core *core, const struct rampart_detach_run *run);
/* Gives it back to the thread, and clears it. */
void detach_state_end(struct detach_core *core);
void detach_to_frame(struct stub_frame *frame, const struct rampart_detach_registers *from);
void detach_from_frame(struct rampart_detach_registers *to, const struct stub_frame *frame);
/* Describes an exception, and returns whether it is a page fault. */
bool detach_read_exception(const struct stub_data *data, struct rampart_detach_run *run,
			   struct detach_fault *fault);

extern const struct mmu_notifier_ops detach_notifier;
/* A common part of detach_notifier. */
void detach_release_space(struct mmu_notifier *notifier, struct mm_struct *mm);
int detach_space_bind(struct detach_core *core);
void detach_space_unbind(struct detach_core *core);
/* Gives the CPU the page tables of user_entries. Called with core->lock. */
void detach_space_copy(struct detach_core *core);

#endif /* _RAMPART_DETACH_DRIVER_H */
