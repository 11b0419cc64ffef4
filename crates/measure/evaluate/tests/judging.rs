// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests verdicts from records with known contents.

use std::collections::BTreeMap;

use rampart_evaluate::{Evidence, Judged, VisitsByRecord, judge};
use rampart_model::{
    Condition, CpuId, CpuRecord, CpuSet, Distribution, DomainKind, DomainSelection,
    EvaluatedDomain, EvaluationSettings, Exposure, LoadKind, LoadLocation, MeterKind,
    MeterSettings, Nanos, Question, Record, Series, SeriesRecord, Verdict, VerdictFigures,
    VerdictOutcome,
};
use rampart_stats::{Slice, Visit};

const CPU_LOAD: Condition = Condition {
    load: LoadKind::Cpu,
    location: Some(LoadLocation::Others),
};

fn plan(deadline: Nanos) -> EvaluationSettings {
    let domain = |kind: DomainKind| EvaluatedDomain {
        policy: None,
        deadline: None,
        name: kind.word().to_owned(),
        selection: DomainSelection {
            kind,
            engine: None,
            guest: None,
            cell: None,
        },
        cpus: CpuSet::single(CpuId(1)),
        description: String::new(),
    };
    EvaluationSettings {
        measured: None,
        variants: Vec::new(),
        transfer: None,
        housekeeping: CpuSet::single(CpuId(0)),
        domains: vec![domain(DomainKind::Host), domain(DomainKind::Task)],
        meters: vec![MeterSettings::new(
            MeterKind::Wakeup,
            CpuSet::single(CpuId(1)),
        )],
        conditions: vec![Condition::IDLE, CPU_LOAD],
        repetitions: 3,
        run_duration: Nanos::from_secs(10),
        deadline,
        until_decided: None,
        look: 1,
        deadline_from_user: true,
        total: Nanos::from_secs(120),
        seed: 1,
        findings: Vec::new(),
    }
}

/// Returns three visits of ten slices of a thousand samples each: most at `usual`, the slowest
/// hundredth at `slow`, with a little spread so that visits differ.
fn runs(usual: u64, slow: u64) -> Vec<Visit> {
    let sample = |visit: u64, slice: u64, number: u64| {
        let base = if number.is_multiple_of(100) {
            slow
        } else {
            usual
        };
        Nanos(base + base * ((visit * 31 + slice * 17 + number * 7) % 50) / 1000)
    };
    (0..3)
        .map(|visit| Visit {
            number: visit,
            started: Nanos::from_secs(u64::from(visit)),
            slices: (0..10)
                .map(|slice| Slice {
                    seen: Distribution::from_values(
                        (0..1000).map(|number| sample(visit.into(), slice, number)),
                    ),
                    corrected: None,
                    observed: Nanos::SECOND,
                })
                .collect(),
        })
        .collect()
}

/// The visits of each record.
type Visits = BTreeMap<String, Vec<Visit>>;

/// Adds a record of these runs.
fn add(
    records: &mut Vec<Record>,
    visits: &mut Visits,
    (kind, condition): (DomainKind, Condition),
    runs: Vec<Visit>,
    deadline: Nanos,
) {
    let mut whole = Distribution::default();
    runs.iter()
        .flat_map(|visit| &visit.slices)
        .for_each(|slice| whole.merge(&slice.seen));
    let id = format!("{}/wakeup/{condition}", kind.word());
    visits.insert(id.clone(), runs);
    records.push(Record {
        emulated: false,
        id,
        domain: kind.word().to_owned(),
        kind,
        settings: MeterSettings::new(MeterKind::Wakeup, CpuSet::single(CpuId(1))),
        condition,
        exposure: Exposure {
            samples: whole.samples,
            duration: Nanos::from_secs(30),
            cpus: 1,
            runs: 3,
            missed: 0,
        },
        cpus: vec![CpuRecord {
            cpu: CpuId(1),
            over_deadline: whole.count_above(deadline),
            missed: 0,
            warm_up_max: None,
            series: vec![SeriesRecord {
                series: Series::Lateness,
                seen: whole,
                corrected: None,
            }],
        }],
        worst: Vec::new(),
        runs: Vec::new(),
        invalid: Vec::new(),
    });
}

fn verdict<'a>(judged: &'a Judged, question: Question, record: &str) -> &'a Verdict {
    judged
        .verdicts
        .iter()
        .find(|verdict| verdict.question == question && verdict.records[0] == record)
        .unwrap_or_else(|| panic!("no verdict on {record}"))
}

/// Judges records without rounds.
fn judge_records(
    settings: &EvaluationSettings,
    records: &[Record],
    visits: &Visits,
    emulated: bool,
) -> Judged {
    let visits: VisitsByRecord<'_> = visits
        .iter()
        .map(|(record, runs)| (record.clone(), runs.as_slice()))
        .collect();
    judge(&Evidence {
        settings,
        records,
        visits: &visits,
        transfers: &[],
        emulated,
    })
}

/// Judges a host that leaks under load, and a task that does not.
fn judged(emulated: bool) -> Judged {
    let deadline = Nanos::from_micros(100);
    let (mut records, mut visits) = (Vec::new(), Visits::new());
    for (cell, usual, slow) in [
        ((DomainKind::Host, Condition::IDLE), 5_000, 20_000),
        ((DomainKind::Host, CPU_LOAD), 15_000, 500_000),
        ((DomainKind::Task, Condition::IDLE), 5_000, 20_000),
        ((DomainKind::Task, CPU_LOAD), 5_000, 20_000),
    ] {
        add(&mut records, &mut visits, cell, runs(usual, slow), deadline);
    }
    judge_records(&plan(deadline), &records, &visits, emulated)
}

#[test]
fn answers_each_question_that_the_records_allow() {
    let judged = judged(false);
    let count = |question| {
        judged
            .verdicts
            .iter()
            .filter(|verdict| verdict.question == question)
            .count()
    };
    assert_eq!(count(Question::Deadline), 4);
    assert_eq!(count(Question::SameAsHost), 2);
    assert_eq!(count(Question::Interference), 2);
}

#[test]
fn outcomes_follow_from_the_samples() {
    let judged = judged(false);
    for (question, record, outcome) in [
        (
            Question::Deadline,
            "host/wakeup/idle",
            VerdictOutcome::Holds,
        ),
        (
            Question::Deadline,
            "host/wakeup/cpu@others",
            VerdictOutcome::Fails,
        ),
        (
            Question::Interference,
            "host/wakeup/cpu@others",
            VerdictOutcome::Leaks,
        ),
        (
            Question::Interference,
            "task/wakeup/cpu@others",
            VerdictOutcome::Holds,
        ),
        (
            Question::SameAsHost,
            "task/wakeup/idle",
            VerdictOutcome::Holds,
        ),
    ] {
        let found = verdict(&judged, question, record).outcome;
        assert_eq!(found, outcome, "{question:?} {record}");
    }
}

#[test]
fn a_deadline_carries_its_bound_and_exposure() {
    let judged = judged(false);
    let held = verdict(&judged, Question::Deadline, "task/wakeup/idle");
    let Some(VerdictFigures::Deadline {
        cycles,
        exceedances,
        visits,
        upper_bound,
        time_between_violations,
        ..
    }) = held.figures
    else {
        panic!("{held:?}");
    };
    assert_eq!((cycles, exceedances), (30_000, 0));
    assert_eq!(visits, Some((0, 3)));
    assert!(
        (upper_bound - (1.0 - 0.05f64.cbrt())).abs() < 1e-6,
        "{upper_bound}"
    );
    assert!(time_between_violations.is_some_and(|between| between < Nanos::from_secs(11)));
    assert!(
        held.statement.contains("30 000 cycles"),
        "{}",
        held.statement
    );
}

#[test]
fn missed_periods_count_by_their_corrected_lateness() {
    let deadline = Nanos::from_micros(100);
    let (mut records, mut visits) = (Vec::new(), Visits::new());
    add(
        &mut records,
        &mut visits,
        (DomainKind::Host, Condition::IDLE),
        runs(5_000, 20_000),
        deadline,
    );
    let record = &mut records[0];
    // One stall of 1.05 ms at a period of 200 µs: five periods missed, 850, 650, 450, 250 and
    // 50 µs late; four of them over the deadline.
    record.exposure.missed = 5;
    let lateness = &mut record.cpus[0].series[0];
    lateness
        .seen
        .merge(&Distribution::from_values([Nanos::from_micros(1050)]));
    let mut corrected = lateness.seen.clone();
    corrected.merge(&Distribution::from_values(
        [850, 650, 450, 250, 50].map(Nanos::from_micros),
    ));
    lateness.corrected = Some(corrected);
    record.cpus[0].over_deadline += 1;
    record.exposure.samples += 1;
    let judged = judge_records(&plan(deadline), &records, &visits, false);
    let Some(VerdictFigures::Deadline {
        cycles,
        exceedances,
        ..
    }) = judged.verdicts[0].figures
    else {
        panic!("{:?}", judged.verdicts[0]);
    };
    assert_eq!((cycles, exceedances), (30_006, 5));
}

#[test]
fn judges_no_deadline_on_an_emulated_machine() {
    for verdict in judged(true)
        .verdicts
        .iter()
        .filter(|verdict| verdict.question == Question::Deadline)
    {
        assert_eq!(verdict.outcome, VerdictOutcome::Inconclusive);
        assert!(
            verdict.statement.contains("emulated"),
            "{}",
            verdict.statement
        );
    }
}

/// On an emulated machine no outcome, statement or answer rests on a time.
#[test]
fn judges_no_times_on_an_emulated_machine() {
    let judged = judged(true);
    for verdict in &judged.verdicts {
        if verdict.question == Question::SameAsHost {
            assert_eq!(verdict.outcome, VerdictOutcome::Inconclusive);
            assert!(verdict.figures.is_some(), "the ratio stays a figure");
            assert!(
                verdict
                    .statement
                    .contains("not judged on an emulated machine"),
                "{}",
                verdict.statement
            );
        }
    }
    for (domain, sentence) in &judged.comparison.sentences {
        assert!(
            sentence.starts_with("Latency is not judged on an emulated machine"),
            "{domain}: {sentence}"
        );
        assert!(
            !sentence.contains("100 µs") && !sentence.contains("as good"),
            "{domain}: {sentence}"
        );
    }
    let same = &judged.comparison.rows[1].entries[1];
    assert_eq!(same.answer, "not judged");
    assert_eq!(same.outcome, Some(VerdictOutcome::Inconclusive));
    assert_eq!(same.verdicts.len(), 2);
}

#[test]
fn comparison_rests_on_its_verdicts() {
    let judged = judged(false);
    let answers: Vec<Vec<&str>> = judged
        .comparison
        .rows
        .iter()
        .map(|row| {
            row.entries
                .iter()
                .map(|cell| cell.answer.as_str())
                .collect()
        })
        .collect();
    assert_eq!(
        answers,
        [
            vec!["missed under 1 of 2 conditions", "yes"],
            vec!["–", "yes"],
            vec!["not isolated", "isolated"],
            vec!["–", "no"]
        ]
    );
    let outcomes = judged
        .comparison
        .rows
        .iter()
        .map(|row| row.entries[0].outcome);
    assert_eq!(
        outcomes.collect::<Vec<_>>(),
        [
            Some(VerdictOutcome::Leaks),
            None,
            Some(VerdictOutcome::Leaks),
            None
        ]
    );
    for cell in judged.comparison.rows.iter().flat_map(|row| &row.entries) {
        for id in &cell.verdicts {
            assert!(
                judged.verdicts.iter().any(|verdict| verdict.id == *id),
                "{id}"
            );
        }
    }
    let sentence = &judged.comparison.sentences[0].1;
    assert!(
        sentence.starts_with("Misses 100 µs in 300 of 60 000 cycles (worst 52"),
        "{sentence}"
    );
}

#[test]
fn does_not_judge_without_a_valid_run() {
    let judged = judge_records(&plan(Nanos::SECOND), &[], &Visits::new(), false);
    assert!(judged.verdicts.is_empty());
    assert_eq!(
        judged.comparison.sentences[0].1,
        "No valid run was measured."
    );
    assert_eq!(judged.comparison.rows[0].entries[0].answer, "not measured");
}

#[test]
fn without_a_deadline_the_round_ones_are_counted() {
    let (mut records, mut visits) = (Vec::new(), Visits::new());
    add(
        &mut records,
        &mut visits,
        (DomainKind::Host, Condition::IDLE),
        runs(5_000, 60_000),
        Nanos::from_millis(1),
    );
    let settings = EvaluationSettings {
        deadline_from_user: false,
        ..plan(Nanos::from_millis(1))
    };
    let judged = judge_records(&settings, &records, &visits, false);
    let deadline = |verdict: &&Verdict| verdict.question == Question::Deadline;
    assert_eq!(judged.verdicts.iter().find(deadline), None);
    let reached = &judged.comparison.reached[0];
    let expected = [(10, 300), (20, 300), (50, 300), (100, 0)];
    assert_eq!(
        reached.deadlines,
        expected.map(|(limit, over)| (Nanos::from_micros(limit), over))
    );
    assert!(reached.between > Nanos::from_secs(10) && reached.between < Nanos::from_secs(11));
    let entry = &judged.comparison.rows[0].entries[0];
    assert_eq!(
        (entry.answer.as_str(), entry.outcome),
        ("would meet 100 µs", None)
    );
}

/// A load that adds five stalls of 20 ms a second, and moves neither p50 nor p99.
#[test]
fn a_load_that_only_adds_stalls_leaks() {
    let stalled: Vec<Visit> = runs(5_000, 5_000)
        .into_iter()
        .map(|mut visit| {
            for slice in &mut visit.slices {
                let stalls = Distribution::from_values([Nanos::from_millis(20); 5]);
                slice.seen.merge(&stalls);
            }
            visit
        })
        .collect();
    let (mut records, mut visits) = (Vec::new(), Visits::new());
    for (condition, runs) in [(Condition::IDLE, runs(5_000, 5_000)), (CPU_LOAD, stalled)] {
        let deadline = Nanos::from_millis(1);
        let entry = (DomainKind::Task, condition);
        add(&mut records, &mut visits, entry, runs, deadline);
    }
    let judged = judge_records(&plan(Nanos::from_millis(1)), &records, &visits, false);
    let found = verdict(&judged, Question::Interference, "task/wakeup/cpu@others");
    assert_eq!(found.outcome, VerdictOutcome::Leaks, "{}", found.statement);
    assert!(
        found.statement.ends_with("beyond ×1.5: stalls over 1 ms"),
        "{}",
        found.statement
    );
    let Some(VerdictFigures::Interference { factors, .. }) = &found.figures else {
        panic!("{found:?}");
    };
    assert!(
        factors.iter().all(|(_, factor)| factor.high < 1.5),
        "{factors:?}"
    );
}

/// `noise`: half the gaps of the host, of the same length, and more gaps than the host.
#[test]
fn gaps_are_compared_by_time_and_rate() {
    let gaps = |per_second: u64| -> Vec<Visit> {
        (0..6)
            .map(|number| {
                let slices = (0..5u64).map(|slice| Slice {
                    seen: Distribution::from_values(
                        (0..per_second).map(|gap| Nanos(20_000 + (gap + slice) % 7 * 100)),
                    ),
                    corrected: None,
                    observed: Nanos::SECOND,
                });
                Visit {
                    number,
                    started: Nanos::ZERO,
                    slices: slices.collect(),
                }
            })
            .collect()
    };
    let outcome = |task: u64| {
        let (mut records, mut visits) = (Vec::new(), Visits::new());
        for (kind, gaps) in [
            (DomainKind::Host, gaps(250)),
            (DomainKind::Task, gaps(task)),
        ] {
            let entry = (kind, Condition::IDLE);
            add(
                &mut records,
                &mut visits,
                entry,
                gaps,
                Nanos::from_millis(1),
            );
        }
        for record in &mut records {
            record.settings = MeterSettings::new(MeterKind::Noise, CpuSet::single(CpuId(1)));
        }
        let settings = EvaluationSettings {
            deadline_from_user: false,
            meters: vec![records[0].settings.clone()],
            ..plan(Nanos::from_millis(1))
        };
        let judged = judge_records(&settings, &records, &visits, false);
        let found = verdict(&judged, Question::SameAsHost, &records[1].id).clone();
        let Some(VerdictFigures::SameAsHost { ratios, .. }) = &found.figures else {
            panic!("{found:?}");
        };
        assert!(ratios.is_empty(), "a length of gaps has no ratio");
        found.outcome
    };
    assert_eq!(outcome(125), VerdictOutcome::Holds);
    assert_eq!(outcome(250), VerdictOutcome::Holds);
    assert_eq!(outcome(1_000), VerdictOutcome::Fails);
}

#[test]
fn a_domain_measured_as_two_is_the_same() {
    let control = judged(false).comparison.control.expect("enough slices");
    assert_eq!(control.record, "host/wakeup/idle");
    assert_eq!(control.outcome, VerdictOutcome::Holds, "{control:?}");
}
