// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out the fix of every rule that deviates on a recorded machine, in a copy of its files. Each makes its rule
//! pass and no other fail. Functions of a shell stand for the programs that ask the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rampart_host::{MachineRoot, read_knob_values, read_machine};
use rampart_model::{Check, CheckFinding, CheckState, CpuId, CpuSet, KnobEffect, Machine};
use rampart_rules::{
    Expected, Format, Isolation, KernelCommandLine, Knob, Location, Readings, Subject, all, check,
    named, satisfies, to_write,
};

/// A recorded machine and its real-time CPUs, and what it has wrong.
const MACHINES: [(&str, &str, Faults); 7] = [
    ("board", "4-5", Faults::All),
    ("laptop", "6-7", Faults::Own(&[])),
    (
        "laptop",
        "6-7",
        Faults::Own(&[
            ("proc/cmdline", "isolcpus=domian,6-7 rcu_nocb=6-7"),
            (
                "proc/modules",
                "zfs 1 2 - Live 0x0 (POE)\next4 1 2 - Live 0x0\n",
            ),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "acpi_pm",
            ),
        ]),
    ),
    (
        "laptop",
        "6-7",
        Faults::Own(&[(
            "proc/cmdline",
            "isolcpus=6-7 nohz_full=5 isolcpus=domain,5-7 rcu_nocbs=5",
        )]),
    ),
    ("server", "2-3,6-7", Faults::All),
    ("simulated", "1-3", Faults::Own(&[])),
    ("virtual-machine", "1", Faults::Own(&[])),
];

/// What a recorded machine has wrong.
#[derive(Clone, Copy)]
enum Faults {
    /// What it was recorded with, and these files.
    Own(&'static [(&'static str, &'static str)]),
    /// Every file, parameter and program of the catalogue.
    All,
}

/// Rules whose fix only a kernel can carry out, or whose effect only it shows.
const NEEDS_A_KERNEL: [&str; 9] = [
    // Modules and mounts.
    "kvm",
    "control-group-version",
    "cache-allocation",
    // CPUs that go offline, a scheduler that ends.
    "sibling-threads",
    "extensible-scheduler",
    // Programs that undo what they did.
    "cset-shield",
    "partrt",
    // The mode of devices.
    "iommu",
    "preempt-mode",
];

/// Rules that deviate on none of these machines, or that the fix of another rule sets too. A new rule belongs to a machine.
const NOT_SEEN: [&str; 19] = [
    "random-generator",
    "program-affinity",
    "floating-threads",
    "extensible-server",
    "real-time-group-scheduling",
    "rcuo-affinity",
    "vhost-affinity",
    "guest-timer-thread-affinity",
    "irqbalance-banned-cpus",
    "rcu-nocbs",
    "rcu-patience",
    "device-runtime-power",
    "storage-link-power",
    "default-receive-steering",
    "receive-flush-timeout",
    "deferred-interrupts",
    "group-affinity",
    "v1-balancing",
    "irqbalance",
];

/// What programs do to the files below `$R`.
const PROGRAMS: &str = r#"
set -e
fields() { local line; line=$(<"$1"); head="${line%) *})"; rest=(${line##*) }); }
chrt() { fields "$R/proc/$4/stat"; rest[37]=$3; rest[38]=1; echo "$head ${rest[*]}" > "$R/proc/$4/stat"; }
taskset() { [ ! -f "$R/proc/$3/status" ] || sed -i "s/^Cpus_allowed_list:.*/Cpus_allowed_list:\t$2/" "$R/proc/$3/status"; }
pgrep() {
    local one
    for one in "$R"/proc/[0-9]*/stat; do
        fields "$one"
        name="${head#*\(}"; name="${name%)}"
        if [ "$1" = -P ]; then [ "${rest[1]}" = "$2" ] || continue; else [[ $name =~ $1 ]] || continue; fi
        one=${one%/stat}; echo "${one##*/}"
    done
}
end() { local one; for one in "$R"/proc/[0-9]*/comm; do [ "$(<"$one")" != "${1:0:15}" ] || rm -r "${one%/comm}"; done; }
sysctl() { local name="${1%%=*}"; echo "${1#*=}" > "$R/proc/sys/${name//.//}"; }
swapoff() { sed -i '2,$d' "$R/proc/swaps"; }
systemctl() {
    local action=$1 unit; shift
    case $action in
    disable|mask) shift; for unit; do end "${unit%.*}"; rm -f "$R"/etc/systemd/system/*.wants/"$unit"; done ;;
    set-property) echo "${2#AllowedCPUs=}" | tee "$R/sys/fs/cgroup/$1"/cpuset.cpus{,.effective} ;;
    restart) ;;
    esac
}
snap() { end "${!#}"; }
update-grub() { . "$R/etc/default/grub"; echo "$GRUB_CMDLINE_LINUX" > "$R/proc/cmdline"; }
"#;

/// A copy of a recorded machine.
struct Copy {
    directory: PathBuf,
    real_time: CpuSet,
}

impl Copy {
    fn new(directory: &Path, (name, real_time, faults): (&str, &str, Faults)) -> Self {
        let copy = directory.join(name);
        fs::create_dir(directory).expect("a directory");
        let from = rampart_recorded::directory(name);
        let status = Command::new("cp")
            .args(["-r", "--"])
            .arg(from)
            .arg(&copy)
            .status();
        assert!(status.expect("cp").success());
        let copy = Self {
            directory: copy,
            real_time: real_time.parse().expect("CPUs"),
        };
        match faults {
            Faults::Own(files) => files.iter().for_each(|(path, text)| copy.write(path, text)),
            Faults::All => copy.spoil(),
        }
        // Every machine here starts with GRUB.
        let line = copy.read("proc/cmdline");
        // What follows is for the first process, and no boot loader's configuration has it.
        let line = line.split(" -- ").next().unwrap_or_default();
        copy.write("usr/sbin/update-grub", "");
        copy.write("etc/fstab", "/dev/sda3 none swap sw 0 0\n");
        copy.write(
            "etc/default/grub",
            &format!("GRUB_CMDLINE_LINUX=\"{}\"\n", line.trim()),
        );
        copy
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.directory.join(path)).unwrap_or_default()
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.directory.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    /// Gives the files, parameters and programs of the catalogue a state that their rules refuse, and what a file is
    /// that this machine does not have.
    fn spoil(&self) {
        let (machine, readings) = self.facts();
        let subject = Subject {
            machine: &machine,
            readings: &readings,
        };
        let isolation = subject.isolation(self.real_time.clone());
        let mut words = vec!["root=/dev/sda1".to_owned()];
        for (number, knob) in all().enumerate() {
            match knob.location {
                Location::File(format, templates) => {
                    let found = readings.first_readable(templates).iter();
                    let mut paths: Vec<String> = found.map(|one| one.path.clone()).collect();
                    if paths.is_empty() {
                        paths = self.expanded(templates[0]);
                    }
                    for path in paths {
                        let old = self.read(path.trim_start_matches('/'));
                        if let Some(text) = wrong(knob.expected, format, &old, &isolation) {
                            self.write(path.trim_start_matches('/'), &text);
                        }
                    }
                }
                Location::Boot { parameter, .. } => match knob.expected {
                    Expected::Absent => words.push(format!("{parameter}=1")),
                    Expected::Not(refused) => words.push(format!("{parameter}={}", refused[0])),
                    // The line has none of the others.
                    _ => {}
                },
                Location::Program(names) if knob.expected == Expected::Absent => {
                    let name: String = names[0].chars().take(15).collect();
                    self.write(&format!("proc/{}/comm", 90_000 + number), &name);
                }
                _ => {}
            }
        }
        self.write("proc/cmdline", &words.join(" "));
    }

    /// Returns the paths that a template has here; none if names are needed that only this machine could have.
    fn expanded(&self, template: &str) -> Vec<String> {
        const EACH: &str = "{real-time-cpu}";
        let paths: Vec<String> = match template.contains(EACH) {
            true => {
                let cpus = self.real_time.iter();
                cpus.map(|cpu| template.replace(EACH, &cpu.to_string()))
                    .collect()
            }
            false => vec![template.to_owned()],
        };
        paths
            .into_iter()
            .filter(|path| !path.contains('{'))
            .collect()
    }

    fn facts(&self) -> (Machine, Readings) {
        let root = MachineRoot::at(&self.directory);
        (
            read_machine(&root),
            read_knob_values(&root, &self.real_time),
        )
    }

    fn check(&self) -> Check {
        let (machine, readings) = self.facts();
        let subject = Subject {
            machine: &machine,
            readings: &readings,
        };
        let isolation = subject.isolation(self.real_time.clone());
        check(subject, &isolation, "the test", None, "test")
    }

    /// Carries out a command with the files of this machine, and what the kernel then does.
    fn carry_out(&self, command: &str) -> Result<(), String> {
        let marked = self.marked_files(command);
        self.run(command)?;
        for (path, choices) in marked {
            let chosen = self.read(&path).trim().to_owned();
            let plain = choices.replace(['[', ']'], "");
            let words = plain.split_whitespace().map(|word| match word == chosen {
                true => format!("[{word}]"),
                false => word.to_owned(),
            });
            self.write(&path, &words.collect::<Vec<_>>().join(" "));
        }
        self.restart();
        Ok(())
    }

    /// Runs a command with the files of this machine.
    fn run(&self, command: &str) -> Result<(), String> {
        let script = format!("{PROGRAMS}\n{}", self.with_own_paths(command));
        let output = Command::new("bash")
            .args(["-c", &script])
            .env("R", &self.directory)
            .output()
            .expect("bash");
        let error = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{command}: {error}"));
        }
        Ok(())
    }

    /// Returns a command with the paths of the copy.
    fn with_own_paths(&self, command: &str) -> String {
        let mut text = String::new();
        let mut before = ' ';
        for (index, character) in command.char_indices() {
            let rest = &command[index..];
            let is_path = ["/proc/", "/sys/", "/etc/", "/boot/"]
                .iter()
                .any(|begin| rest.starts_with(begin));
            if is_path && before.is_whitespace() {
                text.push_str(&self.directory.display().to_string());
            }
            text.push(character);
            before = character;
        }
        text
    }

    /// Returns the files that a command names of which the kernel shows all choices, as `always [madvise] never`.
    fn marked_files(&self, command: &str) -> Vec<(String, String)> {
        let words = command.split_whitespace();
        let paths = words.filter_map(|word| word.strip_prefix('/'));
        paths
            .map(|path| (path.to_owned(), self.read(path)))
            .filter(|(_, text)| text.contains('['))
            .collect()
    }

    /// Does what the kernel and systemd do with the kernel command line, as far as the rules read it.
    fn restart(&self) {
        let line = KernelCommandLine::parse(&self.read("proc/cmdline"));
        let possible = self.read("sys/devices/system/cpu/possible");
        let possible: CpuSet = possible.trim().parse().unwrap_or_default();
        let last = possible.iter().next_back().unwrap_or(CpuId(0));
        let cpus = |set: Option<CpuSet>| set.unwrap_or_default().to_string();
        let unbalanced = line.isolcpus(last).and_then(|list| list.unbalanced);
        self.write("sys/devices/system/cpu/isolated", &cpus(unbalanced));
        self.write(
            "sys/devices/system/cpu/nohz_full",
            &cpus(line.cpus("nohz_full", last)),
        );
        if let Some(cpus) = line.value("systemd.cpu_affinity") {
            let status = self.read("proc/1/status");
            let lines = status
                .lines()
                .map(|line| match line.starts_with("Cpus_allowed_list:") {
                    true => format!("Cpus_allowed_list:\t{cpus}"),
                    false => line.to_owned(),
                });
            self.write("proc/1/status", &lines.collect::<Vec<_>>().join("\n"));
        }
        let words = self.read("proc/cmdline");
        for (parameter, value) in words
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
        {
            if let Some((module, name)) = parameter.split_once('.') {
                let file = format!("sys/module/{module}/parameters/{name}");
                if self.directory.join(&file).is_file() {
                    self.write(&file, value);
                }
            }
        }
        let refused: Vec<&str> = line
            .value("module_blacklist")
            .unwrap_or_default()
            .split(',')
            .collect();
        let modules = self.read("proc/modules");
        let is_loaded =
            |module: &&str| !refused.contains(&module.split(' ').next().unwrap_or_default());
        let loaded: Vec<&str> = modules.lines().filter(is_loaded).collect();
        self.write("proc/modules", &loaded.join("\n"));
        // kernel/rcu/tree.c gives this priority to its threads.
        if let Some(priority) = line.value("rcutree.kthread_prio") {
            let command =
                format!("for t in $(pgrep '^rcu[cb]/'); do chrt --fifo --pid {priority} $t; done");
            self.run(&command).expect("threads");
        }
    }
}

/// Returns a value that is not as expected, in the form of the old one; `None` if every value is.
fn wrong(expected: Expected, format: Format, old: &str, isolation: &Isolation) -> Option<String> {
    if let Expected::Marked(right) = expected {
        let plain = old.replace(['[', ']'], "");
        let wrong = plain.split_whitespace().find(|word| !right.contains(word));
        return Some(match wrong {
            Some(wrong) => plain.replacen(wrong, &format!("[{wrong}]"), 1),
            None => format!("[other] {}", right[0]),
        });
    }
    let all = Isolation {
        housekeeping: isolation.housekeeping.union(&isolation.real_time),
        ..isolation.clone()
    };
    let cpus = [&all, isolation].map(|isolation| to_write(Expected::NoRealTime, format, isolation));
    let others = ["0", "1", "-1", "99999999", "N", "Y", "powersave", "0-0"].map(str::to_owned);
    let mut candidates = cpus.into_iter().flatten().chain(others);
    candidates.find(|text| satisfies(expected, format, text, isolation) == Some(false))
}

fn deviates(finding: &CheckFinding) -> bool {
    matches!(finding.state, CheckState::Error | CheckState::Warning)
}

fn failing(check: &Check) -> BTreeSet<&str> {
    let all = check.findings.iter().filter(|finding| deviates(finding));
    all.map(|finding| finding.rule.as_str()).collect()
}

/// Returns whether the data of a rule says that its fix is no command, or needs another kernel or firmware.
fn is_left_out(knob: &Knob) -> bool {
    let elsewhere = [KnobEffect::WithAnotherKernel, KnobEffect::InFirmware];
    knob.by_hand.is_some()
        || matches!(knob.location, Location::KernelOption(_))
        || elsewhere.contains(&knob.effect)
        || NEEDS_A_KERNEL.contains(&knob.name)
}

#[test]
fn each_fix_makes_its_rule_pass_and_no_other_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut carried_out = BTreeSet::new();
    let mut wrong = Vec::new();
    for (number, machine) in MACHINES.into_iter().enumerate() {
        let name = machine.0;
        let copy = Copy::new(&directory.path().join(number.to_string()), machine);
        copy.restart();
        let mut before = copy.check();
        let mut tried = BTreeSet::new();
        loop {
            let mut deviations = before
                .findings
                .iter()
                .filter(|one| deviates(one) && !is_left_out(named(&one.rule).expect("a knob")));
            let Some(finding) = deviations.find(|one| tried.insert(one.rule.clone())) else {
                break;
            };
            let fix = finding.fix.as_deref().unwrap_or_default();
            let command = fix.lines().next().unwrap_or_default();
            if let Err(error) = copy.carry_out(command) {
                wrong.push(format!("{name}, {}: {error}", finding.rule));
            }
            let after = copy.check();
            let (old, new) = (failing(&before), failing(&after));
            let still = after.findings.iter().find(|one| one.rule == finding.rule);
            let still = still.filter(|one| deviates(one));
            let others: Vec<&&str> = new.difference(&old).collect();
            if still.is_some() || !others.is_empty() {
                wrong.push(format!(
                    "{name}, {}: after {command:?} found {:?}, and new failures {others:?}",
                    finding.rule,
                    still.map(|one| &one.found)
                ));
            }
            carried_out.insert(finding.rule.clone());
            before = after;
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    let not_seen: Vec<&str> = all()
        .filter(|knob| knob.expected != Expected::Informational && !is_left_out(knob))
        .filter(|knob| !matches!(knob.location, Location::Guest(_) | Location::KernelLog(_)))
        .map(|knob| knob.name)
        .filter(|name| !carried_out.contains(*name))
        .collect();
    assert_eq!(not_seen, NOT_SEEN, "carried out: {carried_out:?}");
}
