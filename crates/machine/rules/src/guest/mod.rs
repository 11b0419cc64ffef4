// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judgements of a KVM guest and of its host for real-time work. Does no IO: `domain` reads the
//! values.
//!
//! Each setting belongs to a rule of the catalogue, which defines its severity. Sources of the
//! rules: the profiles `realtime-virtual-host` and `-guest` of TuneD, libvirt's document
//! `kvm-realtime`, Red Hat's guide to real-time guests, Linux's `kernel-parameters.txt` and
//! `virt/kvm/api.rst`.

mod files;
mod guest_program;
mod host;
mod kernel_command_line;

use std::collections::BTreeMap;

use rampart_model::{
    Accelerator, CpuId, CpuSet, Finding, GuestKnob, GuestThread, Nanos, SchedulingPolicy,
};

pub use files::{FILES, HostFile};

use crate::rule;

/// Idle states with a longer exit latency affect interrupt latency.
pub(crate) const SHALLOW: Nanos = crate::machine::facts::DEEP;

/// Ids of the rules about the CPUs of a real-time guest and about its host's kernel and programs.
pub const GUEST_PLACEMENT_RULES: [&str; 12] = [
    "boot-cpu",
    "sibling-threads",
    "one-memory-node",
    "one-kind-of-core",
    "config-no-hz-full",
    "config-cpusets",
    "config-high-resolution-timers",
    "config-kvm",
    "network-queues",
    "irqbalance",
    "tuned",
    "stalld",
];

/// The host's values at the start of the guest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostFacts {
    /// The content of each existing file of [`FILES`], by its path.
    pub files: BTreeMap<String, String>,
    /// The kernel command line.
    pub command_line: String,
    /// The CPUs that could be online.
    pub possible: CpuSet,
    /// Threads of the kernel that must run before a busy virtual CPU: name and policy.
    pub kernel_threads: Vec<(String, SchedulingPolicy)>,
    /// The longest exit latency of an enabled idle state.
    pub idle_exit: Nanos,
    /// Governors in use.
    pub governors: Vec<String>,
    /// Number of memory nodes.
    pub nodes: usize,
    /// The count of firmware interrupts since reset; `None` if it is not readable.
    pub firmware_interrupts: Option<u64>,
    /// Whether the processor can allocate parts of a cache (CAT).
    pub divides_caches: bool,
    /// Groups of `/sys/fs/resctrl` besides the default one; `None` if it is not mounted.
    pub cache_groups: Option<usize>,
    /// The latency limit of `/dev/cpu_dma_latency` for all CPUs; `None` if it is not readable.
    pub latency_limit: Option<Nanos>,
    /// The CPUs that `power/pm_qos_resume_latency_us` limits to 10 µs.
    pub held_awake: Vec<CpuId>,
    /// Number of IOMMUs in use.
    pub iommus: usize,
}

/// A virtual CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VirtualCpu {
    /// The CPUs of the host that it may run on: one if it is pinned.
    pub cpus: CpuSet,
    /// The policy of its thread.
    pub policy: SchedulingPolicy,
}

/// The memory behind a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuestMemoryPages {
    /// Size in MiB.
    pub mebibytes: u64,
    /// Size of the huge pages in bytes; `None` for ordinary pages.
    pub huge_page: Option<u64>,
}

/// The requested guest.
#[derive(Debug, Clone, Copy)]
pub struct GuestSetup<'a> {
    /// Its accelerator.
    pub accelerator: Accelerator,
    /// Its memory.
    pub memory: GuestMemoryPages,
    /// Its virtual CPUs, by their number in the guest.
    pub cpus: &'a [VirtualCpu],
    /// The CPUs of all other threads of the program.
    pub emulator: &'a CpuSet,
    /// The host's CPUs for ordinary work.
    pub housekeeping: &'a CpuSet,
    /// Whether all its CPUs but the first are for real-time work.
    pub real_time: bool,
    /// Whether its host is emulated.
    pub emulated: bool,
    /// The environment variable that names another guest kernel.
    pub kernel_variable: &'a str,
}

impl GuestSetup<'_> {
    /// Returns the guest's real-time CPUs, by their numbers in the guest.
    #[must_use]
    pub fn real_time_inside(&self) -> CpuSet {
        if !self.real_time {
            return CpuSet::new();
        }
        (1..self.cpus.len())
            .filter_map(|number| u32::try_from(number).ok())
            .map(CpuId)
            .collect()
    }
}

/// A running guest and its host.
#[derive(Debug, Clone, Copy)]
pub struct GuestSubject<'a> {
    /// The host at the start of the guest.
    pub facts: &'a HostFacts,
    /// The requested guest.
    pub guest: GuestSetup<'a>,
    /// The command line that the program runs with.
    pub command: &'a [String],
    /// Threads of the program, as the kernel reports them now.
    pub threads: &'a [GuestThread],
    /// Bytes of the program that are locked in memory.
    pub locked: u64,
    /// `uname -v` of the guest.
    pub kernel_version: &'a str,
    /// The guest's kernel command line.
    pub kernel_command_line: &'a str,
    /// The count of firmware interrupts now; `None` if it is not readable.
    pub firmware_interrupts: Option<u64>,
}

impl GuestSubject<'_> {
    /// Returns the host's CPUs of real-time virtual CPUs.
    fn real_time_cpus(&self) -> CpuSet {
        let pinned = self.guest.cpus.iter().skip(1);
        pinned
            .filter(|cpu| cpu.cpus.len() == 1)
            .filter_map(|cpu| cpu.cpus.first())
            .collect()
    }
}

/// A setting under construction.
#[derive(Debug)]
struct Setting(GuestKnob);

impl Setting {
    fn new(
        rule: &str,
        location: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        satisfied: bool,
        reason: &str,
    ) -> Self {
        Self(GuestKnob {
            rule: rule.to_owned(),
            location: location.into(),
            expected: expected.into(),
            found: found.into(),
            satisfied,
            applied: false,
            reason: reason.to_owned(),
            fix: None,
        })
    }

    /// Sets whether Rampart set it for this guest.
    fn applied(mut self, applied: bool) -> Self {
        self.0.applied = applied;
        self
    }

    /// Adds the command or change that fixes it; an empty text adds none.
    fn fix(mut self, fix: impl Into<String>) -> Self {
        self.0.fix = Some(fix.into()).filter(|fix| !fix.is_empty());
        self
    }
}

/// Returns every setting that real-time guests need, with its value in this guest and on its host.
#[must_use]
pub fn guest_settings(subject: &GuestSubject<'_>) -> Vec<GuestKnob> {
    let mut settings = Vec::new();
    if subject.guest.real_time {
        settings.extend(host::power(subject));
        settings.extend(kernel_command_line::of_host(subject));
        settings.extend(host::files(subject));
        settings.extend(host::kernel_threads(subject));
        settings.extend(host::caches(subject));
        settings.extend(guest_program::memory(subject));
    }
    settings.extend(guest_program::command(subject));
    settings.extend(guest_program::threads(subject));
    if subject.guest.real_time {
        settings.extend(kernel_command_line::of_guest(subject));
    }
    settings.into_iter().map(|setting| setting.0).collect()
}

/// Returns the finding of a setting; `None` if it is as expected.
#[must_use]
pub fn guest_finding(setting: &GuestKnob) -> Option<Finding> {
    if setting.satisfied {
        return None;
    }
    let finding = rule(&setting.rule)?
        .finding(&setting.location, &setting.reason)
        .values(&setting.found, &setting.expected);
    Some(match &setting.fix {
        Some(fix) => finding.fix(fix),
        None => finding,
    })
}

/// Returns the finding of a guest kernel that is not built for real time.
///
/// `image` is its file, `version` its `uname -v`.
#[must_use]
pub fn guest_kernel_finding(image: &str, version: &str, kernel_variable: &str) -> Option<Finding> {
    let finding = rule("guest-kernel")?
        .finding(
            image,
            "the guest's kernel is not built for real time, so no latency inside is bounded",
        )
        .values(version, "PREEMPT_RT");
    Some(finding.fix(format!(
        "name the image of a kernel with PREEMPT_RT in {kernel_variable}"
    )))
}
