// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `host`: the meter as a plain process on the CPUs that ordinary work keeps.

use std::process::Command;
use std::time::Duration;

use rampart_host::Shield;
use rampart_model::{
    Availability, DomainKind, DomainSelection, Granted, Machine, MeterEvent, PlacedBy, ShieldReport,
};

use crate::session::{Session, Tie};
use crate::{Domain, DomainError, METER_MEND, Running, Start, process};

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
        let mut plan = start.plan.clone();
        plan.placed_by = PlacedBy::Itself;
        let command = Command::new(start.meter);
        let program = start.meter.display().to_string();
        let mut session = Session::start(command, &program, Tie::Killed, METER_MEND)?;
        session.prepare(&plan)?;
        let process = session.process();
        let granted = process::granted(process, process, "", "itself");
        Ok(Box::new(RunningHost { session, granted }))
    }
}

#[derive(Debug)]
struct RunningHost {
    session: Session,
    granted: Granted,
}

impl Running for RunningHost {
    fn go(&mut self) -> Result<(), DomainError> {
        self.session.go()
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        self.session.next_event(timeout)
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn shield(&self) -> Option<&Shield> {
        None
    }

    fn granted(&self) -> Granted {
        self.granted.clone()
    }

    fn finish(mut self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        self.session.close();
        Ok(None)
    }
}
