// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter that runs in a cell.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rampart_host::Shield;
use rampart_model::{
    CellExitReport, CpuId, CpuSet, EffectiveSettings, MeterEvent, MeterSettings, Nanos, PlacedBy,
    SchedulingPolicy, ShieldReport, SignInMemory,
};

use super::bare::{self, BareCell};
use super::launched_cell::Launched;
use super::linux::{self, LinuxInside};
use crate::session::Session;
use crate::{DomainError, Inside, Running, Start, host_cpu_numbers};

/// Holds a cell that stays up between two runs.
pub(super) type Slot = Arc<Mutex<Option<Up>>>;

/// A running cell.
#[derive(Debug)]
pub(super) enum Up {
    Bare(Box<BareCell>),
    Linux(Box<LinuxInside>),
}

impl Up {
    pub(super) fn launched(&self) -> &Launched {
        match self {
            Self::Bare(cell) => &cell.launched,
            Self::Linux(cell) => &cell.launched,
        }
    }

    fn launched_mut(&mut self) -> &mut Launched {
        match self {
            Self::Bare(cell) => &mut cell.launched,
            Self::Linux(cell) => &mut cell.launched,
        }
    }

    fn session(&self) -> Result<Session, DomainError> {
        match self {
            Self::Bare(cell) => cell.session(),
            Self::Linux(cell) => cell.session(),
        }
    }

    fn interrupts(&self) -> Option<u64> {
        match self {
            Self::Bare(cell) => cell.interrupts(),
            Self::Linux(cell) => cell.interrupts(),
        }
    }

    /// Returns the settings for the meter of this cell.
    fn plan_inside(&self, settings: &MeterSettings, housekeeping: &CpuSet) -> MeterSettings {
        let settings = MeterSettings {
            placed_by: PlacedBy::Itself,
            ..settings.clone()
        };
        match self {
            Self::Bare(cell) => MeterSettings {
                housekeeping: bare::beside(housekeeping, cell.launched.cpus()),
                // No thread of the host's kernel measures.
                policy: SchedulingPolicy::Other,
                ..settings
            },
            Self::Linux(cell) => MeterSettings {
                cpus: (0..cell.launched.cpus().len() as u32).map(CpuId).collect(),
                housekeeping: CpuSet::new(),
                ..settings
            },
        }
    }
}

/// A meter in a cell; the meter is dropped before the cell.
#[derive(Debug)]
pub(super) struct RunningCell {
    session: Session,
    up: Up,
    housekeeping: CpuSet,
    /// From its clock to the time of day, if its kernel does not know that.
    realtime_offset: Option<Nanos>,
    finished: bool,
    /// Receives the cell if it is to stay up.
    stay: Option<Slot>,
}

impl RunningCell {
    /// Starts and prepares the meter.
    pub(super) fn start(
        up: Up,
        start: &Start<'_>,
        stay: Option<Slot>,
    ) -> Result<Self, DomainError> {
        let mut running = Self {
            session: up.session()?,
            up,
            housekeeping: start.housekeeping.clone(),
            realtime_offset: None,
            finished: false,
            stay,
        };
        running.prepare(start.settings)?;
        Ok(running)
    }

    fn prepare(&mut self, settings: &MeterSettings) -> Result<(), DomainError> {
        let inside = self.up.plan_inside(settings, &self.housekeeping);
        let prepared = self.session.prepare(&inside);
        self.best_error(prepared)?;
        self.realtime_offset = match &self.up {
            Up::Bare(_) => None,
            Up::Linux(cell) => cell.realtime_offset(),
        };
        self.finished = false;
        Ok(())
    }

    /// Returns the cell's own failure instead of the meter's, if there is one.
    fn best_error<T>(&self, result: Result<T, DomainError>) -> Result<T, DomainError> {
        result.map_err(|error| self.up.launched().best_error(error))
    }
}

impl Running for RunningCell {
    fn go(&mut self) -> Result<(), DomainError> {
        let interrupts = self.up.interrupts();
        self.up.launched_mut().begin(interrupts);
        let gone = self.session.go();
        self.best_error(gone)
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        let event = self.session.next_event(timeout);
        let Some(event) = self.best_error(event)? else {
            return Ok(None);
        };
        if matches!(event, MeterEvent::Finished { .. }) && !self.finished {
            self.finished = true;
            let interrupts = self.up.interrupts();
            self.up.launched_mut().end(interrupts);
        }
        let event = match (event, self.realtime_offset) {
            (MeterEvent::Started { at, .. }, Some(realtime_offset)) => MeterEvent::Started {
                at,
                realtime_offset,
            },
            (event, _) => event,
        };
        Ok(Some(match &self.up {
            Up::Bare(_) => event,
            Up::Linux(cell) => {
                let cpus = cell.launched.cpus();
                host_cpu_numbers::on_host(event, &|cpu| linux::on_host(cpus, cpu))
            }
        }))
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError> {
        self.prepare(settings)?;
        Ok(true)
    }

    /// No load can be placed on its CPUs from outside.
    fn shield(&self) -> Option<&Shield> {
        None
    }

    fn effective_settings(&self) -> EffectiveSettings {
        EffectiveSettings {
            runtime: format!("cell {}", self.up.launched().name()),
            placed_by: "the hypervisor".to_owned(),
            ..EffectiveSettings::default()
        }
    }

    fn isolation(&self) -> Option<ShieldReport> {
        None
    }

    fn inside(&self) -> Option<&dyn Inside> {
        Some(match &self.up {
            Up::Bare(cell) => cell.as_ref(),
            Up::Linux(cell) => cell.as_ref(),
        })
    }

    fn sign_in_memory(&self) -> Option<SignInMemory> {
        match &self.up {
            Up::Bare(cell) => cell.sign_in_memory(),
            Up::Linux(cell) => cell.sign_in_memory(),
        }
    }

    fn cell(&self) -> Option<CellExitReport> {
        self.up.launched().report()
    }

    fn finish(mut self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        let ended = self.session.close();
        let Self {
            session, up, stay, ..
        } = *self;
        drop(session);
        // A cell whose meter had to be killed, or that failed, is replaced at the next start.
        match stay.filter(|_| ended && up.launched().failure().is_none()) {
            Some(slot) => *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(up),
            None => drop(up),
        }
        Ok(None)
    }
}
