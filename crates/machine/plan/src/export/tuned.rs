// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile of TuneD (tuned.conf(5), the manual of its plug-ins). It includes no other profile, and
//! sets only values of the plan and the catalogue.

use std::collections::BTreeMap;

use rampart_model::{
    ChangeList, ChangeLocation, ChangeStep, ChangeTarget, CpuSet, DomainProgram, Finding,
    SchedulingPolicy, Severity, StepAction, StepKind,
};

use super::answers::Answer::{self, NotConcerned, Supported, Unsupported};
use super::answers::{DomainAnswers, MachineAnswers};
use super::gaps::{Gaps, Part};
use super::{ExportSubject, Exported, ExportedFile, words};

/// Kernel threads by the knob that sets their priority. TuneD's scheduler plug-in matches their names
/// in brackets.
const KERNEL_THREADS: [(&str, &str); 4] = [
    ("ksoftirqd-priority", "ksoftirqd"),
    ("ktimers-priority", "ktimer"),
    ("rcuc-priority", "rcuc"),
    ("rcub-priority", "rcub"),
];

const MACHINE_ANSWERS: MachineAnswers = MachineAnswers {
    // Idle siblings are among the isolated cores.
    housekeeping: Supported,
    settings: Supported,
    boot_arguments: Supported,
    other_interrupts: Supported,
    siblings_offline: Unsupported(
        "a profile without scripts takes no CPU offline",
        "nosmt among the plan's boot arguments",
    ),
    fingerprint: Unsupported(
        "TuneD does not compare the topology",
        "rampart plan check, after each change of the firmware's settings",
    ),
    expected_settings: Unsupported("TuneD verifies only its own settings", "rampart check"),
    reboot: NotConcerned(
        "TuneD adds its arguments to the kernel command line; restart the machine afterwards",
    ),
};

const OTHER_TOOLS: Answer =
    NotConcerned("TuneD does not support domains: use rampart export systemd, or others");

const DOMAIN_ANSWERS: DomainAnswers = DomainAnswers {
    isolation: Unsupported(
        "TuneD moves processes away from isolated cores once; only isolcpus= keeps later \
         processes and the kernel away",
        "rampart apply",
    ),
    caches: Unsupported(
        "TuneD does not divide caches and memory bandwidth",
        "rampart apply",
    ),
    interrupts: Unsupported(
        "TuneD keeps interrupts off isolated cores, including those of the domain",
        "rampart apply",
    ),
    cpus: OTHER_TOOLS,
    priority: OTHER_TOOLS,
    reservation: OTHER_TOOLS,
    run: OTHER_TOOLS,
    restart: OTHER_TOOLS,
    engine: OTHER_TOOLS,
    image: OTHER_TOOLS,
    root_file_system: OTHER_TOOLS,
    guest: OTHER_TOOLS,
    cell: OTHER_TOOLS,
    service: OTHER_TOOLS,
    threads: OTHER_TOOLS,
};

/// The sections of the file.
#[derive(Debug, Default)]
struct Sections {
    sysctl: BTreeMap<String, Entry>,
    sysfs: BTreeMap<String, Entry>,
    scheduler: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Entry {
    value: String,
    knob: String,
    disruptive: Option<String>,
}

/// Writes the profile `rampart`. `settings` are the steps of applying the plan, with every location,
/// including those that have the expected value.
#[must_use]
pub fn tuned(subject: &ExportSubject<'_>, settings: &ChangeList) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, &MACHINE_ANSWERS);
    for (planned, _) in subject.domains() {
        gaps.of_domain(planned, &DOMAIN_ANSWERS);
    }
    let mut sections = Sections::default();
    for step in &settings.steps {
        sort_in(step, &mut sections, &mut gaps);
    }
    let text = text(subject, settings, &sections, &mut gaps);
    let mut head = gaps.head("tuned", subject, Part::All);
    head.extend(words::broken(
        "To use it: copy the directory `tuned` into /etc (from TuneD 2.23 on into /etc/tuned/profiles), \
         then tuned-adm profile rampart. The profile also sets values that are already as expected.",
    ));
    Exported {
        files: vec![ExportedFile {
            path: "tuned/rampart/tuned.conf".to_owned(),
            text: format!("{}\n{text}", words::hash(&head)),
        }],
        findings: gaps.into_findings(),
    }
}

fn lost(step: &ChangeStep, what: &str) -> Finding {
    let finding = Finding::new(
        Severity::Warning,
        format!("the machine, host: {}", step.name),
        what,
    )
    .values(step.present.clone(), step.wanted.clone());
    match &step.fix {
        Some(fix) => finding.fix(fix.lines().next().unwrap_or_default()),
        None => finding.fix("rampart apply"),
    }
}

/// Adds the values of a step to their section.
fn sort_in(step: &ChangeStep, sections: &mut Sections, gaps: &mut Gaps) {
    if step.kind != StepKind::Knob {
        // Isolation is reported with the domains; the kernel command line has its own section.
        return;
    }
    match step.action {
        StepAction::Apply | StepAction::AsWanted => {}
        StepAction::Skip | StepAction::Expect | StepAction::AtRestart => return,
        StepAction::ByHand => {
            gaps.add(None, lost(step, "TuneD has no plug-in for it"));
            return;
        }
    }
    let threads = KERNEL_THREADS
        .iter()
        .find(|(knob, _)| *knob == step.name)
        .map(|(_, thread)| *thread);
    let mut unsupported = false;
    for location in &step.locations {
        match (&location.target, threads) {
            (ChangeTarget::ThreadPolicy(_), Some(thread)) => match location.value.parse() {
                Ok(SchedulingPolicy::Fifo(priority)) => {
                    let value = format!("0:f:{priority}:*:^\\[{thread}");
                    sections.scheduler.insert(format!("group.{thread}"), value);
                }
                _ => unsupported = true,
            },
            (
                ChangeTarget::ThreadPolicy(_)
                | ChangeTarget::ThreadAffinity(_)
                | ChangeTarget::Schemata(_)
                | ChangeTarget::Service(_),
                _,
            ) => unsupported = true,
            // TuneD does not load the module.
            (ChangeTarget::File(path), _) if path == rampart_rules::DETACHED_OWNERS => {
                unsupported = true;
            }
            (
                ChangeTarget::File(path)
                | ChangeTarget::CpuListFile(path)
                | ChangeTarget::CpuMaskFile(path),
                _,
            ) => unsupported |= !file(path, location, step, sections),
        }
    }
    if unsupported {
        gaps.add(
            None,
            lost(step, "TuneD has no plug-in for some of its locations"),
        );
    }
}

/// Adds a file to its section. Returns whether there is a section for it.
fn file(path: &str, location: &ChangeLocation, step: &ChangeStep, sections: &mut Sections) -> bool {
    let value = match &location.target {
        ChangeTarget::CpuMaskFile(_) => match location.value.parse::<CpuSet>() {
            Ok(cpus) => cpus.to_mask(),
            Err(_) => return false,
        },
        _ => location.value.clone(),
    };
    // Characters with a meaning in the profile.
    if path.contains(['=', ' ', '#']) || value.contains(['#', '\n']) {
        return false;
    }
    let entry = Entry {
        value: escaped(&value),
        knob: step.name.clone(),
        disruptive: step.disruptive.clone(),
    };
    // Control groups belong to systemd.
    if path.starts_with("/sys/fs/cgroup/") {
        return false;
    }
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        // In the names of sysctl(8) a dot within a part is written as a slash.
        let name: String = name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            })
            .collect();
        sections.sysctl.insert(name, entry);
        true
    } else if path.starts_with("/sys/") {
        sections.sysfs.insert(path.to_owned(), entry);
        true
    } else {
        false
    }
}

/// Escapes `${`, which begins a variable.
fn escaped(text: &str) -> String {
    text.replace("${", "\\${")
}

fn text(
    subject: &ExportSubject<'_>,
    settings: &ChangeList,
    sections: &Sections,
    gaps: &mut Gaps,
) -> String {
    let resolved = subject.resolved;
    // Idle siblings are isolated too.
    let isolated = subject
        .machine
        .topology
        .online
        .difference(&resolved.housekeeping);
    let mut text = format!(
        "[main]\n\
         summary=The settings of a plan of Rampart\n\
         \n\
         [variables]\n\
         isolated_cores={isolated}\n\
         housekeeping_cores={}\n\
         \n\
         [irqbalance]\n\
         banned_cpus=${{isolated_cores}}\n\
         \n\
         [systemd]\n\
         cpu_affinity=${{housekeeping_cores}}\n\
         \n\
         [scheduler]\n\
         isolated_cores=${{isolated_cores}}\n",
        resolved.housekeeping
    );
    let kept = kept(subject);
    if !kept.is_empty() {
        text.push_str(&format!("ps_blacklist={}\n", escaped(&kept.join(";"))));
    }
    // All domains of Rampart and of its units.
    text.push_str("cgroup_ps_blacklist=/rampart\n");
    for (key, value) in &sections.scheduler {
        text.push_str(&format!("{key}={value}\n"));
    }
    for (name, entries) in [("sysctl", &sections.sysctl), ("sysfs", &sections.sysfs)] {
        if entries.is_empty() {
            continue;
        }
        text.push_str(&format!("\n[{name}]\n"));
        let mut knob = "";
        for (key, entry) in entries {
            if entry.knob != knob {
                knob = &entry.knob;
                let mut why = vec![knob.to_owned()];
                if let Some(words) = &entry.disruptive {
                    why = words::broken(&format!("{knob}; disruptive: {words}"));
                }
                text.push_str(&words::hash(&why));
            }
            text.push_str(&format!("{key}={}\n", entry.value));
        }
    }
    let odd = |argument: &&String| argument.starts_with('#') || argument.contains('\n');
    for argument in settings.boot_arguments.iter().filter(odd) {
        let finding = Finding::new(
            Severity::Warning,
            format!("the machine, boot.arguments: {}", argument.escape_debug()),
            "TuneD would parse it as a comment",
        );
        gaps.add(
            None,
            finding.fix("add it to the kernel command line manually"),
        );
    }
    let arguments: Vec<String> = settings
        .boot_arguments
        .iter()
        .filter(|argument| !odd(argument))
        .map(|argument| escaped(argument))
        .collect();
    if !arguments.is_empty() {
        text.push_str(&format!(
            "\n[bootloader]\ncmdline_rampart=+{}\n",
            arguments.join(" ")
        ));
    }
    text
}

/// Returns the programs that the scheduler plug-in must not move, as expressions that it searches for
/// in command lines.
fn kept(subject: &ExportSubject<'_>) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    for (planned, _) in subject.domains() {
        let pattern = match planned.kind.program() {
            _ if planned.kind.is_housekeeping() || planned.kind.leaves_linux() => continue,
            DomainProgram::Guest => "qemu-(system|kvm)".to_owned(),
            DomainProgram::Process | DomainProgram::Container => match planned.run.first() {
                // A semicolon separates expressions.
                Some(program) if !program.contains([';', '#', '\n']) => {
                    format!("^{}", literal(program))
                }
                _ => continue,
            },
            DomainProgram::Image => continue,
        };
        if !patterns.contains(&pattern) {
            patterns.push(pattern);
        }
    }
    patterns
}

/// Returns a Python expression that matches this text.
fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if c.is_ascii_punctuation() && !matches!(c, '/' | '_' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
