// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes snapshots of what can influence measured CPUs from outside an experiment: programs on these
//! CPUs, interrupts of devices, the placement of the measuring threads, clocks and limits of the CPU
//! frequency.
//!
//! A snapshot is taken several times a second while a measurement runs, so it reads only what such a
//! comparison needs. It never reads the present frequency of a CPU, for which some kernels interrupt
//! that CPU (arch/x86/kernel/cpu/aperfmperf.c).

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rampart_model::{CpuId, CpuSet, Nanos, SchedulingPolicy};
use rustix::thread::sched_getaffinity;
use rustix::time::{ClockId, clock_gettime};

use crate::facts::is_of_each_cpu;
use crate::groups::{ControlGroupVersion, Hierarchies, group_in};
use crate::kernel::RunningKernel;
use crate::kernel_config::KernelConfig;
use crate::observe::{TICK, interrupt_table};
use crate::tasks::TaskStat;
use crate::{MachineRoot, thread_policy};

/// Files of a CPU in `cpufreq` (Documentation/admin-guide/pm/cpufreq.rst).
const FREQUENCY_LIMITS: [&str; 4] = [
    "scaling_governor",
    "scaling_min_freq",
    "scaling_max_freq",
    "boost",
];
/// Files that limit the frequency of all CPUs (the same document, and intel_pstate.rst beside it).
const FREQUENCY_LIMITS_OF_ALL: [&str; 4] = [
    "cpufreq/boost",
    "intel_pstate/no_turbo",
    "intel_pstate/min_perf_pct",
    "intel_pstate/max_perf_pct",
];
/// Files of a control group that determine its CPUs; each version has some of them.
const GROUP_FILES: [&str; 7] = [
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.cpus.partition",
    "cpuset.effective_cpus",
    "cpuset.cpu_exclusive",
    "cpuset.sched_load_balance",
    "cpus",
];
/// Times that the clocks are read together, to find a reading without a pause in it.
const CLOCK_READINGS: usize = 3;

/// The state of measured CPUs at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct InfluenceSnapshot {
    /// The clocks.
    pub clocks: ClockReadings,
    /// Every thread that is not a kernel thread.
    pub programs: Vec<ProgramThread>,
    /// The numbered interrupts but those that each CPU has for itself.
    pub interrupts: BTreeMap<u32, InterruptState>,
    /// The measuring threads that exist.
    pub measuring: BTreeMap<u32, MeasuringThread>,
    /// The control groups of the measuring threads: path and content of each file that determines
    /// their CPUs.
    pub group_files: BTreeMap<String, String>,
    /// The limits of the frequency of the CPUs: path and content of each file.
    pub frequency_limits: BTreeMap<String, String>,
    /// The time of every CPU of the machine since boot.
    pub cpu_times: BTreeMap<CpuId, CpuTimes>,
    /// Whether the idle time of the CPUs is measured, and not counted at ticks, which may always hit the
    /// meter.
    pub idle_is_exact: bool,
    /// The kernel threads that ran last on an isolated CPU: thread, CPU and CPU time.
    pub kernel_threads: BTreeMap<u32, (CpuId, Nanos)>,
}

/// The time of a CPU since boot by its use (proc_stat(5)), in whole clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuTimes {
    /// Programs, without the kernel's work for them.
    pub programs: Nanos,
    /// Idle, also while it waits for a disk.
    pub idle: Nanos,
    /// Interrupts and softirqs.
    pub interrupts: Nanos,
    /// Time that the hypervisor gave to other machines.
    pub steal: Nanos,
}

/// The clocks at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClockReadings {
    /// `CLOCK_MONOTONIC`.
    pub monotonic: Nanos,
    /// `CLOCK_REALTIME`.
    pub realtime: Nanos,
    /// `CLOCK_MONOTONIC_RAW`, which no program adjusts.
    pub raw: Nanos,
    /// `CLOCK_BOOTTIME`, which includes the time of a suspended machine.
    pub boot: Nanos,
    /// Largest time between the reading of two of them.
    pub uncertainty: Nanos,
    /// Adjustment of the rate; `None` if the kernel does not report it.
    pub adjustment: Option<ClockAdjustment>,
    /// The kernel's clock source, for example `tsc`.
    pub source: String,
}

/// Adjustment of the rate of `CLOCK_MONOTONIC` and `CLOCK_REALTIME` (adjtimex(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockAdjustment {
    /// Length of a tick of `USER_HZ` in µs, 10000 if no program changed it.
    pub tick: i64,
    /// Adjustment of the frequency, in 1/65536 ppm.
    pub frequency: i64,
}

/// A thread of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramThread {
    /// Its process.
    pub process: u32,
    /// Its number.
    pub thread: u32,
    /// The parent of its process.
    pub parent: u32,
    /// Its start in clock ticks since boot, which distinguishes it from a later thread with its number.
    pub start: u64,
    /// Its name.
    pub name: String,
    /// Its policy, without the parameters of `SCHED_DEADLINE`.
    pub policy: Option<SchedulingPolicy>,
    /// The CPU on which it ran last.
    pub cpu: CpuId,
    /// CPU time in whole clock ticks.
    pub ticks: Nanos,
    /// Exact CPU time, if the kernel counts it, of a thread that ran last on an isolated CPU, and of a
    /// real-time thread that ran last on a measured CPU.
    pub exact: Option<Nanos>,
    /// Control groups of the same threads, `controller:path` each.
    pub control_groups: Vec<String>,
}

/// A numbered interrupt. CPUs are read again only after it came to one of the measured CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptState {
    /// Its handlers.
    pub action: String,
    /// Its count on each measured CPU.
    pub counts: BTreeMap<CpuId, u64>,
    /// The CPUs that it may be sent to.
    pub affinity: CpuSet,
    /// The CPUs that it is sent to.
    pub effective: CpuSet,
}

/// The placement of a measuring thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuringThread {
    /// Its process.
    pub process: u32,
    /// Its state in `/proc/TID/status`, for example `T` if a signal has stopped it.
    pub state: char,
    /// The process that traces it.
    pub tracer: Option<u32>,
    /// Whether a control group that it is in is frozen.
    pub frozen: bool,
    /// Its policy.
    pub policy: SchedulingPolicy,
    /// The CPUs that it may use.
    pub affinity: CpuSet,
    /// Its control groups that determine CPUs, `controller:path` each.
    pub control_groups: Vec<String>,
}

/// Takes snapshots. Remembers between two what does not change.
#[derive(Debug)]
pub struct InfluenceReader {
    root: MachineRoot,
    /// The measured CPUs.
    cpus: CpuSet,
    /// Those of them that ordinary programs are kept off.
    isolated: CpuSet,
    measuring: Vec<u32>,
    hierarchies: Hierarchies,
    /// Processes that are kernel threads which do not run on an isolated CPU. They are not read again:
    /// numbers of processes are not reused until all others have been used (pid_max of
    /// proc_sys_kernel(5)).
    kernel_threads: BTreeSet<u32>,
    idle_is_exact: Option<bool>,
    interrupts: BTreeMap<u32, InterruptState>,
    of_each_cpu: BTreeSet<u32>,
}

impl Default for InfluenceReader {
    fn default() -> Self {
        Self {
            root: MachineRoot::system(),
            cpus: CpuSet::new(),
            isolated: CpuSet::new(),
            measuring: Vec::new(),
            hierarchies: Hierarchies::of(&RunningKernel),
            kernel_threads: BTreeSet::new(),
            idle_is_exact: None,
            interrupts: BTreeMap::new(),
            of_each_cpu: BTreeSet::new(),
        }
    }
}

impl InfluenceReader {
    /// Sets the measured CPUs and the threads that measure on them; `isolated` are those of the CPUs that
    /// ordinary programs are kept off.
    pub fn watch(&mut self, cpus: CpuSet, isolated: CpuSet, measuring: Vec<u32>) {
        if self.cpus != cpus {
            self.interrupts.clear();
            self.of_each_cpu.clear();
        }
        if self.isolated != isolated {
            self.kernel_threads.clear();
        }
        (self.cpus, self.isolated, self.measuring) = (cpus, isolated, measuring);
    }

    /// Takes a snapshot. What cannot be read is missing.
    pub fn read(&mut self) -> InfluenceSnapshot {
        let measuring = self.measuring_threads();
        let group_files = self.group_files(&measuring);
        self.update_interrupts();
        let (programs, kernel_threads) = self.threads();
        InfluenceSnapshot {
            programs,
            kernel_threads,
            cpu_times: cpu_times(&self.root.text("proc/stat").unwrap_or_default()),
            idle_is_exact: self.idle_is_exact(),
            interrupts: self.interrupts.clone(),
            frequency_limits: self.frequency_limits(),
            measuring,
            group_files,
            clocks: self.clocks(),
        }
    }

    /// Returns whether the kernel stops its tick while a CPU is idle, and then measures idle time
    /// (Documentation/timers/no_hz.rst).
    fn idle_is_exact(&mut self) -> bool {
        *self.idle_is_exact.get_or_insert_with(|| {
            let line = self.root.text("proc/cmdline").unwrap_or_default();
            let mut options = line.split_whitespace();
            let is_off = options.any(|option| matches!(option, "nohz=off" | "nohz=no" | "nohz=0"));
            let config = KernelConfig::read(&self.root);
            !is_off && config.is_set("CONFIG_HZ_PERIODIC") != Some(true)
        })
    }

    /// Returns the threads of programs, and the CPU times of kernel threads on isolated CPUs.
    fn threads(&mut self) -> (Vec<ProgramThread>, BTreeMap<u32, (CpuId, Nanos)>) {
        let (mut found, mut of_kernel) = (Vec::new(), BTreeMap::new());
        for process in numbers("/proc") {
            if self.kernel_threads.contains(&process) {
                continue;
            }
            let directory = format!("proc/{process}");
            let Some(stat) = self.stat(&directory) else {
                continue;
            };
            if stat.is_kernel_thread() {
                let is_close = stat.cpu.is_some_and(|cpu| self.isolated.contains(cpu));
                if let (Some(cpu), true) = (stat.cpu, is_close) {
                    let ticks = Nanos(stat.ticks.saturating_mul(TICK.0));
                    let used = self.exact_time(&directory).unwrap_or(ticks);
                    of_kernel.insert(process, (cpu, used));
                } else if self.isolated.is_empty() || stays_off(&stat) {
                    self.kernel_threads.insert(process);
                }
            } else if stat.threads == 1 {
                found.extend(self.program(process, process, &directory, stat));
            } else {
                for thread in numbers(&format!("/{directory}/task")) {
                    let directory = format!("{directory}/task/{thread}");
                    let stat = self.stat(&directory);
                    let read =
                        stat.and_then(|stat| self.program(process, thread, &directory, stat));
                    found.extend(read);
                }
            }
        }
        (found, of_kernel)
    }

    fn stat(&self, directory: &str) -> Option<TaskStat> {
        TaskStat::parse(&self.root.text(&format!("{directory}/stat"))?)
    }

    /// Returns a thread of a program. Returns `None` if it has ended.
    fn program(
        &self,
        process: u32,
        thread: u32,
        directory: &str,
        stat: TaskStat,
    ) -> Option<ProgramThread> {
        let cpu = stat.cpu.filter(|_| !stat.is_gone())?;
        let is_real_time = stat.policy.is_some_and(SchedulingPolicy::is_real_time);
        let is_close = self.isolated.contains(cpu) || (is_real_time && self.cpus.contains(cpu));
        Some(ProgramThread {
            process,
            thread,
            parent: stat.parent,
            start: stat.start,
            policy: stat.policy,
            cpu,
            ticks: Nanos(stat.ticks.saturating_mul(TICK.0)),
            exact: is_close.then(|| self.exact_time(directory)).flatten(),
            control_groups: if is_close {
                self.control_groups(directory)?
            } else {
                Vec::new()
            },
            name: stat.name,
        })
    }

    /// Returns the CPU time of a thread: the first number of its `schedstat`
    /// (Documentation/scheduler/sched-stats.rst).
    fn exact_time(&self, directory: &str) -> Option<Nanos> {
        let line = self.root.line(&format!("{directory}/schedstat"))?;
        line.split_whitespace().next()?.parse().ok().map(Nanos)
    }

    /// Returns the control groups of a thread in the hierarchies that determine CPUs. Returns `None` if it has ended, or
    /// ends at present: it is then in the root of each hierarchy of v1 (`proc_cgroup_show` of kernel/cgroup/cgroup.c).
    fn control_groups(&self, directory: &str) -> Option<Vec<String>> {
        let text = self.root.text(&format!("{directory}/cgroup"))?;
        let ends = self.stat(directory)?.is_ending();
        (!ends).then(|| cpu_groups(&text))
    }

    fn measuring_threads(&self) -> BTreeMap<u32, MeasuringThread> {
        let threads = self.measuring.iter();
        threads
            .filter_map(|thread| Some((*thread, self.measuring_thread(*thread)?)))
            .collect()
    }

    /// Returns the placement of a measuring thread. Returns `None` if it has ended, or ends while it is read.
    fn measuring_thread(&self, thread: u32) -> Option<MeasuringThread> {
        let own = rustix::process::Pid::from_raw(i32::try_from(thread).ok()?)?;
        let allowed = sched_getaffinity(Some(own)).ok()?;
        let cpus = 0..rustix::thread::CpuSet::MAX_CPU;
        let directory = format!("proc/{thread}");
        let status = self.root.text(&format!("{directory}/status"))?;
        let field = |name: &str| {
            let mut lines = status.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        let tracer = field("TracerPid:").and_then(|tracer| tracer.parse().ok());
        Some(MeasuringThread {
            process: field("Tgid:")?.parse().ok()?,
            state: field("State:")?.chars().next()?,
            tracer: tracer.filter(|tracer| *tracer != 0),
            frozen: self.is_frozen(thread),
            policy: thread_policy(thread).ok()?,
            affinity: cpus
                .filter(|cpu| allowed.is_set(*cpu))
                .filter_map(|cpu| u32::try_from(cpu).ok())
                .map(CpuId)
                .collect(),
            // The last that is read: it checks that the thread has not ended.
            control_groups: self.control_groups(&directory)?,
        })
    }

    fn group_files(&self, measuring: &BTreeMap<u32, MeasuringThread>) -> BTreeMap<String, String> {
        let groups: BTreeSet<&String> = measuring
            .values()
            .flat_map(|thread| &thread.control_groups)
            .collect();
        let mut files = BTreeMap::new();
        for group in groups {
            let Some((controllers, path)) = group.split_once(':') else {
                continue;
            };
            let version = match controllers {
                "v2" => ControlGroupVersion::V2,
                _ => ControlGroupVersion::V1,
            };
            let Some(mount) = self.hierarchies.cpus(version) else {
                continue;
            };
            let directory = mount.join(path.trim_start_matches('/'));
            for name in GROUP_FILES {
                let file = directory.join(name);
                if let Ok(text) = fs::read_to_string(&file) {
                    files.insert(file.display().to_string(), text.trim().to_owned());
                }
            }
        }
        files
    }

    /// Returns whether a control group of a thread is frozen (cgroup-v1/freezer-subsystem.rst and
    /// cgroup-v2.rst of Documentation/admin-guide).
    fn is_frozen(&self, thread: u32) -> bool {
        let groups = self.root.text(&format!("proc/{thread}/cgroup"));
        let groups = groups.unwrap_or_default();
        let text = |mount: Option<&Path>, controller: &str, file: &str| {
            let group = group_in(&groups, controller)?;
            let directory = mount?.join(group.trim_start_matches('/'));
            fs::read_to_string(directory.join(file)).ok()
        };
        let legacy = self.hierarchies.legacy_with("freezer");
        let legacy = text(legacy, "freezer", "freezer.state");
        let unified = text(self.hierarchies.unified.as_deref(), "", "cgroup.events");
        legacy.is_some_and(|state| state.trim() != "THAWED")
            || unified.is_some_and(|events| events.lines().any(|line| line == "frozen 1"))
    }

    fn update_interrupts(&mut self) {
        let text = self.root.text("proc/interrupts").unwrap_or_default();
        for (name, counts, _) in interrupt_table(&text) {
            let Ok(number) = name.parse::<u32>() else {
                continue;
            };
            if self.of_each_cpu.contains(&number) {
                continue;
            }
            let counts: BTreeMap<CpuId, u64> = counts
                .into_iter()
                .filter(|(cpu, _)| self.cpus.contains(*cpu))
                .collect();
            let known = self.interrupts.get(&number);
            if known.is_some_and(|known| known.counts == counts) {
                continue;
            }
            let action = match known {
                Some(known) => known.action.clone(),
                None => self
                    .root
                    .line(&format!("sys/kernel/irq/{name}/actions"))
                    .unwrap_or_default(),
            };
            // No program can send an interrupt of each CPU, such as a timer, to another one.
            if known.is_none() && is_of_each_cpu(&self.root, number, &action) {
                self.of_each_cpu.insert(number);
                continue;
            }
            let cpus = |file: &str| -> Option<CpuSet> {
                self.root.value(&format!("proc/irq/{number}/{file}"))
            };
            let affinity = cpus("smp_affinity_list").unwrap_or_default();
            let state = InterruptState {
                action,
                counts,
                effective: cpus("effective_affinity_list").unwrap_or_else(|| affinity.clone()),
                affinity,
            };
            self.interrupts.insert(number, state);
        }
    }

    fn frequency_limits(&self) -> BTreeMap<String, String> {
        let mut limits = BTreeMap::new();
        for name in FREQUENCY_LIMITS_OF_ALL {
            let file = format!("sys/devices/system/cpu/{name}");
            if let Some(value) = self.root.line(&file) {
                limits.insert(format!("/{file}"), value);
            }
        }
        for cpu in self.cpus.iter() {
            let directory = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq");
            if !self.root.exists(&directory) {
                continue;
            }
            for name in FREQUENCY_LIMITS {
                let file = format!("{directory}/{name}");
                if let Some(value) = self.root.line(&file) {
                    limits.insert(format!("/{file}"), value);
                }
            }
        }
        limits
    }

    fn clocks(&self) -> ClockReadings {
        let adjustment = clock_adjustment();
        let source = self
            .root
            .line("sys/devices/system/clocksource/clocksource0/current_clocksource");
        let readings = (0..CLOCK_READINGS).map(|_| {
            let before = clock(ClockId::Monotonic);
            let (realtime, raw, boot) = (
                clock(ClockId::Realtime),
                clock(ClockId::MonotonicRaw),
                clock(ClockId::Boottime),
            );
            let after = clock(ClockId::Monotonic);
            ClockReadings {
                monotonic: before + Nanos(after.saturating_sub(before).0 / 2),
                realtime,
                raw,
                boot,
                uncertainty: after.saturating_sub(before),
                adjustment,
                source: String::new(),
            }
        });
        let best = readings.min_by_key(|reading| reading.uncertainty);
        ClockReadings {
            source: source.unwrap_or_default(),
            ..best.unwrap_or_default()
        }
    }
}

/// Returns whether a kernel thread stays on its present CPU. A worker of an unbound pool may not be moved
/// by others, but runs on several CPUs (Documentation/core-api/workqueue.rst).
fn stays_off(stat: &TaskStat) -> bool {
    stat.is_bound() && !stat.name.starts_with("kworker/u")
}

/// Parses the lines of CPUs in `/proc/stat`.
fn cpu_times(text: &str) -> BTreeMap<CpuId, CpuTimes> {
    let time = |line: &str| {
        let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
        let times: Vec<Nanos> = fields
            .split_whitespace()
            .map_while(|field| field.parse::<u64>().ok())
            .map(|ticks| Nanos(ticks.saturating_mul(TICK.0)))
            .collect();
        let [user, nice, _, idle, disk, interrupts, softirqs, steal, ..] = *times.as_slice() else {
            return None;
        };
        let times = CpuTimes {
            programs: user + nice,
            idle: idle + disk,
            interrupts: interrupts + softirqs,
            steal,
        };
        Some((CpuId(cpu.parse().ok()?), times))
    };
    text.lines().filter_map(time).collect()
}

/// Returns the groups of `/proc/PID/cgroup` that determine CPUs: those of the v1 controller `cpuset`
/// and of v2, `controller:path` each.
fn cpu_groups(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let (_, group) = line.split_once(':')?;
            let (controllers, path) = group.split_once(':')?;
            match controllers {
                "" => Some(format!("v2:{path}")),
                _ if controllers.split(',').any(|name| name == "cpuset") => {
                    Some(format!("{controllers}:{path}"))
                }
                _ => None,
            }
        })
        .collect()
}

fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn clock(id: ClockId) -> Nanos {
    let now = clock_gettime(id);
    Nanos::from_secs(u64::try_from(now.tv_sec).unwrap_or_default())
        + Nanos(u64::try_from(now.tv_nsec).unwrap_or_default())
}

/// Returns the adjustment of the clocks' rate, or `None` where a filter of system calls refuses the
/// question. Changes nothing.
#[expect(unsafe_code, reason = "no library wraps adjtimex(2)")]
fn clock_adjustment() -> Option<ClockAdjustment> {
    // SAFETY: all fields of the structure are integers, for which zero is a value.
    let mut adjustment: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: with `modes` 0 the call only writes into the structure, which lives through it, and
    // keeps no pointer to it.
    let state = unsafe { libc::adjtimex(&raw mut adjustment) };
    #[allow(clippy::useless_conversion, reason = "the width depends on the target")]
    (state >= 0).then(|| ClockAdjustment {
        tick: adjustment.tick.into(),
        frequency: adjustment.freq.into(),
    })
}
