// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vm:noisy`: a guest that is no domain to be measured but a neighbour: not real-time, on the
//! housekeeping CPUs, loaded from its start until its end.

use std::time::{Duration, Instant};

use rampart_host::Shield;
use rampart_model::{Granted, GuestReport, MeterEvent, MeterPlan, ShieldReport};

use super::guest::{self, Guest};
use crate::surroundings::Surroundings;
use crate::{DomainError, Inside, InsideProcess, Running};

/// How often it is looked at.
const TEND: Duration = Duration::from_millis(200);

/// What loads it: its CPUs, its caches, its memory and its scheduler.
pub(super) fn load(cpus: usize) -> Vec<String> {
    let cpus = cpus.max(1).to_string();
    [
        "stress-ng",
        "--cpu",
        &cpus,
        "--cache",
        "1",
        "--vm",
        "1",
        "--vm-bytes",
        "64M",
        "--switch",
        "1",
        "--quiet",
    ]
    .map(str::to_owned)
    .into()
}

/// Dropped in the order of the fields.
#[derive(Debug)]
pub(super) struct RunningNeighbour {
    _load: InsideProcess,
    guest: Guest,
    surroundings: Surroundings,
    granted: Granted,
}

impl RunningNeighbour {
    /// Loads the guest.
    pub(super) fn start(guest: Guest, surroundings: Surroundings) -> Result<Self, DomainError> {
        let load = guest.spawn(&load(guest.description.cpus.len()))?;
        Ok(Self {
            _load: load,
            granted: guest::granted(&guest),
            guest,
            surroundings,
        })
    }
}

impl Running for RunningNeighbour {
    /// There is nothing to be let go: the load runs already.
    fn go(&mut self) -> Result<(), DomainError> {
        self.guest.tend(&self.surroundings)
    }

    /// Never an event; an error if the guest is gone.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        let begin = Instant::now();
        loop {
            self.guest.tend(&self.surroundings)?;
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            std::thread::sleep(left.min(TEND));
        }
    }

    fn stop(&mut self) {}

    /// It goes on all the time.
    fn again(&mut self, _plan: &MeterPlan) -> Result<bool, DomainError> {
        Ok(true)
    }

    fn shield(&self) -> Option<&Shield> {
        None
    }

    fn wall(&self) -> Option<ShieldReport> {
        None
    }

    fn granted(&self) -> Granted {
        self.granted.clone()
    }

    fn inside(&self) -> Option<&dyn Inside> {
        Some(&self.guest)
    }

    fn guest(&self) -> Option<GuestReport> {
        Some(self.guest.report(Vec::new()))
    }

    fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        self.guest.end();
        Ok(None)
    }
}
