// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values that the kernel accepts in files of control groups, and the text it returns.

use std::io;
use std::path::{Path, PathBuf};

use rampart_model::CpuSet;
use rustix::io::Errno;

use super::{Machine, V1, V1_CPU, V2, errno};

impl Machine {
    fn overlapping_sibling(&self, path: &Path, cpus: &CpuSet, exclusive_only: bool) -> bool {
        path.parent().is_some_and(|parent| {
            self.children(parent).any(|(other, group)| {
                other != path
                    && (group.exclusive || !exclusive_only)
                    && !group.cpus.intersection(cpus).is_empty()
            })
        })
    }

    fn write_cpus(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let cpus: CpuSet = value.parse().map_err(|_| errno(Errno::INVAL))?;
        let group = self.groups.get(path).ok_or_else(|| errno(Errno::NOENT))?;
        if !self.is_v2() {
            let above = self
                .parent(path)
                .and_then(|parent| self.groups.get(parent))
                .ok_or_else(|| errno(Errno::ACCESS))?;
            if !cpus.is_subset(&above.cpus) {
                return Err(errno(Errno::ACCESS));
            }
            if self
                .children(path)
                .any(|(_, child)| !child.cpus.is_subset(&cpus))
            {
                return Err(errno(Errno::BUSY));
            }
            if self.overlapping_sibling(path, &cpus, !group.exclusive) {
                return Err(errno(Errno::INVAL));
            }
            let busy = self.threads.values().any(|thread| thread.group == path);
            if cpus.is_empty() && busy {
                return Err(errno(Errno::NOSPC));
            }
        }
        if let Some(group) = self.groups.get_mut(path) {
            group.cpus = cpus;
        }
        self.set_effective_affinities(path);
        Ok(())
    }

    fn write_partition(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let cpus = self
            .groups
            .get(path)
            .map(|group| group.cpus.clone())
            .ok_or_else(|| errno(Errno::NOENT))?;
        let content = if value != "isolated" {
            value.to_owned()
        } else if self.overlapping_sibling(path, &cpus, false) {
            "isolated invalid (Cpu list in cpuset.cpus not exclusive)".to_owned()
        } else if self.online.difference(&cpus).is_empty() {
            "isolated invalid (Parent unable to distribute cpu downstream)".to_owned()
        } else {
            value.to_owned()
        };
        if let Some(group) = self.groups.get_mut(path) {
            group.partition = content;
        }
        self.set_effective_affinities(path);
        Ok(())
    }

    fn write_controllers(&mut self, path: &Path, value: &str) -> io::Result<()> {
        let on = value == "+cpuset";
        let below: Vec<PathBuf> = self.children(path).map(|(path, _)| path.clone()).collect();
        if !on && below.iter().any(|child| self.groups[child].enables) {
            return Err(errno(Errno::BUSY));
        }
        if let Some(group) = self.groups.get_mut(path) {
            group.enables = on;
        }
        if !on {
            for child in below {
                if let Some(group) = self.groups.get_mut(&child) {
                    (group.cpus, group.partition) = (CpuSet::new(), String::new());
                }
            }
        }
        self.set_effective_affinities(path);
        Ok(())
    }

    /// v2: returns the group to which a group's processes belong. Only the root has threaded groups
    /// here.
    fn domain(&self, group: &Path) -> PathBuf {
        if self.groups[group].threaded {
            V2.into()
        } else {
            group.to_owned()
        }
    }

    /// v2: returns the content of `cgroup.type`; the root has no such file.
    fn kind(&self, path: &Path) -> Option<&'static str> {
        let above = self.parent(path)?;
        Some(if self.groups.get(path)?.threaded {
            "threaded"
        } else if self.groups[above].threaded {
            "domain invalid"
        } else {
            "domain"
        })
    }

    /// v2: makes a group below the root threaded (other groups here have processes or controllers).
    fn make_threaded(&mut self, path: &Path) -> io::Result<()> {
        let above = self.parent(path).map(Path::to_owned);
        let fits = above.is_some_and(|above| {
            above == Path::new(V2) || self.groups.get(&above).is_some_and(|group| group.threaded)
        });
        match self.groups.get_mut(path) {
            Some(group) if fits && !self.no_threaded_groups => {
                group.threaded = true;
                Ok(())
            }
            _ => Err(errno(Errno::OPNOTSUPP)),
        }
    }

    fn attach(&mut self, group: &Path, file: &str, value: &str) -> io::Result<()> {
        let number: u32 = value.parse().map_err(|_| errno(Errno::INVAL))?;
        let thread = self
            .threads
            .get(&number)
            .ok_or_else(|| errno(Errno::SRCH))?;
        if thread.bound || thread.name == "kthreadd" {
            return Err(errno(Errno::INVAL));
        }
        if self.kind(group) == Some("domain invalid") {
            return Err(errno(Errno::OPNOTSUPP));
        }
        if file == "cgroup.threads" && self.domain(group) != self.domain(&thread.group) {
            return Err(errno(Errno::OPNOTSUPP));
        }
        let own = self.effective(&thread.group);
        let freezer = self.files.get(&thread.group.join("cgroup.freeze"));
        let is_frozen = freezer.is_some_and(|text| text.trim() == "1");
        if !own.is_empty() && own.is_subset(&self.kept) && !is_frozen {
            return Err(errno(Errno::DEADLK));
        }
        let target = &self.groups[group];
        if !self.is_v2() && (target.cpus.is_empty() || target.mems.is_empty()) {
            return Err(errno(Errno::NOSPC));
        }
        // In v2 a group that enables controllers for its children has no processes, except the root.
        if self.is_v2() && target.enables && group != Path::new(V2) {
            return Err(errno(Errno::BUSY));
        }
        if self.forks > 0 {
            self.forks -= 1;
            let mut child = thread.clone();
            let new = self.threads.keys().max().map_or(1, |last| last + 1);
            (child.name, child.process) = (format!("t{new}"), new);
            self.threads.insert(new, child);
        }
        let process = self.threads[&number].process;
        let moving: Vec<u32> = if matches!(file, "tasks" | "cgroup.threads") {
            vec![number]
        } else {
            self.threads
                .iter()
                .filter(|(_, thread)| thread.process == process)
                .map(|(number, _)| *number)
                .collect()
        };
        for number in moving {
            if let Some(thread) = self.threads.get_mut(&number) {
                if group.starts_with(V1_CPU) {
                    thread.cpu_group = group.to_owned();
                } else {
                    thread.group = group.to_owned();
                }
            }
            self.set_effective_affinity(number);
        }
        Ok(())
    }

    pub(super) fn write_group(&mut self, group: &Path, file: &str, value: &str) -> io::Result<()> {
        let flag = value == "1";
        match file {
            "tasks" | "cgroup.procs" | "cgroup.threads" => return self.attach(group, file, value),
            "cgroup.type" if value == "threaded" => return self.make_threaded(group),
            "cpuset.cpus" => return self.write_cpus(group, value),
            "cpuset.cpus.partition" => return self.write_partition(group, value),
            "cgroup.subtree_control" => return self.write_controllers(group, value),
            "cpuset.cpu_exclusive" => {
                let cpus = self.groups[group].cpus.clone();
                if flag && self.overlapping_sibling(group, &cpus, false) {
                    return Err(errno(Errno::INVAL));
                }
            }
            _ => {}
        }
        let entry = self
            .groups
            .get_mut(group)
            .ok_or_else(|| errno(Errno::NOENT))?;
        match file {
            "cpuset.mems" => entry.mems = value.to_owned(),
            "cpuset.cpu_exclusive" => entry.exclusive = flag,
            "cpuset.sched_load_balance" => entry.balance = flag,
            "cgroup.clone_children" => entry.clone = flag,
            "cpu.rt_runtime_us" => {
                entry.runtime = value.parse().map_err(|_| errno(Errno::INVAL))?;
            }
            _ => return Err(errno(Errno::NOENT)),
        }
        Ok(())
    }

    pub(super) fn read_group(&self, path: &Path, file: &str) -> Option<String> {
        let group = self.groups.get(path)?;
        let number = |flag: bool| u8::from(flag).to_string();
        // The files of a controller exist if the parent enables it.
        let cpuset = !self.is_v2()
            || self
                .parent(path)
                .is_some_and(|parent| self.groups[parent].enables);
        Some(match (file, self.is_v2()) {
            ("tasks", false) => self.members(path, false),
            ("cgroup.procs", _) if !group.threaded => self.members(path, true),
            ("cgroup.threads", true) => self.members(path, false),
            ("cgroup.type", true) => self.kind(path)?.to_owned(),
            ("cpuset.cpus", _) if cpuset => group.cpus.to_string(),
            ("cpuset.mems" | "cpuset.effective_mems", false) => group.mems.clone(),
            ("cpuset.effective_cpus", false) => self.effective(path).to_string(),
            ("cpuset.cpu_exclusive", false) => number(group.exclusive),
            ("cpuset.sched_load_balance", false) => number(group.balance),
            ("cgroup.clone_children", false) => number(group.clone),
            ("cpu.rt_runtime_us", false) => group.runtime.to_string(),
            ("cpu.rt_period_us", false) => "1000000".to_owned(),
            ("cpuset.cpus.partition", true) if cpuset => group.partition.clone(),
            ("cpuset.cpus.effective", true) => self.effective(path).to_string(),
            ("cgroup.controllers", true) => "cpuset cpu memory".to_owned(),
            ("cgroup.subtree_control", true) if group.enables => "cpuset memory".to_owned(),
            ("cgroup.subtree_control", true) => "memory".to_owned(),
            _ => return None,
        })
    }

    fn members(&self, group: &Path, processes: bool) -> String {
        self.threads
            .iter()
            .filter(|(number, thread)| {
                let location = if group.starts_with(V1_CPU) {
                    &thread.cpu_group
                } else {
                    &thread.group
                };
                location == group && (!processes || thread.process == **number)
            })
            .map(|(number, _)| format!("{number}\n"))
            .collect()
    }

    pub(super) fn read_process(&self, path: &Path) -> Option<String> {
        let rest = path.strip_prefix("/proc").ok()?;
        let mut parts = rest.iter().filter_map(|part| part.to_str());
        let number: u32 = parts.next()?.parse().ok()?;
        let thread = self.threads.get(&number)?;
        match parts.next()? {
            "stat" => {
                let flags =
                    u64::from(thread.kernel) * 0x0020_0000 + u64::from(thread.bound) * 0x0400_0000;
                Some(format!(
                    "{number} ({}) S 1 1 1 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {} 0",
                    thread.name,
                    1000 + number
                ))
            }
            "cgroup" => {
                let inside = |group: &Path, mount: &str| {
                    let path = group.strip_prefix(mount).unwrap_or(group);
                    format!("/{}", path.display())
                };
                Some(if self.is_v2() {
                    format!("0::{}\n", inside(&thread.group, V2))
                } else {
                    format!(
                        "2:cpu:{}\n1:cpuset:{}\n",
                        inside(&thread.cpu_group, V1_CPU),
                        inside(&thread.group, V1)
                    )
                })
            }
            _ => None,
        }
    }
}
