// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The division of a machine's CPUs, on which expected values depend.

use std::collections::BTreeMap;

use rampart_model::{CpuSet, DomainProgram, ResolvedPlan};

/// The input, besides the machine, from which expected values of knobs follow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// The CPUs for real-time work.
    pub real_time: CpuSet,
    /// The CPUs for all other work; empty if every CPU is a real-time CPU.
    pub housekeeping: CpuSet,
    /// Whether the machine hosts guests; [`crate::Readings::hosts_guests`] without a plan.
    pub has_guests: bool,
    /// The choices of a plan: name of a knob, and name of one of its choices or the value itself.
    pub choices: BTreeMap<String, String>,
}

impl Isolation {
    /// Returns the division of the machine that a plan was resolved on.
    #[must_use]
    pub fn of(plan: &ResolvedPlan) -> Self {
        Self {
            real_time: plan.real_time.clone(),
            housekeeping: plan.housekeeping.clone(),
            has_guests: plan
                .domains
                .iter()
                .any(|domain| domain.kind.program() == DomainProgram::Guest),
            choices: plan
                .host
                .iter()
                .filter_map(|(knob, choice)| Some((knob.clone(), choice.value.clone()?)))
                .collect(),
        }
    }
}
