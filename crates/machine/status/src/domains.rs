// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of each domain: isolation, threads, program.

use rampart_model::{ActivePlan, DomainStatus, ObservedProgram, ProgramStatus, StatusFinding};
use rampart_rules::{StateComparison, state_rule};

/// Returns the state of every domain of the plan.
pub(crate) fn all(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &[StatusFinding],
) -> Vec<DomainStatus> {
    plan.domains
        .iter()
        .map(|domain| {
            let broken = findings
                .iter()
                .filter(|finding| {
                    finding
                        .domain
                        .as_ref()
                        .is_none_or(|name| *name == domain.name)
                })
                .filter_map(|finding| state_rule(finding.rule()))
                .any(|rule| rule.breaks_isolation);
            DomainStatus {
                name: domain.name.clone(),
                kind: domain.kind,
                cpus: domain.cpus.clone(),
                isolation: domain.isolation,
                isolation_valid: !broken,
                threads: u32::try_from(comparison.members(&domain.name).count())
                    .unwrap_or(u32::MAX),
                program: comparison
                    .later
                    .programs
                    .iter()
                    .find(|program| program.domain == domain.name)
                    .map(program),
            }
        })
        .collect()
}

fn program(program: &ObservedProgram) -> ProgramStatus {
    ProgramStatus {
        state: program.current_state(),
        process: program.process.filter(|_| program.alive),
        restarts: program.restarts,
        last_exit: program.last_exit.clone(),
    }
}
