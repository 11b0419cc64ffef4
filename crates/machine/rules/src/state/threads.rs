// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of domains: their CPUs, their policy, their program.

use std::collections::BTreeSet;
use std::mem::discriminant;

use rampart_model::{
    ActivePlan, CpuSet, DomainProgram, ObservedThread, ProgramState, ResolvedDomain,
    SchedulingPolicy, Severity, StatusFinding,
};

use super::{STATE_RULE, StateComparison, StateRule, first_few};
use crate::Rule;

pub(super) const THREAD_CPU: StateRule = StateRule::drift(Rule {
    id: "thread-cpu",
    severity: Severity::Error,
    title: "The threads of a domain run on its CPUs only",
    reason: "Elsewhere they are not isolated, and they disturb other domains.",
    ..STATE_RULE
});

pub(super) const THREAD_POLICY: StateRule = StateRule::drift(Rule {
    id: "thread-policy",
    severity: Severity::Warning,
    title: "The threads of a domain have the policy of the plan",
    reason: "Latency depends on the policy, and the priority rules judged the plan's policy.",
    source: "sched(7)",
    ..STATE_RULE
});

pub(super) const PROGRAM_GONE: StateRule = StateRule::drift(Rule {
    id: "program-gone",
    severity: Severity::Error,
    title: "The program of a domain runs, or its supervisor restarts it",
    reason: "Without a supervisor no process restarts it.",
    ..STATE_RULE
});

pub(super) const SUPERVISOR_GONE: StateRule = StateRule::drift(Rule {
    id: "supervisor-gone",
    severity: Severity::Error,
    title: "The supervisor of each running program runs",
    reason: "Without it no process restarts the program or places its threads.",
    ..STATE_RULE
});

/// Returns the finding about the program of a domain whose supervisor was killed. `program` is its
/// process.
#[must_use]
pub fn supervisor_gone(domain: &str, program: Option<u32>) -> StatusFinding {
    let process = program.map_or_else(String::new, |process| format!(" (process {process})"));
    SUPERVISOR_GONE
        .finding(
            Some(domain),
            format!("domain {domain}"),
            format!("the supervisor was killed, and the program{process} runs unsupervised"),
        )
        .values("no supervisor", "a supervisor")
        .fix(format!("rampart down {domain} && rampart up {domain}"))
}

pub(super) fn check(
    comparison: &StateComparison<'_>,
    plan: &ActivePlan,
    findings: &mut Vec<StatusFinding>,
) {
    for domain in &plan.domains {
        let name = &domain.name;
        let (mut elsewhere, mut otherwise) = (Vec::new(), Vec::new());
        let (mut to_move, mut to_change) = (BTreeSet::new(), BTreeSet::new());
        let threads = comparison.members(name).filter(|thread| !thread.kernel);
        for thread in threads {
            let wanted = Wanted::of(comparison, plan, name, thread);
            let location = thread
                .affinity
                .clone()
                .unwrap_or_else(|| CpuSet::single(thread.cpu));
            let ran = comparison.used(thread).0 > 0;
            // A program that detaches has no CPU of its domain while Linux schedules it.
            let strays = !domain.kind.leaves_linux()
                && (!location.is_subset(&wanted.cpus)
                    || (ran && !wanted.cpus.contains(thread.cpu)));
            if strays {
                to_move.insert(thread.process);
                elsewhere.push(format!("{} ({}) on {location}", thread.name, thread.thread));
            }
            if let (Some(policy), Some(present)) = (wanted.policy, thread.policy)
                && !is_same(policy, present)
            {
                to_change.insert(thread.process);
                otherwise.push(format!(
                    "{} ({}) {present}, not {policy}",
                    thread.name, thread.thread
                ));
            }
        }
        let location = format!("domain {name}");
        if !elsewhere.is_empty() {
            findings.push(
                THREAD_CPU
                    .finding(
                        Some(name),
                        &location,
                        "threads of the domain may run on other CPUs",
                    )
                    .values(first_few(&elsewhere), domain.cpus.named().to_string())
                    .fix(move_back(&to_move, name)),
            );
        }
        if !otherwise.is_empty() {
            findings.push(
                THREAD_POLICY
                    .finding(
                        Some(name),
                        &location,
                        "threads of the domain have another policy than the plan's",
                    )
                    .values(first_few(&otherwise), "the policy of the plan")
                    .fix(format!(
                        "{} (sets the policy of the plan)",
                        move_back(&to_change, name)
                    )),
            );
        }
        program(comparison, name, findings);
    }
}

/// Returns the command that moves processes into their domain, under its policy.
fn move_back(processes: &BTreeSet<u32>, domain: &str) -> String {
    let numbers: Vec<String> = processes.iter().map(ToString::to_string).collect();
    format!("rampart move {} --to {domain}", numbers.join(" "))
}

/// The CPUs and the policy that the plan gives to a thread.
#[derive(Debug)]
struct Wanted {
    cpus: CpuSet,
    policy: Option<SchedulingPolicy>,
}

impl Wanted {
    fn of(
        comparison: &StateComparison<'_>,
        plan: &ActivePlan,
        name: &str,
        thread: &ObservedThread,
    ) -> Self {
        let active = plan.domain(name);
        let resolved = plan.resolved.domain(name);
        let cpus = active.map(|domain| domain.cpus.clone()).unwrap_or_default();
        let is_guest = active.is_some_and(|domain| domain.kind.program() == DomainProgram::Guest);
        if let Some(resolved) = resolved.filter(|_| is_guest) {
            return Self::of_guest(plan, resolved, cpus, thread);
        }
        let Some(planned) = comparison
            .planned
            .as_ref()
            .and_then(|planned| planned.domain(name))
        else {
            // The plan's text cannot be parsed any more.
            return Self {
                cpus,
                policy: resolved.and_then(|resolved| resolved.policy),
            };
        };
        let rule = planned
            .threads
            .iter()
            .find(|rule| rule.is_match(&thread.name));
        Self {
            cpus: rule.and_then(|rule| rule.cpus.clone()).unwrap_or(cpus),
            policy: rule
                .and_then(|rule| rule.policy)
                .or(planned.policy)
                .map(|policy| policy.0),
        }
    }

    /// Returns the CPUs and policy of a guest's thread. QEMU names the thread of a virtual CPU
    /// `CPU NUMBER/KVM`. All other threads belong to the emulator, except for the threads that the
    /// kernel starts for the guest and places itself.
    fn of_guest(
        plan: &ActivePlan,
        resolved: &ResolvedDomain,
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
        let service = resolved.emulator.union(&resolved.service);
        Self {
            cpus: cpus.union(&service).union(&plan.resolved.housekeeping),
            policy: None,
        }
    }
}

/// Returns whether a thread has the wanted policy. Observations do not contain the times of
/// `SCHED_DEADLINE`.
fn is_same(wanted: SchedulingPolicy, present: SchedulingPolicy) -> bool {
    wanted == present
        || (matches!(wanted, SchedulingPolicy::Deadline { .. })
            && discriminant(&wanted) == discriminant(&present))
}

fn program(comparison: &StateComparison<'_>, name: &str, findings: &mut Vec<StatusFinding>) {
    let Some(program) = comparison
        .later
        .programs
        .iter()
        .find(|program| program.domain == name)
    else {
        return;
    };
    if program.alive && !program.supervised {
        findings.push(supervisor_gone(name, program.process));
        return;
    }
    // A program that ended under its supervisor is as planned. If the last recorded state is up and
    // nothing runs, the supervisor itself is gone.
    if program.current_state() != ProgramState::Stopped || !program.state.is_up() {
        return;
    }
    let present = program
        .last_exit
        .clone()
        .unwrap_or_else(|| "gone".to_owned());
    findings.push(
        PROGRAM_GONE
            .finding(
                Some(name),
                format!("domain {name}"),
                "its program is gone, and no supervisor restarts it",
            )
            .values(present, "running")
            .fix(format!("rampart up {name}")),
    );
}
