// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out the fix of every rule that deviates on a recorded machine, in a copy of its files. Each makes its rule
//! pass and no other fail. Functions of a shell stand for the programs that ask the kernel.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rampart_host::{MachineRoot, read_knob_values, read_machine};
use rampart_model::{Check, CheckFinding, CheckState, CpuId, CpuSet, KnobEffect};
use rampart_rules::{KernelCommandLine, Subject, check, named};

/// The recorded machines, each with its real-time CPUs.
const MACHINES: [(&str, &str); 5] = [
    ("board", "4-5"),
    ("laptop", "6-7"),
    ("server", "2-3,6-7"),
    ("simulated", "1-3"),
    ("virtual-machine", "1"),
];

/// Rules whose fix only a kernel can carry out, or whose effect only it shows.
const NEEDS_A_KERNEL: [&str; 4] = [
    // Modules and mounts.
    "kvm",
    "control-group-version",
    // The mode of devices.
    "iommu",
    "preempt-mode",
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
update-grub() { . "$R/etc/default/grub"; echo "$GRUB_CMDLINE_LINUX" > "$R/proc/cmdline"; }
"#;

/// A copy of a recorded machine.
struct Copy {
    directory: PathBuf,
    real_time: CpuSet,
}

impl Copy {
    fn new(directory: &Path, name: &str, real_time: &str) -> Self {
        let copy = directory.join(name);
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

    fn check(&self) -> Check {
        let root = MachineRoot::at(&self.directory);
        let machine = read_machine(&root);
        let readings = read_knob_values(&root, &self.real_time);
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
        // kernel/rcu/tree.c gives this priority to its threads.
        if let Some(priority) = line.value("rcutree.kthread_prio") {
            let command =
                format!("for t in $(pgrep '^rcu[cb]/'); do chrt --fifo --pid {priority} $t; done");
            self.run(&command).expect("threads");
        }
    }
}

fn deviates(finding: &CheckFinding) -> bool {
    matches!(finding.state, CheckState::Error | CheckState::Warning)
}

fn failing(check: &Check) -> BTreeSet<&str> {
    let all = check.findings.iter().filter(|finding| deviates(finding));
    all.map(|finding| finding.rule.as_str()).collect()
}

/// Returns why the fix of a rule is not carried out here.
fn left_out(finding: &CheckFinding) -> bool {
    let knob = named(&finding.rule).expect("a knob");
    let elsewhere = [KnobEffect::WithAnotherKernel, KnobEffect::InFirmware];
    knob.by_hand.is_some()
        || elsewhere.contains(&finding.effect)
        || NEEDS_A_KERNEL.contains(&knob.name)
}

#[test]
fn each_fix_makes_its_rule_pass_and_no_other_fail() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut carried_out = BTreeSet::new();
    let mut wrong = Vec::new();
    for (name, real_time) in MACHINES {
        let copy = Copy::new(directory.path(), name, real_time);
        copy.restart();
        let mut before = copy.check();
        let mut tried = BTreeSet::new();
        loop {
            let mut deviations = before
                .findings
                .iter()
                .filter(|one| deviates(one) && !left_out(one));
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
    assert!(carried_out.len() > 50, "{carried_out:?}");
}
