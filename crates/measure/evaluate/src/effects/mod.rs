// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares a machine with its plan against the same machine without it, or without a part of it.

pub(crate) mod judge;
pub(crate) mod switching;
pub(crate) mod variants;

use rampart_host::{HostError, MachineRoot, StateDirectory};
use rampart_model::{ActivePlan, ChangeStep, Finding, Plan, PlanChange, ResolvedPlan, Severity};
use rampart_supervise::PlanFile;

/// Applies the plan of the machine, and reverts it.
pub(crate) trait PlanSwitch: std::fmt::Debug {
    /// Applies the plan except for the changes to leave out. No part of it is in effect before the
    /// call.
    ///
    /// # Errors
    /// Returns an error if the plan cannot be applied; [`PlanSwitch::release`] then reverts the
    /// part that was.
    fn apply(&self, leave_out: &[PlanChange]) -> Result<ActivePlan, Box<Finding>>;

    /// Reverts the whole plan. Settings that another program changed meanwhile are left, and are in
    /// the returned findings.
    ///
    /// # Errors
    /// Returns an error if a setting could not be reverted.
    fn release(&self) -> Result<Vec<Finding>, Box<Finding>>;
}

/// Applies a plan like `rampart apply`, and reverts it like `rampart release`.
#[derive(Debug)]
pub(crate) struct AppliedToThisMachine<'a> {
    pub(crate) plan: &'a PlanFile,
    pub(crate) tool_version: &'a str,
}

impl AppliedToThisMachine<'_> {
    fn problem(&self, error: &HostError) -> Box<Finding> {
        let finding = Finding::new(Severity::Error, &self.plan.file, error.to_string());
        Box::new(finding.fix("rampart release"))
    }
}

impl PlanSwitch for AppliedToThisMachine<'_> {
    fn apply(&self, leave_out: &[PlanChange]) -> Result<ActivePlan, Box<Finding>> {
        let Self { plan, tool_version } = self;
        // The numbers of threads and interrupts change, so the list is made anew.
        let mut changes = plan.change_list(&MachineRoot::system(), tool_version);
        changes.leave_out(leave_out);
        let state = StateDirectory::standard();
        let applied = plan.apply(&changes, &state, tool_version, &mut |_| {});
        applied.map_err(|error| self.problem(&error))
    }

    fn release(&self) -> Result<Vec<Finding>, Box<Finding>> {
        let released = rampart_host::release(&StateDirectory::standard());
        let report = released.map_err(|error| self.problem(&error))?;
        let is_error = |left: &&Finding| left.severity == Severity::Error;
        match report.left.iter().find(is_error) {
            Some(kept) => Err(Box::new(kept.clone())),
            None => Ok(report.left),
        }
    }
}

/// A plan of the machine to measure.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// Its file.
    pub file: String,
    /// The plan.
    pub plan: Plan,
    /// The plan resolved on this machine, without a finding that refuses it.
    pub resolved: ResolvedPlan,
    /// Domains to measure: names of the plan, words for kinds, `host`, `vm:noisy`. Empty for all
    /// domains of the plan and the host.
    pub names: Vec<String>,
    /// Whether to measure the machine without the plan too.
    pub before_after: bool,
    /// Whether to measure the machine without each change of the plan too.
    pub ablate: bool,
    /// The steps of applying the plan on this machine; only used for a comparison.
    pub steps: Vec<ChangeStep>,
}

impl PlanRequest {
    /// Returns the request to measure the domains `names` of a plan file, and the machine without
    /// the plan (`before_after`) and without each of its changes (`ablate`).
    #[must_use]
    pub fn of(plan: &PlanFile, names: &[String], before_after: bool, ablate: bool) -> Self {
        let mut request = Self {
            file: plan.file.clone(),
            plan: plan.plan.clone(),
            resolved: plan.resolved.clone(),
            names: names.to_vec(),
            before_after,
            ablate,
            steps: Vec::new(),
        };
        if request.compares() {
            // The version is not in the steps.
            request.steps = plan.change_list(&MachineRoot::system(), "").steps;
        }
        request
    }

    /// Returns whether the request includes a comparison.
    #[must_use]
    pub const fn compares(&self) -> bool {
        self.before_after || self.ablate
    }

    /// Returns whether an active plan is this one: the same settings, and the same domains on the
    /// same CPUs. The findings may differ.
    pub(crate) fn is(&self, active: &ResolvedPlan) -> bool {
        let locations = |plan: &ResolvedPlan| -> Vec<_> {
            let domains = plan.domains.iter();
            domains
                .map(|domain| {
                    let name = domain.name.clone();
                    (name, domain.kind, domain.cpus.clone(), domain.policy)
                })
                .collect()
        };
        self.resolved.host == active.host
            && self.resolved.boot == active.boot
            && locations(&self.resolved) == locations(active)
    }
}
