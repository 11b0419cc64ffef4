// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of a guest's host: firmware, power, files, kernel threads, caches.

use crate::{Expected, Isolation, expected_text, satisfies};
use rampart_model::{Accelerator, CpuId, CpuSet, Nanos, SchedulingPolicy, VitalThread};

use super::files::{FILES, HostFile, THROTTLING};
use super::{GuestSubject, SHALLOW, Setting};

pub(super) fn power(known: &GuestSubject<'_>) -> Vec<Setting> {
    let facts = known.facts;
    let limit = latency_limited(known);
    let exit = format!("exit within {}", facts.idle_exit);
    let governors = if facts.governors.is_empty() {
        "none".to_owned()
    } else {
        facts.governors.join(", ")
    };
    let mut knobs = vec![
        Setting::new(
            "idle-states",
            "idle states",
            format!("exit within {SHALLOW} (C1)"),
            match &limit {
                Some(limit) => format!("{exit}, but {limit}"),
                None => exit,
            },
            facts.idle_exit <= SHALLOW || limit.is_some(),
            "an interrupt waits until the CPU has left its idle state",
        )
        .fix("cpupower idle-set -D 10"),
        Setting::new(
            "governor",
            "frequency governors",
            "performance, or no frequency scaling",
            governors,
            facts.governors.iter().all(|name| name == "performance"),
            "a CPU at a low frequency responds late until its frequency rises",
        )
        .fix("echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"),
        latency_limit(known),
    ];
    if let (Some(before), Some(now)) = (facts.firmware_interrupts, known.firmware_interrupts) {
        let count = now.wrapping_sub(before) & 0xffff_ffff;
        knobs.push(
            Setting::new(
                "guest-firmware-interrupts",
                "firmware interrupts (SMI) since the guest was started",
                "0",
                count.to_string(),
                count == 0,
                "the firmware stops all CPUs, and the kernel cannot observe it",
            )
            .fix("disable legacy USB and power management in the firmware's setup"),
        );
    }
    knobs
}

/// Returns the real-time CPUs whose own file limits the exit latency.
fn cpus_with_latency_limit(known: &GuestSubject<'_>) -> CpuSet {
    let cpus = known.real_time_cpus();
    let limited = known.facts.held_awake.iter().copied();
    limited.filter(|cpu| cpus.contains(*cpu)).collect()
}

/// Returns the limit that keeps the real-time CPUs out of deep idle states; `None` if there is
/// none.
fn latency_limited(known: &GuestSubject<'_>) -> Option<String> {
    let cpus = known.real_time_cpus();
    if known
        .facts
        .latency_limit
        .is_some_and(|limit| limit <= SHALLOW)
    {
        return Some(format!("all CPUs are limited to {SHALLOW}"));
    }
    (!cpus.is_empty() && cpus.is_subset(&cpus_with_latency_limit(known)))
        .then(|| format!("the real-time CPUs are limited to {SHALLOW}"))
}

/// Returns the PM QoS latency limit for all CPUs or for each (Linux document
/// `power/pm_qos_interface.rst`).
fn latency_limit(known: &GuestSubject<'_>) -> Setting {
    let facts = known.facts;
    let all = match facts.latency_limit {
        // The kernel's value for no limit is 2000 s.
        Some(limit) if limit >= Nanos::from_secs(1) => "no limit for all CPUs".to_owned(),
        Some(limit) => format!("{limit} for all CPUs"),
        None => "unknown for all CPUs".to_owned(),
    };
    let limited = cpus_with_latency_limit(known);
    let present = if limited.is_empty() {
        all
    } else {
        format!("{all}, at most {SHALLOW} for CPUs {limited}")
    };
    Setting::new(
        "idle-states",
        "latency limit of the power management (cpu_dma_latency)",
        format!("{SHALLOW} or less, or no idle state that is deeper"),
        present,
        latency_limited(known).is_some() || facts.idle_exit <= SHALLOW,
        "without a limit an idle CPU enters the deepest idle state",
    )
    .fix("echo n/a | tee /sys/devices/system/cpu/cpu[0-9]*/power/pm_qos_resume_latency_us")
}

pub(super) fn files(known: &GuestSubject<'_>) -> Vec<Setting> {
    let isolation = Isolation {
        real_time: known.real_time_cpus(),
        housekeeping: known.guest.housekeeping.clone(),
        has_guests: true,
        ..Isolation::default()
    };
    FILES
        .iter()
        .filter(|row| !row.kvm || known.guest.accelerator == Accelerator::Kvm)
        .filter(|row| row.applies(known.facts.nodes))
        .filter_map(|row| file(row, known, &isolation))
        .collect()
}

/// Returns one setting; `None` if none of its files exists.
fn file(row: &HostFile, known: &GuestSubject<'_>, isolation: &Isolation) -> Option<Setting> {
    let is_real_time = |cpu| isolation.real_time.contains(CpuId(cpu));
    let files: Vec<(&str, &str)> = known
        .facts
        .files
        .iter()
        .map(|(path, text)| (path.as_str(), text.as_str()))
        .filter(|(path, _)| row.has(path, is_real_time))
        .collect();
    let (wanted, format) = row.wanted();
    let wrong: Vec<String> = files
        .iter()
        .filter(|(_, text)| {
            wanted != Expected::Informational
                && satisfies(wanted, format, text, isolation) != Some(true)
        })
        .map(|(path, text)| format!("{path} is {text}"))
        .collect();
    let first = files.first()?.1;
    let satisfied = wrong.is_empty();
    let present = match wrong.as_slice() {
        _ if row.listed().is_none() => first.to_owned(),
        [] => format!("as expected in {}", files.len()),
        [first] => first.clone(),
        [first, ..] => format!(
            "{first}; {} of {} are not as expected",
            wrong.len(),
            files.len()
        ),
    };
    // A shield sets these files.
    let applied = wanted == Expected::NoRealTime && satisfied;
    Some(
        Setting::new(
            row.rule(),
            row.name(),
            expected_text(wanted, Some(isolation)),
            present,
            satisfied,
            row.reason,
        )
        .applied(applied)
        .fix(row.fix(isolation)),
    )
}

/// Judges the kernel threads of the CPUs: they must have a higher priority than the virtual CPU,
/// which otherwise starves them. Empty for time-sharing virtual CPUs.
pub(super) fn kernel_threads(known: &GuestSubject<'_>) -> Vec<Setting> {
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
    // With throttling the virtual CPU stops for a part of each second, in which they run.
    let throttled = known
        .facts
        .files
        .get(THROTTLING)
        .is_some_and(|text| text != "-1");
    let needed = virtual_cpu.saturating_add(1);
    VitalThread::ALL
        .into_iter()
        .filter_map(|kind| {
            let prefix = kind.prefix;
            let belongs = |name: &str| {
                name.strip_prefix(prefix).is_some_and(|number| {
                    !kind.is_bound()
                        || number.parse().is_ok_and(|cpu: CpuSet| cpu.is_subset(&cpus))
                })
            };
            let (name, lowest) = known
                .facts
                .kernel_threads
                .iter()
                .filter(|(name, _)| belongs(name))
                .min_by_key(|(_, policy)| priority(*policy))?;
            let fix = if prefix.starts_with("rcu") {
                format!("boot the host with rcutree.kthread_prio={needed} or more")
            } else {
                format!("for t in $(pgrep -x {name}); do chrt --fifo --pid {needed} $t; done")
            };
            Some(
                Setting::new(
                    if throttled { kind.knob } else { "guest-starves-kernel-threads" },
                    format!("{prefix}{} of the host", if kind.is_bound() { "CPU" } else { "NODE" }),
                    format!("fifo:{needed} or more"),
                    format!("{lowest} ({name})"),
                    priority(*lowest) > virtual_cpu,
                    "a busy virtual CPU starves kernel threads of lower priority, except while real-time throttling stops it",
                )
                .fix(fix),
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

/// Judges whether the CPUs have a dedicated part of the last-level cache (Linux document
/// `arch/x86/resctrl.rst`).
pub(super) fn caches(known: &GuestSubject<'_>) -> Vec<Setting> {
    let facts = known.facts;
    let present = match (facts.divides_caches, facts.cache_groups) {
        (false, _) => "the processor cannot divide caches",
        (true, None) => "/sys/fs/resctrl is not mounted",
        (true, Some(0)) => "shared by all CPUs",
        (true, Some(_)) => "divided",
    };
    let knob = Setting::new(
        "guest-cache",
        "resctrl (cache allocation)",
        "a part of the last-level cache for the real-time CPUs if the processor supports it",
        present,
        !facts.divides_caches || facts.cache_groups.is_some_and(|groups| groups > 0),
        "a co-located workload that fills the shared cache slows the guest down",
    );
    vec![
        knob.fix(
            "write cache = { ways = 2, exclusive = true } for the domain in a plan, and apply it",
        ),
    ]
}
