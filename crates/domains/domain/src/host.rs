// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `host`: the meter as a plain process on the housekeeping CPUs.

use rampart_model::{Availability, DomainKind, DomainSelection, Machine};

use crate::running_process::RunningProcess;
use crate::{Domain, DomainError, Running, Start};

/// A plain process without isolation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostDomain;

impl Domain for HostDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            guest: None,
            cell: None,
            kind: DomainKind::Host,
            engine: None,
        }
    }

    fn availability(&self, _machine: &Machine) -> Availability {
        Availability {
            domain: self.selection(),
            available: true,
            description: "a process on the housekeeping CPUs, without isolation".to_owned(),
            findings: Vec::new(),
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        RunningProcess::bare(start, |_| Ok(()))
    }
}
