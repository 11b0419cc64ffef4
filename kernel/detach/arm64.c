// SPDX-License-Identifier: GPL-2.0-only
/*
 * arm64: how a CPU is taken, what its memory has, and the state of a thread.
 *
 * The CPU goes offline by PSCI CPU_OFF as ever, and is started again by CPU_ON, at
 * the stub. The stub runs at the exception level of Linux, in the same translation
 * regime, with the same VMID and the process's ASID: so the invalidations that
 * Linux broadcasts reach it, and no message is needed when the process's memory
 * changes. To be given back, it ends by CPU_OFF, and Linux starts the CPU.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/arm-smccc.h>
#include <linux/cpu.h>
#include <linux/delay.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/of.h>
#include <linux/prctl.h>
#include <linux/psci.h>
#include <linux/smp.h>
#include <uapi/linux/psci.h>
#include <asm/arch_timer.h>
#include <asm/cpufeature.h>
#include <asm/cputype.h>
#include <asm/mmu_context.h>
#include <asm/pointer_auth.h>
#include <asm/processor.h>
#include <asm/sysreg.h>
#include <asm/virt.h>

#include "driver.h"

/* Time for a CPU to end and to start, where the caller may sleep. */
#define TIMEOUT_NS	(20ULL * NSEC_PER_SEC)

/* Flags that a thread may have: conditions, tag checks off, timing, speculation, branch type. */
#define PSTATE_USER	(0xf0000000 | BIT(25) | BIT(24) | BIT(12) | BIT(11) | BIT(10))

/* HCR_EL2: AArch64, pointer authentication and tags without traps. */
#define HCR_PLAIN	(BIT_ULL(31) | BIT_ULL(40) | BIT_ULL(41) | BIT_ULL(56))

/* SCTLR_EL1: registers of SME and FP8, which are not carried, attach. */
#define SCTLR_NOT_CARRIED	(BIT_ULL(60) | BIT_ULL(34))

/* TCR_EL1: fields of the upper half, and 52-bit addresses with pages of 4 KiB. */
#define TCR_UPPER	(GENMASK_ULL(21, 16) | GENMASK_ULL(31, 23))
#define TCR_NO_LOWER	BIT_ULL(7)
#define TCR_52_BITS	BIT_ULL(59)
/* 4 KiB, inner shareable, write-back. */
#define TCR_STUB	((u64)STUB_T1SZ << 16 | 1ULL << 24 | 1ULL << 26 | 3ULL << 28 | 2ULL << 30)

/* ESR_EL1 of an instruction and a data abort from EL0. */
#define CLASS_INSTRUCTION	0x20
#define CLASS_DATA		0x24

static const struct of_device_id detach_psci[] = {
	{ .compatible = "arm,psci-1.0" },
	{ .compatible = "arm,psci-0.2" },
	{}
};

static s32 detach_call(u64 function, u64 first, u64 second, u64 third)
{
	struct arm_smccc_res result;

	if (detach_machine.hvc)
		arm_smccc_hvc(function, first, second, third, 0, 0, 0, 0, &result);
	else
		arm_smccc_smc(function, first, second, third, 0, 0, 0, 0, &result);
	return result.a0;
}

static bool detach_is_off(const struct detach_core *core)
{
	return detach_call(PSCI_0_2_FN64_AFFINITY_INFO, core->arch.mpidr, 0, 0) ==
	       PSCI_0_2_AFFINITY_LEVEL_OFF;
}

static void detach_ask_off(struct detach_core *core)
{
	WRITE_ONCE(core->data->stop, 1);
	WRITE_ONCE(core->data->command, STUB_COMMAND_OFF);
}

void detach_halt(struct detach_core *core)
{
	u64 end = ktime_get_ns() + DETACH_ANSWER_NS;

	WRITE_ONCE(core->failed, true);
	detach_ask_off(core);
	do {
		detach_kick(core);
		udelay(5);
		core->lost = !detach_is_off(core);
	} while (core->lost && ktime_get_ns() < end);
	if (core->lost)
		pr_err("CPU %d cannot be turned off\n", core->cpu);
	WRITE_ONCE(core->data->state, STUB_STATE_CRASHED);
	swake_up_one(&core->waiters);
}

bool detach_prepare_online(struct detach_core *core)
{
	u64 end = ktime_get_ns() + TIMEOUT_NS;

	detach_ask_off(core);
	while (!detach_is_off(core)) {
		if (ktime_get_ns() > end)
			return false;
		detach_kick(core);
		usleep_range(50, 100);
	}
	core->lost = false;
	return true;
}

int detach_offline(struct detach_core *core)
{
	int error = remove_cpu(core->cpu);

	/* Positive: it was offline. */
	return error > 0 ? -ENODEV : error;
}

static bool detach_is_kicked(const struct detach_core *core)
{
	return READ_ONCE(core->data->kicks);
}

bool detach_enter(struct detach_core *core)
{
	u64 end = ktime_get_ns() + TIMEOUT_NS;
	u64 entry = virt_to_phys(core->arch.code) + (stub_entry - stub_begin);
	s32 outcome;

	while (!detach_is_off(core) && ktime_get_ns() < end)
		usleep_range(200, 400);
	outcome = detach_call(PSCI_0_2_FN64_CPU_ON, core->arch.mpidr, entry,
			      virt_to_phys(core->data));
	if (outcome) {
		pr_err("CPU %d: PSCI CPU_ON failed: %d\n", core->cpu, outcome);
		return false;
	}
	while (READ_ONCE(core->data->state) != STUB_STATE_STOPPED && ktime_get_ns() < end)
		usleep_range(200, 400);
	if (READ_ONCE(core->data->state) != STUB_STATE_STOPPED)
		return false;
	detach_enable_kick(core);
	return detach_wait(core, detach_is_kicked);
}

/* On the CPU: what Linux's registers are there. */
static void detach_read_registers(void *argument)
{
	struct detach_core *core = argument;
	struct stub_data *data = core->data;
	u64 memory_0 = read_sysreg(id_aa64mmfr0_el1), memory_1 = read_sysreg(id_aa64mmfr1_el1);
	u64 processor_0 = read_sysreg(id_aa64pfr0_el1), processor_1 = read_sysreg(id_aa64pfr1_el1);
	u64 debug = read_sysreg(id_aa64dfr0_el1);
	u64 counters = (debug >> 8) & 0xf;
	u32 features = 0;

	core->arch.mpidr = read_cpuid_mpidr() & MPIDR_HWID_BITMASK;
	data->mair = read_sysreg(mair_el1);
	data->tcr = read_sysreg(tcr_el1);
	data->sctlr = read_sysreg(sctlr_el1);
	data->cntkctl = read_sysreg(cntkctl_el1);
	data->hcr = HCR_PLAIN;
	if (counters && counters != 0xf) {
		features |= BIT(STUB_PMU);
		/* EL2 reserves no counter. */
		data->mdcr = (read_sysreg(pmcr_el0) >> 11) & 0x1f;
	}
	if (is_kernel_in_hyp_mode()) {
		features |= BIT(STUB_VHE);
		data->hcr = read_sysreg(hcr_el2);
		data->mdcr = read_sysreg(mdcr_el2);
	}
	if ((processor_0 >> 44) & 0xf)
		features |= BIT(STUB_AMU);
	if (memory_0 >> 56 & 0xf) {
		features |= BIT(STUB_FINE_TRAPS);
		if ((processor_0 >> 44) & 0xf)
			features |= BIT(STUB_ACTIVITY_TRAPS);
	}
	if ((memory_1 >> 40) & 0xf)
		features |= BIT(STUB_HCRX);
	if ((processor_1 >> 44) & 0xf)
		features |= BIT(STUB_SHADOW_STACK);
	if (system_supports_address_auth())
		features |= BIT(STUB_ADDRESS_KEYS);
	if (system_supports_generic_auth())
		features |= BIT(STUB_GENERIC_KEY);
	if (system_supports_mte())
		features |= BIT(STUB_TAGS);
	if (detach_machine.hvc)
		features |= BIT(STUB_HVC);
	data->features = features;
}

/* Linux's own CPU has caches before it has translation; this one has not. */
static void detach_clean(void *memory, size_t bytes)
{
	u64 line = 4 << ((read_cpuid_cachetype() >> 16) & 0xf);
	u64 at;

	for (at = (u64)memory; at < (u64)memory + bytes; at += line)
		asm volatile("dc civac, %0" : : "r" (at) : "memory");
	dsb(sy);
	/* Instructions fetched from there before. */
	asm volatile("ic ialluis" : : : "memory");
	dsb(ish);
	isb();
}

static void detach_fill_tables(struct detach_core *core)
{
	u64 *directory = core->arch.code + STUB_DIRECTORY;
	u64 *table = core->arch.code + STUB_TABLE;
	struct stub_data *data = core->data;
	u64 common = PTE_TYPE_PAGE | PTE_AF | PTE_UXN;
	u64 normal = common | PTE_ATTRINDX(MT_NORMAL);

	/* With 52-bit addresses these bits belong to the address. */
	if (!(data->tcr & TCR_52_BITS))
		normal |= PTE_SHARED;
	directory[0] = virt_to_phys(table) | 3;
	table[STUB_CODE >> 12] = virt_to_phys(core->arch.code) | normal | PTE_RDONLY;
	table[STUB_DATA >> 12] = virt_to_phys(data) | normal | PTE_PXN;
	table[STUB_DISTRIBUTOR >> 12] = detach_machine.distributor | common |
					pgprot_val(pgprot_device(__pgprot(0)));

	data->tcr = (data->tcr & ~(TCR_UPPER | TCR_NO_LOWER)) | TCR_STUB;
	data->sctlr &= ~(SCTLR_USER_MASK | SCTLR_NOT_CARRIED);
	data->virtual_base = STUB_BASE;
	data->idle_ttbr0 = virt_to_phys(core->arch.code + STUB_EMPTY);
	data->idle_ttbr1 = virt_to_phys(directory);
}

void detach_core_clear(struct detach_core *core)
{
	if (core->arch.redistributor)
		iounmap(core->arch.redistributor);
	free_pages((unsigned long)core->arch.code, get_order(STUB_BYTES));
}

int detach_core_fill(struct detach_core *core)
{
	struct detach_arch *arch = &core->arch;
	int error;

	arch->code = (void *)__get_free_pages(GFP_KERNEL | __GFP_ZERO, get_order(STUB_BYTES));
	if (!arch->code || virt_to_phys(arch->code) >> 48)
		return -ENOMEM;
	core->data = arch->code + STUB_DATA;
	core->extended = &core->data->extended;
	error = smp_call_function_single(core->cpu, detach_read_registers, core, 1);
	if (error)
		return error;
	arch->redistributor = detach_redistributor_of(arch->mpidr);
	if (!arch->redistributor)
		return -ENODEV;
	memcpy(arch->code, stub_begin, stub_end - stub_begin);
	detach_fill_tables(core);
	detach_clean(arch->code, STUB_BYTES);
	return 0;
}

int detach_space_bind(struct detach_core *core)
{
	/* Pinned: it stays the process's until it is unbound. */
	core->arch.asid = arm64_mm_context_get(current->mm);
	return core->arch.asid ? 0 : -EBUSY;
}

void detach_space_unbind(struct detach_core *core)
{
	arm64_mm_context_put(core->mm);
}

/* TCR_EL1.A1: the ASID is in TTBR1. */
void detach_space_copy(struct detach_core *core)
{
	struct stub_data *data = core->data;

	data->user_ttbr0 = data->idle_ttbr0;
	data->user_ttbr1 = data->idle_ttbr1;
	if (!core->user_entries)
		return;
	data->user_ttbr0 = phys_to_ttbr(virt_to_phys(core->user_entries));
	data->user_ttbr1 |= core->arch.asid << 48;
}

const struct mmu_notifier_ops detach_notifier = {
	.release = detach_release_space,
};

int detach_check(const struct rampart_detach_run *run)
{
	/* What prctl(2) made Linux do for the thread, by registers of its CPU or the firmware. */
	if (test_thread_flag(TIF_SSBD))
		return -EOPNOTSUPP;
#ifdef TIF_TSC_SIGSEGV
	if (test_thread_flag(TIF_TSC_SIGSEGV))
		return -EOPNOTSUPP;
#endif
	return test_thread_flag(TIF_32BIT) ? -EOPNOTSUPP : 0;
}

int detach_state_begin(struct detach_core *core, const struct rampart_detach_run *run)
{
	struct fpsimd_context *extended = core->extended;
	struct thread_struct *thread = &current->thread;
	struct stub_data *data = core->data;

	/* Checks of memory tags are for the thread, but their errors are for the CPU. */
	if (thread->sctlr_user & SCTLR_EL1_TCF0_MASK)
		return -EOPNOTSUPP;
#ifdef CONFIG_ARM64_GCS
	if (thread->gcs_el0_mode & PR_SHADOW_STACK_ENABLE)
		return -EOPNOTSUPP;
#endif
	memset(extended, 0, sizeof(*extended));
	extended->head.magic = FPSIMD_MAGIC;
	extended->head.size = sizeof(*extended);
	data->tpidr = read_sysreg(tpidr_el0);
	data->user_sctlr = data->sctlr | (thread->sctlr_user & SCTLR_USER_MASK);
#ifdef CONFIG_ARM64_PTR_AUTH
	static_assert(sizeof(thread->keys_user) == sizeof(data->keys));
	memcpy(data->keys, &thread->keys_user, sizeof(data->keys));
#endif
	data->fresh = 1;
	return 0;
}

void detach_state_end(struct detach_core *core)
{
	struct stub_data *data = core->data;

	/* The thread may have changed it. */
	if (!core->failed)
		write_sysreg(data->tpidr, tpidr_el0);
	memset(core->extended, 0, sizeof(struct fpsimd_context));
	memset(data->keys, 0, sizeof(data->keys));
	data->tpidr = 0;
}

void detach_to_frame(struct stub_frame *frame, const struct rampart_detach_registers *from)
{
	memcpy(frame->x, from->x, sizeof(frame->x));
	frame->sp = from->sp;
	frame->pc = from->pc;
	/* EL0 with all interrupts. */
	frame->pstate = from->pstate & PSTATE_USER;
}

void detach_from_frame(struct rampart_detach_registers *to, const struct stub_frame *frame)
{
	memcpy(to->x, frame->x, sizeof(to->x));
	to->sp = frame->sp;
	to->pc = frame->pc;
	to->pstate = frame->pstate & PSTATE_USER;
}

bool detach_read_exception(const struct stub_data *data, struct rampart_detach_run *run,
			   struct detach_fault *fault)
{
	const struct stub_frame *frame = &data->frame;
	u64 syndrome = frame->syndrome;
	bool is_fault = frame->vector == CLASS_INSTRUCTION || frame->vector == CLASS_DATA;

	run->vector = frame->vector;
	run->error = syndrome;
	run->address = is_fault ? frame->address : 0;
	*fault = (struct detach_fault){
		.address = untagged_addr(frame->address),
		/* Maintenance of caches reads, whatever WnR is. */
		.write = frame->vector == CLASS_DATA && syndrome & BIT(6) && !(syndrome & BIT(8)),
		.execute = frame->vector == CLASS_INSTRUCTION,
	};
	/* Translation, access flag, permission: at any level. */
	syndrome &= 0x3f;
	return is_fault && ((syndrome >= 4 && syndrome < 16) || syndrome == 0x2b);
}

int detach_machine_begin(void)
{
	struct detach_machine *machine = &detach_machine;
	struct device_node *node = of_find_matching_node(NULL, detach_psci);
	const char *method = "";

	of_property_read_string(node, "method", &method);
	machine->hvc = !strcmp(method, "hvc");
	of_node_put(node);
	if (!machine->hvc && strcmp(method, "smc")) {
		pr_err("needs a device tree with PSCI 0.2 or later\n");
		return -ENODEV;
	}
	if (PAGE_SIZE != SZ_4K) {
		pr_err("needs a kernel with pages of 4 KiB\n");
		return -EOPNOTSUPP;
	}
	if (is_protected_kvm_enabled()) {
		pr_err("protected KVM is not supported\n");
		return -EOPNOTSUPP;
	}
	/* ID_AA64MMFR3_EL1.TCRX, TCR2_EL1: permissions are indirect, by registers. */
	if (read_sysreg_s(sys_reg(3, 0, 0, 7, 3)) & 0xf &&
	    read_sysreg_s(sys_reg(3, 0, 2, 0, 3))) {
		pr_err("permission indirection (TCR2_EL1) is not supported\n");
		return -EOPNOTSUPP;
	}
	machine->counter_khz = arch_timer_get_cntfrq() / 1000;
	machine->state_bytes = sizeof(struct fpsimd_context);
	/* Floating point and vectors of 128 bits. */
	machine->components = 1;
	return detach_gic_begin();
}

void detach_machine_end(void)
{
	detach_gic_end();
}

/* The stub knows these as numbers. */
static_assert(offsetof(struct stub_data, state) == STUB_STATE);
static_assert(offsetof(struct stub_data, command) == STUB_COMMAND);
static_assert(offsetof(struct stub_data, fresh) == STUB_FRESH);
static_assert(offsetof(struct stub_data, stop) == STUB_STOP);
static_assert(offsetof(struct stub_data, features) == STUB_FEATURES);
static_assert(offsetof(struct stub_data, doorbell) == STUB_DOORBELL);
static_assert(offsetof(struct stub_data, doorbell_bit) == STUB_DOORBELL_BIT);
static_assert(offsetof(struct stub_data, system_calls) == STUB_SYSTEM_CALLS);
static_assert(offsetof(struct stub_data, faults) == STUB_FAULTS);
static_assert(offsetof(struct stub_data, kicks) == STUB_KICKS);
static_assert(offsetof(struct stub_data, interrupts) == STUB_INTERRUPTS);
static_assert(offsetof(struct stub_data, crash_pc) == STUB_CRASH_PC);
static_assert(offsetof(struct stub_data, crash_vector) == STUB_CRASH_VECTOR);
static_assert(offsetof(struct stub_data, hcr) == STUB_HCR);
static_assert(offsetof(struct stub_data, mdcr) == STUB_MDCR);
static_assert(offsetof(struct stub_data, mair) == STUB_MAIR);
static_assert(offsetof(struct stub_data, tcr) == STUB_TCR);
static_assert(offsetof(struct stub_data, sctlr) == STUB_SCTLR);
static_assert(offsetof(struct stub_data, cntkctl) == STUB_CNTKCTL);
static_assert(offsetof(struct stub_data, virtual_base) == STUB_VIRTUAL_BASE);
static_assert(offsetof(struct stub_data, idle_ttbr0) == STUB_IDLE_TTBR0);
static_assert(offsetof(struct stub_data, idle_ttbr1) == STUB_IDLE_TTBR1);
static_assert(offsetof(struct stub_data, user_ttbr0) == STUB_USER_TTBR0);
static_assert(offsetof(struct stub_data, user_ttbr1) == STUB_USER_TTBR1);
static_assert(offsetof(struct stub_data, user_sctlr) == STUB_USER_SCTLR);
static_assert(offsetof(struct stub_data, tpidr) == STUB_TPIDR);
static_assert(offsetof(struct stub_data, keys) == STUB_KEYS);
static_assert(offsetof(struct stub_data, frame) == STUB_FRAME);
static_assert(offsetof(struct stub_data, extended) == STUB_EXTENDED);
static_assert(offsetof(struct stub_data, frame.sp) == STUB_FRAME_SP);
static_assert(offsetof(struct stub_data, frame.pc) == STUB_FRAME_PC);
static_assert(offsetof(struct stub_data, frame.pstate) == STUB_FRAME_PSTATE);
static_assert(offsetof(struct stub_data, frame.vector) == STUB_FRAME_VECTOR);
static_assert(offsetof(struct stub_data, frame.syndrome) == STUB_FRAME_SYNDROME);
static_assert(offsetof(struct stub_data, frame.address) == STUB_FRAME_ADDRESS);
static_assert(offsetof(struct stub_data, extended.fpsr) == STUB_FPSR);
static_assert(offsetof(struct stub_data, extended.fpcr) == STUB_FPCR);
static_assert(offsetof(struct stub_data, extended.vregs) == STUB_VECTORS);
static_assert(sizeof(struct stub_data) <= 4096);
