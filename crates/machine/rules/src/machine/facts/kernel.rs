// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about the kernel, control groups and limits.

use rampart_model::{CheckLocation, Machine, PreemptionModel};

use super::Judgement;
use crate::{Reading, Readings};

const fn word(model: PreemptionModel) -> &'static str {
    match model {
        PreemptionModel::None => "none",
        PreemptionModel::Voluntary => "voluntary",
        PreemptionModel::Full => "full",
        PreemptionModel::Lazy => "lazy",
        PreemptionModel::RealTime => "PREEMPT_RT",
        PreemptionModel::Dynamic => "dynamic, the mode cannot be read",
        PreemptionModel::Unknown => "unknown",
    }
}

pub(super) fn preemption(machine: &Machine) -> Judgement {
    Judgement::is(
        word(machine.preemption),
        machine.preemption == PreemptionModel::RealTime,
    )
}

pub(super) fn preemption_mode(machine: &Machine) -> Judgement {
    Judgement::is(
        word(machine.preemption),
        machine.preemption == PreemptionModel::Full,
    )
}

pub(super) fn mitigations(machine: &Machine) -> Judgement {
    if machine.mitigations.is_empty() {
        return Judgement::not_applicable("the kernel does not report CPU vulnerabilities");
    }
    let count = |begin: &str| {
        machine
            .mitigations
            .iter()
            .filter(|(_, state)| state.starts_with(begin))
            .count()
    };
    Judgement::informational(format!(
        "{} mitigated, {} vulnerable",
        count("Mitigation"),
        count("Vulnerable")
    ))
}

pub(super) fn group_scheduling(machine: &Machine, readings: &Readings) -> Judgement {
    let built = match readings.option("CONFIG_RT_GROUP_SCHED") {
        Some(built) => built,
        None => match machine.throttling.group_scheduling {
            Some(on) => on,
            None => return Judgement::Unread(crate::Unread::KernelOptions),
        },
    };
    if !built {
        return Judgement::is("off", true);
    }
    // From 6.16 on it can be disabled at boot.
    let off = match readings.kernel_command_line.value("rt_group_sched") {
        Some(value) => matches!(value, "0" | "n" | "off"),
        None => readings.option("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED") == Some(true),
    };
    Judgement::is(if off { "off at boot" } else { "on" }, off)
}

pub(super) fn locked_memory(readings: &Readings) -> Judgement {
    match readings.limits {
        None => Judgement::not_applicable("a recorded machine has no calling process"),
        Some(limits) if limits.privileged => {
            Judgement::is("no limit applies to this process", true)
        }
        Some(limits) => match limits.locked_memory {
            None => Judgement::is("no limit", true),
            Some(bytes) => Judgement::is(format!("{} KiB", bytes / 1024), false),
        },
    }
}

pub(super) fn real_time_priority(readings: &Readings) -> Judgement {
    match readings.limits {
        None => Judgement::not_applicable("a recorded machine has no calling process"),
        Some(limits) if limits.privileged => {
            Judgement::is("no limit applies to this process", true)
        }
        Some(limits) => match limits.real_time_priority {
            None => Judgement::is("no limit", true),
            Some(priority) => Judgement::is(priority.to_string(), priority >= 99),
        },
    }
}

pub(super) fn swap(readings: &Readings) -> Judgement {
    let Some(text) = readings.value("/proc/swaps") else {
        return Judgement::not_applicable("the kernel cannot swap");
    };
    // The first line is the heading.
    let used: Vec<&str> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if used.is_empty() {
        Judgement::is("none", true)
    } else {
        Judgement::is(used.join(", "), false)
    }
}

pub(super) fn control_groups(machine: &Machine) -> Judgement {
    Judgement::is(
        machine.control_groups.as_str(),
        machine.control_groups == "v2",
    )
}

pub(super) fn partitions(readings: &Readings) -> Judgement {
    let locations: Vec<CheckLocation> = readings
        .of("/sys/fs/cgroup/{group}/cpuset.cpus.partition")
        .iter()
        .filter_map(|location| match &location.reading {
            Reading::Value(mode) if mode != "member" => Some(CheckLocation {
                location: location.path.clone(),
                found: mode.clone(),
                expected: "not invalid".to_owned(),
                satisfied: Some(!mode.contains("invalid")),
            }),
            _ => None,
        })
        .collect();
    if locations.is_empty() {
        return Judgement::is("no partition", true);
    }
    let invalid = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .count();
    Judgement::Is {
        found: format!("{invalid} of {} invalid", locations.len()),
        satisfied: Some(invalid == 0),
        locations,
    }
}
