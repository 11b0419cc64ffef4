// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about the processor, its environment and its clocks.

use rampart_model::{Machine, Nanos};

use super::Judgement;
use crate::{Reading, Readings};

pub(super) fn emulation(machine: &Machine) -> Judgement {
    let name = machine
        .virtualisation
        .hypervisor
        .as_deref()
        .unwrap_or("no hypervisor");
    if machine.virtualisation.emulated {
        Judgement::is(format!("{name}, emulated in software"), false)
    } else {
        Judgement::is(format!("{name}, not emulated"), true)
    }
}

pub(super) fn hypervisor(machine: &Machine) -> Judgement {
    match machine.virtualisation.hypervisor.as_deref() {
        Some(name) => Judgement::is(format!("a guest of {name}"), false),
        None => Judgement::is("hardware", true),
    }
}

pub(super) fn container(machine: &Machine) -> Judgement {
    match machine.virtualisation.container.as_deref() {
        Some(name) => Judgement::is(name, false),
        None => Judgement::is("the host", true),
    }
}

pub(super) fn firmware_interrupts(machine: &Machine) -> Judgement {
    match machine.system_management_interrupts.at_start {
        Some(count) => Judgement::informational(format!("{count} since the machine started")),
        None => Judgement::Unread(crate::Unread::ModelSpecificRegisters),
    }
}

pub(super) fn clock_source(machine: &Machine) -> Judgement {
    let expected = match machine.architecture.as_str() {
        "x86_64" => "tsc",
        "aarch64" => "arch_sys_counter",
        other => return Judgement::not_applicable(format!("no rule for {other}")),
    };
    let current = machine.clock_source.current.as_str();
    if current.is_empty() {
        return Judgement::not_applicable("the kernel does not report its clock source");
    }
    Judgement::is(current, current == expected)
}

pub(super) fn constant_counter(readings: &Readings) -> Judgement {
    if readings.flags.is_empty() {
        return Judgement::not_applicable("the processor does not report its features");
    }
    let missing: Vec<&str> = ["constant_tsc", "nonstop_tsc"]
        .into_iter()
        .filter(|flag| !readings.flags.contains(*flag))
        .collect();
    if missing.is_empty() {
        Judgement::is("constant_tsc and nonstop_tsc", true)
    } else {
        Judgement::is(format!("without {}", missing.join(" and ")), false)
    }
}

pub(super) fn cache_allocation(readings: &Readings) -> Judgement {
    let able: Vec<&str> = [
        ("cat_l3", "L3"),
        ("cat_l2", "L2"),
        ("mba", "memory bandwidth"),
    ]
    .into_iter()
    .filter(|(flag, _)| readings.flags.contains(*flag))
    .map(|(_, what)| what)
    .collect();
    let mounted = readings
        .files
        .keys()
        .any(|template| template.starts_with("/sys/fs/resctrl/"));
    match (able.is_empty(), mounted) {
        (_, true) => Judgement::is("mounted", true),
        (false, false) => Judgement::is(
            format!("not mounted; the processor divides {}", able.join(", ")),
            false,
        ),
        (true, false) => {
            Judgement::not_applicable("the processor does not report cache allocation")
        }
    }
}

pub(super) fn frequency_range(machine: &Machine) -> Judgement {
    match machine.frequency.range_khz {
        Some((low, high)) => {
            Judgement::informational(format!("{} to {} MHz", low / 1000, high / 1000))
        }
        None => Judgement::not_applicable("the kernel does not control frequencies"),
    }
}

pub(super) fn iommu(readings: &Readings) -> Judgement {
    let groups = readings.of("/sys/kernel/iommu_groups/{group}/type");
    let through = groups
        .iter()
        .filter(|group| matches!(&group.reading, Reading::Value(kind) if kind == "identity"))
        .count();
    match (
        readings.of("/sys/class/iommu/{unit}/uevent").len(),
        groups.len(),
    ) {
        (0, 0) => Judgement::is("none in use", false),
        (_, 0) => Judgement::is("on, without a device behind it", false),
        (_, all) if through == all => {
            Judgement::is(format!("{all} groups, all passed through"), true)
        }
        (_, all) => Judgement::is(format!("{through} of {all} groups passed through"), false),
    }
}

/// Idle states with a longer wakeup time affect measured latencies: PREEMPT_RT on hardware without
/// load wakes a thread in about 10 µs.
pub(crate) const DEEP: Nanos = Nanos::from_micros(10);
