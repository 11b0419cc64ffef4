// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idle states, frequencies and throttling, which slow a CPU down or take it from threads
//! (Documentation/admin-guide/pm/, Documentation/scheduler/sched-rt-group.rst).

use rampart_model::{CpuId, CpuSet, FrequencyFacts, IdleState, Nanos, ThrottlingFacts, Topology};

use crate::MachineRoot;
use crate::groups::Hierarchies;
use crate::kernel_config::KernelConfig;

const CPUS: &str = "sys/devices/system/cpu";

/// Returns the idle driver and its states.
pub(super) fn idle(root: &MachineRoot, topology: &Topology) -> (Option<String>, Vec<IdleState>) {
    let driver = root
        .line(&format!("{CPUS}/cpuidle/current_driver"))
        .filter(|driver| driver != "none");
    // All CPUs of a kind have the same states: take those of the first CPU, and if cores differ, add
    // those of the others by name.
    let mut states: Vec<IdleState> = Vec::new();
    for cpu in topology.online.iter() {
        let directory = format!("{CPUS}/cpu{cpu}/cpuidle");
        for index in root.numbered(&directory, "state") {
            let state = format!("{directory}/state{index}");
            let Some(name) = root.line(&format!("{state}/name")) else {
                continue;
            };
            let disabled = root.value::<u32>(&format!("{state}/disable")) == Some(1);
            let latency = root
                .value::<u64>(&format!("{state}/latency"))
                .unwrap_or(0)
                .saturating_mul(1_000);
            match states.iter_mut().find(|known| known.name == name) {
                Some(known) => {
                    known.disabled &= disabled;
                    known.exit_latency = known.exit_latency.max(Nanos(latency));
                }
                None => states.push(IdleState {
                    name,
                    exit_latency: Nanos(latency),
                    disabled,
                }),
            }
        }
    }
    (driver, states)
}

/// Reads the frequencies and governors.
pub(super) fn frequency(root: &MachineRoot) -> FrequencyFacts {
    let mut facts = FrequencyFacts::default();
    let directory = format!("{CPUS}/cpufreq");
    for index in root.numbered(&directory, "policy") {
        let policy = format!("{directory}/policy{index}");
        let of = |file: &str| root.line(&format!("{policy}/{file}"));
        facts.driver = facts.driver.or_else(|| of("scaling_driver"));
        let cpus: CpuSet = of("affected_cpus")
            .unwrap_or_else(|| index.to_string())
            .split_whitespace()
            .filter_map(|cpu| cpu.parse().ok().map(CpuId))
            .collect();
        if let Some(governor) = of("scaling_governor") {
            match facts
                .governors
                .iter_mut()
                .find(|(name, _)| *name == governor)
            {
                Some((_, known)) => *known = known.union(&cpus),
                None => facts.governors.push((governor, cpus)),
            }
        }
        let range = |file: &str| root.value::<u64>(&format!("{policy}/{file}"));
        if let (Some(low), Some(high)) = (range("scaling_min_freq"), range("scaling_max_freq")) {
            let (lowest, highest) = facts.range_khz.unwrap_or((low, high));
            facts.range_khz = Some((lowest.min(low), highest.max(high)));
        }
        let boost = root.value::<u32>(&format!("{policy}/boost"));
        facts.boost = facts.boost.or(boost.map(|value| value == 1));
    }
    let no_turbo = root.value::<u32>(&format!("{CPUS}/intel_pstate/no_turbo"));
    let boost = root.value::<u32>(&format!("{directory}/boost"));
    facts.boost = facts
        .boost
        .or(no_turbo.map(|value| value == 0))
        .or(boost.map(|value| value == 1));
    facts
}

/// Reads the limits of the CPU time of real-time threads.
pub(super) fn throttling(
    root: &MachineRoot,
    config: &KernelConfig,
    hierarchies: &Hierarchies,
    command_line: &str,
) -> ThrottlingFacts {
    let (runtime, period) = real_time_limit(root);
    ThrottlingFacts {
        runtime,
        period,
        group_scheduling: group_scheduling(root, config, hierarchies, command_line),
        fair_server: fair_server(root),
    }
}

fn real_time_limit(root: &MachineRoot) -> (Option<Nanos>, Option<Nanos>) {
    let micros = |file: &str| {
        root.value::<i64>(&format!("proc/sys/kernel/{file}"))
            // −1: no limit.
            .and_then(|value| u64::try_from(value).ok())
            .map(|value| Nanos(value.saturating_mul(1_000)))
    };
    (micros("sched_rt_runtime_us"), micros("sched_rt_period_us"))
}

/// Returns whether time-sharing threads run beside a real-time thread that never sleeps: throttling or the fair server
/// lets them. If the fair server cannot be read, a kernel that has it (from 6.12) is assumed to use it.
pub(crate) fn runs_time_sharing_threads(root: &MachineRoot) -> bool {
    let limit = real_time_limit(root);
    let is_throttled = matches!(limit, (Some(runtime), Some(period)) if runtime < period);
    let has_fair_server = match fair_server(root) {
        Some((runtime, _)) => runtime > Nanos::ZERO,
        None => root
            .line("proc/sys/kernel/osrelease")
            .is_some_and(|release| {
                let mut parts = release
                    .split('.')
                    .map(|part| part.parse::<u32>().unwrap_or(0));
                (parts.next(), parts.next()) >= (Some(6), Some(12))
            }),
    };
    is_throttled || has_fair_server
}

fn group_scheduling(
    root: &MachineRoot,
    config: &KernelConfig,
    hierarchies: &Hierarchies,
    command_line: &str,
) -> Option<bool> {
    // The file exists if and only if groups have real-time budgets.
    if let Some(mount) = hierarchies.legacy_with("cpu") {
        let file = mount.join("cpu.rt_runtime_us");
        return Some(root.exists(file.to_string_lossy().trim_start_matches('/')));
    }
    let built = config.is_set("CONFIG_RT_GROUP_SCHED")?;
    let off = config.is_set("CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED") == Some(true);
    let word = |text: &str| command_line.split_whitespace().any(|word| word == text);
    let on = if off {
        word("rt_group_sched=1")
    } else {
        !word("rt_group_sched=0")
    };
    Some(built && on)
}

/// Returns runtime and period of the fair server, in nanoseconds in debugfs (from 6.12).
fn fair_server(root: &MachineRoot) -> Option<(Nanos, Nanos)> {
    let directory = "sys/kernel/debug/sched/fair_server";
    let cpu = *root.numbered(directory, "cpu").first()?;
    let of = |file: &str| {
        root.value(&format!("{directory}/cpu{cpu}/{file}"))
            .map(Nanos)
    };
    of("runtime").zip(of("period"))
}
