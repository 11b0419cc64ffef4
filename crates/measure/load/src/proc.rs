// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the processes of a load from `/proc`, and what its size depends on.

use std::fs;

use rampart_model::{CpuId, CpuSet, Nanos};
use rustix::process::Pid;

/// Largest memory of a cache load: CPUs share a larger cache, and together use all of it.
const MOST_CACHE: u64 = 64 << 20;

/// Nice value of loads: nine times the CPU time of an ordinary program (sched(7), sched_prio_to_weight in
/// kernel/sched/core.c).
const PREFERRED: i32 = -10;

/// A process of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its process ID.
    pub(crate) id: u32,
    /// State of the process in `/proc/PID/stat`, for example `R` or `T`.
    pub(crate) state: char,
    /// CPU time of the process and of its reaped children.
    pub(crate) cpu_time: Nanos,
    /// Time on the run queue of a CPU; `None` if the kernel does not count it (`CONFIG_SCHED_INFO`).
    /// The wait that lasts at this moment is not included.
    pub(crate) waited: Option<Nanos>,
}

impl Process {
    /// Returns whether a signal or a debugger has stopped it.
    pub(crate) const fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Returns the live processes of the group that `leader` leads: those that descend from it, or all of
/// them if it has ended or the kernel does not list children (`CONFIG_PROC_CHILDREN`).
pub(crate) fn group(leader: u32) -> Vec<Process> {
    let ids = tree(leader).unwrap_or_else(|| numbers("/proc"));
    let mut processes: Vec<Process> = ids
        .into_iter()
        .filter_map(|id| member(id, leader))
        .collect();
    processes.sort_by_key(|process| process.id);
    processes
}

/// Returns a process and its descendants; `None` if its children cannot be read.
fn tree(root: u32) -> Option<Vec<u32>> {
    let mut found = vec![root];
    found.extend(children(root)?);
    let mut next = 1;
    while let Some(&process) = found.get(next) {
        found.extend(children(process).unwrap_or_default());
        next += 1;
    }
    Some(found)
}

/// Returns the children of all threads of a process (proc_pid_task_tid_children(5)).
fn children(process: u32) -> Option<Vec<u32>> {
    let threads = numbers(&format!("/proc/{process}/task"));
    if threads.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for thread in threads {
        let list = fs::read_to_string(format!("/proc/{process}/task/{thread}/children")).ok()?;
        found.extend(
            list.split_whitespace()
                .filter_map(|id| id.parse::<u32>().ok()),
        );
    }
    Some(found)
}

/// Returns the names of the files in a directory that are numbers.
fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// Returns a process if it is alive and in the group of `leader`.
fn member(id: u32, leader: u32) -> Option<Process> {
    let line = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let stat = Stat::parse(&line)?;
    (stat.group == leader && stat.state != 'Z' && stat.state != 'X').then(|| {
        let times = scheduled_times(id);
        Process {
            id,
            state: stat.state,
            cpu_time: cpu_time(&stat, times.map(|(running, _)| running)),
            waited: times.map(|(_, waiting)| waiting),
        }
    })
}

/// The used fields of `/proc/PID/stat` (proc_pid_stat(5)); times in clock ticks.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: u32,
    own: u64,
    children: u64,
}

impl Stat {
    fn parse(line: &str) -> Option<Self> {
        // The name may contain spaces and parentheses, so the fields begin after the last
        // parenthesis.
        let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
        // The first field after the name is number 3; 14 to 17 are utime, stime, cutime, cstime.
        let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            state: fields.first()?.chars().next()?,
            group: fields.get(2)?.parse().ok()?,
            own: ticks(14)? + ticks(15)?,
            children: ticks(16)? + ticks(17)?,
        })
    }
}

fn cpu_time(stat: &Stat, exact: Option<Nanos>) -> Nanos {
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    // Exact if the kernel counts it (`CONFIG_SCHED_INFO`), otherwise in ticks.
    exact.unwrap_or(Nanos(stat.own * tick)) + Nanos(stat.children * tick)
}

/// Returns the time on a CPU and the time on a run queue, the first two numbers of
/// `/proc/PID/task/TID/schedstat` (kernel document `scheduler/sched-stats.rst`), over all threads.
fn scheduled_times(process: u32) -> Option<(Nanos, Nanos)> {
    let mut sum = None;
    for entry in fs::read_dir(format!("/proc/{process}/task"))
        .ok()?
        .flatten()
    {
        let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else {
            continue;
        };
        let mut times = text.split_whitespace().map(|time| time.parse().map(Nanos));
        let (running, waiting) = (times.next()?.ok()?, times.next()?.ok()?);
        let (ran, waited) = sum.unwrap_or_default();
        sum = Some((ran + running, waited + waiting));
    }
    sum
}

/// Returns the CPU time of one thread; `None` if it has ended or the kernel does not count it.
pub(crate) fn thread_cpu_time(thread: u32) -> Option<Nanos> {
    let text = fs::read_to_string(format!("/proc/{thread}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok().map(Nanos)
}

/// Returns the time of interrupts and the stolen time of a CPU since boot (proc_stat(5)); `None` if
/// there is no such CPU.
pub(crate) fn interrupts_and_steal(cpu: CpuId) -> Option<(Nanos, Nanos)> {
    interrupts_and_steal_of(&fs::read_to_string("/proc/stat").ok()?, cpu)
}

fn interrupts_and_steal_of(stat: &str, cpu: CpuId) -> Option<(Nanos, Nanos)> {
    let name = format!("cpu{cpu} ");
    let fields = stat.lines().find_map(|line| line.strip_prefix(&name))?;
    let ticks: Vec<u64> = fields
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal.
    let [_, _, _, _, _, irq, softirq, steal, ..] = ticks.as_slice() else {
        return None;
    };
    let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1);
    Some((Nanos((irq + softirq) * tick), Nanos(steal * tick)))
}

/// Returns the CPUs that a process may use, or `None` if it has ended.
pub(crate) fn affinity(process: u32) -> Option<CpuSet> {
    let set = rustix::thread::sched_getaffinity(Some(pid(process)?)).ok()?;
    Some(
        (0..rustix::thread::CpuSet::MAX_CPU as u32)
            .filter(|cpu| set.is_set(*cpu as usize))
            .map(CpuId)
            .collect(),
    )
}

/// Binds a process to one CPU.
pub(crate) fn bind(process: u32, cpu: CpuId) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    if (cpu.0 as usize) < rustix::thread::CpuSet::MAX_CPU {
        set.set(cpu.0 as usize);
    }
    let process = pid(process).ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(rustix::thread::sched_setaffinity(Some(process), &set)?)
}

/// Lets a process and those that it starts run before ordinary programs, if this user may: so a load
/// keeps its size beside them.
pub(crate) fn prefer(process: u32) {
    if let Some(process) = pid(process) {
        // Without the privilege the load's share of its CPU shows whether it was kept from running.
        let _ = rustix::process::setpriority_process(Some(process), PREFERRED);
    }
}

pub(crate) fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

/// Returns the memory in bytes that is available without swapping: `MemAvailable`.
pub(crate) fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// Returns the size of the last-level cache of a CPU in bytes, at most [`MOST_CACHE`]; `None` if the
/// kernel does not report it (Documentation/ABI/testing/sysfs-devices-system-cpu).
pub(crate) fn last_level_cache(cpu: CpuId) -> Option<u64> {
    let directory = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let caches = fs::read_dir(directory).ok()?.flatten().filter_map(|cache| {
        let read = |file: &str| fs::read_to_string(cache.path().join(file)).ok();
        if read("type")?.trim() == "Instruction" {
            return None;
        }
        let level: u32 = read("level")?.trim().parse().ok()?;
        let kibibytes: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        Some((level, kibibytes * 1024))
    });
    caches.max().map(|(_, bytes)| bytes.min(MOST_CACHE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_with_a_difficult_name() {
        let line = "7 (a) R) S 1 42 42 0 -1 4194560 1 2 3 4 50 6 700 8 20 0 1 0 99";
        assert_eq!(
            Stat::parse(line),
            Some(Stat {
                state: 'S',
                group: 42,
                own: 56,
                children: 708,
            })
        );
        assert_eq!(Stat::parse("7 (x"), None);
        assert_eq!(Stat::parse("7 (x) R 1 2"), None);
    }

    #[test]
    fn reads_interrupts_and_steal_of_one_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 80 0 0\ncpu11 1 1 1 1 1 1 1 1\n";
        let found = interrupts_and_steal_of(stat, CpuId(1)).expect("a CPU");
        let tick = 1_000_000_000 / rustix::param::clock_ticks_per_second();
        assert_eq!(found, (Nanos(13 * tick), Nanos(80 * tick)));
        assert_eq!(interrupts_and_steal_of(stat, CpuId(2)), None);
        assert!(interrupts_and_steal(CpuId(u32::MAX)).is_none());
    }

    #[test]
    fn finds_descendants_with_and_without_their_leader() {
        use std::os::unix::process::CommandExt as _;
        let mut leader = std::process::Command::new("sh")
            .args(["-c", "(sleep 600 & echo; wait) & wait"])
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("sh");
        let mut line = [0];
        let output = leader.stdout.as_mut().expect("a pipe");
        std::io::Read::read_exact(output, &mut line).expect("sleep has begun");
        let all: Vec<u32> = group(leader.id())
            .iter()
            .map(|process| process.id)
            .collect();
        assert!(all.len() == 3 && all.contains(&leader.id()), "{all:?}");
        leader.kill().expect("kill");
        leader.wait().expect("it ends");
        let mut rest: Vec<u32> = group(leader.id())
            .iter()
            .map(|process| process.id)
            .collect();
        rest.push(leader.id());
        rest.sort_unstable();
        assert_eq!(rest, all);
        let group = pid(leader.id()).expect("a process");
        rustix::process::kill_process_group(group, rustix::process::Signal::KILL).expect("kill");
    }

    #[test]
    fn finds_this_process_in_its_group() {
        let group_leader = rustix::process::getpgrp().as_raw_nonzero().get() as u32;
        let found = group(group_leader);
        let this = found
            .iter()
            .find(|process| process.id == std::process::id())
            .expect("this process");
        assert!(this.cpu_time > Nanos::ZERO);
        assert!(!affinity(this.id).expect("affinity").is_empty());
    }
}
