// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine is to be partitioned into.

use std::collections::BTreeMap;

use rampart_model::{CpuSet, DomainProgram, ResolvedPlan};

/// What the wanted value of a knob depends on besides the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Isolation {
    /// The CPUs for real-time work.
    pub real_time: CpuSet,
    /// The CPUs for all else; empty where every CPU is a real-time one.
    pub housekeeping: CpuSet,
    /// Whether the machine hosts guests; [`crate::Readings::hosts_guests`] where no plan says it.
    pub has_guests: bool,
    /// What a plan chose: name of a knob, and name of one of its choices or the value itself.
    pub choices: BTreeMap<String, String>,
}

impl Isolation {
    /// What a plan makes of the machine that it was resolved on.
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
