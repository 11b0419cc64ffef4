// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The calls by which a cell manages its CPUs, PSCI 1.1 (Arm DEN 0022), and what becomes of any other
//! SMC. Nothing is left without an answer: what is unknown or not allowed is NOT_SUPPORTED.

use arm_psci::{AffinityInfo, ErrorCode, Function, FunctionId, MigrateInfoType, PsciFeature};

use crate::interface::{CpuPower, Status, StopReason};

/// Of PSCI, as PSCI_VERSION answers.
const VERSION: u64 = 1 << 16 | 1;
/// Of the SMC calling convention (Arm DEN 0028), as SMCCC_VERSION answers.
const CONVENTION: u64 = 1 << 16 | 1;
const CONVENTION_VERSION: u32 = 0x8000_0000;

/// What the monitor has to do for an SMC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Return this in x0.
    Value(u64),
    /// Start a CPU, by its index in the header, whose power is now [`CpuPower::OnPending`]; return 0.
    TurnOn {
        /// Which.
        cpu: usize,
        /// Where it begins.
        entry: u64,
        /// Its x0.
        context: u64,
    },
    /// Park this CPU; it does not return.
    TurnOff,
    /// Wait for an interrupt, as WFI does, and return 0.
    Wait,
    /// Stop the cell; it does not return.
    Stop(StopReason),
    /// Pass the call to the firmware, and what it says back.
    Forward,
}

/// Whose call it is.
#[derive(Debug, Clone, Copy)]
pub struct Caller<'a> {
    /// The owners and the power of all CPUs.
    pub status: &'a Status,
    /// The number of the cell.
    pub cell: u32,
}

const fn error(code: ErrorCode) -> Answer {
    Answer::Value(code as i32 as i64 as u64)
}

const SUCCESS: Answer = Answer::Value(0);

/// Serves `smc #0` with x0 to x3 in `registers`. `executes` tells whether the cell may execute at an
/// address, `forwards` whether the configuration allows a function.
#[inline]
pub fn serve(
    registers: &[u64; 4],
    caller: &Caller<'_>,
    executes: impl FnOnce(u64) -> bool,
    forwards: impl FnOnce(u32) -> bool,
) -> Answer {
    let function = registers[0] as u32;
    // The most frequent first: it is also what is measured.
    if function == FunctionId::PsciVersion as u32 {
        return Answer::Value(VERSION);
    }
    match Function::try_from(registers) {
        Ok(call) => power(&call, caller, executes),
        Err(arm_psci::Error::UnrecognisedFunctionId(_)) => match function {
            CONVENTION_VERSION => Answer::Value(CONVENTION),
            // PSCI's own numbers are never the firmware's to answer.
            function if !is_psci(function) && forwards(function) => Answer::Forward,
            _ => error(ErrorCode::NotSupported),
        },
        Err(other) => error(other.into()),
    }
}

/// Whether a function is in the range of PSCI.
#[must_use]
pub const fn is_psci(function: u32) -> bool {
    matches!(function & !0x4000_001f, 0x8400_0000)
}

fn power(call: &Function, caller: &Caller<'_>, executes: impl FnOnce(u64) -> bool) -> Answer {
    match call {
        Function::Version => Answer::Value(VERSION),
        Function::CpuOn { target_cpu, entry } => {
            let Some(cpu) = caller.cpu((*target_cpu).into()) else {
                return error(ErrorCode::InvalidParameters);
            };
            if !executes(entry.entry_point_address()) {
                return error(ErrorCode::InvalidAddress);
            }
            match caller.status.cpus[cpu].begin_to_turn_on() {
                Ok(()) => Answer::TurnOn {
                    cpu,
                    entry: entry.entry_point_address(),
                    context: entry.context_id(),
                },
                Err(CpuPower::OnPending) => error(ErrorCode::OnPending),
                Err(_) => error(ErrorCode::AlreadyOn),
            }
        }
        Function::CpuOff => Answer::TurnOff,
        Function::AffinityInfo {
            mpidr,
            lowest_affinity_level: 0,
        } => {
            let Some(cpu) = caller.cpu((*mpidr).into()) else {
                return error(ErrorCode::InvalidParameters);
            };
            let info = match caller.status.cpus[cpu].power() {
                CpuPower::On => AffinityInfo::On,
                CpuPower::Off => AffinityInfo::Off,
                CpuPower::OnPending => AffinityInfo::OnPending,
            };
            Answer::Value(u32::from(info).into())
        }
        Function::AffinityInfo { .. } => error(ErrorCode::InvalidParameters),
        // A power down may become a standby (DEN 0022, 5.4.3): a core stays with its cell.
        Function::CpuSuspend { .. } => Answer::Wait,
        Function::MigrateInfoType => {
            Answer::Value(u32::from(MigrateInfoType::MigrationNotRequired).into())
        }
        Function::SystemOff => Answer::Stop(StopReason::SystemOff),
        Function::SystemReset => Answer::Stop(StopReason::SystemReset),
        Function::Features { psci_func_id } if is_served(psci_func_id) => SUCCESS,
        _ => error(ErrorCode::NotSupported),
    }
}

fn is_served(feature: &PsciFeature) -> bool {
    use FunctionId as Id;
    match feature {
        PsciFeature::SmcccVersion => true,
        PsciFeature::PsciFunction(function) => matches!(
            function,
            Id::PsciVersion
                | Id::CpuSuspend32
                | Id::CpuSuspend64
                | Id::CpuOff
                | Id::CpuOn32
                | Id::CpuOn64
                | Id::AffinityInfo32
                | Id::AffinityInfo64
                | Id::MigrateInfoType
                | Id::SystemOff
                | Id::SystemReset
                | Id::PsciFeatures
        ),
    }
}

impl Caller<'_> {
    /// The index of one of the caller's own CPUs, by its affinity.
    #[must_use]
    pub fn cpu(&self, mpidr: u64) -> Option<usize> {
        self.status
            .cpu(mpidr)
            .filter(|cpu| self.status.cpus[*cpu].cell() == self.cell)
    }
}
