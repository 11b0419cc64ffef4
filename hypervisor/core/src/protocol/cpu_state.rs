// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The owner of a CPU and what the CPU does.

use crate::interface::{CpuPower, ROOT};

/// The state of a CPU, one word in the status pages ([`crate::interface::CpuStatus::state`]).
///
/// ```text
///           turn_on           ready              begin            order_to_park
///  Off ---------------> OnPending ---> Starting -------> On ---------------------> Parking
///   ^  other CPU of the      |  same       |   itself     |  manager, or a CPU         |
///   |  same owner            |  CPU        |              |  that ends its cell        | park
///   +------------------------+-------------+--------------+----------------------------+ (itself)
///     order_to_park cancels     cancels        park (itself)
/// ```
///
/// Only a CPU that is off changes its owner ([`CpuState::assign`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuState {
    /// The cell that owns the CPU.
    pub cell: u32,
    /// What it does.
    pub power: CpuPower,
}

/// Why a step of a CPU is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Another cell owns the CPU.
    NotOwner,
    /// The CPU is in this state, in which the step is invalid.
    Power(CpuPower),
}

type Step = Result<CpuState, Refusal>;

/// A step, not generic, so that the loop around it is compiled once.
pub type CpuStep<'a> = dyn Fn(CpuState) -> Step + 'a;

impl CpuState {
    /// Reads the word of the status pages.
    pub fn from_word(word: u64) -> Self {
        let power = CpuPower::try_from((word >> 32) as u32).unwrap_or(CpuPower::Gone);
        Self { cell: word as u32, power }
    }

    /// Returns the word of the status pages.
    pub const fn word(self) -> u64 {
        self.cell as u64 | (self.power as u64) << 32
    }

    const fn with(self, power: CpuPower) -> Self {
        Self { power, ..self }
    }

    fn owned_by(self, cell: u32) -> Step {
        (self.cell == cell).then_some(self).ok_or(Refusal::NotOwner)
    }

    fn if_is(self, before: CpuPower, after: CpuPower) -> Step {
        let reached = (self.power == before).then_some(self.with(after));
        reached.ok_or(Refusal::Power(self.power))
    }

    /// Claims a CPU that is off, to turn it on. The caller then sets its entry and makes it [`CpuState::ready`].
    ///
    /// # Errors
    /// If another cell owns the CPU, or if it is not off.
    pub fn turn_on(self, caller: u32) -> Step {
        self.owned_by(caller)?.if_is(CpuPower::Off, CpuPower::OnPending)
    }

    /// Lets a CPU start whose entry is set.
    ///
    /// # Errors
    /// If its start was cancelled.
    pub fn ready(self) -> Step {
        self.if_is(CpuPower::OnPending, CpuPower::Starting)
    }

    /// The CPU itself starts. It must check afterwards that its cell runs, and park otherwise: the CPU that
    /// ends a cell changes the cell's state first and orders its CPUs to park then.
    ///
    /// # Errors
    /// If it was not started, or if the start was cancelled.
    pub fn begin(self) -> Step {
        self.if_is(CpuPower::Starting, CpuPower::On)
    }

    /// Orders a CPU of this cell to park, or cancels its start.
    ///
    /// # Errors
    /// If another cell owns the CPU.
    pub fn order_to_park(self, cell: u32) -> Step {
        let power = match self.power {
            CpuPower::On | CpuPower::Parking => CpuPower::Parking,
            CpuPower::OnPending | CpuPower::Starting | CpuPower::Off => CpuPower::Off,
            CpuPower::Gone => CpuPower::Gone,
        };
        Ok(self.owned_by(cell)?.with(power))
    }

    /// Returns whether the CPU has yet to park after an order that found this state, and is interrupted.
    pub const fn has_to_park(self) -> bool {
        matches!(self.power, CpuPower::On | CpuPower::Parking)
    }

    /// The CPU itself has left its cell, and nothing of it remains.
    ///
    /// # Errors
    /// None from a CPU that runs.
    pub fn park(self) -> Step {
        Ok(self.with(CpuPower::Off))
    }

    /// Gives a CPU that is off to another owner.
    ///
    /// # Errors
    /// If `from` does not own it, or if it is not off.
    pub fn assign(self, from: u32, to: u32) -> Step {
        let off = self.owned_by(from)?.if_is(CpuPower::Off, CpuPower::Off)?;
        Ok(Self { cell: to, ..off })
    }

    /// The CPU itself leaves the hypervisor to Linux.
    ///
    /// # Errors
    /// If a cell owns it.
    pub fn leave(self) -> Step {
        Ok(self.owned_by(ROOT)?.with(CpuPower::Gone))
    }

    /// The CPU itself, which is off, leaves the hypervisor to be turned off by the firmware.
    ///
    /// # Errors
    /// If a cell owns it, or if it is being turned on.
    pub fn turn_off(self) -> Step {
        self.if_is(CpuPower::Off, CpuPower::Off)?.leave()
    }
}
