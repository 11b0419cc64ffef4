// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter that runs in a guest.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rampart_host::Shield;
use rampart_model::{
    ClockRelation, CpuSet, EffectiveSettings, Finding, GuestReport, MeterEvent, MeterSettings,
    PlacedBy, Severity, ShieldReport,
};

use super::description::HOUSEKEEPING_INSIDE;
use super::guest::{self, Guest, Numbering};
use crate::host_cpu_numbers;
use crate::session::Session;
use crate::shielded_process::Environment;
use crate::{DomainError, Inside, Running};

/// Holds a guest that stays up between two runs.
pub(super) type Slot = Arc<Mutex<Option<Guest>>>;

/// Interval between two searches for new threads.
const TEND: Duration = Duration::from_millis(100);

/// A meter in a guest. The fields are dropped in order: meter, guest, environment.
#[derive(Debug)]
pub(super) struct RunningGuest {
    session: Session,
    guest: Guest,
    environment: Environment,
    numbering: Numbering,
    effective_settings: EffectiveSettings,
    clock: Vec<ClockRelation>,
    finished: bool,
    /// The time of the last search for new threads.
    tended: Instant,
    /// Receives the guest if it is to stay up.
    stay: Option<Slot>,
}

impl RunningGuest {
    /// Starts and prepares the meter inside.
    pub(super) fn start(
        guest: Guest,
        environment: Environment,
        settings: &MeterSettings,
        stay: Option<Slot>,
    ) -> Result<Self, DomainError> {
        let numbering = Numbering::of(&guest.description);
        let (streams, program) = guest.start(&["rampart-meter".to_owned()])?;
        let name = format!("rampart-meter in the guest {}", guest.description.name);
        let mut running = Self {
            session: Session::over(&name, streams, program),
            effective_settings: guest::effective_settings(&guest),
            guest,
            environment,
            numbering,
            clock: Vec::new(),
            finished: false,
            tended: Instant::now(),
            stay,
        };
        running.prepare(settings)?;
        Ok(running)
    }

    fn prepare(&mut self, settings: &MeterSettings) -> Result<(), DomainError> {
        let inside = plan_inside(settings, &self.guest);
        let prepared = self.session.prepare(&inside);
        self.best_error(prepared)?;
        self.finished = false;
        self.clock = vec![self.guest.clock()?];
        Ok(())
    }

    /// Checks the guest at most every [`TEND`]: searching its threads reads a directory, on CPUs
    /// that others measure.
    fn check_at_interval(&mut self) -> Result<(), DomainError> {
        if self.tended.elapsed() < TEND {
            return Ok(());
        }
        self.tended = Instant::now();
        self.guest.tend(&self.environment)
    }

    /// Reads the clock at the end of a measurement. If the guest does not answer, the results count
    /// all the same.
    fn note_end(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        match self.guest.clock() {
            Ok(clock) => self.clock.push(clock),
            Err(error) => {
                let finding = no_clock(&self.guest.description.name, &error);
                self.guest.note(vec![finding]);
            }
        }
    }

    /// Returns the guest's own failure instead of the meter's, if there is one.
    fn best_error<T>(&mut self, result: Result<T, DomainError>) -> Result<T, DomainError> {
        result.map_err(|error| match self.guest.tend(&self.environment) {
            Ok(()) => error,
            Err(better) => better,
        })
    }
}

/// Returns the settings for the meter inside, with the guest's CPU numbers and housekeeping CPU.
fn plan_inside(settings: &MeterSettings, guest: &Guest) -> MeterSettings {
    MeterSettings {
        cpus: guest.description.real_time_inside(),
        housekeeping: CpuSet::single(HOUSEKEEPING_INSIDE),
        placed_by: PlacedBy::Itself,
        ..settings.clone()
    }
}

fn no_clock(guest: &str, error: &DomainError) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("clock of the guest {guest}"),
        format!("cannot read it after the measurement, whose times therefore rest only on the relation from before: {error}"),
    )
    .values("one relation to the host's clock", "one before and one after")
}

/// Returns an event with the CPUs numbered as on the host.
fn on_host(event: MeterEvent, numbering: &Numbering) -> MeterEvent {
    host_cpu_numbers::on_host(event, &|cpu| numbering.on_host(cpu))
}

impl Running for RunningGuest {
    fn go(&mut self) -> Result<(), DomainError> {
        let gone = self.session.go();
        self.best_error(gone)
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        let begin = Instant::now();
        loop {
            self.check_at_interval()?;
            let left = timeout.saturating_sub(begin.elapsed());
            let event = self.session.next_event(left.min(TEND));
            if let Some(event) = self.best_error(event)? {
                if matches!(event, MeterEvent::Finished { .. }) {
                    self.note_end();
                }
                return Ok(Some(on_host(event, &self.numbering)));
            }
            if begin.elapsed() >= timeout {
                return Ok(None);
            }
        }
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError> {
        self.prepare(settings)?;
        Ok(true)
    }

    fn shield(&self) -> Option<&Shield> {
        self.environment.shield()
    }

    fn isolation(&self) -> Option<ShieldReport> {
        Some(self.environment.report())
    }

    fn effective_settings(&self) -> EffectiveSettings {
        self.effective_settings.clone()
    }

    fn measuring_threads(&self) -> Vec<u32> {
        self.guest.virtual_cpu_threads().to_vec()
    }

    fn inside(&self) -> Option<&dyn Inside> {
        Some(&self.guest)
    }

    fn guest(&self) -> Option<GuestReport> {
        Some(self.guest.report(self.clock.clone()))
    }

    fn finish(mut self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        let ended = self.session.close();
        let Self {
            session,
            mut guest,
            environment,
            stay,
            ..
        } = *self;
        drop(session);
        // A guest whose meter had to be killed, or that does not answer, hangs, although QEMU would
        // pause and resume it. The next start creates another.
        match stay.filter(|_| ended && guest.answers()) {
            Some(slot) if guest.pause().is_ok() => {
                *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(guest);
            }
            _ => guest.end(),
        }
        environment.lower().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use rampart_model::{Accelerator, CpuId, MeterReady, ThreadReady};

    use super::super::description::Board;
    use super::super::description::tests::example;
    use super::*;

    #[test]
    fn numbers_cpus_of_events_as_on_the_host() {
        let numbering = Numbering::of(&example(Accelerator::Kvm, Board::Microvm));
        assert_eq!(numbering.on_host(CpuId(2)), CpuId(3));
        assert_eq!(numbering.on_host(CpuId(9)), CpuId(9));
        let ready = MeterEvent::Ready(MeterReady {
            protocol: 1,
            version: String::new(),
            process: 7,
            threads: vec![ThreadReady {
                cpu: CpuId(1),
                name: "meter/1".to_owned(),
                thread: 8,
            }],
        });
        match on_host(ready, &numbering) {
            MeterEvent::Ready(ready) => assert_eq!(ready.threads[0].cpu, CpuId(2)),
            other => panic!("{other:?}"),
        }
    }
}
