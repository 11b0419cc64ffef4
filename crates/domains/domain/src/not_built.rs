// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds that this version does not measure yet. They are listed with what this machine has for
//! them.

use rampart_model::{Availability, DomainKind, DomainSelection, Finding, Machine, Severity};

use crate::{Domain, DomainError, Running, Start};

/// A kind that is not implemented yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotBuilt(pub(crate) DomainKind);

impl Domain for NotBuilt {
    fn selection(&self) -> DomainSelection {
        DomainSelection::of(self.0)
    }

    fn availability(&self, _: &Machine) -> Availability {
        let description = match self.0 {
            DomainKind::Detached => {
                "one thread of a Linux process on a CPU that was taken from Linux"
            }
            _ => "",
        };
        Availability {
            domain: self.selection(),
            available: false,
            description: description.to_owned(),
            findings: vec![self.not_yet(), machine_side()],
        }
    }

    fn start(&self, _start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        Err(DomainError::Unavailable(self.not_yet()))
    }
}

impl NotBuilt {
    fn not_yet(self) -> Finding {
        Finding::new(
            Severity::Error,
            self.0.word(),
            "this version of Rampart does not measure this kind of domain yet",
        )
        .fix("install a version whose change log names it")
    }
}

/// Returns what the machine needs for it.
fn machine_side() -> Finding {
    Finding::new(
        Severity::Note,
        "kernel modules",
        "it will need a kernel driver, so the kernel has to load modules",
    )
}
