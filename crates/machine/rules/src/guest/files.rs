// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the host with one file each.

use crate::{Expected, Format, Isolation, Location, When, to_write};

/// The file of real-time throttling.
pub(super) const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

/// One file, or all files that match a template.
#[derive(Debug, Clone, Copy)]
pub struct HostFile {
    /// Its path. A part in braces matches every existing name.
    pub path: &'static str,
    /// The rule and the value that a guest needs, if the catalogue does not have the file or
    /// expects no specific value.
    own: Option<(&'static str, Expected)>,
    /// Whether it matters only with KVM.
    pub kvm: bool,
    /// Why a guest needs the expected value.
    pub reason: &'static str,
}

const fn host(path: &'static str, reason: &'static str) -> HostFile {
    HostFile {
        path,
        own: None,
        kvm: false,
        reason,
    }
}

const fn kvm(path: &'static str, reason: &'static str) -> HostFile {
    HostFile {
        kvm: true,
        ..host(path, reason)
    }
}

const fn own(
    rule: &'static str,
    path: &'static str,
    wanted: Expected,
    reason: &'static str,
) -> HostFile {
    HostFile {
        own: Some((rule, wanted)),
        ..host(path, reason)
    }
}

/// Every file, in the order of the list: firmware, kernel, memory, KVM. A missing file is not a
/// knob of this machine.
pub const FILES: [HostFile; 27] = [
    host(
        "/sys/devices/system/cpu/smt/active",
        "a sibling shares the execution units and first caches of a real-time CPU; no core may be split between owners",
    ),
    host(
        "/sys/devices/virtual/workqueue/cpumask",
        "unbound work of the kernel runs on housekeeping CPUs",
    ),
    host(
        "/sys/devices/virtual/workqueue/{queue}/cpumask",
        "a workqueue with its own mask (writeback, disk drivers) runs on housekeeping CPUs",
    ),
    host(
        "/sys/devices/system/machinecheck/machinecheck{real-time-cpu}/ignore_ce",
        "polling for corrected errors interrupts every CPU",
    ),
    host(
        "/proc/sys/kernel/sched_rt_runtime_us",
        "throttling stops a busy virtual CPU for a part of each second",
    ),
    host(
        "/proc/sys/vm/stat_interval",
        "the refresh of memory statistics runs on every CPU",
    ),
    host(
        "/proc/sys/kernel/numa_balancing",
        "balancing unmaps pages to find out which CPU uses them",
    ),
    host(
        "/proc/sys/kernel/nmi_watchdog",
        "the watchdog's interrupts cannot be masked",
    ),
    own(
        "lockup-watchdog",
        "/proc/sys/kernel/soft_watchdog",
        Expected::Number(0),
        "the watchdog of soft lock-ups (`nosoftlockup` on the kernel command line) wakes a thread on every CPU",
    ),
    host(
        "/proc/sys/kernel/hung_task_timeout_secs",
        "the search for hung tasks visits every task; a guest that is stopped deliberately counts as hung",
    ),
    own(
        "rcu-thread-priority",
        "/sys/module/rcutree/parameters/kthread_prio",
        Expected::AtLeast(2),
        "the RCU threads rcuc and rcub must preempt a busy virtual CPU, otherwise memory is never freed; set at boot only",
    ),
    own(
        "processor-idle-limit",
        "/sys/module/processor/parameters/max_cstate",
        Expected::Informational,
        "1 disables deep ACPI idle states from boot on; the setting idle-states has the states enabled now",
    ),
    own(
        "intel-idle-limit",
        "/sys/module/intel_idle/parameters/max_cstate",
        Expected::Informational,
        "0 or 1 disables deep idle states of the processor from boot on; the setting idle-states has the states enabled now",
    ),
    host(
        "/proc/sys/kernel/timer_migration",
        "1 moves timers of idle CPUs to busy ones, which adds wakeups",
    ),
    host(
        "/proc/sys/vm/swappiness",
        "a low value reclaims page cache before memory that is not locked",
    ),
    host(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "the kernel splits and merges pages while the guest runs",
    ),
    host(
        "/sys/kernel/mm/ksm/run",
        "merged pages are copied at the next write",
    ),
    kvm(
        "/sys/module/kvm/parameters/kvmclock_periodic_sync",
        "the update of the paravirtual clock interrupts all virtual CPUs every 300 s",
    ),
    kvm(
        "/sys/module/kvm/parameters/halt_poll_ns",
        "a halted virtual CPU that polls keeps its CPU busy, and its wakeups look faster than they are",
    ),
    kvm(
        "/sys/module/kvm/parameters/nx_huge_pages",
        "huge pages are split and reclaimed by a thread while the guest waits",
    ),
    kvm(
        "/sys/module/kvm_intel/parameters/ple_gap",
        "an exit of a spinning guest helps only if CPUs are shared",
    ),
    kvm(
        "/sys/module/kvm_amd/parameters/pause_filter_count",
        "an exit of a spinning guest helps only if CPUs are shared",
    ),
    kvm(
        "/sys/module/kvm/parameters/lapic_timer_advance_ns",
        "-1 adapts the advance automatically",
    ),
    kvm(
        "/sys/module/kvm/parameters/lapic_timer_advance",
        "Y adapts the advance automatically",
    ),
    kvm(
        "/sys/module/kvm/parameters/pi_inject_timer",
        "posts timer interrupts from a housekeeping CPU if the processor supports it",
    ),
    kvm(
        "/sys/module/kvm_amd/parameters/avic",
        "delivers interrupts without an exit if the processor supports it",
    ),
    kvm(
        "/sys/module/kvm_intel/parameters/enable_apicv",
        "delivers interrupts without an exit if the processor supports it",
    ),
];

/// Splits a path at its template part, such as `{queue}`: the text before, the name, the text
/// after.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = path.split_once('{')?;
    let (name, after) = rest.split_once('}')?;
    Some((before, name, after))
}

impl HostFile {
    /// Returns the expected value of the file and its format, from the catalogue.
    pub fn wanted(&self) -> (Expected, Format) {
        if let Some((_, expected)) = self.own {
            return (expected, Format::Text);
        }
        match self.in_catalogue() {
            Some((knob, format)) => (knob.expected, format),
            None => (Expected::Informational, Format::Text),
        }
    }

    /// Returns the id of the rule that expects the file's value.
    #[must_use]
    pub fn rule(&self) -> &'static str {
        match self.own {
            Some((rule, _)) => rule,
            None => self.in_catalogue().map_or("", |(knob, _)| knob.name),
        }
    }

    fn in_catalogue(&self) -> Option<(&'static crate::Knob, Format)> {
        crate::all().find_map(|knob| match knob.location {
            Location::File(format, paths) if paths.contains(&self.path) => Some((knob, format)),
            _ => None,
        })
    }

    /// Returns whether it matters on a machine with this number of memory nodes.
    pub fn applies(&self, nodes: usize) -> bool {
        nodes > 1
            || self
                .in_catalogue()
                .is_none_or(|(knob, _)| !knob.applies.contains(&When::SeveralNodes))
    }

    /// Returns the directory of a template with several files, and the text before and after each
    /// name.
    pub fn listed(&self) -> Option<(&'static str, &'static str, &'static str)> {
        let (before, _, after) = parts(self.path)?;
        let (directory, beginning) = before.rsplit_once('/')?;
        Some((directory, beginning, after))
    }

    /// Returns whether a path matches the template, for these real-time CPUs.
    pub fn has(&self, path: &str, is_real_time: impl Fn(u32) -> bool) -> bool {
        let Some((before, name, after)) = parts(self.path) else {
            return path == self.path;
        };
        path.strip_prefix(before)
            .and_then(|rest| rest.strip_suffix(after))
            .is_some_and(|part| name != "real-time-cpu" || part.parse().is_ok_and(is_real_time))
    }

    /// Returns the path for display.
    pub fn name(&self) -> String {
        match parts(self.path) {
            Some((before, _, after)) => format!("{before}*{after}"),
            None => self.path.to_owned(),
        }
    }

    /// Returns the command or change that sets the file; empty if no value is right for every
    /// machine.
    pub fn fix(&self, isolation: &Isolation) -> String {
        let (wanted, format) = self.wanted();
        let Some(value) = to_write(wanted, format, isolation) else {
            return String::new();
        };
        if let Some(name) = self.path.strip_prefix("/proc/sys/") {
            let command = format!("sysctl {}={value}", name.replace('/', "."));
            return command;
        }
        let parameter = self.path.strip_prefix("/sys/module/");
        match parameter.and_then(|rest| rest.split_once("/parameters/")) {
            Some((module, name)) => format!("boot with {module}.{name}={value}"),
            None if self.listed().is_some() => format!("echo {value} | tee {}", self.name()),
            None => format!("echo {value} > {}", self.path),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_an_expected_value() {
        for row in FILES {
            let same = crate::all().filter(
                |knob| matches!(knob.location, Location::File(_, paths) if paths.contains(&row.path)),
            );
            let expected = match row.own {
                None => 1..=1,
                Some(_) => 0..=1,
            };
            assert!(expected.contains(&same.count()), "{}", row.path);
        }
    }
}
