// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter that runs as a process of this machine's own kernel.

use std::process::Command;
use std::time::Duration;

use rampart_host::Shield;
use rampart_model::{EffectiveSettings, MeterEvent, MeterSettings, PlacedBy, ShieldReport};

use crate::container::Container;
use crate::session::{Session, Tie};
use crate::shielded_process::{self, Environment};
use crate::{DomainError, METER_FIX, Running, Start, meter_placement, process_settings};

/// A process that measures. The fields are dropped in order: the runtime outlives the container,
/// whose processes it reaps, and the isolation is removed last.
#[derive(Debug)]
pub(crate) struct RunningProcess {
    /// Its container, if there is one.
    pub(crate) container: Option<Container>,
    pub(crate) session: Session,
    /// Its environment; `None` if the meter places itself.
    pub(crate) environment: Option<Environment>,
    /// The meter's process id on this kernel.
    pub(crate) process: u32,
    pub(crate) effective_settings: EffectiveSettings,
}

impl RunningProcess {
    /// Starts a meter that places itself, without further isolation. `enter` gets its process id
    /// before it creates threads, which inherit its group and affinity.
    pub(crate) fn bare(
        start: &Start<'_>,
        enter: impl FnOnce(u32) -> Result<(), DomainError>,
    ) -> Result<Box<dyn Running>, DomainError> {
        let plan = plan_for_itself(start.settings);
        let command = Command::new(start.meter);
        let program = start.meter.display().to_string();
        let mut session = Session::start(command, &program, Tie::Killed, METER_FIX)?;
        enter(session.process())?;
        session.prepare(&plan)?;
        let mut running = Self {
            process: session.process(),
            container: None,
            session,
            environment: None,
            effective_settings: EffectiveSettings::default(),
        };
        running.place(&plan, "")?;
        Ok(Box::new(running))
    }

    /// Places the threads of the prepared meter and reads back the effective settings; `runtime`
    /// names the program that runs the container.
    pub(crate) fn place(
        &mut self,
        settings: &MeterSettings,
        runtime: &str,
    ) -> Result<(), DomainError> {
        let Some(environment) = &mut self.environment else {
            self.effective_settings =
                process_settings::effective_settings(self.process, self.process, runtime, "itself");
            return Ok(());
        };
        let thread = environment.place(self.process, settings)?;
        self.effective_settings =
            process_settings::effective_settings(self.process, thread, runtime, "outside");
        Ok(())
    }
}

/// Returns the settings for a meter that places itself.
fn plan_for_itself(settings: &MeterSettings) -> MeterSettings {
    MeterSettings {
        placed_by: PlacedBy::Itself,
        ..settings.clone()
    }
}

impl Running for RunningProcess {
    fn go(&mut self) -> Result<(), DomainError> {
        self.session.go()
    }

    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        self.session.next_event(timeout)
    }

    fn stop(&mut self) {
        self.session.stop();
    }

    fn rearm(&mut self, settings: &MeterSettings) -> Result<bool, DomainError> {
        let settings = match self.environment {
            Some(_) => shielded_process::plan_inside(settings),
            None => plan_for_itself(settings),
        };
        self.session.prepare(&settings)?;
        let before = std::mem::take(&mut self.effective_settings);
        self.place(&settings, &before.runtime)?;
        Ok(self.effective_settings.control_groups == before.control_groups)
    }

    fn shield(&self) -> Option<&Shield> {
        self.environment.as_ref().and_then(Environment::shield)
    }

    fn effective_settings(&self) -> EffectiveSettings {
        self.effective_settings.clone()
    }

    fn measuring_threads(&self) -> Vec<u32> {
        let threads = process_settings::threads(self.process).into_iter();
        threads
            .filter(|thread| thread.name.starts_with(meter_placement::THREAD_NAME))
            .map(|thread| thread.id)
            .collect()
    }

    fn isolation(&self) -> Option<ShieldReport> {
        self.environment.as_ref().map(Environment::report)
    }

    fn finish(mut self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        self.session.close();
        let Self {
            container,
            session,
            environment,
            ..
        } = *self;
        let removed = container.map(Container::remove).transpose();
        drop(session);
        // The shield is removed whether or not the container could be removed.
        let report = environment.map(Environment::lower).transpose()?;
        removed?;
        Ok(report)
    }
}
