/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _RAMPART_DETACH_DRIVER_H
#define _RAMPART_DETACH_DRIVER_H

#include <linux/cpumask.h>
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
#include <asm/msr.h>

#include "rampart-detach.h"
#include "stub.h"

#ifndef DETACH_HAS_RDMSRQ
#define rdmsrq			rdmsrl
#define wrmsrq			wrmsrl
#define rdmsrq_safe_on_cpu	rdmsrl_safe_on_cpu
#endif

/* Time for a CPU to answer. Some callers are atomic, so it is below the timeouts of watchdogs. */
#define DETACH_ANSWER_NS	(4ULL * NSEC_PER_SEC)

/* Commands of the local APIC: Intel SDM 3A, 10.6.1. */
#define DETACH_SEND_NMI		0x4400
#define DETACH_SEND_INIT	0xc500
#define DETACH_SEND_VECTOR	0x4000

/* Enough for three paths of page tables with five levels. */
#define DETACH_MOST_TABLES	16

/* A CPU that is taken. */
struct detach_core {
	struct list_head list;
	struct kref references;
	int cpu;
	u32 apic_id;

	/* The stub's pages, and page tables. */
	void *code;
	struct stub_data *data;
	void *stacks;
	void *idt;
	void *extended;
	u64 *idle_space;
	u64 *user_space;
	void *tables[DETACH_MOST_TABLES];
	unsigned int table_count;

	/* Held while a thread uses the CPU; guards mm, and thread together with lock. */
	struct mutex use;
	struct mm_struct *mm;
	struct mmu_notifier notifier;
	struct pid *thread;
	struct swait_queue_head waiters;

	/* Guards user_space, user_entries, revoked and each start of the CPU. */
	raw_spinlock_t lock;
	/* The top level of the process's page tables; NULL: none */
	pgd_t *user_entries;
	bool revoked;
	bool failed;
	u64 flushes;

	struct work_struct give;
	struct completion given;
};

/* What the machine has, constant after the module is loaded. */
struct detach_machine {
	bool x2apic;
	void __iomem *apic;
	phys_addr_t apic_address;
	unsigned int levels;
	u64 base;
	u64 components;
	u32 state_bytes;
	u32 mxcsr_mask;
	u32 pkru_offset;
	int doorbell;
};

extern struct detach_machine detach_machine;
extern struct mutex detach_lock;
extern struct cpumask detach_taken;
extern struct list_head detach_cores;
extern raw_spinlock_t detach_cores_lock;
extern atomic_t detach_events;
extern struct wait_queue_head detach_pollers;

/* core.c */
int detach_machine_begin(void);
void detach_machine_end(void);
struct detach_core *detach_core_new(int cpu);
void detach_core_put(struct detach_core *core);
void detach_kick(const struct detach_core *core);
void detach_stop(struct detach_core *core);
void detach_halt(struct detach_core *core);
bool detach_wait(struct detach_core *core, bool (*done)(const struct detach_core *core));
void detach_fill_doorbell(struct detach_core *core);

/* take.c */
extern const char detach_takeover[];
extern u64 detach_takeover_entry;
extern u64 detach_takeover_cr3;
struct detach_core *detach_take(int cpu);
int detach_give(struct detach_core *core);
int detach_take_begin(void);
void detach_take_end(void);

/* space.c */
int detach_space_new(struct detach_core *core);
void detach_space_free(struct detach_core *core);
void detach_space_copy(struct detach_core *core);
int detach_bind(struct detach_core *core);
void detach_unbind(struct detach_core *core);
int detach_fix_fault(u64 address, u64 error, bool *fixed);

/* run.c */
int detach_run(struct detach_core *core, struct rampart_detach_run *run);
int detach_leave(struct detach_core *core);

#endif /* _RAMPART_DETACH_DRIVER_H */
