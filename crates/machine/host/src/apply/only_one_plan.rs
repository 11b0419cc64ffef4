// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refuses a second active plan.

use rampart_model::{ActivePlan, ActivePlanState};

use crate::kernel::{Kernel, RunningKernel};
use crate::{HostError, StateDirectory, active_plan, journal};

/// Checks that no plan is active.
///
/// # Errors
/// If a plan is active, awaits a restart, or was not applied completely.
pub fn check_that_no_plan_is_active(state: &StateDirectory) -> Result<(), HostError> {
    refuse_second(&RunningKernel, state, Waiting::Refused)
}

/// Whether the kernel command line of a plan can be written: as [`check_that_no_plan_is_active`], but over one that
/// awaits its restart.
///
/// # Errors
/// As [`check_that_no_plan_is_active`].
pub fn check_before_restart(state: &StateDirectory) -> Result<(), HostError> {
    refuse_second(&RunningKernel, state, Waiting::EffectiveSettings)
}

/// Whether a plan that awaits a restart may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    EffectiveSettings,
    Refused,
}

/// Returns the plan of this boot; a restart undoes a plan.
pub(super) fn active_here(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<Option<ActivePlan>, HostError> {
    let present = active_plan::active_plan(state)?;
    Ok(present.filter(|present| present.boot == journal::boot_id(kernel)))
}

/// Refuses to apply a plan while another one is active.
pub(super) fn refuse_second(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    waiting: Waiting,
) -> Result<(), HostError> {
    let Some(present) = active_here(kernel, state)? else {
        return Ok(());
    };
    let (what, fix) = match (present.state, waiting) {
        (ActivePlanState::Begun, _) => (
            "the application of a plan was broken off",
            "run `rampart release`, and apply again",
        ),
        (ActivePlanState::AwaitsRestart, Waiting::EffectiveSettings) => return Ok(()),
        (ActivePlanState::AwaitsRestart, Waiting::Refused) => (
            "the kernel command line of a plan is written, and the machine was not restarted since",
            "restart the machine, and apply again, or run `rampart release`",
        ),
        (ActivePlanState::Active, _) => (
            "a plan is active already",
            "run `rampart release` first; `rampart status` shows the active plan",
        ),
    };
    Err(HostError::Request {
        location: state.path().join("plan.json").display().to_string(),
        what: what.to_owned(),
        present: present.file,
        needed: "no plan".to_owned(),
        fix: fix.to_owned(),
    })
}
