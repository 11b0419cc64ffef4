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
    refuse_second(&RunningKernel, state, AwaitsRestart::Refused)
}

/// Checks that the kernel command line of a plan can be written: as [`check_that_no_plan_is_active`],
/// but a plan that awaits its restart may be replaced.
///
/// # Errors
/// If a plan is active, or was not applied completely.
pub fn check_before_restart(state: &StateDirectory) -> Result<(), HostError> {
    refuse_second(&RunningKernel, state, AwaitsRestart::Replaced)
}

/// Whether a plan that awaits a restart may be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AwaitsRestart {
    Replaced,
    Refused,
}

/// Returns the plan that was written in this boot. A restart undoes older ones.
pub(super) fn plan_written_in_this_boot(
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
    awaits_restart: AwaitsRestart,
) -> Result<(), HostError> {
    let Some(present) = plan_written_in_this_boot(kernel, state)? else {
        return Ok(());
    };
    let (what, fix) = match (present.state, awaits_restart) {
        (ActivePlanState::Begun, _) => (
            "a plan was not applied completely",
            "run `rampart release`, and apply again",
        ),
        (ActivePlanState::AwaitsRestart, AwaitsRestart::Replaced) => return Ok(()),
        (ActivePlanState::AwaitsRestart, AwaitsRestart::Refused) => (
            "a plan has changed the kernel command line and awaits a restart",
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
        found: present.file,
        expected: "no plan".to_owned(),
        fix: fix.to_owned(),
    })
}
