// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions, system registers and PSCI functions for orders to the CPUs of a machine.

/// Instructions.
pub(crate) const HVC: u32 = 0xd400_0002;
pub(crate) const SMC: u32 = 0xd400_0003;
pub(crate) const WFI: u32 = 0xd503_207f;
pub(crate) const ISB: u32 = 0xd503_3fdf;
/// `eret`
pub(crate) const ERET: u32 = 0xd69f_03e0;
/// `b .`
pub(crate) const SPIN: u32 = 0x1400_0000;
/// `ldr x0, [x0]`, `ldr w0, [x0]`, `str x1, [x0]`, `str w1, [x0]`
pub(crate) const LOAD: u32 = 0xf940_0000;
pub(crate) const LOAD_WORD: u32 = 0xb940_0000;
pub(crate) const STORE: u32 = 0xf900_0001;
pub(crate) const STORE_WORD: u32 = 0xb900_0001;
/// `msr daifset, #15` and `msr daifclr, #15`.
pub(crate) const MASK: u32 = 0xd503_4fdf;
pub(crate) const UNMASK: u32 = 0xd503_4fff;
const RETURN: u32 = 0xd65f_03c0;

/// Increments the word at x0 and turns itself off.
pub(crate) const COUNT_AND_TURN_OFF: [u32; 7] = [
    0xf940_0001, // ldr x1, [x0]
    0x9100_0421, // add x1, x1, #1
    0xf900_0001, // str x1, [x0]
    0x52b0_8000, // movz w0, #0x8400, lsl #16
    0x7280_0040, // movk w0, #2
    SMC,
    0x17ff_fffa, // b to the start
];

/// PSCI (Arm DEN 0022).
pub(crate) const CPU_OFF: u64 = 0x8400_0002;
pub(crate) const CPU_ON: u64 = 0xc400_0003;
pub(crate) const SYSTEM_OFF: u64 = 0x8400_0008;
pub(crate) const SYSTEM_RESET: u64 = 0x8400_0009;
/// SYSTEM_RESET2, which the hypervisor does not have.
pub(crate) const SYSTEM_RESET2: u64 = 0xc400_0012;
pub(crate) const AFFINITY_INFO: u64 = 0xc400_0004;

/// System registers: op0, op1, CRn, CRm, op2.
pub(crate) mod register {
    pub(crate) const PRIORITY_MASK: [u32; 5] = [3, 0, 4, 6, 0];
    pub(crate) const ACKNOWLEDGE: [u32; 5] = [3, 0, 12, 12, 0];
    pub(crate) const END: [u32; 5] = [3, 0, 12, 12, 1];
    pub(crate) const BINARY_POINT: [u32; 5] = [3, 0, 12, 12, 3];
    pub(crate) const CONTROL: [u32; 5] = [3, 0, 12, 12, 4];
    /// ICC_AP1R0_EL1: bit 0 is the highest priority.
    pub(crate) const ACTIVE_PRIORITIES: [u32; 5] = [3, 0, 12, 9, 0];
    pub(crate) const ENABLE_GROUP_1: [u32; 5] = [3, 0, 12, 12, 7];
    /// ICC_SGI1R_EL1, ICC_ASGI1R_EL1 and ICC_SGI0R_EL1.
    pub(crate) const SEND: [[u32; 5]; 3] =
        [[3, 0, 12, 11, 5], [3, 0, 12, 11, 6], [3, 0, 12, 11, 7]];
    pub(crate) const TIMER_VALUE: [u32; 5] = [3, 3, 14, 3, 0];
    pub(crate) const TIMER_CONTROL: [u32; 5] = [3, 3, 14, 3, 1];
    pub(crate) const SYSTEM_CONTROL: [u32; 5] = [3, 0, 1, 0, 0];
    pub(crate) const FEATURE_ACCESS: [u32; 5] = [3, 0, 1, 0, 2];
    pub(crate) const VECTOR_LENGTH: [u32; 5] = [3, 0, 1, 2, 0];
    pub(crate) const TRANSLATION_CONTROL: [u32; 5] = [3, 0, 2, 0, 2];
    /// ACTLR_EL1.
    pub(crate) const AUXILIARY_CONTROL: [u32; 5] = [3, 0, 1, 0, 1];
    pub(crate) const PRIVILEGED_ACCESS_NEVER: [u32; 5] = [3, 0, 4, 2, 3];
    /// PMCR_EL0, PMCNTENSET_EL0, PMEVCNTR0_EL0 and PMEVTYPER0_EL0.
    pub(crate) const COUNTERS: [u32; 5] = [3, 3, 9, 12, 0];
    pub(crate) const COUNTERS_ENABLE: [u32; 5] = [3, 3, 9, 12, 1];
    pub(crate) const COUNTER: [u32; 5] = [3, 3, 14, 8, 0];
    pub(crate) const COUNTER_EVENT: [u32; 5] = [3, 3, 14, 12, 0];
    pub(crate) const VECTORS: [u32; 5] = [3, 0, 12, 0, 0];
    pub(crate) const SAVED_STATE: [u32; 5] = [3, 0, 4, 0, 0];
    pub(crate) const RETURN_ADDRESS: [u32; 5] = [3, 0, 4, 0, 1];
    pub(crate) const DEBUG_CONTROL: [u32; 5] = [2, 0, 0, 2, 2];
    pub(crate) const BREAKPOINT: [u32; 5] = [2, 0, 0, 0, 4];
    pub(crate) const BREAKPOINT_CONTROL: [u32; 5] = [2, 0, 0, 0, 5];
    pub(crate) const LOCK: [u32; 5] = [2, 0, 1, 0, 4];
}

/// Returns `msr REGISTER, xN`.
pub(crate) const fn write_register([op0, op1, n, m, op2]: [u32; 5], general: u32) -> u32 {
    0xd500_0000 | op0 << 19 | op1 << 16 | n << 12 | m << 8 | op2 << 5 | general
}

/// Returns `mrs xN, REGISTER`.
pub(crate) const fn read_register(register: [u32; 5], general: u32) -> u32 {
    write_register(register, general) | 1 << 21
}

/// Returns code with its return, two instructions in each word.
pub(crate) fn packed(code: &[u32]) -> Vec<u64> {
    let mut code = code.to_vec();
    code.push(RETURN);
    let pair =
        |pair: &[u32]| u64::from(pair[0]) | u64::from(pair.get(1).copied().unwrap_or(RETURN)) << 32;
    code.chunks(2).map(pair).collect()
}
