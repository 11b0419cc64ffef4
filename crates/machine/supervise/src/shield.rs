// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A shield around CPUs: a plan of one task, applied with its isolation steps only.

use std::path::PathBuf;

use rampart_host::{HostError, MachineRoot, StateDirectory, active_plan};
use rampart_model::{
    ActivePlan, ChangeStep, CpuRequest, CpuSet, DomainKind, Enforcement, Finding, Plan,
    PlannedDomain, PlannedPolicy, SchedulingPolicy, Severity, StepKind,
};

use crate::SuperviseError;
use crate::plan_file::{PlanFile, PlanFileError};
use crate::release::release;

/// Name of the domain that a shield creates.
pub const SHIELD_DOMAIN: &str = "shield";

/// Why a shield was not created or removed.
#[derive(Debug, thiserror::Error)]
pub enum ShieldError {
    /// Another plan is active, or the state directory cannot be used.
    #[error(transparent)]
    Supervise(#[from] SuperviseError),
    /// The CPUs cannot be shielded on this machine.
    #[error(transparent)]
    Plan(#[from] PlanFileError),
}

impl From<HostError> for ShieldError {
    fn from(error: HostError) -> Self {
        Self::Supervise(error.into())
    }
}

/// Isolates CPUs for one domain named [`SHIELD_DOMAIN`] and calls `progress` for each step.
///
/// # Errors
/// If a plan is active, or the machine refuses a step.
pub fn shield(
    state: &StateDirectory,
    cpus: &CpuSet,
    policy: Option<SchedulingPolicy>,
    tool_version: &str,
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<ActivePlan, ShieldError> {
    refuse_other_plan(state)?;
    rampart_host::check_that_no_plan_is_active(state)?;
    let file = plan_file(state);
    std::fs::create_dir_all(state.path())
        .map_err(SuperviseError::file("create the directory", state.path()))?;
    std::fs::write(&file, rampart_plan::write(&shield_plan(cpus, policy)))
        .map_err(SuperviseError::file("write", &file))?;
    let root = MachineRoot::system();
    let plan = PlanFile::read(&file, &root)?;
    plan.check_fit()?;
    let mut changes = plan.change_list(&root, tool_version);
    changes
        .steps
        .retain(|step| step.kind == StepKind::Isolation || step.name == IDLE_STATES);
    changes.boot_arguments.clear();
    Ok(plan.apply(&changes, state, tool_version, progress)?)
}

/// Removes the shield.
///
/// # Errors
/// If another plan than a shield is active, or a program still runs in the shield.
pub fn unshield(state: &StateDirectory) -> Result<rampart_model::ReleaseReport, ShieldError> {
    refuse_other_plan(state)?;
    Ok(release(state)?)
}

/// The setting that is part of the isolation: a CPU without other work sleeps more deeply than a busy one.
const IDLE_STATES: &str = "idle-states";

fn plan_file(state: &StateDirectory) -> PathBuf {
    state.path().join("shield.toml")
}

/// Checks that the only plan of the machine is a shield. A shield must not replace or release the
/// user's plan, even one that awaits a restart.
fn refuse_other_plan(state: &StateDirectory) -> Result<(), SuperviseError> {
    let file = plan_file(state);
    let own = std::path::absolute(&file)
        .map_err(SuperviseError::file("find", &file))?
        .display()
        .to_string();
    let Some(present) = active_plan(state)? else {
        return Ok(());
    };
    if present.file == own {
        return Ok(());
    }
    let finding = Finding::new(
        Severity::Error,
        state.path().join("plan.json").display().to_string(),
        "another plan is active, and `rampart shield` does not change it",
    );
    Err(SuperviseError::Missing(
        finding
            .values(present.file, format!("{own}, or no plan"))
            .fix("rampart release"),
    ))
}

/// Returns the plan of one task on these CPUs. Its policy is `warn`, so that rules about the rest
/// of the machine do not refuse a shield.
fn shield_plan(cpus: &CpuSet, policy: Option<SchedulingPolicy>) -> Plan {
    let mut domain = PlannedDomain::new(SHIELD_DOMAIN, DomainKind::Task);
    domain.cpus = Some(CpuRequest::List(cpus.clone()));
    domain.policy = policy.map(PlannedPolicy);
    let mut plan = Plan::default();
    plan.machine.policy = Enforcement::Warn;
    plan.domains.push(domain);
    plan
}
