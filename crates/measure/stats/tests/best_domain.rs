// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The best domain of recorded evaluations, and of changed copies of them.

use rampart_model::{
    Answers, Evaluation, Interval, Nanos, QuantileAnswer, Question, StallAnswer, Verdict,
    VerdictFigures, VerdictOutcome,
};
use rampart_stats::{BestDomain, Criterion, best_domain};

/// Three domains on real hardware with a deadline.
fn full() -> Evaluation {
    let text = include_str!("../../../show/present/tests/documents/full.json");
    serde_json::from_str(text).expect("an evaluation")
}

/// Returns the same with verdicts that decide nothing.
fn undecided() -> Evaluation {
    let mut evaluation = full();
    evaluation.settings.deadline_from_user = false;
    for verdict in &mut evaluation.verdicts {
        verdict.outcome = VerdictOutcome::Inconclusive;
        if let Some(VerdictFigures::SameAsHost { ratios, .. }) = &mut verdict.figures {
            for (_, ratio) in ratios {
                *ratio = interval(0.6, 1.5);
            }
        }
    }
    evaluation
}

fn interval(low: f64, high: f64) -> Interval {
    Interval {
        estimate: (low * high).sqrt(),
        low,
        high,
        confidence: 0.95,
    }
}

/// Returns the verdict on the comparison with the host under a condition.
fn to_host<'a>(evaluation: &'a mut Evaluation, domain: &str, condition: &str) -> &'a mut Verdict {
    let meter = evaluation.settings.meters[0].meter;
    let mut verdicts = evaluation.verdicts.iter_mut();
    let found = verdicts.find(|verdict| {
        verdict.question == Question::SameAsHost
            && verdict.meter == meter
            && verdict.domain == domain
            && verdict.condition.to_string() == condition
    });
    found.expect("a verdict")
}

/// Sets the ratio to the host, without a verdict.
fn set_ratio(evaluation: &mut Evaluation, domain: &str, condition: &str, ratio: Interval) {
    let figures = &mut to_host(evaluation, domain, condition).figures;
    let Some(VerdictFigures::SameAsHost { ratios, .. }) = figures else {
        panic!("no ratios");
    };
    *ratios = vec![(0.5, ratio), (0.99, ratio)];
}

fn best(evaluation: &Evaluation) -> BestDomain<'_> {
    best_domain(evaluation).expect("a measured domain")
}

#[test]
fn the_deadline_decides_only_if_the_user_set_it() {
    let mut evaluation = full();
    let found = best(&evaluation);
    assert_eq!(found.domains, ["task", "container"]);
    assert_eq!(found.ruled_out, [("host", Criterion::Deadline)]);
    evaluation.settings.deadline_from_user = false;
    let found = best(&evaluation);
    assert_eq!(found.domains, ["task", "container"]);
    assert_eq!(found.ruled_out, [("host", Criterion::Latency)]);
}

#[test]
fn maxima_alone_rule_out_nothing() {
    let mut evaluation = undecided();
    for record in &mut evaluation.records {
        if record.domain == "host" {
            for worst in &mut record.worst {
                worst.value = Nanos::from_secs(1);
            }
        }
    }
    let found = best(&evaluation);
    assert_eq!(found.domains, ["host", "task", "container"]);
    assert!(found.ruled_out.is_empty());
}

#[test]
fn a_lower_ratio_decides_only_beyond_the_other_interval_and_the_tolerance() {
    let mut evaluation = undecided();
    set_ratio(&mut evaluation, "task", "cpu@others", interval(0.5, 0.7));
    // 1.0 ÷ 0.7 is more than the tolerance, but the interval of the container reaches below 0.7.
    let found = best(&evaluation);
    assert_eq!(found.domains, ["task", "container"]);
    assert_eq!(found.ruled_out, [("host", Criterion::Latency)]);
    // Different from the host, but within the tolerance.
    set_ratio(&mut evaluation, "task", "cpu@others", interval(0.85, 0.95));
    assert_eq!(best(&evaluation).domains.len(), 3);
    // Without a difference under load, the idle condition does not decide.
    set_ratio(&mut evaluation, "task", "idle", interval(0.1, 0.2));
    assert_eq!(best(&evaluation).domains.len(), 3);
}

/// A quantile that is open, for example after a negative control with an alarm, decides nothing.
#[test]
fn a_ratio_that_is_open_rules_out_nothing() {
    let mut evaluation = undecided();
    set_ratio(&mut evaluation, "task", "cpu@others", interval(0.1, 0.2));
    assert!(!best(&evaluation).ruled_out.is_empty());
    let figures = &mut to_host(&mut evaluation, "task", "cpu@others").figures;
    let Some(VerdictFigures::SameAsHost { answers, .. }) = figures else {
        panic!("no figures");
    };
    *answers = Some(Answers {
        quantiles: vec![QuantileAnswer {
            quantile: 0.99,
            outcome: VerdictOutcome::Inconclusive,
        }],
        ..Answers::default()
    });
    assert!(best(&evaluation).ruled_out.is_empty());
}

#[test]
fn fewer_stalls_than_the_host_rule_it_out() {
    let with = |outcome, fewer| {
        let mut evaluation = undecided();
        let figures = &mut to_host(&mut evaluation, "task", "cpu@others").figures;
        let Some(VerdictFigures::SameAsHost { answers, .. }) = figures else {
            panic!("no figures");
        };
        *answers = Some(Answers {
            stalls: vec![StallAnswer {
                over: Nanos::from_micros(500),
                events: (6, 90),
                observed: (Nanos::from_secs(17), Nanos::from_secs(17)),
                added_at_most: -0.6,
                tolerated: 2.0,
                fewer,
                confidence: 0.99,
                outcome,
            }],
            ..Answers::default()
        });
        let found = best(&evaluation);
        (
            found.domains.len(),
            found.ruled_out == [("host", Criterion::Latency)],
        )
    };
    assert_eq!(with(VerdictOutcome::Holds, true), (2, true));
    // Not shown, or after a negative control with an alarm.
    assert_eq!(with(VerdictOutcome::Holds, false), (3, false));
    assert_eq!(with(VerdictOutcome::Inconclusive, true), (3, false));
}

#[test]
fn contrary_conditions_rule_out_nothing() {
    let mut evaluation = undecided();
    set_ratio(&mut evaluation, "task", "cpu@others", interval(0.1, 0.2));
    set_ratio(&mut evaluation, "task", "cache@others", interval(5.0, 6.0));
    let found = best(&evaluation);
    assert!(found.domains.contains(&"host") && found.domains.contains(&"task"));
}

#[test]
fn a_failed_comparison_rules_out_without_a_ratio() {
    let mut evaluation = undecided();
    // For example by rare stalls, which no quantile shows.
    to_host(&mut evaluation, "container", "cpu@others").outcome = VerdictOutcome::Fails;
    let found = best(&evaluation);
    assert_eq!(found.ruled_out, [("container", Criterion::Latency)]);
    assert_eq!(found.domains, ["host", "task"]);
    // Only its typical latency is worse.
    let mut answers = Answers::default();
    for (quantile, outcome) in [(0.5, VerdictOutcome::Fails), (0.99, VerdictOutcome::Holds)] {
        answers.quantiles.push(QuantileAnswer { quantile, outcome });
    }
    let figures = &mut to_host(&mut evaluation, "container", "cpu@others").figures;
    if let Some(VerdictFigures::SameAsHost { answers: own, .. }) = figures {
        *own = Some(answers);
    }
    assert!(best(&evaluation).ruled_out.is_empty());
}

#[test]
fn isolation_decides_if_latency_does_not() {
    let mut evaluation = undecided();
    for verdict in &mut evaluation.verdicts {
        if verdict.question == Question::Interference {
            verdict.outcome = match verdict.domain.as_str() {
                "task" => VerdictOutcome::Holds,
                "host" => VerdictOutcome::Leaks,
                _ => VerdictOutcome::Inconclusive,
            };
        }
    }
    let found = best(&evaluation);
    assert_eq!(found.ruled_out, [("host", Criterion::Isolation)]);
    assert_eq!(found.domains, ["task", "container"]);
}

#[test]
fn an_emulated_machine_is_compared_by_structure() {
    let text = include_str!("../../../show/present/tests/documents/transfers.json");
    let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
    let found = best(&evaluation);
    assert!(found.by_structure);
    assert_eq!(found.domains, ["task", "container"]);
    let by_isolation = [("host", Criterion::Isolation), ("vm", Criterion::Isolation)];
    assert_eq!(found.ruled_out, by_isolation);
    // A block of the host's kernel under the guest rules nothing out: it stops the others too.
    for verdict in &mut evaluation.verdicts {
        let by = verdict.disturbance.as_ref();
        if verdict.domain == "vm" && by.is_some_and(|by| by.domain != "vm") {
            verdict.outcome = VerdictOutcome::Holds;
        }
    }
    assert_eq!(best(&evaluation).domains, ["task", "container", "vm"]);
    // Whatever its times are.
    for verdict in &mut evaluation.verdicts {
        if matches!(verdict.question, Question::Deadline | Question::SameAsHost)
            && verdict.domain == "task"
        {
            verdict.outcome = VerdictOutcome::Fails;
        }
    }
    assert!(best(&evaluation).domains.contains(&"task"));
    // A domain whose isolation is open is not shown to be better, not even than the host.
    for verdict in &mut evaluation.verdicts {
        if verdict.question == Question::Transfer && verdict.outcome == VerdictOutcome::Holds {
            verdict.outcome = VerdictOutcome::Inconclusive;
        }
    }
    assert_eq!(best(&evaluation).ruled_out, []);
}

#[test]
fn nothing_measured_has_no_best_domain() {
    let text = include_str!("../../../show/present/tests/documents/empty.json");
    let evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
    assert_eq!(best_domain(&evaluation), None);
}
