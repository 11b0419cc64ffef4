// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine: the facts, besides the measuring program, that figures depend on.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Finding, IsolationSource, Nanos};

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
    /// The CPUs that share its core, including itself.
    pub siblings: CpuSet,
    /// Relative capacity if cores differ (`cpu_capacity`, or P/E kind on x86).
    pub capacity: Option<u32>,
}

/// The contents of a cache.
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
    /// Its level; 1 is nearest to the core.
    pub level: u32,
    /// Its contents.
    pub kind: CacheKind,
    /// Size in bytes.
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
    /// CPUs that `isolcpus=` or isolated partitions exclude from load balancing.
    pub isolated: CpuSet,
    /// CPUs whose tick `nohz_full=` stops.
    pub nohz_full: CpuSet,
    /// Every setting that keeps CPUs for real-time work.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub isolation_sources: Vec<IsolationSource>,
    /// Each online CPU.
    pub cpus: Vec<Cpu>,
    /// Each cache.
    pub caches: Vec<Cache>,
    /// Each memory node.
    pub nodes: Vec<MemoryNode>,
}

impl Topology {
    /// Returns the online CPUs that this process may use.
    #[must_use]
    pub fn usable(&self) -> CpuSet {
        self.online.intersection(&self.allowed)
    }
}

/// The preemption model of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptionModel {
    /// Never in the kernel (`PREEMPT_NONE`).
    None,
    /// At explicit points (`PREEMPT_VOLUNTARY`).
    Voluntary,
    /// Wherever no lock is held (`PREEMPT`).
    Full,
    /// As `full` for real-time tasks, later for others (`PREEMPT_LAZY`).
    Lazy,
    /// Almost everywhere (`PREEMPT_RT`).
    RealTime,
    /// Chosen at boot, and not readable (`PREEMPT_DYNAMIC`).
    Dynamic,
    /// Unknown.
    Unknown,
}

/// The clock source of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClockSource {
    /// The clock source in use, for example `tsc`, `arch_sys_counter`, `hpet`.
    pub current: String,
    /// All available clock sources.
    pub available: Vec<String>,
}

/// One idle state (C-state).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct IdleState {
    /// Its name.
    pub name: String,
    /// Exit latency, as the driver reports it.
    pub exit_latency: Nanos,
    /// Whether it is disabled on every CPU.
    pub disabled: bool,
}

/// Frequency scaling of the CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct FrequencyFacts {
    /// The scaling driver.
    pub driver: Option<String>,
    /// Governors in use, with their CPUs.
    pub governors: Vec<(String, CpuSet)>,
    /// Lowest and highest frequency allowed, in kHz, over all CPUs.
    pub range_khz: Option<(u64, u64)>,
    /// Whether frequencies above the nominal one are allowed.
    pub boost: Option<bool>,
}

/// The kernel parameter that turns off budgets of control groups (`CONFIG_RT_GROUP_SCHED`), and the
/// kernels that have it (Documentation/admin-guide/kernel-parameters.txt).
pub const GROUP_BUDGETS_OFF: &str = "rt_group_sched=0 (Linux 6.16 or later)";

/// Kernel mechanisms that limit the CPU time of real-time threads.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ThrottlingFacts {
    /// `sched_rt_runtime_us`: run time of real-time threads in each period; `None` without a limit.
    pub runtime: Option<Nanos>,
    /// `sched_rt_period_us`.
    pub period: Option<Nanos>,
    /// Whether real-time budgets belong to control groups (`CONFIG_RT_GROUP_SCHED`).
    pub group_scheduling: Option<bool>,
    /// Runtime and period of the fair server, if readable (from 6.12 on).
    pub fair_server: Option<(Nanos, Nanos)>,
}

/// Firmware interrupts (SMI), which the kernel cannot observe.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct SystemManagementInterrupts {
    /// `MSR_SMI_COUNT` (0x34) at the start, if readable (Intel SDM volume 4).
    pub at_start: Option<u64>,
    /// The count at the end, if readable.
    pub at_end: Option<u64>,
}

/// Word of the kernel command line of a simulated board, whose device tree and processors are those of the real
/// one. Linux takes a word with a dot for a parameter of a module that it does not have.
pub const SIMULATED_BOARD: &str = "rampart_sim.emulated";

/// Virtualisation of the machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Virtualisation {
    /// The hypervisor that it runs under, for example `kvm`; `None` on bare metal.
    pub hypervisor: Option<String>,
    /// Whether it is emulated in software, so that its times are not meaningful.
    pub emulated: bool,
    /// Steal time during the evaluation as a part of all CPU time, from `/proc/stat`.
    pub steal: Option<f64>,
    /// The container that this process runs in.
    pub container: Option<String>,
}

/// The operating system, and what decides how it installs packages and starts its kernel.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
pub struct OperatingSystem {
    /// `ID` of os-release(5), for example `debian`; empty if the file does not exist.
    pub id: String,
    /// `ID_LIKE`: related distributions, the closest first.
    pub like: Vec<String>,
    /// `VERSION_ID`, for example `24.04`.
    pub version: String,
    /// `VARIANT_ID`, for example `silverblue`.
    pub variant: String,
    /// The files that exist of those that name package managers and boot loaders.
    pub files: Vec<String>,
}

/// The facts about a machine that figures depend on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Machine {
    /// Its host name.
    pub host_name: String,
    /// Model of the processor.
    pub processor: String,
    /// Vendor and product, from firmware or device tree.
    pub product: Option<String>,
    /// Architecture, for example `x86_64`.
    pub architecture: String,
    /// The distribution, from os-release.
    pub distribution: Option<String>,
    /// What fixes depend on; unknown in documents of older versions.
    #[serde(default)]
    pub operating_system: OperatingSystem,
    /// Release of the kernel.
    pub kernel_release: String,
    /// Its version text (`uname -v`).
    pub kernel_version: String,
    /// Its preemption model.
    pub preemption: PreemptionModel,
    /// Its command line.
    pub command_line: String,
    /// Ticks per second, if the configuration is readable.
    pub tick_rate: Option<u32>,
    /// Installed memory in bytes.
    pub memory: u64,
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// Clock source.
    pub clock_source: ClockSource,
    /// Idle driver; `None` if the kernel has none.
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
    /// Deviations that affect real-time work.
    pub findings: Vec<Finding>,
}
