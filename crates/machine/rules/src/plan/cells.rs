// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan with cells requires of a machine; [`crate::cells`] has the rest.

use rampart_model::{BOOT_CPU, DomainProgram, PlanFinding, Severity};

use super::context::DomainContext;
use super::{PlanContext, REQUIRED};
use crate::Rule;

/// The architecture of a machine with cells, and the CPUs that they may have.
pub const CELL_MACHINE: Rule = Rule {
    id: "cell-machine",
    severity: Severity::Error,
    title: "A machine with cells is an arm64 machine, and no cell has CPU 0",
    reason: "The hypervisor is built for arm64 with a GICv2 or GICv3, and Linux cannot release the CPU that it booted on.",
    source: "Rampart: docs/hypervisor.md",
    ..REQUIRED
};

/// The sum of the shares of the cache.
pub(super) const CELL_CACHE_SHARE: Rule = Rule {
    id: "cell-cache-share",
    severity: Severity::Error,
    title: "The cells' shares of the last-level cache are at most 100 percent",
    reason: "Each page colour of the cache belongs to one cell.",
    source: "Rampart: docs/hypervisor.md",
    ..REQUIRED
};

/// Cells without a share next to cells with one.
pub(super) const CELL_WITHOUT_CACHE_SHARE: Rule = Rule {
    id: "cell-without-cache-share",
    severity: Severity::Warning,
    title: "If a cell has a share of the last-level cache, all cells have one",
    reason: "A cell without a share has memory of all colours and takes lines of the cache from the others.",
    source: "Rampart: docs/hypervisor.md",
    waivable: true,
    ..REQUIRED
};

/// PCI functions of cells that Linux uses.
pub(super) const CELL_FUNCTION_DRIVER: Rule = Rule {
    id: "cell-function-driver",
    severity: Severity::Error,
    title: "No driver of Linux is bound to a PCI function of a cell",
    reason: "A function has one owner; a cell is not created with a function that Linux uses.",
    source: "Rampart: docs/hypervisor.md",
    ..REQUIRED
};

pub(super) fn function_drivers(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let drivers = &context.environment.device_drivers;
    let cells = context
        .domains()
        .filter(|domain| domain.planned.kind.program() == DomainProgram::Image);
    let mut findings = Vec::new();
    for domain in cells {
        for device in &domain.planned.devices {
            let mut drivers = drivers.iter();
            let Some((address, driver)) =
                drivers.find(|(address, _)| address.eq_ignore_ascii_case(device))
            else {
                continue;
            };
            findings.push(
                CELL_FUNCTION_DRIVER
                    .of_domain(domain.planned, format!("Linux uses {address}"))
                    .values(format!("driver {driver}"), "no driver")
                    .fix(format!(
                        "echo {address} >/sys/bus/pci/drivers/{driver}/unbind"
                    )),
            );
        }
    }
    findings
}

pub(super) fn cache_shares(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let share = |domain: &DomainContext<'_>| {
        let options = domain.planned.cell.as_ref();
        options.and_then(|options| options.cache_percent)
    };
    let cells: Vec<DomainContext<'_>> = context
        .domains()
        .filter(|domain| domain.planned.kind.program() == DomainProgram::Image)
        .collect();
    let Some(last) = cells.iter().rfind(|cell| share(cell).is_some()) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let sum: u64 = cells.iter().filter_map(share).map(u64::from).sum();
    if sum > 100 {
        findings.push(
            CELL_CACHE_SHARE
                .of_domain(last.planned, "the colours of the shares overlap")
                .values(format!("{sum} %"), "100 % or less of all cells together")
                .fix("lower the cells' cache-percent")
                .impossible(),
        );
    }
    let without = cells.iter().filter(|cell| share(cell).is_none());
    findings.extend(without.map(|cell| {
        CELL_WITHOUT_CACHE_SHARE
            .of_domain(
                cell.planned,
                "it takes lines of the cache from cells that have a share",
            )
            .values("memory of all colours", "a share")
            .fix("cell = { cache-percent = 25 }")
    }));
    findings
}

pub(super) fn machine(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    let cells = context
        .domains()
        .filter(|domain| domain.planned.kind.program() == DomainProgram::Image);
    for domain in cells {
        if context.machine.architecture != "aarch64" {
            findings.push(
                CELL_MACHINE
                    .of_domain(
                        domain.planned,
                        "cells need an arm64 machine with a GICv2 or GICv3",
                    )
                    .values(context.machine.architecture.clone(), "aarch64")
                    .fix("use such a machine, or the simulated one: --on sim:aarch64")
                    .impossible(),
            );
        }
        if domain.claim.requested.contains(BOOT_CPU) {
            findings.push(
                CELL_MACHINE
                    .of_domain(
                        domain.planned,
                        "Linux cannot release the CPU that it booted on",
                    )
                    .values("CPU 0", "other CPUs")
                    .fix("name other CPUs")
                    .impossible(),
            );
        }
    }
    findings
}
