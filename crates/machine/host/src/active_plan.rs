// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active plan: `plan.json` in the state directory.

use std::io;
use std::path::PathBuf;

use rampart_model::{ActivePlan, ActivePlanState};

use crate::journal::boot_id;
use crate::kernel::{Kernel, RunningKernel};
use crate::{HostError, StateDirectory, replace_file};

const FIX: &str = "run `rampart release`, which needs only the journal";

fn path(state: &StateDirectory) -> PathBuf {
    state.path().join("plan.json")
}

/// Reads the plan that is applied, being applied, or waits for a restart. Returns `None` if there is
/// none.
///
/// # Errors
/// If its file exists and cannot be read.
pub fn active_plan(state: &StateDirectory) -> Result<Option<ActivePlan>, HostError> {
    let path = path(state);
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(HostError::file("read", &path, cause, FIX)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|cause| HostError::file("parse", &path, cause.into(), FIX))
}

/// Reads the plan that owns CPUs of the machine now: applied since the last boot, or in the state
/// [`ActivePlanState::Begun`]. Returns `None` for a plan that awaits a restart or that a restart has
/// undone.
///
/// # Errors
/// As [`active_plan`].
pub fn active_plan_of_this_boot(state: &StateDirectory) -> Result<Option<ActivePlan>, HostError> {
    of_this_boot(&RunningKernel, state)
}

pub(crate) fn of_this_boot(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<Option<ActivePlan>, HostError> {
    let plan = active_plan(state)?;
    Ok(plan.filter(|plan| {
        plan.boot == boot_id(kernel) && plan.state != ActivePlanState::AwaitsRestart
    }))
}

/// Returns whether the plan's file exists, even if it cannot be parsed.
pub(crate) fn exists(state: &StateDirectory) -> bool {
    path(state).exists()
}

/// Replaces the plan's file atomically.
pub(crate) fn write(state: &StateDirectory, plan: &ActivePlan) -> Result<(), HostError> {
    let path = path(state);
    let try_write = || replace_file(&path, &serde_json::to_vec_pretty(plan)?);
    try_write().map_err(|cause| {
        HostError::file(
            "write the active plan",
            &path,
            cause,
            "set RAMPART_STATE_DIR to a writable directory with free space",
        )
    })
}

/// Removes the file after the plan was undone.
pub(crate) fn remove(state: &StateDirectory) -> Result<(), HostError> {
    let path = path(state);
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            let fix = format!("rm {}", path.display());
            Err(HostError::file("remove", &path, cause, fix))
        }
        _ => Ok(()),
    }
}
