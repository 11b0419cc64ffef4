// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of the domains: on their CPUs, under their policy; and their programs.

use std::collections::BTreeSet;
use std::mem::discriminant;

use rampart_model::{
    ActivePlan, CpuSet, DomainProgram, Finding, ObservedThread, ProgramState, SchedulingPolicy,
    Severity, StatusFinding, StatusFindingKind,
};

use crate::seen::Seen;
use crate::{domains, finding, some_of};

pub(crate) fn find(seen: &Seen<'_>, plan: &ActivePlan, findings: &mut Vec<StatusFinding>) {
    for domain in &plan.domains {
        let (mut strayed, mut otherwise) = (Vec::new(), Vec::new());
        let (mut away, mut changed) = (BTreeSet::new(), BTreeSet::new());
        for thread in seen.members(&domain.name).filter(|thread| !thread.kernel) {
            let wanted = Wanted::of(seen, plan, &domain.name, thread);
            let location = thread
                .affinity
                .clone()
                .unwrap_or_else(|| CpuSet::single(thread.cpu));
            let ran = seen.used(thread).0 > 0;
            if !location.is_subset(&wanted.cpus) || (ran && !wanted.cpus.contains(thread.cpu)) {
                away.insert(thread.process);
                strayed.push(format!("{} ({}) on {location}", thread.name, thread.thread));
            }
            if let (Some(policy), Some(present)) = (wanted.policy, thread.policy)
                && !same(policy, present)
            {
                changed.insert(thread.process);
                otherwise.push(format!(
                    "{} ({}) {present}, not {policy}",
                    thread.name, thread.thread
                ));
            }
        }
        if !strayed.is_empty() {
            findings.push(finding(
                StatusFindingKind::ThreadCpu,
                Some(&domain.name),
                Finding::new(
                    Severity::Error,
                    format!("domain {}", domain.name),
                    "threads of the domain may run on other CPUs",
                )
                .values(some_of(&strayed), domain.cpus.named().to_string())
                .fix(format!("move them back: {}", back(&away, &domain.name))),
            ));
        }
        if !otherwise.is_empty() {
            findings.push(finding(
                StatusFindingKind::ThreadPolicy,
                Some(&domain.name),
                Finding::new(
                    Severity::Warning,
                    format!("domain {}", domain.name),
                    "threads of the domain have another policy than the plan's",
                )
                .values(some_of(&otherwise), "the policy of the plan")
                .fix(format!(
                    "{}, which sets the plan's policy, or an entry of the domain's `threads` in the plan that allows it",
                    back(&changed, &domain.name)
                )),
            ));
        }
        program(seen, &domain.name, findings);
    }
}

/// The command that moves processes into their domain, under its policy.
fn back(processes: &BTreeSet<u32>, domain: &str) -> String {
    let numbers: Vec<String> = processes.iter().map(ToString::to_string).collect();
    format!("rampart move {} --to {domain}", numbers.join(" "))
}

/// What the plan wants of a thread.
#[derive(Debug)]
struct Wanted {
    cpus: CpuSet,
    policy: Option<SchedulingPolicy>,
}

impl Wanted {
    fn of(seen: &Seen<'_>, plan: &ActivePlan, domain: &str, thread: &ObservedThread) -> Self {
        let planned = seen
            .planned
            .as_ref()
            .and_then(|planned| planned.domain(domain));
        let resolved = plan.resolved.domain(domain);
        let cpus = plan
            .domain(domain)
            .map(|domain| domain.cpus.clone())
            .unwrap_or_default();
        if let (Some(resolved), Some(DomainProgram::Guest)) = (
            resolved,
            plan.domain(domain).map(|domain| domain.kind.program()),
        ) {
            return Self::of_guest(plan, resolved, cpus, thread);
        }
        let rule = planned.and_then(|planned| {
            planned
                .threads
                .iter()
                .find(|rule| rampart_plan::matches(&rule.r#match, &thread.name))
        });
        let policy = rule
            .and_then(|rule| rule.policy)
            .or_else(|| planned.and_then(|planned| planned.policy))
            .map(|policy| policy.0)
            // The text may not be read any more; then what was resolved has to do.
            .or_else(|| match planned {
                Some(_) => None,
                None => resolved.and_then(|resolved| resolved.policy),
            });
        Self {
            cpus: rule.and_then(|rule| rule.cpus.clone()).unwrap_or(cpus),
            policy,
        }
    }

    /// QEMU names the thread of a virtual CPU `CPU NUMBER/KVM`; all others are the emulator's, and
    /// those that the kernel starts for the guest are where it wants them.
    fn of_guest(
        plan: &ActivePlan,
        resolved: &rampart_model::ResolvedDomain,
        cpus: CpuSet,
        thread: &ObservedThread,
    ) -> Self {
        let number = thread
            .name
            .strip_prefix("CPU ")
            .and_then(|rest| rest.split('/').next()?.parse::<usize>().ok());
        if let Some(cpu) = number.and_then(|number| *resolved.virtual_cpus.get(number)?) {
            return Self {
                cpus: CpuSet::single(cpu),
                policy: plan
                    .resolved
                    .cpu(cpu)
                    .and_then(|ownership| ownership.policy),
            };
        }
        let elsewhere = resolved.emulator.union(&resolved.service);
        Self {
            cpus: cpus.union(&elsewhere).union(&plan.resolved.housekeeping),
            policy: None,
        }
    }
}

/// The figures of a deadline are not to be read beside the others.
fn same(wanted: SchedulingPolicy, present: SchedulingPolicy) -> bool {
    wanted == present
        || (matches!(wanted, SchedulingPolicy::Deadline { .. })
            && discriminant(&wanted) == discriminant(&present))
}

fn program(seen: &Seen<'_>, name: &str, findings: &mut Vec<StatusFinding>) {
    let Some(program) = seen
        .later
        .programs
        .iter()
        .find(|program| program.domain == name)
    else {
        return;
    };
    // What ended or was stopped in the sight of its supervisor is as the plan has it. What was up and
    // is not was left by a supervisor that is gone itself.
    if domains::state(program) != ProgramState::Stopped || !program.state.is_up() {
        return;
    }
    let present = program
        .last_exit
        .clone()
        .unwrap_or_else(|| "gone".to_owned());
    findings.push(finding(
        StatusFindingKind::ProgramGone,
        Some(name),
        Finding::new(
            Severity::Error,
            format!("domain {name}"),
            "its program is gone, and nobody starts it again",
        )
        .values(present, "running")
        .fix(format!("rampart up {name}")),
    ));
}
