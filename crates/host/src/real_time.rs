// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time budgets of control groups.

use rampart_model::{Finding, Nanos};

/// The real-time budget of a process's control group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealTimeBudget {
    /// The group, relative to the `cpu` controller's root; none where no budget is needed.
    pub group: Option<String>,
    /// Time granted in each period; none where there is no limit.
    pub runtime: Option<Nanos>,
    /// What is weaker than asked.
    pub findings: Vec<Finding>,
}

/// Why the kernel would refuse (EPERM) a real-time policy for a thread; none where it would not.
#[must_use]
pub fn diagnose_real_time_policy(_thread: u32) -> Option<Finding> {
    None
}
