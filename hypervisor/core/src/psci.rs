// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles SMCs: PSCI 1.1 (Arm DEN 0022), by which a cell manages its CPUs, and forwarding to the
//! firmware. Unknown and forbidden calls return NOT_SUPPORTED.

use arm_psci::{ErrorCode, FunctionId as Id, MigrateInfoType};

use crate::interface::{CpuPower, Status, StopReason};
use crate::protocol::Refusal;

/// Result of PSCI_VERSION.
const VERSION: u64 = 1 << 16 | 1;
/// Result of SMCCC_VERSION (Arm DEN 0028).
const CONVENTION: u64 = 1 << 16 | 1;
const CONVENTION_VERSION: u32 = 0x8000_0000;

/// The action of the monitor for an SMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsciAction {
    /// Return this in x0.
    Value(u64),
    /// Set the entry of a CPU whose state is now [`CpuPower::OnPending`], let it start, and return 0.
    TurnOn {
        /// Index of the CPU in the header.
        cpu: usize,
        /// Entry address.
        entry: u64,
        /// Its x0.
        context: u64,
    },
    /// Park this CPU; the call does not return.
    TurnOff,
    /// Wait for an interrupt, as WFI does, and return 0.
    Wait,
    /// Stop the cell; the call does not return.
    Stop(StopReason),
    /// Forward the call of this function to the firmware and return its results.
    Forward(u32),
}

/// The caller of an SMC.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// Owners and power states of all CPUs.
    pub status: &'a Status,
    /// The number of the cell.
    pub cell: u32,
}

const fn error(code: ErrorCode) -> PsciAction {
    PsciAction::Value(code as i32 as i64 as u64)
}

const SUCCESS: PsciAction = PsciAction::Value(0);

/// Decodes `smc #0` with x0 to x3 in `registers`. `executes` returns whether the cell may execute at an
/// address, `forwards` whether the configuration permits a function.
///
/// Only the constants of `arm-psci` are used: its decoder covers both caller and firmware and is larger
/// than this module.
#[inline]
pub fn handle_call(
    registers: &[u64; 4],
    caller: &Caller<'_>,
    executes: impl FnOnce(u64) -> bool,
    forwards: impl FnOnce(u32) -> bool,
) -> PsciAction {
    let function = registers[0] as u32 & !VECTOR_HINT;
    if let Some(value) = constant_result(function) {
        PsciAction::Value(value)
    } else if is_psci(function) {
        power(function, registers, caller, executes)
    } else if forwards(function) {
        PsciAction::Forward(function)
    } else {
        error(ErrorCode::NotSupported)
    }
}

/// Returns the result of a function whose result never changes, or `None` for other functions.
#[inline]
pub const fn constant_result(function: u32) -> Option<u64> {
    match function {
        VERSION_32 => Some(VERSION),
        MIGRATE_INFO_TYPE => Some(MigrateInfoType::MigrationNotRequired as u64),
        CONVENTION_VERSION => Some(CONVENTION),
        _ => None,
    }
}

/// Returns whether a function is in the range of PSCI, which is never forwarded to the firmware.
pub const fn is_psci(function: u32) -> bool {
    matches!(function & !(VECTOR_HINT | 0x4000_001f), 0x8400_0000)
}

/// Set if the caller has no state in vector registers (Arm DEN 0028, 2.6). The function is the same without it.
const VECTOR_HINT: u32 = 1 << 16;

/// Set if a function has 64-bit arguments (Arm DEN 0028, 2.5: bit 30).
const WIDE: u32 = 1 << 30;

const VERSION_32: u32 = Id::PsciVersion as u32;
const CPU_SUSPEND: u32 = Id::CpuSuspend32 as u32;
const CPU_OFF: u32 = Id::CpuOff as u32;
const CPU_ON: u32 = Id::CpuOn32 as u32;
const AFFINITY_INFO: u32 = Id::AffinityInfo32 as u32;
const MIGRATE_INFO_TYPE: u32 = Id::MigrateInfoType as u32;
const SYSTEM_OFF: u32 = Id::SystemOff as u32;
const SYSTEM_RESET: u32 = Id::SystemReset as u32;
const FEATURES: u32 = Id::PsciFeatures as u32;

/// Returns whether a PSCI function is supported. Those that take an address have both widths.
const fn is_supported(function: u32) -> bool {
    match function & !WIDE {
        CPU_SUSPEND | CPU_ON | AFFINITY_INFO => true,
        VERSION_32 | CPU_OFF | MIGRATE_INFO_TYPE | SYSTEM_OFF | SYSTEM_RESET | FEATURES => {
            function & WIDE == 0
        }
        _ => false,
    }
}

fn power(
    function: u32,
    registers: &[u64; 4],
    caller: &Caller<'_>,
    executes: impl FnOnce(u64) -> bool,
) -> PsciAction {
    if !is_supported(function) {
        return error(ErrorCode::NotSupported);
    }
    let kept = if function & WIDE == 0 { u64::from(u32::MAX) } else { u64::MAX };
    let [_, first, second, third] = registers.map(|register| register & kept);
    match function & !WIDE {
        CPU_ON => {
            let Some(cpu) = caller.cpu(first) else { return error(ErrorCode::InvalidParameters) };
            if !executes(second) {
                return error(ErrorCode::InvalidAddress);
            }
            match caller.status.cpus[cpu].step(&|state| state.turn_on(caller.cell)) {
                Ok(_) => PsciAction::TurnOn { cpu, entry: second, context: third },
                Err(Refusal::Power(CpuPower::OnPending | CpuPower::Starting)) => {
                    error(ErrorCode::OnPending)
                }
                Err(Refusal::Power(CpuPower::Gone)) => error(ErrorCode::InternalFailure),
                Err(Refusal::Power(_)) => error(ErrorCode::AlreadyOn),
                // It has changed its owner since.
                Err(Refusal::NotOwner) => error(ErrorCode::InvalidParameters),
            }
        }
        CPU_OFF => PsciAction::TurnOff,
        // Clusters have no power state of their own.
        AFFINITY_INFO => match caller.cpu(first) {
            Some(cpu) if second == 0 => {
                PsciAction::Value(match caller.status.cpus[cpu].cpu_state().power {
                    CpuPower::On | CpuPower::Parking => CpuPower::On,
                    CpuPower::Off | CpuPower::Gone => CpuPower::Off,
                    CpuPower::OnPending | CpuPower::Starting => CpuPower::OnPending,
                } as u64)
            }
            _ => error(ErrorCode::InvalidParameters),
        },
        // A power down may be handled as a standby (DEN 0022, 5.4.3): the cell keeps the core.
        CPU_SUSPEND => PsciAction::Wait,
        SYSTEM_OFF => PsciAction::Stop(StopReason::SystemOff),
        SYSTEM_RESET => PsciAction::Stop(StopReason::SystemReset),
        // PSCI_FEATURES: itself, the functions above, and SMCCC_VERSION (DEN 0022, 5.15).
        _ => match first as u32 {
            CONVENTION_VERSION => SUCCESS,
            queried if is_psci(queried) && is_supported(queried) => SUCCESS,
            _ => error(ErrorCode::NotSupported),
        },
    }
}

impl Caller<'_> {
    /// Returns the index of one of the caller's own CPUs by its affinity.
    pub fn cpu(&self, mpidr: u64) -> Option<usize> {
        self.status.cpu(mpidr).filter(|cpu| self.status.cpus[*cpu].cell() == self.cell)
    }
}
