// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The input of the rules of plans.

use std::collections::BTreeMap;

use rampart_model::{
    CpuId, CpuSet, Environment, KnobAction, Machine, Plan, PlannedDomain, PreemptionModel,
    ResolvedDomain, ResolvedPlan,
};

use crate::{Division, Expected, Indivisible, Isolation, When};

/// The CPUs that a domain requests and the CPUs that it owns.
#[derive(Debug, Clone, Default)]
pub struct Claim {
    /// The CPUs that the domain lists or that were chosen for it, including CPUs that are offline
    /// and CPUs of other domains.
    pub requested: CpuSet,
    /// The CPUs that belong to the domain alone.
    pub owned: CpuSet,
    /// Why these CPUs were chosen.
    pub reasons: Vec<String>,
    /// If no CPUs have the requested properties: the request, and the CPUs that are available.
    pub unmet: Option<(String, String)>,
}

/// The claims of all domains of a plan.
#[derive(Debug, Default)]
pub struct Claims {
    /// The claim of each domain, in the order of the plan.
    pub domains: Vec<Claim>,
    /// The indexes of the domains that request each CPU.
    pub claimants: BTreeMap<CpuId, Vec<usize>>,
    /// The housekeeping CPUs that the plan names; `None` if it names none.
    pub housekeeping: Option<CpuSet>,
    /// CPUs of emulators and service threads outside the housekeeping CPUs.
    pub service: CpuSet,
    /// CPUs that the plan takes offline.
    pub offline: CpuSet,
}

impl Claims {
    /// Returns the CPUs that belong to any domain.
    #[must_use]
    pub fn owned(&self) -> CpuSet {
        self.domains
            .iter()
            .fold(CpuSet::new(), |all, claim| all.union(&claim.owned))
    }
}

/// The input of the rules of plans.
#[derive(Debug)]
pub struct PlanContext<'a> {
    /// The machine that the plan is resolved on.
    pub machine: &'a Machine,
    /// The plan.
    pub plan: &'a Plan,
    /// What the machine offers besides its topology.
    pub environment: &'a Environment,
    /// The CPUs that the domains request and own.
    pub claims: &'a Claims,
    /// The resolved plan, without findings.
    pub resolved: &'a ResolvedPlan,
    /// The caches divided by the shares of the plan; `None` if the plan has no shares, or if the
    /// caches cannot be read.
    pub division: Option<&'a Result<Division, Box<Indivisible>>>,
    /// The differences between the machine and the fingerprint of the plan, one sentence each.
    pub topology_changes: &'a [String],
}

/// A domain as planned, with its claim and its resolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DomainContext<'a> {
    pub(crate) planned: &'a PlannedDomain,
    pub(crate) claim: &'a Claim,
    pub(crate) resolved: &'a ResolvedDomain,
}

impl<'a> PlanContext<'a> {
    /// Returns the domains in the order of the plan.
    pub(crate) fn domains(&self) -> impl Iterator<Item = DomainContext<'a>> + use<'a> {
        self.plan
            .domains
            .iter()
            .zip(&self.claims.domains)
            .zip(&self.resolved.domains)
            .map(|((planned, claim), resolved)| DomainContext {
                planned,
                claim,
                resolved,
            })
    }

    /// Returns the value that Rampart writes to this knob. `None` if the plan skips the knob or
    /// leaves it to other software, and if the knob is not for the machine's kernel.
    pub(crate) fn wanted(&self, knob: &str) -> Option<Expected> {
        let is_named = self.plan.host.contains_key(knob);
        if self.leaves(knob) || (crate::is_safety_net(knob) && !is_named) {
            return None;
        }
        let knob = crate::named(knob)?;
        let real_time = self.machine.preemption == PreemptionModel::RealTime;
        let for_other_kernels = knob.applies.iter().any(|when| match when {
            When::RealTimeKernel => !real_time,
            When::OrdinaryKernel => real_time,
            _ => false,
        });
        (!for_other_kernels).then(|| knob.expected_by(&Isolation::of(self.resolved)))
    }

    /// Returns whether the plan skips this knob or leaves it to other software, by its name or by
    /// the default.
    pub(crate) fn leaves(&self, knob: &str) -> bool {
        crate::chosen(&self.plan.host, knob)
            .is_some_and(|choice| choice.action != KnobAction::Apply)
    }

    /// Returns whether the plan names this knob and skips it or leaves it to other software.
    pub(crate) fn leaves_by_name(&self, knob: &str) -> bool {
        let choice = self.plan.host.get(knob);
        choice.is_some_and(|choice| choice.action != KnobAction::Apply)
    }

    /// Returns whether the plan requests that Rampart writes this knob.
    pub(crate) fn requests(&self, knob: &str) -> bool {
        let wanted = self
            .wanted(knob)
            .filter(|wanted| *wanted != Expected::Informational);
        wanted.is_some() && crate::chosen(&self.plan.host, knob).is_some()
    }
}
