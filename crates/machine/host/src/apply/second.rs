// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One plan stands at a time.

use rampart_model::{StandingPlan, StandingState};

use crate::kernel::{Kernel, RunningKernel};
use crate::{HostError, StateDirectory, journal, standing};

/// Whether a plan can be applied, or one stands already.
///
/// # Errors
/// If one stands, awaits a restart, or was begun and broken off: the message says what to do.
pub fn check_that_nothing_stands(state: &StateDirectory) -> Result<(), HostError> {
    refuse_second(&RunningKernel, state, Waiting::Refused)
}

/// Whether the boot line of a plan can be written: as [`check_that_nothing_stands`], but over one that
/// awaits its restart.
///
/// # Errors
/// As [`check_that_nothing_stands`].
pub fn check_before_restart(state: &StateDirectory) -> Result<(), HostError> {
    refuse_second(&RunningKernel, state, Waiting::Granted)
}

/// Whether a plan that awaits a restart may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Granted,
    Refused,
}

/// The plan of this boot. One that stood before a restart does not stand any more.
pub(super) fn standing_here(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<Option<StandingPlan>, HostError> {
    let present = standing::standing_plan(state)?;
    Ok(present.filter(|present| present.boot == journal::boot_id(kernel)))
}

/// One plan stands at a time.
pub(super) fn refuse_second(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    waiting: Waiting,
) -> Result<(), HostError> {
    let Some(present) = standing_here(kernel, state)? else {
        return Ok(());
    };
    let (what, mend) = match (present.state, waiting) {
        (StandingState::Begun, _) => (
            "the application of a plan was broken off",
            "run `rampart release`, and apply again",
        ),
        (StandingState::AwaitsRestart, Waiting::Granted) => return Ok(()),
        (StandingState::AwaitsRestart, Waiting::Refused) => (
            "the boot line of a plan is written, and the machine was not restarted since",
            "restart the machine, and apply again, or run `rampart release`",
        ),
        (StandingState::Stands, _) => (
            "a plan stands already",
            "run `rampart release` first; `rampart status` shows what stands",
        ),
    };
    Err(HostError::Request {
        place: state.path().join("plan.json").display().to_string(),
        what: what.to_owned(),
        present: present.file,
        needed: "no plan".to_owned(),
        mend: mend.to_owned(),
    })
}
