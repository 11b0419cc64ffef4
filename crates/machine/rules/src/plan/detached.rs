// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What detached threads require of a machine.

use rampart_model::{BOOT_CPU, DomainProgram, PlanFinding, Severity};

use super::{PlanContext, REQUIRED};
use crate::Rule;

pub(super) const DETACHED_MACHINE: Rule = Rule {
    id: "detached-machine",
    severity: Severity::Error,
    title: "A machine with detached threads is an x86-64 machine, and CPU 0 is not for them",
    reason: "The driver is built for x86-64, and Linux cannot release the CPU that it booted on.",
    source: "Rampart: docs/detached.md",
    ..REQUIRED
};

pub(super) const DETACHED_DRIVER: Rule = Rule {
    id: "detached-driver",
    severity: Severity::Error,
    title: "The driver of detached threads is loaded, or installed for the running kernel",
    reason: "Only the driver can take a CPU from Linux.",
    source: "Rampart: docs/detached.md",
    ..REQUIRED
};

pub(super) fn machine(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    let detached = context.domains().filter(|domain| {
        let kind = domain.planned.kind;
        kind.leaves_linux() && kind.program() == DomainProgram::Process
    });
    for domain in detached {
        if context.machine.architecture != "x86_64" {
            findings.push(
                DETACHED_MACHINE
                    .of_domain(domain.planned, "detached threads need an x86-64 machine")
                    .values(context.machine.architecture.clone(), "x86_64")
                    .fix("use such a machine, or the simulated one: --on sim:x86_64")
                    .impossible(),
            );
        }
        if domain.claim.requested.contains(BOOT_CPU) {
            findings.push(
                DETACHED_MACHINE
                    .of_domain(
                        domain.planned,
                        "Linux cannot release the CPU that it booted on",
                    )
                    .values("CPU 0", "other CPUs")
                    .fix("name other CPUs")
                    .impossible(),
            );
        }
        if context.environment.detach_driver == Some(false) {
            findings.push(
                DETACHED_DRIVER
                    .of_domain(domain.planned, "the module detach is not installed")
                    .values("neither loaded nor installed", "installed")
                    .fix("dkms add and install the modules of Rampart (kernel/detach/README.md)"),
            );
        }
    }
    findings
}
