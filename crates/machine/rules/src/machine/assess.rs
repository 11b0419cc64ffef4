// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges one knob on one machine.

use rampart_model::{CheckLocation, CpuId, CpuSet, PreemptionModel};

use crate::machine::check::Subject;
use crate::machine::compare::{cpus_satisfy, expected_text, satisfies};
use crate::machine::facts::{Judgement, irqbalance, judge, log};
use crate::machine::kernel_command_line::last_cpu;
use crate::machine::readings::name_in_kernel;
use crate::{
    Expected, Format, Isolation, KernelThreadReading, Knob, Location, LocationValue, Reading,
    Unread, When,
};

/// Judges a knob.
pub(crate) fn assess(knob: &Knob, subject: &Subject<'_>, isolation: &Isolation) -> Judgement {
    if let Some(version) = subject.readings.kernel
        && !knob.kernels.contain(version)
    {
        let why = format!("kernel {version} does not have it: {}", knob.kernels);
        return Judgement::NotApplicable(why);
    }
    for when in knob.applies {
        match holds(*when, subject, isolation) {
            Some(true) => {}
            Some(false) => {
                return Judgement::NotApplicable(format!("it applies to {}", when.words()));
            }
            None => return Judgement::Unread(Unread::KernelOptions),
        }
    }
    let expected = knob.expected_by(isolation);
    match knob.location {
        Location::File(format, templates) => files(templates, format, expected, subject, isolation),
        Location::Exists(paths) => exists(paths, expected, subject),
        Location::Boot {
            parameter,
            format,
            also,
        } => boot(parameter, format, also, expected, subject, isolation),
        Location::KernelOption(option) => kernel_option(option, expected, subject),
        Location::ThreadPolicy(names) => thread_policies(names, expected, subject, isolation),
        Location::ThreadAffinity(names) => thread_affinities(names, expected, subject, isolation),
        Location::Program(names) => program(names, expected, subject),
        Location::KernelLog(texts) => log::messages(texts, subject.readings),
        Location::Fact(fact, _) => judge(fact, subject, isolation),
        Location::Guest(_) => Judgement::NotApplicable(
            "a setting of each guest, which no file of the host shows".to_owned(),
        ),
    }
}

/// Returns whether a condition holds; `None` if something needed is not readable.
pub(crate) fn holds(when: When, subject: &Subject<'_>, isolation: &Isolation) -> Option<bool> {
    let (machine, readings) = (subject.machine, subject.readings);
    let x86 = matches!(machine.architecture.as_str(), "x86_64" | "i686" | "x86");
    Some(match when {
        When::X86 => x86,
        When::Arm64 => machine.architecture == "aarch64",
        When::Intel => readings.vendor == "GenuineIntel",
        When::Amd => readings.vendor == "AuthenticAMD",
        When::Hardware => machine.virtualisation.hypervisor.is_none(),
        When::Guest => machine.virtualisation.hypervisor.is_some(),
        When::Guests => isolation.has_guests,
        When::SeveralNodes => machine.topology.nodes.len() > 1,
        When::RealTimeKernel => machine.preemption == PreemptionModel::RealTime,
        When::OrdinaryKernel => machine.preemption != PreemptionModel::RealTime,
        When::Tickless => !machine.topology.nohz_full.is_empty(),
        When::BootIsolation => ["isolcpus", "nohz_full", "rcu_nocbs"]
            .iter()
            .any(|parameter| readings.kernel_command_line.has(parameter)),
        When::ControlGroupsV1 => matches!(machine.control_groups.as_str(), "v1" | "hybrid"),
        When::ControlGroupsV2 => matches!(machine.control_groups.as_str(), "v2" | "hybrid"),
        When::Option(option) => return readings.option(option),
        When::Feature(feature) => readings.flags.contains(feature),
        When::Throttling => !readings.real_time_is_unlimited(),
        When::BalancedInterrupts => !irqbalance::keeps_off(readings, isolation),
    })
}

/// Combines the judgements of several locations.
fn combined(locations: Vec<CheckLocation>, some: bool) -> Judgement {
    let wrong = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .count();
    let right = locations
        .iter()
        .filter(|location| location.satisfied == Some(true))
        .count();
    let satisfied = match (wrong, right) {
        (0, 0) => None,
        (_, right) if some => Some(right > 0),
        (wrong, _) => Some(wrong == 0),
    };
    let mut values: Vec<&str> = Vec::new();
    // Show deviations first.
    for location in locations
        .iter()
        .filter(|location| wrong == 0 || location.satisfied == Some(false))
    {
        if !values.contains(&location.found.as_str()) {
            values.push(&location.found);
        }
    }
    let shown = values
        .iter()
        .take(3)
        .copied()
        .collect::<Vec<_>>()
        .join("; ");
    let more = if values.len() > 3 { "; …" } else { "" };
    let found = match locations.len() {
        0 | 1 => shown,
        _ if wrong == 0 => format!("{shown}{more}"),
        all => format!("{shown}{more} ({wrong} of {all})"),
    };
    Judgement::Is {
        found,
        satisfied,
        locations,
    }
}

fn files(
    templates: &[&str],
    format: Format,
    expected: Expected,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Judgement {
    let found = subject.readings.first_readable(templates);
    if found.is_empty() {
        return Judgement::NotApplicable(format!("there is no {} here", templates.join(" or ")));
    }
    let mut refused = None;
    let mut locations = Vec::new();
    for location in found {
        match &location.reading {
            Reading::Value(text) => {
                locations.push(one_file(location, text, format, expected, isolation))
            }
            Reading::Refused(why) => refused = Some(*why),
        }
    }
    match refused {
        Some(why) if locations.is_empty() => Judgement::Unread(why),
        _ => combined(locations, matches!(expected, Expected::SomeAtLeast(_))),
    }
}

fn one_file(
    location: &LocationValue,
    text: &str,
    format: Format,
    expected: Expected,
    isolation: &Isolation,
) -> CheckLocation {
    let text = text.trim();
    CheckLocation {
        location: location.path.clone(),
        found: shown(text, format),
        expected: expected_text(expected, Some(isolation)),
        satisfied: satisfies(expected, format, text, isolation),
    }
}

/// Formats CPUs as a list and other texts unchanged, on one line.
fn shown(text: &str, format: Format) -> String {
    match crate::machine::compare::cpus(format, text) {
        Some(cpus) if cpus.is_empty() => "none".to_owned(),
        Some(cpus) => cpus.named().to_string(),
        None if text.is_empty() => "nothing".to_owned(),
        None => text.split_whitespace().collect::<Vec<_>>().join(" "),
    }
}

fn exists(paths: &[&str], expected: Expected, subject: &Subject<'_>) -> Judgement {
    let there: Vec<&str> = paths
        .iter()
        .flat_map(|path| subject.readings.of(path))
        .map(|location| location.path.as_str())
        .collect();
    let found = if there.is_empty() {
        "absent"
    } else {
        "present"
    };
    Judgement::Is {
        found: found.to_owned(),
        satisfied: presence(expected, !there.is_empty()),
        locations: Vec::new(),
    }
}

fn presence(expected: Expected, found: bool) -> Option<bool> {
    match expected {
        Expected::Present => Some(found),
        Expected::Absent => Some(!found),
        _ => None,
    }
}

fn boot(
    parameter: &str,
    format: Format,
    also: &[&str],
    expected: Expected,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Judgement {
    let line = &subject.readings.kernel_command_line;
    let found = match (line.has(parameter), line.value(parameter)) {
        (false, _) => "not given".to_owned(),
        (true, None) => "given".to_owned(),
        (true, Some(value)) => value.to_owned(),
    };
    let satisfied = match (expected, format) {
        (Expected::Informational, _) => None,
        (Expected::Present | Expected::Absent, _) => presence(expected, line.has(parameter)),
        (Expected::CoversRealTime | Expected::NoRealTime, _) => {
            let last = last_cpu(subject.machine);
            let named: Vec<CpuSet> = [parameter]
                .iter()
                .chain(also)
                .filter_map(|parameter| line.cpus(parameter, last))
                .collect();
            if named.is_empty() {
                Some(false)
            } else {
                let all = named.iter().fold(CpuSet::new(), |all, one| all.union(one));
                cpus_satisfy(expected, &all, isolation)
            }
        }
        // Without a value the kernel's default is right.
        (Expected::Not(_), _) => Some(
            line.value(parameter)
                .is_none_or(|value| satisfies(expected, format, value, isolation).unwrap_or(true)),
        ),
        _ => Some(
            line.value(parameter)
                .and_then(|value| satisfies(expected, format, value, isolation))
                .unwrap_or(false),
        ),
    };
    Judgement::Is {
        found,
        satisfied,
        locations: Vec::new(),
    }
}

fn kernel_option(option: &str, expected: Expected, subject: &Subject<'_>) -> Judgement {
    let Some(options) = &subject.readings.options else {
        return Judgement::Unread(Unread::KernelOptions);
    };
    let value = options.get(option).map_or("n", String::as_str);
    let set = matches!(value, "y" | "m");
    Judgement::Is {
        found: match value {
            "y" => "built in".to_owned(),
            "m" => "a module".to_owned(),
            "n" => "not built".to_owned(),
            other => other.to_owned(),
        },
        satisfied: presence(expected, set),
        locations: Vec::new(),
    }
}

/// Returns whether a name matches a pattern; `*` matches any ending, `{cpu}` a real-time CPU.
fn is_named(name: &str, patterns: &[&str], isolation: &Isolation) -> bool {
    patterns.iter().any(|pattern| {
        if let Some(begin) = pattern.strip_suffix('*') {
            name.starts_with(begin)
        } else if let Some(begin) = pattern.strip_suffix("{cpu}") {
            name.strip_prefix(begin)
                .and_then(|number| number.parse().ok())
                .is_some_and(|number| isolation.real_time.contains(CpuId(number)))
        } else {
            name == *pattern
        }
    })
}

pub(crate) fn threads<'a>(
    names: &[&str],
    subject: &'a Subject<'_>,
    isolation: &Isolation,
) -> Result<Vec<&'a KernelThreadReading>, Judgement> {
    match &subject.readings.threads {
        None => Err(Judgement::Unread(Unread::KernelThreads)),
        Some(threads) => Ok(threads
            .iter()
            .filter(|thread| is_named(&thread.name, names, isolation))
            .collect()),
    }
}

fn thread_policies(
    names: &[&str],
    expected: Expected,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Judgement {
    let threads = match threads(names, subject, isolation) {
        Ok(threads) => threads,
        Err(unread) => return unread,
    };
    if expected == Expected::Absent {
        let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
        let found = if names.is_empty() {
            "absent".to_owned()
        } else {
            names.join(", ")
        };
        return Judgement::Is {
            found,
            satisfied: Some(names.is_empty()),
            locations: Vec::new(),
        };
    }
    let locations: Vec<CheckLocation> = threads
        .iter()
        .filter_map(|thread| {
            let policy = thread.policy?.to_string();
            Some(CheckLocation {
                location: format!("thread {} ({})", thread.thread, thread.name),
                satisfied: satisfies(expected, Format::Text, &policy, isolation),
                found: policy,
                expected: expected_text(expected, Some(isolation)),
            })
        })
        .collect();
    if locations.is_empty() {
        return Judgement::NotApplicable("the kernel has no such thread".to_owned());
    }
    combined(locations, false)
}

fn thread_affinities(
    names: &[&str],
    expected: Expected,
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Judgement {
    let threads = match threads(names, subject, isolation) {
        Ok(threads) => threads,
        Err(unread) => return unread,
    };
    let locations: Vec<CheckLocation> = threads
        .iter()
        .filter(|thread| !thread.bound)
        .filter_map(|thread| {
            let affinity = thread.affinity.as_ref()?;
            Some(CheckLocation {
                location: format!("thread {} ({})", thread.thread, thread.name),
                found: affinity.named().to_string(),
                expected: expected_text(expected, Some(isolation)),
                satisfied: cpus_satisfy(expected, affinity, isolation),
            })
        })
        .collect();
    if locations.is_empty() {
        return Judgement::NotApplicable(
            "the kernel has no such thread that may be moved".to_owned(),
        );
    }
    combined(locations, false)
}

fn program(names: &[&str], expected: Expected, subject: &Subject<'_>) -> Judgement {
    let Some(programs) = &subject.readings.programs else {
        return Judgement::Unread(Unread::KernelThreads);
    };
    let running: Vec<&str> = names
        .iter()
        .copied()
        .filter(|name| programs.contains(name_in_kernel(name)))
        .collect();
    let found = if running.is_empty() {
        "does not run".to_owned()
    } else {
        format!("{} runs", running.join(", "))
    };
    Judgement::Is {
        found,
        satisfied: presence(expected, !running.is_empty()),
        locations: Vec::new(),
    }
}
