// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine at one moment: what runs where, and what holds. Two of them make a status.

use std::collections::BTreeMap;

use crate::{
    Allocation, ChangeTarget, CpuId, CpuSet, Nanos, ProgramState, SchedulingPolicy, SupervisedState,
};

/// What was seen at one moment. Counters run since boot; a rate is the difference of two.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// The moment, since boot (`/proc/uptime`, or the running machine's clock).
    pub at: Nanos,
    /// The machine's name.
    pub host_name: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: Option<String>,
    /// Online CPUs.
    pub online: CpuSet,
    /// What keeps CPUs apart, plan or none.
    pub isolation: ObservedIsolation,
    /// Each online CPU.
    pub cpus: BTreeMap<CpuId, ObservedCpu>,
    /// Every thread that could be read.
    pub threads: Vec<ObservedThread>,
    /// `/proc/interrupts`, in its order.
    pub interrupts: Vec<ObservedInterrupt>,
    /// `/proc/softirqs`, in its order.
    pub softirqs: Vec<ObservedCount>,
    /// The control groups that were asked for, by their path.
    pub groups: BTreeMap<String, ObservedGroup>,
    /// The places that were asked for, but for those that this process may not read; none: it is
    /// not there.
    pub values: Vec<(ChangeTarget, Option<String>)>,
    /// How caches are divided, where the plan has shares of them.
    pub allocation: Option<Allocation>,
    /// The text of the plan's file; none where it is not there, or cannot be read.
    pub plan_text: Option<String>,
    /// Whether the plan's file is not there.
    pub plan_gone: bool,
    /// What the supervisors of the domains' programs wrote.
    pub programs: Vec<ObservedProgram>,
}

/// What keeps CPUs apart on a machine.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct ObservedIsolation {
    /// CPUs that `isolcpus=` or isolated partitions took from the scheduler's balancing.
    pub isolated: CpuSet,
    /// CPUs whose tick `nohz_full=` stops.
    pub nohz_full: CpuSet,
    /// Control groups that are roots of partitions, or exclusive cpusets of cgroup v1.
    pub partitions: Vec<ObservedPartition>,
}

/// A control group that claims CPUs.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct ObservedPartition {
    /// Absolute path of the group.
    pub group: String,
    /// What the kernel calls it: `isolated`, `root`, `isolated invalid (…)`, or `exclusive` for a
    /// cpuset of cgroup v1.
    pub kind: String,
    /// Its CPUs.
    pub cpus: CpuSet,
}

/// One CPU, from `/proc/stat` and its topology.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedCpu {
    /// CPU time that was not idle.
    pub busy: Nanos,
    /// All CPU time.
    pub total: Nanos,
    /// The CPUs of its core, itself among them.
    pub siblings: CpuSet,
}

/// One thread (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedThread {
    /// Its process.
    pub process: u32,
    /// Its own number.
    pub thread: u32,
    /// The process that started its process.
    pub parent: u32,
    /// When it started, in clock ticks since boot: with the number it names one thread for ever.
    pub start: u64,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the kernel.
    pub kernel: bool,
    /// Whether the kernel keeps it on its CPU.
    pub bound: bool,
    /// `R` where it runs or wants to.
    pub state: char,
    /// Its policy; the figures of `SCHED_DEADLINE` are not told there.
    pub policy: Option<SchedulingPolicy>,
    /// The CPU that it ran on last.
    pub cpu: CpuId,
    /// CPU time that it used: by `/proc/TID/schedstat` to the nanosecond, else in ticks of 10 ms.
    pub cpu_time: Nanos,
    /// Where it may run; read only of threads that ran last on a CPU that was asked for, and of
    /// members of a group that was.
    pub affinity: Option<CpuSet>,
}

/// One line of counters by CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedCount {
    /// Its name, for example `NET_RX`.
    pub name: String,
    /// Counts since boot.
    pub counts: BTreeMap<CpuId, u64>,
}

/// One line of `/proc/interrupts`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedInterrupt {
    /// A number, or a word such as `LOC`.
    pub name: String,
    /// What it is for: driver or device, or the kernel's own words for it.
    pub action: String,
    /// Counts since boot.
    pub counts: BTreeMap<CpuId, u64>,
    /// Where it may arrive; none for those of each CPU.
    pub affinity: Option<CpuSet>,
    /// Where it does arrive, where the kernel tells.
    pub effective: Option<CpuSet>,
}

/// A control group as it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedGroup {
    /// Whether it is there.
    pub exists: bool,
    /// `cpuset.cpus`.
    pub cpus: Option<CpuSet>,
    /// Those of them that it really has.
    pub effective: Option<CpuSet>,
    /// `cpuset.cpus.partition`, the reason of an invalid one with it.
    pub partition: Option<String>,
    /// Its threads, and those of the groups below it.
    pub threads: Vec<u32>,
}

/// What the supervisor of a domain's program wrote last, and whether they still are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProgram {
    /// The domain.
    pub domain: String,
    /// The program's process.
    pub process: Option<u32>,
    /// Whether the supervisor is alive.
    pub supervised: bool,
    /// Whether the program is alive.
    pub alive: bool,
    /// How the file says it stands.
    pub state: SupervisedState,
    /// How often it was started again.
    pub restarts: u64,
    /// How it ended last, in words.
    pub last_exit: Option<String>,
}

impl ObservedProgram {
    /// Returns the program's state. A program whose supervisor is gone is not started again, whatever
    /// its record contains.
    #[must_use]
    pub fn current_state(&self) -> ProgramState {
        if self.alive {
            ProgramState::Running
        } else if self.supervised && self.state.is_up() {
            ProgramState::Restarting
        } else {
            ProgramState::Stopped
        }
    }
}
