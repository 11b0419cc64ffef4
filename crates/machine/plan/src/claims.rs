// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who asks for which CPUs, before anybody gets one.

use std::collections::BTreeMap;

use rampart_model::{CpuId, CpuRequest, CpuSet, Machine, Plan, PlannedDomain};

use crate::names::HOUSEKEEPING;
use crate::select::{Search, choose};
use crate::view;

/// What a domain asked for and what it gets.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim {
    /// The CPUs that it names or was given by property, those among them that are not online or
    /// somebody else's too.
    pub(crate) asked: CpuSet,
    /// Those that are its own.
    pub(crate) got: CpuSet,
    /// How they were chosen.
    pub(crate) reasons: Vec<String>,
    /// Why a selector found none: what was asked, and what there is.
    pub(crate) unmet: Option<(String, String)>,
}

/// All claims of a plan.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    /// By domain, in the order of the plan.
    pub(crate) domains: Vec<Claim>,
    /// For each CPU the indexes of the domains whose work is to run there.
    pub(crate) claimants: BTreeMap<CpuId, Vec<usize>>,
    /// The housekeeping CPUs that the plan names; none where it names none.
    pub(crate) housekeeping: Option<CpuSet>,
    /// CPUs for emulators and other servants outside the named housekeeping CPUs.
    pub(crate) servants: CpuSet,
    /// CPUs that go offline.
    pub(crate) offline: CpuSet,
}

/// The CPUs that a domain lists; none where it asks by property.
pub(crate) fn listed(domain: &PlannedDomain) -> Option<CpuSet> {
    match (&domain.cpus, &domain.vcpus) {
        (Some(CpuRequest::List(cpus)), _) => Some(cpus.clone()),
        (_, Some(vcpus)) => vcpus.request().cpus,
        _ => None,
    }
}

/// The CPUs of a domain's emulator and of what serves it.
pub(crate) fn servants(domain: &PlannedDomain) -> CpuSet {
    let cpus = |set: &Option<CpuSet>| set.clone().unwrap_or_default();
    cpus(&domain.emulator).union(&cpus(&domain.service))
}

impl Claims {
    /// Lists first, so that no selector takes a CPU that another domain names; then selectors in
    /// the order of the plan.
    pub(crate) fn of(machine: &Machine, plan: &Plan) -> Self {
        let online = &machine.topology.online;
        let mut claims = Self {
            domains: vec![Claim::default(); plan.domains.len()],
            housekeeping: plan.machine.housekeeping.clone(),
            offline: view::taken_offline(machine, plan.machine.smt),
            ..Self::default()
        };
        let usable = online.difference(&claims.offline);
        for (index, domain) in plan.domains.iter().enumerate() {
            if domain.kind.is_housekeeping() {
                continue;
            }
            if let Some(cpus) = listed(domain) {
                claims.give(index, &cpus, &usable);
                claims.note(index, format!("{} listed in the plan", cpus.named()));
            }
        }
        let real_time = claims.owned();
        for domain in &plan.domains {
            // Where nobody is named to keep house, the boot CPU's core does, and serves too.
            let named = claims
                .housekeeping
                .clone()
                .unwrap_or_else(|| view::core(&machine.topology, view::BOOT_CPU));
            let servants = servants(domain).difference(&named).difference(&real_time);
            claims.servants = claims.servants.union(&servants.intersection(&usable));
        }
        for (index, domain) in plan.domains.iter().enumerate() {
            if !domain.kind.is_housekeeping() && listed(domain).is_none() {
                claims.search(machine, plan, index, &usable);
            }
        }
        claims
    }

    /// All CPUs that belong to a domain for its work.
    pub(crate) fn owned(&self) -> CpuSet {
        self.domains
            .iter()
            .fold(CpuSet::new(), |all, claim| all.union(&claim.got))
    }

    fn give(&mut self, index: usize, cpus: &CpuSet, usable: &CpuSet) {
        let free = usable.difference(&self.owned());
        for cpu in cpus.iter() {
            self.claimants.entry(cpu).or_default().push(index);
        }
        if let Some(claim) = self.domains.get_mut(index) {
            claim.asked = cpus.clone();
            claim.got = cpus.intersection(&free);
        }
    }

    fn note(&mut self, index: usize, reason: String) {
        if let Some(claim) = self.domains.get_mut(index) {
            claim.reasons.push(reason);
        }
    }

    /// What no domain has and no domain may disturb by taking it.
    fn free(&self, machine: &Machine, usable: &CpuSet) -> CpuSet {
        let topology = &machine.topology;
        let owned = self.owned();
        // Threads beside a real-time one stay idle, or are its owner's.
        let beside = owned.iter().fold(CpuSet::new(), |all, id| {
            all.union(&view::core(topology, id))
        });
        // Somebody has to keep house, and the boot CPU always does.
        let house = self
            .housekeeping
            .clone()
            .unwrap_or_else(|| view::core(topology, view::BOOT_CPU));
        usable
            .difference(&owned)
            .difference(&beside)
            .difference(&house)
            .difference(&self.servants)
    }

    fn search(&mut self, machine: &Machine, plan: &Plan, index: usize, usable: &CpuSet) {
        let Some(domain) = plan.domains.get(index) else {
            return;
        };
        let selector = match (&domain.cpus, &domain.vcpus) {
            (Some(CpuRequest::Selector(selector)), _) => selector.clone(),
            (_, Some(vcpus)) => vcpus.request().selector(),
            _ => return,
        };
        let house = self
            .housekeeping
            .clone()
            .unwrap_or_else(|| view::core(&machine.topology, view::BOOT_CPU));
        let of = |name: &Option<String>| -> Option<CpuSet> {
            let name = name.as_ref()?;
            if name == HOUSEKEEPING {
                return Some(house.clone());
            }
            let at = plan
                .domains
                .iter()
                .position(|domain| domain.name == *name)?;
            self.domains.get(at).map(|claim| claim.got.clone())
        };
        let search = Search {
            count: usize::try_from(selector.count).unwrap_or(usize::MAX),
            node: selector.node,
            whole_cores: selector.whole_cores,
            near: of(&selector.same_l3_as),
            far: of(&selector.not_l3_of),
            housekeeping: house.clone(),
            smt: plan.machine.smt,
        };
        // Threads of cores that go offline do not keep a core from being whole.
        let mut free = self.free(machine, usable);
        if !self.offline.is_empty() {
            let spare = self.offline.iter().filter(|id| {
                view::core(&machine.topology, *id)
                    .first()
                    .is_some_and(|first| free.contains(first))
            });
            free = free.union(&spare.collect());
        }
        match choose(machine, &free, &search) {
            Ok(choice) => {
                self.give(index, &choice.cpus, usable);
                self.note(index, choice.reason);
            }
            Err(present) => {
                let mut wanted = format!("{} CPUs", selector.count);
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
                if let Some(claim) = self.domains.get_mut(index) {
                    claim.unmet = Some((wanted, present));
                }
            }
        }
    }
}
