// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which CPUs are for real-time work, and which for which domain. Pure.

use rampart_model::{CpuId, CpuSet, Finding, Machine, Severity};

use crate::EvaluateError;

/// The CPUs for real-time work that an evaluation of one domain would take: the user's; else those
/// that the boot line isolated; else the last whole core.
///
/// # Errors
/// If this process may use no CPU, or the user's are not usable.
pub fn propose_cpus(machine: &Machine, asked: Option<&CpuSet>) -> Result<CpuSet, EvaluateError> {
    let usable = machine
        .topology
        .online
        .intersection(&machine.topology.allowed);
    if usable.is_empty() {
        return Err(EvaluateError::NoCpu);
    }
    real_time_cpus(machine, &usable, asked, 1)
}

/// The CPUs for real-time work: the user's; else those that the boot line isolated; else the
/// last whole cores, because low-numbered CPUs take most interrupts: as many as are wanted, but
/// one is left for ordinary work, and one is given up in any case.
pub(crate) fn real_time_cpus(
    machine: &Machine,
    usable: &CpuSet,
    asked: Option<&CpuSet>,
    wanted_cores: usize,
) -> Result<CpuSet, EvaluateError> {
    if let Some(asked) = asked {
        if asked.is_empty() || !asked.is_subset(usable) {
            return Err(EvaluateError::CpusUnusable {
                asked: asked.clone(),
                usable: usable.clone(),
            });
        }
        return Ok(asked.clone());
    }
    let isolated = machine.topology.isolated.intersection(usable);
    if !isolated.is_empty() && isolated.len() < usable.len() {
        return Ok(isolated);
    }
    let mut cores = cores_in(machine, usable);
    // By their last CPUs, the highest first.
    cores.sort_by_key(|core| std::cmp::Reverse(core.iter().next_back()));
    let given = wanted_cores.min(cores.len().saturating_sub(1)).max(1);
    let last = cores
        .iter()
        .take(given)
        .fold(CpuSet::new(), |all, core| all.union(core));
    // A single core with two siblings has no whole core to give away; one sibling is then
    // better than nothing, and the machine's findings name the sharing.
    if last.len() < usable.len() || usable.len() == 1 {
        Ok(last)
    } else {
        Ok(usable
            .iter()
            .next_back()
            .map(CpuSet::single)
            .unwrap_or_default())
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
        .mend("give more cores with --cpus");
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
