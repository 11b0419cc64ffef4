// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assigns CPUs to the domains of a plan.

use rampart_model::{BOOT_CPU, CpuRequest, CpuSet, Machine, Plan, PlannedDomain, plural};
use rampart_rules::{Claim, Claims};

use crate::names::HOUSEKEEPING;
use crate::select::{Search, choose};

/// Assigns CPUs to every domain. CPUs that domains list are assigned first, so that no selector
/// takes a CPU that another domain names; then selectors, in the order of the plan.
pub(crate) fn assign(machine: &Machine, plan: &Plan) -> Claims {
    let topology = &machine.topology;
    let offline = topology.taken_offline(plan.machine.smt);
    let mut assignment = Assignment {
        machine,
        plan,
        usable: topology.online.difference(&offline),
        // Without named housekeeping CPUs the core of the boot CPU stays free of domains.
        housekeeping: plan
            .machine
            .housekeeping
            .clone()
            .unwrap_or_else(|| topology.core(BOOT_CPU)),
        claims: Claims {
            domains: vec![Claim::default(); plan.domains.len()],
            housekeeping: plan.machine.housekeeping.clone(),
            offline,
            ..Claims::default()
        },
    };
    let with_cpus = || {
        let domains = plan.domains.iter().enumerate();
        domains.filter(|(_, domain)| !domain.kind.is_housekeeping())
    };
    for (index, domain) in with_cpus() {
        if let Some(cpus) = domain.listed_cpus() {
            assignment.assign(index, &cpus);
            assignment.explain(index, format!("{} listed in the plan", cpus.named()));
        }
    }
    let owned = assignment.claims.owned();
    for domain in &plan.domains {
        let service = domain
            .service_cpus()
            .difference(&assignment.housekeeping)
            .difference(&owned)
            .intersection(&assignment.usable);
        assignment.claims.service = assignment.claims.service.union(&service);
    }
    for (index, domain) in with_cpus() {
        if domain.listed_cpus().is_none() {
            assignment.search(index, domain);
        }
    }
    assignment.claims
}

struct Assignment<'a> {
    machine: &'a Machine,
    plan: &'a Plan,
    /// Online CPUs that the plan does not take offline.
    usable: CpuSet,
    housekeeping: CpuSet,
    claims: Claims,
}

impl Assignment<'_> {
    fn assign(&mut self, index: usize, cpus: &CpuSet) {
        let free = self.usable.difference(&self.claims.owned());
        for cpu in cpus.iter() {
            self.claims.claimants.entry(cpu).or_default().push(index);
        }
        if let Some(claim) = self.claims.domains.get_mut(index) {
            claim.requested = cpus.clone();
            claim.owned = cpus.intersection(&free);
        }
    }

    fn explain(&mut self, index: usize, reason: String) {
        if let Some(claim) = self.claims.domains.get_mut(index) {
            claim.reasons.push(reason);
        }
    }

    /// Returns the CPUs that a selector may choose: owned by no domain, and not a sibling of an
    /// owned CPU, which stays idle or belongs to the same domain.
    fn free(&self) -> CpuSet {
        let topology = &self.machine.topology;
        let owned = self.claims.owned();
        let siblings = owned
            .iter()
            .fold(CpuSet::new(), |all, id| all.union(&topology.core(id)));
        let free = self
            .usable
            .difference(&owned)
            .difference(&siblings)
            .difference(&self.housekeeping)
            .difference(&self.claims.service);
        // A thread that goes offline does not make its core incomplete.
        let offline = self.claims.offline.iter().filter(|id| {
            let first = topology.core(*id).first();
            first.is_some_and(|first| free.contains(first))
        });
        free.union(&offline.collect())
    }

    /// Returns the CPUs of the domain of this name, or the housekeeping CPUs.
    fn cpus_of(&self, name: &Option<String>) -> Option<CpuSet> {
        let name = name.as_ref()?;
        if name == HOUSEKEEPING {
            return Some(self.housekeeping.clone());
        }
        let mut domains = self.plan.domains.iter();
        let index = domains.position(|domain| domain.name == *name)?;
        let claim = self.claims.domains.get(index)?;
        Some(claim.owned.clone())
    }

    fn search(&mut self, index: usize, domain: &PlannedDomain) {
        let selector = match (&domain.cpus, &domain.vcpus) {
            (Some(CpuRequest::Selector(selector)), _) => selector.clone(),
            (_, Some(vcpus)) => vcpus.request().selector(),
            _ => return,
        };
        let search = Search {
            count: usize::try_from(selector.count).unwrap_or(usize::MAX),
            node: selector.node,
            whole_cores: selector.whole_cores,
            near: self.cpus_of(&selector.same_l3_as),
            far: self.cpus_of(&selector.not_l3_of),
            housekeeping: self.housekeeping.clone(),
            smt: self.plan.machine.smt,
        };
        match choose(self.machine, &self.free(), &search) {
            Ok(choice) => {
                self.assign(index, &choice.cpus);
                self.explain(index, choice.reason);
            }
            Err(present) => {
                let mut wanted = plural(selector.count, "CPU");
                if let Some(node) = selector.node {
                    wanted.push_str(&format!(" on memory node {node}"));
                }
                if selector.whole_cores {
                    wanted.push_str(" in whole cores");
                }
                if let Some(name) = &selector.same_l3_as {
                    wanted.push_str(&format!(" under the last-level cache of `{name}`"));
                }
                if let Some(name) = &selector.not_l3_of {
                    wanted.push_str(&format!(" not under the last-level cache of `{name}`"));
                }
                if let Some(claim) = self.claims.domains.get_mut(index) {
                    claim.unmet = Some((wanted, present));
                }
            }
        }
    }
}
