// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active plan, and the destinations of programs.

use rampart_host::{
    PlacementGroup, StateDirectory, ThreadPlacement, active_plan, boot_id, home_group, is_inside,
};
use rampart_model::{
    ActivePlan, ActivePlanState, CpuSet, DomainKind, DomainProgram, Finding, IsolationMechanism,
    Plan, PlannedDomain, SchedulingPolicy, Severity,
};

use crate::SuperviseError;

/// The name of the housekeeping CPUs as a destination, in place of a domain's name.
pub const HOUSEKEEPING: &str = "housekeeping";

/// The active plan with its parsed text.
#[derive(Debug, Clone)]
pub struct LoadedPlan {
    /// The active plan.
    pub plan: ActivePlan,
    /// The parsed text of the plan.
    pub planned: Plan,
}

/// A set of CPUs to which programs can be moved: a domain or the housekeeping CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Name of the domain, or [`HOUSEKEEPING`].
    pub name: String,
    /// Kind of the domain; `None` for housekeeping.
    pub kind: Option<DomainKind>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// Isolation of these CPUs; `None` for housekeeping.
    pub isolation: Option<IsolationMechanism>,
    /// Control group of the domain; [`PlacementGroup::AsIs`] if it has none.
    pub group: PlacementGroup,
    /// Scheduling policy from the plan; `None` if the plan sets none.
    pub policy: Option<SchedulingPolicy>,
}

fn missing(location: &str, what: &str, fix: String) -> SuperviseError {
    SuperviseError::Missing(Finding::new(Severity::Error, location, what).fix(fix))
}

impl LoadedPlan {
    /// Loads the active plan; returns `None` if no plan is applied.
    ///
    /// # Errors
    /// If the plan cannot be read or is applied only in part.
    pub fn load(state: &StateDirectory) -> Result<Option<Self>, SuperviseError> {
        let Some(plan) = active_plan(state)? else {
            return Ok(None);
        };
        let file = plan.file.clone();
        let apply = format!("rampart apply {file}");
        match plan.state {
            _ if plan.boot != boot_id() => {
                return Err(missing(
                    &file,
                    "the machine was restarted after the plan was applied, so its isolation is not in effect any more",
                    apply,
                ));
            }
            ActivePlanState::Active => {}
            ActivePlanState::Begun => {
                return Err(missing(
                    &file,
                    "the plan is being applied, or applying it was interrupted",
                    format!("rampart release && {apply}"),
                ));
            }
            ActivePlanState::AwaitsRestart => {
                return Err(missing(
                    &file,
                    "the plan waits for a restart of the machine, so its isolation is not in effect yet",
                    format!("restart the machine, then `{apply}`"),
                ));
            }
        }
        let planned = rampart_plan::parse(&plan.text, &file)?;
        Ok(Some(Self { plan, planned }))
    }

    /// Loads the active plan.
    ///
    /// # Errors
    /// As [`Self::load`], and if no plan is active.
    pub fn required(state: &StateDirectory) -> Result<Self, SuperviseError> {
        Self::load(state)?.ok_or_else(|| {
            missing(
                &state.path().join("plan.json").display().to_string(),
                "no plan is active on this machine",
                "rampart apply PLAN".to_owned(),
            )
        })
    }

    /// Returns a domain of the plan.
    ///
    /// # Errors
    /// If the plan has no domain of this name.
    pub fn domain(&self, name: &str) -> Result<&PlannedDomain, SuperviseError> {
        self.planned.domain(name).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> SuperviseError {
        let names: Vec<String> = self
            .destinations()
            .into_iter()
            .map(|destination| destination.name)
            .collect();
        SuperviseError::Usage(
            Finding::new(
                Severity::Error,
                self.plan.file.clone(),
                format!("the active plan has no domain `{name}`"),
            )
            .values(format!("`{name}`"), format!("one of {}", names.join(", ")))
            .fix("rampart run --list"),
        )
    }

    /// Returns all destinations: the domains in the order of the plan, then housekeeping.
    #[must_use]
    pub fn destinations(&self) -> Vec<Destination> {
        let domains = self.plan.domains.iter().map(|domain| {
            let planned = self.planned.domain(&domain.name);
            Destination {
                name: domain.name.clone(),
                kind: Some(domain.kind),
                cpus: domain.cpus.clone(),
                isolation: Some(domain.isolation),
                group: PlacementGroup::of(domain),
                policy: planned.and_then(|domain| domain.policy.map(|policy| policy.0)),
            }
        });
        let housekeeping = Destination {
            name: HOUSEKEEPING.to_owned(),
            kind: None,
            cpus: self.plan.resolved.housekeeping.clone(),
            isolation: None,
            group: PlacementGroup::AsIs,
            policy: None,
        };
        domains.chain([housekeeping]).collect()
    }

    /// Returns the destination of this name: a domain or `housekeeping`.
    ///
    /// # Errors
    /// If the plan has no domain of this name.
    pub fn destination(&self, name: &str) -> Result<Destination, SuperviseError> {
        self.destinations()
            .into_iter()
            .find(|destination| destination.name == name)
            .ok_or_else(|| self.unknown(name))
    }

    /// Returns the placement of a process in a destination. If the destination has no control group,
    /// the process leaves the group of a domain and keeps any other group.
    ///
    /// # Errors
    /// If the destination's CPUs leave Linux, or `cpus` are not a subset of its CPUs.
    pub fn placement(
        &self,
        destination: &Destination,
        process: u32,
        cpus: Option<&CpuSet>,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<ThreadPlacement, SuperviseError> {
        if let Some(kind) = destination.kind.filter(|kind| kind.leaves_linux()) {
            let name = &destination.name;
            let location = format!("domain {name}");
            let finding = match kind.program() {
                DomainProgram::Process => Finding::new(
                    Severity::Error,
                    location,
                    "a program gets a CPU that it may detach to only when it is started",
                )
                .values("a running process", "a program to start")
                .fix(format!("rampart run {name} -- PROGRAM")),
                _ => Finding::new(
                    Severity::Error,
                    location,
                    "a cell runs no process of this Linux",
                )
                .values("a cell", "a task or container")
                .fix(format!("rampart up {name}")),
            };
            return Err(SuperviseError::Usage(finding));
        }
        let wanted = self.wanted(destination, cpus)?;
        let group = match &destination.group {
            PlacementGroup::AsIs => self.group_outside(process),
            group => group.clone(),
        };
        Ok(ThreadPlacement {
            group,
            cpus: Some(wanted.clone()),
            policy: policy.or(destination.policy),
            nice,
        })
    }

    /// Returns the placement of a program that gets CPUs of a destination to detach to, and these CPUs; `None`
    /// if its threads run on the destination's CPUs under Linux. The program itself runs on the housekeeping CPUs.
    ///
    /// # Errors
    /// If `cpus` are not a subset of the destination's.
    pub fn detaching(
        &self,
        destination: &Destination,
        process: u32,
        cpus: Option<&CpuSet>,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<Option<(ThreadPlacement, CpuSet)>, SuperviseError> {
        let detaches =
            |kind: DomainKind| kind.leaves_linux() && kind.program() == DomainProgram::Process;
        if !destination.kind.is_some_and(detaches) {
            return Ok(None);
        }
        let taken = self.wanted(destination, cpus)?.clone();
        let location = ThreadPlacement {
            group: self.group_outside(process),
            cpus: Some(self.plan.resolved.housekeeping.clone()),
            policy,
            nice,
        };
        Ok(Some((location, taken)))
    }

    /// Returns the requested CPUs of a destination, or all.
    fn wanted<'a>(
        &self,
        destination: &'a Destination,
        cpus: Option<&'a CpuSet>,
    ) -> Result<&'a CpuSet, SuperviseError> {
        let wanted = cpus.unwrap_or(&destination.cpus);
        if !wanted.is_empty() && wanted.is_subset(&destination.cpus) {
            return Ok(wanted);
        }
        let finding = Finding::new(
            Severity::Error,
            format!("--cpus {wanted}"),
            format!("not all of these CPUs belong to `{}`", destination.name),
        );
        Err(SuperviseError::Usage(
            finding
                .values(wanted.to_string(), format!("some of {}", destination.cpus))
                .fix(format!("use --cpus {}", destination.cpus)),
        ))
    }

    /// Returns a group outside the domains if the process is in the group of a domain.
    fn group_outside(&self, process: u32) -> PlacementGroup {
        for domain in &self.plan.domains {
            let Some(group) = &domain.group else { continue };
            let group = match domain.unified {
                true => PlacementGroup::V2(group.into()),
                false => PlacementGroup::V1(group.into()),
            };
            if !is_inside(process, &group) {
                continue;
            }
            return match home_group(domain.unified) {
                Some(home) if domain.unified => PlacementGroup::V2(home),
                Some(home) => PlacementGroup::V1(home),
                None => PlacementGroup::AsIs,
            };
        }
        PlacementGroup::AsIs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_for_a_missing_plan_is_to_apply_one() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        assert!(LoadedPlan::load(&state).expect("none").is_none());
        let error = LoadedPlan::required(&state).expect_err("no plan is active");
        assert!(error.to_string().contains("rampart apply PLAN"), "{error}");
        assert!(matches!(error, SuperviseError::Missing(_)), "{error:?}");
    }
}
