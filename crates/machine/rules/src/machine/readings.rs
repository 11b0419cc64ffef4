// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The values at the locations of the catalogue on one machine.
//!
//! Paths of the catalogue are templates. A part in braces matches every existing name:
//!
//! | part | matches |
//! |---|---|
//! | `{real-time-cpu}` | each real-time CPU |
//! | `{cpu}` | each online CPU |
//! | `{real-time-policy}` | each frequency policy of a real-time CPU |
//! | `{groups}` | each directory below, at any depth |
//! | any other word | each existing name |

use std::collections::{BTreeMap, BTreeSet};

use rampart_model::{CpuSet, SchedulingPolicy};

use crate::{KernelCommandLine, KernelVersion, Location};

/// Templates that facts read in addition to the locations of the catalogue.
pub const MORE_FILES: [&str; 35] = [
    "/proc/1/status",
    "/proc/swaps",
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
    "/etc/irqbalance.env",
    "/proc/modules",
    "/sys/devices/system/cpu/isolated",
    "/sys/devices/system/cpu/nohz_full",
    "/sys/fs/cgroup/{groups}/cpuset.cpus.effective",
    "/sys/fs/cgroup/{groups}/cpuset.cpus.partition",
    "/sys/fs/cgroup/unified/{groups}/cpuset.cpus.effective",
    "/sys/fs/cgroup/cpuset/{groups}/cpuset.effective_cpus",
    "/sys/kernel/sched_ext/state",
    "/sys/kernel/sched_ext/root/ops",
    "/sys/class/misc/hw_random/rng_current",
    "/sys/class/misc/hw_random/rng_available",
    "/sys/class/misc/hw_random/rng_quality",
    "/sys/bus/pci/devices/{device}/class",
    "/sys/bus/pci/devices/{device}/power/control",
    "/sys/bus/pci/devices/{device}/power/runtime_status",
    "/sys/bus/usb/devices/{device}/bDeviceClass",
    "/sys/bus/usb/devices/{device}/power/control",
    "/sys/bus/usb/devices/{device}/power/runtime_status",
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

/// The reason why a value could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unread {
    /// Only root may read it.
    Privilege,
    /// It is in debugfs, which is not mounted.
    DebugFiles,
    /// The kernel's configuration is not available.
    KernelOptions,
    /// The kernel's threads are not visible to this process.
    KernelThreads,
    /// The kernel log is not readable.
    KernelLog,
    /// `/dev/cpu/0/msr`, which has the counter of firmware interrupts, cannot be read.
    ModelSpecificRegisters,
}

impl Unread {
    /// Returns the reason, and the command that fixes it.
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
            Self::KernelLog => (
                "the kernel log (/dev/kmsg) is shown to root alone, and is not part of this recording",
                "run the same command with sudo; into a recorded machine: dmesg > var/log/dmesg",
            ),
            Self::ModelSpecificRegisters => (
                "the counter of firmware interrupts (MSR 0x34) is read through /dev/cpu/0/msr",
                "modprobe msr, and run the same command with sudo",
            ),
        }
    }
}

/// The result of reading a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// Its text, without surrounding space.
    Value(String),
    /// It could not be read, for this reason.
    Refused(Unread),
}

/// One file that matches a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocationValue {
    /// Its path, with the leading slash.
    pub path: String,
    /// The names that the parts in braces match, in order.
    pub keys: Vec<String>,
    /// Its value.
    pub reading: Reading,
}

/// A kernel thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelThreadReading {
    /// Its thread id.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its policy and priority; `None` if `/proc` does not show them.
    pub policy: Option<SchedulingPolicy>,
    /// Its affinity; `None` if `/proc` does not show it.
    pub affinity: Option<CpuSet>,
    /// Whether its affinity cannot be changed (`PF_NO_SETAFFINITY`).
    pub bound: bool,
}

/// A thread of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramThreadReading {
    /// Its process.
    pub process: u32,
    /// Its thread id.
    pub thread: u32,
    /// Its name.
    pub name: String,
    /// Its policy and priority; `None` if `/proc` does not show them.
    pub policy: Option<SchedulingPolicy>,
    /// Its affinity.
    pub affinity: CpuSet,
}

/// An interrupt that a driver requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InterruptReading {
    /// Its number.
    pub number: u32,
    /// The interrupt controller, for example `PCI-MSIX-0000:00:02.0`.
    pub chip: String,
    /// The driver or device that requested it.
    pub name: String,
    /// Its affinity.
    pub affinity: CpuSet,
    /// Its effective affinity, if the kernel reports it.
    pub effective: Option<CpuSet>,
    /// Whether it is a per-CPU interrupt, such as that of a timer, and cannot be moved.
    pub per_cpu: bool,
    /// Whether the kernel manages its affinity, which cannot be changed then; `None` if unknown.
    pub managed: Option<bool>,
}

/// The limits of the calling process (getrlimit(2)); `None` without a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessLimits {
    /// `RLIMIT_MEMLOCK` in bytes.
    pub locked_memory: Option<u64>,
    /// `RLIMIT_RTPRIO`.
    pub real_time_priority: Option<u64>,
    /// Whether it has `CAP_SYS_NICE` and `CAP_IPC_LOCK`, to which no limit applies.
    pub privileged: bool,
}

/// All values that were read from a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Readings {
    /// The kernel's version.
    pub kernel: Option<KernelVersion>,
    /// Vendor of the processor: `GenuineIntel`, `AuthenticAMD`; empty on other architectures.
    pub vendor: String,
    /// Flags of the processor, as in `/proc/cpuinfo`.
    pub flags: BTreeSet<String>,
    /// Files by template. A template without an existing file has no entry.
    pub files: BTreeMap<String, Vec<LocationValue>>,
    /// The kernel command line.
    pub kernel_command_line: KernelCommandLine,
    /// The kernel's options; `None` if its configuration cannot be read.
    pub options: Option<BTreeMap<String, String>>,
    /// Kernel threads; `None` if they are not visible.
    pub threads: Option<Vec<KernelThreadReading>>,
    /// Threads of programs; `None` if they are not visible.
    pub program_threads: Option<Vec<ProgramThreadReading>>,
    /// Messages of the kernel since it started, each with the time since then if it is known: `[12.345678] text`.
    /// `None` if they cannot be read.
    pub kernel_log: Option<Vec<String>>,
    /// Interrupts.
    pub interrupts: Vec<InterruptReading>,
    /// Names of running programs; `None` if they are not visible.
    pub programs: Option<BTreeSet<String>>,
    /// Limits of this process.
    pub limits: Option<ProcessLimits>,
    /// Whether KVM is available for guests.
    pub hosts_guests: bool,
}

/// Returns the name of a program as the kernel shows it: at most 15 bytes (proc_pid_comm(5)).
#[must_use]
pub fn name_in_kernel(program: &str) -> &str {
    program.get(..15).unwrap_or(program)
}

impl Readings {
    /// Returns the files that match a template; empty if none exists.
    #[must_use]
    pub fn of(&self, template: &str) -> &[LocationValue] {
        self.files.get(template).map_or(&[], Vec::as_slice)
    }

    /// Returns the files of the first template with a readable file, else of the first with any
    /// file. The catalogue lists the names of different kernels together.
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

    /// Returns the text of the first file that matches a template.
    #[must_use]
    pub fn value(&self, template: &str) -> Option<&str> {
        self.of(template)
            .iter()
            .find_map(|location| match &location.reading {
                Reading::Value(text) => Some(text.as_str()),
                Reading::Refused(_) => None,
            })
    }

    /// Returns whether the kernel does not limit the time of real-time threads, neither with the throttling nor with
    /// budgets of groups (kernel/sched/rt.c, `rt_bandwidth_enabled`).
    #[must_use]
    pub fn real_time_is_unlimited(&self) -> bool {
        self.value("/proc/sys/kernel/sched_rt_runtime_us")
            .and_then(|text| text.parse::<i64>().ok())
            .is_some_and(|runtime| runtime < 0)
    }

    /// Returns whether an option is set; `None` if the configuration is unknown.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<bool> {
        let options = self.options.as_ref()?;
        Some(matches!(
            options.get(name).map(String::as_str),
            Some("y" | "m")
        ))
    }
}

/// Returns every template of a file that the catalogue reads, once each.
#[must_use]
pub fn file_templates() -> BTreeSet<&'static str> {
    let mut templates: BTreeSet<&'static str> = MORE_FILES.into_iter().collect();
    for knob in crate::all() {
        if let Location::File(_, paths) = knob.location {
            templates.extend(paths);
        }
    }
    templates
}

/// Returns every template of which only the presence matters, once each. The files may be devices,
/// which must not be opened only for a check.
#[must_use]
pub fn presence_templates() -> BTreeSet<&'static str> {
    crate::all()
        .filter_map(|knob| match knob.location {
            Location::Exists(paths) => Some(paths),
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
    fn prefers_a_readable_file() {
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
