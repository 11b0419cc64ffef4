// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs are for real-time work, and which for which domain. Pure.

use rampart_model::{CpuId, CpuSet, Finding, Machine, Severity};

use crate::EvaluateError;

/// CPUs for real-time work, and why these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProposedCpus {
    /// The CPUs.
    pub cpus: CpuSet,
    /// Who or what chose them, for people.
    pub chosen_by: &'static str,
}

/// The CPUs for real-time work that an evaluation of one domain would take: the user's; else those
/// that the kernel command line isolated; else the last whole core, among the strongest.
///
/// # Errors
/// If this process may use no CPU, or the user's are not usable.
pub fn propose_cpus(
    machine: &Machine,
    asked: Option<&CpuSet>,
) -> Result<ProposedCpus, EvaluateError> {
    real_time_cpus(machine, &usable(machine)?, asked, 1)
}

/// The CPUs that this process may use.
///
/// # Errors
/// If there is none.
pub(crate) fn usable(machine: &Machine) -> Result<CpuSet, EvaluateError> {
    let usable = machine.topology.usable();
    if usable.is_empty() {
        return Err(EvaluateError::NoCpu);
    }
    Ok(usable)
}

/// The CPUs for real-time work: the user's; else those that the kernel command line isolated; else whole
/// cores, the strongest first and of these the last, because low-numbered CPUs take most
/// interrupts: as many as are wanted, but one is left for ordinary work, and one is given up in any
/// case.
pub(crate) fn real_time_cpus(
    machine: &Machine,
    usable: &CpuSet,
    asked: Option<&CpuSet>,
    wanted_cores: usize,
) -> Result<ProposedCpus, EvaluateError> {
    let proposed = |cpus, chosen_by| Ok(ProposedCpus { cpus, chosen_by });
    if let Some(asked) = asked {
        if asked.is_empty() || !asked.is_subset(usable) {
            return Err(EvaluateError::CpusUnusable {
                asked: asked.clone(),
                usable: usable.clone(),
            });
        }
        return proposed(asked.clone(), "named with --cpus");
    }
    let isolated = machine.topology.isolated.intersection(usable);
    if !isolated.is_empty() && isolated.len() < usable.len() {
        return proposed(isolated, "isolated already");
    }
    let mut cores = cores_in(machine, usable);
    // By their capacity, then by their last CPUs, the highest first.
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
    // A single core with two siblings has no whole core to give away; one sibling is then
    // better than nothing, and the machine's findings name the sharing.
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

/// As many housekeeping CPUs as there are real-time ones, so that maxima over CPUs compare; the
/// boot CPU only if there is no other.
pub(crate) fn host_cpus(housekeeping: &CpuSet, count: usize) -> CpuSet {
    housekeeping.iter().rev().take(count).collect()
}

/// Real-time CPUs for each of `count` domains, none of them two domains': whole cores where there
/// are enough, otherwise single CPUs, with a finding. All get equally many. None where there are
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
        let finding = Finding::new(
            Severity::Warning,
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

/// These CPUs by cores, in the order of their first CPUs.
fn cores_in(machine: &Machine, cpus: &CpuSet) -> Vec<CpuSet> {
    let mut cores: Vec<CpuSet> = Vec::new();
    for cpu in cpus.iter() {
        if !cores.iter().any(|core| core.contains(cpu)) {
            cores.push(core_of(machine, cpu).intersection(cpus));
        }
    }
    cores
}

/// The relative capacity of a CPU; none where all are equal.
fn capacity(machine: &Machine, cpu: CpuId) -> Option<u32> {
    let mut known = machine.topology.cpus.iter();
    known.find(|known| known.id == cpu)?.capacity
}

/// A CPU with its siblings.
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
    use rampart_model::Cpu;

    /// This machine with one CPU for each of these capacities, as single cores.
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
        machine
    }

    fn proposed(machine: &Machine, asked: Option<&str>) -> (String, &'static str) {
        let asked = asked.map(|asked| asked.parse().expect("CPUs"));
        let proposed = propose_cpus(machine, asked.as_ref()).expect("CPUs");
        (proposed.cpus.to_string(), proposed.chosen_by)
    }

    #[test]
    fn the_cpus_come_with_the_reason() {
        let mut machine = machine(&[None, None, None]);
        let told = |machine: &Machine, asked| {
            let (cpus, why) = proposed(machine, asked);
            format!("{cpus}: {why}")
        };
        assert!(told(&machine, None).starts_with("2: the last core (change"));
        assert_eq!(told(&machine, Some("0")), "0: named with --cpus");
        // Named by the user, although it is among the isolated.
        machine.topology.isolated = "1-2".parse().expect("CPUs");
        assert_eq!(told(&machine, Some("1")), "1: named with --cpus");
        assert_eq!(told(&machine, None), "1-2: isolated already");
        // All are isolated: nothing was chosen by that.
        machine.topology.isolated = "0-2".parse().expect("CPUs");
        assert!(told(&machine, None).starts_with("2: the last core (change"));
    }

    #[test]
    fn strong_cores_come_before_high_numbers() {
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
