// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `host`: the meter as a plain process on the CPUs that ordinary work keeps.

use std::process::Command;

use rampart_model::{Availability, DomainKind, DomainSelection, Granted, Machine};

use crate::running::{self, RunningProcess};
use crate::session::{Session, Tie};
use crate::{Domain, DomainError, METER_MEND, Running, Start};

/// A plain process without any wall.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostDomain;

impl Domain for HostDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            guest: None,
            kind: DomainKind::Host,
            engine: None,
        }
    }

    fn availability(&self, _machine: &Machine) -> Availability {
        Availability {
            domain: self.selection(),
            available: true,
            description: "a process among all others on the housekeeping CPUs; no wall".to_owned(),
            findings: Vec::new(),
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let plan = running::plan_for_itself(start.plan);
        let command = Command::new(start.meter);
        let program = start.meter.display().to_string();
        let mut session = Session::start(command, &program, Tie::Killed, METER_MEND)?;
        session.prepare(&plan)?;
        let mut running = RunningProcess {
            process: session.process(),
            container: None,
            session,
            surroundings: None,
            granted: Granted::default(),
        };
        running.place(&plan, "")?;
        Ok(Box::new(running))
    }
}
