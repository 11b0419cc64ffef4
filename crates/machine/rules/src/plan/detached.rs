// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What detached threads require of a machine.

use rampart_model::{
    BOOT_CPU, DetachDriver, DomainProgram, Finding, Machine, PlanFinding, Severity,
};

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

const PLACE: &str = "module detach";

/// The architectures that the driver supports.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

fn other_architecture(finding: Finding, architecture: &str) -> Finding {
    finding
        .values(architecture, ARCHITECTURES.join(" or "))
        .fix("use such a machine, or the simulated one: --on sim")
}

/// Returns why threads cannot be detached on a machine now; empty if they can. `driver`: `None` if it is unknown.
#[must_use]
pub fn detach_problems(machine: &Machine, driver: Option<DetachDriver>) -> Vec<Finding> {
    if !ARCHITECTURES.contains(&machine.architecture.as_str()) {
        let what = "no driver of detached threads is for this architecture";
        let finding = DETACHED_MACHINE.finding("architecture", what);
        // The other findings would not help.
        return vec![other_architecture(finding, &machine.architecture)];
    }
    if driver == Some(DetachDriver::Loaded) {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let online = machine.topology.online.len();
    if online < 2 {
        findings.push(
            DETACHED_MACHINE
                .finding("CPUs", "Linux needs the only CPU")
                .values(format!("{online} online"), "at least 2")
                .fix("add a second CPU to the machine"),
        );
    }
    findings.push(detach_driver_problem(driver));
    findings
}

/// Returns why the driver cannot be used, with the command that loads or installs it.
#[must_use]
pub fn detach_driver_problem(driver: Option<DetachDriver>) -> Finding {
    let Some(driver) = driver else {
        let what = "whether the driver of detached threads is installed";
        return DETACHED_DRIVER.undecided(PLACE, what);
    };
    driver_problem(driver, PLACE)
}

/// The one text about a missing driver. `location` is the module, or the domain that needs it.
fn driver_problem(driver: DetachDriver, location: impl Into<String>) -> Finding {
    let (what, found, expected, fix) = match driver {
        DetachDriver::Loaded => (
            "the device of detached threads is not visible here",
            "no /dev/rampart-detach",
            "the device",
            "pass the device /dev/rampart-detach to this container",
        ),
        DetachDriver::Installed => (
            "the driver of detached threads is not loaded",
            "not loaded",
            "loaded",
            "modprobe detach",
        ),
        DetachDriver::NotInstalled => (
            "the driver of detached threads is not installed for the running kernel",
            "neither loaded nor installed",
            "installed",
            concat!(
                "dkms install rampart/",
                env!("CARGO_PKG_VERSION"),
                "  # after installing Rampart's package"
            ),
        ),
        DetachDriver::NoModules => (
            "the running kernel loads no modules, and the driver of detached threads is one",
            "a kernel without CONFIG_MODULES",
            "a kernel that loads modules",
            "boot the distribution's kernel, or use the simulated machine: --on sim",
        ),
    };
    let finding = DETACHED_DRIVER.finding(location, what);
    finding.values(found, expected).fix(fix)
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
        if let Some(driver @ (DetachDriver::NotInstalled | DetachDriver::NoModules)) =
            context.environment.detach_driver
        {
            let finding = driver_problem(driver, location(domain.planned));
            findings.push(about(domain.planned, finding));
        }
    }
    findings
}
