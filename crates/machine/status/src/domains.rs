// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Each domain: its wall, its threads, its program.

use rampart_model::{
    ActivePlan, DomainStatus, ObservedProgram, ProgramState, ProgramStatus, StatusFinding,
    StatusFindingKind,
};

use crate::seen::Seen;

pub(crate) fn of(
    seen: &Seen<'_>,
    plan: &ActivePlan,
    findings: &[StatusFinding],
) -> Vec<DomainStatus> {
    plan.domains
        .iter()
        .map(|domain| {
            let breached = findings.iter().any(|finding| {
                finding.kind == StatusFindingKind::KernelRestarted
                    || (finding.domain.as_deref() == Some(domain.name.as_str())
                        && matches!(
                            finding.kind,
                            StatusFindingKind::GroupGone
                                | StatusFindingKind::GroupCpus
                                | StatusFindingKind::PartitionInvalid
                                | StatusFindingKind::CpuOffline
                        ))
            });
            DomainStatus {
                name: domain.name.clone(),
                kind: domain.kind,
                cpus: domain.cpus.clone(),
                isolation: domain.isolation,
                isolation_valid: !breached,
                threads: u32::try_from(seen.members(&domain.name).count()).unwrap_or(u32::MAX),
                program: seen
                    .later
                    .programs
                    .iter()
                    .find(|program| program.domain == domain.name)
                    .map(program),
            }
        })
        .collect()
}

/// A supervisor that is gone starts nothing again, whatever its file says.
pub(crate) fn state(program: &ObservedProgram) -> ProgramState {
    if program.alive {
        ProgramState::Running
    } else if program.supervised && program.state.is_up() {
        ProgramState::Restarting
    } else {
        ProgramState::Stopped
    }
}

fn program(program: &ObservedProgram) -> ProgramStatus {
    ProgramStatus {
        state: state(program),
        process: program.process.filter(|_| program.alive),
        restarts: program.restarts,
        last_exit: program.last_exit.clone(),
    }
}
