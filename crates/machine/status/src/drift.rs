// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What does not hold any more of a plan that was applied: the plan itself, its walls, its settings.

use std::collections::BTreeMap;

use rampart_model::{
    ActiveDomain, ActivePlan, ActivePlanState, ChangeLocation, ChangeTarget, CpuSet, Finding,
    ObservedGroup, Schemata, Severity, StatusFinding, StatusFindingKind, StepKind,
};

use crate::seen::Seen;
use crate::{caches, finding, interrupts};

/// What makes a wall or a setting anew.
const AGAIN: &str = "rampart release, then rampart apply the plan again";

pub(crate) fn find(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    if !whole(seen, plan, findings) {
        // Nothing of it can be expected to stand, and saying so for each place tells nothing.
        return;
    }
    edited(seen, plan, findings);
    offline(seen, plan, findings);
    for domain in &plan.domains {
        isolation(seen, domain, findings);
    }
    values(seen, plan, findings);
    caches::find(seen, plan, findings);
    interrupts::find(seen, plan, findings);
}

/// Whether the plan stands on this kernel.
fn whole(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) -> bool {
    let apply = format!("rampart apply {}", plan.file);
    let other_boot = seen
        .later
        .boot
        .as_ref()
        .is_some_and(|boot| *boot != plan.boot);
    let (kind, what, present, fix) = match (plan.state, other_boot) {
        (ActivePlanState::Active, false) => return true,
        (ActivePlanState::AwaitsRestart, true) => (
            StatusFindingKind::NotWhole,
            "the machine was restarted, and the plan is not applied to its end yet",
            "restarted",
            apply,
        ),
        (ActivePlanState::AwaitsRestart, false) => (
            StatusFindingKind::NotWhole,
            "the kernel command line is written, and the machine was not restarted yet",
            "awaits a restart",
            format!("restart the machine, then {apply}"),
        ),
        (_, true) => (
            StatusFindingKind::KernelRestarted,
            "the kernel was started anew since the plan was applied, so nothing of it holds",
            "another boot",
            format!("rampart release, then {apply}"),
        ),
        (ActivePlanState::Begun, false) => (
            StatusFindingKind::NotWhole,
            "the plan is being applied, or that was broken off",
            "begun",
            "wait if another rampart is at it, else rampart release".to_owned(),
        ),
    };
    findings.push(finding(
        kind,
        None,
        Finding::new(Severity::Error, plan.file.clone(), what)
            .values(present, "applied to its end on this boot")
            .fix(fix),
    ));
    false
}

fn edited(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let what = match &seen.later.plan_text {
        Some(text) if *text == plan.text => return,
        Some(_) => "the plan was edited since it was applied",
        None if seen.later.plan_gone => "the file of the plan is gone",
        // It may not be read, or was named from a directory that nobody knows any more.
        None => return,
    };
    findings.push(finding(
        StatusFindingKind::PlanEdited,
        None,
        Finding::new(Severity::Warning, plan.file.clone(), what)
            .values(
                if seen.later.plan_gone {
                    "not there"
                } else {
                    "another text"
                },
                "the text that was applied",
            )
            .fix(format!(
                "rampart release, then rampart apply {}; what stands is the old text",
                plan.file
            )),
    ));
}

fn offline(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    // CPUs of a cell that is up are not Linux's.
    let of_linux = plan
        .domains
        .iter()
        .filter(|domain| !domain.kind.leaves_linux());
    for domain in of_linux {
        let gone = domain.cpus.difference(&seen.later.online);
        for cpu in gone.iter() {
            findings.push(finding(
                StatusFindingKind::CpuOffline,
                Some(&domain.name),
                Finding::new(
                    Severity::Error,
                    format!("CPU {cpu}"),
                    "a CPU of the domain is offline",
                )
                .values("offline", "online")
                .fix(format!(
                    "echo 1 > /sys/devices/system/cpu/cpu{cpu}/online, then {AGAIN}"
                )),
            ));
        }
    }
}

fn isolation(seen: &Seen<'_>, domain: &ActiveDomain, findings: &mut Vec<StatusFinding>) {
    let Some(path) = &domain.group else { return };
    let nothing = ObservedGroup::default();
    let group = seen.later.groups.get(path).unwrap_or(&nothing);
    let mut problem = |kind, location: String, what: &str, present: &str, needed: &str| {
        findings.push(finding(
            kind,
            Some(&domain.name),
            Finding::new(Severity::Error, location, what)
                .values(present, needed)
                .fix(AGAIN),
        ));
    };
    if !group.exists {
        problem(
            StatusFindingKind::GroupGone,
            path.clone(),
            "the control group of the domain is gone",
            "not there",
            "the domain's wall",
        );
        return;
    }
    // A CPU that went offline is told as such.
    let expected = domain.cpus.intersection(&seen.later.online);
    let own = group.cpus.as_ref().filter(|cpus| !cpus.is_empty());
    let claimed = own.filter(|cpus| **cpus != domain.cpus);
    let had = group.effective.as_ref().filter(|cpus| **cpus != expected);
    if let Some((file, cpus)) = claimed
        .map(|cpus| ("cpuset.cpus", cpus))
        .or(had.map(|cpus| ("effective CPUs", cpus)))
    {
        problem(
            StatusFindingKind::GroupCpus,
            format!("{path}, {file}"),
            "the domain's control group has other CPUs",
            &cpus.to_string(),
            &domain.cpus.to_string(),
        );
    }
    if let (Some(wanted), Some(present)) = (&domain.partition, &group.partition)
        && wanted != present
    {
        problem(
            StatusFindingKind::PartitionInvalid,
            format!("{path}/cpuset.cpus.partition"),
            "the kernel does not keep the partition up",
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

pub(crate) fn interrupt_of(target: &ChangeTarget) -> Option<u32> {
    let rest = path(target)?.strip_prefix("/proc/irq/")?;
    rest.split('/').next()?.parse().ok()
}

/// What was written to each place; where two steps wrote, the last counts.
pub(crate) fn written(plan: &ActivePlan) -> Vec<(&str, &ChangeLocation, Option<&str>)> {
    let mut all: Vec<(&str, &ChangeLocation, Option<&str>)> = Vec::new();
    for step in plan.changes.to_apply() {
        if step.kind == StepKind::KernelCommandLine {
            continue;
        }
        for location in &step.locations {
            all.retain(|(_, other, _)| other.target != location.target);
            all.push((&step.name, location, step.fix.as_deref()));
        }
    }
    all
}

fn values(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    let present: BTreeMap<&ChangeTarget, Option<&str>> = seen
        .later
        .values
        .iter()
        .map(|(target, value)| (target, value.as_deref()))
        .collect();
    for (name, location, fix) in written(plan) {
        // Interrupts and groups have findings of their own.
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
            (Some(value), _) if same(&location.target, &location.value, value) => continue,
            (Some(value), _) => value,
            // A thread that ended took its setting along.
            (None, ChangeTarget::ThreadPolicy(_) | ChangeTarget::ThreadAffinity(_)) => continue,
            (None, _) => "not there",
        };
        let kind = StatusFindingKind::ValueChanged;
        let all = findings.iter();
        // Several domains' shares are taken from the same default group.
        if all
            .clone()
            .any(|told| told.kind == kind && told.finding.location == location.location)
        {
            continue;
        }
        findings.push(finding(
            kind,
            plan.domain(name).map(|domain| domain.name.as_str()),
            Finding::new(
                Severity::Warning,
                location.location.clone(),
                format!("`{name}` is not what was written"),
            )
            .values(found, location.value.clone())
            .fix(
                fix.map(str::to_owned)
                    .or_else(|| {
                        path(&location.target)
                            .map(|path| format!("echo {} > {path}", location.value))
                    })
                    .unwrap_or_else(|| AGAIN.to_owned()),
            ),
        ));
    }
}

/// Whether a place still says what was written: CPUs as sets, choices by the marked word, the rest
/// as text.
pub(crate) fn same(target: &ChangeTarget, written: &str, present: &str) -> bool {
    let (written, present) = (written.trim(), present.trim());
    if written == present {
        return true;
    }
    match target {
        ChangeTarget::CpuListFile(_) | ChangeTarget::ThreadAffinity(_) => {
            written.parse::<CpuSet>().ok() == present.parse().ok()
        }
        // The contract writes CPUs as a list whatever the file's notation.
        ChangeTarget::CpuMaskFile(_) => CpuSet::from_mask(present).is_ok_and(|present| {
            written.parse().ok().as_ref() == Some(&present)
                || CpuSet::from_mask(written).ok().as_ref() == Some(&present)
        }),
        ChangeTarget::ThreadPolicy(_) => same_kind(written, present),
        ChangeTarget::Service(_) => false,
        // A file has lines of other resources as well.
        ChangeTarget::Schemata(_) => {
            let written = Schemata::parse(written);
            Schemata::parse(present).about(&written) == written
        }
        ChangeTarget::File(_) => {
            let marked = present
                .split_once('[')
                .and_then(|(_, rest)| rest.split_once(']'))
                .is_some_and(|(word, _)| word == written);
            marked || same_flag(written, present)
        }
    }
}

/// The kernel does not tell the figures of `SCHED_DEADLINE` where all policies are told.
fn same_kind(written: &str, present: &str) -> bool {
    written.starts_with("deadline") && present.starts_with("deadline")
}

/// Flags of modules are read back as letters (kernel/params.c).
fn same_flag(written: &str, present: &str) -> bool {
    matches!(
        (written, present),
        ("1" | "y", "Y") | ("0" | "n", "N") | ("Y", "1") | ("N", "0")
    )
}
