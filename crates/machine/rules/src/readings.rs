// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the places of the catalogue hold on one machine.
//!
//! Paths of the catalogue are templates. A part in braces stands for every name that fits there:
//!
//! | part | stands for |
//! |---|---|
//! | `{real-time-cpu}` | each real-time CPU |
//! | `{cpu}` | each online CPU |
//! | `{real-time-policy}` | each frequency policy that rules a real-time CPU |
//! | any other word | each name there |

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{CpuSet, SchedulingPolicy};

use crate::{KernelCommandLine, KernelVersion, Place};

/// Templates that facts need besides the places of the catalogue.
pub const MORE_FILES: [&str; 16] = [
    "/proc/1/status",
    "/proc/swaps",
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
    "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}/disable",
    "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}/latency",
    "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}/name",
    "/sys/devices/system/cpu/cpu{real-time-cpu}/power/pm_qos_resume_latency_us",
    "/sys/class/iommu/{unit}/uevent",
    "/sys/kernel/iommu_groups/{group}/type",
    "/sys/fs/resctrl/info/{resource}/num_closids",
    "/sys/class/net/{device}/queues/rx-{queue}/rps_cpus",
    "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/nr_hugepages",
    "/sys/devices/system/node/node{node}/hugepages/hugepages-{size}/free_hugepages",
    "/sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages",
    "/sys/kernel/mm/hugepages/hugepages-{size}/free_hugepages",
];

/// Why something could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// The kernel shows it to root alone.
    Privilege,
    /// It is in debugfs, which is not mounted.
    DebugFiles,
    /// The kernel's configuration is not to be found.
    KernelOptions,
    /// The kernel's threads are not seen from here.
    KernelThreads,
    /// The counter of firmware interrupts is read through `/dev/cpu/0/msr`.
    ModelSpecificRegisters,
}

impl Unread {
    /// Why, and the command that fixes it.
    #[must_use]
    pub const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Privilege => (
                "the kernel shows it to root alone",
                "run the same command with sudo",
            ),
            Self::DebugFiles => (
                "the kernel shows it in debugfs, which is not mounted here",
                "mount -t debugfs debugfs /sys/kernel/debug, as root",
            ),
            Self::KernelOptions => (
                "the kernel's configuration is neither in /proc/config.gz nor in /boot",
                "modprobe configs, or put the configuration into /boot/config-$(uname -r)",
            ),
            Self::KernelThreads => (
                "the kernel's threads and other programs are not seen from inside a container",
                "run the same command on the host",
            ),
            Self::ModelSpecificRegisters => (
                "the counter of firmware interrupts (MSR 0x34) is read through /dev/cpu/0/msr",
                "modprobe msr, and run the same command with sudo",
            ),
        }
    }
}

/// What a file said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Its text, without space around it.
    Value(String),
    /// Nothing, and why.
    Refused(Unread),
}

/// One file that a template stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationValue {
    /// Its path, with the leading slash.
    pub path: String,
    /// What the parts in braces stand for here, in order.
    pub keys: Vec<String>,
    /// What it holds.
    pub reading: Reading,
}

/// A thread of the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelThread {
    /// Its number.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its policy and priority; none where `/proc` did not tell.
    pub policy: Option<SchedulingPolicy>,
    /// The CPUs that it may run on; none where `/proc` did not tell.
    pub affinity: Option<CpuSet>,
    /// Whether the kernel lets nobody move it (`PF_NO_SETAFFINITY`).
    pub bound: bool,
}

/// An interrupt that a driver asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interrupt {
    /// Its number.
    pub number: u32,
    /// The chip that delivers it, for example `PCI-MSIX-0000:00:02.0`.
    pub chip: String,
    /// Who asked for it.
    pub name: String,
    /// The CPUs that it may go to.
    pub affinity: CpuSet,
    /// The CPUs that it goes to, where the kernel tells.
    pub effective: Option<CpuSet>,
    /// Whether it belongs to each CPU, like a timer's, and cannot be moved.
    pub per_cpu: bool,
    /// Whether the kernel spread it itself and moves it for nobody, where it tells.
    pub managed: Option<bool>,
}

/// What the calling process may ask for (getrlimit(2)); none: without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// `RLIMIT_MEMLOCK` in bytes.
    pub locked_memory: Option<u64>,
    /// `RLIMIT_RTPRIO`.
    pub real_time_priority: Option<u64>,
    /// Whether it has `CAP_SYS_NICE` and `CAP_IPC_LOCK`, which no limit binds.
    pub privileged: bool,
}

/// Everything that was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readings {
    /// The kernel's version.
    pub kernel: Option<KernelVersion>,
    /// What the processor calls its maker: `GenuineIntel`, `AuthenticAMD`; empty elsewhere.
    pub vendor: String,
    /// The processor's abilities, as `/proc/cpuinfo` names them.
    pub flags: BTreeSet<String>,
    /// Files by template. A template of which nothing is there has no entry.
    pub files: BTreeMap<String, Vec<LocationValue>>,
    /// The kernel command line.
    pub kernel_command_line: KernelCommandLine,
    /// The kernel's options; none where its configuration cannot be read.
    pub options: Option<BTreeMap<String, String>>,
    /// Threads of the kernel; none where they are not seen.
    pub threads: Option<Vec<KernelThread>>,
    /// Interrupts.
    pub interrupts: Vec<Interrupt>,
    /// Names of running programs; none where they are not seen.
    pub programs: Option<BTreeSet<String>>,
    /// Limits of this process.
    pub limits: Option<ProcessLimits>,
    /// Whether KVM is there for guests.
    pub hosts_guests: bool,
}

impl Readings {
    /// What a template stands for here; empty where nothing is there.
    #[must_use]
    pub fn of(&self, template: &str) -> &[LocationValue] {
        self.files.get(template).map_or(&[], Vec::as_slice)
    }

    /// The files of the first of these templates that has one which can be read, else of the first
    /// that has any: names of different kernels stand in the catalogue together.
    #[must_use]
    pub fn first_readable(&self, templates: &[&str]) -> &[LocationValue] {
        let there = || {
            let found = templates.iter().map(|template| self.of(template));
            found.filter(|locations| !locations.is_empty())
        };
        let readable = |locations: &&[LocationValue]| {
            let mut readings = locations.iter().map(|location| &location.reading);
            readings.any(|reading| matches!(reading, Reading::Value(_)))
        };
        there()
            .find(readable)
            .or_else(|| there().next())
            .unwrap_or(&[])
    }

    /// The text of the first file that a template stands for.
    #[must_use]
    pub fn value(&self, template: &str) -> Option<&str> {
        self.of(template)
            .iter()
            .find_map(|location| match &location.reading {
                Reading::Value(text) => Some(text.as_str()),
                Reading::Refused(_) => None,
            })
    }

    /// Whether an option is on; none where the configuration is unknown.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<bool> {
        let options = self.options.as_ref()?;
        Some(matches!(
            options.get(name).map(String::as_str),
            Some("y" | "m")
        ))
    }
}

/// Every template of a file that has to be read for the catalogue, once each.
#[must_use]
pub fn file_templates() -> BTreeSet<&'static str> {
    let mut templates: BTreeSet<&'static str> = MORE_FILES.into_iter().collect();
    for knob in crate::all() {
        if let Place::File(_, paths) = knob.location {
            templates.extend(paths);
        }
    }
    templates
}

/// Every template of which only the presence counts, once each. They may be devices, which must
/// not be opened only to look.
#[must_use]
pub fn presence_templates() -> BTreeSet<&'static str> {
    crate::all()
        .filter_map(|knob| match knob.location {
            Place::Exists(paths) => Some(paths),
            _ => None,
        })
        .flatten()
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_be_read_counts_before_the_other_names_that_cannot() {
        let file = |path: &str, reading| {
            let location = LocationValue {
                path: path.to_owned(),
                keys: Vec::new(),
                reading,
            };
            (path.to_owned(), vec![location])
        };
        let readings = Readings {
            files: BTreeMap::from([
                file("/hidden", Reading::Refused(Unread::Privilege)),
                file("/shown", Reading::Value("1".to_owned())),
            ]),
            ..Readings::default()
        };
        let first = |templates: &[&str]| {
            let locations = readings.first_readable(templates);
            locations.first().map(|location| location.path.clone())
        };
        let all = ["/absent", "/hidden", "/shown"];
        assert_eq!(first(&all).as_deref(), Some("/shown"));
        assert_eq!(first(&all[..2]).as_deref(), Some("/hidden"));
        assert_eq!(first(&all[..1]), None);
    }
}
