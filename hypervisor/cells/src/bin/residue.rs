// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Searches its memory and CPU for data of the last owner, then writes a pattern to all of it for the next one.
//! The result has a bit for each location that was not 0; the pattern is never 0.
#![no_std]
#![no_main]

use core::arch::asm;

use rampart_hypervisor_cells::gicv2::is_gicv2;
use rampart_hypervisor_cells::{
    LOADABLE_END, PRIVATE, PRIVATE_BYTES, Word, count, load, private_frame, read_register,
    set_shared_word, store, wait, write_register,
};

const PATTERN: u64 = 0xa5a5_5a5a_c3c3_3c3c;
/// CPACR_EL1.FPEN (Arm ARM D24.2.33): vector instructions do not trap.
const VECTORS: u64 = 3 << 20;

const PRIORITIES: u64 = 0x418;
/// Priorities of the interrupts 24 to 27; 25 and 26 belong to EL2.
const ORDINARY: u32 = 0xa000_00a0;
const TRIGGERS: u64 = 0xc04;

unsafe extern "C" {
    static image_end: u8;
}

/// Sets a bit in `$found` for each register that is not 0, from bit `$first` on.
macro_rules! check_registers {
    ($found:ident, $first:expr, $($name:literal),+) => {{
        let mut bit = $first;
        $(
            if read_register!($name) != 0 {
                $found |= 1_u64 << bit;
            }
            bit += 1;
        )+
        let _ = bit;
    }};
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64, registers: u64) {
    let mut found = u64::from(registers != 0);
    let stack_end = (&raw const image_end) as u64;
    let loadable = stack_end.next_multiple_of(8)..LOADABLE_END;
    let private = PRIVATE..PRIVATE + PRIVATE_BYTES;
    found |= u64::from(has_data(loadable.clone())) << 1 | u64::from(has_data(private.clone())) << 2;
    write_register!("cpacr_el1", VECTORS);
    found |= u64::from(vectors() != 0) << 3;
    check_registers!(
        found,
        4,
        "tpidr_el0",
        "tpidrro_el0",
        "sp_el0",
        "contextidr_el1",
        "ttbr0_el1",
        "ttbr1_el1"
    );
    check_registers!(
        found,
        10,
        "tcr_el1",
        "mair_el1",
        "amair_el1",
        "par_el1",
        "esr_el1",
        "far_el1",
        "elr_el1"
    );
    check_registers!(found, 17, "spsr_el1", "afsr0_el1", "afsr1_el1", "csselr_el1", "cntkctl_el1");
    check_registers!(
        found,
        22,
        "cntv_cval_el0",
        "cntp_cval_el0",
        "mdscr_el1",
        "dbgbvr0_el1",
        "dbgbvr5_el1"
    );
    check_registers!(
        found,
        27,
        "dbgwvr0_el1",
        "dbgwvr3_el1",
        "s3_3_c4_c4_0",
        "s3_3_c4_c4_1",
        "pmevcntr0_el0",
        "pmevtyper0_el0"
    );
    check_registers!(found, 33, "pmccntr_el0", "pmcntenset_el0", "pmovsset_el0", "pmintenset_el1");
    check_registers!(found, 37, "pmccfiltr_el0", "pmuserenr_el0", "dbgbcr5_el1", "dbgwcr3_el1");
    // ENABLE of the timers must be 0.
    found |= u64::from(read_register!("cntv_ctl_el0") & 1 != 0) << 41;
    found |= u64::from(read_register!("cntp_ctl_el0") & 1 != 0) << 42;
    let frame = private_frame();
    // GICR_ISENABLER0, ISPENDR0, ISACTIVER0. The software interrupts of a GICv2 may be always enabled (Arm IHI 0048,
    // 4.3.5).
    let enabled = load(frame + 0x100) & if is_gicv2() { !0xffff } else { !0 };
    let private_interrupts = enabled | load(frame + 0x200) | load(frame + 0x300);
    found |= u64::from(private_interrupts != 0) << 43;
    // GICR_IPRIORITYR6 has the timers', GICR_ICFGR1 the triggers of all.
    found |= u64::from(load(frame + PRIORITIES) != ORDINARY) << 44;
    found |= u64::from(load(frame + TRIGGERS) != 0) << 45;
    set_shared_word(Word::Result, found);

    write_pattern(loadable);
    write_pattern(private);
    write_registers();
    store(frame + 0x100, 1 << 27);
    store(frame + 0x200, 1 << 5);
    store(frame + PRIORITIES, 0xb0b0_b0b0);
    store(frame + TRIGGERS, u32::MAX);
    count(Word::Begun);
    loop {
        wait();
    }
}

fn has_data(memory: core::ops::Range<u64>) -> bool {
    memory.step_by(8).any(|at| {
        // SAFETY: aligned memory of the cell, which the program does not use otherwise.
        unsafe { (at as *const u64).read_volatile() != 0 }
    })
}

fn write_pattern(memory: core::ops::Range<u64>) {
    for at in memory.step_by(8) {
        // SAFETY: as in `has_data`.
        unsafe { (at as *mut u64).write_volatile(PATTERN) }
    }
}

/// Returns the bitwise OR of all vector registers.
fn vectors() -> u64 {
    let found;
    // SAFETY: the program is built without vector instructions, so it does not use these registers.
    unsafe {
        asm!(
            ".arch_extension simd",
            ".irp number, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16",
            "orr v0.16b, v0.16b, v\\number\\().16b",
            ".endr",
            ".irp number, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "orr v0.16b, v0.16b, v\\number\\().16b",
            ".endr",
            "mov {found}, v0.d[0]",
            "mov {other}, v0.d[1]",
            "orr {found}, {found}, {other}",
            ".arch_extension nosimd",
            found = out(reg) found,
            other = out(reg) _,
            options(nomem, nostack)
        );
    }
    found
}

fn write_registers() {
    // SAFETY: as in `vectors`.
    unsafe {
        asm!(
            ".arch_extension simd",
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16",
            "dup v\\number\\().2d, {pattern}",
            ".endr",
            ".irp number, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "dup v\\number\\().2d, {pattern}",
            ".endr",
            ".arch_extension nosimd",
            pattern = in(reg) PATTERN,
            options(nomem, nostack)
        );
    }
    // FPCR and FPSR.
    write_register!("s3_3_c4_c4_0", 3 << 22);
    write_register!("s3_3_c4_c4_1", 0x1f);
    write_register!("tpidr_el0", PATTERN);
    write_register!("tpidrro_el0", PATTERN);
    write_register!("sp_el0", PATTERN);
    write_register!("contextidr_el1", PATTERN & 0xffff_ffff);
    write_register!("ttbr0_el1", PATTERN & 0xffff_ffff_f000);
    write_register!("ttbr1_el1", PATTERN & 0xffff_ffff_f000);
    write_register!("mair_el1", PATTERN);
    write_register!("far_el1", PATTERN);
    write_register!("elr_el1", PATTERN);
    write_register!("spsr_el1", 0x3c5);
    write_register!("esr_el1", 0x5600_0000);
    write_register!("par_el1", 1);
    write_register!("cntkctl_el1", 3);
    write_register!("cntv_cval_el0", PATTERN >> 1);
    write_register!("cntp_cval_el0", PATTERN >> 1);
    write_register!("cntv_ctl_el0", 1);
    write_register!("dbgbvr0_el1", PATTERN & 0xffff_ffff_fffc);
    write_register!("dbgbvr5_el1", PATTERN & 0xffff_ffff_fffc);
    write_register!("dbgwvr0_el1", PATTERN & 0xffff_ffff_fffc);
    write_register!("dbgwvr3_el1", PATTERN & 0xffff_ffff_fffc);
    // Byte address select, off.
    write_register!("dbgbcr5_el1", 0x1e0);
    write_register!("dbgwcr3_el1", 0x1fe0);
    write_register!("pmevtyper0_el0", 0x11);
    write_register!("pmevcntr0_el0", 0x1234);
    write_register!("pmccntr_el0", 0x1234);
    write_register!("pmccfiltr_el0", 1 << 31);
    write_register!("pmcntenset_el0", 1 << 31 | 1);
    write_register!("pmuserenr_el0", 1);
    write_register!("pmcr_el0", 1);
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
    loop {
        wait();
    }
}
