// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses the CPUs for real-time work, and those of each domain. Pure.

use rampart_model::{CpuId, CpuSet, Finding, IsolationSourceKind, Machine};
use rampart_rules::{Rule, real_time_cpus_of, rule_of_knob};

use crate::EvaluateError;

/// The rule about siblings of one core.
const SIBLING_THREADS: Rule = rule_of_knob("sibling-threads");

/// CPUs for real-time work, and the reason for the choice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCpus {
    /// The CPUs.
    pub cpus: CpuSet,
    /// The source of the choice, as text for the user.
    pub chosen_by: String,
}

/// Returns the CPUs for real-time work of an evaluation of one domain: the user's; otherwise those
/// that settings of the machine keep for it ([`rampart_rules::real_time_cpus`]); otherwise the last
/// whole core among the strongest.
///
/// # Errors
/// Returns an error if this process may use no CPU, or the user's CPUs are not usable.
pub fn propose_cpus(
    machine: &Machine,
    asked: Option<&CpuSet>,
) -> Result<ProposedCpus, EvaluateError> {
    real_time_cpus(machine, &usable(machine)?, asked, 1)
}

/// Returns the CPUs that this process may use, and those that only systemd's slices keep from it: a
/// domain has a control group of its own.
///
/// # Errors
/// Returns an error if there is none.
pub(crate) fn usable(machine: &Machine) -> Result<CpuSet, EvaluateError> {
    let topology = &machine.topology;
    let slices = topology
        .isolation_sources
        .iter()
        .filter(|source| source.kind == IsolationSourceKind::Slices);
    let usable = slices.fold(topology.usable(), |all, source| {
        all.union(&source.cpus.intersection(&topology.online))
    });
    if usable.is_empty() {
        return Err(EvaluateError::NoCpu);
    }
    Ok(usable)
}

/// Returns the CPUs for real-time work: the user's; otherwise those that settings of the machine keep
/// for it, of which this process may use some; otherwise whole cores. The strongest cores come first and the last of these are used,
/// because low-numbered CPUs take most interrupts. As many cores as requested are returned, except
/// that one remains for ordinary work and at least one is returned.
pub(crate) fn real_time_cpus(
    machine: &Machine,
    usable: &CpuSet,
    asked: Option<&CpuSet>,
    wanted_cores: usize,
) -> Result<ProposedCpus, EvaluateError> {
    let proposed = |cpus, chosen_by: &str| {
        Ok(ProposedCpus {
            cpus,
            chosen_by: chosen_by.to_owned(),
        })
    };
    if let Some(asked) = asked {
        if asked.is_empty() || !asked.is_subset(usable) {
            return Err(EvaluateError::CpusUnusable {
                asked: asked.clone(),
                usable: usable.clone(),
            });
        }
        return proposed(asked.clone(), "named with --cpus");
    }
    if let Some(found) = real_time_cpus_of(&machine.topology) {
        let cpus = found.cpus.intersection(usable);
        if !cpus.is_empty() && cpus.len() < usable.len() {
            return proposed(cpus, &found.words());
        }
    }
    let mut cores = cores_in(machine, usable);
    // Sort by capacity, then by last CPU, both descending.
    let strength = |core: &CpuSet| core.iter().filter_map(|cpu| capacity(machine, cpu)).max();
    cores.sort_by_key(|core| std::cmp::Reverse((strength(core), core.iter().next_back())));
    let differ = cores
        .windows(2)
        .any(|pair| strength(&pair[0]) != strength(&pair[1]));
    let given = wanted_cores.min(cores.len().saturating_sub(1)).max(1);
    let last = cores
        .iter()
        .take(given)
        .fold(CpuSet::new(), |all, core| all.union(core));
    // A single core with two siblings leaves no whole core for ordinary work. One sibling is then
    // used, and the machine's findings report the sharing.
    if last.len() < usable.len() || usable.len() == 1 {
        let cores = match (given, differ) {
            (1, false) => "the last core (change with --cpus)",
            (1, true) => "the last of the strongest cores (change with --cpus)",
            (_, false) => "the last cores (change with --cpus)",
            (_, true) => "the strongest cores, of these the last (change with --cpus)",
        };
        proposed(last, cores)
    } else {
        let last = usable.iter().next_back().map(CpuSet::single);
        proposed(
            last.unwrap_or_default(),
            "the last CPU of the only core (change with --cpus)",
        )
    }
}

/// Returns as many housekeeping CPUs as there are real-time ones, so that maxima over CPUs compare;
/// the boot CPU only if there is no other.
pub(crate) fn host_cpus(housekeeping: &CpuSet, count: usize) -> CpuSet {
    housekeeping.iter().rev().take(count).collect()
}

/// Returns disjoint real-time CPUs for each of `count` domains: whole cores if there are enough,
/// otherwise single CPUs with a finding. All domains get equally many. Returns `None` if there are
/// fewer CPUs than domains.
pub(crate) fn own_cpus(
    machine: &Machine,
    real_time: &CpuSet,
    count: usize,
) -> Option<(Vec<CpuSet>, Option<Finding>)> {
    let cores = cores_in(machine, real_time);
    if count == 0 || real_time.len() < count {
        return None;
    }
    let (units, finding) = if cores.len() >= count {
        (cores, None)
    } else {
        let finding = SIBLING_THREADS.finding(
            "cpus",
            "domains have siblings of one core, and disturb each other through what the core shares",
        )
        .values(
            format!("{} real-time cores", cores.len()),
            format!("{count}, one for each domain"),
        )
        .fix("give more cores with --cpus");
        (
            real_time.iter().map(CpuSet::single).collect(),
            Some(finding),
        )
    };
    let each = units.len() / count;
    let shares = units
        .chunks(each)
        .take(count)
        .map(|units| units.iter().fold(CpuSet::new(), |all, one| all.union(one)))
        .collect();
    Some((shares, finding))
}

/// Returns these CPUs by cores, in the order of their first CPUs.
fn cores_in(machine: &Machine, cpus: &CpuSet) -> Vec<CpuSet> {
    let mut cores: Vec<CpuSet> = Vec::new();
    for cpu in cpus.iter() {
        if !cores.iter().any(|core| core.contains(cpu)) {
            cores.push(core_of(machine, cpu).intersection(cpus));
        }
    }
    cores
}

/// Returns the relative capacity of a CPU, or `None` if all are equal.
fn capacity(machine: &Machine, cpu: CpuId) -> Option<u32> {
    let mut known = machine.topology.cpus.iter();
    known.find(|known| known.id == cpu)?.capacity
}

/// Returns a CPU with its siblings.
fn core_of(machine: &Machine, cpu: CpuId) -> CpuSet {
    machine
        .topology
        .cpus
        .iter()
        .find(|candidate| candidate.id == cpu)
        .map(|known| known.siblings.union(&CpuSet::single(cpu)))
        .unwrap_or_else(|| CpuSet::single(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_host::{MachineRoot, read_machine};
    use rampart_model::{Cpu, IsolationSource};

    /// Returns this machine with one single-CPU core for each of these capacities.
    fn machine(capacities: &[Option<u32>]) -> Machine {
        let mut machine = read_machine(&MachineRoot::system());
        let cpus = (0..).map(CpuId).zip(capacities);
        machine.topology.cpus = cpus
            .map(|(id, capacity)| Cpu {
                id,
                core: Some(id.0),
                package: Some(0),
                node: Some(0),
                siblings: CpuSet::single(id),
                capacity: *capacity,
            })
            .collect();
        let all: CpuSet = machine.topology.cpus.iter().map(|cpu| cpu.id).collect();
        machine.topology.online = all.clone();
        machine.topology.allowed = all;
        machine.topology.isolated = CpuSet::new();
        machine.topology.isolation_sources = Vec::new();
        machine
    }

    fn source(kind: IsolationSourceKind, cpus: &str) -> IsolationSource {
        IsolationSource {
            kind,
            name: format!("{kind:?}"),
            cpus: cpus.parse().expect("CPUs"),
        }
    }

    fn proposed(machine: &Machine, asked: Option<&str>) -> (String, String) {
        let asked = asked.map(|asked| asked.parse().expect("CPUs"));
        let proposed = propose_cpus(machine, asked.as_ref()).expect("CPUs");
        (proposed.cpus.to_string(), proposed.chosen_by)
    }

    #[test]
    fn reports_the_reason_for_the_choice() {
        let mut machine = machine(&[None, None, None]);
        let described = |machine: &Machine, asked| {
            let (cpus, why) = proposed(machine, asked);
            format!("{cpus}: {why}")
        };
        assert!(described(&machine, None).starts_with("2: the last core (change"));
        assert_eq!(described(&machine, Some("0")), "0: named with --cpus");
        // The user's choice has priority over isolated CPUs.
        let isolated = |cpus| vec![source(IsolationSourceKind::Unbalanced, cpus)];
        machine.topology.isolation_sources = isolated("1-2");
        assert_eq!(described(&machine, Some("1")), "1: named with --cpus");
        assert_eq!(described(&machine, None), "1-2: from Unbalanced");
        // If all CPUs are isolated, the isolation makes no choice.
        machine.topology.isolation_sources = isolated("0-2");
        assert!(described(&machine, None).starts_with("2: the last core (change"));
    }

    #[test]
    fn cpus_that_this_process_cannot_use_are_not_proposed() {
        let mut machine = machine(&[None, None, None, None]);
        machine.topology.allowed = "0-1".parse().expect("CPUs");
        let with = |kind| {
            let mut machine = machine.clone();
            machine.topology.isolation_sources = vec![source(kind, "2-3")];
            proposed(&machine, None)
        };
        // The partition belongs to another program.
        let (cpus, why) = with(IsolationSourceKind::Partition);
        assert_eq!(cpus, "1", "{why}");
        // A domain has a group of its own beside the slices.
        let (cpus, why) = with(IsolationSourceKind::Slices);
        assert_eq!((cpus.as_str(), why.as_str()), ("2-3", "from Slices"));
    }

    #[test]
    fn prefers_strong_cores_to_high_numbers() {
        let (strong, weak) = (Some(1024), Some(400));
        let machine = machine(&[strong, strong, weak, weak]);
        let (cpus, why) = proposed(&machine, None);
        assert_eq!(cpus, "1");
        assert!(why.contains("strongest"), "{why}");
        let all = machine.topology.usable();
        let three = real_time_cpus(&machine, &all, None, 3).expect("CPUs");
        assert_eq!(three.cpus.to_string(), "0-1,3");
    }
}
