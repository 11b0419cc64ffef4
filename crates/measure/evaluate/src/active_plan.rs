// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks whether an evaluation may begin on a machine with an active plan, and on which CPUs.

use rampart_host::{StateDirectory, active_domain, refuse_if_a_plan_is_active};
use rampart_model::{ActivePlan, EvaluationSettings, Machine};

use crate::EvaluateError;
use crate::effects::PlanRequest;

/// Refuses to measure another plan than the active one, and to compare, which begins without a plan.
///
/// # Errors
/// Returns an error that names the active plan if the request conflicts with it.
pub(crate) fn refuse_comparison(
    active: Option<&ActivePlan>,
    request: Option<&PlanRequest>,
) -> Result<(), EvaluateError> {
    let (Some(active), Some(request)) = (active, request) else {
        return Ok(());
    };
    if request.compares() {
        return Err(EvaluateError::PlanIsActive {
            file: active.file.clone(),
        });
    }
    if !request.is(&active.resolved) {
        return Err(EvaluateError::AnotherPlanIsActive {
            file: request.file.clone(),
            active: active.file.clone(),
        });
    }
    Ok(())
}

/// Returns the machine with all CPUs that a meter can use: an isolated partition takes its CPUs from
/// all processes outside, including this one, and a meter that enters its group can use them (Linux
/// Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition).
pub(crate) fn with_reachable_cpus(machine: &Machine, active: Option<&ActivePlan>) -> Machine {
    let mut machine = machine.clone();
    let domains = active.iter().flat_map(|plan| &plan.domains);
    for domain in domains.filter(|domain| domain.group.is_some()) {
        machine.topology.allowed = machine.topology.allowed.union(&domain.cpus);
    }
    machine
}

/// Records in the settings whether the isolation of each domain is in effect. A domain without one gets
/// its own for each run.
///
/// # Errors
/// Returns an error if that isolation would conflict with the active plan.
pub(crate) fn note_isolation(
    plan: &mut EvaluationSettings,
    active: Option<&ActivePlan>,
    state: &StateDirectory,
) -> Result<(), EvaluateError> {
    if active.is_none() {
        return Ok(());
    }
    let mut all_isolated = true;
    for domain in &plan.domains {
        if !domain.selection.kind.is_housekeeping() && active_domain(state, &domain.cpus)?.is_none()
        {
            refuse_if_a_plan_is_active(state, &domain.cpus)?;
            all_isolated = false;
        }
    }
    if let Some(measured) = &mut plan.measured {
        measured.active = all_isolated;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::variants::tests::request;
    use rampart_host::{MachineRoot, read_machine};

    /// Returns a plan with an isolated domain and one without isolation.
    fn active_plan() -> ActivePlan {
        let mut active: ActivePlan = serde_json::from_value(serde_json::json!({
            "schema_version": 1, "tool_version": "0", "state": "active", "applied_at": 0,
            "boot": "", "file": "active.toml", "text": "",
            "resolved": request(false, false, 0).resolved,
            "domains": [
                { "name": "press", "kind": "task", "cpus": "2", "isolation": "isolated-partition",
                  "group": "/sys/fs/cgroup/rampart-press" },
                { "name": "loop", "kind": "task", "cpus": "3", "isolation": "affinity-only" }
            ],
            "changes": {
                "schema_version": 1, "tool_version": "0", "steps": [], "boot_arguments": []
            }
        }))
        .expect("an active plan");
        active.resolved.fingerprint = "of another day".to_owned();
        active
    }

    #[test]
    fn measures_the_active_plan_and_refuses_comparison_and_other_plans() {
        let active = active_plan();
        let asked = |before_after, ablate| {
            let request = request(before_after, ablate, 1);
            refuse_comparison(Some(&active), Some(&request))
        };
        asked(false, false).expect("it is measured");
        for (before_after, ablate) in [(true, false), (false, true)] {
            let why = asked(before_after, ablate)
                .expect_err("compared")
                .to_string();
            assert!(
                why.contains("active.toml") && why.contains("rampart release"),
                "{why}"
            );
        }
        let mut other = active.clone();
        other.resolved.domains.clear();
        other.resolved.boot = serde_json::from_value(serde_json::json!({ "arguments": ["nosmt"] }))
            .expect("a boot section");
        let why =
            refuse_comparison(Some(&other), Some(&request(false, false, 0))).expect_err("another");
        assert!(
            matches!(why, EvaluateError::AnotherPlanIsActive { .. }),
            "{why}"
        );
        refuse_comparison(None, Some(&request(true, true, 1))).expect("no plan is active");
        refuse_comparison(Some(&active), None).expect("no plan is asked for");
    }

    #[test]
    fn reaches_the_cpus_of_an_isolated_partition() {
        let mut machine = read_machine(&MachineRoot::system());
        machine.topology.allowed = "0-1".parse().expect("CPUs");
        let reached = |active| {
            with_reachable_cpus(&machine, active)
                .topology
                .allowed
                .to_string()
        };
        assert_eq!(reached(None), "0-1");
        // Isolation by affinity alone takes no CPU, and there is no group to enter.
        assert_eq!(reached(Some(&active_plan())), "0-2");
    }
}
