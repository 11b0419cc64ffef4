// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Determines whether this machine can run guests.

use rampart_model::{Accelerator, Availability, Finding, GuestRole, Machine, Severity};
use rampart_rules::Package;

use super::VmDomain;
use super::guest_kernel::{GuestKernel, KernelLocations};
use super::host_support::{self, Program};
use super::program_libraries::Libraries;
use super::{MODULES, accelerator, is_real_time, kernel_finding, kvm_probe};
use crate::kernel_modules::ModuleTree;
use crate::{Domain as _, task};

pub(super) fn of(domain: &VmDomain, machine: &Machine) -> Availability {
    if let Err(finding) = architecture(machine) {
        // The other findings would not help.
        return Availability {
            domain: domain.selection(),
            available: false,
            description: description(domain, machine, None),
            findings: vec![*finding],
        };
    }
    let mut problems = Vec::new();
    let mut keep = |result: Result<(), Box<Finding>>| {
        if let Err(finding) = result {
            problems.push(*finding);
        }
    };
    let program = Program::find();
    let kernel = KernelLocations::standard().find();
    keep(program.clone().map(|_| ()));
    keep(kernel.clone().map(|_| ()));
    if let Ok(kernel) = &kernel {
        keep(has_modules(kernel));
    }
    let accelerator = accelerator(domain.role);
    if accelerator == Accelerator::Kvm {
        keep(host_support::kvm());
    }
    if domain.role == GuestRole::Noisy && Libraries::of_program("stress-ng").is_none() {
        keep(Err(Box::new(
            Finding::new(
                Severity::Error,
                "stress-ng",
                "the program that loads the guest is not installed",
            )
            .fix(crate::install_command(Package::StressNg)),
        )));
    }
    // The probe takes seconds, so it runs only if there is no other problem. On an emulated machine
    // it takes as long as a guest, whose start finds the same.
    if problems.is_empty()
        && accelerator == Accelerator::Kvm
        && !machine.virtualisation.emulated
        && let (Ok(program), Ok(kernel)) = (&program, &kernel)
        && let Err(finding) = kvm_probe::kvm_boots_a_guest(&domain.state, program, kernel, machine)
    {
        problems.push(*finding);
    }
    let available = problems.is_empty();
    let mut findings = problems;
    if let Ok(kernel) = &kernel {
        findings.extend(kernel_finding(kernel).filter(|_| is_real_time(domain.role)));
    }
    if is_real_time(domain.role) {
        findings.extend(task::weaknesses(machine));
    }
    Availability {
        domain: domain.selection(),
        available,
        description: description(domain, machine, kernel.as_ref().ok()),
        findings,
    }
}

/// Refuses a machine whose architecture is not that of the guests.
fn architecture(machine: &Machine) -> Result<(), Box<Finding>> {
    const GUESTS: &str = "x86_64";
    if machine.architecture == GUESTS {
        return Ok(());
    }
    Err(Box::new(
        Finding::new(
            Severity::Error,
            "architecture",
            "guests are supported on one architecture only",
        )
        .values(machine.architecture.clone(), GUESTS)
        .fix("measure guests on an x86_64 machine: --on ssh:HOST or --on sim:x86_64"),
    ))
}

fn description(domain: &VmDomain, machine: &Machine, kernel: Option<&GuestKernel>) -> String {
    let kernel = match kernel {
        Some(kernel) if !kernel.release.is_empty() => format!("Linux {}", kernel.release),
        _ => "a guest kernel".to_owned(),
    };
    match domain.role {
        GuestRole::RealTime => format!(
            "{kernel} as a KVM guest, each real-time virtual CPU on a CPU of its own, {}",
            task::expected_isolation(machine)
        ),
        GuestRole::Noisy => format!(
            "{kernel} as a KVM guest on the housekeeping CPUs, loaded all the time; a noisy neighbour, not measured"
        ),
        GuestRole::Emulated => format!(
            "{kernel} as a guest whose instructions QEMU emulates in software: its latencies do not apply to a deadline, {}",
            task::expected_isolation(machine)
        ),
    }
}

/// Checks that the modules that a guest needs exist or are built in.
fn has_modules(kernel: &GuestKernel) -> Result<(), Box<Finding>> {
    match &kernel.modules {
        Some(directory) => ModuleTree::open(directory).closure(&MODULES).map(|_| ()),
        None => Ok(()),
    }
}
