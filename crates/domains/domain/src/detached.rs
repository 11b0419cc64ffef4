// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `detached`: one thread of a Linux process on a CPU that is taken from Linux. Plans have it; an
//! evaluation lists it with the reasons why it does not measure it.

use rampart_host::{MachineRoot, has_detach_driver, no_detach_driver};
use rampart_model::{Availability, DomainKind, DomainSelection, Finding, Machine, Severity};

use crate::{Domain, DomainError, Running, Start};

/// A thread on a CPU that is taken from Linux.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DetachedDomain;

impl Domain for DetachedDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection::of(DomainKind::Detached)
    }

    fn availability(&self, machine: &Machine) -> Availability {
        let mut findings = vec![not_measured()];
        if machine.architecture != "x86_64" {
            findings.push(
                Finding::new(
                    Severity::Error,
                    "architecture",
                    "detached threads need an x86-64 machine",
                )
                .values(machine.architecture.clone(), "x86_64"),
            );
        } else if !has_detach_driver(&MachineRoot::system()) {
            findings.push(no_detach_driver());
        }
        Availability {
            domain: self.selection(),
            available: false,
            description: "one thread of a Linux process on a CPU that is taken from Linux"
                .to_owned(),
            findings,
        }
    }

    fn start(&self, _start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        Err(DomainError::Unavailable(not_measured()))
    }
}

fn not_measured() -> Finding {
    Finding::new(
        Severity::Error,
        DomainKind::Detached.word(),
        "this version of Rampart does not measure this kind of domain; its driver counts the interrupts",
    )
    .fix("rampart detach")
}
