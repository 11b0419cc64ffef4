// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wall around a domain's CPUs.

use rampart_model::{CpuSet, ShieldReport};

use crate::{HostError, RealTimeBudget, StateDirectory};

/// Which kind of control group hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlGroupVersion {
    /// One hierarchy for each controller.
    V1,
    /// One for all.
    V2,
}

/// A control group under which a container's group inherits the shield's CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlGroup {
    /// Of which hierarchy.
    pub version: ControlGroupVersion,
    /// Relative to the hierarchy's root, for example `/rampart-1234-0`.
    pub path: String,
}

/// A wall around CPUs. Dropping it lowers it as well as it can; [`Shield::lower`] also tells.
#[derive(Debug)]
pub struct Shield {
    report: ShieldReport,
}

impl Shield {
    /// Raises a wall around `cpus`; ordinary work keeps `housekeeping`.
    ///
    /// # Errors
    /// If the request makes no sense, another shield stands, or the journal cannot be written.
    pub fn raise(
        _state: &StateDirectory,
        _cpus: &CpuSet,
        _housekeeping: &CpuSet,
    ) -> Result<Self, HostError> {
        unreachable!("follows in the next commit")
    }

    /// Moves a process with all its threads into the shield.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn admit(&self, _process: u32) -> Result<(), HostError> {
        unreachable!("follows in the next commit")
    }

    /// Gives the `cpu` group that `process` is in a real-time budget, its parents first, where
    /// `CONFIG_RT_GROUP_SCHED` asks for one. Undone with the shield.
    ///
    /// # Errors
    /// If no budget is to be had.
    pub fn grant_real_time_budget(&self, _process: u32) -> Result<RealTimeBudget, HostError> {
        unreachable!("follows in the next commit")
    }

    /// What was really got.
    #[must_use]
    pub fn report(&self) -> &ShieldReport {
        &self.report
    }

    /// The group under which a container's group inherits the shield's CPUs; none where the
    /// wall is affinity alone.
    #[must_use]
    pub fn control_group(&self) -> Option<&ControlGroup> {
        None
    }

    /// Takes the wall down and restores what it changed.
    ///
    /// # Errors
    /// If something could not be restored; it stays in the journal.
    pub fn lower(self) -> Result<ShieldReport, HostError> {
        unreachable!("follows in the next commit")
    }
}
