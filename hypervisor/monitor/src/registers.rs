// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System registers and the fields that are used here. Section numbers are those of the Arm Architecture
//! Reference Manual for A-profile (DDI 0487).

use rampart_hypervisor_core::configuration::machine_checks::MONITOR_ADDRESS_BITS;

pub(crate) use rampart_hypervisor_fast_path::{instruction, read_register, write_register};

/// HCR_EL2 (D24.2.53).
pub(crate) mod hypervisor_control {
    /// VM: stage 2 translation.
    pub(crate) const STAGE_2: u64 = 1 << 0;
    /// SWIO: invalidation by set and way also cleans.
    pub(crate) const SET_WAY_CLEANS: u64 = 1 << 1;
    /// FMO: physical FIQs are taken to EL2, regardless of EL1's mask.
    pub(crate) const FIQ: u64 = 1 << 3;
    /// IMO: physical IRQs are taken to EL2.
    pub(crate) const IRQ: u64 = 1 << 4;
    /// AMO: physical SErrors are taken to EL2.
    pub(crate) const SERROR: u64 = 1 << 5;
    /// TWI: a WFI that would sleep is trapped.
    pub(crate) const TRAP_WAIT: u64 = 1 << 13;
    /// TID3: the identification registers are trapped.
    pub(crate) const TRAP_IDENTIFICATION: u64 = 1 << 18;
    /// TSC: SMC of EL1 is trapped.
    pub(crate) const TRAP_SMC: u64 = 1 << 19;
    /// TIDCP: the implementation's own registers are trapped.
    pub(crate) const TRAP_IMPLEMENTATION: u64 = 1 << 20;
    /// TACR: the auxiliary control register is trapped.
    pub(crate) const TRAP_AUXILIARY: u64 = 1 << 21;
    /// TSW: cache maintenance by set and way is trapped.
    pub(crate) const TRAP_SET_WAY: u64 = 1 << 22;
    /// TGE: general exceptions are taken to EL2.
    pub(crate) const GENERAL_EXCEPTIONS: u64 = 1 << 27;
    /// RW: EL1 is AArch64.
    pub(crate) const AARCH64: u64 = 1 << 31;
    /// E2H: the kernel runs at EL2 (VHE).
    pub(crate) const HOST: u64 = 1 << 34;
    /// TLOR and TERR: limited ordering regions and error records are trapped.
    pub(crate) const TRAP_ERRORS: u64 = 3 << 35;
    /// APK and API: pointer authentication is not trapped.
    pub(crate) const POINTER_AUTHENTICATION: u64 = 3 << 40;
}

/// SCTLR_EL2 (D24.2.149): bits that are 1 without FEAT_VHE.
pub(crate) const SYSTEM_CONTROL_RES1: u64 = 0x30c5_0830;
/// M, C, SA and I: translation, data cache, stack alignment, instruction cache.
pub(crate) const SYSTEM_CONTROL: u64 = SYSTEM_CONTROL_RES1 | 1 | 1 << 2 | 1 << 3 | 1 << 12;
/// WXN: writable memory is never executable.
pub(crate) const WRITE_NEVER_EXECUTE: u64 = 1 << 19;

/// MAIR_EL2 (D24.2.111): index 0 is normal write-back memory; index 1 is device memory, nGnRE.
pub(crate) const MEMORY_ATTRIBUTES: u64 = 0x04_ff;

/// Address bits for T0SZ of TCR_EL2, so that the first level of tables is one page.
pub(crate) const ADDRESS_BITS: u64 = MONITOR_ADDRESS_BITS as u64;
/// TCR_EL2 (D24.2.176) without PS: tables in normal write-back memory, inner shareable, 4 KiB.
pub(crate) const TRANSLATION_CONTROL: u64 =
    1 << 31 | 1 << 23 | 3 << 12 | 1 << 10 | 1 << 8 | (64 - ADDRESS_BITS);

/// Makes earlier writes to system registers effective for later instructions.
pub(crate) fn synchronise() {
    instruction!("isb");
}

/// Makes earlier stores visible to all CPUs and table walks.
pub(crate) fn publish_stores() {
    instruction!("dsb ish");
}

/// Returns the time, CNTPCT_EL0.
pub(crate) fn now() -> u64 {
    // Keeps the read after earlier instructions (D12.1.2).
    synchronise();
    read_register!("cntpct_el0")
}

/// Waits until the condition is true, for at most this time. Returns whether it became true.
pub(crate) fn wait_until(microseconds: u64, condition: &mut dyn FnMut() -> bool) -> bool {
    let begin = now();
    let limit = read_register!("cntfrq_el0").saturating_mul(microseconds) / 1_000_000;
    loop {
        if condition() {
            return true;
        }
        if now().wrapping_sub(begin) > limit {
            return condition();
        }
        // Lets other CPUs run first, also on an emulated machine.
        instruction!("yield");
    }
}
