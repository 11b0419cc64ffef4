// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the rules of a plan need to know of a machine besides what figures depend on.

use std::collections::BTreeMap;

use crate::{CacheControl, CpuId, CpuSet, Nanos, SchedulingPolicy};

/// Facts around a plan. None, or a missing entry, means that it is not known: a rule then says so
/// and guesses nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// Huge pages by node and size.
    pub huge_pages: Option<Vec<HugePages>>,
    /// How caches and memory bandwidth can be divided.
    pub cache_control: Option<CacheControl>,
    /// The kernel's own threads for each CPU whose priority matters.
    pub kernel_threads: Option<Vec<KernelThread>>,
    /// Options that the kernel was built with, by name, and whether they are on.
    pub kernel_options: BTreeMap<String, bool>,
    /// Programs at work that tune the machine too.
    pub managers: Option<Vec<String>>,
    /// Interrupts that somebody asked for.
    pub interrupts: Option<Vec<Interrupt>>,
    /// Network interfaces of real devices, with the number of their receive queues.
    pub network_queues: Option<Vec<NetworkQueues>>,
    /// What who asks is allowed.
    pub limits: Option<ResourceLimits>,
    /// Real-time time a second that control groups can still be given, where budgets belong to
    /// groups.
    pub group_budget: Option<Nanos>,
    /// How many firmware interrupts came while this was read, and in what time.
    pub firmware_interrupts: Option<(u64, Nanos)>,
    /// Whether the NMI watchdog is on.
    pub nmi_watchdog: Option<bool>,
    /// Kernels of guests by path, and whether they are built for real time.
    pub guest_kernels: BTreeMap<String, bool>,
    /// PCI devices by address, with their memory node.
    pub device_nodes: BTreeMap<String, u32>,
}

/// Huge pages of one size on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HugePages {
    /// The node.
    pub node: u32,
    /// Bytes of a page.
    pub size: u64,
    /// How many are reserved.
    pub total: u64,
    /// How many of them are free.
    pub free: u64,
}

/// A thread of the kernel that serves one CPU.
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
    /// Who asked for it; several with commas between.
    pub action: String,
    /// The interrupt controller.
    pub chip: String,
    /// The flow, for example `edge`.
    pub name: String,
    /// Where it may go.
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

/// What a process is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResourceLimits {
    /// Bytes that it may lock (`RLIMIT_MEMLOCK`); none: no limit.
    pub locked_memory: Option<u64>,
    /// Highest real-time priority (`RLIMIT_RTPRIO`).
    pub real_time_priority: u64,
    /// Whether `CAP_SYS_NICE` lifts the limit of the priority.
    pub may_schedule: bool,
    /// Whether `CAP_IPC_LOCK` lifts the limit of locked memory.
    pub may_lock: bool,
}
