// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shields that enter the isolation of an active plan.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rampart_model::{
    ActiveDomain, ActivePlan, ActivePlanState, CpuSet, Finding, Severity, ShieldReport,
};

use super::{ControlGroup, ControlGroupVersion, Shield};
use crate::changes::Changes;
use crate::groups::Hierarchies;
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::{Lock, SharedLock};
use crate::state_directory::is_root;
use crate::{HostError, StateDirectory, active_plan};

impl Shield {
    /// Enters the isolation of a domain of the active plan: [`Shield::admit`] moves processes into its
    /// control group, or binds them to its CPUs if it has only affinity. [`Shield::lower`] restores
    /// these processes and leaves the isolation in effect.
    ///
    /// # Errors
    /// If another process is changing the machine, or the group does not exist any more.
    pub fn of_active_domain(
        state: &StateDirectory,
        domain: &ActiveDomain,
    ) -> Result<Self, HostError> {
        let lock = is_root()
            .then(|| SharedLock::take(state, true))
            .transpose()?;
        Self::of_active_domain_on(
            Arc::new(RunningKernel),
            lock.map(|shared| shared.lock),
            state,
            domain,
        )
    }

    pub(super) fn of_active_domain_on(
        kernel: Arc<dyn Kernel>,
        lock: Option<Arc<Lock>>,
        state: &StateDirectory,
        domain: &ActiveDomain,
    ) -> Result<Self, HostError> {
        let hierarchies = Hierarchies::of(&*kernel);
        let entered = domain
            .group
            .as_deref()
            .map(|group| enter(&*kernel, &hierarchies, domain, Path::new(group)))
            .transpose()?;
        let (group, admit_to) = entered.unzip();
        let note = Finding::new(
            Severity::Note,
            domain.name.as_str(),
            "this is the isolation of the active plan, which also placed interrupts and workqueues",
        );
        Ok(Self {
            changes: Mutex::new(Changes::new(Arc::clone(&kernel), state)),
            kernel,
            hierarchies,
            report: ShieldReport {
                cpus: domain.cpus.clone(),
                isolation: domain.isolation,
                partition: domain.partition.clone(),
                interrupts: Vec::new(),
                workqueues: None,
                resume_latency: None,
                tasks_moved: 0,
                tasks_left: 0,
                findings: vec![note],
            },
            group,
            admit_to,
            recorded: lock.is_some(),
            of_active_plan: true,
            lowered: false,
            _lock: lock,
        })
    }
}

/// Returns the group for containers, and the group to which processes are moved.
fn enter(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    domain: &ActiveDomain,
    group: &Path,
) -> Result<(ControlGroup, PathBuf), HostError> {
    let gone = |present: &str| HostError::Request {
        location: group.display().to_string(),
        what: format!(
            "cannot enter the isolation of `{}`, a domain of the active plan",
            domain.name
        ),
        found: present.to_owned(),
        expected: "the control group of the applied plan".to_owned(),
        fix: "run `rampart release`, then apply the plan again".to_owned(),
    };
    if !kernel.is_directory(group) {
        return Err(gone("no such group"));
    }
    let version = match domain.unified {
        true => ControlGroupVersion::V2,
        false => ControlGroupVersion::V1,
    };
    let path = hierarchies
        .cpus(version)
        .and_then(|mount| group.strip_prefix(mount).ok())
        .ok_or_else(|| gone("a directory in no mounted hierarchy"))?;
    let admit_to = domain
        .members
        .as_ref()
        .map_or_else(|| group.to_owned(), PathBuf::from);
    let control_group = ControlGroup {
        version,
        path: format!("/{}", path.display()),
    };
    Ok((control_group, admit_to))
}

/// Returns the domain of the active plan that has these CPUs, or `None` if no plan is applied
/// completely or it has no such domain.
///
/// # Errors
/// If the active plan cannot be read.
pub fn active_domain(
    state: &StateDirectory,
    cpus: &CpuSet,
) -> Result<Option<ActiveDomain>, HostError> {
    active_domain_on(&RunningKernel, state, cpus)
}

fn active_domain_on(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    cpus: &CpuSet,
) -> Result<Option<ActiveDomain>, HostError> {
    let plan = active_plan::of_this_boot(kernel, state)?
        .filter(|plan| plan.state == ActivePlanState::Active);
    let mut domains = plan.into_iter().flat_map(|plan| plan.domains);
    Ok(domains.find(|domain| !cpus.is_empty() && cpus.is_subset(&domain.cpus)))
}

/// Refuses to raise a shield while a plan is active ([`crate::active_plan_of_this_boot`]), because the
/// plan owns the machine's CPUs.
///
/// # Errors
/// If a plan is active.
pub fn refuse_if_a_plan_is_active(state: &StateDirectory, cpus: &CpuSet) -> Result<(), HostError> {
    match active_plan::of_this_boot(&RunningKernel, state)? {
        Some(plan) => Err(plan_is_active(&plan, cpus)),
        None => Ok(()),
    }
}

fn plan_is_active(plan: &ActivePlan, cpus: &CpuSet) -> HostError {
    let location = format!("shield of {}", cpus.named());
    if plan.state == ActivePlanState::Begun {
        return HostError::Request {
            location,
            what: "a plan is being applied, or applying it was interrupted".to_owned(),
            found: format!("{}: begun", plan.file),
            expected: "no plan, or one that is applied completely".to_owned(),
            fix: "wait until it is applied\nrampart release".to_owned(),
        };
    }
    HostError::Request {
        location,
        what: "a plan is active, and none of its domains has these CPUs".to_owned(),
        found: format!(
            "{}: {}",
            plan.file,
            plan.domains
                .iter()
                .map(|domain| format!("{} on {}", domain.name, domain.cpus.named()))
                .collect::<Vec<_>>()
                .join(", ")
        ),
        expected: "no applied plan, or one with a domain on these CPUs".to_owned(),
        fix: format!("rampart evaluate --plan {}\nrampart release", plan.file),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{
        APPLICATION_SCHEMA_VERSION, ChangeList, DomainKind, IsolationMechanism, ResolvedPlan,
    };

    fn domain(group: Option<&Path>, unified: bool) -> ActiveDomain {
        ActiveDomain {
            name: "press".to_owned(),
            kind: DomainKind::Task,
            cpus: "1".parse().expect("a CPU"),
            isolation: if group.is_some() {
                IsolationMechanism::CpusetV1
            } else {
                IsolationMechanism::AffinityOnly
            },
            partition: None,
            group: group.map(|group| group.display().to_string()),
            members: None,
            unified,
        }
    }

    fn plan(boot: String) -> ActivePlan {
        ActivePlan {
            schema_version: APPLICATION_SCHEMA_VERSION,
            tool_version: "0".to_owned(),
            state: ActivePlanState::Active,
            applied_at: rampart_model::Nanos::ZERO,
            boot,
            file: "press.toml".to_owned(),
            text: String::new(),
            resolved: serde_json::from_value::<ResolvedPlan>(serde_json::json!({
                "schema_version": 1, "fingerprint": "", "housekeeping": "0", "real_time": "1",
                "smt": "idle-sibling", "cpus": [], "domains": [], "interrupts": [], "caches": [],
                "nodes": [], "host": {}, "boot": {}, "findings": []
            }))
            .expect("a resolved plan"),
            domains: vec![domain(None, false)],
            changes: ChangeList {
                schema_version: APPLICATION_SCHEMA_VERSION,
                tool_version: "0".to_owned(),
                steps: Vec::new(),
                boot_arguments: Vec::new(),
            },
            findings: Vec::new(),
            kept_interrupts: Vec::new(),
        }
    }

    #[test]
    fn a_shield_of_affinity_alone_reports_the_active_plan() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        let shield =
            Shield::of_active_domain_on(Arc::new(RunningKernel), None, &state, &domain(None, true))
                .expect("a shield");
        assert!(shield.control_group().is_none());
        assert_eq!(shield.report().isolation, IsolationMechanism::AffinityOnly);
        let report = shield.lower().expect("lowered");
        assert!(report.findings[0].what.contains("active plan"));
    }

    #[test]
    fn a_missing_group_is_reported_with_the_fix() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        for group in [directory.path().join("gone"), directory.path().to_owned()] {
            let refused = Shield::of_active_domain_on(
                Arc::new(RunningKernel),
                None,
                &state,
                &domain(Some(&group), false),
            )
            .expect_err("no such group")
            .to_string();
            assert!(refused.contains("rampart release"), "{refused}");
        }
    }

    #[test]
    fn no_shield_is_raised_while_a_plan_of_this_boot_is_active() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        let cpus: CpuSet = "1".parse().expect("a CPU");
        let check = || refuse_if_a_plan_is_active(&state, &cpus);
        check().expect("no plan is active");
        let boot = crate::journal::boot_id(&RunningKernel);
        active_plan::write(&state, &plan(boot)).expect("written");
        let refused = check().expect_err("a plan is active").to_string();
        let found = |cpus: &str| {
            let cpus = cpus.parse().expect("CPUs");
            active_domain_on(&RunningKernel, &state, &cpus).expect("read")
        };
        assert_eq!(
            found("1").map(|domain| domain.name).as_deref(),
            Some("press")
        );
        assert!(found("0-1").is_none());
        assert!(
            refused.contains("press on CPU 1") && refused.contains("--plan press.toml"),
            "{refused}"
        );
        let of_state = |state| ActivePlan {
            state,
            ..plan(crate::journal::boot_id(&RunningKernel))
        };
        active_plan::write(&state, &of_state(ActivePlanState::AwaitsRestart)).expect("written");
        check().expect("a plan that awaits a restart is not in effect");
        assert!(found("1").is_none());
        active_plan::write(&state, &of_state(ActivePlanState::Begun)).expect("written");
        let begun = check().expect_err("a begun plan").to_string();
        assert!(
            begun.contains("rampart release") && !begun.contains("--plan"),
            "{begun}"
        );
        assert!(found("1").is_none());
        active_plan::write(&state, &plan("another boot".to_owned())).expect("written");
        check().expect("the restart undid it");
        let cpus = "1".parse().expect("a CPU");
        assert!(
            active_domain_on(&RunningKernel, &state, &cpus)
                .expect("read")
                .is_none()
        );
    }
}
