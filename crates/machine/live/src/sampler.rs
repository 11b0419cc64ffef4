// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A series of statuses, each of the time since the previous one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::{MachineRoot, StateDirectory, Watch, active_plan, observe};
use rampart_model::{ActivePlan, Nanos, Observation, Status};
use rampart_status::StatusObserver;

use crate::LiveError;

/// Longest sleep without a check of the stop flag.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Reads this machine and its active plan.
#[derive(Debug)]
pub struct Sampler {
    tool_version: &'static str,
    root: MachineRoot,
    state: StateDirectory,
    earlier: Observation,
}

impl Sampler {
    /// Takes the first observation. The statuses name `tool_version`.
    ///
    /// # Errors
    /// If the active plan cannot be read.
    pub fn start(tool_version: &'static str) -> Result<Self, LiveError> {
        let root = MachineRoot::system();
        let state = StateDirectory::standard();
        let plan = active_plan(&state)?;
        let earlier = observe(&root, &Watch::of(plan.as_ref(), &root, &state));
        Ok(Self {
            tool_version,
            root,
            state,
            earlier,
        })
    }

    /// Returns the status since the previous observation. The plan is read each time, since it may
    /// change meanwhile.
    ///
    /// # Errors
    /// If the active plan cannot be read.
    pub fn next_status(&mut self) -> Result<Status, LiveError> {
        let plan = self.plan()?;
        let watch = Watch::of(plan.as_ref(), &self.root, &self.state);
        let later = observe(&self.root, &watch);
        let observer = StatusObserver {
            tool_version: self.tool_version,
            process: Some(std::process::id()),
        };
        let status = rampart_status::status(plan.as_ref(), &self.earlier, &later, observer);
        self.earlier = later;
        Ok(status)
    }

    /// Reads the active plan; returns `None` if there is none.
    pub(crate) fn plan(&self) -> Result<Option<ActivePlan>, LiveError> {
        Ok(active_plan(&self.state)?)
    }
}

/// Sleeps for `time`. Returns `false` if `stop` was set before the end.
pub fn wait(time: Nanos, stop: &AtomicBool) -> bool {
    let end = Instant::now() + Duration::from(time);
    loop {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        thread::sleep(left.min(POLL));
    }
}
