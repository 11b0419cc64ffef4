/* SPDX-License-Identifier: GPL-2.0-only */
/* Hostile instructions and states of arm64. */
#ifndef HOSTILE_AARCH64_H
#define HOSTILE_AARCH64_H

/* The stub's pages, and a page of Linux. */
#define CODE	"0xfffffffffe000000"
#define DATA	"0xfffffffffe001000"
#define GIC	"0xfffffffffe002000"
#define LINUX	"0xffff800008000000"

/* Privileged instructions and calls of other exception levels. */
ACTION(do_svc_1, "mov x8, #172; svc #1")
ACTION(do_hvc, "ldr x0, =0x84000000; hvc #0")
ACTION(do_smc, "ldr x0, =0x84000000; smc #0")
ACTION(do_cpu_off, "ldr x0, =0x84000002; smc #0; hvc #0")
ACTION(do_brk, "brk #0")
ACTION(do_hlt, "hlt #0")
ACTION(do_udf, "udf #0")
ACTION(do_eret, "eret")
ACTION(do_dcps1, ".inst 0xd4a00001")
ACTION(do_dcps3, ".inst 0xd4a00003")
ACTION(do_wfi, "1: wfi; b 1b")
ACTION(do_wfe, "sevl; wfe; wfe; sev; wfe")
ACTION(do_mask, "msr daifset, #15; 1: b 1b")
ACTION(do_unmask, "msr daifclr, #15")
ACTION(do_write_daif, "mov x0, #0x3c0; msr daif, x0; 1: b 1b")
ACTION(do_read_daif, "mrs x0, daif")
ACTION(do_spsel, "msr spsel, #1; mov x0, #0; mov sp, x0; b .")
ACTION(do_pan, ".inst 0xd500409f") /* msr pan, #0 */
ACTION(do_read_id, "mrs x0, midr_el1; mrs x0, id_aa64pfr0_el1; mrs x0, id_aa64mmfr0_el1")
ACTION(do_read_sctlr, "mrs x0, sctlr_el1")
ACTION(do_write_sctlr, "msr sctlr_el1, xzr")
ACTION(do_write_ttbr, "msr ttbr0_el1, xzr")
ACTION(do_write_vbar, "msr vbar_el1, xzr")
ACTION(do_write_vbar_2, "msr vbar_el2, xzr")
ACTION(do_write_hcr, "msr hcr_el2, xzr")
ACTION(do_write_elr, "msr elr_el1, xzr")
ACTION(do_tlbi, "tlbi vmalle1")
ACTION(do_ic, "ic iallu")
ACTION(do_dc_isw, "dc isw, xzr")
ACTION(do_dc_ivac, "mov x0, sp; dc ivac, x0")
ACTION(do_dc_civac_null, "dc civac, xzr")
ACTION(do_dc_zva_null, "dc zva, xzr")
ACTION(do_dc_zva_stub, "ldr x0, =" DATA "; dc zva, x0")
ACTION(do_at, "at s1e1r, xzr")
ACTION(do_pmu, "mrs x0, pmccntr_el0; msr pmcr_el0, x0")
ACTION(do_pmuserenr, "mov x0, #15; msr pmuserenr_el0, x0")
ACTION(do_timer, "mov x0, #1; msr cntp_tval_el0, x0; msr cntp_ctl_el0, x0; 1: b 1b")
ACTION(do_virtual_timer, "mov x0, #1; msr cntv_tval_el0, x0; msr cntv_ctl_el0, x0; 1: b 1b")
ACTION(do_read_counter, "mrs x0, cntvct_el0; mrs x1, cntpct_el0; mrs x2, cntfrq_el0")
ACTION(do_gic_acknowledge, "mrs x0, S3_0_C12_C12_0")
ACTION(do_gic_mask, "msr S3_0_C4_C6_0, xzr; 1: b 1b")
ACTION(do_gic_send, "mov x0, #1; msr S3_0_C12_C11_5, x0")
ACTION(do_debug_channel, "mrs x0, mdccsr_el0; mrs x0, dbgdtr_el0")
ACTION(do_mdscr, "mov x0, #1; msr mdscr_el1, x0")
ACTION(do_osdlr, "mov x0, #1; msr osdlr_el1, x0")
ACTION(do_tpidrro, "msr tpidrro_el0, x0")
ACTION(do_thread_pointer, "msr tpidr_el0, xzr; mrs x0, tpidr_el0; brk #1")

/* Features that may be absent; the second byte of each is its own. */
ACTION(do_sve, ".inst 0x04e0e3e0; .inst 0x2518e3e0") /* cntd, ptrue */
ACTION(do_sme, ".inst 0xd503477f; .inst 0xd503467f") /* smstart, smstop */
ACTION(do_sme_pointer, "mrs x0, S3_3_C13_C0_5; msr S3_3_C13_C0_5, x0")
ACTION(do_keys, "hint #25; hint #29; hint #7; .inst 0xdac10000; .inst 0x9ac13000")
ACTION(do_write_key, "msr S3_0_C2_C1_0, x0")
ACTION(do_bad_key, "mov x0, #0x1234; movk x0, #0x5678, lsl #48; .inst 0xdac133e0; br x0")
ACTION(do_tags, ".inst 0x9adf1000; .inst 0xd9600000; .inst 0xd9200000") /* irg, ldg, stg */
ACTION(do_tag_checks_off, ".inst 0xd503419f") /* msr tco, #1 */
ACTION(do_branch_type, "hint #36; adr x16, 1f; br x16; nop; 1: nop")
ACTION(do_random, "mrs x0, S3_3_C2_C4_0")
ACTION(do_step_flag, "mov x0, #(1 << 21); msr nzcv, x0; nop")
ACTION(do_fpcr, "mov x0, #-1; msr fpcr, x0; msr fpsr, x0; fdiv d0, d1, d2")
ACTION(do_memory_copy, ".inst 0x19010440; .inst 0x19410440; .inst 0x19810440")
ACTION(do_exclusive, "1: ldxr x0, [sp]; clrex; stxr w1, x0, [sp]; cbnz w1, 2f; b 1b; 2:")
ACTION(do_st64b, ".inst 0xf83f9000")
ACTION(do_tstart, ".inst 0xd5233060")

/* The stub's memory, and addresses that are none. */
ACTION(read_data, "ldr x0, =" DATA "; ldr x0, [x0]")
ACTION(write_data, "ldr x0, =" DATA "; str x0, [x0]")
ACTION(read_code, "ldr x0, =" CODE "; ldr x0, [x0]")
ACTION(jump_code, "ldr x0, =" CODE "; br x0")
ACTION(write_gic, "ldr x0, =" GIC "; str wzr, [x0, #0x200]")
ACTION(read_kernel, "ldr x0, =" LINUX "; ldr x0, [x0]")
ACTION(jump_kernel, "ldr x0, =" LINUX "; br x0")
ACTION(unprivileged_read, "ldr x0, =" DATA "; ldtr x0, [x0]")
ACTION(prefetch_data, "ldr x0, =" DATA "; prfm pldl1keep, [x0]; prfm plil1keep, [x0]")
ACTION(jump_nowhere, "mov x0, #0x1000; br x0")
ACTION(jump_middle, "mov x0, #1; lsl x0, x0, #63; br x0")
ACTION(jump_tagged, "adr x0, 1f; movk x0, #0x5500, lsl #48; br x0; 1: nop")
ACTION(jump_odd, "adr x0, 1f; add x0, x0, #2; br x0; 1: nop; nop")
ACTION(write_null, "mov x0, #0; str x0, [x0]")
ACTION(read_unaligned, "mov x0, sp; add x0, x0, #1; ldxr x1, [x0]")
ACTION(jump_stack, "mov x0, sp; br x0")
ACTION(read_end, "mov x0, #-1; ldr x1, [x0]")

/* Stacks that are none. */
ACTION(stack_null_call, "mov x0, #0; mov sp, x0; mov x8, #172; svc #0; ldr x0, [sp]")
ACTION(stack_data_call, "ldr x0, =" DATA "; mov sp, x0; mov x8, #172; svc #0; ldr x0, [sp]")
ACTION(stack_data_push, "ldr x0, =" DATA "; mov sp, x0; stp x0, x1, [sp, #-16]!")
ACTION(stack_odd, "mov x0, sp; sub x0, x0, #24; mov sp, x0; ldr x0, [sp]")
ACTION(stack_odd_call, "mov x0, sp; sub x0, x0, #7; mov sp, x0; mov x8, #172; svc #0; ldr x0, [sp]")
ACTION(stack_null_fault, "mov x0, #0; mov sp, x0; udf #0")

static void endless(void)
{
	asm volatile("1: b 1b");
}

static void endless_calls(void)
{
	asm volatile("1: mov x8, #172; svc #0; b 1b" : : : "x0", "x8");
}

static void endless_wfe(void)
{
	asm volatile("1: wfe; b 1b");
}

/* The instructions of an endless loop. */
static const uint32_t endless_code[] = { 0x14000000 };

/* A function that returns the value, of 16 bits: a MOVZ to W0, and RET. */
static void fill_function(unsigned char *code, int value)
{
	const uint32_t words[] = { 0x52800000 | (uint32_t)value << 5, 0xd65f03c0 };

	memcpy(code, words, sizeof(words));
}

#define ENDLESS(name) { #name, name, NULL, 1, 0 }

#define MACHINE_ACTIONS \
	ONE(do_svc_1), ONE(do_hvc), ONE(do_smc), ONE(do_cpu_off), ONE(do_brk), ONE(do_hlt), \
	ONE(do_udf), ONE(do_eret), ONE(do_dcps1), ONE(do_dcps3), ENDLESS(do_wfi), ONE(do_wfe), \
	ONE(do_mask), ONE(do_unmask), ONE(do_write_daif), ONE(do_read_daif), ONE(do_spsel), \
	ONE(do_pan), ONE(do_read_id), ONE(do_read_sctlr), ONE(do_write_sctlr), \
	ONE(do_write_ttbr), ONE(do_write_vbar), ONE(do_write_vbar_2), ONE(do_write_hcr), \
	ONE(do_write_elr), ONE(do_tlbi), ONE(do_ic), ONE(do_dc_isw), ONE(do_dc_ivac), \
	ONE(do_dc_civac_null), ONE(do_dc_zva_null), ONE(do_dc_zva_stub), ONE(do_at), ONE(do_pmu), \
	ONE(do_pmuserenr), ONE(do_timer), ONE(do_virtual_timer), ONE(do_read_counter), \
	ONE(do_gic_acknowledge), ONE(do_gic_mask), ONE(do_gic_send), ONE(do_debug_channel), \
	ONE(do_mdscr), ONE(do_osdlr), ONE(do_tpidrro), ONE(do_thread_pointer), ONE(do_sve), \
	ONE(do_sme), ONE(do_sme_pointer), ONE(do_keys), ONE(do_write_key), ONE(do_bad_key), \
	ONE(do_tags), ONE(do_tag_checks_off), ONE(do_branch_type), ONE(do_random), \
	ONE(do_step_flag), ONE(do_fpcr), ONE(do_memory_copy), ONE(do_exclusive), ONE(do_st64b), \
	ONE(do_tstart), ONE(read_data), ONE(write_data), ONE(read_code), ONE(jump_code), \
	ONE(write_gic), ONE(read_kernel), ONE(jump_kernel), ONE(unprivileged_read), \
	ONE(prefetch_data), ONE(jump_nowhere), ONE(jump_middle), ONE(jump_tagged), ONE(jump_odd), \
	ONE(write_null), ONE(read_unaligned), ONE(jump_stack), ONE(read_end), \
	ONE(stack_null_call), ONE(stack_data_call), ONE(stack_data_push), ONE(stack_odd), \
	ONE(stack_odd_call), ONE(stack_null_fault), ENDLESS(endless_wfe),

#endif /* HOSTILE_AARCH64_H */
