// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The texts that describe how to change, verify and undo a knob.

use rampart_model::{BOOT_CPU, CheckLocation, CpuSet, Machine};

use crate::distribution::{add_parameters, install_real_time_kernel, remove_parameter};
use crate::machine::assess::holds;
use crate::machine::check::Subject;
use crate::machine::compare::to_write;
use crate::machine::kernel_command_line::last_cpu;
use crate::machine::readings::name_in_kernel;
use crate::{Expected, Format, Isolation, KernelCommandLine, KernelVersion, Knob, Location, When};

/// Returns how to change a knob on this machine, one alternative on each line; `None` if no value
/// is right for every machine.
pub(crate) fn fix(
    knob: &Knob,
    expected: Expected,
    locations: &[CheckLocation],
    subject: &Subject<'_>,
    isolation: &Isolation,
) -> Option<String> {
    let machine = subject.machine;
    if let Some(words) = knob.fix {
        let words = words
            .replace("{real-time}", &isolation.real_time.to_string())
            .replace("{housekeeping}", &isolation.housekeeping.to_string())
            .replace("{each-real-time}", &in_braces(&isolation.real_time))
            .replace("{running}", &running(knob, subject).join(" "));
        let lines: Vec<String> = words
            .lines()
            .filter_map(|line| applicable(line, subject, isolation))
            .filter_map(|line| of_locations(line, locations))
            .filter_map(|line| on_this_machine(&line, machine))
            .collect();
        return (!lines.is_empty()).then(|| lines.join("\n"));
    }
    let format = match knob.location {
        Location::File(format, _) | Location::Boot { format, .. } => format,
        _ => Format::List,
    };
    let value = to_write(expected, format, isolation);
    match knob.location {
        Location::File(_, _) => file(locations, &value?),
        Location::Boot { parameter, .. } => match (expected, value) {
            (Expected::Present, _) => add_parameters(machine, parameter),
            (Expected::Absent | Expected::Not(_), _) => Some(remove_parameter(machine, parameter)),
            (_, Some(value)) => add_parameters(machine, &format!("{parameter}={value}")),
            (_, None) => None,
        },
        Location::KernelOption(option) => Some(match expected {
            Expected::Absent => format!("use a kernel without {option}"),
            Expected::Present => format!("use a kernel with {option}"),
            _ => return None,
        }),
        Location::ThreadPolicy(names) => match expected {
            // chrt(1) takes one thread.
            Expected::FifoAtLeast(priority) => Some(format!(
                "for t in $(pgrep {}); do chrt --fifo --pid {priority} $t; done",
                pattern(names, isolation)
            )),
            _ => None,
        },
        Location::ThreadAffinity(names) => Some(format!(
            "for t in $(pgrep {}); do taskset -pc {} $t; done",
            pattern(names, isolation),
            isolation.housekeeping
        )),
        Location::Exists(_)
        | Location::Program(_)
        | Location::KernelLog(_)
        | Location::Fact(_, _)
        | Location::Guest(_) => None,
    }
}

/// A condition of a line of a knob's fix, written before it as `{if CONDITION} `.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Condition<'a> {
    /// A property of the machine.
    When(When),
    /// The kernel offers this clock source.
    ClockSource(&'a str),
    /// The kernel has this version or a later one, or an unknown one.
    From(KernelVersion),
    /// The kernel has an earlier version.
    Before(KernelVersion),
}

impl<'a> Condition<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        Some(match text {
            "x86" => Self::When(When::X86),
            "arm64" => Self::When(When::Arm64),
            "intel" => Self::When(When::Intel),
            "amd" => Self::When(When::Amd),
            "guest" => Self::When(When::Guest),
            "hardware" => Self::When(When::Hardware),
            text => match text.strip_prefix("clock ") {
                Some(name) => Self::ClockSource(name),
                None => match text.strip_prefix("before ") {
                    Some(version) => Self::Before(KernelVersion::of_release(version)?),
                    None => Self::From(KernelVersion::of_release(text)?),
                },
            },
        })
    }

    fn holds(self, subject: &Subject<'_>, isolation: &Isolation) -> bool {
        match self {
            Self::When(when) => holds(when, subject, isolation) == Some(true),
            Self::ClockSource(name) => {
                let all = &subject.machine.clock_source.available;
                all.iter().any(|available| available == name)
            }
            Self::Before(version) => {
                let kernel = subject.readings.kernel;
                kernel.is_some_and(|kernel| kernel < version)
            }
            Self::From(version) => subject
                .readings
                .kernel
                .is_none_or(|kernel| kernel >= version),
        }
    }
}

/// Returns the condition of a line of a fix, and the line without it.
fn conditional(line: &str) -> (Option<&str>, &str) {
    let parts = line
        .strip_prefix("{if ")
        .and_then(|rest| rest.split_once("} "));
    match parts {
        Some((condition, line)) => (Some(condition), line),
        None => (None, line),
    }
}

/// Returns a line of a fix without its condition, or `None` if it does not hold on this machine.
fn applicable<'a>(line: &'a str, subject: &Subject<'_>, isolation: &Isolation) -> Option<&'a str> {
    let (condition, line) = conditional(line);
    let holds = match condition {
        Some(text) => Condition::parse(text)?.holds(subject, isolation),
        None => true,
    };
    holds.then_some(line)
}

/// Returns the running ones of a knob's programs.
fn running(knob: &Knob, subject: &Subject<'_>) -> Vec<&'static str> {
    let Location::Program(names) = knob.location else {
        return Vec::new();
    };
    let programs = subject.readings.programs.iter().flatten();
    let programs: Vec<&String> = programs.collect();
    let runs = |name: &&&str| programs.iter().any(|one| *one == name_in_kernel(name));
    names.iter().filter(runs).copied().collect()
}

/// Returns CPUs as a shell expands them: `{2,3}`, or `2`.
fn in_braces(cpus: &CpuSet) -> String {
    let all: Vec<String> = cpus.iter().map(|cpu| cpu.to_string()).collect();
    match all.as_slice() {
        [only] => only.clone(),
        several => format!("{{{}}}", several.join(",")),
    }
}

/// Returns a line of a knob's fix with the names, numbers and paths of the deviating locations
/// ([`Knob::fix`]), or `None` if no location has what the line names.
fn of_locations(line: &str, locations: &[CheckLocation]) -> Option<String> {
    let wrong: Vec<(Parts<'_>, &CheckLocation)> = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .map(|location| (Parts::of(&location.location), location))
        .collect();
    let mut line = line.to_owned();
    let names = wrong.iter().filter_map(|(parts, _)| parts.name);
    let nameless = wrong.iter().filter(|(parts, _)| parts.name.is_none());
    for (placeholder, separator, all) in [
        ("{names}", ",", distinct(names.map(str::to_owned))),
        (
            "{paths}",
            " ",
            distinct(nameless.map(|(parts, _)| parts.path.to_owned())),
        ),
    ] {
        if line.contains(placeholder) {
            if all.is_empty() {
                return None;
            }
            line = line.replace(placeholder, &all.join(separator));
        }
    }
    let is_repeated = ["{name}", "{id}", "{expected}"]
        .iter()
        .any(|placeholder| line.contains(placeholder));
    if !is_repeated {
        return Some(line);
    }
    let each = distinct(wrong.iter().filter_map(|(parts, location)| {
        let mut line = line.replace("{expected}", &location.expected);
        for (placeholder, part) in [("{name}", parts.name), ("{id}", parts.number)] {
            if line.contains(placeholder) {
                line = line.replace(placeholder, part?);
            }
        }
        Some(line)
    }));
    (!each.is_empty()).then(|| each.join("; "))
}

fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The parts of a location: `PATH`, `PATH (NAME)`, or `process NUMBER (NAME)`.
struct Parts<'a> {
    path: &'a str,
    number: Option<&'a str>,
    name: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn of(location: &'a str) -> Self {
        let (path, name) = match location.split_once(" (") {
            Some((path, name)) => (path, name.strip_suffix(')')),
            None => (location, None),
        };
        let number = path
            .strip_prefix("process ")
            .or_else(|| path.strip_prefix("thread "));
        Self { path, number, name }
    }
}

/// Returns a line of a knob's fix as the command of this machine's distribution: `{real-time-kernel}`
/// installs a kernel with PREEMPT_RT, `{add} PARAMETERS` sets kernel parameters, `{remove} NAME,NAME` removes them. A
/// comment in the form of a shell, after two spaces, remains. `None` if the parameters are in effect already.
fn on_this_machine(line: &str, machine: &Machine) -> Option<String> {
    if line == "{real-time-kernel}" {
        return Some(install_real_time_kernel(machine));
    }
    if line == "{without-boot-cpu}" {
        return Some(
            without_boot_cpu(machine).unwrap_or_else(|| "name other CPUs with --cpus".to_owned()),
        );
    }
    if let Some(names) = line.strip_prefix("{remove} ") {
        let commands = names.split(',').map(|name| remove_parameter(machine, name));
        return Some(commands.collect::<Vec<_>>().join("; "));
    }
    let Some(parameters) = line.strip_prefix("{add} ") else {
        return Some(line.to_owned());
    };
    Some(match parameters.split_once("  # ") {
        Some((parameters, comment)) => {
            format!("{}  # {comment}", add_parameters(machine, parameters)?)
        }
        None => add_parameters(machine, parameters)?,
    })
}

/// Returns the command that removes the boot CPU from the lists of the kernel command line; `None` if it is in none.
fn without_boot_cpu(machine: &Machine) -> Option<String> {
    let line = KernelCommandLine::parse(&machine.command_line);
    let last = last_cpu(machine);
    let words = ["isolcpus", "nohz_full", "rcu_nocbs"].map(|name| {
        let cpus = line.cpus(name, last)?;
        let rest = cpus.difference(&CpuSet::single(BOOT_CPU));
        let flags = line.flags(name);
        (cpus.contains(BOOT_CPU) && !rest.is_empty()).then(|| format!("{name}={flags}{rest}"))
    });
    let words: Vec<String> = words.into_iter().flatten().collect();
    add_parameters(machine, &words.join(" "))
}

/// Returns a command that writes to every location without the expected value.
fn file(locations: &[CheckLocation], value: &str) -> Option<String> {
    let wrong: Vec<&str> = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .map(|location| {
            location
                .location
                .split(' ')
                .next()
                .unwrap_or(&location.location)
        })
        .collect();
    match wrong.as_slice() {
        [] => None,
        [only] => Some(match only.strip_prefix("/proc/sys/") {
            Some(name) => format!("sysctl {}={value}", name.replace('/', ".")),
            None => format!("echo {value} > {only}"),
        }),
        many => Some(format!("echo {value} | tee {}", with_braces(many))),
    }
}

/// Combines paths that differ only in the number of one part into one path with braces, as shells
/// expand it; lists other paths one by one. Names each CPU, since `*` would include CPUs that are
/// as expected.
fn with_braces(paths: &[&str]) -> String {
    one_path(paths).unwrap_or_else(|| paths.join(" "))
}

fn one_path(paths: &[&str]) -> Option<String> {
    let split: Vec<Vec<&str>> = paths.iter().map(|path| path.split('/').collect()).collect();
    let first = split.first()?;
    if split.iter().any(|parts| parts.len() != first.len()) {
        return None;
    }
    let mut braces = 0;
    let mut whole: Vec<String> = Vec::new();
    for (index, part) in first.iter().enumerate() {
        let stem = part.trim_end_matches(|c: char| c.is_ascii_digit());
        let mut names: Vec<&str> = Vec::new();
        for parts in &split {
            let other = *parts.get(index)?;
            let name = other.strip_prefix(stem)?;
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if names.len() == 1 {
            whole.push((*part).to_owned());
        } else {
            braces += 1;
            whole.push(format!("{stem}{{{}}}", names.join(",")));
        }
    }
    // Braces in two parts would expand to paths that do not exist.
    (braces < 2).then(|| whole.join("/"))
}

/// Returns the names as arguments of pgrep(1).
fn pattern(names: &[&str], isolation: &Isolation) -> String {
    if names == ["*"] {
        // kthreadd, of which new threads inherit their affinity, and all its children.
        return "-P 2; echo 2".to_owned();
    }
    let cpus: Vec<String> = isolation
        .real_time
        .iter()
        .map(|cpu| cpu.to_string())
        .collect();
    let cpus = match cpus.as_slice() {
        [only] => only.clone(),
        several => format!("({})", several.join("|")),
    };
    let names: Vec<String> = names
        .iter()
        .map(|name| match name.strip_suffix('*') {
            Some(begin) => format!("^{begin}"),
            None => format!("^{}$", name.replace("{cpu}", &cpus)),
        })
        .collect();
    format!("'{}'", names.join("|"))
}

/// Returns how to verify a knob.
pub(crate) fn verify(knob: &Knob) -> String {
    let usual = match knob.location {
        Location::File(Format::Text, _) => "Read the file again.",
        Location::File(_, _) => {
            "Read the file again and compare sets of CPUs; the notation may differ."
        }
        Location::Exists(_) => "Check whether it exists.",
        Location::Boot { .. } => "Read /proc/cmdline.",
        Location::KernelOption(_) => "Read /proc/config.gz or /boot/config-$(uname -r).",
        Location::ThreadPolicy(_) => "chrt --pid THREAD",
        Location::ThreadAffinity(_) => "Read Cpus_allowed_list in /proc/THREAD/status.",
        Location::Program(_) => "pgrep -x NAME",
        Location::KernelLog(_) => "Read the kernel log again: dmesg.",
        Location::Fact(_, _) => "rampart check",
        Location::Guest(_) => "Read the guest's description.",
    };
    knob.verify.unwrap_or(usual).to_owned()
}

/// Returns how to undo a knob.
pub(crate) fn undo(knob: &Knob) -> String {
    let usual = match knob.location {
        Location::File(_, _) => "Write the old value.",
        Location::Exists(_) | Location::Program(_) => "Start or create it again.",
        Location::Boot { .. } => "Restore the old kernel command line and restart.",
        Location::KernelOption(_) => "Restart with the old kernel.",
        Location::ThreadPolicy(_) => {
            "chrt with the old policy and priority; a restart restores them too."
        }
        Location::ThreadAffinity(_) => {
            "taskset -pc with the old CPUs; a restart restores them too."
        }
        Location::KernelLog(_) => "Undo what was changed.",
        Location::Fact(_, _) => "Write the old values.",
        Location::Guest(_) => "Remove the setting and restart the guest.",
    };
    knob.undo.unwrap_or(usual).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Condition, conditional, with_braces};

    #[test]
    fn every_condition_of_a_fix_is_known() {
        let mut seen = 0;
        for knob in crate::all() {
            for line in knob.fix.unwrap_or_default().lines() {
                let (condition, _) = conditional(line);
                seen += usize::from(condition.is_some());
                let is_known = condition.is_none_or(|text| Condition::parse(text).is_some());
                assert!(is_known, "{}: {line}", knob.name);
            }
        }
        assert!(seen > 5, "{seen}");
    }

    #[test]
    fn combines_paths_that_differ_in_one_number() {
        for (paths, expected) in [
            (
                &["/a/cpu2/b", "/a/cpu3/b", "/a/cpu11/b"][..],
                "/a/cpu{2,3,11}/b",
            ),
            (&["/irq/9/b", "/irq/10/b", "/irq/9/b"], "/irq/{9,10}/b"),
            (&["/a/b", "/a/b"], "/a/b"),
            (&["/net/eth0/b", "/net/lo/b"], "/net/eth0/b /net/lo/b"),
            (
                &["/net/eth0/b", "/net/eth1/b", "/net/lo/b"],
                "/net/eth0/b /net/eth1/b /net/lo/b",
            ),
            (&["/a/cpu2/s0", "/a/cpu3/s1"], "/a/cpu2/s0 /a/cpu3/s1"),
            (&["/a/b", "/a/b/c"], "/a/b /a/b/c"),
        ] {
            assert_eq!(with_braces(paths), expected);
        }
    }
}
