// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about the kernel, control groups and limits.

use rampart_model::{CheckLocation, Machine, PreemptionModel};

use super::{Judgement, deviations};
use crate::Readings;

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

/// Judges whether a group without a budget is refused real-time policies. Without a limit for the machine the kernel
/// does not look at budgets (kernel/sched/core.c, `__sched_setscheduler`).
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
    if readings.real_time_is_unlimited() {
        return Judgement::is("on, without a limit (sched_rt_runtime_us is -1)", true);
    }
    // From 6.16 on it can be disabled at boot.
    let off = match readings.kernel_command_line.value("rt_group_sched") {
        // kstrtobool() of lib/kstrtox.c, which reads as few letters as it needs.
        Some(value) => ["0", "n", "f", "of"]
            .iter()
            .any(|off| value.to_lowercase().starts_with(off)),
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

/// Options that make the kernel's own code slower on every path, besides those with a knob of their own
/// (lib/Kconfig.debug and the files that it includes).
const DEBUG_OPTIONS: [&str; 16] = [
    "CONFIG_DEBUG_ATOMIC_SLEEP",
    "CONFIG_DEBUG_KMEMLEAK",
    "CONFIG_DEBUG_LOCK_ALLOC",
    "CONFIG_DEBUG_MUTEXES",
    "CONFIG_DEBUG_OBJECTS",
    "CONFIG_DEBUG_PAGEALLOC_ENABLE_DEFAULT",
    "CONFIG_DEBUG_PREEMPT",
    "CONFIG_DEBUG_RT_MUTEXES",
    "CONFIG_DEBUG_SPINLOCK",
    "CONFIG_IRQSOFF_TRACER",
    "CONFIG_KCSAN",
    "CONFIG_LATENCYTOP",
    "CONFIG_LOCK_STAT",
    "CONFIG_PREEMPT_TRACER",
    "CONFIG_RCU_TORTURE_TEST",
    "CONFIG_SLUB_DEBUG_ON",
];

pub(super) fn debug_options(readings: &Readings) -> Judgement {
    if readings.options.is_none() {
        return Judgement::Unread(crate::Unread::KernelOptions);
    }
    let built = DEBUG_OPTIONS
        .into_iter()
        .filter(|option| readings.option(option) == Some(true));
    deviations(
        built.map(|option| (format!("kernel option ({option})"), option.to_owned())),
        "none",
        "not built",
    )
}

/// Modules of Rampart, which are built outside the kernel too.
const OWN_MODULES: [&str; 4] = ["blocksys", "detach", "rampart", "rampart_net"];

/// Judges modules by their taint in the last field of `/proc/modules`
/// (Documentation/admin-guide/tainted-kernels.rst): `P` without the source, `F` forced to load, `O` built outside the
/// kernel, which alone is reported and not judged.
pub(super) fn foreign_modules(readings: &Readings) -> Judgement {
    let Some(text) = readings.value("/proc/modules") else {
        return Judgement::not_applicable("the kernel has no modules");
    };
    let mut foreign = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(name), Some(taints)) = (words.next(), words.next_back()) else {
            continue;
        };
        let Some(taints) = taints
            .strip_prefix('(')
            .and_then(|one| one.strip_suffix(')'))
        else {
            continue;
        };
        if OWN_MODULES.contains(&name) {
            continue;
        }
        let closed = taints.contains(['P', 'F']);
        if closed || taints.contains('O') {
            foreign.push(CheckLocation {
                location: format!("/proc/modules ({name})"),
                found: taints.to_owned(),
                expected: "a module of the kernel".to_owned(),
                satisfied: closed.then_some(false),
            });
        }
    }
    if foreign.is_empty() {
        return Judgement::is("none", true);
    }
    let closed = foreign.iter().any(|one| one.satisfied == Some(false));
    let names: Vec<&str> = foreign
        .iter()
        .filter(|one| !closed || one.satisfied == Some(false))
        .filter_map(|one| one.location.split_once(" (")?.1.strip_suffix(')'))
        .collect();
    Judgement::Is {
        found: names.join(", "),
        satisfied: closed.then_some(false),
        locations: foreign,
    }
}
