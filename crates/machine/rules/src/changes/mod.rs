// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes that applying a plan makes: the isolation of its domains and every knob without the
//! expected value, in the order of their application.

pub(crate) mod caches;
pub(crate) mod division;
mod division_ways;
mod huge_pages;

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ChangeList, ChangeLocation, ChangeStep, ChangeTarget, CpuId,
    CpuRole, CpuSet, DomainCpus, KnobAction, KnobChoice, KnobEffect, ResolvedDomain, ResolvedPlan,
    StepAction, StepKind,
};

use crate::choice::SET_WITH_ISOLATION;
use crate::machine::assess::assess;
use crate::machine::check::Subject;
use crate::machine::compare::{cpus, expected_text, marked, satisfies, to_write};
use crate::machine::facts::{Judgement, limits_to_lower, resume_latency_limit};
use crate::machine::fix::fix;
use crate::{Expected, Fact, Format, Isolation, Knob, Location, Reading, is_safety_net};

/// The file of the driver of detached threads with the owners of CPUs: CPU:USER, separated by spaces, or `none`.
pub const DETACHED_OWNERS: &str = "/sys/devices/virtual/misc/rampart-detach/owners";

/// Returns the changes that applying `plan` to a machine makes, including those that take effect
/// after a restart.
#[must_use]
pub fn change_list(
    plan: &ResolvedPlan,
    subject: Subject<'_>,
    isolation: &Isolation,
    tool_version: &str,
) -> ChangeList {
    let mut steps: Vec<ChangeStep> = offline(plan)
        .into_iter()
        .chain(isolation_steps(plan))
        .collect();
    steps.extend(owners(plan));
    steps.extend(caches::steps(plan));
    let pages = huge_pages::steps(plan, subject.readings);
    let mut knobs: Vec<ChangeStep> = crate::all()
        // The steps for huge pages of the plan's guests replace those of the catalogue.
        .filter(|knob| pages.iter().all(|step| step.name != knob.name))
        .filter_map(|knob| step(knob, plan, &subject, isolation))
        .collect();
    knobs.extend(pages);
    // Disruptive steps come last: if an earlier step fails, they have not disturbed anything.
    knobs.sort_by_key(|step| (step.kind, step.disruptive.is_some()));
    write_once(&mut knobs);
    let boot_arguments = boot_arguments(plan, &knobs);
    steps.extend(knobs);
    ChangeList {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: tool_version.to_owned(),
        steps,
        boot_arguments,
    }
}

/// Removes locations that an earlier step writes. Knobs overlap: the threads of one knob may be
/// included in a knob for all kernel threads.
fn write_once(steps: &mut [ChangeStep]) {
    let mut written: Vec<(ChangeTarget, String)> = Vec::new();
    for step in steps {
        if step.action != StepAction::Apply || step.locations.is_empty() {
            continue;
        }
        let earlier = |location: &ChangeLocation| {
            let same = |(target, _): &&(ChangeTarget, String)| *target == location.target;
            written.iter().find(same).map(|(_, name)| name.clone())
        };
        let first = step.locations.first().and_then(earlier);
        step.locations
            .retain(|location| earlier(location).is_none());
        if let (true, Some(name)) = (step.locations.is_empty(), first) {
            step.why = format!("with {name}");
        }
        let own = step
            .locations
            .iter()
            .map(|location| location.target.clone());
        written.extend(own.map(|target| (target, step.name.clone())));
    }
}

/// Returns the step that takes the second threads of cores offline.
fn offline(plan: &ResolvedPlan) -> Option<ChangeStep> {
    let cpus = plan.with_role(CpuRole::Offline);
    (!cpus.is_empty()).then(|| ChangeStep {
        kind: StepKind::Knob,
        name: "simultaneous-multithreading".to_owned(),
        title: "second threads of cores".to_owned(),
        action: StepAction::Apply,
        why: "smt = \"off\" in the plan".to_owned(),
        present: "online".to_owned(),
        wanted: format!("{} offline", cpus.named()),
        locations: cpus
            .iter()
            .map(|cpu| {
                let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
                ChangeLocation {
                    location: path.clone(),
                    target: ChangeTarget::File(path),
                    present: "1".to_owned(),
                    value: "0".to_owned(),
                }
            })
            .collect(),
        disruptive: Some("moves the threads on these CPUs to others".to_owned()),
        fix: None,
        source: "Documentation/core-api/cpu_hotplug.rst".to_owned(),
    })
}

fn isolation_steps(plan: &ResolvedPlan) -> Vec<ChangeStep> {
    plan.domains
        .iter()
        // The hypervisor isolates a cell, while the cell is up.
        .filter(|domain| domain.kind.properties().cpus == DomainCpus::Shielded)
        .filter(|domain| !domain.cpus.is_empty())
        .map(|domain| ChangeStep {
            kind: StepKind::Isolation,
            name: domain.name.clone(),
            title: format!("isolation of {}", domain.name),
            action: StepAction::Apply,
            why: String::new(),
            present: "shared".to_owned(),
            wanted: format!("{} exclusive", domain.cpus.named()),
            locations: Vec::new(),
            disruptive: Some("moves the threads on these CPUs to others".to_owned()),
            fix: None,
            source: "Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpusets.rst".to_owned(),
        })
        .collect()
}

/// Returns the step that lets users take the CPUs of their domains.
fn owners(plan: &ResolvedPlan) -> Option<ChangeStep> {
    let with_owner = |domain: &ResolvedDomain| Some((domain.owner?, domain.cpus.clone()));
    let mut entries: Vec<(CpuId, u32)> = plan
        .domains
        .iter()
        .filter_map(with_owner)
        .flat_map(|(owner, cpus)| cpus.iter().map(|cpu| (cpu, owner)).collect::<Vec<_>>())
        .collect();
    entries.sort_unstable();
    let entries: Vec<String> = entries
        .iter()
        .map(|(cpu, owner)| format!("{cpu}:{owner}"))
        .collect();
    (!entries.is_empty()).then(|| ChangeStep {
        kind: StepKind::Knob,
        name: "detached-owners".to_owned(),
        title: "users who may take CPUs for detached threads".to_owned(),
        action: StepAction::Apply,
        why: "owner in the plan".to_owned(),
        present: "only root".to_owned(),
        wanted: entries.join(" "),
        locations: vec![ChangeLocation {
            location: DETACHED_OWNERS.to_owned(),
            target: ChangeTarget::File(DETACHED_OWNERS.to_owned()),
            present: "none".to_owned(),
            value: entries.join(" "),
        }],
        disruptive: None,
        fix: None,
        source: "Rampart: docs/detached.md".to_owned(),
    })
}

/// The expected value to write; `None` to write the present value again.
type Aim = Option<Expected>;

fn step(
    knob: &Knob,
    plan: &ResolvedPlan,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Option<ChangeStep> {
    let named = plan.host.get(knob.name);
    let choice = crate::chosen(&plan.host, knob.name);
    let wanted = knob.expected_by(isolation);
    let (present, satisfied, found) = match assess(knob, subject, isolation) {
        Judgement::Is {
            found: present,
            satisfied,
            locations,
        } => (present, satisfied, locations),
        Judgement::NotApplicable(_) | Judgement::Unread(_) => return None,
    };
    let mut step = ChangeStep {
        kind: StepKind::Knob,
        name: knob.name.to_owned(),
        title: knob.title.to_owned(),
        action: StepAction::AsWanted,
        why: String::new(),
        present,
        wanted: expected_text(wanted, Some(isolation)),
        locations: Vec::new(),
        disruptive: knob.disruptive.map(str::to_owned),
        fix: None,
        source: knob.source.to_owned(),
    };
    // An informational knob changes only if the plan names a value.
    if satisfied.filter(|_| wanted != Expected::Informational)? {
        // A knob that the plan skips or leaves to other software has that action even if it is as
        // expected.
        if choice.is_some_and(|choice| choice.action != KnobAction::Apply) {
            return Some(step);
        }
        match boot_argument(knob, wanted, isolation) {
            Some(argument) => {
                step.kind = StepKind::KernelCommandLine;
                step.why = present_argument(&argument, plan, subject).unwrap_or(argument);
            }
            None => step.locations = written_locations(knob, None, subject, isolation),
        }
        return Some(step);
    }
    step.fix = fix(knob, wanted, &found, subject, isolation);
    let choice = (choice, named.is_some());
    decide(&mut step, knob, wanted, choice, subject, isolation);
    Some(step)
}

/// Decides the step of a knob without the expected value.
fn decide(
    step: &mut ChangeStep,
    knob: &Knob,
    wanted: Expected,
    (choice, is_named): (Option<&KnobChoice>, bool),
    subject: &Subject<'_>,
    isolation: &Isolation,
) {
    match choice.map(|choice| choice.action) {
        Some(KnobAction::Skip) => {
            step.action = StepAction::Skip;
            step.why = "the plan skips it".to_owned();
            return;
        }
        Some(KnobAction::Expect) => {
            step.action = StepAction::Expect;
            step.why = "the plan expects other software to set it, and it is not set".to_owned();
            return;
        }
        Some(KnobAction::Apply) | None if !is_named && is_safety_net(knob.name) => {
            step.action = StepAction::Skip;
            step.why = format!(
                "it limits threads that never sleep; write {} = \"apply\" in the plan's [host] to change it",
                knob.name
            );
            return;
        }
        Some(KnobAction::Apply) | None => {}
    }
    if SET_WITH_ISOLATION.contains(&knob.name) {
        step.action = StepAction::Apply;
        step.why = "set with the isolation".to_owned();
        return;
    }
    if let Some(argument) = boot_argument(knob, wanted, isolation) {
        step.kind = StepKind::KernelCommandLine;
        step.action = StepAction::AtRestart;
        step.why = argument;
        return;
    }
    step.locations = match knob.location {
        // A service is stopped only if the plan names the knob.
        Location::Program(names) if is_named => services(names, subject),
        _ => written_locations(knob, Some(wanted), subject, isolation),
    };
    if step.locations.is_empty() {
        step.action = StepAction::ByHand;
        step.why = crate::entry::effect(knob).words().to_owned();
    } else {
        step.action = StepAction::Apply;
    }
}

/// Returns whether a plan sets a deviating knob that it does not name, at once or for the next restart ([`decide`]).
pub(crate) fn is_set_by_plan(
    knob: &Knob,
    wanted: Expected,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> bool {
    !is_safety_net(knob.name)
        && (SET_WITH_ISOLATION.contains(&knob.name)
            || boot_argument(knob, wanted, isolation).is_some()
            || !written_locations(knob, Some(wanted), subject, isolation).is_empty())
}

/// Returns the services of running programs that should not run.
fn services(names: &[&str], subject: &Subject<'_>) -> Vec<ChangeLocation> {
    names
        .iter()
        .filter(|name| {
            let programs = subject.readings.programs.as_ref();
            programs.is_some_and(|programs| programs.contains(**name))
        })
        .map(|name| ChangeLocation {
            target: ChangeTarget::Service(format!("{name}.service")),
            location: format!("{name}.service"),
            present: "running".to_owned(),
            value: "stopped".to_owned(),
        })
        .collect()
}

/// Returns whether Rampart writes the knob: a write takes effect at once or for programs that start
/// later.
fn is_written(knob: &Knob) -> bool {
    matches!(
        crate::entry::effect(knob),
        KnobEffect::AtOnce | KnobEffect::ForWhatStartsNext
    )
}

/// Returns every location of a knob that gets another value; empty if the knob is not changed by
/// writing.
fn written_locations(
    knob: &Knob,
    aim: Aim,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Vec<ChangeLocation> {
    if !is_written(knob) {
        return Vec::new();
    }
    match knob.location {
        Location::File(format, templates) => files(templates, format, aim, subject, isolation),
        Location::ThreadPolicy(names) => policies(names, aim, subject, isolation),
        Location::ThreadAffinity(names) => affinities(names, aim, subject, isolation),
        Location::Fact(Fact::IdleLatency, _) => {
            let limit = resume_latency_limit(&subject.machine.virtualisation);
            limits_to_lower(subject.machine, subject.readings)
                .into_iter()
                .filter_map(|file| {
                    let Reading::Value(present) = &file.reading else {
                        return None;
                    };
                    Some(ChangeLocation {
                        location: file.path.clone(),
                        target: ChangeTarget::File(file.path.clone()),
                        present: present.clone(),
                        value: limit?.to_owned(),
                    })
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

fn files(
    templates: &[&str],
    format: Format,
    aim: Aim,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Vec<ChangeLocation> {
    let found = subject.readings.first_readable(templates);
    let mut changed = Vec::new();
    for location in found {
        let Reading::Value(text) = &location.reading else {
            continue;
        };
        // Control groups belong to their managers, and files elsewhere are not settings of the
        // kernel.
        let is_setting = ["/proc/sys/", "/sys/"]
            .iter()
            .any(|root| location.path.starts_with(root))
            && !location.path.starts_with("/sys/fs/cgroup/");
        if !is_setting {
            return Vec::new();
        }
        let value = match aim {
            Some(wanted) if satisfies(wanted, format, text, isolation) == Some(false) => {
                value_for(wanted, format, text, isolation)
            }
            Some(_) => None,
            None => Some(match cpus(format, text) {
                Some(cpus) => cpus.to_string(),
                None => marked(text).to_owned(),
            }),
        };
        let Some(value) = value else {
            continue;
        };
        let path = location.path.clone();
        changed.push(ChangeLocation {
            location: path.clone(),
            target: match format {
                Format::Text => ChangeTarget::File(path),
                Format::List => ChangeTarget::CpuListFile(path),
                Format::Mask => ChangeTarget::CpuMaskFile(path),
            },
            present: text.trim().to_owned(),
            value,
        });
        if matches!(aim, Some(Expected::SomeAtLeast(_))) {
            break;
        }
    }
    changed
}

/// Returns the value to write; CPUs always as a list.
fn value_for(
    wanted: Expected,
    format: Format,
    text: &str,
    isolation: &Isolation,
) -> Option<String> {
    match wanted {
        Expected::NoRealTime => {
            let kept = cpus(format, text)?.intersection(&isolation.housekeeping);
            let all = &isolation.housekeeping;
            let chosen: &CpuSet = if kept.is_empty() { all } else { &kept };
            (!chosen.is_empty()).then(|| chosen.to_string())
        }
        Expected::CoversRealTime => {
            Some(cpus(format, text)?.union(&isolation.real_time).to_string())
        }
        Expected::Chosen(knob) => {
            let chosen = isolation.choices.get(knob)?.trim();
            Some(cpus(format, chosen).map_or_else(|| chosen.to_owned(), |cpus| cpus.to_string()))
        }
        _ => to_write(wanted, format, isolation),
    }
}

fn policies(
    names: &[&str],
    aim: Aim,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Vec<ChangeLocation> {
    let value = aim.and_then(|wanted| to_write(wanted, Format::Text, isolation));
    if value.is_none() && aim.is_some() {
        return Vec::new();
    }
    crate::machine::assess::threads(names, subject, isolation)
        .unwrap_or_default()
        .into_iter()
        .filter_map(|thread| {
            let present = thread.policy?.to_string();
            let value = value.clone().unwrap_or_else(|| present.clone());
            let is_so = aim.is_some_and(|wanted| {
                satisfies(wanted, Format::Text, &present, isolation) != Some(false)
            });
            (!is_so).then(|| ChangeLocation {
                location: format!("thread {} ({})", thread.thread, thread.name),
                target: ChangeTarget::ThreadPolicy(thread.thread),
                present,
                value,
            })
        })
        .collect()
}

fn affinities(
    names: &[&str],
    aim: Aim,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Vec<ChangeLocation> {
    crate::machine::assess::threads(names, subject, isolation)
        .unwrap_or_default()
        .into_iter()
        .filter(|thread| !thread.bound && !thread.name.starts_with("irq/"))
        .filter_map(|thread| {
            let present = thread.affinity.as_ref()?.to_string();
            let value = match aim {
                Some(wanted)
                    if satisfies(wanted, Format::List, &present, isolation) == Some(false) =>
                {
                    value_for(wanted, Format::List, &present, isolation)?
                }
                _ => return None,
            };
            Some(ChangeLocation {
                location: format!("thread {} ({})", thread.thread, thread.name),
                target: ChangeTarget::ThreadAffinity(thread.thread),
                present,
                value,
            })
        })
        .collect()
}

/// Returns the kernel argument that sets a knob; `None` if no argument sets it.
fn boot_argument(knob: &Knob, wanted: Expected, isolation: &Isolation) -> Option<String> {
    let real_time = &isolation.real_time;
    if knob.name == "managed-interrupts" {
        return Some(format!("isolcpus=managed_irq,domain,{real_time}"));
    }
    let (parameter, format) = match knob.location {
        Location::Boot {
            parameter, format, ..
        } => (parameter.to_owned(), format),
        Location::File(format, paths) if knob.effect.needs_restart() => {
            (parameter_of(paths.first()?)?, format)
        }
        _ => return None,
    };
    match wanted {
        Expected::Present => Some(parameter),
        Expected::NoRealTime => Some(format!("{parameter}={}", isolation.housekeeping)),
        Expected::CoversRealTime => Some(format!("{parameter}={real_time}")),
        _ => to_write(wanted, format, isolation).map(|value| format!("{parameter}={value}")),
    }
}

/// Returns the present kernel argument if its value is accepted, so that an accepted value is kept.
/// `None` if the argument is not present, or names CPUs that the plan does not isolate: the rule
/// `kernel-command-line` requires the lists of the plan.
fn present_argument(argument: &str, plan: &ResolvedPlan, subject: &Subject<'_>) -> Option<String> {
    let line = &subject.readings.kernel_command_line;
    let topology = &subject.machine.topology;
    let parameter = argument.split('=').next()?;
    if !line.has(parameter) {
        return None;
    }
    if ["isolcpus", "nohz_full", "rcu_nocbs"].contains(&parameter) {
        let last = topology.possible.iter().next_back()?;
        let named = line.cpus(parameter, last)?.intersection(&topology.online);
        let most = plan.real_time.union(&plan.with_role(CpuRole::IdleSibling));
        if !plan.real_time.is_subset(&named) || !named.is_subset(&most) {
            return None;
        }
    }
    Some(match line.value(parameter) {
        Some(value) => format!("{parameter}={value}"),
        None => parameter.to_owned(),
    })
}

/// Returns the boot parameter behind a file that shows a value set at boot.
fn parameter_of(path: &str) -> Option<String> {
    if path == "/sys/devices/system/cpu/nohz_full" {
        return Some("nohz_full".to_owned());
    }
    // Documentation/admin-guide/kernel-parameters.rst: MODULE.PARAMETER applies to built-in code,
    // and to modules when they are loaded.
    let (module, parameter) = path
        .strip_prefix("/sys/module/")?
        .split_once("/parameters/")?;
    Some(format!("{module}.{parameter}"))
}

/// Returns the kernel arguments of the knobs and of the plan; those of the plan take precedence.
fn boot_arguments(plan: &ResolvedPlan, steps: &[ChangeStep]) -> Vec<String> {
    let name = |argument: &str| {
        argument
            .split('=')
            .next()
            .unwrap_or(argument)
            .replace('-', "_")
    };
    let mut arguments: Vec<String> = Vec::new();
    let asked = steps
        .iter()
        .filter(|step| {
            step.kind == StepKind::KernelCommandLine
                && matches!(step.action, StepAction::AtRestart | StepAction::AsWanted)
        })
        .map(|step| &step.why);
    for argument in plan.boot.arguments.iter().chain(asked) {
        // `hugepages=` may occur several times, together with the size, in one step.
        if argument.starts_with("hugepages") && argument.contains(' ') {
            arguments.extend(argument.split(' ').map(str::to_owned));
        } else if !arguments.iter().any(|other| name(other) == name(argument)) {
            arguments.push(argument.clone());
        }
    }
    arguments
}
