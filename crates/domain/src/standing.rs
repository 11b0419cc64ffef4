// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter inside a wall that stands already: that of an applied plan. It raises and lowers
//! nothing.

use std::process::Command;

use rampart_model::{Availability, DomainSelection, Granted, Machine, StandingDomain};

use crate::running::{self, RunningProcess};
use crate::session::{Session, Tie};
use crate::{Domain, DomainError, METER_MEND, Running, Start};

/// A domain of an applied plan, as a place for a meter.
#[derive(Debug, Clone)]
pub(crate) struct Standing(pub(crate) StandingDomain);

impl Domain for Standing {
    fn selection(&self) -> DomainSelection {
        DomainSelection::of(self.0.kind)
    }

    fn availability(&self, _machine: &Machine) -> Availability {
        Availability {
            domain: self.selection(),
            available: true,
            description: format!("a process in `{}`, whose wall stands", self.0.name),
            findings: Vec::new(),
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let plan = running::plan_for_itself(start.plan);
        let command = Command::new(start.meter);
        let program = start.meter.display().to_string();
        let mut session = Session::start(command, &program, Tie::Killed, METER_MEND)?;
        // Before its threads are made: they are born inside.
        rampart_host::enter_standing(&self.0, session.process())?;
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
