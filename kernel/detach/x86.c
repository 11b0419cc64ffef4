// SPDX-License-Identifier: GPL-2.0-only
/*
 * x86-64: how a CPU is taken, what its memory has, and the state of a thread.
 *
 * The CPU goes offline as ever, except that it loads a copy of the interrupt
 * descriptor table before it halts. In the copy the non-maskable interrupt goes
 * to the takeover. Linux's own function must run nevertheless: it reports the
 * death of the CPU, without which the CPU cannot come back. When a CPU comes
 * online, Linux resets it by an INIT, whatever it runs.
 *
 * The CPU's local APIC stays disabled, which lets non-maskable interrupts through.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/cpu.h>
#include <linux/delay.h>
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
#include <asm/pkru.h>
#include <asm/prctl.h>
#include <asm/smp.h>
#include <asm/trap_pf.h>
#include <asm/trapnr.h>
#include <asm/tsc.h>

#include "driver.h"

/* The same bits as for a signal handler, without the single-step and alignment flags. */
#define RFLAGS_USER		0xcd5

/* Offsets in the extended state, Intel SDM 1, 13.4. */
#define EXTENDED_MXCSR		24
#define EXTENDED_COMPONENTS	512

/* Components of the extended state, Intel SDM 1, 13.1. */
#define CPUID_EXTENDED_STATE	0xd
#define COMPONENT_PKRU		9
#define COMPONENT_TILES		18

/* What the takeover reads; constant while a CPU is taken. */
u64 detach_takeover_entry;
u64 detach_takeover_cr3;

static gate_desc *takeover_gates;
static struct desc_ptr takeover_idt;
static int takeover_cpu = -1;
static void (*linux_play_dead)(void);

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
	detach_send(core->arch.apic_id, DETACH_SEND_NMI);
}

void detach_halt(struct detach_core *core)
{
	WRITE_ONCE(core->failed, true);
	detach_send(core->arch.apic_id, DETACH_SEND_INIT);
	/* Callers may be atomic. */
	mdelay(1);
	WRITE_ONCE(core->data->state, STUB_STATE_CRASHED);
	swake_up_one(&core->waiters);
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

	components = xgetbv(XCR_XFEATURE_ENABLED_MASK) & ~BIT_ULL(COMPONENT_TILES);
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
	machine->counter_khz = tsc_khz;
	takeover_gates = (gate_desc *)get_zeroed_page(GFP_KERNEL);
	if (!takeover_gates)
		return -ENOMEM;
	error = -ENOMEM;
	machine->apic = ioremap(machine->apic_address, PAGE_SIZE);
	if (!machine->apic)
		goto free;
	error = detach_doorbell_begin();
	if (error)
		goto unmap;
	return 0;

unmap:
	iounmap(machine->apic);
free:
	free_page((unsigned long)takeover_gates);
	return error;
}

void detach_machine_end(void)
{
	free_irq(detach_machine.doorbell, &detach_machine);
	irq_dispose_mapping(detach_machine.doorbell);
	iounmap(detach_machine.apic);
	free_page((unsigned long)takeover_gates);
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

void detach_core_clear(struct detach_core *core)
{
	detach_space_free(core);
	free_page((unsigned long)core->arch.code);
	free_page((unsigned long)core->data);
	free_page((unsigned long)core->arch.stacks);
	free_page((unsigned long)core->arch.idt);
	free_page((unsigned long)core->extended);
}

int detach_core_fill(struct detach_core *core)
{
	struct detach_arch *arch = &core->arch;

	arch->apic_id = per_cpu(x86_cpu_to_apicid, core->cpu);
	arch->code = (void *)get_zeroed_page(GFP_KERNEL);
	core->data = (void *)get_zeroed_page(GFP_KERNEL);
	arch->stacks = (void *)get_zeroed_page(GFP_KERNEL);
	arch->idt = (void *)get_zeroed_page(GFP_KERNEL);
	core->extended = (void *)get_zeroed_page(GFP_KERNEL);
	if (!arch->code || !core->data || !arch->stacks || !arch->idt || !core->extended)
		return -ENOMEM;
	if (detach_space_new(core))
		return -ENOMEM;
	memcpy(arch->code, stub_begin, stub_end - stub_begin);
	detach_fill_idt(arch->idt);
	detach_fill_tables(core);
	return 0;
}

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
	/* Using tiles is a fault. Their configuration is carried, as it may not be one. */
	if (boot_cpu_has(X86_FEATURE_XFD))
		detach_register(core, MSR_IA32_XFD, BIT_ULL(COMPONENT_TILES));
	/* What the last process had: ENQCMD faults, and there is no shadow stack. */
	if (boot_cpu_has(X86_FEATURE_ENQCMD))
		detach_register(core, MSR_IA32_PASID, 0);
#ifdef X86_FEATURE_USER_SHSTK
	if (boot_cpu_has(X86_FEATURE_USER_SHSTK))
		detach_register(core, MSR_IA32_U_CET, 0);
#endif
	detach_keep(core, MSR_IA32_SPEC_CTRL, boot_cpu_has(X86_FEATURE_MSR_SPEC_CTRL));
	detach_keep(core, MSR_HWP_REQUEST, boot_cpu_has(X86_FEATURE_HWP));
	/* Linux's limit of TPAUSE and UMWAIT. */
	detach_keep(core, MSR_IA32_UMWAIT_CONTROL, boot_cpu_has(X86_FEATURE_WAITPKG));
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

int detach_offline(struct detach_core *core)
{
	int error;

	detach_fill_registers(core);
	detach_prepare(core);
	linux_play_dead = smp_ops.play_dead;
	WRITE_ONCE(smp_ops.play_dead, detach_play_dead);
	error = remove_cpu(core->cpu);
	WRITE_ONCE(smp_ops.play_dead, linux_play_dead);
	if (error)
		WRITE_ONCE(takeover_cpu, -1);
	/* Positive: it was offline. */
	return error > 0 ? -ENODEV : error;
}

static bool detach_has_answered(const struct detach_core *core)
{
	return READ_ONCE(core->data->flush_done) == core->data->flush_wanted;
}

/* Sends the NMI and waits for the stub. */
bool detach_enter(struct detach_core *core)
{
	u64 end = ktime_get_ns() + DETACH_ANSWER_NS;

	do {
		detach_kick(core);
		usleep_range(200, 400);
	} while (READ_ONCE(core->data->state) != STUB_STATE_STOPPED && ktime_get_ns() < end);
	WRITE_ONCE(takeover_cpu, -1);
	if (READ_ONCE(core->data->state) != STUB_STATE_STOPPED)
		return false;
	/* Nothing of Linux stays mapped. */
	WRITE_ONCE(core->arch.idle_space[511], 0);
	core->data->flush_wanted++;
	return detach_wait(core, detach_has_answered);
}

/* Linux starts the CPU by an INIT. */
bool detach_prepare_online(struct detach_core *core)
{
	return true;
}

void detach_to_frame(struct stub_frame *frame, const struct rampart_detach_registers *from)
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

void detach_from_frame(struct rampart_detach_registers *to, const struct stub_frame *frame)
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
int detach_state_begin(struct detach_core *core, const struct rampart_detach_run *run)
{
	struct stub_data *data = core->data;
	u64 components = 3;
	u8 *extended = core->extended;

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

void detach_state_end(struct detach_core *core)
{
	if (!core->failed)
		detach_restore_bases(core->data);
	memset(core->extended, 0, PAGE_SIZE);
	core->data->fs_base = 0;
	core->data->gs_base = 0;
}

int detach_check(const struct rampart_detach_run *run)
{
	if (run->registers.rip >= TASK_SIZE_MAX)
		return -EINVAL;
	/* What prctl(2) and arch_prctl(2) made Linux forbid the thread, by registers of its CPU. */
	if (test_thread_flag(TIF_NOTSC) || test_thread_flag(TIF_NOCPUID) ||
	    test_thread_flag(TIF_SSBD) || test_thread_flag(TIF_SPEC_IB))
		return -EOPNOTSUPP;
#ifdef CONFIG_X86_USER_SHADOW_STACK
	/* The register of the CPU may be that of another thread. */
	if (current->thread.features & ARCH_SHSTK_SHSTK)
		return -EOPNOTSUPP;
#endif
	return test_thread_flag(TIF_ADDR32) ? -EOPNOTSUPP : 0;
}

bool detach_read_exception(const struct stub_data *data, struct rampart_detach_run *run,
			   struct detach_fault *fault)
{
	const struct stub_frame *frame = &data->frame;
	u64 error = frame->error;

	run->vector = frame->vector;
	run->error = error;
	run->address = frame->vector == X86_TRAP_PF ? data->cr2 : 0;
	*fault = (struct detach_fault){
		.address = run->address,
		.write = error & X86_PF_WRITE,
		.execute = error & X86_PF_INSTR,
	};
	return frame->vector == X86_TRAP_PF &&
	       !(error & ~(X86_PF_PROT | X86_PF_WRITE | X86_PF_USER | X86_PF_INSTR));
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
static_assert(offsetof(struct stub_data, crash_pc) == STUB_CRASH_PC);
static_assert(offsetof(struct stub_data, crash_vector) == STUB_CRASH_VECTOR);
static_assert(offsetof(struct stub_data, gdt_pointer) == STUB_GDT_POINTER);
static_assert(offsetof(struct stub_data, idt_pointer) == STUB_IDT_POINTER);
static_assert(offsetof(struct stub_data, gdt) == STUB_GDT);
static_assert(offsetof(struct stub_data, tss) == STUB_TSS);
static_assert(offsetof(struct stub_data, registers) == STUB_REGISTERS);
static_assert(offsetof(struct stub_data, frame) == STUB_FRAME);
static_assert(sizeof(struct stub_frame) == 8 * STUB_FRAME_WORDS);
static_assert(sizeof(struct stub_data) <= PAGE_SIZE);
