// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers where times mean nothing, because the machine or a guest is emulated: from the policies
//! that threads had in every run, and from which blocks stopped them. Pure.

use rampart_model::{
    CellPayload, ComparisonEntry, CpuSet, DomainKernel, EvaluatedDomain, EvaluationSettings,
    GuestThreadRole, Question, Record, Run, SchedulingPolicy, Verdict, VerdictOutcome,
};

use crate::comparison::answered;

const NO_DEADLINE: &str = "its times are emulated and mean nothing, so that no deadline is judged";
const NO_RATIO: &str = "its times are emulated, so that their ratio to the host's decides nothing";

/// Whether real-time work would be real-time there: all threads had the policy that they were asked
/// for, and no block in another domain stops them. A block that does answers it, whatever policy
/// they had.
pub(crate) fn real_time(
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
) -> ComparisonEntry {
    let placement = Placement::of(domain, records);
    let from_others = blocks_of_others(domain, verdicts);
    let (answer, outcome, reason) = match (placement, crossing(&from_others)) {
        (_, Some(crossing)) => ("no", VerdictOutcome::Fails, crossing),
        (Ok(placement), None) if all_hold(&from_others) => (
            "in structure",
            VerdictOutcome::Holds,
            format!(
                "{}, and no block in another domain that was tried stops it; {NO_DEADLINE}",
                placement.words
            ),
        ),
        (Ok(placement), None) => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!("{}; but {NO_DEADLINE}", placement.words),
        ),
        (Err(why), None) => (
            "not judged here",
            VerdictOutcome::Inconclusive,
            format!("{why}; and {NO_DEADLINE}"),
        ),
    };
    ComparisonEntry {
        verdicts: ids(&from_others),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

/// Whether a latency there would be the host's: it is made by the same kernel, under the same
/// policy, and no block in another domain stops it. What a kernel of its own adds shows in times
/// alone.
pub(crate) fn same_as_host(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
    ratios: &[&Verdict],
) -> ComparisonEntry {
    let from_others = blocks_of_others(domain, verdicts);
    let open = |reason: String| ("not judged here", VerdictOutcome::Inconclusive, reason);
    let (answer, outcome, reason) = match domain.selection.kind.kernel() {
        DomainKernel::Host => match as_the_host(plan, domain, records, &from_others) {
            Ok(policy) => (
                "in structure",
                VerdictOutcome::Holds,
                format!(
                    "it runs on the host's kernel under the same policy {policy}, verified in every run of both, and no block in another domain that was tried stops it; {NO_RATIO}"
                ),
            ),
            Err(why) => open(format!(
                "it runs on the host's kernel; but {why}, and {NO_RATIO}"
            )),
        },
        DomainKernel::AboveHost => open(format!(
            "it has a kernel of its own above the host's, and what that costs shows in times alone; {NO_RATIO}"
        )),
        DomainKernel::Apart => open(format!(
            "its CPUs were taken from the host's kernel, and what that changes shows in times alone; {NO_RATIO}"
        )),
    };
    let evidence = [ratios, &from_others].concat();
    ComparisonEntry {
        verdicts: ids(&evidence),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

/// The policy that all threads of it and of the host had, where nothing else than that tells them
/// apart; or what does.
fn as_the_host(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    from_others: &[&Verdict],
) -> Result<SchedulingPolicy, String> {
    let policy = Placement::of(domain, records)?.policy;
    let is_host = |domain: &&EvaluatedDomain| domain.selection.kind.is_housekeeping();
    let host = plan.domains.iter().find(is_host);
    let host = host.ok_or("the host was not measured")?;
    let host = Placement::of(host, records)
        .map_err(|why| format!("nothing is verified of the host ({why})"))?;
    if policy != host.policy {
        return Err(format!(
            "its threads have the policy {policy}, and the host's {}",
            host.policy
        ));
    }
    if let Some(crossing) = crossing(from_others) {
        return Err(crossing);
    }
    if from_others.is_empty() {
        return Err("no block in another domain was tried".to_owned());
    }
    if !all_hold(from_others) {
        return Err("whether blocks in other domains stop it is not decided".to_owned());
    }
    Ok(policy)
}

/// Which blocks of other domains stop it; none where none does.
fn crossing(from_others: &[&Verdict]) -> Option<String> {
    let words: Vec<String> = from_others
        .iter()
        .filter(|verdict| verdict.outcome == VerdictOutcome::Leaks)
        .filter_map(|verdict| verdict.disturbance.as_ref())
        .map(ToString::to_string)
        .collect();
    (!words.is_empty()).then(|| format!("blocks in other domains stop it: {}", words.join(", ")))
}

fn ids(verdicts: &[&Verdict]) -> Vec<String> {
    verdicts.iter().map(|verdict| verdict.id.clone()).collect()
}

fn all_hold(verdicts: &[&Verdict]) -> bool {
    let holds = |verdict: &&Verdict| verdict.outcome == VerdictOutcome::Holds;
    !verdicts.is_empty() && verdicts.iter().all(holds)
}

fn blocks_of_others<'a>(domain: &EvaluatedDomain, verdicts: &'a [Verdict]) -> Vec<&'a Verdict> {
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
    fn of(domain: &EvaluatedDomain, records: &[Record]) -> Result<Self, String> {
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
        let alone = |run: &&Run| {
            let cell = run.cell.as_ref();
            cell.is_some_and(|cell| cell.payload == CellPayload::BareMetal)
        };
        if domain.selection.cell == Some(CellPayload::BareMetal) && runs.iter().all(alone) {
            return Ok(Self {
                policy,
                words: format!(
                    "its program has its CPU to itself, with no operating system, in each of {} valid runs",
                    runs.len()
                ),
            });
        }
        if !policy.is_real_time() {
            return Err(format!(
                "its threads have the policy {policy}, which is none for real-time work"
            ));
        }
        let count = runs.len();
        if !domain.selection.kind.is_above_host() {
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
                "its threads have the policy {policy} in its own kernel, and on the host's {outside}, both verified in each of {count} valid runs"
            ),
        })
    }
}

/// What the host gave the threads that are a guest's real-time CPUs, the same in every run:
/// `the threads that are its real-time CPUs have fifo:1, bound to CPU 3`.
fn host_side(domain: &EvaluatedDomain, runs: &[&Run]) -> Result<String, String> {
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
                    "in run {} none of its virtual CPUs was bound to CPU {cpu} on the host",
                    run.order
                ));
            };
            let (order, policy) = (run.order, thread.policy);
            let had = format!(
                "in run {order} its virtual CPU on CPU {cpu} had the policy {policy} on the host"
            );
            if !policy.is_real_time() {
                return Err(format!("{had}, which is none for real-time work"));
            }
            if let Some(other) = given.filter(|given| *given != policy) {
                return Err(format!("{had}, and another had {other}"));
            }
            given = Some(policy);
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
        let text = include_str!("../../../show/web/fixtures/walls.json");
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

    fn real_time_of(evaluation: &Evaluation, name: &str) -> ComparisonEntry {
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
        assert!(
            floating
                .reason
                .contains("none of its virtual CPUs was bound"),
            "{}",
            floating.reason
        );
    }

    /// What the host's blocks did to the task.
    fn block_of_the_host(evaluation: &mut Evaluation) -> &mut Verdict {
        let of_the_host = |verdict: &&mut Verdict| {
            let by = verdict.disturbance.as_ref();
            verdict.domain == "task" && by.is_some_and(|by| by.to_string() == "block:host")
        };
        let verdict = evaluation.verdicts.iter_mut().find(of_the_host);
        verdict.expect("a verdict")
    }

    #[test]
    fn a_block_that_crosses_is_told_whatever_the_policy() {
        let mut evaluation = walls();
        block_of_the_host(&mut evaluation).outcome = VerdictOutcome::Leaks;
        let verified = real_time_of(&evaluation, "task");
        for thread in threads(&mut evaluation, "task") {
            thread.placement.policy = SchedulingPolicy::Other;
        }
        let unverified = real_time_of(&evaluation, "task");
        for cell in [verified, unverified] {
            assert_eq!(cell.answer, "no", "{cell:?}");
            assert_eq!(cell.outcome, Some(VerdictOutcome::Fails));
            assert!(cell.reason.contains("block:host"), "{}", cell.reason);
        }
    }

    #[test]
    fn what_keeps_a_domain_from_being_as_the_host_is_told() {
        let same = |evaluation: &Evaluation, name: &str| {
            let mut domains = evaluation.plan.domains.iter();
            let domain = domains.find(|domain| domain.name == name);
            same_as_host(
                &evaluation.plan,
                domain.expect("a domain"),
                &evaluation.records,
                &evaluation.verdicts,
                &[],
            )
        };
        let sound = same(&walls(), "task");
        assert_eq!(sound.answer, "in structure", "{sound:?}");
        assert_eq!(sound.outcome, Some(VerdictOutcome::Holds));
        let told = |change: &dyn Fn(&mut Evaluation), cause: &str| {
            let mut evaluation = walls();
            change(&mut evaluation);
            let cell = same(&evaluation, "task");
            assert_eq!(cell.answer, "not judged here", "{cell:?}");
            assert_eq!(cell.outcome, Some(VerdictOutcome::Inconclusive));
            assert!(cell.reason.contains(cause), "{cause}: {}", cell.reason);
        };
        told(
            &|evaluation| block_of_the_host(evaluation).outcome = VerdictOutcome::Leaks,
            "blocks in other domains stop it: block:host",
        );
        told(
            &|evaluation| block_of_the_host(evaluation).outcome = VerdictOutcome::Inconclusive,
            "is not decided",
        );
        told(
            &|evaluation| evaluation.verdicts.clear(),
            "no block in another domain was tried",
        );
        told(
            &|evaluation| {
                for thread in threads(evaluation, "task") {
                    thread.placement.policy = SchedulingPolicy::Fifo(3);
                }
            },
            "the policy fifo:3, and the host's",
        );
        for (name, cause) in [
            ("task", "no thread of it was measured in a valid run"),
            ("host", "nothing is verified of the host"),
        ] {
            told(
                &|evaluation| evaluation.records.retain(|record| record.domain != name),
                cause,
            );
        }
        let guest = same(&walls(), "vm");
        assert!(guest.reason.contains("a kernel of its own"), "{guest:?}");
    }
}
