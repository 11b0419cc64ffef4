// SPDX-License-Identifier: GPL-2.0-only
/*
 * Taken CPUs: their memory, interrupts to them and from them.
 *
 * A CPU gets a non-maskable interrupt, which its disabled local APIC lets
 * through. It answers with an interrupt of a vector that Linux allocates for
 * this module. Both sides also see each other's state in memory, and repeat.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/irqdomain.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <asm/apic.h>
#ifdef DETACH_HAS_CPUID_HEADER
#include <asm/cpuid/api.h>
#endif
#include <asm/desc.h>
#include <asm/fpu/xcr.h>
#include <asm/irqdomain.h>
#include <asm/msr.h>
#include <asm/smp.h>
#include <asm/trapnr.h>

#include "driver.h"

struct detach_machine detach_machine;
/* Serialises taking and giving. */
DEFINE_MUTEX(detach_lock);
struct cpumask detach_taken;
LIST_HEAD(detach_cores);
DEFINE_RAW_SPINLOCK(detach_cores_lock);
atomic_t detach_events = ATOMIC_INIT(0);
DECLARE_WAIT_QUEUE_HEAD(detach_pollers);

/* Components of the extended state, Intel SDM 1, 13.1. */
#define CPUID_EXTENDED_STATE	0xd
#define COMPONENT_PKRU		9
#define COMPONENTS_TILES	(BIT_ULL(17) | BIT_ULL(18))

static void detach_send(u32 apic_id, u32 command)
{
	struct detach_machine *machine = &detach_machine;
	unsigned long flags;
	int turn;

	local_irq_save(flags);
	if (machine->x2apic) {
		/* The WRMSR does not order earlier stores. */
		asm volatile("mfence; lfence" : : : "memory");
		wrmsrq(APIC_BASE_MSR + (APIC_ICR >> 4), (u64)apic_id << 32 | command);
	} else {
		for (turn = 0; turn < 1000 && readl(machine->apic + APIC_ICR) & APIC_ICR_BUSY;
		     turn++)
			cpu_relax();
		writel(apic_id << 24, machine->apic + APIC_ICR2);
		writel(command, machine->apic + APIC_ICR);
	}
	local_irq_restore(flags);
}

void detach_kick(const struct detach_core *core)
{
	detach_send(core->apic_id, DETACH_SEND_NMI);
}

/* Stops the CPU by an INIT, whatever it does. It can only be given back afterwards. */
void detach_halt(struct detach_core *core)
{
	WRITE_ONCE(core->failed, true);
	detach_send(core->apic_id, DETACH_SEND_INIT);
	/* Callers may be atomic. */
	mdelay(1);
	WRITE_ONCE(core->data->state, STUB_STATE_CRASHED);
	swake_up_one(&core->waiters);
}

/* Sends interrupts until the CPU has done something. Halts it if it does not answer. */
bool detach_wait(struct detach_core *core, bool (*done)(const struct detach_core *core))
{
	u64 end = ktime_get_ns() + DETACH_ANSWER_NS;
	int turn;

	do {
		detach_kick(core);
		for (turn = 0; turn < 100; turn++) {
			if (done(core))
				return true;
			udelay(1);
		}
	} while (ktime_get_ns() < end);
	pr_err("CPU %d does not answer and is halted\n", core->cpu);
	detach_halt(core);
	return false;
}

static bool detach_has_stopped(const struct detach_core *core)
{
	return READ_ONCE(core->data->state) != STUB_STATE_RUNNING;
}

/* Makes the CPU leave its thread. Afterwards it does not run. */
void detach_stop(struct detach_core *core)
{
	WRITE_ONCE(core->data->stop, 1);
	if (!detach_has_stopped(core))
		detach_wait(core, detach_has_stopped);
}

static irqreturn_t detach_rung(int irq, void *unused)
{
	struct detach_core *core;
	unsigned long flags;

	raw_spin_lock_irqsave(&detach_cores_lock, flags);
	list_for_each_entry(core, &detach_cores, list)
		if (detach_has_stopped(core))
			swake_up_one(&core->waiters);
	raw_spin_unlock_irqrestore(&detach_cores_lock, flags);
	return IRQ_HANDLED;
}

/* Linux may have moved the interrupt to another CPU. */
void detach_fill_doorbell(struct detach_core *core)
{
	struct irq_data *irq = irq_get_irq_data(detach_machine.doorbell);
	const struct cpumask *mask = irq_data_get_effective_affinity_mask(irq);
	const struct irq_cfg *cfg = irqd_cfg(irq);
	unsigned int cpu = cpumask_first(mask);

	if (!cfg || cpu >= nr_cpu_ids)
		return;
	core->data->destination = per_cpu(x86_cpu_to_apicid, cpu);
	WRITE_ONCE(core->data->doorbell, cfg->vector | DETACH_SEND_VECTOR);
}

static int detach_doorbell_begin(void)
{
	struct irq_alloc_info info = {};
	int irq, error;

	irq = __irq_domain_alloc_irqs(x86_vector_domain, -1, 1, NUMA_NO_NODE, &info, false, NULL);
	if (irq < 0)
		return irq;
	irq_set_handler(irq, handle_edge_irq);
	error = request_irq(irq, detach_rung, IRQF_NO_THREAD | IRQF_NOBALANCING, "rampart-detach",
			    &detach_machine);
	if (error) {
		irq_dispose_mapping(irq);
		return error;
	}
	detach_machine.doorbell = irq;
	return 0;
}

static void detach_read_components(struct detach_machine *machine)
{
	u8 legacy[512] __aligned(16) = {};
	u64 components;
	u32 eax, ebx, ecx, edx;
	int number;

	components = xgetbv(XCR_XFEATURE_ENABLED_MASK) & ~COMPONENTS_TILES;
	/* The legacy area and the header: Intel SDM 1, 13.4. */
	machine->state_bytes = 576;
	for (number = 2; number < 63; number++) {
		if (!(components & BIT_ULL(number)))
			continue;
		cpuid_count(CPUID_EXTENDED_STATE, number, &eax, &ebx, &ecx, &edx);
		machine->state_bytes = max(machine->state_bytes, eax + ebx);
		if (number == COMPONENT_PKRU)
			machine->pkru_offset = ebx;
	}
	machine->components = components;
	asm volatile("fxsave64 %0" : "=m" (legacy));
	machine->mxcsr_mask = *(u32 *)(legacy + 28) ?: 0xffbf;
}

int detach_machine_begin(void)
{
	struct detach_machine *machine = &detach_machine;
	u64 base;
	int error;

	if (boot_cpu_has(X86_FEATURE_XENPV) || !boot_cpu_has(X86_FEATURE_APIC) ||
	    !boot_cpu_has(X86_FEATURE_OSXSAVE) || !boot_cpu_has(X86_FEATURE_NX)) {
		pr_err("needs a local APIC, XSAVE and NX, and no Xen PV\n");
		return -ENODEV;
	}
	/* FRED delivers interrupts without the IDT. */
	if (__read_cr4() & BIT_ULL(32)) {
		pr_err("FRED is not supported; boot with fred=off\n");
		return -ENODEV;
	}
	machine->levels = __read_cr4() & X86_CR4_LA57 ? 5 : 4;
	/* The first of the kernel's half, which Linux leaves to hypervisors. */
	machine->base = machine->levels == 5 ? 0xff00000000000000 : 0xffff800000000000;
	detach_read_components(machine);
	if (machine->state_bytes > PAGE_SIZE) {
		pr_err("an extended state of %u bytes is not supported\n", machine->state_bytes);
		return -ENODEV;
	}
	rdmsrq(MSR_IA32_APICBASE, base);
	machine->x2apic = base & X2APIC_ENABLE;
	machine->apic_address = base & MSR_IA32_APICBASE_BASE;
	machine->apic = ioremap(machine->apic_address, PAGE_SIZE);
	if (!machine->apic)
		return -ENOMEM;
	error = detach_doorbell_begin();
	if (error)
		iounmap(machine->apic);
	return error;
}

void detach_machine_end(void)
{
	free_irq(detach_machine.doorbell, &detach_machine);
	irq_dispose_mapping(detach_machine.doorbell);
	iounmap(detach_machine.apic);
}

static u64 detach_address(const char *entry)
{
	return detach_machine.base + (entry - stub_begin);
}

static void detach_fill_idt(gate_desc *idt)
{
	int vector;

	for (vector = 0; vector < IDT_ENTRIES; vector++) {
		const char *entry = stub_interrupt;
		unsigned int stack = 0;

		if (vector < 32)
			entry = stub_exceptions + vector * STUB_EXCEPTION_BYTES;
		if (vector == X86_TRAP_NMI)
			stack = 1;
		else if (vector == X86_TRAP_DF)
			stack = 2;
		else if (vector == X86_TRAP_MC)
			stack = 3;
		else if (vector == X86_TRAP_DB)
			stack = 4;
		/*
		 * For ring 0, so that INT n of a thread faults at its instruction, as
		 * everything that Linux has to do for a thread.
		 */
		pack_gate(&idt[vector], GATE_INTERRUPT, detach_address(entry), 0, stack,
			  __KERNEL_CS);
	}
}

static void detach_fill_tables(struct detach_core *core)
{
	struct stub_data *data = core->data;
	u64 base = detach_machine.base;
	u64 tss = base + STUB_DATA + STUB_TSS;
	u64 stacks = base + STUB_STACKS;
	u64 *gdt = data->gdt;

	/* No 32-bit code, LDT or TLS. The rest, with the CPU's number for the vDSO, is Linux's. */
	memcpy(gdt, per_cpu(gdt_page, core->cpu).gdt, sizeof(data->gdt));
	gdt[0] = 0;
	gdt[GDT_ENTRY_KERNEL32_CS] = 0;
	gdt[GDT_ENTRY_DEFAULT_USER32_CS] = 0;
	memset(&gdt[GDT_ENTRY_TSS], 0, (GDT_ENTRY_CPUNODE - GDT_ENTRY_TSS) * sizeof(*gdt));
	set_tssldt_descriptor(&gdt[GDT_ENTRY_TSS], tss, DESC_TSS, sizeof(data->tss) - 1);

	/* Intel SDM 3A, figure 7-11. The bitmap of I/O ports is beyond the limit. */
	*(u64 *)(data->tss + 4) = base + STUB_DATA + STUB_FRAME_END;
	*(u64 *)(data->tss + 36) = stacks + STUB_STACK_NMI;
	*(u64 *)(data->tss + 44) = stacks + STUB_STACK_DOUBLE_FAULT;
	*(u64 *)(data->tss + 52) = stacks + STUB_STACK_CHECK;
	*(u64 *)(data->tss + 60) = stacks + STUB_STACK_DEBUG;
	*(u16 *)(data->tss + 102) = sizeof(data->tss);

	data->gdt_pointer.bytes = sizeof(data->gdt) - 1;
	data->gdt_pointer.address = base + STUB_DATA + STUB_GDT;
	data->idt_pointer.bytes = PAGE_SIZE - 1;
	data->idt_pointer.address = base + STUB_IDT;
	data->x2apic = detach_machine.x2apic;
	data->components = detach_machine.components;
}

static void detach_core_free(struct kref *references)
{
	struct detach_core *core = container_of(references, struct detach_core, references);

	detach_space_free(core);
	free_page((unsigned long)core->code);
	free_page((unsigned long)core->data);
	free_page((unsigned long)core->stacks);
	free_page((unsigned long)core->idt);
	free_page((unsigned long)core->extended);
	put_pid(core->thread);
	kfree(core);
}

void detach_core_put(struct detach_core *core)
{
	kref_put(&core->references, detach_core_free);
}

struct detach_core *detach_core_new(int cpu)
{
	struct detach_core *core = kzalloc(sizeof(*core), GFP_KERNEL);

	if (!core)
		return NULL;
	kref_init(&core->references);
	INIT_LIST_HEAD(&core->list);
	mutex_init(&core->use);
	raw_spin_lock_init(&core->lock);
	init_swait_queue_head(&core->waiters);
	init_completion(&core->given);
	core->cpu = cpu;
	core->apic_id = per_cpu(x86_cpu_to_apicid, cpu);
	core->code = (void *)get_zeroed_page(GFP_KERNEL);
	core->data = (void *)get_zeroed_page(GFP_KERNEL);
	core->stacks = (void *)get_zeroed_page(GFP_KERNEL);
	core->idt = (void *)get_zeroed_page(GFP_KERNEL);
	core->extended = (void *)get_zeroed_page(GFP_KERNEL);
	if (!core->code || !core->data || !core->stacks || !core->idt || !core->extended ||
	    detach_space_new(core)) {
		detach_core_put(core);
		return NULL;
	}
	memcpy(core->code, stub_begin, stub_end - stub_begin);
	detach_fill_idt(core->idt);
	detach_fill_tables(core);
	return core;
}

/* The stub knows these as numbers. */
static_assert(offsetof(struct stub_data, state) == STUB_STATE);
static_assert(offsetof(struct stub_data, command) == STUB_COMMAND);
static_assert(offsetof(struct stub_data, fresh) == STUB_FRESH);
static_assert(offsetof(struct stub_data, stop) == STUB_STOP);
static_assert(offsetof(struct stub_data, flush_wanted) == STUB_FLUSH_WANTED);
static_assert(offsetof(struct stub_data, flush_done) == STUB_FLUSH_DONE);
static_assert(offsetof(struct stub_data, doorbell) == STUB_DOORBELL);
static_assert(offsetof(struct stub_data, destination) == STUB_DESTINATION);
static_assert(offsetof(struct stub_data, x2apic) == STUB_X2APIC);
static_assert(offsetof(struct stub_data, barrier) == STUB_BARRIER);
static_assert(offsetof(struct stub_data, components) == STUB_COMPONENTS);
static_assert(offsetof(struct stub_data, user_cr3) == STUB_USER_CR3);
static_assert(offsetof(struct stub_data, idle_cr3) == STUB_IDLE_CR3);
static_assert(offsetof(struct stub_data, fs_base) == STUB_FS_BASE);
static_assert(offsetof(struct stub_data, gs_base) == STUB_GS_BASE);
static_assert(offsetof(struct stub_data, scratch) == STUB_SCRATCH);
static_assert(offsetof(struct stub_data, cr2) == STUB_CR2);
static_assert(offsetof(struct stub_data, system_calls) == STUB_SYSTEM_CALLS);
static_assert(offsetof(struct stub_data, faults) == STUB_FAULTS);
static_assert(offsetof(struct stub_data, kicks) == STUB_KICKS);
static_assert(offsetof(struct stub_data, interrupts) == STUB_INTERRUPTS);
static_assert(offsetof(struct stub_data, crash_rip) == STUB_CRASH_RIP);
static_assert(offsetof(struct stub_data, crash_vector) == STUB_CRASH_VECTOR);
static_assert(offsetof(struct stub_data, gdt_pointer) == STUB_GDT_POINTER);
static_assert(offsetof(struct stub_data, idt_pointer) == STUB_IDT_POINTER);
static_assert(offsetof(struct stub_data, gdt) == STUB_GDT);
static_assert(offsetof(struct stub_data, tss) == STUB_TSS);
static_assert(offsetof(struct stub_data, registers) == STUB_REGISTERS);
static_assert(offsetof(struct stub_data, frame) == STUB_FRAME);
static_assert(sizeof(struct stub_frame) == 8 * STUB_FRAME_WORDS);
static_assert(sizeof(struct stub_data) <= PAGE_SIZE);
