// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies a plan: the isolation of its domains, their shares of caches, then the knobs. All of it
//! stays in effect after the process has ended, until [`crate::release`].

mod caches;
mod knob_step;
mod left_to_others;
#[cfg(test)]
mod live_tests;
mod only_one_plan;
#[cfg(test)]
mod resource_tests;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rampart_model::{
    APPLICATION_SCHEMA_VERSION, ActiveDomain, ActivePlan, ActivePlanState, ChangeList, ChangeStep,
    CpuSet, DomainProgram, Finding, IsolationMechanism, Nanos, ResolvedDomain, ResolvedPlan,
    StepKind,
};
use rampart_rules::DETACHED_OWNERS;

use self::only_one_plan::{AwaitsRestart, plan_written_in_this_boot, refuse_second};
use crate::active_plan;
use crate::boot_loader::{self, BootReport};
use crate::changes::Changes;
use crate::driver::load_module;
use crate::groups::Hierarchies;
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::Lock;
use crate::release::release_first;
use crate::shield::{self, ControlGroupVersion, Raised};
use crate::state_directory::is_root;
use crate::systemd;
use crate::{HostError, StateDirectory, journal};

pub use self::only_one_plan::{check_before_restart, check_that_no_plan_is_active};

/// A plan to apply, with its changes.
#[derive(Debug)]
pub struct Application<'a> {
    /// Version of the tool.
    pub tool_version: &'a str,
    /// The plan's file.
    pub file: &'a str,
    /// The text of that file.
    pub text: &'a str,
    /// The plan, resolved on this machine.
    pub resolved: &'a ResolvedPlan,
    /// The changes to make.
    pub changes: &'a ChangeList,
}

/// Applies a plan and returns the active plan. Calls `progress` before each step.
///
/// Every old value is on disk before it is changed, and every new value is read back. At the first
/// step that the kernel refuses, all earlier changes are undone.
///
/// # Errors
/// Without root, if another plan is active or another process changes the machine, if the journal
/// cannot be written, or the kernel refuses a step.
pub fn apply(
    state: &StateDirectory,
    application: &Application<'_>,
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<ActivePlan, HostError> {
    refuse_other_than_root(application)?;
    // Its file exists when it is loaded. `release` unloads it.
    let has_owners = |step: &ChangeStep| {
        let mut locations = step.locations.iter();
        locations.any(|location| location.location == DETACHED_OWNERS)
    };
    if application.changes.to_apply().any(has_owners) {
        load_module(state, "detach", None)?;
    }
    let _lock = Lock::take(state, true)?;
    apply_on(Arc::new(RunningKernel), state, application, progress)
}

fn apply_on(
    kernel: Arc<dyn Kernel>,
    state: &StateDirectory,
    application: &Application<'_>,
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<ActivePlan, HostError> {
    refuse_second(&*kernel, state, AwaitsRestart::Refused)?;
    let mut plan = ActivePlan {
        findings: release_first(&*kernel, state)?,
        ..begun_plan(&*kernel, application)
    };
    active_plan::write(state, &plan)?;
    let mut changes = Changes::persistent(Arc::clone(&kernel), state);
    let made = make(&mut changes, &mut plan, progress).and_then(|()| {
        plan.state = ActivePlanState::Active;
        changes.step()?;
        active_plan::write(state, &plan)?;
        changes.step()
    });
    match made {
        Ok(()) => Ok(plan),
        Err(error) => {
            // If this fails too, the journal still contains the changes for `release`.
            if changes.undo().is_ok() {
                let _ = active_plan::remove(state);
            }
            Err(error)
        }
    }
}

/// Writes the plan's arguments to the boot loader's files, and stores the plan until the restart.
/// [`apply`] continues after the restart; [`crate::release`] undoes all changes. Writes nothing if
/// the next boot has the arguments already, but still awaits the restart if they were written in this
/// boot.
///
/// # Errors
/// As [`apply`] and [`crate::plan_boot`]; and if a file cannot be written, or the loader's program
/// fails or generates a configuration without the arguments. Then every change is undone, or in the
/// journal for `release`.
pub fn prepare_restart(
    state: &StateDirectory,
    application: &Application<'_>,
) -> Result<BootReport, HostError> {
    refuse_other_than_root(application)?;
    let _lock = Lock::take(state, true)?;
    prepare_restart_on(Arc::new(RunningKernel), state, application)
}

fn prepare_restart_on(
    kernel: Arc<dyn Kernel>,
    state: &StateDirectory,
    application: &Application<'_>,
) -> Result<BootReport, HostError> {
    refuse_second(&*kernel, state, AwaitsRestart::Replaced)?;
    let waits = plan_written_in_this_boot(&*kernel, state)?
        .is_some_and(|present| present.state == ActivePlanState::AwaitsRestart);
    let arguments = &application.changes.boot_arguments;
    let mut report = boot_loader::prepare(Arc::clone(&kernel), state, arguments)?;
    report.changed |= waits;
    if report.changed {
        let plan = ActivePlan {
            state: ActivePlanState::AwaitsRestart,
            ..begun_plan(&*kernel, application)
        };
        active_plan::write(state, &plan)?;
    }
    Ok(report)
}

fn begun_plan(kernel: &dyn Kernel, application: &Application<'_>) -> ActivePlan {
    ActivePlan {
        schema_version: APPLICATION_SCHEMA_VERSION,
        tool_version: application.tool_version.to_owned(),
        state: ActivePlanState::Begun,
        applied_at: now(),
        boot: journal::boot_id(kernel),
        file: application.file.to_owned(),
        text: application.text.to_owned(),
        resolved: application.resolved.clone(),
        domains: Vec::new(),
        changes: application.changes.clone(),
        findings: Vec::new(),
        kept_interrupts: Vec::new(),
    }
}

fn refuse_other_than_root(application: &Application<'_>) -> Result<(), HostError> {
    if is_root() {
        return Ok(());
    }
    Err(HostError::Request {
        location: application.file.to_owned(),
        what: "only root may change the machine".to_owned(),
        found: format!("user {}", rustix::process::geteuid().as_raw()),
        expected: "root".to_owned(),
        fix: "run the same command with sudo".to_owned(),
    })
}

fn now() -> Nanos {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map(Nanos::from)
        .unwrap_or(Nanos::ZERO)
}

fn make(
    changes: &mut Changes,
    plan: &mut ActivePlan,
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let steps: Vec<ChangeStep> = plan.changes.to_apply().cloned().collect();
    let (first, others): (Vec<_>, Vec<_>) =
        steps.into_iter().partition(knob_step::is_before_isolation);
    for step in &first {
        progress(step);
        plan.findings.extend(knob_step::make(changes, step)?);
    }
    raise_isolation_of_all(changes, &*kernel, plan, &others, progress)?;
    caches::share(changes, plan, &others, progress)?;
    for step in others.iter().filter(|step| step.kind == StepKind::Knob) {
        progress(step);
        plan.findings.extend(knob_step::make(changes, step)?);
    }
    Ok(())
}

fn raise_isolation_of_all(
    changes: &mut Changes,
    kernel: &dyn Kernel,
    plan: &mut ActivePlan,
    steps: &[ChangeStep],
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<(), HostError> {
    // Before the isolation: a slice of systemd that lists their CPUs would make partitions invalid.
    let slices = left_to_others::slices(&plan.resolved, &plan.changes);
    if steps.iter().any(|step| step.kind == StepKind::Isolation) && !slices.is_empty() {
        let findings = systemd::keep_slices_on(changes, &slices, &plan.resolved.housekeeping)?;
        plan.findings.extend(findings);
    }
    let hierarchies = Hierarchies::of(kernel);
    let mut shielded = CpuSet::new();
    let resolved = plan.resolved.clone();
    for domain in &resolved.domains {
        if domain.kind.leaves_linux() {
            // Its CPUs are shielded from interrupts, so that they can leave Linux at once.
            plan.domains.push(outside_linux(domain));
            shielded = shielded.union(&domain.cpus);
            continue;
        }
        let isolation = steps
            .iter()
            .find(|step| step.kind == StepKind::Isolation && step.name == domain.name);
        let Some(step) = isolation else {
            continue;
        };
        progress(step);
        shield::check(kernel, &domain.cpus, &resolved.housekeeping)?;
        let request = shield::Request {
            cpus: &domain.cpus,
            housekeeping: &resolved.housekeeping,
            name: format!("rampart-{}", domain.name),
        };
        refuse_taken_name(kernel, &hierarchies, &request)?;
        let raised = shield::raise_isolation(changes, &hierarchies, &request)?;
        let (active, findings) = active_domain(&hierarchies, domain, raised)?;
        plan.domains.push(active);
        plan.findings.extend(findings);
        shielded = shielded.union(&domain.cpus);
    }
    if shielded.is_empty() {
        return Ok(());
    }
    let kept = shield::keep_away(
        changes,
        &shielded,
        &resolved.housekeeping,
        &left_to_others::kept_away(&resolved, &plan.changes),
    )?;
    plan.findings.extend(kept.findings);
    for interrupt in kept.interrupts {
        if let Some(reason) = interrupt.reason {
            plan.kept_interrupts.push(interrupt.interrupt);
            plan.findings.push(
                Finding::new(
                    rampart_model::Severity::Warning,
                    format!("interrupt {} ({})", interrupt.interrupt, interrupt.name),
                    reason,
                )
                .fix("boot with irqaffinity= and isolcpus=managed_irq, as `rampart apply --boot` writes them"),
            );
        }
    }
    Ok(())
}

/// Returns a domain whose CPUs leave Linux as an active domain. Its CPUs are taken when its program starts.
fn outside_linux(domain: &ResolvedDomain) -> ActiveDomain {
    ActiveDomain {
        name: domain.name.clone(),
        kind: domain.kind,
        cpus: domain.cpus.clone(),
        isolation: match domain.kind.program() {
            DomainProgram::Image => IsolationMechanism::Cell,
            _ => IsolationMechanism::Detached,
        },
        partition: None,
        group: None,
        members: None,
        unified: false,
    }
}

/// Refuses a domain whose control group exists already: another program created it.
fn refuse_taken_name(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    request: &shield::Request<'_>,
) -> Result<(), HostError> {
    let mounts = hierarchies
        .unified
        .as_deref()
        .into_iter()
        .chain(hierarchies.legacy_with("cpuset"));
    for mount in mounts {
        let group = mount.join(&request.name);
        if kernel.exists(&group) {
            return Err(HostError::Request {
                location: group.display().to_string(),
                what: "the domain's control group exists already and is not from this plan"
                    .to_owned(),
                found: "a group".to_owned(),
                expected: "none".to_owned(),
                fix: format!(
                    "end what runs in it and remove it: rmdir {}",
                    group.display()
                ),
            });
        }
    }
    Ok(())
}

/// Returns the active domain. Refuses affinity alone, which does not keep other threads off the CPUs.
fn active_domain(
    hierarchies: &Hierarchies,
    domain: &ResolvedDomain,
    raised: Raised,
) -> Result<(ActiveDomain, Vec<Finding>), HostError> {
    if matches!(
        raised.isolation,
        IsolationMechanism::None | IsolationMechanism::AffinityOnly
    ) {
        let reasons: Vec<String> = raised.findings.iter().map(ToString::to_string).collect();
        return Err(HostError::Step {
            step: format!("isolation of {}", domain.name),
            what: format!(
                "the kernel isolates no control group on {}: {}",
                domain.cpus.named(),
                reasons.join("; ")
            ),
            fix: "remove these causes".to_owned(),
        });
    }
    let own = raised.group.as_ref();
    let group = own.and_then(|group| {
        let mount = hierarchies.cpus(group.version)?;
        Some(mount.join(group.path.trim_start_matches('/')))
    });
    let text = |path: &Path| path.display().to_string();
    Ok((
        ActiveDomain {
            name: domain.name.clone(),
            kind: domain.kind,
            cpus: domain.cpus.clone(),
            isolation: raised.isolation,
            partition: raised.partition,
            group: group.as_deref().map(text),
            members: raised.admit_to.as_deref().map(text),
            unified: own.is_some_and(|group| group.version == ControlGroupVersion::V2),
        },
        raised.findings,
    ))
}
