// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers where times mean nothing, because the machine or a guest is emulated: from the policies
//! that threads had in every run, and from which blocks stopped them. Pure.

use rampart_model::{
    ComparisonCell, CpuSet, DomainKind, DomainPlan, ExperimentPlan, GuestThreadRole, Question,
    Record, Run, SchedulingPolicy, Verdict, VerdictOutcome,
};

use crate::comparison::answered;

const NO_DEADLINE: &str = "its times are emulated and mean nothing, so that no deadline is judged";
const NO_RATIO: &str = "its times are emulated, so that their ratio to the host's decides nothing";

/// Whether real-time work would be real-time there: all threads had the policy that they were asked
/// for, and no block in another domain stops them.
pub(crate) fn real_time(
    domain: &DomainPlan,
    records: &[Record],
    verdicts: &[Verdict],
) -> ComparisonCell {
    let placement = Placement::of(domain, records);
    let from_others = blocks_of_others(domain, verdicts);
    let crossing: Vec<String> = from_others
        .iter()
        .filter(|verdict| verdict.outcome == VerdictOutcome::Leaks)
        .filter_map(|verdict| verdict.disturbance.as_ref())
        .map(ToString::to_string)
        .collect();
    let (answer, outcome, reason) = match placement {
        Ok(_) if !crossing.is_empty() => (
            "no",
            VerdictOutcome::Fails,
            format!("blocks in other domains stop it: {}", crossing.join(", ")),
        ),
        Ok(placement) if all_hold(&from_others) => (
            "in structure",
            VerdictOutcome::Holds,
            format!(
                "{}, and no block in another domain that was tried stops it; {NO_DEADLINE}",
                placement.words
            ),
        ),
        Ok(placement) => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!("{}; but {NO_DEADLINE}", placement.words),
        ),
        Err(why) => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!("{why}; and {NO_DEADLINE}"),
        ),
    };
    ComparisonCell {
        verdicts: ids(&from_others),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

/// Whether a latency there would be the host's: it is made by the same kernel, under the same
/// policy, and no block in another domain stops it. What a kernel of its own adds shows in times
/// alone.
pub(crate) fn same_as_host(
    plan: &ExperimentPlan,
    domain: &DomainPlan,
    records: &[Record],
    verdicts: &[Verdict],
    ratios: &[&Verdict],
) -> ComparisonCell {
    let from_others = blocks_of_others(domain, verdicts);
    let host = plan
        .domains
        .iter()
        .find(|domain| domain.selection.kind == DomainKind::Host)
        .and_then(|host| Placement::of(host, records).ok());
    let same_kernel = matches!(
        domain.selection.kind,
        DomainKind::Task | DomainKind::Container
    );
    let placement = Placement::of(domain, records);
    let (answer, outcome, reason) = match (placement, host) {
        (Ok(placement), Some(host))
            if same_kernel && placement.policy == host.policy && all_hold(&from_others) =>
        {
            (
                "in structure",
                VerdictOutcome::Holds,
                format!(
                    "it runs on the host's kernel under the same policy {}, verified in every run of both, and no block in another domain that was tried stops it; {NO_RATIO}",
                    placement.policy
                ),
            )
        }
        _ if same_kernel => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!("it runs on the host's kernel; but {NO_RATIO}"),
        ),
        _ => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!(
                "it has a kernel of its own above the host's, and what that costs shows in times alone; {NO_RATIO}"
            ),
        ),
    };
    let evidence = [ratios, &from_others].concat();
    ComparisonCell {
        verdicts: ids(&evidence),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

fn ids(verdicts: &[&Verdict]) -> Vec<String> {
    verdicts.iter().map(|verdict| verdict.id.clone()).collect()
}

fn all_hold(verdicts: &[&Verdict]) -> bool {
    let holds = |verdict: &&Verdict| verdict.outcome == VerdictOutcome::Holds;
    !verdicts.is_empty() && verdicts.iter().all(holds)
}

fn blocks_of_others<'a>(domain: &DomainPlan, verdicts: &'a [Verdict]) -> Vec<&'a Verdict> {
    verdicts
        .iter()
        .filter(|verdict| {
            let by = verdict.disturbance.as_ref();
            verdict.domain == domain.name
                && verdict.question == Question::Transfer
                && by.is_some_and(|by| by.domain != domain.name)
        })
        .collect()
}

/// The one real-time policy that every thread had in every valid run, as the kernel confirmed it.
struct Placement {
    policy: SchedulingPolicy,
    words: String,
}

impl Placement {
    /// The policy, or why none can be claimed.
    fn of(domain: &DomainPlan, records: &[Record]) -> Result<Self, String> {
        let runs: Vec<&Run> = records
            .iter()
            .filter(|record| record.domain == domain.name)
            .flat_map(|record| &record.runs)
            .filter(|run| run.invalid.is_empty())
            .collect();
        let mut policies = runs
            .iter()
            .flat_map(|run| &run.threads)
            .map(|thread| thread.placement.policy);
        let Some(policy) = policies.next() else {
            return Err("no thread of it was measured in a valid run".to_owned());
        };
        if let Some(other) = policies.find(|other| *other != policy) {
            return Err(format!(
                "its threads had the policy {policy} in one run and {other} in another"
            ));
        }
        if !policy.is_real_time() {
            return Err(format!(
                "its threads have the policy {policy}, which is none for real-time work"
            ));
        }
        let count = runs.len();
        if domain.selection.kind != DomainKind::Vm {
            return Ok(Self {
                policy,
                words: format!(
                    "its threads have the policy {policy}, verified in each of {count} valid runs"
                ),
            });
        }
        let outside = host_side(domain, &runs)?;
        Ok(Self {
            policy,
            words: format!(
                "its threads have the policy {policy} in its own kernel, and {outside} on the host's, both verified in each of {count} valid runs"
            ),
        })
    }
}

/// What the host gave the threads that are a guest's real-time CPUs, the same in every run:
/// `its virtual CPU has fifo:1 on CPU 3`.
fn host_side(domain: &DomainPlan, runs: &[&Run]) -> Result<String, String> {
    let mut given: Option<SchedulingPolicy> = None;
    for run in runs {
        for cpu in domain.cpus.iter() {
            let thread = run
                .guest
                .iter()
                .flat_map(|guest| &guest.threads)
                .find(|thread| {
                    matches!(thread.role, GuestThreadRole::VirtualCpu(_))
                        && thread.cpus == CpuSet::single(cpu)
                });
            let Some(thread) = thread else {
                return Err(format!(
                    "in run {} no thread of the host that is its virtual CPU was bound to CPU {cpu}",
                    run.order
                ));
            };
            if !thread.policy.is_real_time() || given.is_some_and(|policy| policy != thread.policy)
            {
                return Err(format!(
                    "in run {} the thread of the host that is its virtual CPU on CPU {cpu} had the policy {}",
                    run.order, thread.policy
                ));
            }
            given = Some(thread.policy);
        }
    }
    match given {
        Some(policy) => Ok(format!(
            "the threads that are its real-time CPUs have {policy}, bound to {}",
            domain.cpus.named()
        )),
        None => Err("no run tells what the host gave its virtual CPUs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Evaluation, Verdict};

    /// What a made-up evaluation on a simulated machine holds, as the page is tested with, with
    /// walls that hold.
    fn walls() -> Evaluation {
        let text = include_str!("../../../web/fixtures/walls.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        for verdict in &mut evaluation.verdicts {
            let by = verdict.disturbance.as_ref();
            if verdict.question == Question::Transfer
                && by.is_some_and(|by| by.domain != verdict.domain)
            {
                verdict.outcome = VerdictOutcome::Holds;
            }
        }
        evaluation
    }

    fn real_time_of(evaluation: &Evaluation, name: &str) -> ComparisonCell {
        let domain = evaluation
            .plan
            .domains
            .iter()
            .find(|domain| domain.name == name)
            .expect("a domain");
        real_time(domain, &evaluation.records, &evaluation.verdicts)
    }

    fn threads<'a>(
        evaluation: &'a mut Evaluation,
        name: &str,
    ) -> Vec<&'a mut rampart_model::ThreadOutcome> {
        evaluation
            .records
            .iter_mut()
            .filter(|record| record.domain == name)
            .flat_map(|record| &mut record.runs)
            .filter(|run| run.invalid.is_empty())
            .flat_map(|run| &mut run.threads)
            .collect()
    }

    #[test]
    fn every_valid_run_must_have_had_the_policy() {
        let mut evaluation = walls();
        let sound = real_time_of(&evaluation, "task");
        assert_eq!(sound.answer, "in structure", "{sound:?}");
        assert_eq!(sound.outcome, Some(VerdictOutcome::Holds));
        let last = threads(&mut evaluation, "task").pop().expect("a thread");
        last.placement.policy = SchedulingPolicy::Other;
        let one = real_time_of(&evaluation, "task");
        assert_eq!(one.answer, "not judged here", "{one:?}");
        assert!(one.reason.contains("in another"), "{}", one.reason);
        for thread in threads(&mut evaluation, "task") {
            thread.placement.policy = SchedulingPolicy::Other;
        }
        let none = real_time_of(&evaluation, "task");
        assert!(
            none.reason.contains("none for real-time"),
            "{}",
            none.reason
        );
    }

    #[test]
    fn a_guest_needs_its_virtual_cpus_to_be_real_time_on_the_host_too() {
        let mut evaluation = walls();
        let sound = real_time_of(&evaluation, "vm");
        assert_eq!(sound.answer, "in structure", "{sound:?}");
        assert!(
            sound.reason.contains("in its own kernel") && sound.reason.contains("on the host's"),
            "{}",
            sound.reason
        );
        let guests = evaluation
            .records
            .iter_mut()
            .filter(|record| record.domain == "vm")
            .flat_map(|record| &mut record.runs)
            .filter_map(|run| run.guest.as_mut());
        for thread in guests.flat_map(|guest| &mut guest.threads) {
            thread.cpus = "0-7".parse().expect("CPUs");
        }
        let floating = real_time_of(&evaluation, "vm");
        assert_eq!(floating.answer, "not judged here");
        assert!(floating.reason.contains("was bound"), "{}", floating.reason);
    }

    #[test]
    fn a_block_that_crosses_is_told() {
        let mut evaluation = walls();
        let crossing = |verdict: &&mut Verdict| {
            let by = verdict.disturbance.as_ref();
            verdict.domain == "task" && by.is_some_and(|by| by.to_string() == "block:host")
        };
        let verdict = evaluation.verdicts.iter_mut().find(crossing);
        verdict.expect("a verdict").outcome = VerdictOutcome::Leaks;
        let cell = real_time_of(&evaluation, "task");
        assert_eq!(cell.answer, "no");
        assert!(cell.reason.contains("block:host"), "{}", cell.reason);
    }
}
