// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests: what a KVM guest got, and how its clock relates to its host's.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Finding, Nanos, SchedulingPolicy, SignedNanos};

/// How the `CLOCK_MONOTONIC` of another kernel relates to ours, by an exchange of messages
/// (Cristian 1989): the far clock was read between our two moments of the fastest exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClockRelation {
    /// Our moment, halfway between sending and receiving.
    pub at: Nanos,
    /// The far clock minus ours at that moment.
    pub offset: SignedNanos,
    /// The offset is known to plus or minus this: half the fastest exchange.
    pub uncertainty: Nanos,
    /// How many exchanges were made.
    pub exchanges: u32,
}

/// What runs a guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accelerator {
    /// The processor itself, by KVM.
    Kvm,
    /// Software (QEMU's TCG): its latencies are emulated ones, and no deadline is judged.
    Tcg,
}

impl std::fmt::Display for Accelerator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        })
    }
}

/// What a thread of the program that runs a guest is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestThreadRole {
    /// Runs the virtual CPU of this number.
    VirtualCpu(u32),
    /// Anything else: the emulator's main loop, an I/O thread, a worker born later, vhost.
    Other,
}

/// One thread, as read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestThread {
    /// Its name in `/proc/PID/task/TID/comm`.
    pub name: String,
    /// Its id.
    pub thread: u32,
    /// What it is for.
    pub role: GuestThreadRole,
    /// Its affinity.
    pub cpus: CpuSet,
    /// Its policy.
    pub policy: SchedulingPolicy,
}

/// One setting of the machine or of the guest that real-time guests are known to need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestKnob {
    /// Id of the rule that expects it.
    pub rule: String,
    /// The setting: a path, an option, a parameter of the kernel command line.
    pub location: String,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// Whether what is satisfies what should be.
    pub satisfied: bool,
    /// Whether Rampart set it for this guest.
    pub applied: bool,
    /// Why it matters.
    pub reason: String,
    /// The command or change that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// A guest as it ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestReport {
    /// What ran its instructions.
    pub accelerator: Accelerator,
    /// The program that ran it and its version.
    pub program: String,
    /// The complete command line of that program.
    pub command: Vec<String>,
    /// The guest's kernel, as the guest says it (`uname -r`, `uname -v`).
    pub kernel: String,
    /// The guest's kernel command line.
    pub kernel_command_line: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Page size of the memory behind it in bytes.
    pub page_bytes: u64,
    /// Bytes of the program that are locked in memory.
    pub locked_bytes: u64,
    /// For each of the guest's CPUs, in order, the CPU of the host that it is bound to; none where
    /// it floats.
    pub pinned: Vec<Option<CpuId>>,
    /// Every thread of the program when the measurement ended.
    pub threads: Vec<GuestThread>,
    /// Everything that real-time guests are known to need.
    pub knobs: Vec<GuestKnob>,
    /// From its start until its first word.
    pub boot_time: Nanos,
    /// Its clock, before and after the measurement.
    pub clock: Vec<ClockRelation>,
    /// What is weaker than it could be.
    pub findings: Vec<Finding>,
}
