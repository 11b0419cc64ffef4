// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What cells need of a machine. The rest (interrupt controller, memory that is kept from Linux,
//! devices) is told by `rampart cell describe` and when the cell is brought up.

use rampart_model::{CpuId, DomainProgram, PlanFinding, Severity};

use super::{Context, Say as _, about};

pub(super) fn machine(context: &Context<'_>) -> Vec<PlanFinding> {
    const RULE: &str = "cell-machine";
    let mut found = Vec::new();
    let cells = context
        .domains()
        .filter(|each| each.planned.kind.program() == DomainProgram::Image);
    for each in cells {
        if context.machine.architecture != "aarch64" {
            let what = "cells are a matter of arm64 machines with a GICv3";
            found.push(
                about(RULE, each.planned, Severity::Error, what)
                    .values(context.machine.architecture.clone(), "aarch64")
                    .fix("take such a machine, or try it on the simulated one: --on sim:aarch64")
                    .impossible(),
            );
        }
        if each.claim.asked.contains(CpuId(0)) {
            let what = "Linux cannot leave the CPU that it was booted on";
            found.push(
                about(RULE, each.planned, Severity::Error, what)
                    .values("CPU 0", "other CPUs")
                    .fix("write other CPUs")
                    .impossible(),
            );
        }
    }
    found
}
