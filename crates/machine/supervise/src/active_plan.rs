// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The active plan, and where each of its domains is.

use rampart_host::{
    PlacementGroup, StateDirectory, ThreadPlacement, active_plan, boot_id, home_group, is_inside,
};
use rampart_model::{
    ActivePlan, ActivePlanState, CpuSet, DomainKind, Finding, IsolationMechanism, Plan,
    PlannedDomain, SchedulingPolicy, Severity,
};

use crate::SuperviseError;

/// The word that stands for the housekeeping CPUs where a domain's name could stand.
pub const HOUSEKEEPING: &str = "housekeeping";

/// The active plan applied.
#[derive(Debug, Clone)]
pub struct LoadedPlan {
    /// What stands.
    pub plan: ActivePlan,
    /// The plan as its text says it.
    pub planned: Plan,
}

/// Where programs can be put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Name of the domain, or `housekeeping`.
    pub name: String,
    /// Its kind; none for housekeeping.
    pub kind: Option<DomainKind>,
    /// Its CPUs.
    pub cpus: CpuSet,
    /// The wall around them; none for housekeeping.
    pub isolation: Option<IsolationMechanism>,
    /// Its control group; [`PlacementGroup::AsIs`] where it has none.
    pub group: PlacementGroup,
    /// The policy that the plan gives to what runs there; none where it does not say.
    pub policy: Option<SchedulingPolicy>,
}

fn missing(location: &str, what: &str, fix: String) -> SuperviseError {
    SuperviseError::Missing(Finding::new(Severity::Error, location, what).fix(fix))
}

impl LoadedPlan {
    /// The active plan; none where none is applied.
    ///
    /// # Errors
    /// If it cannot be read, or only a part of it stands.
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
                    "the machine was restarted since the plan was applied, so its walls are gone",
                    apply,
                ));
            }
            ActivePlanState::Active => {}
            ActivePlanState::Begun => {
                return Err(missing(
                    &file,
                    "the plan is being applied, or its application was broken off",
                    format!("wait for it, or `rampart release`, then `{apply}`"),
                ));
            }
            ActivePlanState::AwaitsRestart => {
                return Err(missing(
                    &file,
                    "the plan waits for a restart of the machine, so its walls do not stand yet",
                    format!("restart the machine, then `{apply}`"),
                ));
            }
        }
        let planned = rampart_plan::parse(&plan.text, &file)?;
        Ok(Some(Self { plan, planned }))
    }

    /// The active plan.
    ///
    /// # Errors
    /// If none does.
    pub fn required(state: &StateDirectory) -> Result<Self, SuperviseError> {
        Self::load(state)?.ok_or_else(|| {
            missing(
                &state.path().join("plan.json").display().to_string(),
                "no plan is active on this machine",
                "rampart apply PLAN".to_owned(),
            )
        })
    }

    /// What the plan says of a domain.
    ///
    /// # Errors
    /// If it has none of this name.
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

    /// Where programs can be put: every domain in the order of the plan, then housekeeping.
    #[must_use]
    pub fn destinations(&self) -> Vec<Destination> {
        let domains = self.plan.domains.iter().map(|standing| {
            let planned = self.planned.domain(&standing.name);
            Destination {
                name: standing.name.clone(),
                kind: Some(standing.kind),
                cpus: standing.cpus.clone(),
                isolation: Some(standing.isolation),
                group: PlacementGroup::of(standing),
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

    /// Where programs of a domain, or of `housekeeping`, are put.
    ///
    /// # Errors
    /// If the plan has none of this name.
    pub fn destination(&self, name: &str) -> Result<Destination, SuperviseError> {
        self.destinations()
            .into_iter()
            .find(|destination| destination.name == name)
            .ok_or_else(|| self.unknown(name))
    }

    /// The place of a process in a destination. What has no control group of its own leaves that of
    /// another domain, and stays in any other.
    ///
    /// # Errors
    /// If `cpus` are not the destination's.
    pub fn placement(
        &self,
        destination: &Destination,
        process: u32,
        cpus: Option<&CpuSet>,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<ThreadPlacement, SuperviseError> {
        if destination.kind.is_some_and(DomainKind::leaves_linux) {
            return Err(SuperviseError::Usage(
                Finding::new(
                    Severity::Error,
                    format!("domain {}", destination.name),
                    "nothing of Linux runs in a cell",
                )
                .values("a cell", "a task or container")
                .fix(format!("rampart up {} starts its image", destination.name)),
            ));
        }
        let wanted = cpus.unwrap_or(&destination.cpus);
        if wanted.is_empty() || !wanted.is_subset(&destination.cpus) {
            let finding = Finding::new(
                Severity::Error,
                format!("--cpus {wanted}"),
                format!("these are not all CPUs of `{}`", destination.name),
            );
            return Err(SuperviseError::Usage(
                finding
                    .values(wanted.to_string(), format!("some of {}", destination.cpus))
                    .fix("name some of these, or another domain"),
            ));
        }
        let group = match &destination.group {
            PlacementGroup::AsIs => self.way_out(process),
            group => group.clone(),
        };
        Ok(ThreadPlacement {
            group,
            cpus: Some(wanted.clone()),
            policy: policy.or(destination.policy),
            nice,
        })
    }

    /// Out of the control group of a domain, where a process is in one.
    fn way_out(&self, process: u32) -> PlacementGroup {
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
    fn without_a_plan_the_mend_is_to_apply_one() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        assert!(LoadedPlan::load(&state).expect("none").is_none());
        let error = LoadedPlan::required(&state).expect_err("none stands");
        assert!(error.to_string().contains("rampart apply PLAN"), "{error}");
        assert!(matches!(error, SuperviseError::Missing(_)), "{error:?}");
    }
}
