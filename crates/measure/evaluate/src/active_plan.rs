// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An evaluation on a machine whose plan stands applied: whether it may begin, and where it measures.

use rampart_host::{StateDirectory, active_domain, refuse_if_a_plan_is_active};
use rampart_model::{ActivePlan, EvaluationSettings, Machine};

use crate::EvaluateError;
use crate::effects::PlanRequest;

/// Refuses what cannot be measured while this plan stands: another plan, and a comparison, which
/// begins without it.
///
/// # Errors
/// With what has to be taken back.
pub(crate) fn refuse_comparison(
    standing: Option<&ActivePlan>,
    request: Option<&PlanRequest>,
) -> Result<(), EvaluateError> {
    let (Some(standing), Some(request)) = (standing, request) else {
        return Ok(());
    };
    if request.compares() {
        return Err(EvaluateError::PlanIsActive {
            file: standing.file.clone(),
        });
    }
    if !request.is(&standing.resolved) {
        return Err(EvaluateError::AnotherPlanIsActive {
            file: request.file.clone(),
            standing: standing.file.clone(),
        });
    }
    Ok(())
}

/// The machine with all CPUs that a meter can be brought to: an isolated partition takes its CPUs from
/// everybody outside, this process among them, and who enters its group has them (Linux
/// Documentation/admin-guide/cgroup-v2.rst, cpuset.cpus.partition).
pub(crate) fn with_reachable_cpus(machine: &Machine, standing: Option<&ActivePlan>) -> Machine {
    let mut machine = machine.clone();
    let domains = standing.iter().flat_map(|plan| &plan.domains);
    for domain in domains.filter(|domain| domain.group.is_some()) {
        machine.topology.allowed = machine.topology.allowed.union(&domain.cpus);
    }
    machine
}

/// Notes in the plan of an experiment whether a wall stands for each of its domains. One that has none
/// raises its own, which must not be in the way of the plan.
///
/// # Errors
/// If it is.
pub(crate) fn note_isolation(
    plan: &mut EvaluationSettings,
    standing: Option<&ActivePlan>,
    state: &StateDirectory,
) -> Result<(), EvaluateError> {
    if standing.is_none() {
        return Ok(());
    }
    let mut all_stand = true;
    for domain in &plan.domains {
        if !domain.selection.kind.is_housekeeping() && active_domain(state, &domain.cpus)?.is_none()
        {
            refuse_if_a_plan_is_active(state, &domain.cpus)?;
            all_stand = false;
        }
    }
    if let Some(measured) = &mut plan.measured {
        measured.stands = all_stand;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::variants::tests::request;
    use rampart_host::{MachineRoot, read_machine};

    /// A plan with a domain behind a wall and one without.
    fn standing() -> ActivePlan {
        let mut standing: ActivePlan = serde_json::from_value(serde_json::json!({
            "schema_version": 1, "tool_version": "0", "state": "active", "applied_at": 0,
            "boot": "", "file": "standing.toml", "text": "",
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
        standing.resolved.fingerprint = "of another day".to_owned();
        standing
    }

    #[test]
    fn a_plan_that_stands_is_measured_and_neither_compared_nor_replaced() {
        let standing = standing();
        let asked = |before_after, ablate| {
            let request = request(before_after, ablate, 1);
            refuse_comparison(Some(&standing), Some(&request))
        };
        asked(false, false).expect("it is measured");
        for (before_after, ablate) in [(true, false), (false, true)] {
            let why = asked(before_after, ablate)
                .expect_err("compared")
                .to_string();
            assert!(
                why.contains("standing.toml") && why.contains("rampart release"),
                "{why}"
            );
        }
        let mut other = standing.clone();
        other.resolved.domains.clear();
        other.resolved.boot = serde_json::from_value(serde_json::json!({ "arguments": ["nosmt"] }))
            .expect("a boot section");
        let why =
            refuse_comparison(Some(&other), Some(&request(false, false, 0))).expect_err("another");
        assert!(
            matches!(why, EvaluateError::AnotherPlanIsActive { .. }),
            "{why}"
        );
        refuse_comparison(None, Some(&request(true, true, 1))).expect("nothing stands");
        refuse_comparison(Some(&standing), None).expect("no plan is asked for");
    }

    #[test]
    fn the_cpus_behind_a_standing_wall_can_be_reached() {
        let mut machine = read_machine(&MachineRoot::system());
        machine.topology.allowed = "0-1".parse().expect("CPUs");
        let reached = |standing| {
            with_reachable_cpus(&machine, standing)
                .topology
                .allowed
                .to_string()
        };
        assert_eq!(reached(None), "0-1");
        // Where the wall is affinity alone nothing was taken, and nothing can be entered.
        assert_eq!(reached(Some(&standing())), "0-2");
    }
}
