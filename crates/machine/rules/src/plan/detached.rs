// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What detached threads require of a machine.

use rampart_model::{BOOT_CPU, DomainProgram, Finding, Machine, PlanFinding, Severity};

use super::finding::{about, location};
use super::{PlanContext, REQUIRED};
use crate::Rule;

pub(super) const DETACHED_MACHINE: Rule = Rule {
    id: "detached-machine",
    severity: Severity::Error,
    title: "A machine with detached threads is an x86-64 or arm64 machine, and CPU 0 is not for them",
    reason: "The driver is built for these, and Linux cannot release the CPU that it booted on.",
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

/// The architectures that the driver supports.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

fn other_architecture(finding: Finding, architecture: &str) -> Finding {
    finding
        .values(architecture, ARCHITECTURES.join(" or "))
        .fix("use such a machine, or the simulated one: --on sim")
}

fn not_installed(finding: Finding) -> Finding {
    finding
        .values("neither loaded nor installed", "installed")
        .fix("dkms add and install the modules of Rampart (kernel/detach/README.md)")
}

/// Returns why threads cannot be detached on a machine now; empty if they can. `loaded`: whether the driver is;
/// `can_load`: whether it is loaded or installed for the running kernel, if that is known.
#[must_use]
pub fn detach_problems(machine: &Machine, loaded: bool, can_load: Option<bool>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !ARCHITECTURES.contains(&machine.architecture.as_str()) {
        let what = "no driver of detached threads is for this architecture";
        let finding = DETACHED_MACHINE.finding("architecture", what);
        // The other findings would not help.
        return vec![other_architecture(finding, &machine.architecture)];
    }
    let online = machine.topology.online.len();
    if !loaded && online < 2 {
        findings.push(
            DETACHED_MACHINE
                .finding("CPUs", "Linux needs the only CPU")
                .values(format!("{online} online"), "at least 2")
                .fix("add a second CPU to the machine"),
        );
    }
    if !loaded {
        findings.push(detach_driver_problem(can_load));
    }
    findings
}

/// Returns why the driver is not loaded, with the command that loads or installs it.
#[must_use]
pub fn detach_driver_problem(can_load: Option<bool>) -> Finding {
    const PLACE: &str = "module detach";
    if can_load == Some(false) {
        let what = "the driver of detached threads is not installed for the running kernel";
        return not_installed(DETACHED_DRIVER.finding(PLACE, what));
    }
    DETACHED_DRIVER
        .finding(PLACE, "the driver of detached threads is not loaded")
        .values("not loaded", "loaded")
        .fix("modprobe detach")
}

pub(super) fn machine(context: &PlanContext<'_>) -> Vec<PlanFinding> {
    let mut findings = Vec::new();
    let detached = context.domains().filter(|domain| {
        let kind = domain.planned.kind;
        kind.leaves_linux() && kind.program() == DomainProgram::Process
    });
    for domain in detached {
        if !ARCHITECTURES.contains(&context.machine.architecture.as_str()) {
            let what = "no driver of detached threads is for this architecture";
            findings.push(
                about(
                    domain.planned,
                    other_architecture(
                        DETACHED_MACHINE.finding(location(domain.planned), what),
                        &context.machine.architecture,
                    ),
                )
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
            let what = "the module detach is not installed";
            let finding = DETACHED_DRIVER.finding(location(domain.planned), what);
            findings.push(about(domain.planned, not_installed(finding)));
        }
    }
    findings
}
