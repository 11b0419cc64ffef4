// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers for an emulated machine or guest, whose times are not judged: from the policies that the
//! threads had in every run, and from the blocks that stopped them. Pure.

use rampart_model::{
    CellPayload, ComparisonEntry, CpuSet, DomainKernel, EvaluatedDomain, EvaluationSettings,
    GuestThreadRole, Question, Record, Run, SchedulingPolicy, Verdict, VerdictOutcome,
};

use crate::comparison::answered;

const IN_STRUCTURE: &str = "isolated in structure";
const NOT_JUDGED: &str = "not judged";
const NO_LATENCY: &str = "Latency is not judged on an emulated machine";

/// Answers whether the domain would meet a deadline: it is isolated in structure if all threads had a
/// real-time policy and no block in another domain stops them. A block that stops it fails it whatever
/// the policy.
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
            IN_STRUCTURE,
            VerdictOutcome::Holds,
            format!(
                "{}, and no measured block in another domain stops it. {NO_LATENCY}",
                placement.words
            ),
        ),
        (Ok(placement), None) => (
            NOT_JUDGED,
            VerdictOutcome::Inconclusive,
            format!("{}. {NO_LATENCY}", placement.words),
        ),
        (Err(why), None) => (
            NOT_JUDGED,
            VerdictOutcome::Inconclusive,
            format!("{why}. {NO_LATENCY}"),
        ),
    };
    ComparisonEntry {
        verdicts: ids(&from_others),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

/// Answers whether a latency would be as on the host: if the same kernel causes it under the same
/// policy and no block in another domain stops it. The cost of a separate kernel shows only in
/// times.
pub(crate) fn same_as_host(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
    ratios: &[&Verdict],
) -> ComparisonEntry {
    let from_others = blocks_of_others(domain, verdicts);
    let open = |reason: String| (NOT_JUDGED, VerdictOutcome::Inconclusive, reason);
    let (answer, outcome, reason) = match domain.selection.kind.kernel() {
        DomainKernel::Host => match as_the_host(settings, domain, records, &from_others) {
            Ok(policy) => (
                IN_STRUCTURE,
                VerdictOutcome::Holds,
                format!(
                    "it runs on the host's kernel under the same policy {policy}, verified in every run of both, and no measured block in another domain stops it. {NO_LATENCY}"
                ),
            ),
            Err(why) => open(format!(
                "it runs on the host's kernel, but {why}. {NO_LATENCY}"
            )),
        },
        DomainKernel::AboveHost => open(format!(
            "its own kernel above the host's adds latency, which only times show. {NO_LATENCY}"
        )),
        DomainKernel::Apart => open(format!(
            "its CPUs were taken from the host's kernel, which only times compare. {NO_LATENCY}"
        )),
    };
    let evidence = [ratios, &from_others].concat();
    ComparisonEntry {
        verdicts: ids(&evidence),
        ..answered(domain, answer, Some(outcome), &reason)
    }
}

/// Returns the policy of all threads of the domain and of the host, or the difference between the
/// two.
fn as_the_host(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    from_others: &[&Verdict],
) -> Result<SchedulingPolicy, String> {
    let policy = Placement::of(domain, records)?.policy;
    let is_host = |domain: &&EvaluatedDomain| domain.selection.kind.is_housekeeping();
    let host = settings.domains.iter().find(is_host);
    let host = host.ok_or("the host was not measured")?;
    let host =
        Placement::of(host, records).map_err(|why| format!("the host is not verified ({why})"))?;
    if policy != host.policy {
        return Err(format!(
            "its threads have the policy {policy}, those of the host {}",
            host.policy
        ));
    }
    if let Some(crossing) = crossing(from_others) {
        return Err(crossing);
    }
    if from_others.is_empty() {
        return Err("no block in another domain was measured".to_owned());
    }
    if !all_hold(from_others) {
        return Err("there is not enough data about blocks in other domains".to_owned());
    }
    Ok(policy)
}

/// Returns the blocks in other domains that stop it, or `None`.
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

/// The policy that every thread had in every valid run, as the kernel confirmed it.
struct Placement {
    policy: SchedulingPolicy,
    words: String,
}

impl Placement {
    /// Returns the policy, or why there is none that all runs share.
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
            return Err("none of its threads was measured in a valid run".to_owned());
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
        let counts = || runs.iter().map(|run| run.detached);
        if counts().all(|counts| counts.is_some()) {
            let count = runs.len();
            let interrupts: u64 = counts().flatten().map(|counts| counts.interrupts).sum();
            return match interrupts {
                0 => Ok(Self {
                    policy,
                    words: format!(
                        "its thread has its CPU to itself, without an interrupt in each of {count} valid runs"
                    ),
                }),
                _ => Err(format!(
                    "its CPU was interrupted {interrupts} times in {count} valid runs"
                )),
            };
        }
        if !policy.is_real_time() {
            return Err(format!(
                "its threads have the policy {policy}, which is not a real-time policy"
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
                "its threads have the policy {policy} in its own kernel, and on the host {outside}, both verified in each of {count} valid runs"
            ),
        })
    }
}

/// Returns policy and binding of the threads of a guest's real-time CPUs, the same in every run:
/// `the threads of its real-time CPUs have fifo:1, bound to CPU 3`.
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
                return Err(format!("{had}, which is not a real-time policy"));
            }
            if let Some(other) = given.filter(|given| *given != policy) {
                return Err(format!("{had}, and another had {other}"));
            }
            given = Some(policy);
        }
    }
    match given {
        Some(policy) => Ok(format!(
            "the threads of its real-time CPUs have {policy}, bound to {}",
            domain.cpus.named()
        )),
        None => Err("no run recorded the host's policy of its virtual CPUs".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{DetachedCounts, Evaluation, Verdict};

    /// Returns the web page's test evaluation, on a simulated machine, with domains that are
    /// isolated.
    fn isolated() -> Evaluation {
        let text = include_str!("../../../show/present/tests/documents/transfers.json");
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
            .settings
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
    fn requires_the_policy_in_every_valid_run() {
        let mut evaluation = isolated();
        let sound = real_time_of(&evaluation, "task");
        assert_eq!(sound.answer, IN_STRUCTURE, "{sound:?}");
        assert_eq!(sound.outcome, Some(VerdictOutcome::Holds));
        let last = threads(&mut evaluation, "task").pop().expect("a thread");
        last.placement.policy = SchedulingPolicy::Other;
        let one = real_time_of(&evaluation, "task");
        assert_eq!(one.answer, NOT_JUDGED, "{one:?}");
        assert!(one.reason.contains("in another"), "{}", one.reason);
        for thread in threads(&mut evaluation, "task") {
            thread.placement.policy = SchedulingPolicy::Other;
        }
        let none = real_time_of(&evaluation, "task");
        assert!(
            none.reason.contains("not a real-time policy"),
            "{}",
            none.reason
        );
    }

    /// Linux does not schedule a detached thread, so its policy means nothing.
    #[test]
    fn requires_a_cpu_without_interrupts_of_a_detached_thread() {
        let mut evaluation = isolated();
        for thread in threads(&mut evaluation, "task") {
            thread.placement.policy = SchedulingPolicy::Other;
        }
        let mut count = |interrupts| {
            let records = evaluation.records.iter_mut();
            for record in records.filter(|record| record.domain == "task") {
                for run in &mut record.runs {
                    run.detached = Some(DetachedCounts {
                        interrupts,
                        ..DetachedCounts::default()
                    });
                }
            }
            real_time_of(&evaluation, "task")
        };
        let sound = count(0);
        assert_eq!(sound.answer, IN_STRUCTURE, "{sound:?}");
        let interrupted = count(1);
        assert_eq!(interrupted.answer, NOT_JUDGED, "{interrupted:?}");
        assert!(
            interrupted.reason.contains("was interrupted"),
            "{}",
            interrupted.reason
        );
    }

    #[test]
    fn requires_real_time_virtual_cpus_on_the_host() {
        let mut evaluation = isolated();
        let sound = real_time_of(&evaluation, "vm");
        assert_eq!(sound.answer, IN_STRUCTURE, "{sound:?}");
        assert!(
            sound.reason.contains("in its own kernel") && sound.reason.contains("on the host "),
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
        assert_eq!(floating.answer, NOT_JUDGED);
        assert!(
            floating
                .reason
                .contains("none of its virtual CPUs was bound"),
            "{}",
            floating.reason
        );
    }

    /// Returns the verdict on the host's blocks in the task.
    fn block_of_the_host(evaluation: &mut Evaluation) -> &mut Verdict {
        let of_the_host = |verdict: &&mut Verdict| {
            let by = verdict.disturbance.as_ref();
            verdict.domain == "task" && by.is_some_and(|by| by.to_string() == "block:host")
        };
        let verdict = evaluation.verdicts.iter_mut().find(of_the_host);
        verdict.expect("a verdict")
    }

    #[test]
    fn reports_a_block_that_stops_it_whatever_the_policy() {
        let mut evaluation = isolated();
        block_of_the_host(&mut evaluation).outcome = VerdictOutcome::Leaks;
        let verified = real_time_of(&evaluation, "task");
        for thread in threads(&mut evaluation, "task") {
            thread.placement.policy = SchedulingPolicy::Other;
        }
        let unverified = real_time_of(&evaluation, "task");
        for entry in [verified, unverified] {
            assert_eq!(entry.answer, "no", "{entry:?}");
            assert_eq!(entry.outcome, Some(VerdictOutcome::Fails));
            assert!(entry.reason.contains("block:host"), "{}", entry.reason);
        }
    }

    #[test]
    fn reports_the_difference_to_the_host() {
        let same = |evaluation: &Evaluation, name: &str| {
            let mut domains = evaluation.settings.domains.iter();
            let domain = domains.find(|domain| domain.name == name);
            same_as_host(
                &evaluation.settings,
                domain.expect("a domain"),
                &evaluation.records,
                &evaluation.verdicts,
                &[],
            )
        };
        let sound = same(&isolated(), "task");
        assert_eq!(sound.answer, IN_STRUCTURE, "{sound:?}");
        assert_eq!(sound.outcome, Some(VerdictOutcome::Holds));
        let check = |change: &dyn Fn(&mut Evaluation), cause: &str| {
            let mut evaluation = isolated();
            change(&mut evaluation);
            let entry = same(&evaluation, "task");
            assert_eq!(entry.answer, NOT_JUDGED, "{entry:?}");
            assert_eq!(entry.outcome, Some(VerdictOutcome::Inconclusive));
            assert!(entry.reason.contains(cause), "{cause}: {}", entry.reason);
        };
        check(
            &|evaluation| block_of_the_host(evaluation).outcome = VerdictOutcome::Leaks,
            "blocks in other domains stop it: block:host",
        );
        check(
            &|evaluation| block_of_the_host(evaluation).outcome = VerdictOutcome::Inconclusive,
            "there is not enough data",
        );
        check(
            &|evaluation| evaluation.verdicts.clear(),
            "no block in another domain was measured",
        );
        check(
            &|evaluation| {
                for thread in threads(evaluation, "task") {
                    thread.placement.policy = SchedulingPolicy::Fifo(3);
                }
            },
            "the policy fifo:3, those of the host",
        );
        for (name, cause) in [
            ("task", "none of its threads was measured in a valid run"),
            ("host", "the host is not verified"),
        ] {
            check(
                &|evaluation| evaluation.records.retain(|record| record.domain != name),
                cause,
            );
        }
        let guest = same(&isolated(), "vm");
        assert!(guest.reason.contains("its own kernel"), "{guest:?}");
    }
}
