// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads all properties of a machine on which figures depend.

pub(crate) mod allocation;
mod environment;
mod knob_values;
mod power;
pub(crate) mod processes;
mod processor;
#[cfg(test)]
mod tests;
mod topology;
mod virtualisation;

pub(crate) use knob_values::{is_managed, is_of_each_cpu};
pub use knob_values::{read_figure_findings, read_knob_values};
pub(crate) use power::runs_time_sharing_threads;
use rampart_model::{
    ClockSource, Machine, OperatingSystem, PreemptionModel, SystemManagementInterrupts,
};
use rampart_rules::SYSTEM_FILES;
pub(crate) use virtualisation::container;

pub use environment::{kernel_image_version, network_queues, read_environment};

use crate::groups::Hierarchies;
use crate::kernel_config::KernelConfig;
use crate::{MachineRoot, observe, processor_times};

/// Reads all properties of a machine on which figures depend. Never fails: what cannot be read is
/// `None`, empty or unknown.
///
/// The count of firmware interrupts is the current one. The caller adds steal time, which is a
/// difference, and the findings, which depend on the real-time CPUs ([`crate::processor_times`],
/// [`read_figure_findings`]).
#[must_use]
pub fn read_machine(root: &MachineRoot) -> Machine {
    let config = KernelConfig::read(root);
    let hierarchies = root
        .text("proc/self/mountinfo")
        .map(|text| Hierarchies::parse(&text))
        .unwrap_or_default();
    let processor = processor::read(root);
    let mut topology = topology::read(root);
    topology.isolation_sources = observe::isolation(root).sources;
    if !root.is_system() {
        // The CPUs of the process that recorded the machine do not matter.
        topology.allowed = topology.online.clone();
    }
    let command_line = root.line("proc/cmdline").unwrap_or_default();
    let kernel_version = root.line("proc/sys/kernel/version").unwrap_or_default();
    let (idle_driver, idle_states) = power::idle(root, &topology);
    Machine {
        host_name: root.line("proc/sys/kernel/hostname").unwrap_or_default(),
        product: product(root),
        architecture: architecture(root),
        distribution: os_release(root, "PRETTY_NAME"),
        operating_system: read_operating_system(root),
        kernel_release: root.line("proc/sys/kernel/osrelease").unwrap_or_default(),
        preemption: preemption(root, &config, &kernel_version, &command_line),
        tick_rate: config.value("CONFIG_HZ").and_then(|rate| rate.parse().ok()),
        memory: root
            .text("proc/meminfo")
            .and_then(|text| topology::kilobytes(&text, "MemTotal:"))
            .unwrap_or(0),
        clock_source: clock_source(root),
        idle_driver,
        idle_states,
        frequency: power::frequency(root),
        throttling: power::throttling(root, &config, &hierarchies, &command_line),
        system_management_interrupts: SystemManagementInterrupts {
            at_start: root
                .is_system()
                .then(processor_times::read_smi_count)
                .flatten(),
            at_end: None,
        },
        virtualisation: virtualisation::read(root, &processor),
        mitigations: mitigations(root),
        control_groups: hierarchies.word().to_owned(),
        transparent_huge_pages: root
            .line("sys/kernel/mm/transparent_hugepage/enabled")
            .and_then(|text| chosen(&text, '[', ']')),
        microcode: processor
            .microcode
            .or_else(|| root.line("sys/class/dmi/id/bios_version")),
        processor: processor.model,
        kernel_version,
        command_line,
        topology,
        findings: Vec::new(),
    }
}

/// Returns the marked word of a file with a choice, as in `always [madvise] never`.
fn chosen(text: &str, open: char, close: char) -> Option<String> {
    let (_, rest) = text.split_once(open)?;
    Some(rest.split_once(close)?.0.to_owned())
}

fn architecture(root: &MachineRoot) -> String {
    // The file exists from 6.1 on; before, take the architecture of this program.
    root.line("proc/sys/kernel/arch").unwrap_or_else(|| {
        if root.is_system() {
            std::env::consts::ARCH.to_owned()
        } else {
            String::new()
        }
    })
}

fn product(root: &MachineRoot) -> Option<String> {
    let firmware: Vec<String> = ["sys_vendor", "product_name"]
        .iter()
        .filter_map(|file| root.line(&format!("sys/class/dmi/id/{file}")))
        .collect();
    if firmware.is_empty() {
        root.line("proc/device-tree/model")
    } else {
        Some(firmware.join(" "))
    }
}

/// Returns the value of a name in os-release(5), which the system may keep in `/usr/lib` alone.
fn os_release(root: &MachineRoot, name: &str) -> Option<String> {
    let text = root
        .text("etc/os-release")
        .or_else(|| root.text("usr/lib/os-release"))?;
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches(['"', '\'']).to_owned())
}

/// Reads what decides how packages are installed and kernel parameters are set.
#[must_use]
pub fn read_operating_system(root: &MachineRoot) -> OperatingSystem {
    let value = |name: &str| os_release(root, name).unwrap_or_default();
    OperatingSystem {
        id: value("ID"),
        like: value("ID_LIKE")
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        version: value("VERSION_ID"),
        variant: value("VARIANT_ID"),
        files: SYSTEM_FILES
            .iter()
            .filter(|file| root.exists(file.trim_start_matches('/')))
            .map(|file| (*file).to_owned())
            .collect(),
    }
}

fn clock_source(root: &MachineRoot) -> ClockSource {
    let directory = "sys/devices/system/clocksource/clocksource0";
    ClockSource {
        current: root
            .line(&format!("{directory}/current_clocksource"))
            .unwrap_or_default(),
        available: root
            .line(&format!("{directory}/available_clocksource"))
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
    }
}

fn mitigations(root: &MachineRoot) -> Vec<(String, String)> {
    let directory = "sys/devices/system/cpu/vulnerabilities";
    root.names(directory)
        .into_iter()
        .filter_map(|name| {
            let state = root.line(&format!("{directory}/{name}"))?;
            Some((name, state))
        })
        .collect()
}

/// Returns the preemption model, from the most reliable source to the least: the kernel's version
/// text, its current setting, its command line, its configuration.
fn preemption(
    root: &MachineRoot,
    config: &KernelConfig,
    version: &str,
    command_line: &str,
) -> PreemptionModel {
    let named = |word: &str| version.split_whitespace().any(|part| part == word);
    if named("PREEMPT_RT") || root.line("sys/kernel/realtime").as_deref() == Some("1") {
        return PreemptionModel::RealTime;
    }
    let model = |word: &str| match word {
        "none" => Some(PreemptionModel::None),
        "voluntary" => Some(PreemptionModel::Voluntary),
        "full" => Some(PreemptionModel::Full),
        "lazy" => Some(PreemptionModel::Lazy),
        _ => None,
    };
    let built = [
        ("CONFIG_PREEMPT_RT", PreemptionModel::RealTime),
        ("CONFIG_PREEMPT_LAZY", PreemptionModel::Lazy),
        ("CONFIG_PREEMPT", PreemptionModel::Full),
        ("CONFIG_PREEMPT_VOLUNTARY", PreemptionModel::Voluntary),
        ("CONFIG_PREEMPT_NONE", PreemptionModel::None),
    ]
    .into_iter()
    .find(|(option, _)| config.is_set(option) == Some(true))
    .map(|(_, model)| model);
    if named("PREEMPT_DYNAMIC") {
        return root
            .line("sys/kernel/debug/sched/preempt")
            .and_then(|text| model(&chosen(&text, '(', ')')?))
            .or_else(|| {
                command_line
                    .split_whitespace()
                    .filter_map(|word| model(word.strip_prefix("preempt=")?))
                    .next_back()
            })
            .or(built)
            .unwrap_or(PreemptionModel::Dynamic);
    }
    if let Some(built) = built {
        return built;
    }
    if named("PREEMPT_LAZY") {
        PreemptionModel::Lazy
    } else if named("PREEMPT") {
        PreemptionModel::Full
    } else {
        PreemptionModel::Unknown
    }
}
