// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host as it runs: firmware, power, files, the kernel's own threads, caches.

use rampart_model::{Accelerator, CpuSet, Nanos, SchedulingPolicy, Severity};

use super::facts::{KERNEL_THREADS, SHALLOW};
use super::table::{FILES, Row, Wanted};
use super::{Knob, Known};

/// The file that limits real-time threads, where it says so.
const THROTTLING: &str = "/proc/sys/kernel/sched_rt_runtime_us";

pub(super) fn power(known: &Known<'_>) -> Vec<Knob> {
    let facts = known.facts;
    let shallow = facts.idle_exit <= SHALLOW;
    let governors = if facts.governors.is_empty() {
        "none".to_owned()
    } else {
        facts.governors.join(", ")
    };
    let mut knobs = vec![
        Knob::new(
            "idle states",
            format!("exit within {SHALLOW} (C1)"),
            format!("exit within {}", facts.idle_exit),
            shallow,
            "a CPU in a deep idle state takes that long to answer an interrupt",
        )
        .weighs(Severity::Warning)
        .mend_by_owner(
            "cpupower idle-set -D 10, or boot with processor.max_cstate=1 intel_idle.max_cstate=0",
        ),
        Knob::new(
            "frequency governors",
            "performance, or no frequency scaling",
            governors,
            facts.governors.iter().all(|name| name == "performance"),
            "a CPU that first has to speed up answers late",
        )
        .weighs(Severity::Warning)
        .mend_by_owner(
            "echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
        ),
        latency_limit(known),
    ];
    if let (Some(before), Some(now)) = (facts.firmware_interrupts, known.firmware_interrupts) {
        let came = now.wrapping_sub(before) & 0xffff_ffff;
        knobs.push(
            Knob::new(
                "firmware interrupts (SMI) since the guest was started",
                "0",
                came.to_string(),
                came == 0,
                "the firmware stops all CPUs, and no kernel sees it",
            )
            .weighs(Severity::Warning)
            .mend_by_owner(
                "switch off in the firmware what makes them: legacy USB, power management, fwupd",
            ),
        );
    }
    knobs
}

/// Power management's own bound (PM QoS): for all CPUs, or for each (Linux document
/// `power/pm_qos_interface.rst`).
fn latency_limit(known: &Known<'_>) -> Knob {
    let (facts, cpus) = (known.facts, known.real_time_cpus());
    let all = match facts.latency_limit {
        // The kernel's own number for that is 2000 s.
        Some(limit) if limit >= Nanos::from_secs(1) => "no limit for all CPUs".to_owned(),
        Some(limit) => format!("{limit} for all CPUs"),
        None => "unknown for all CPUs".to_owned(),
    };
    let held: CpuSet = facts
        .held_awake
        .iter()
        .copied()
        .filter(|cpu| cpus.contains(*cpu))
        .collect();
    let present = if held.is_empty() {
        all
    } else {
        format!("{all}, at most {SHALLOW} for CPUs {held}")
    };
    Knob::new(
        "latency limit of the power management (cpu_dma_latency)",
        format!("{SHALLOW} or less, or no idle state that is deeper"),
        present,
        facts.latency_limit.is_some_and(|limit| limit <= SHALLOW)
            || (!cpus.is_empty() && cpus.is_subset(&held))
            || facts.idle_exit <= SHALLOW,
        "without a limit an idle CPU goes as deep as it can",
    )
    .mend_by_owner(
        "echo n/a > /sys/devices/system/cpu/cpuN/power/pm_qos_resume_latency_us, or hold /dev/cpu_dma_latency open with 0 in it",
    )
}

pub(super) fn files(known: &Known<'_>) -> Vec<Knob> {
    FILES
        .iter()
        .filter(|row| !row.kvm || known.guest.accelerator == Accelerator::Kvm)
        .filter_map(|row| {
            let present = known.facts.files.get(row.path)?;
            Some(file(row, present, &known.real_time_cpus()))
        })
        .collect()
}

fn file(row: &Row, present: &str, cpus: &CpuSet) -> Knob {
    let number = || present.parse::<i64>().ok();
    let satisfied = match row.wanted {
        Wanted::One(values) => values.contains(&present),
        Wanted::Chosen(word) => present.contains(&format!("[{word}]")),
        Wanted::AtLeast(least) => number().is_some_and(|value| value >= least),
        Wanted::AtLeastOrNever(least) => number().is_some_and(|value| value == 0 || value >= least),
        Wanted::Housekeeping => {
            CpuSet::from_mask(present).is_ok_and(|set| set.intersection(cpus).is_empty())
        }
        Wanted::Told => true,
    };
    let wanted = match row.wanted {
        Wanted::One(values) => values.join(" or "),
        Wanted::Chosen(word) => word.to_owned(),
        Wanted::AtLeast(least) => format!("{least} or more"),
        Wanted::AtLeastOrNever(least) => format!("{least} or more, or 0 for never"),
        Wanted::Housekeeping => "the housekeeping CPUs".to_owned(),
        Wanted::Told => "a choice to be made by measuring both".to_owned(),
    };
    // A shield sets this one.
    let applied = matches!(row.wanted, Wanted::Housekeeping) && satisfied;
    Knob::new(row.path, wanted, present, satisfied, row.reason)
        .applied(applied)
        .mend_by_owner(row.mend())
}

/// The kernel's threads of the CPUs must run before the virtual CPU on them, or the virtual CPU,
/// which never gives way, starves them. Nothing of the sort where virtual CPUs take turns with
/// all others.
pub(super) fn kernel_threads(known: &Known<'_>) -> Vec<Knob> {
    let cpus = known.real_time_cpus();
    let virtual_cpu = known
        .guest
        .cpus
        .iter()
        .map(|cpu| priority(cpu.policy))
        .max()
        .unwrap_or(0);
    if virtual_cpu == 0 {
        return Vec::new();
    }
    // Throttled, it stands still for a part of each second, in which they get to run.
    let throttled = known
        .facts
        .files
        .get(THROTTLING)
        .is_some_and(|text| text != "-1");
    let severity = if throttled {
        Severity::Warning
    } else {
        Severity::Problem
    };
    let needed = virtual_cpu.saturating_add(1);
    KERNEL_THREADS
        .iter()
        .filter_map(|prefix| {
            let for_all = *prefix == "rcub/";
            let belongs = |name: &str| {
                name.strip_prefix(prefix).is_some_and(|number| {
                    for_all || number.parse().is_ok_and(|cpu: CpuSet| cpu.is_subset(&cpus))
                })
            };
            let (name, lowest) = known
                .facts
                .kernel_threads
                .iter()
                .filter(|(name, _)| belongs(name))
                .min_by_key(|(_, policy)| priority(*policy))?;
            let mend = if prefix.starts_with("rcu") {
                format!("boot the host with rcutree.kthread_prio={needed} or more")
            } else {
                format!("chrt --fifo --pid {needed} $(pgrep -x {name}), and so for its like")
            };
            Some(
                Knob::new(
                    format!("{prefix}{} of the host", if for_all { "NODE" } else { "CPU" }),
                    format!("fifo:{needed} or more"),
                    format!("{lowest} ({name})"),
                    priority(*lowest) > virtual_cpu,
                    "a thread of the kernel that may not run before a busy virtual CPU is starved by it, except for the real-time throttling's pauses",
                )
                .weighs(severity)
                .mend_by_owner(mend),
            )
        })
        .collect()
}

fn priority(policy: SchedulingPolicy) -> u8 {
    match policy {
        SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) => priority,
        SchedulingPolicy::Deadline { .. } => u8::MAX,
        SchedulingPolicy::Other => 0,
    }
}

/// A part of the last-level cache of their own (Linux document `arch/x86/resctrl.rst`).
pub(super) fn caches(known: &Known<'_>) -> Vec<Knob> {
    let facts = known.facts;
    let present = match (facts.divides_caches, facts.cache_groups) {
        (false, _) => "the processor divides no cache",
        (true, None) => "/sys/fs/resctrl is not mounted",
        (true, Some(0)) => "all CPUs share it",
        (true, Some(_)) => "it is divided",
    };
    let knob = Knob::new(
        "resctrl (cache allocation)",
        "a part of the last-level cache for the real-time CPUs, where the processor can",
        present,
        !facts.divides_caches || facts.cache_groups.is_some_and(|groups| groups > 0),
        "a neighbour that fills a shared cache slows the guest down, whatever wall is between them",
    );
    vec![knob.mend_by_owner(
        "mount -t resctrl resctrl /sys/fs/resctrl, and make a group with these CPUs and an exclusive schemata",
    )]
}
