// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The return of EL2 to Linux, as one step of all CPUs.

use super::CpuState;
use crate::interface::CpuPower;

/// The CPUs of the root that want to leave, one bit each, and the decision.
///
/// Each CPU of the root arrives and waits. When every CPU of the machine has arrived or is off, one of them
/// closes: from then on no CPU withdraws. It has the firmware turn off the CPUs that are off, and decides. A
/// CPU that has waited too long before that withdraws, so that the others wait in vain and withdraw too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leaving(pub u64);

const CLOSED: u64 = 1 << 62;
const DECIDED: u64 = 1 << 63;

/// What a waiting CPU does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeavingStep {
    /// Looks again.
    Wait,
    /// Tries to close.
    Close,
    /// Leaves.
    Leave,
    /// Returns an error to Linux: the others do not leave.
    Refused,
}

impl Leaving {
    /// Returns whether a CPU has arrived.
    pub const fn has_arrived(self, cpu: usize) -> bool {
        self.0 >> cpu & 1 != 0
    }

    /// Returns whether a CPU is deciding: CPUs that are off turn off then.
    pub const fn is_closed(self) -> bool {
        self.0 & (CLOSED | DECIDED) == CLOSED
    }

    /// A CPU arrives. Returns `None` if others are already leaving.
    pub fn arrive(self, cpu: usize) -> Option<Self> {
        self.unless_closed(self.0 | 1 << cpu)
    }

    /// A CPU withdraws after it has waited too long. Returns `None` if it is too late.
    pub fn withdraw(self, cpu: usize) -> Option<Self> {
        self.unless_closed(self.0 & !(1 << cpu))
    }

    /// Returns what an arrived CPU does, if these are the states of all CPUs. A CPU that is off stays off: only a
    /// CPU of its owner that has not arrived could turn it on.
    pub fn next(self, cpu: usize, mut cpus: impl Iterator<Item = CpuState>) -> LeavingStep {
        if self.0 & DECIDED != 0 {
            return LeavingStep::Leave;
        }
        if self.0 & 1 << cpu == 0 {
            return LeavingStep::Refused;
        }
        let mut bit = 1;
        let ready = cpus.all(|state| {
            let arrived = self.0 & bit != 0;
            bit <<= 1;
            arrived || matches!(state.power, CpuPower::Off | CpuPower::Gone)
        });
        if ready && self.0 & CLOSED == 0 { LeavingStep::Close } else { LeavingStep::Wait }
    }

    /// Closes. Only one of several CPUs succeeds.
    pub fn close(self) -> Option<Self> {
        self.unless_closed(self.0 | CLOSED)
    }

    fn unless_closed(self, word: u64) -> Option<Self> {
        (self.0 & (CLOSED | DECIDED) == 0).then_some(Self(word))
    }

    /// The CPU that closed decides: all leave, or all are refused.
    pub const fn decide(self, leave: bool) -> Self {
        if leave { Self(self.0 | DECIDED) } else { Self(0) }
    }
}
