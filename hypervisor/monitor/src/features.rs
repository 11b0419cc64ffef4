// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Features of newer architectures: registers of EL2 that permit them to Linux, and that a cell, which does not
//! see them, must not inherit; and what their last user left running. Registers are named by their encoding,
//! because assemblers for ARMv8.0 do not know them.

use core::sync::atomic::Ordering::Relaxed;

use crate::cpu::Cpu;
use crate::registers::{instruction, read_register, synchronise, write_register};

/// Number of registers of EL2 that are saved for Linux.
pub(crate) const SAVED: usize = 8;

/// CPTR_EL2 without VHE (D24.2.35): bits that are 1 without their feature, which are the traps of SVE (TZ, bit 8)
/// and SME (TSM, bit 12); and for cells of trace (TTA) and activity monitors (TAM).
const TRAP_VECTORS: u64 = 0x33ff;
const TRAP_STREAMING: u64 = 1 << 12;
const TRAP_TRACE: u64 = 1 << 20 | 1 << 30;
/// MDCR_EL2 (D24.3.17): TPMS and TTRF trap profiling and trace filtering, TDOSA the OS lock. The buffers (E2PB, E2TB)
/// belong to EL2. HPMD and HCCD: a cell's counters do not count at EL2.
const TRAP_DEBUG: u64 = 1 << 14 | 1 << 17 | 1 << 19 | 1 << 23 | TRAP_LOCK;
const TRAP_LOCK: u64 = 1 << 10;

fn field(register: u64, lowest: u32) -> u64 {
    register >> lowest & 0xf
}

/// Reads an identification register of the CPU.
pub(crate) fn read(crm: u8, op2: u8) -> u64 {
    macro_rules! read {
        ($($crm:literal: $($op2:literal)*),*) => {
            match (crm, op2) {
                $($(($crm, $op2) => read_register!(concat!("s3_0_c0_c", $crm, "_", $op2)),)*)*
                _ => 0,
            }
        };
    }
    read!(1: 0 1 2 3 4 5 6 7, 2: 0 1 2 3 4 5 6 7, 3: 0 1 2 4 5 6, 4: 0 1, 5: 0, 6: 0 1 2, 7: 0 1 2)
}

/// Calls with each register of EL2 that exists here, and its index.
macro_rules! each_saved {
    (
        $($own:literal $own_name:literal)*;
        $(if $feature:expr => $($index:literal $name:literal)*;)*
    ) => {
        /// Saves the registers as Linux has set them.
        pub(crate) fn save(cpu: &Cpu) {
            $(cpu.linux_features[$own].store(read_register!($own_name), Relaxed);)*
            $(if $feature {
                $(cpu.linux_features[$index].store(read_register!($name), Relaxed);)*
            })*
        }

        /// Restores the registers for Linux.
        pub(crate) fn restore(cpu: &Cpu) {
            $(write_register!($own_name, cpu.linux_features[$own].load(Relaxed));)*
            $(if $feature {
                $(write_register!($name, cpu.linux_features[$index].load(Relaxed));)*
            })*
        }

        /// Hides the features from a cell, or from no one while the CPU is parked.
        pub(crate) fn hide() {
            $(if $feature { $(write_register!($name, 0);)* })*
            write_register!("cptr_el2", TRAP_VECTORS | TRAP_TRACE);
            // HPMN: all counters (PMCR_EL0.N) are the guest's.
            let counters = if has_counters() { read_register!("pmcr_el0") >> 11 & 0x1f } else { 0 };
            write_register!("mdcr_el2", TRAP_DEBUG | counters);
        }
    };
}

/// Gives the root the features as Linux has set them, except the OS lock.
pub(crate) fn show(cpu: &Cpu) {
    restore(cpu);
    write_register!("mdcr_el2", cpu.linux_features[0].load(Relaxed) | TRAP_LOCK);
}

/// Returns whether the CPU has counters of events: ID_AA64DFR0_EL1.PMUVer.
pub(crate) fn has_counters() -> bool {
    !matches!(field(read(5, 0), 8), 0 | 0xf)
}

each_saved! {
    // `hide` sets these to values of its own.
    0 "mdcr_el2" 7 "cptr_el2";
    // HCRX_EL2, if ID_AA64MMFR1_EL1.HCX.
    if field(read(7, 1), 40) != 0 => 1 "s3_4_c1_c2_2";
    // HFGRTR_EL2, HFGWTR_EL2, HFGITR_EL2, HDFGRTR_EL2, HDFGWTR_EL2: with 0, newer registers trap.
    if field(read(7, 0), 56) != 0 =>
        2 "s3_4_c1_c1_4" 3 "s3_4_c1_c1_5" 4 "s3_4_c1_c1_6" 5 "s3_4_c3_c1_4" 6 "s3_4_c3_c1_5";
}

/// Ends what the last owner of the CPU has left running: streaming mode, in which EL2 could not clear the vector
/// registers, and buffers that the CPU writes by itself.
pub(crate) fn end() {
    if field(read(4, 1), 24) != 0 {
        // ID_AA64PFR1_EL1.SME: SVCR = 0.
        write_register!("cptr_el2", TRAP_VECTORS & !TRAP_STREAMING);
        synchronise();
        write_register!("s3_3_c4_c2_2", 0);
        // TPIDR2_EL0.
        write_register!("s3_3_c13_c0_5", 0);
    }
    // ID_AA64PFR0_EL1.RAS: DISR_EL1, and VDISR_EL2, which cells access in its place.
    if field(read(4, 0), 28) != 0 {
        write_register!("s3_0_c12_c1_1", 0);
        write_register!("s3_4_c12_c1_1", 0);
    }
    let debug = read(5, 0);
    // ID_AA64DFR0_EL1.PMSVer: PMSCR_EL1 and PMBLIMITR_EL1, unless the firmware owns the buffer (PMBIDR_EL1.P).
    if field(debug, 32) != 0 && read_register!("s3_0_c9_c10_7") & 1 << 4 == 0 {
        write_register!("s3_0_c9_c9_0", 0);
        instruction!("isb", "hint #17", "dsb nsh");
        write_register!("s3_0_c9_c10_0", 0);
    }
    // TraceBuffer: TRFCR_EL1 and TRBLIMITR_EL1 (TRBIDR_EL1.P).
    if field(debug, 44) != 0 && read_register!("s3_0_c9_c11_7") & 1 << 4 == 0 {
        write_register!("s3_0_c1_c2_1", 0);
        instruction!("isb", "hint #18", "dsb nsh");
        write_register!("s3_0_c9_c11_0", 0);
    }
    // BRBE: BRBCR_EL1, and BRB IALL.
    if field(debug, 52) != 0 {
        write_register!("s2_1_c9_c0_0", 0);
        instruction!("isb", "sys #1, c7, c2, #4");
    }
    wipe_keys();
    synchronise();
}

/// Clears the keys of pointer authentication, if ID_AA64ISAR1_EL1 (D24.2.64: APA, API, GPA, GPI) has it.
fn wipe_keys() {
    // ID_AA64ISAR2_EL1: APA3, GPA3.
    let newer = read(6, 2) & 0xff00;
    if read_register!("id_aa64isar1_el1") & 0xff00_0ff0 | newer == 0 {
        return;
    }
    // APIA, APIB, APDA, APDB and APGA, the lower and the higher half of each.
    // SAFETY: keys of EL1 and EL0; the monitor does not use pointer authentication.
    unsafe {
        core::arch::asm!(
            ".irp half, 1_0, 1_1, 1_2, 1_3, 2_0, 2_1, 2_2, 2_3, 3_0, 3_1",
            "msr s3_0_c2_c\\half, xzr",
            ".endr",
            options(nomem, nostack)
        );
    }
}
