// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about the real-time CPUs, their interrupts and their memory.

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{CheckLocation, CpuId, CpuSet, Machine, Nanos, Virtualisation, plural};

use super::Judgement;
use super::processor::DEEP;
use crate::machine::kernel_command_line::last_cpu;
use crate::{Isolation, LocationValue, Reading, Readings};

const RESUME_LATENCY: &str =
    "/sys/devices/system/cpu/cpu{real-time-cpu}/power/pm_qos_resume_latency_us";

pub(super) fn enough(machine: &Machine, isolation: &Isolation) -> Judgement {
    let rest = machine.topology.online.difference(&isolation.real_time);
    Judgement::is(
        format!(
            "{} of {} online CPUs",
            rest.len(),
            machine.topology.online.len()
        ),
        !rest.is_empty(),
    )
}

pub(super) fn boot_cpu(isolation: &Isolation) -> Judgement {
    if isolation.real_time.contains(CpuId(0)) {
        Judgement::is("CPU 0 is a real-time CPU", false)
    } else {
        Judgement::is("CPU 0 is not a real-time CPU", true)
    }
}

pub(super) fn siblings(machine: &Machine, isolation: &Isolation) -> Judgement {
    let topology = &machine.topology;
    let outside: CpuSet = topology
        .cpus
        .iter()
        .filter(|cpu| isolation.real_time.contains(cpu.id))
        .flat_map(|cpu| {
            let others = cpu.siblings.intersection(&topology.online);
            others
                .difference(&isolation.real_time)
                .iter()
                .collect::<Vec<_>>()
        })
        .collect();
    if outside.is_empty() {
        Judgement::is("no real-time core is shared", true)
    } else {
        Judgement::is(format!("shared with {}", outside.named()), false)
    }
}

pub(super) fn one_node(machine: &Machine, isolation: &Isolation) -> Judgement {
    let nodes: Vec<String> = machine
        .topology
        .nodes
        .iter()
        .filter(|node| !node.cpus.intersection(&isolation.real_time).is_empty())
        .map(|node| node.id.to_string())
        .collect();
    Judgement::is(format!("node {}", nodes.join(", ")), nodes.len() <= 1)
}

pub(super) fn mixed_cores(machine: &Machine, isolation: &Isolation) -> Judgement {
    let capacities: BTreeSet<u32> = machine
        .topology
        .cpus
        .iter()
        .filter(|cpu| isolation.real_time.contains(cpu.id))
        .filter_map(|cpu| cpu.capacity)
        .collect();
    match (capacities.first(), capacities.last()) {
        (Some(low), Some(high)) if low != high => {
            Judgement::is(format!("capacities {low} to {high} of 1024"), false)
        }
        _ => Judgement::is("one kind", true),
    }
}

pub(super) fn shared_cache(machine: &Machine, isolation: &Isolation) -> Judgement {
    let rest = machine.topology.online.difference(&isolation.real_time);
    let levels: BTreeSet<u32> = machine
        .topology
        .caches
        .iter()
        .filter(|cache| {
            !cache
                .shared_by
                .intersection(&isolation.real_time)
                .is_empty()
                && !cache.shared_by.intersection(&rest).is_empty()
        })
        .map(|cache| cache.level)
        .collect();
    if levels.is_empty() {
        return Judgement::is("no cache is shared", true);
    }
    let levels: Vec<String> = levels.iter().map(|level| format!("L{level}")).collect();
    Judgement::is(format!("{} shared", levels.join(", ")), false)
}

pub(super) fn balancing(
    machine: &Machine,
    readings: &Readings,
    isolation: &Isolation,
) -> Judgement {
    let isolated = isolated(machine, readings);
    Judgement::is(named(&isolated), isolation.real_time.is_subset(&isolated))
}

/// Returns the CPUs that the scheduler does not balance: those of `isolcpus=` and of isolated partitions.
pub(super) fn isolated(machine: &Machine, readings: &Readings) -> CpuSet {
    let partitions: CpuSet = readings
        .value("/sys/fs/cgroup/cpuset.cpus.isolated")
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    machine.topology.isolated.union(&partitions)
}

pub(super) fn boot_lists(
    machine: &Machine,
    readings: &Readings,
    isolation: &Isolation,
) -> Judgement {
    let last = last_cpu(machine);
    let line = &readings.kernel_command_line;
    let refused = line.refused_lists(last);
    let mut lists = Vec::new();
    for parameter in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        match line.cpus(parameter, last) {
            Some(cpus) => lists.push((parameter, cpus)),
            None if line.has(parameter) && refused.is_empty() => {
                let value = line.value(parameter).unwrap_or_default();
                return Judgement::is(format!("{parameter}={value} is not a list of CPUs"), false);
            }
            None => {}
        }
    }
    let found: Vec<String> = lists
        .iter()
        .map(|(parameter, cpus)| format!("{parameter} {cpus}"))
        .collect();
    let found = match found.is_empty() {
        true => "nothing".to_owned(),
        false => found.join(", "),
    };
    if !refused.is_empty() {
        let refused = refused.join(" and ");
        let found = format!("the kernel refuses {refused}; in effect: {found}");
        return Judgement::is(found, false);
    }
    let equal = lists.windows(2).all(|pair| pair[0].1 == pair[1].1);
    let covered = lists
        .iter()
        .all(|(_, cpus)| isolation.real_time.is_subset(cpus));
    Judgement::is(found, equal && covered)
}

pub(super) fn first_process(readings: &Readings, isolation: &Isolation) -> Judgement {
    let cpus: Option<CpuSet> = readings.value("/proc/1/status").and_then(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?
            .trim()
            .parse()
            .ok()
    });
    match cpus {
        Some(cpus) => {
            let keeps_off = cpus.intersection(&isolation.real_time).is_empty();
            Judgement::is(cpus.named().to_string(), keeps_off)
        }
        None => Judgement::not_applicable("/proc/1/status cannot be read"),
    }
}

pub(super) fn interrupt_affinity(readings: &Readings, isolation: &Isolation) -> Judgement {
    let movable: Vec<_> = readings
        .interrupts
        .iter()
        .filter(|one| !one.per_cpu && one.managed != Some(true))
        .collect();
    if movable.is_empty() {
        return Judgement::not_applicable("no device has an interrupt that can be moved");
    }
    let locations: Vec<CheckLocation> = movable
        .iter()
        .map(|one| {
            let cpus = one.effective.as_ref().unwrap_or(&one.affinity);
            let path = format!("/proc/irq/{}/smp_affinity_list", one.number);
            // The affinity counts, since the effective affinity can change at any time.
            let clear = one.affinity.intersection(&isolation.real_time).is_empty();
            CheckLocation {
                location: format!("{path} ({})", one.name),
                found: if *cpus == one.affinity {
                    one.affinity.to_string()
                } else {
                    format!("{}, now {cpus}", one.affinity)
                },
                expected: format!("within {}", isolation.housekeeping),
                satisfied: Some(clear),
            }
        })
        .collect();
    let reached = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .count();
    Judgement::Is {
        found: format!(
            "{reached} of {} may arrive on {}",
            locations.len(),
            isolation.real_time.named()
        ),
        satisfied: Some(reached == 0),
        locations,
    }
}

/// Returns the limit on the wakeup latency of real-time CPUs, as `power/pm_qos_resume_latency_us` takes it
/// (Documentation/ABI/testing/sysfs-devices-power), or `None` on an emulated machine, whose idle CPUs leave the
/// real ones to the others.
///
/// In a guest a halt returns the CPU to the hypervisor. How long that takes is unknown to the guest's idle driver, so
/// no idle state is allowed (Documentation/virt/guest-halt-polling.rst).
#[must_use]
pub fn resume_latency_limit(virtualisation: &Virtualisation) -> Option<&'static str> {
    match (virtualisation.emulated, &virtualisation.hypervisor) {
        (true, _) => None,
        (false, Some(_)) => Some("n/a"),
        (false, None) => Some("10"),
    }
}

/// Returns the longest wakeup time that an idle state of a real-time CPU may have.
fn longest_wakeup(machine: &Machine) -> Nanos {
    match resume_latency_limit(&machine.virtualisation) {
        Some("n/a") => Nanos::ZERO,
        _ => DEEP,
    }
}

pub(super) fn idle_latency(machine: &Machine, readings: &Readings) -> Judgement {
    if idle_files(readings, "latency").is_empty() {
        return Judgement::not_applicable("the kernel does not control idle states");
    }
    let longest = longest_wakeup(machine);
    match allowed_idle_states(readings).into_iter().max() {
        Some(state) if state.latency > longest && longest == Nanos::ZERO => Judgement::is(
            format!("{} returns the CPU to the hypervisor", state.name),
            false,
        ),
        Some(state) => Judgement::is(
            format!("{} takes {}", state.name, state.latency),
            state.latency <= longest,
        ),
        None => Judgement::is("no idle state is allowed", true),
    }
}

/// Returns the limits of the real-time CPUs that may enter an idle state with a too long wakeup time.
pub(crate) fn limits_to_lower<'a>(
    machine: &Machine,
    readings: &'a Readings,
) -> Vec<&'a LocationValue> {
    let longest = longest_wakeup(machine);
    let cpus: BTreeSet<&String> = allowed_idle_states(readings)
        .into_iter()
        .filter(|state| state.latency > longest)
        .filter_map(|state| state.keys.first())
        .collect();
    let limits = readings.of(RESUME_LATENCY).iter();
    limits
        .filter(|limit| limit.keys.first().is_some_and(|cpu| cpus.contains(cpu)))
        .collect()
}

/// An idle state that a real-time CPU may enter.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct IdleState<'a> {
    latency: Nanos,
    name: &'a str,
    keys: &'a [String],
}

fn idle_files<'a>(readings: &'a Readings, file: &str) -> Vec<&'a LocationValue> {
    const STATE: &str = "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}";
    readings.of(&format!("{STATE}/{file}")).iter().collect()
}

fn allowed_idle_states(readings: &Readings) -> Vec<IdleState<'_>> {
    let values = |file: &str| -> BTreeMap<&[String], &str> {
        idle_files(readings, file)
            .into_iter()
            .filter_map(|location| match &location.reading {
                Reading::Value(text) => Some((location.keys.as_slice(), text.as_str())),
                Reading::Refused(_) => None,
            })
            .collect()
    };
    let (latencies, disabled, names) = (values("latency"), values("disable"), values("name"));
    let limits: BTreeMap<&str, &str> = readings
        .of(RESUME_LATENCY)
        .iter()
        .filter_map(|location| match &location.reading {
            Reading::Value(text) => Some((location.keys.first()?.as_str(), text.as_str())),
            Reading::Refused(_) => None,
        })
        .collect();
    // 0 sets no limit and `n/a` allows no latency at all (sysfs-devices-power).
    let limit = |keys: &[String]| match keys.first().and_then(|cpu| limits.get(cpu.as_str())) {
        Some(&"n/a") => Some(Nanos::ZERO),
        Some(&"0") | None => None,
        Some(text) => text.parse().ok().map(Nanos::from_micros),
    };
    latencies
        .iter()
        .filter(|(keys, _)| disabled.get(*keys).is_none_or(|value| *value == "0"))
        .filter_map(|(keys, text)| {
            let latency = Nanos::from_micros(text.parse::<u32>().ok()?.into());
            let allowed = limit(keys).is_none_or(|limit| latency <= limit);
            allowed.then(|| IdleState {
                latency,
                name: names.get(*keys).copied().unwrap_or("an idle state"),
                keys,
            })
        })
        .collect()
}

pub(super) fn network_queues(readings: &Readings, isolation: &Isolation) -> Judgement {
    // Count the direction with more queues: each queue can have a separate interrupt.
    let mut queues: BTreeMap<&str, usize> = BTreeMap::new();
    for template in [
        "/sys/class/net/{device}/queues/rx-{queue}/rps_cpus",
        "/sys/class/net/{device}/queues/tx-{queue}/xps_cpus",
    ] {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for location in readings.of(template) {
            if let Some(device) = location.keys.first().filter(|device| *device != "lo") {
                *counts.entry(device).or_default() += 1;
            }
        }
        for (device, count) in counts {
            let most = queues.entry(device).or_default();
            *most = count.max(*most);
        }
    }
    let Some((device, most)) = queues.iter().max_by_key(|(_, count)| **count) else {
        return Judgement::not_applicable("no network interface has queues");
    };
    let rest = isolation.housekeeping.len();
    Judgement::is(
        format!("{most} of {device}, {}", plural(rest, "housekeeping CPU")),
        *most <= rest.max(1),
    )
}

pub(super) fn huge_pages(
    machine: &Machine,
    readings: &Readings,
    isolation: &Isolation,
) -> Judgement {
    const PAGES: &str =
        "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages";
    let locations = readings.of(PAGES);
    if locations.is_empty() {
        return Judgement::not_applicable("the kernel has no huge pages");
    }
    let near: BTreeSet<String> = machine
        .topology
        .nodes
        .iter()
        .filter(|node| !node.cpus.intersection(&isolation.real_time).is_empty())
        .map(|node| node.id.to_string())
        .collect();
    let reserved: Vec<String> = locations
        .iter()
        .filter_map(|location| {
            let (node, size) = (location.keys.first()?, location.keys.get(1)?);
            let Reading::Value(count) = &location.reading else {
                return None;
            };
            (near.contains(node) && count != "0")
                .then(|| format!("{count} of {size} on node {node}"))
        })
        .collect();
    if reserved.is_empty() {
        Judgement::is("none", false)
    } else {
        Judgement::is(reserved.join(", "), true)
    }
}

/// Formats CPUs as a list, or `none`.
pub(super) fn named(cpus: &CpuSet) -> String {
    if cpus.is_empty() {
        "none".to_owned()
    } else {
        cpus.to_string()
    }
}
