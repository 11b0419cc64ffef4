// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a real-time engineer would change about a machine.

use rampart_model::{CpuSet, Finding, Machine, Nanos, PreemptionModel, Severity};

use crate::MachineRoot;

/// A state that takes longer to wake from than this shows in a wakeup latency: PREEMPT_RT on
/// quiet hardware wakes a thread in some 10 µs.
const DEEP: Nanos = Nanos::from_micros(10);

/// Programs that move interrupts or tune the machine while it is measured.
const MANAGERS: [(&str, &str, &str); 3] = [
    (
        "irqbalance",
        "moves interrupts between CPUs while they are measured",
        "",
    ),
    (
        "tuned",
        "tunes the machine, and may undo what Rampart sets",
        "",
    ),
    (
        "stalld",
        "boosts starving threads above real-time ones",
        ", or keep it where a thread that never sleeps would starve the kernel, and its boosts in the figures",
    ),
];

/// Whether a finding of [`Machine::findings`] tells of a program that tunes the machine, or moves
/// its interrupts and threads, while it runs.
#[must_use]
pub fn is_of_manager(finding: &Finding) -> bool {
    MANAGERS.iter().any(|manager| manager.0 == finding.location)
}

/// Everything worth changing, the gravest first.
pub(super) fn of(root: &MachineRoot, machine: &Machine) -> Vec<Finding> {
    let mut findings: Vec<Finding> = [
        virtualised(machine),
        preemption(machine),
        clock(machine),
        one_cpu(machine),
        siblings(machine),
        governor(machine),
        idle(machine),
        throttling(machine),
        fair_server(machine),
        group_scheduling(machine),
        isolation(machine),
        tick(machine),
        mixed_cores(machine),
        numa_balancing(root, machine),
        huge_pages(machine),
        watchdog(root),
        control_groups(machine),
        container(machine),
    ]
    .into_iter()
    .flatten()
    .chain(managers(root))
    .collect();
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

fn finding(severity: Severity, location: &str, what: &str) -> Finding {
    Finding::new(severity, location, what)
}

fn virtualised(machine: &Machine) -> Option<Finding> {
    let name = machine.virtualisation.hypervisor.as_deref()?;
    Some(if machine.virtualisation.emulated {
        finding(
            Severity::Error,
            "machine",
            "it is emulated in software, so its times say nothing about hardware",
        )
        .values(format!("{name}, emulated"), "hardware")
        .fix("measure on the hardware itself; compare structure, not times, here")
    } else {
        finding(
            Severity::Warning,
            "machine",
            "it is a guest, so every figure includes what its host took from it (steal)",
        )
        .values(
            name,
            "hardware, or a host with CPUs set aside for this guest",
        )
        .fix("measure on the hardware itself, or bind this guest's CPUs on its host")
    })
}

fn preemption(machine: &Machine) -> Option<Finding> {
    let present = match machine.preemption {
        PreemptionModel::RealTime => return None,
        PreemptionModel::None => "none",
        PreemptionModel::Voluntary => "voluntary",
        PreemptionModel::Full => "full",
        PreemptionModel::Lazy => "lazy",
        PreemptionModel::Dynamic => "dynamic, choice not readable",
        PreemptionModel::Unknown => "unknown",
    };
    let package = match machine.architecture.as_str() {
        "aarch64" => "linux-image-rt-arm64",
        _ => "linux-image-rt-amd64",
    };
    Some(
        finding(
            Severity::Warning,
            "kernel",
            "it is not built for real time, so no latency is bounded",
        )
        .values(present, "PREEMPT_RT")
        .fix(format!("apt install {package} (Debian), and restart")),
    )
}

fn clock(machine: &Machine) -> Option<Finding> {
    let needed = match machine.architecture.as_str() {
        "x86_64" => "tsc",
        "aarch64" => "arch_sys_counter",
        _ => return None,
    };
    let clock = &machine.clock_source;
    if clock.current == needed || clock.current.is_empty() {
        return None;
    }
    let file = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let fix = if clock.available.iter().any(|name| name == needed) {
        format!("echo {needed} > {file}")
    } else {
        "boot with `tsc=reliable` if the firmware keeps the counters of all CPUs in step".to_owned()
    };
    Some(
        finding(
            Severity::Warning,
            file,
            "reading the time is slow or needs the hypervisor, which is part of every sample",
        )
        .values(&clock.current, needed)
        .fix(fix),
    )
}

fn one_cpu(machine: &Machine) -> Option<Finding> {
    (machine.topology.online.len() == 1).then(|| {
        finding(
            Severity::Warning,
            "/sys/devices/system/cpu/online",
            "with one CPU nothing can be shielded: whatever runs shares it with the meter",
        )
        .values("1 CPU", "at least 2")
        .fix("give the machine a second CPU")
    })
}

fn siblings(machine: &Machine) -> Option<Finding> {
    let shared: CpuSet = machine
        .topology
        .cpus
        .iter()
        .filter(|cpu| cpu.siblings.intersection(&machine.topology.online).len() > 1)
        .map(|cpu| cpu.id)
        .collect();
    (!shared.is_empty()).then(|| {
        finding(
            Severity::Warning,
            "/sys/devices/system/cpu/smt/control",
            "threads of one core share its caches and execution units, whatever wall is between them",
        )
        .values(format!("siblings online among {}", shared.named()), "one CPU a core")
        .fix("echo off > /sys/devices/system/cpu/smt/control, or leave the siblings of real-time CPUs idle")
    })
}

fn governor(machine: &Machine) -> Option<Finding> {
    let slow: Vec<String> = machine
        .frequency
        .governors
        .iter()
        .filter(|(name, _)| name != "performance")
        .map(|(name, cpus)| format!("{name} on {}", cpus.named()))
        .collect();
    (!slow.is_empty()).then(|| {
        finding(
            Severity::Warning,
            "/sys/devices/system/cpu/cpufreq",
            "CPUs change their speed with the load, so an idle machine measures slower than a busy one",
        )
        .values(slow.join(", "), "performance")
        .fix("echo performance | tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor")
    })
}

fn idle(machine: &Machine) -> Option<Finding> {
    let deep: Vec<String> = machine
        .idle_states
        .iter()
        .filter(|state| !state.disabled && state.exit_latency > DEEP)
        .map(|state| format!("{} {}", state.name, state.exit_latency))
        .collect();
    (!deep.is_empty()).then(|| {
        finding(
            Severity::Warning,
            "/sys/devices/system/cpu/cpu*/cpuidle",
            "idle CPUs sleep so deeply that waking them takes longer than a real-time kernel",
        )
        .values(deep.join(", "), format!("no state over {DEEP}"))
        .fix("cpupower idle-set -D 10, or hold /dev/cpu_dma_latency at 0")
    })
}

fn throttling(machine: &Machine) -> Option<Finding> {
    let throttling = &machine.throttling;
    let (runtime, period) = (throttling.runtime?, throttling.period?);
    (runtime < period).then(|| {
        finding(
            Severity::Warning,
            "/proc/sys/kernel/sched_rt_runtime_us",
            "real-time threads that never sleep are stopped for the rest of each period",
        )
        .values(format!("{runtime} of {period}"), "-1 (no limit)")
        .fix("sysctl kernel.sched_rt_runtime_us=-1, once no real-time thread can run away")
    })
}

fn fair_server(machine: &Machine) -> Option<Finding> {
    let (runtime, period) = machine.throttling.fair_server?;
    (runtime > Nanos::ZERO).then(|| {
        finding(
            Severity::Note,
            "/sys/kernel/debug/sched/fair_server",
            "waiting ordinary threads take this much from real-time threads that never sleep",
        )
        .values(format!("{runtime} of {period}"), "0 on real-time CPUs")
        .fix("echo 0 > /sys/kernel/debug/sched/fair_server/cpuN/runtime")
    })
}

fn group_scheduling(machine: &Machine) -> Option<Finding> {
    (machine.throttling.group_scheduling == Some(true)).then(|| {
        finding(
            Severity::Note,
            "CONFIG_RT_GROUP_SCHED",
            "real-time policies are refused in control groups without a budget of their own, to root too",
        )
        .values("on", "off, or a budget in cpu.rt_runtime_us")
        .fix("Rampart grants its containers a budget; for others: sysctl kernel.sched_rt_runtime_us=-1, or boot with rt_group_sched=0 (from 6.15)")
    })
}

fn isolation(machine: &Machine) -> Option<Finding> {
    let topology = &machine.topology;
    let (isolated, full) = (&topology.isolated, &topology.nohz_full);
    (!full.is_empty() && !isolated.is_empty() && isolated != full).then(|| {
        finding(
            Severity::Warning,
            "/proc/cmdline",
            "the CPUs without balancing and the CPUs without a tick are not the same",
        )
        .values(
            format!("isolcpus={isolated} nohz_full={full}"),
            "the same set",
        )
        .fix("boot with the same list in isolcpus= and nohz_full=")
    })
}

fn tick(machine: &Machine) -> Option<Finding> {
    (machine.topology.nohz_full.is_empty() && machine.topology.online.len() > 1).then(|| {
        finding(
            Severity::Note,
            "/sys/devices/system/cpu/nohz_full",
            "the scheduler's tick interrupts every busy CPU",
        )
        .values("no CPU", "the real-time CPUs")
        .fix("boot with nohz_full=LIST rcu_nocbs=LIST, on a kernel with CONFIG_NO_HZ_FULL")
    })
}

fn mixed_cores(machine: &Machine) -> Option<Finding> {
    let mut capacities: Vec<u32> = machine
        .topology
        .cpus
        .iter()
        .filter_map(|cpu| cpu.capacity)
        .collect();
    capacities.sort_unstable();
    let (low, high) = (*capacities.first()?, *capacities.last()?);
    (low != high).then(|| {
        finding(
            Severity::Note,
            "/sys/devices/system/cpu",
            "cores differ in speed, so only figures of the same kind of core compare",
        )
        .values(
            format!("capacities {low} to {high}"),
            "cores of one kind in a comparison",
        )
        .fix("choose the CPUs of all domains from one kind of core")
    })
}

fn numa_balancing(root: &MachineRoot, machine: &Machine) -> Option<Finding> {
    let file = "/proc/sys/kernel/numa_balancing";
    let present = root.line(&file[1..])?;
    (present != "0" && machine.topology.nodes.len() > 1).then(|| {
        finding(
            Severity::Warning,
            file,
            "the kernel unmaps pages to see who uses them, which is a page fault in a real-time thread",
        )
        .values(present, "0")
        .fix("sysctl kernel.numa_balancing=0")
    })
}

fn huge_pages(machine: &Machine) -> Option<Finding> {
    let present = machine.transparent_huge_pages.as_deref()?;
    (present == "always").then(|| {
        finding(
            Severity::Note,
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "the kernel rearranges memory in the background, with locks and TLB flushes on all CPUs",
        )
        .values(present, "never (or madvise)")
        .fix("echo never > /sys/kernel/mm/transparent_hugepage/enabled")
    })
}

fn watchdog(root: &MachineRoot) -> Option<Finding> {
    let file = "/proc/sys/kernel/nmi_watchdog";
    (root.line(&file[1..]).as_deref() == Some("1")).then(|| {
        finding(
            Severity::Note,
            file,
            "an interrupt that nothing can mask checks every CPU every few seconds",
        )
        .values("1", "0")
        .fix("sysctl kernel.nmi_watchdog=0")
    })
}

fn control_groups(machine: &Machine) -> Option<Finding> {
    let (severity, what) = match machine.control_groups.as_str() {
        "v2" => return None,
        "none" => (
            Severity::Warning,
            "no control groups are mounted, so a shield is affinity alone",
        ),
        _ => (
            Severity::Note,
            "without cgroup v2 a shield is a cpuset, from which tasks are moved one by one",
        ),
    };
    Some(
        finding(severity, "/sys/fs/cgroup", what)
            .values(&machine.control_groups, "v2")
            .fix("boot with systemd.unified_cgroup_hierarchy=1, or mount cgroup2 alone"),
    )
}

fn container(machine: &Machine) -> Option<Finding> {
    let name = machine.virtualisation.container.as_deref()?;
    Some(
        finding(
            Severity::Warning,
            "rampart",
            "it runs in a container itself, where it cannot shield CPUs or see all that disturbs them",
        )
        .values(name, "the host")
        .fix("run rampart on the host; it makes its own containers"),
    )
}

fn managers(root: &MachineRoot) -> Vec<Finding> {
    let running: Vec<String> = root
        .numbered("proc", "")
        .into_iter()
        .filter_map(|process| root.line(&format!("proc/{process}/comm")))
        .collect();
    MANAGERS
        .iter()
        .filter(|(name, _, _)| running.iter().any(|process| process == name))
        .map(|(name, what, unless)| {
            finding(Severity::Warning, name, &format!("it {what}"))
                .values("running", "stopped while measuring")
                .fix(format!("systemctl stop {name}{unless}"))
        })
        .collect()
}
