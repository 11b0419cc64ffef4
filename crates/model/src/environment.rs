// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about a machine that the rules of plans need besides [`Machine`](crate::Machine).

use std::collections::BTreeMap;

use crate::{CacheControl, CpuId, CpuSet, DetachDriver, Nanos, SchedulingPolicy};

/// Facts about a machine. `None` or a missing entry is unknown: the rule is then not decided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// Huge pages by node and size.
    pub huge_pages: Option<Vec<HugePages>>,
    /// Control of caches and memory bandwidth.
    pub cache_control: Option<CacheControl>,
    /// The kernel's threads of each CPU whose priority matters.
    pub kernel_threads: Option<Vec<KernelThread>>,
    /// Kernel options by name, and whether they are set.
    pub kernel_options: BTreeMap<String, bool>,
    /// Running software that tunes the machine.
    pub managers: Option<Vec<String>>,
    /// Interrupts with a handler.
    pub interrupts: Option<Vec<Interrupt>>,
    /// Network interfaces of real devices, with the number of their receive queues.
    pub network_queues: Option<Vec<NetworkQueues>>,
    /// Limits of this process.
    pub limits: Option<ResourceLimits>,
    /// Real-time budget per second that is still available to control groups, if groups have budgets.
    pub group_budget: Option<Nanos>,
    /// Number of firmware interrupts while this was read, and the time.
    pub firmware_interrupts: Option<(u64, Nanos)>,
    /// Whether the NMI watchdog is on.
    pub nmi_watchdog: Option<bool>,
    /// Kernels of guests by path, and whether they have PREEMPT_RT.
    pub guest_kernels: BTreeMap<String, bool>,
    /// The driver of detached threads.
    pub detach_driver: Option<DetachDriver>,
    /// Memory nodes of PCI devices, by address.
    pub device_nodes: BTreeMap<String, u32>,
    /// Drivers of PCI devices that have one, by address.
    pub device_drivers: BTreeMap<String, String>,
}

/// Huge pages of one size on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePages {
    /// The node.
    pub node: u32,
    /// Size of a page in bytes.
    pub size: u64,
    /// Number of reserved pages.
    pub total: u64,
    /// Number of free pages.
    pub free: u64,
}

/// A kernel thread of one CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelThread {
    /// Its name, for example `rcuc/3`.
    pub name: String,
    /// Its CPU.
    pub cpu: CpuId,
    /// Its policy.
    pub policy: SchedulingPolicy,
}

/// One interrupt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// Its drivers or devices, separated by commas.
    pub action: String,
    /// The interrupt controller.
    pub chip: String,
    /// The flow, for example `edge`.
    pub name: String,
    /// Its affinity.
    pub cpus: Option<CpuSet>,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkQueues {
    /// Its name.
    pub interface: String,
    /// Receive queues.
    pub queues: u32,
}

/// Limits of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// Bytes that it may lock (`RLIMIT_MEMLOCK`); `None` without a limit.
    pub locked_memory: Option<u64>,
    /// Highest real-time priority (`RLIMIT_RTPRIO`).
    pub real_time_priority: u64,
    /// Whether `CAP_SYS_NICE` lifts the limit of the priority.
    pub may_schedule: bool,
    /// Whether `CAP_IPC_LOCK` lifts the limit of locked memory.
    pub may_lock: bool,
}
