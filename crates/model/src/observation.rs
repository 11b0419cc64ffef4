// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a machine at one moment. A status compares two of them.

use std::collections::BTreeMap;

use crate::{
    Allocation, ChangeTarget, CpuId, CpuSet, IsolationSource, Nanos, ProgramState,
    SchedulingPolicy, SupervisedState,
};

/// The state of a machine at one moment. Counters start at boot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// Time since boot (`/proc/uptime`, or the running machine's clock).
    pub at: Nanos,
    /// The machine's name.
    pub host_name: String,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot: Option<String>,
    /// Online CPUs.
    pub online: CpuSet,
    /// The isolation in effect, with or without a plan.
    pub isolation: ObservedIsolation,
    /// Each online CPU.
    pub cpus: BTreeMap<CpuId, ObservedCpu>,
    /// Every readable thread.
    pub threads: Vec<ObservedThread>,
    /// `/proc/interrupts`, in its order.
    pub interrupts: Vec<ObservedInterrupt>,
    /// `/proc/softirqs`, in its order.
    pub softirqs: Vec<ObservedCount>,
    /// The requested control groups, by path.
    pub groups: BTreeMap<String, ObservedGroup>,
    /// The requested locations that this process may read; `None` if a location does not exist.
    pub values: Vec<(ChangeTarget, Option<String>)>,
    /// The division of caches, if the plan has shares.
    pub allocation: Option<Allocation>,
    /// The text of the plan's file; `None` if it does not exist or cannot be read.
    pub plan_text: Option<String>,
    /// Whether the plan's file does not exist.
    pub plan_gone: bool,
    /// Records of the domains' supervisors.
    pub programs: Vec<ObservedProgram>,
}

/// Isolation in effect on a machine.
#[derive(
    Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct ObservedIsolation {
    /// CPUs that `isolcpus=` or isolated partitions exclude from load balancing.
    pub isolated: CpuSet,
    /// CPUs whose tick `nohz_full=` stops.
    pub nohz_full: CpuSet,
    /// Control groups that are roots of partitions, or exclusive cpusets of cgroup v1.
    pub partitions: Vec<ObservedPartition>,
    /// Every setting that keeps CPUs for real-time work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<IsolationSource>,
}

/// A control group with exclusive CPUs.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct ObservedPartition {
    /// Absolute path of the group.
    pub group: String,
    /// The kernel's state: `isolated`, `root`, `isolated invalid (…)`, or `exclusive` for a cpuset of
    /// cgroup v1.
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
    /// The CPUs of its core, including itself.
    pub siblings: CpuSet,
}

/// One thread (proc_pid_stat(5)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedThread {
    /// Its process id.
    pub process: u32,
    /// Its thread id.
    pub thread: u32,
    /// The process that started its process.
    pub parent: u32,
    /// When it started, in clock ticks since boot; unique together with the thread id.
    pub start: u64,
    /// Its name.
    pub name: String,
    /// Whether it belongs to the kernel.
    pub kernel: bool,
    /// Whether it is bound to its CPU.
    pub bound: bool,
    /// State; `R` if it is runnable.
    pub state: char,
    /// Its policy, without the times of `SCHED_DEADLINE`.
    pub policy: Option<SchedulingPolicy>,
    /// The CPU that it ran on last.
    pub cpu: CpuId,
    /// CPU time that it used, from `/proc/TID/schedstat` in ns, else in ticks of 10 ms.
    pub cpu_time: Nanos,
    /// Its affinity; read only for threads that ran last on a requested CPU, and for members of a
    /// requested group.
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
    /// A number, or an abbreviation such as `LOC`.
    pub name: String,
    /// Driver or device, or the kernel's description.
    pub action: String,
    /// Counts since boot.
    pub counts: BTreeMap<CpuId, u64>,
    /// Its affinity; `None` for interrupts of each CPU.
    pub affinity: Option<CpuSet>,
    /// Its effective affinity, if the kernel reports it.
    pub effective: Option<CpuSet>,
    /// Whether its affinity cannot be changed: the kernel manages it, or each CPU has it for itself.
    pub fixed: bool,
}

/// State of a control group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObservedGroup {
    /// Whether it exists.
    pub exists: bool,
    /// `cpuset.cpus`.
    pub cpus: Option<CpuSet>,
    /// Its effective CPUs.
    pub effective: Option<CpuSet>,
    /// `cpuset.cpus.partition`, with the reason of an invalid partition.
    pub partition: Option<String>,
    /// Its threads, including those of groups below it.
    pub threads: Vec<u32>,
}

/// The last record of a domain's supervisor, and whether the processes still run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedProgram {
    /// The domain.
    pub domain: String,
    /// Process id of the program.
    pub process: Option<u32>,
    /// Whether the supervisor is alive.
    pub supervised: bool,
    /// Whether the program is alive.
    pub alive: bool,
    /// The recorded state.
    pub state: SupervisedState,
    /// Number of restarts.
    pub restarts: u64,
    /// Description of its last end.
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
