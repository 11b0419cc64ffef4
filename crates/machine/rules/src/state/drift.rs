// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drift: parts of the active plan that are not in effect any more.

use std::collections::BTreeMap;

use rampart_model::{
    ActiveDomain, ActivePlan, ActivePlanState, ChangeLocation, ChangeTarget, CpuSet, ObservedGroup,
    Schemata, Severity, StatusFinding, StepKind,
};

use super::{STATE_RULE, StateComparison, StateRule, caches, interrupts};
use crate::Rule;

pub(super) const PLAN_INCOMPLETE: StateRule = StateRule::drift(Rule {
    id: "plan-incomplete",
    severity: Severity::Error,
    title: "The plan is applied completely",
    reason: "A plan that is begun or waits for a restart isolates nothing reliably.",
    ..STATE_RULE
});

pub(super) const KERNEL_RESTARTED: StateRule = StateRule::isolation(Rule {
    id: "kernel-restarted",
    severity: Severity::Error,
    title: "The kernel has run since the plan was applied",
    reason: "A restart removes control groups, affinities and settings.",
    ..STATE_RULE
});

pub(super) const PLAN_EDITED: StateRule = StateRule::drift(Rule {
    id: "plan-edited",
    severity: Severity::Warning,
    title: "The plan's file has the text that was applied",
    reason: "The machine still has the settings of the old text.",
    ..STATE_RULE
});

pub(super) const DOMAIN_CPU_OFFLINE: StateRule = StateRule::isolation(Rule {
    id: "domain-cpu-offline",
    severity: Severity::Error,
    title: "The CPUs of every domain are online",
    reason: "The domain has fewer CPUs than planned.",
    ..STATE_RULE
});

pub(super) const GROUP_GONE: StateRule = StateRule::isolation(Rule {
    id: "group-gone",
    severity: Severity::Error,
    title: "The control group of every domain exists",
    reason: "The group is the domain's isolation.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst",
    ..STATE_RULE
});

pub(super) const GROUP_CPUS: StateRule = StateRule::isolation(Rule {
    id: "group-cpus",
    severity: Severity::Error,
    title: "The control group of every domain has the domain's CPUs",
    reason: "The group is the domain's isolation.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst",
    ..STATE_RULE
});

pub(super) const PARTITION_INVALID: StateRule = StateRule::isolation(Rule {
    id: "partition-invalid",
    severity: Severity::Error,
    title: "The partition of every domain is valid",
    reason: "The kernel balances tasks over an invalid partition again.",
    source: "Linux Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition",
    ..STATE_RULE
});

pub(super) const VALUE_CHANGED: StateRule = StateRule::drift(Rule {
    id: "value-changed",
    severity: Severity::Warning,
    title: "Every setting has the value that was written",
    reason: "Other software or a person overwrote it; the knob of the step explains its effect.",
    ..STATE_RULE
});

/// Returns the commands that restore isolation and settings.
fn apply_again(plan: &ActivePlan) -> String {
    let then = if plan.file.starts_with('/') {
        " &&"
    } else {
        ", then"
    };
    format!("rampart release{then} {}", apply(plan))
}

/// Returns the command that applies the plan, on the machine that has its file.
fn apply(plan: &ActivePlan) -> String {
    match plan.file.split_once(':') {
        Some((host, path)) if !host.contains('/') => {
            format!("on {host} rampart apply {path} --on this machine")
        }
        _ => format!("rampart apply {}", plan.file),
    }
}

pub(super) fn check(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &mut Vec<StatusFinding>,
) {
    if !is_complete(comparison, plan, findings) {
        // A finding for every setting would add nothing.
        return;
    }
    edited(comparison, plan, findings);
    offline(comparison, plan, findings);
    for domain in &plan.domains {
        isolation(comparison, plan, domain, findings);
    }
    values(comparison, plan, findings);
    caches::check(comparison, plan, findings);
    interrupts::check(comparison, plan, findings);
}

/// Returns whether the plan is applied completely on this kernel.
fn is_complete(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &mut Vec<StatusFinding>,
) -> bool {
    let command = apply(plan);
    let other_boot = comparison
        .later
        .boot
        .as_ref()
        .is_some_and(|boot| *boot != plan.boot);
    let (rule, what, present, fix) = match (plan.state, other_boot) {
        (ActivePlanState::Active, false) => return true,
        (ActivePlanState::AwaitsRestart, true) => (
            PLAN_INCOMPLETE,
            "the machine was restarted, and the plan is not applied completely yet",
            "restarted",
            command,
        ),
        (ActivePlanState::AwaitsRestart, false) => (
            PLAN_INCOMPLETE,
            "the kernel command line is written, and the machine is not restarted yet",
            "awaits a restart",
            format!("restart the machine, then {command}"),
        ),
        (_, true) => (
            KERNEL_RESTARTED,
            "the kernel was restarted after the plan was applied, so none of it is in effect",
            "another boot",
            apply_again(plan),
        ),
        (ActivePlanState::Begun, false) => (
            PLAN_INCOMPLETE,
            "the plan is being applied, or its application was interrupted",
            "begun",
            "wait if another rampart applies it, else rampart release".to_owned(),
        ),
    };
    findings.push(
        rule.finding(None, plan.file.clone(), what)
            .values(present, "applied completely on this boot")
            .fix(fix),
    );
    false
}

fn edited(comparison: &StateComparison<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let what = match &comparison.later.plan_text {
        Some(text) if *text == plan.text => return,
        Some(_) => "the plan was edited after it was applied",
        None if comparison.later.plan_gone => "the file of the plan is gone",
        // The file cannot be read, or its path was relative to an unknown directory.
        None => return,
    };
    let present = if comparison.later.plan_gone {
        "no file"
    } else {
        "another text"
    };
    findings.push(
        PLAN_EDITED
            .finding(None, plan.file.clone(), what)
            .values(present, "the text that was applied")
            .fix(apply_again(plan)),
    );
}

fn offline(comparison: &StateComparison<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    // CPUs of a running cell are offline in Linux.
    let of_linux = plan
        .domains
        .iter()
        .filter(|domain| !domain.kind.leaves_linux());
    for domain in of_linux {
        let gone = domain.cpus.difference(&comparison.later.online);
        for cpu in gone.iter() {
            findings.push(
                DOMAIN_CPU_OFFLINE
                    .finding(
                        Some(&domain.name),
                        format!("CPU {cpu}"),
                        "a CPU of the domain is offline",
                    )
                    .values("offline", "online")
                    .fix(format!(
                        "echo 1 > /sys/devices/system/cpu/cpu{cpu}/online && {}",
                        apply_again(plan)
                    )),
            );
        }
    }
}

fn isolation(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    domain: &ActiveDomain,
    findings: &mut Vec<StatusFinding>,
) {
    let Some(path) = &domain.group else { return };
    let nothing = ObservedGroup::default();
    let group = comparison.later.groups.get(path).unwrap_or(&nothing);
    let mut report =
        |rule: StateRule, location: String, what: &str, found: &str, expected: &str| {
            findings.push(
                rule.finding(Some(&domain.name), location, what)
                    .values(found, expected)
                    .fix(apply_again(plan)),
            );
        };
    if !group.exists {
        report(
            GROUP_GONE,
            path.clone(),
            "the control group of the domain is gone",
            "no group",
            "the domain's group",
        );
        return;
    }
    // Offline CPUs have a finding of their own.
    let expected = domain.cpus.intersection(&comparison.later.online);
    let own = group.cpus.as_ref().filter(|cpus| !cpus.is_empty());
    let claimed = own.filter(|cpus| **cpus != domain.cpus);
    let had = group.effective.as_ref().filter(|cpus| **cpus != expected);
    if let Some((file, cpus)) = claimed
        .map(|cpus| ("cpuset.cpus", cpus))
        .or(had.map(|cpus| ("effective CPUs", cpus)))
    {
        report(
            GROUP_CPUS,
            format!("{path}, {file}"),
            "the control group of the domain has other CPUs",
            &cpus.to_string(),
            &domain.cpus.to_string(),
        );
    }
    if let (Some(wanted), Some(present)) = (&domain.partition, &group.partition)
        && wanted != present
    {
        report(
            PARTITION_INVALID,
            format!("{path}/cpuset.cpus.partition"),
            "the partition is invalid",
            present,
            wanted,
        );
    }
}

fn path(target: &ChangeTarget) -> Option<&str> {
    match target {
        ChangeTarget::File(path)
        | ChangeTarget::CpuListFile(path)
        | ChangeTarget::CpuMaskFile(path)
        | ChangeTarget::Schemata(path) => Some(path),
        ChangeTarget::ThreadPolicy(_)
        | ChangeTarget::ThreadAffinity(_)
        | ChangeTarget::Service(_) => None,
    }
}

/// Returns the number of the interrupt that a target is the affinity of.
pub(super) fn interrupt_of(target: &ChangeTarget) -> Option<u32> {
    let rest = path(target)?.strip_prefix("/proc/irq/")?;
    rest.split('/').next()?.parse().ok()
}

/// Returns the value written to each location, with its step and its fix; the last of several writes.
pub(super) fn written(plan: &ActivePlan) -> Vec<(&str, &ChangeLocation, Option<&str>)> {
    let mut all: Vec<(&str, &ChangeLocation, Option<&str>)> = Vec::new();
    for step in plan.changes.to_apply() {
        if step.kind == StepKind::KernelCommandLine {
            continue;
        }
        for location in &step.locations {
            all.retain(|(_, other, _)| other.target != location.target);
            let fix = step.fix.as_deref().and_then(|fix| fix.lines().next());
            all.push((&step.name, location, fix));
        }
    }
    all
}

fn values(comparison: &StateComparison<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let present: BTreeMap<&ChangeTarget, Option<&str>> = comparison
        .later
        .values
        .iter()
        .map(|(target, value)| (target, value.as_deref()))
        .collect();
    for (name, location, fix) in written(plan) {
        // Interrupts and groups have rules of their own.
        let in_group = plan
            .domains
            .iter()
            .filter_map(|domain| domain.group.as_deref())
            .any(|group| path(&location.target).is_some_and(|path| path.starts_with(group)));
        if in_group || interrupt_of(&location.target).is_some() {
            continue;
        }
        let Some(value) = present.get(&location.target) else {
            continue;
        };
        let found = match (value, &location.target) {
            (Some(value), _) if is_same(&location.target, &location.value, value) => continue,
            (Some(value), _) => value,
            // The thread has ended.
            (None, ChangeTarget::ThreadPolicy(_) | ChangeTarget::ThreadAffinity(_)) => continue,
            (None, _) => "no file",
        };
        // Shares of several domains are taken from the same default group.
        let is_reported = findings.iter().any(|earlier| {
            earlier.rule() == VALUE_CHANGED.rule.id && earlier.finding.location == location.location
        });
        if is_reported {
            continue;
        }
        let echo =
            || path(&location.target).map(|path| format!("echo {} > {path}", location.value));
        findings.push(
            VALUE_CHANGED
                .finding(
                    plan.domain(name).map(|domain| domain.name.as_str()),
                    location.location.clone(),
                    format!("`{name}` has another value than was written"),
                )
                .values(found, location.value.clone())
                .fix(
                    fix.map(str::to_owned)
                        .or_else(echo)
                        .unwrap_or_else(|| apply_again(plan)),
                ),
        );
    }
}

/// Returns whether a location still has the value that was written. Compares CPUs as sets, choices
/// by the marked word, the rest as text.
fn is_same(target: &ChangeTarget, written: &str, present: &str) -> bool {
    let (written, present) = (written.trim(), present.trim());
    if written == present {
        return true;
    }
    match target {
        ChangeTarget::CpuListFile(_) | ChangeTarget::ThreadAffinity(_) => {
            written.parse::<CpuSet>().ok() == present.parse().ok()
        }
        // The change list has CPUs as a list, whatever the file's notation.
        ChangeTarget::CpuMaskFile(_) => CpuSet::from_mask(present).is_ok_and(|present| {
            written.parse().ok().as_ref() == Some(&present)
                || CpuSet::from_mask(written).ok().as_ref() == Some(&present)
        }),
        ChangeTarget::ThreadPolicy(_) => is_deadline(written, present),
        ChangeTarget::Service(_) => false,
        // The file has lines of other resources too.
        ChangeTarget::Schemata(_) => {
            let written = Schemata::parse(written);
            Schemata::parse(present).about(&written) == written
        }
        ChangeTarget::File(_) => {
            let marked = present
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'))
                .is_some_and(|(word, _)| word == written);
            marked || is_same_flag(written, present)
        }
    }
}

/// Returns whether both texts are `SCHED_DEADLINE`. Observations do not contain its times.
fn is_deadline(written: &str, present: &str) -> bool {
    written.starts_with("deadline") && present.starts_with("deadline")
}

/// Returns whether both texts are the same flag of a module. The kernel shows flags as letters
/// (kernel/params.c).
fn is_same_flag(written: &str, present: &str) -> bool {
    matches!(
        (written, present),
        ("1" | "y", "Y") | ("0" | "n", "N") | ("Y", "1") | ("N", "0")
    )
}
