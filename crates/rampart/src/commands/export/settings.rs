// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings that a plan brings with it, as the steps of a [`ChangeList`]: every knob of the
//! catalogue that is written to a file or a thread of the kernel, with all its places, those that
//! are as wanted among them. A profile has to be whole, whatever the machine holds by now.

use rampart_host::read_knob_values;
use rampart_knobs::{
    Format, Isolation, KernelThread, Knob, Place, Readings, Subject, Wanted, check, named, to_write,
};
use rampart_model::{
    APPLICATION_SCHEMA_VERSION, BootSection, ChangeList, ChangePlace, ChangeStep, ChangeTarget,
    CheckFinding, CheckState, DomainKind, KnobAction, KnobChoice, KnobEffect, StepAction, StepKind,
};

use crate::commands::VERSION;
use crate::commands::plan::ReadPlan;
use crate::commands::recorded::RecordedMachine;
use crate::failure::Failure;

/// The settings of a plan on its machine.
pub(super) fn settings(read: &ReadPlan, recorded: &RecordedMachine) -> Result<ChangeList, Failure> {
    let resolved = &read.resolved;
    let isolation = Isolation {
        real_time: resolved.real_time.clone(),
        housekeeping: resolved.housekeeping.clone(),
        has_guests: resolved.kinds().contains(&DomainKind::Vm),
        choices: resolved
            .host
            .iter()
            .filter_map(|(knob, choice)| Some((knob.clone(), choice.value.clone()?)))
            .collect(),
    };
    let readings = read_knob_values(&recorded.root()?, &isolation.real_time);
    let subject = Subject {
        machine: &read.machine,
        readings: &readings,
    };
    let found = check(subject, &isolation, "the plan", VERSION).findings;
    let judged = found.iter().filter(|finding| {
        matches!(
            finding.state,
            CheckState::Problem | CheckState::Advice | CheckState::Ok
        )
    });
    let mut steps = Vec::new();
    let mut arguments = Vec::new();
    for finding in judged {
        let choice = resolved.host.get(&finding.knob);
        let Some(knob) = named(&finding.knob) else {
            continue;
        };
        if choice.is_none_or(|choice| choice.action == KnobAction::Apply) {
            arguments.extend(argument(knob, &isolation));
        }
        steps.extend(step(knob, finding, &isolation, choice, &readings));
    }
    Ok(ChangeList {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: VERSION.to_owned(),
        steps,
        boot_arguments: with_those_of(&resolved.boot, arguments),
    })
}

/// What a knob adds to the boot line.
fn argument(knob: &Knob, isolation: &Isolation) -> Option<String> {
    let cpus = &isolation.real_time;
    let wanted = knob.wanted_by(isolation);
    // Both are asked for as something that the kernel shows, and given on the boot line.
    match knob.name {
        "managed-interrupts" => return Some(format!("isolcpus=managed_irq,domain,{cpus}")),
        "nohz-full" if wanted != Wanted::Told => return Some(format!("nohz_full={cpus}")),
        _ => {}
    }
    let Place::Boot {
        parameter, format, ..
    } = knob.place
    else {
        return None;
    };
    match wanted {
        Wanted::Present => Some(parameter.to_owned()),
        Wanted::Contains(_) => None,
        _ => to_write(wanted, format, isolation).map(|value| format!("{parameter}={value}")),
    }
}

/// What the plan names itself counts more than what follows from it.
fn with_those_of(boot: &BootSection, mut arguments: Vec<String>) -> Vec<String> {
    let name = |argument: &str| {
        let name = argument.split('=').next().unwrap_or(argument);
        name.replace('-', "_")
    };
    arguments.retain(|ours| {
        boot.arguments
            .iter()
            .all(|theirs| name(theirs) != name(ours))
    });
    arguments.extend(boot.arguments.iter().cloned());
    arguments
}

/// A knob as a step; none where nothing is written for it.
fn step(
    knob: &Knob,
    finding: &CheckFinding,
    isolation: &Isolation,
    choice: Option<&KnobChoice>,
    readings: &Readings,
) -> Option<ChangeStep> {
    let value = value(knob, isolation, choice);
    let places = match (knob.place, value) {
        (Place::File(format, templates), Some(value)) => files(templates, format, &value, readings),
        (Place::ThreadPolicy(names), Some(value)) => threads(names, isolation, readings)
            .map(|thread| ChangePlace {
                target: ChangeTarget::ThreadPolicy(thread.thread),
                place: format!("thread {} ({})", thread.thread, thread.name),
                present: thread
                    .policy
                    .map(|policy| policy.to_string())
                    .unwrap_or_default(),
                value: value.clone(),
            })
            .collect(),
        _ => Vec::new(),
    };
    // What is on the boot line is no step of its own.
    if argument(knob, isolation).is_some() {
        return None;
    }
    let asked = choice.map(|choice| choice.action);
    let action = match asked {
        Some(KnobAction::Skip) => StepAction::Skip,
        Some(KnobAction::Expect) => StepAction::Expect,
        // What somebody has to do by hand is told where the plan asks for it.
        _ if places.is_empty() && asked.is_none() => return None,
        _ if places.is_empty() => StepAction::ByHand,
        _ => match knob.effect {
            KnobEffect::AtOnce | KnobEffect::ForWhatStartsNext => match finding.state {
                CheckState::Ok => StepAction::AsWanted,
                _ => StepAction::Apply,
            },
            _ if finding.state == CheckState::Ok => return None,
            _ => StepAction::ByHand,
        },
    };
    Some(ChangeStep {
        kind: StepKind::Knob,
        name: knob.name.to_owned(),
        title: knob.title.to_owned(),
        action,
        why: String::new(),
        present: finding.present.clone(),
        wanted: finding.wanted.clone(),
        places,
        disruptive: finding.disruptive.clone(),
        mend: finding.mend.clone(),
        source: finding.source.clone(),
    })
}

/// What is written: the plan's own value, unless it is the name of a choice of the catalogue.
fn value(knob: &Knob, isolation: &Isolation, choice: Option<&KnobChoice>) -> Option<String> {
    let own = choice.and_then(|choice| choice.value.as_ref());
    let is_choice = |value: &&String| knob.choices.iter().any(|choice| choice.name == **value);
    if let Some(value) = own.filter(|value| !is_choice(value)) {
        return Some(value.clone());
    }
    // A place takes its CPUs as a list; whoever writes it makes a mask of it where one is asked.
    to_write(knob.wanted_by(isolation), Format::List, isolation)
}

fn files(templates: &[&str], format: Format, value: &str, readings: &Readings) -> Vec<ChangePlace> {
    let there = templates
        .iter()
        .map(|template| readings.of(template))
        .find(|places| !places.is_empty());
    there
        .unwrap_or(&[])
        .iter()
        .map(|place| ChangePlace {
            target: match format {
                Format::Text => ChangeTarget::File(place.path.clone()),
                Format::List => ChangeTarget::CpuListFile(place.path.clone()),
                Format::Mask => ChangeTarget::CpuMaskFile(place.path.clone()),
            },
            place: place.path.clone(),
            present: match &place.reading {
                rampart_knobs::Reading::Value(text) => text.trim().to_owned(),
                rampart_knobs::Reading::Refused(_) => String::new(),
            },
            value: value.to_owned(),
        })
        .collect()
}

/// The threads of the kernel that these names stand for.
fn threads<'a>(
    names: &'a [&'a str],
    isolation: &'a Isolation,
    readings: &'a Readings,
) -> impl Iterator<Item = &'a KernelThread> {
    readings.threads.iter().flatten().filter(move |thread| {
        names.iter().any(|name| match name.strip_suffix('*') {
            Some(begin) => thread.name.starts_with(begin),
            None => isolation
                .real_time
                .iter()
                .any(|cpu| name.replace("{cpu}", &cpu.to_string()) == thread.name),
        })
    })
}
