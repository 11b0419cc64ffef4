// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads every setting that keeps CPUs for real-time work, whoever made it: the kernel command line,
//! control groups, systemd, tuned, and the affinity of real-time threads.

use rampart_model::{
    CpuId, CpuSet, IsolationSource, IsolationSourceKind, ObservedPartition, SchedulingPolicy,
};
use rampart_rules::KernelCommandLine;

use crate::MachineRoot;
use crate::facts::{container, processes::processes};
use crate::groups::{Hierarchies, group_in};
use crate::tasks::{self, TaskStat};

const CPUS: &str = "sys/devices/system/cpu";
/// The groups of systemd that contain ordinary work (systemd.special(7)).
const ORDINARY_SLICES: [&str; 3] = ["init.scope", "system.slice", "user.slice"];
/// The group of a machine's first process may have any of these files: what was requested, and what
/// is in effect.
const GROUP_CPUS: [&str; 4] = [
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpus",
    "cpuset.effective_cpus",
];
/// The process name of meters, which measure CPUs and are not their work.
const METER: &str = "rampart-meter";
/// The number of bound threads that a source names.
const NAMED_THREADS: usize = 3;

/// Returns every setting of the machine. Settings that only show what a container may use are left
/// out inside one.
pub(crate) fn read(root: &MachineRoot, partitions: &[ObservedPartition]) -> Vec<IsolationSource> {
    let online: CpuSet = root.value(&format!("{CPUS}/online")).unwrap_or_default();
    let line = KernelCommandLine::parse(&root.text("proc/cmdline").unwrap_or_default());
    let mut found = Found {
        root,
        online,
        sources: Vec::new(),
    };
    found.kernel(&line);
    if container(root).is_none() {
        found.partitions(partitions);
        found.inherited_affinity(&line);
        found.slices();
        found.tuned();
        found.bound_threads();
    }
    found.sources.retain(|source| !source.cpus.is_empty());
    found.sources
}

struct Found<'a> {
    root: &'a MachineRoot,
    online: CpuSet,
    sources: Vec<IsolationSource>,
}

impl Found<'_> {
    fn add(&mut self, kind: IsolationSourceKind, name: impl Into<String>, cpus: CpuSet) {
        self.sources.push(IsolationSource {
            kind,
            name: name.into(),
            cpus,
        });
    }

    /// Returns the CPUs that the sources found so far keep from other work.
    fn enforced(&self) -> CpuSet {
        self.sources
            .iter()
            .fold(CpuSet::new(), |all, source| all.union(&source.cpus))
    }

    /// Adds what the kernel was started with. What it did with a list counts, not the list, wherever
    /// a file shows it (kernel/sched/isolation.c).
    fn kernel(&mut self, line: &KernelCommandLine) {
        let last: CpuId = self
            .root
            .value::<CpuSet>(&format!("{CPUS}/possible"))
            .unwrap_or_else(|| self.online.clone())
            .iter()
            .next_back()
            .unwrap_or(CpuId(0));
        let set = |file: &str| {
            self.root
                .value(&format!("{CPUS}/{file}"))
                .unwrap_or_default()
        };
        let (isolated, tickless): (CpuSet, CpuSet) = (set("isolated"), set("nohz_full"));
        let isolcpus = line.isolcpus(last);
        let is_listed = isolcpus
            .as_ref()
            .is_some_and(|list| list.unbalanced.is_some());
        let name = match is_listed {
            true => "isolcpus=",
            false => "/sys/devices/system/cpu/isolated",
        };
        self.add(IsolationSourceKind::Unbalanced, name, isolated);
        self.add(IsolationSourceKind::Tickless, "nohz_full=", tickless);
        let managed = isolcpus.and_then(|list| list.without_managed_interrupts);
        if let Some(cpus) = managed.filter(|_| !is_listed) {
            self.add(
                IsolationSourceKind::KernelList,
                "isolcpus=managed_irq",
                cpus,
            );
        }
        if let Some(cpus) = line.cpus("rcu_nocbs", last) {
            self.add(IsolationSourceKind::KernelList, "rcu_nocbs=", cpus);
        }
        if let Some(cpus) = line.cpus("irqaffinity", last) {
            let kept = self.online.difference(&cpus);
            self.add(IsolationSourceKind::InterruptAffinity, "irqaffinity=", kept);
        }
    }

    fn partitions(&mut self, partitions: &[ObservedPartition]) {
        // A tool such as `cset shield` makes an exclusive cpuset of the ordinary CPUs too, and moves
        // all processes there.
        let groups = self.root.text("proc/1/cgroup").unwrap_or_default();
        let first: Vec<String> = ["", "cpuset"]
            .iter()
            .filter_map(|controller| group_in(&groups, controller))
            .filter(|group| group != "/")
            .collect();
        for partition in partitions {
            let is_valid = matches!(partition.kind.as_str(), "isolated" | "root" | "exclusive");
            let has_first = first.iter().any(|group| partition.group.ends_with(group));
            if is_valid && !has_first {
                self.add(
                    IsolationSourceKind::Partition,
                    partition.group.as_str(),
                    partition.cpus.clone(),
                );
            }
        }
    }

    /// Adds the CPUs that process 1, and with it all that it starts, may not use. `isolcpus=` and
    /// partitions cause that too, and are sources of their own.
    fn inherited_affinity(&mut self, line: &KernelCommandLine) {
        let Some(first) = tasks::allowed(self.root, 1) else {
            return;
        };
        let kept = self.online.difference(&first);
        // systemd(1): systemd.cpu_affinity=; systemd-system.conf(5): CPUAffinity=.
        let name = if line.has("systemd.cpu_affinity") {
            "systemd.cpu_affinity="
        } else if let Some(file) = self.file_with_affinity() {
            self.add(
                IsolationSourceKind::InheritedAffinity,
                format!("CPUAffinity= in /{file}"),
                kept,
            );
            return;
        } else if kept.is_subset(&self.enforced()) {
            return;
        } else {
            "affinity of process 1"
        };
        self.add(IsolationSourceKind::InheritedAffinity, name, kept);
    }

    fn file_with_affinity(&self) -> Option<String> {
        let directory = "etc/systemd/system.conf.d";
        let more = self.root.names(directory);
        let more = more.iter().map(|name| format!("{directory}/{name}"));
        let mut files = std::iter::once("etc/systemd/system.conf".to_owned()).chain(more);
        files.find(|file| {
            let text = self.root.text(file).unwrap_or_default();
            text.lines().any(|line| {
                let value = line.trim().strip_prefix("CPUAffinity=");
                value.is_some_and(|value| !value.trim().is_empty())
            })
        })
    }

    /// Adds the CPUs that no slice of ordinary work may use (systemd.resource-control(5),
    /// `AllowedCPUs=`).
    fn slices(&mut self) {
        let mounts = self.root.text("proc/self/mountinfo");
        let mounts = mounts
            .map(|text| Hierarchies::parse(&text))
            .unwrap_or_default();
        let Some(mount) = mounts.unified else { return };
        let mount = mount.to_string_lossy().into_owned();
        let mount = mount.trim_start_matches('/');
        let mut used = CpuSet::new();
        let mut names = Vec::new();
        for slice in ORDINARY_SLICES {
            let group = format!("{mount}/{slice}");
            let cpus = GROUP_CPUS
                .iter()
                .find_map(|file| self.root.value::<CpuSet>(&format!("{group}/{file}")))
                .filter(|cpus| !cpus.is_empty());
            match cpus {
                Some(cpus) => {
                    used = used.union(&cpus);
                    names.push(slice);
                }
                // Process 1 alone in its scope uses few CPUs, and has no limit of its own usually.
                None if slice == "init.scope" => {}
                // Without a limit this work may use all CPUs.
                None => return,
            }
        }
        let kept = self.online.difference(&used);
        if !kept.is_subset(&self.enforced()) {
            let name = format!("AllowedCPUs= of {}", names.join(", "));
            self.add(IsolationSourceKind::Slices, name, kept);
        }
    }

    /// Adds the CPUs of tuned's active profile: `isolated_cores` of its variables.
    fn tuned(&mut self) {
        let Some(profiles) = self.root.line("etc/tuned/active_profile") else {
            return;
        };
        // A profile may be merged from several.
        for profile in profiles.split_whitespace() {
            let file = format!("etc/tuned/{profile}-variables.conf");
            let text = self.root.text(&file).unwrap_or_default();
            let cores = text.lines().rev().find_map(|line| {
                let value = line.trim().strip_prefix("isolated_cores")?;
                value.trim().strip_prefix('=')?.trim().parse().ok()
            });
            if let Some(cpus) = cores {
                let name = format!("isolated_cores= in /{file}");
                self.add(IsolationSourceKind::Tuned, name, cpus);
            }
        }
    }

    /// Adds the CPUs that real-time threads of programs, and virtual CPUs, are bound to.
    fn bound_threads(&mut self) {
        let inherited = tasks::allowed(self.root, 1);
        let mut cpus = CpuSet::new();
        let mut names: Vec<String> = Vec::new();
        let programs = processes(self.root);
        let programs = programs
            .iter()
            .filter(|process| !process.is_kernel_thread() && process.name != METER);
        for process in programs {
            let directory = format!("proc/{}/task", process.number);
            let threads = self.root.numbered(&directory, "");
            let stats: Vec<(u32, Option<TaskStat>)> = match threads.is_empty() {
                true => vec![(process.number, process.stat.clone())],
                false => threads
                    .into_iter()
                    .map(|thread| {
                        let text = self.root.text(&format!("{directory}/{thread}/stat"));
                        (thread, text.and_then(|text| TaskStat::parse(&text)))
                    })
                    .collect(),
            };
            for (thread, stat) in stats {
                let Some(stat) = stat.filter(is_real_time_work) else {
                    continue;
                };
                let affinity = tasks::allowed(self.root, thread).filter(|affinity| {
                    *affinity != self.online && Some(affinity) != inherited.as_ref()
                });
                if let Some(affinity) = affinity {
                    cpus = cpus.union(&affinity);
                    names.push(format!("{} ({thread})", stat.name));
                }
            }
        }
        let more = names.len().saturating_sub(NAMED_THREADS);
        names.truncate(NAMED_THREADS);
        let mut name = format!("affinity of real-time threads: {}", names.join(", "));
        if more > 0 {
            name.push_str(&format!(" and {more} more"));
        }
        self.add(IsolationSourceKind::BoundThreads, name, cpus);
    }
}

/// Returns whether a thread does real-time work: by its policy, or as a virtual CPU, which QEMU
/// names `CPU NUMBER/KVM`.
fn is_real_time_work(stat: &TaskStat) -> bool {
    let is_virtual_cpu = stat.name.starts_with("CPU ") && stat.name.ends_with("/KVM");
    is_virtual_cpu || stat.policy.is_some_and(SchedulingPolicy::is_real_time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_rules::real_time_cpus;
    use std::path::Path;

    /// A machine of 8 CPUs with control groups of version 2 and these files.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).expect("a directory");
            std::fs::write(path, text).expect("a file");
        };
        for (path, text) in [
            ("sys/devices/system/cpu/online", "0-7\n"),
            ("sys/devices/system/cpu/possible", "0-7\n"),
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/cpu/nohz_full", "(null)\n"),
            ("proc/cmdline", "ro quiet\n"),
            ("proc/2/comm", "kthreadd\n"),
            ("proc/1/comm", "systemd\n"),
            ("proc/1/status", "Cpus_allowed_list:\t0-7\n"),
            ("proc/1/cgroup", "0::/init.scope\n"),
            (
                "proc/self/mountinfo",
                "29 25 0:25 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
            ),
        ] {
            write(path, text);
        }
        for (path, text) in files {
            write(path, text);
        }
        directory
    }

    /// Returns the real-time CPUs of such a machine, and their sources.
    fn found(files: &[(&str, &str)]) -> Option<(String, String)> {
        let directory = machine(files);
        let root = MachineRoot::at(directory.path());
        let isolation = crate::observe::isolation(&root);
        let online = "0-7".parse().expect("CPUs");
        let found = real_time_cpus(&isolation.sources, &online)?;
        Some((found.cpus.to_string(), found.words()))
    }

    fn expect(files: &[(&str, &str)], cpus: &str, words: &str) {
        assert_eq!(
            found(files),
            Some((cpus.to_owned(), format!("from {words}"))),
            "{files:?}"
        );
    }

    const STAT: &str = " S 1 40 40 0 -1 4194304 0 0 0 0 0 0 0 0 -81 0 1 0 777 0 0 \
        18446744073709551615 0 0 0 0 0 0 0 0 0 0 0 0 17 6 80 1 0 0";

    #[test]
    fn each_origin_of_isolation_is_found() {
        assert_eq!(found(&[]), None);
        let isolated = ("sys/devices/system/cpu/isolated", "6-7\n");
        let tickless = ("sys/devices/system/cpu/nohz_full", "6-7\n");
        expect(
            &[
                isolated,
                ("proc/cmdline", "isolcpus=managed_irq,domain,6-7\n"),
            ],
            "6-7",
            "isolcpus=",
        );
        expect(&[isolated], "6-7", "/sys/devices/system/cpu/isolated");
        expect(&[tickless], "6-7", "nohz_full=");
        let managed = ("proc/cmdline", "isolcpus=managed_irq,4-N\n");
        expect(&[managed], "4-7", "isolcpus=managed_irq");
        expect(&[("proc/cmdline", "rcu_nocbs=5,7\n")], "5,7", "rcu_nocbs=");
        expect(
            &[("proc/cmdline", "irqaffinity=0-4\n")],
            "5-7",
            "irqaffinity=",
        );
        let narrow = ("proc/1/status", "Cpus_allowed_list:\t0-2\n");
        expect(&[narrow], "3-7", "affinity of process 1");
        expect(
            &[narrow, ("proc/cmdline", "systemd.cpu_affinity=0,1,2\n")],
            "3-7",
            "systemd.cpu_affinity=",
        );
        let file = (
            "etc/systemd/system.conf.d/cpus.conf",
            "[Manager]\nCPUAffinity=0 1 2\n",
        );
        expect(
            &[narrow, file],
            "3-7",
            "CPUAffinity= in /etc/systemd/system.conf.d/cpus.conf",
        );
        let profile = ("etc/tuned/active_profile", "cpu-partitioning\n");
        let variables = (
            "etc/tuned/cpu-partitioning-variables.conf",
            "# isolated_cores=1\nisolated_cores = 2-5\n",
        );
        expect(
            &[profile, variables],
            "2-5",
            "isolated_cores= in /etc/tuned/cpu-partitioning-variables.conf",
        );
        assert_eq!(found(&[variables]), None, "a profile that is not active");
    }

    #[test]
    fn control_groups_are_found() {
        let partition = |kind| {
            vec![
                (
                    "sys/fs/cgroup/press.slice/m.service/cpuset.cpus.partition",
                    kind,
                ),
                ("sys/fs/cgroup/press.slice/m.service/cpuset.cpus", "4-5\n"),
            ]
        };
        let group = "/sys/fs/cgroup/press.slice/m.service";
        expect(&partition("isolated\n"), "4-5", group);
        expect(&partition("root\n"), "4-5", group);
        assert_eq!(found(&partition("member\n")), None);
        assert_eq!(found(&partition("isolated invalid (Cpu list)\n")), None);

        let slices = [
            ("sys/fs/cgroup/system.slice/cpuset.cpus.effective", "0-1\n"),
            ("sys/fs/cgroup/user.slice/cpuset.cpus.effective", "0-3\n"),
        ];
        expect(&slices, "4-7", "AllowedCPUs= of system.slice, user.slice");
        assert_eq!(found(&slices[..1]), None, "users may use all CPUs");
        let mut both = partition("isolated\n");
        both.extend([
            (
                "sys/fs/cgroup/system.slice/cpuset.cpus.effective",
                "0-3,6-7\n",
            ),
            (
                "sys/fs/cgroup/user.slice/cpuset.cpus.effective",
                "0-3,6-7\n",
            ),
        ]);
        expect(&both, "4-5", group);

        let mount = (
            "proc/self/mountinfo",
            "29 25 0:25 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        );
        let cset = [
            mount,
            ("proc/1/cgroup", "4:cpuset:/system\n"),
            ("sys/fs/cgroup/cpuset/system/cpuset.cpu_exclusive", "1\n"),
            ("sys/fs/cgroup/cpuset/system/cpuset.cpus", "0-5\n"),
            ("sys/fs/cgroup/cpuset/user/cpuset.cpu_exclusive", "1\n"),
            ("sys/fs/cgroup/cpuset/user/cpuset.cpus", "6-7\n"),
        ];
        expect(&cset, "6-7", "/sys/fs/cgroup/cpuset/user");
    }

    #[test]
    fn bound_real_time_threads_are_found() {
        let stat = format!("40 (control){STAT}");
        let other = format!("41 (control){}", STAT.replace(" 80 1 0 0", " 0 0 0 0"));
        let thread = |affinity| {
            vec![
                ("proc/40/comm", "control\n"),
                ("proc/40/stat", other.as_str()),
                ("proc/40/task/40/stat", other.as_str()),
                ("proc/40/task/41/stat", stat.as_str()),
                ("proc/40/status", "Cpus_allowed_list:\t0\n"),
                ("proc/41/status", affinity),
            ]
        };
        let name = "affinity of real-time threads: control (41)";
        expect(&thread("Cpus_allowed_list:\t6\n"), "6", name);
        assert_eq!(found(&thread("Cpus_allowed_list:\t0-7\n")), None);
        let meter = format!("40 (rampart-meter){STAT}");
        let files = [
            ("proc/40/comm", "rampart-meter\n"),
            ("proc/40/stat", meter.as_str()),
            ("proc/40/status", "Cpus_allowed_list:\t6\n"),
        ];
        assert_eq!(found(&files), None, "a meter is no work");
        let guest = format!("40 (CPU 0/KVM){}", STAT.replace(" 80 1 0 0", " 0 0 0 0"));
        let files = [
            ("proc/40/comm", "qemu-system-x86\n"),
            ("proc/40/stat", guest.as_str()),
            ("proc/40/status", "Cpus_allowed_list:\t5\n"),
        ];
        let name = "affinity of real-time threads: CPU 0/KVM (40)";
        expect(&files, "5", name);
    }

    #[test]
    fn a_container_shows_only_what_the_kernel_does() {
        let inside = [
            ("proc/2/comm", "sh\n"),
            (".dockerenv", ""),
            ("proc/1/status", "Cpus_allowed_list:\t0-2\n"),
        ];
        assert_eq!(found(&inside), None);
        let tickless = ("sys/devices/system/cpu/nohz_full", "6-7\n");
        let mut with = inside.to_vec();
        with.push(tickless);
        expect(&with, "6-7", "nohz_full=");
    }
}
