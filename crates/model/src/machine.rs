// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine: what a figure depends on besides the program that measured it.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Finding, Nanos};

/// One logical CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cpu {
    /// Its number.
    pub id: CpuId,
    /// Physical core within the package.
    pub core: Option<u32>,
    /// Package (socket).
    pub package: Option<u32>,
    /// Memory node.
    pub node: Option<u32>,
    /// The CPUs that share its core, itself among them.
    pub siblings: CpuSet,
    /// Relative capacity where cores differ (`cpu_capacity`, or P/E kind on x86).
    pub capacity: Option<u32>,
}

/// What a cache holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// One cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u32,
    /// What it holds.
    pub kind: CacheKind,
    /// Bytes.
    pub size: u64,
    /// The CPUs that share it.
    pub shared_by: CpuSet,
}

/// One memory node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct MemoryNode {
    /// Its number.
    pub id: u32,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Its memory in bytes.
    pub memory: u64,
}

/// CPUs, caches and nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Topology {
    /// Online CPUs.
    pub online: CpuSet,
    /// CPUs that could be online.
    pub possible: CpuSet,
    /// The CPUs that this process may use: its affinity within its cpuset.
    pub allowed: CpuSet,
    /// CPUs that `isolcpus=` or isolated partitions took from the scheduler's balancing.
    pub isolated: CpuSet,
    /// CPUs whose tick `nohz_full=` stops.
    pub nohz_full: CpuSet,
    /// Each online CPU.
    pub cpus: Vec<Cpu>,
    /// Each cache.
    pub caches: Vec<Cache>,
    /// Each memory node.
    pub nodes: Vec<MemoryNode>,
}

impl Topology {
    /// The CPUs that are online and that this process may use.
    #[must_use]
    pub fn usable(&self) -> CpuSet {
        self.online.intersection(&self.allowed)
    }
}

/// How the kernel can be preempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptionModel {
    /// Never in the kernel (`PREEMPT_NONE`).
    None,
    /// At named points (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Wherever no lock is held (`PREEMPT`).
    Full,
    /// As `full` for real-time tasks, later for others (`PREEMPT_LAZY`).
    Lazy,
    /// Almost everywhere (`PREEMPT_RT`).
    RealTime,
    /// Chosen at boot, and the choice is not to be read (`PREEMPT_DYNAMIC`).
    Dynamic,
    /// Not to be told.
    Unknown,
}

/// The clock source that the kernel keeps time with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClockSource {
    /// The one in use, for example `tsc`, `arch_sys_counter`, `hpet`.
    pub current: String,
    /// All that could be used.
    pub available: Vec<String>,
}

/// One idle state (C-state).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// How long waking from it takes, as the driver says.
    pub exit_latency: Nanos,
    /// Whether it is switched off on every CPU.
    pub disabled: bool,
}

/// What changes a CPU's speed.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FrequencyFacts {
    /// The scaling driver.
    pub driver: Option<String>,
    /// Governors in use, with the CPUs each rules.
    pub governors: Vec<(String, CpuSet)>,
    /// Lowest and highest frequency allowed, in kHz, over all CPUs.
    pub range_khz: Option<(u64, u64)>,
    /// Whether frequencies above the nominal one are allowed.
    pub boost: Option<bool>,
}

/// What takes a CPU from real-time threads on purpose.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThrottlingFacts {
    /// `sched_rt_runtime_us`: real-time threads may run this long in each period; none: no limit.
    pub runtime: Option<Nanos>,
    /// `sched_rt_period_us`.
    pub period: Option<Nanos>,
    /// Whether real-time budgets belong to control groups (`CONFIG_RT_GROUP_SCHED`).
    pub group_scheduling: Option<bool>,
    /// Runtime of the fair server in each of its periods, where it can be read (from 6.12).
    pub fair_server: Option<(Nanos, Nanos)>,
}

/// Interrupts of the firmware, which the kernel does not see.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct SystemManagementInterrupts {
    /// `MSR_SMI_COUNT` (0x34) at the start, where readable (Intel SDM volume 4).
    pub at_start: Option<u64>,
    /// The same at the end.
    pub at_end: Option<u64>,
}

/// Whether the machine is itself a guest.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Virtualisation {
    /// The hypervisor under it, for example `kvm`; none on bare metal.
    pub hypervisor: Option<String>,
    /// Whether it is emulated in software, so that its times mean nothing.
    pub emulated: bool,
    /// Steal over the evaluation as a part of all CPU time, from `/proc/stat`.
    pub steal: Option<f64>,
    /// Whether this process itself runs in a container.
    pub container: Option<String>,
}

/// Everything about a machine that a figure depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Machine {
    /// Its name in the network.
    pub host_name: String,
    /// Model of the processor.
    pub processor: String,
    /// Vendor and product, from firmware or device tree.
    pub product: Option<String>,
    /// Architecture, for example `x86_64`.
    pub architecture: String,
    /// The distribution, from os-release.
    pub distribution: Option<String>,
    /// Release of the kernel.
    pub kernel_release: String,
    /// Its version text.
    pub kernel_version: String,
    /// How it can be preempted.
    pub preemption: PreemptionModel,
    /// Its command line.
    pub command_line: String,
    /// Ticks a second, where the configuration is to be read.
    pub tick_rate: Option<u32>,
    /// Installed memory in bytes.
    pub memory: u64,
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// Clock source.
    pub clock_source: ClockSource,
    /// Idle driver; none where the kernel has none.
    pub idle_driver: Option<String>,
    /// Idle states.
    pub idle_states: Vec<IdleState>,
    /// Frequencies.
    pub frequency: FrequencyFacts,
    /// Throttling.
    pub throttling: ThrottlingFacts,
    /// Firmware interrupts.
    pub system_management_interrupts: SystemManagementInterrupts,
    /// Virtualisation.
    pub virtualisation: Virtualisation,
    /// Mitigations: vulnerability and state.
    pub mitigations: Vec<(String, String)>,
    /// Control groups: `v1`, `v2`, `hybrid` or `none`.
    pub control_groups: String,
    /// `transparent_hugepage/enabled`, the chosen word.
    pub transparent_huge_pages: Option<String>,
    /// Microcode or firmware revision.
    pub microcode: Option<String>,
    /// What a real-time engineer would change.
    pub findings: Vec<Finding>,
}
