// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests: the effective settings of a KVM guest, and the relation of its clock to that of the
//! host.

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Finding, Nanos, SchedulingPolicy, SignedNanos};

/// The relation of another kernel's `CLOCK_MONOTONIC` to the local one, by an exchange of messages
/// (Cristian 1989): the remote clock was read between the two local times of the fastest exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClockRelation {
    /// The local time, halfway between sending and receiving.
    pub at: Nanos,
    /// The remote clock minus the local clock at that time.
    pub offset: SignedNanos,
    /// Uncertainty of the offset, plus or minus: half the fastest exchange.
    pub uncertainty: Nanos,
    /// Number of exchanges.
    pub exchanges: u32,
}

/// The accelerator of a guest.
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

/// The role of a thread of the program that runs a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GuestThreadRole {
    /// Runs the virtual CPU of this number.
    VirtualCpu(u32),
    /// Any other thread: the emulator's main loop, an I/O thread, a worker that starts later,
    /// vhost.
    Other,
}

/// One thread, as read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestThread {
    /// Its name in `/proc/PID/task/TID/comm`.
    pub name: String,
    /// Its thread id.
    pub thread: u32,
    /// Its role.
    pub role: GuestThreadRole,
    /// Its affinity.
    pub cpus: CpuSet,
    /// Its policy.
    pub policy: SchedulingPolicy,
}

/// One setting of the machine or of the guest that real-time guests need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestKnob {
    /// Id of the rule that expects it.
    pub rule: String,
    /// The setting: a path, an option, a parameter of the kernel command line.
    pub location: String,
    /// The expected value.
    pub expected: String,
    /// The value found.
    pub found: String,
    /// Whether the value found is as expected.
    pub satisfied: bool,
    /// Whether Rampart set it for this guest.
    pub applied: bool,
    /// Why it matters.
    pub reason: String,
    /// The command or change that fixes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// A guest that ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GuestReport {
    /// Its accelerator.
    pub accelerator: Accelerator,
    /// The program that ran it and its version.
    pub program: String,
    /// The complete command line of that program.
    pub command: Vec<String>,
    /// The guest's kernel, as reported by the guest (`uname -r`, `uname -v`).
    pub kernel: String,
    /// The guest's kernel command line.
    pub kernel_command_line: String,
    /// Its memory in bytes.
    pub memory_bytes: u64,
    /// Page size of the memory behind it in bytes.
    pub page_bytes: u64,
    /// Bytes of the program that are locked in memory.
    pub locked_bytes: u64,
    /// For each virtual CPU, in order, the CPU of the host that it is bound to; `None` if it is not
    /// bound.
    pub pinned: Vec<Option<CpuId>>,
    /// Every thread of the program when the measurement ended.
    pub threads: Vec<GuestThread>,
    /// The settings that real-time guests need.
    pub knobs: Vec<GuestKnob>,
    /// Time from its start to its first message.
    pub boot_time: Nanos,
    /// Its clock, before and after the measurement.
    pub clock: Vec<ClockRelation>,
    /// Warnings about its settings.
    pub findings: Vec<Finding>,
}
