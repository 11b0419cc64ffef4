// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of the host that are one file each.

/// What a file should hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One of these texts.
    One(&'static [&'static str]),
    /// This word between brackets among others.
    Chosen(&'static str),
    /// A number.
    AtLeast(i64),
    /// A number, or 0 for never.
    AtLeastOrNever(i64),
    /// A mask without the real-time CPUs.
    Housekeeping,
    /// Whatever it is, it is told: there is no right value for all.
    Told,
}

/// One file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    pub(super) path: &'static str,
    pub(super) wanted: Wanted,
    /// Whether it matters with KVM only.
    pub(super) kvm: bool,
    pub(super) reason: &'static str,
}

const fn host(path: &'static str, wanted: Wanted, reason: &'static str) -> Row {
    Row {
        path,
        wanted,
        kvm: false,
        reason,
    }
}

const fn kvm(path: &'static str, wanted: Wanted, reason: &'static str) -> Row {
    Row {
        path,
        wanted,
        kvm: true,
        reason,
    }
}

/// Every file, in the order of the list: firmware, kernel, memory, KVM. One that is not there is
/// no knob of this machine.
pub(super) const FILES: [Row; 27] = [
    host(
        "/sys/devices/system/cpu/smt/active",
        Wanted::One(&["0"]),
        "a sibling shares the execution units and first caches of a real-time CPU",
    ),
    host(
        "/sys/devices/virtual/workqueue/cpumask",
        Wanted::Housekeeping,
        "work of the kernel that may run anywhere runs on housekeeping CPUs",
    ),
    host(
        "/sys/bus/workqueue/devices/writeback/cpumask",
        Wanted::Housekeeping,
        "writing dirty pages back is done on housekeeping CPUs",
    ),
    host(
        "/sys/devices/system/machinecheck/machinecheck0/ignore_ce",
        Wanted::One(&["1"]),
        "polling for corrected errors interrupts every CPU",
    ),
    host(
        "/proc/sys/kernel/sched_rt_runtime_us",
        Wanted::One(&["-1"]),
        "the throttling takes a busy virtual CPU off its CPU for a part of each second",
    ),
    host(
        "/proc/sys/vm/stat_interval",
        Wanted::AtLeast(10),
        "the refresh of memory statistics runs on every CPU",
    ),
    host(
        "/proc/sys/kernel/numa_balancing",
        Wanted::One(&["0"]),
        "the balancing takes pages away to see who uses them",
    ),
    host(
        "/proc/sys/kernel/nmi_watchdog",
        Wanted::One(&["0"]),
        "its interrupts cannot be masked",
    ),
    host(
        "/proc/sys/kernel/soft_watchdog",
        Wanted::One(&["0"]),
        "the watchdog of soft lock-ups (`nosoftlockup` on the boot line) wakes a thread on every CPU",
    ),
    host(
        "/proc/sys/kernel/hung_task_timeout_secs",
        Wanted::AtLeastOrNever(600),
        "the search for hung tasks walks over all of them; a guest that is stopped on purpose is one",
    ),
    host(
        "/sys/module/rcutree/parameters/kthread_prio",
        Wanted::AtLeast(2),
        "RCU's threads (rcuc, rcub) must run before a busy virtual CPU, or memory is never given back; only at boot",
    ),
    host(
        "/sys/module/processor/parameters/max_cstate",
        Wanted::Told,
        "1 keeps ACPI's deep idle states out from boot on; what is on now stands with the idle states",
    ),
    host(
        "/sys/module/intel_idle/parameters/max_cstate",
        Wanted::Told,
        "0 or 1 keeps the processor's deep idle states out from boot on; what is on now stands with the idle states",
    ),
    host(
        "/proc/sys/kernel/timer_migration",
        Wanted::Told,
        "1 moves stale timers off the CPUs, at the price of some wakeups",
    ),
    host(
        "/proc/sys/vm/swappiness",
        Wanted::Told,
        "matters for what is not locked",
    ),
    host(
        "/sys/kernel/mm/transparent_hugepage/enabled",
        Wanted::Chosen("never"),
        "pages are split and joined behind the guest's back",
    ),
    host(
        "/sys/kernel/mm/ksm/run",
        Wanted::One(&["0", "2"]),
        "merged pages are copied at the next write",
    ),
    kvm(
        "/sys/module/kvm/parameters/kvmclock_periodic_sync",
        Wanted::One(&["N", "0"]),
        "the update of the paravirtual clock interrupts all virtual CPUs every 300 s",
    ),
    kvm(
        "/sys/module/kvm/parameters/halt_poll_ns",
        Wanted::One(&["0"]),
        "a halted virtual CPU that polls keeps its CPU from everybody else and hides in the figures",
    ),
    kvm(
        "/sys/module/kvm/parameters/nx_huge_pages",
        Wanted::One(&["off", "never", "N"]),
        "huge pages are split and reclaimed by a thread while the guest waits",
    ),
    kvm(
        "/sys/module/kvm_intel/parameters/ple_gap",
        Wanted::One(&["0"]),
        "leaving the guest because it spins helps only where CPUs are shared",
    ),
    kvm(
        "/sys/module/kvm_amd/parameters/pause_filter_count",
        Wanted::One(&["0"]),
        "leaving the guest because it spins helps only where CPUs are shared",
    ),
    kvm(
        "/sys/module/kvm/parameters/lapic_timer_advance_ns",
        Wanted::Told,
        "-1 adapts by itself",
    ),
    kvm(
        "/sys/module/kvm/parameters/lapic_timer_advance",
        Wanted::Told,
        "Y adapts by itself",
    ),
    kvm(
        "/sys/module/kvm/parameters/pi_inject_timer",
        Wanted::Told,
        "posts timers from a housekeeping CPU, where the processor can",
    ),
    kvm(
        "/sys/module/kvm_amd/parameters/avic",
        Wanted::Told,
        "interrupts without an exit, where the processor can",
    ),
    kvm(
        "/sys/module/kvm_intel/parameters/enable_apicv",
        Wanted::Told,
        "interrupts without an exit, where the processor can",
    ),
];

impl Row {
    /// The value that would do, as a person would write it; none where there is no right one.
    pub(super) fn value(&self) -> Option<String> {
        match self.wanted {
            Wanted::One(values) => values.first().map(|value| (*value).to_owned()),
            Wanted::Chosen(word) => Some(word.to_owned()),
            Wanted::AtLeast(least) | Wanted::AtLeastOrNever(least) => Some(least.to_string()),
            Wanted::Housekeeping => Some("the mask of the housekeeping CPUs".to_owned()),
            Wanted::Told => None,
        }
    }

    /// The command or change that sets the file; nothing where there is no right value.
    pub(super) fn mend(&self) -> String {
        let Some(value) = self.value() else {
            return String::new();
        };
        if let Some(name) = self.path.strip_prefix("/proc/sys/") {
            return format!("sysctl {}={value}", name.replace('/', "."));
        }
        let parameter = self.path.strip_prefix("/sys/module/");
        match parameter.and_then(|rest| rest.split_once("/parameters/")) {
            Some((module, name)) => format!("boot with {module}.{name}={value}"),
            None if self.path.ends_with("/smt/active") => {
                "echo off > /sys/devices/system/cpu/smt/control".to_owned()
            }
            None => format!("echo {value} > {}", self.path),
        }
    }
}
