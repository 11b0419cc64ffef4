// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine in memory that follows the kernel's rules for cpusets, partitions, interrupts and
//! affinities as far as shields need them, and that can end the process at any step.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rampart_model::{CpuId, CpuSet, SchedulingPolicy};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::kernel::Kernel;
use crate::policy::Attributes;

pub(crate) mod resctrl;
mod rules;
mod systemd;

pub(crate) const V1: &str = "/sys/fs/cgroup/cpuset";
pub(crate) const V1_CPU: &str = "/sys/fs/cgroup/cpu";
pub(crate) const V2: &str = "/sys/fs/cgroup";

pub(crate) fn cpus(text: &str) -> CpuSet {
    text.parse().expect("CPUs")
}

/// Creates a state directory, in memory if possible: hundreds of journals are written and synced.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .expect("directory")
}

/// Returns a machine of four CPUs with programs, kernel threads and interrupts.
pub(crate) fn ordinary(layout: Layout) -> Machine {
    let mut machine = Machine::new(4, layout);
    for number in 10..14 {
        machine.add_thread(number, false, None);
    }
    machine.add_thread(20, false, Some(cpus("1")));
    machine.add_thread(22, false, Some(cpus("3")));
    machine.add_thread(30, true, None);
    machine.add_thread(2, true, None);
    if let Some(thread) = machine.threads.get_mut(&2) {
        thread.name = "kthreadd".to_owned();
    }
    machine.add_interrupt(4, &cpus("0-3"), false);
    machine.add_interrupt(5, &cpus("3"), false);
    machine.add_interrupt(6, &cpus("2-3"), true);
    machine
}

/// The mounted control group hierarchies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    V1,
    V2,
    None,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) cpus: CpuSet,
    pub(crate) mems: String,
    /// v1: `cpu_exclusive`.
    pub(crate) exclusive: bool,
    pub(crate) balance: bool,
    pub(crate) clone: bool,
    /// v2: content of the partition file.
    pub(crate) partition: String,
    /// v2: `cpuset` in `cgroup.subtree_control`.
    pub(crate) enables: bool,
    /// v2: `cgroup.type` is `threaded`.
    pub(crate) threaded: bool,
    /// v1 `cpu`: the real-time budget in microseconds for each second.
    pub(crate) runtime: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    pub(crate) name: String,
    pub(crate) process: u32,
    pub(crate) kernel: bool,
    pub(crate) bound: bool,
    pub(crate) group: PathBuf,
    pub(crate) cpu_group: PathBuf,
    /// The affinity that it requested, remembered by kernels from 6.2.
    pub(crate) requested: Option<CpuSet>,
    pub(crate) affinity: CpuSet,
    pub(crate) attributes: Attributes,
}

/// Everything that a shield may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Machine {
    pub(crate) online: CpuSet,
    pub(crate) layout: Layout,
    /// Whether requested affinities survive a change of group (6.2).
    pub(crate) remembers: bool,
    pub(crate) files: BTreeMap<PathBuf, String>,
    /// v2: whether a partition was removed whose CPUs the kernel returns some time later.
    pub(crate) late: bool,
    /// v2: whether the kernel refuses threaded groups.
    pub(crate) no_threaded_groups: bool,
    /// Files that refuse every write.
    pub(crate) refusing: BTreeSet<PathBuf>,
    pub(crate) groups: BTreeMap<PathBuf, Group>,
    pub(crate) threads: BTreeMap<u32, Thread>,
    /// Forks still to happen, one with each move of a thread.
    pub(crate) forks: u32,
    /// Caches that can be divided.
    pub(crate) resctrl: Option<resctrl::Resctrl>,
    /// CPUs that a real-time thread keeps. A thread that can run nowhere else may hold a lock for which a move waits.
    pub(crate) kept: CpuSet,
    /// The largest number of huge pages of a size, and how many more each write finds.
    pub(crate) huge_pages: Option<(u64, u64)>,
    /// CPUs taken for detached threads, with the process that holds each.
    pub(crate) taken: BTreeMap<CpuId, u32>,
    /// Units of systemd.
    pub(crate) units: BTreeMap<String, systemd::Unit>,
}

#[derive(Debug)]
pub(crate) struct FakeKernel {
    machine: Mutex<Machine>,
    /// Steps until the process ends; `None`: never.
    steps: Mutex<Option<u64>>,
}

fn errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

impl Machine {
    pub(crate) fn new(cpus: u32, layout: Layout) -> Self {
        let online: CpuSet = (0..cpus).map(CpuId).collect();
        let mut groups = BTreeMap::new();
        let root = Group {
            cpus: online.clone(),
            mems: "0".to_owned(),
            exclusive: true,
            balance: true,
            runtime: 950_000,
            ..Group::default()
        };
        let mounts = match layout {
            Layout::V1 => {
                groups.insert(V1.into(), root.clone());
                groups.insert(V1_CPU.into(), root);
                "1 0 0:1 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                 2 0 0:2 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
            }
            Layout::V2 => {
                groups.insert(V2.into(), root);
                "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
            }
            Layout::None => "",
        };
        let files = [
            ("/proc/self/mountinfo", mounts.to_owned()),
            ("/proc/sys/kernel/random/boot_id", "boot\n".to_owned()),
            (
                "/proc/sys/kernel/sched_rt_runtime_us",
                "950000\n".to_owned(),
            ),
            ("/sys/devices/system/cpu/online", format!("{online}\n")),
            ("/proc/irq/default_smp_affinity", online.to_mask()),
            ("/sys/devices/virtual/workqueue/cpumask", online.to_mask()),
        ];
        Self {
            layout,
            remembers: true,
            late: false,
            no_threaded_groups: false,
            files: files
                .into_iter()
                .map(|(path, text)| (path.into(), text))
                .collect(),
            refusing: BTreeSet::new(),
            groups,
            threads: BTreeMap::new(),
            forks: 0,
            units: BTreeMap::new(),
            taken: BTreeMap::new(),
            resctrl: None,
            kept: CpuSet::new(),
            huge_pages: None,
            online,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        match self.layout {
            Layout::V2 => V2.into(),
            Layout::V1 | Layout::None => V1.into(),
        }
    }

    pub(crate) fn add_thread(&mut self, number: u32, kernel: bool, requested: Option<CpuSet>) {
        let affinity = requested.clone().unwrap_or_else(|| self.online.clone());
        self.threads.insert(
            number,
            Thread {
                name: format!("t{number}"),
                process: number,
                kernel,
                bound: false,
                group: self.root(),
                cpu_group: V1_CPU.into(),
                requested,
                affinity,
                attributes: Attributes::of(SchedulingPolicy::Other),
            },
        );
    }

    pub(crate) fn add_interrupt(&mut self, number: u32, cpus: &CpuSet, refuses: bool) {
        let directory = PathBuf::from(format!("/proc/irq/{number}"));
        let file = directory.join("smp_affinity_list");
        self.files.insert(file.clone(), format!("{cpus}\n"));
        self.files
            .insert(directory.join("driver/files"), String::new());
        if refuses {
            self.refusing.insert(file);
        }
    }

    fn is_v2(&self) -> bool {
        self.layout == Layout::V2
    }

    fn parent<'a>(&self, group: &'a Path) -> Option<&'a Path> {
        group
            .parent()
            .filter(|parent| self.groups.contains_key(*parent))
    }

    fn children(&self, group: &Path) -> impl Iterator<Item = (&PathBuf, &Group)> {
        self.groups
            .iter()
            .filter(move |(path, _)| path.parent() == Some(group))
    }

    /// Returns the CPUs that the threads of a group may use.
    pub(crate) fn effective(&self, path: &Path) -> CpuSet {
        let Some(group) = self.groups.get(path) else {
            return self.online.clone();
        };
        if !self.is_v2() {
            return group.cpus.clone();
        }
        if group.partition == "isolated" {
            return group.cpus.clone();
        }
        let Some(parent) = self.parent(path) else {
            return self
                .groups
                .values()
                .filter(|group| group.partition == "isolated")
                .fold(self.online.clone(), |left, group| {
                    left.difference(&group.cpus)
                });
        };
        let above = self.effective(parent);
        let own = group.cpus.intersection(&above);
        if own.is_empty() { above } else { own }
    }

    /// Lets pending changes of the kernel take effect.
    pub(crate) fn settle(&mut self) {
        if std::mem::take(&mut self.late) {
            self.set_effective_affinities(Path::new(V2));
        }
    }

    fn set_effective_affinity(&mut self, number: u32) {
        let Some(thread) = self.threads.get(&number) else {
            return;
        };
        // From 6.2 on, a partition of v2 does not change kernel threads of the root group.
        if thread.bound || (self.is_v2() && thread.kernel && self.remembers) {
            return;
        }
        let effective = self.effective(&thread.group);
        let requested = thread
            .requested
            .as_ref()
            .filter(|_| self.remembers)
            .map(|requested| requested.intersection(&effective))
            .filter(|cpus| !cpus.is_empty());
        if let Some(thread) = self.threads.get_mut(&number) {
            thread.affinity = requested.unwrap_or(effective);
        }
    }

    /// Applies a change of a group's CPUs to its threads; in v2 to those of all groups.
    fn set_effective_affinities(&mut self, changed: &Path) {
        let everyone = self.is_v2();
        let numbers: Vec<u32> = self
            .threads
            .iter()
            .filter(|(_, thread)| everyone || thread.group == changed)
            .map(|(number, _)| *number)
            .collect();
        for number in numbers {
            self.set_effective_affinity(number);
        }
    }
}

impl FakeKernel {
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            machine: Mutex::new(machine),
            steps: Mutex::new(None),
        }
    }

    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the process after so many steps: later calls have no effect and fail.
    pub(crate) fn end_after(&self, steps: Option<u64>) {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) = steps;
    }

    /// Returns whether the process was ended.
    pub(crate) fn ended(&self) -> bool {
        *self.steps.lock().unwrap_or_else(PoisonError::into_inner) == Some(0)
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, Machine>> {
        if self.ended() {
            return Err(io::Error::other("the process was killed"));
        }
        Ok(self.machine())
    }
}

fn split(path: &Path) -> (PathBuf, String) {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    (path.parent().unwrap_or(path).to_owned(), name)
}

impl Kernel for FakeKernel {
    fn read(&self, path: &Path) -> io::Result<String> {
        let machine = self.machine();
        let (directory, name) = split(path);
        machine
            .read_group(&directory, &name)
            .or_else(|| machine.read_resctrl(path))
            .or_else(|| machine.files.get(path).cloned())
            .or_else(|| machine.read_process(path))
            .ok_or_else(|| errno(Errno::NOENT))
    }

    fn write(&self, path: &Path, value: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        if machine.refusing.contains(path) {
            return Err(errno(Errno::IO));
        }
        if path.starts_with(resctrl::POINT) {
            return machine.write_resctrl(path, value);
        }
        let (directory, name) = split(path);
        // A threaded group's processes can be written but not read.
        let unreadable = name == "cgroup.procs" && machine.groups.contains_key(&directory);
        if unreadable || machine.read_group(&directory, &name).is_some() {
            return machine.write_group(&directory, &name, value);
        }
        let pages = machine.huge_pages.filter(|_| name == "nr_hugepages");
        match machine.files.get_mut(path) {
            Some(text) if pages.is_some() => {
                let (most, more) = pages.unwrap_or_default();
                let number = |text: &str| text.trim().parse().unwrap_or(0_u64);
                let found = number(text).saturating_add(more).min(most);
                *text = format!("{}\n", number(value).min(found));
                Ok(())
            }
            // The group of a unit that has processes.
            Some(_) if name == "cpuset.cpus" && value.is_empty() => Err(errno(Errno::NOSPC)),
            Some(text) => {
                // A parameter of a module ends at a NUL byte.
                let value = value.split('\0').next().unwrap_or_default();
                *text = format!("{value}\n");
                Ok(())
            }
            None => Err(errno(Errno::NOENT)),
        }
    }

    fn make_directory(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.alive()?;
        if path.starts_with(resctrl::POINT) {
            return machine.make_cache_group(path);
        }
        if machine.parent(path).is_none() {
            return Err(errno(Errno::NOENT));
        }
        if machine.groups.contains_key(path) {
            return Err(errno(Errno::EXIST));
        }
        let group = Group {
            balance: true,
            ..Group::default()
        };
        machine.groups.insert(path.to_owned(), group);
        Ok(())
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        let mut machine = self.alive()?;
        if path.starts_with(resctrl::POINT) {
            return machine.remove_cache_group(path);
        }
        let busy = machine.children(path).next().is_some()
            || machine
                .threads
                .values()
                .any(|thread| thread.group == path || thread.cpu_group == path);
        if busy {
            return Err(errno(Errno::BUSY));
        }
        let group = machine
            .groups
            .remove(path)
            .ok_or_else(|| errno(Errno::NOENT))?;
        machine.late |= group.partition == "isolated";
        Ok(())
    }

    fn names(&self, path: &Path) -> Vec<String> {
        let machine = self.machine();
        if path.starts_with(resctrl::POINT) {
            return machine.resctrl_names(path);
        }
        let first = |other: &Path| {
            let inside = other.strip_prefix(path).ok()?;
            Some(inside.iter().next()?.to_string_lossy().into_owned())
        };
        let mut names: BTreeSet<String> = machine
            .files
            .keys()
            .chain(machine.groups.keys())
            .filter_map(|other| first(other))
            .collect();
        let processes = machine.threads.iter().filter_map(|(number, thread)| {
            if path == Path::new("/proc") {
                (thread.process == *number).then_some(*number)
            } else {
                let process = format!("/proc/{}/task", thread.process);
                (path == Path::new(&process)).then_some(*number)
            }
        });
        names.extend(processes.map(|number| number.to_string()));
        names.into_iter().collect()
    }

    fn is_directory(&self, path: &Path) -> bool {
        let machine = self.machine();
        machine.groups.contains_key(path)
            || machine.is_cache_directory(path)
            || (!machine.files.contains_key(path)
                && machine.files.keys().any(|file| file.starts_with(path)))
    }

    fn exists(&self, path: &Path) -> bool {
        self.is_directory(path) || self.read(path).is_ok()
    }

    fn affinity(&self, thread: u32) -> io::Result<CpuSet> {
        self.machine()
            .threads
            .get(&thread)
            .map(|thread| thread.affinity.clone())
            .ok_or_else(|| errno(Errno::SRCH))
    }

    fn set_affinity(&self, thread: u32, cpus: &CpuSet) -> io::Result<()> {
        let mut machine = self.alive()?;
        let group = machine
            .threads
            .get(&thread)
            .map(|thread| thread.group.clone())
            .ok_or_else(|| errno(Errno::SRCH))?;
        let allowed = machine.effective(&group).intersection(cpus);
        let Some(thread) = machine.threads.get_mut(&thread) else {
            return Err(errno(Errno::SRCH));
        };
        if thread.bound || (allowed.is_empty() && !thread.kernel) {
            return Err(errno(Errno::INVAL));
        }
        thread.affinity = if thread.kernel { cpus.clone() } else { allowed };
        thread.requested = Some(cpus.clone());
        Ok(())
    }

    fn replace_file(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        machine.files.insert(path.to_owned(), text.to_owned());
        Ok(())
    }

    fn mount(&self, kind: &str, point: &Path) -> io::Result<()> {
        self.alive()?.mount(kind, point, true)
    }

    fn unmount(&self, point: &Path) -> io::Result<()> {
        self.alive()?.mount("resctrl", point, false)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.alive()?.files.remove(path);
        Ok(())
    }

    fn run(
        &self,
        words: &[String],
        _limit: std::time::Duration,
    ) -> io::Result<crate::CapturedOutput> {
        self.alive()?.run(words)
    }

    fn take_cpu(&self, cpu: CpuId) -> io::Result<std::os::fd::OwnedFd> {
        let mut machine = self.alive()?;
        if machine.taken.contains_key(&cpu) {
            return Err(errno(Errno::BUSY));
        }
        machine.taken.insert(cpu, std::process::id());
        Ok(std::fs::File::open("/dev/null")?.into())
    }

    fn give_cpu(&self, process: u32, cpu: CpuId) -> io::Result<bool> {
        let mut machine = self.alive()?;
        let holds = machine.taken.get(&cpu) == Some(&process);
        if holds {
            machine.taken.remove(&cpu);
        }
        Ok(holds)
    }

    fn remove_module(&self, name: &str) -> io::Result<()> {
        let mut machine = self.alive()?;
        let users = Path::new("/sys/module").join(name).join("refcnt");
        match machine.files.get(&users).map(String::as_str) {
            Some("0\n") => {
                machine.files.remove(&users);
                Ok(())
            }
            Some(_) => Err(errno(Errno::WOULDBLOCK)),
            None => Err(errno(Errno::NOENT)),
        }
    }

    fn attributes(&self, thread: u32) -> io::Result<Attributes> {
        self.machine()
            .threads
            .get(&thread)
            .map(|thread| thread.attributes)
            .ok_or_else(|| errno(Errno::SRCH))
    }

    fn set_attributes(&self, thread: u32, attributes: &Attributes) -> io::Result<()> {
        match self.alive()?.threads.get_mut(&thread) {
            Some(thread) => thread.attributes = *attributes,
            None => return Err(errno(Errno::SRCH)),
        }
        Ok(())
    }

    fn step(&self) -> io::Result<()> {
        let mut steps = self.steps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left) = steps.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                return Err(io::Error::other("the process was killed"));
            }
        }
        Ok(())
    }
}
