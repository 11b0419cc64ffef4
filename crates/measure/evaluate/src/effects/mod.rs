// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine with its plan against the same machine without it, or without a part of it: what is
//! compared, who switches, and what follows.

pub(crate) mod judge;
pub(crate) mod switching;
pub(crate) mod variants;

use rampart_model::{ActivePlan, ChangeStep, Finding, Plan, PlanChange, ResolvedPlan};

/// Applies the plan of the machine, and takes it back.
pub trait PlanSwitch: std::fmt::Debug {
    /// Applies the plan but for the changes to leave out. Nothing of it stands when this is called.
    ///
    /// # Errors
    /// If it cannot be applied; [`PlanSwitch::release`] then takes back what was done of it.
    fn apply(&self, leave_out: &[PlanChange]) -> Result<ActivePlan, Box<Finding>>;

    /// Takes back all of it. What somebody else changed meanwhile is left, and told.
    ///
    /// # Errors
    /// If something could not be taken back.
    fn release(&self) -> Result<Vec<Finding>, Box<Finding>>;
}

/// A plan of the machine that is to be measured.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Its file.
    pub file: String,
    /// The plan.
    pub plan: Plan,
    /// It on this machine; no finding refuses it.
    pub resolved: ResolvedPlan,
    /// Domains to measure: names of the plan's, words for kinds, `host`, `vm:noisy`; empty for all,
    /// and the host to compare with.
    pub names: Vec<String>,
    /// Whether the machine is measured without the plan too.
    pub before_after: bool,
    /// Whether it is measured without each change of the plan too.
    pub ablate: bool,
    /// What applying the plan is about here; only looked at where something is compared.
    pub steps: Vec<ChangeStep>,
}

impl PlanRequest {
    /// Whether something is compared with the plan.
    #[must_use]
    pub const fn compares(&self) -> bool {
        self.before_after || self.ablate
    }

    /// Whether a active plan is this one: the same settings, and the same domains in the same
    /// places. What was found when it was resolved may have changed since.
    pub(crate) fn is(&self, standing: &ResolvedPlan) -> bool {
        let locations = |plan: &ResolvedPlan| -> Vec<_> {
            let domains = plan.domains.iter();
            domains
                .map(|domain| {
                    let name = domain.name.clone();
                    (name, domain.kind, domain.cpus.clone(), domain.policy)
                })
                .collect()
        };
        self.resolved.host == standing.host
            && self.resolved.boot == standing.boot
            && locations(&self.resolved) == locations(standing)
    }
}
