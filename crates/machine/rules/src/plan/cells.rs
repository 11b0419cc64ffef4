// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a plan with cells requires of a machine; [`crate::cells`] has the rest.

use rampart_model::{BOOT_CPU, DomainProgram, PlanFinding, Severity};

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
