// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A profile of TuneD (tuned.conf(5), the manual of its plug-ins). It stands alone and includes no
//! other profile: what it sets is what the plan and the catalogue want, and no more.

use std::collections::BTreeMap;

use rampart_model::{
    ChangeList, ChangeLocation, ChangeStep, ChangeTarget, CpuSet, DomainProgram, Finding,
    SchedulingPolicy, Severity, StepAction, StepKind,
};

use super::field::{DomainField, MachineField};
use super::gaps::Answer::{self, Apart, Lost, Said};
use super::gaps::{Gaps, Part};
use super::{Exported, ExportedFile, Subject, words};

/// Threads of the kernel by the knob that sets their priority, as TuneD's scheduler plug-in finds
/// them: it sees their names in brackets.
const KERNEL_THREADS: [(&str, &str); 4] = [
    ("ksoftirqd-priority", "ksoftirqd"),
    ("ktimers-priority", "ktimer"),
    ("rcuc-priority", "rcuc"),
    ("rcub-priority", "rcub"),
];

#[deny(clippy::wildcard_enum_match_arm)]
fn of_machine(field: MachineField) -> Answer {
    match field {
        // Idle siblings are among the isolated cores.
        MachineField::Housekeeping
        | MachineField::Siblings
        | MachineField::Settings
        | MachineField::BootArguments
        | MachineField::OtherInterrupts => Said,
        MachineField::SiblingsOffline => Lost(
            "a profile without scripts takes no CPU offline",
            "nosmt among the plan's boot arguments",
        ),
        MachineField::Fingerprint => Lost(
            "TuneD does not compare the topology",
            "rampart plan check, after each change of the firmware's settings",
        ),
        MachineField::Enforcement | MachineField::Waivers => Apart("only Rampart judges by it"),
        MachineField::ExpectedSettings => {
            Lost("TuneD verifies only its own settings", "rampart check")
        }
        MachineField::Reboot => Apart(
            "TuneD adds its arguments to the kernel command line; restart the machine afterwards",
        ),
    }
}

#[deny(clippy::wildcard_enum_match_arm)]
fn of_domain(field: DomainField) -> Answer {
    match field {
        DomainField::Isolation => Lost(
            "TuneD moves processes away from isolated cores once; who comes later, and the kernel, \
             is kept away by isolcpus= alone",
            "rampart apply",
        ),
        DomainField::Deadline => Apart("only rampart evaluate judges by it"),
        DomainField::CacheWays
        | DomainField::CacheBytes
        | DomainField::CacheExclusive
        | DomainField::Bandwidth => Lost(
            "TuneD does not divide caches and memory bandwidth",
            "rampart apply",
        ),
        DomainField::Interrupts => Lost(
            "TuneD keeps interrupts off isolated cores, including those of the domain",
            "rampart apply",
        ),
        DomainField::Cpus
        | DomainField::VirtualCpus
        | DomainField::Priority
        | DomainField::Reservation
        | DomainField::Run
        | DomainField::Restart
        | DomainField::Engine
        | DomainField::Image
        | DomainField::RootFileSystem
        | DomainField::Memory
        | DomainField::HugePages
        | DomainField::MemoryNode
        | DomainField::Kernel
        | DomainField::Initramfs
        | DomainField::Disk
        | DomainField::Emulator
        | DomainField::Service
        | DomainField::IdleKeepsCpu
        | DomainField::DedicatedHint
        | DomainField::Devices
        | DomainField::CellImage
        | DomainField::CellOptions
        | DomainField::Threads => {
            Apart("TuneD does not support domains: use rampart export systemd, or others")
        }
    }
}

/// What the sections of the file hold.
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

/// Writes the profile `rampart`. `settings` are the steps of applying the plan, with every place
/// that has to hold a value: those that hold it already too.
#[must_use]
pub fn tuned(subject: &Subject<'_>, settings: &ChangeList) -> Exported {
    let mut gaps = Gaps::default();
    gaps.of_machine(subject, of_machine);
    for (planned, _) in subject.domains() {
        gaps.of_domain(planned, of_domain);
    }
    let mut sections = Sections::default();
    for step in &settings.steps {
        sort_in(step, &mut sections, &mut gaps);
    }
    let text = text(subject, settings, &sections, &mut gaps);
    let mut head = gaps.head("tuned", subject, Part::All);
    head.extend(words::broken(
        "To use it: copy the directory `tuned` into /etc (from TuneD 2.23 on into /etc/tuned/profiles), \
         then tuned-adm profile rampart. A value that is as wanted by now is set all the same.",
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

/// Where a step's values belong.
fn sort_in(step: &ChangeStep, sections: &mut Sections, gaps: &mut Gaps) {
    if step.kind != StepKind::Knob {
        // Walls are told with the domains, the kernel command line has its own section.
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
    let mut strange = false;
    for location in &step.locations {
        match (&location.target, threads) {
            (ChangeTarget::ThreadPolicy(_), Some(thread)) => match location.value.parse() {
                Ok(SchedulingPolicy::Fifo(priority)) => {
                    let value = format!("0:f:{priority}:*:^\\[{thread}");
                    sections.scheduler.insert(format!("group.{thread}"), value);
                }
                _ => strange = true,
            },
            (
                ChangeTarget::ThreadPolicy(_)
                | ChangeTarget::ThreadAffinity(_)
                | ChangeTarget::Schemata(_)
                | ChangeTarget::Service(_),
                _,
            ) => strange = true,
            (
                ChangeTarget::File(path)
                | ChangeTarget::CpuListFile(path)
                | ChangeTarget::CpuMaskFile(path),
                _,
            ) => strange |= !file(path, location, step, sections),
        }
    }
    if strange {
        gaps.add(
            None,
            lost(step, "TuneD has no plug-in for some of its places"),
        );
    }
}

/// Puts a file into its section; no where there is none for it.
fn file(path: &str, location: &ChangeLocation, step: &ChangeStep, sections: &mut Sections) -> bool {
    let value = match &location.target {
        ChangeTarget::CpuMaskFile(_) => match location.value.parse::<CpuSet>() {
            Ok(cpus) => cpus.to_mask(),
            Err(_) => return false,
        },
        _ => location.value.clone(),
    };
    // What the file's own syntax would take for something else.
    if path.contains(['=', ' ', '#']) || value.contains(['#', '\n']) {
        return false;
    }
    let entry = Entry {
        value: escaped(&value),
        knob: step.name.clone(),
        disruptive: step.disruptive.clone(),
    };
    // Groups are systemd's; what the kernel makes of them is read there, not written.
    if path.starts_with("/sys/fs/cgroup/") {
        return false;
    }
    if let Some(name) = path.strip_prefix("/proc/sys/") {
        // The plug-in takes the names of sysctl(8), in which a point of a name is a slash.
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

/// `${` would begin a variable.
fn escaped(text: &str) -> String {
    text.replace("${", "\\${")
}

fn text(
    subject: &Subject<'_>,
    settings: &ChangeList,
    sections: &Sections,
    gaps: &mut Gaps,
) -> String {
    let resolved = subject.resolved;
    // What is neither keeps nobody busy, idle siblings among it.
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
    // The domains of Rampart and of its units, whatever they run.
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
            "a profile would take it for a comment",
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

/// Programs that the scheduler plug-in must leave where they are, as it names them: expressions
/// that are searched for in the command line.
fn kept(subject: &Subject<'_>) -> Vec<String> {
    let mut patterns: Vec<String> = Vec::new();
    for (planned, _) in subject.domains() {
        let pattern = match planned.kind.program() {
            _ if planned.kind.is_housekeeping() || planned.kind.leaves_linux() => continue,
            DomainProgram::Guest => "qemu-(system|kvm)".to_owned(),
            DomainProgram::Process | DomainProgram::Container => match planned.run.first() {
                // A semicolon divides the expressions.
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

/// An expression of Python that matches this text.
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
