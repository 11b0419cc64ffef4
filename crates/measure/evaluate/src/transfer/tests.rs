// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts from simulated rounds whose isolation is known: timelines with and without the effects of
//! blocks, cut and judged like measured ones.

use rampart_model::{
    BlockKind, BlockSpan, BlocksMade, ClockRelation, ComparisonEntry, ComparisonRow, CpuId, CpuSet,
    Distribution, Disturbance, DisturbanceKind, DomainKind, DomainSelection, EvaluatedDomain,
    EvaluationSettings, Finding, LoadKind, MeterKind, MeterSettings, Nanos, Severity, Side,
    SignedNanos, Timeline, TransferRecord, Verdict, VerdictFigures, VerdictOutcome, Watched,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::judge::{TransferVerdicts, numbered, valid};
use super::windows::{Clock, Margins, filled, spans_on, windows};
use crate::{Evidence, Judged, VisitsByRecord, judge};

const INTERVAL: Nanos = Nanos::from_millis(1);
const SLOT: Nanos = Nanos::from_millis(1);
const LENGTH: Nanos = Nanos::from_millis(10);
const QUIET: Nanos = Nanos::from_millis(2);
const START: Nanos = Nanos::from_secs(100);
/// The guest's clock minus the host's.
const SHARED_KERNEL: &str = "limited, the kernel is the host's";
const GUEST_OFFSET: i64 = -77_000_000_000;

const DOMAINS: [(&str, DomainKind); 4] = [
    ("host", DomainKind::Host),
    ("task", DomainKind::Task),
    ("container", DomainKind::Container),
    ("vm", DomainKind::Vm),
];

/// The part of a block, made in or under one domain, that reaches another.
type Reach<'a> = &'a dyn Fn(&Disturbance, &str) -> f64;

/// Isolates every domain; the host's kernel stops a guest by stopping the CPU under it.
fn isolated(by: &Disturbance, domain: &str) -> f64 {
    if by.domain == domain { 1.0 } else { 0.0 }
}

fn plan() -> EvaluationSettings {
    EvaluationSettings {
        measured: None,
        variants: Vec::new(),
        housekeeping: CpuSet::single(CpuId(0)),
        domains: DOMAINS
            .iter()
            .enumerate()
            .map(|(index, (name, kind))| EvaluatedDomain {
                policy: None,
                deadline: None,
                name: (*name).to_owned(),
                selection: DomainSelection::of(*kind),
                cpus: CpuSet::single(CpuId(index as u32)),
                description: String::new(),
            })
            .collect(),
        meters: vec![MeterSettings::new(MeterKind::Wakeup, CpuSet::new())],
        conditions: Vec::new(),
        repetitions: 1,
        run_duration: Nanos::SECOND,
        deadline: Nanos::SECOND,
        until_decided: None,
        look: 2,
        deadline_from_user: false,
        total: Nanos::SECOND,
        seed: 1,
        transfer: None,
        findings: Vec::new(),
    }
}

fn noise(generator: &mut Pcg64Mcg) -> u64 {
    // Exponential around 200 µs, with an occasional stall.
    let stall = generator.random_range(0..200) == 0;
    let usual = -200_000.0 * (1.0 - generator.random::<f64>()).ln();
    (usual * if stall { 5.0 } else { 1.0 }).min(QUIET.0 as f64) as u64
}

/// Returns eighty blocks at random times, on the clock of the kernel that makes them.
fn blocks(generator: &mut Pcg64Mcg, offset: i64) -> Vec<BlockSpan> {
    let mut at = START.0 + 40_000_000;
    (0..80)
        .map(|sequence| {
            at += generator.random_range(25_000_000..75_000_000);
            let start = Nanos(at.saturating_add_signed(offset));
            at += LENGTH.0;
            BlockSpan {
                cpu: CpuId(0),
                sequence,
                start,
                end: start + LENGTH,
            }
        })
        .collect()
}

/// Returns a timeline on the domain's clock in which this part of each block stopped the thread.
fn timeline(
    generator: &mut Pcg64Mcg,
    spans: &[super::windows::Span],
    part: f64,
    offset: i64,
) -> Timeline {
    let start = Nanos(START.0.saturating_add_signed(offset));
    let mut timeline = Timeline {
        start,
        slot: SLOT,
        worst: (0..8000).map(|_| Some(Nanos(noise(generator)))).collect(),
    };
    let stopped = (LENGTH.0 as f64 * part) as u64;
    for span in spans.iter().filter(|_| stopped > 2 * SLOT.0) {
        let index = |moment: u64| (moment - start.0).div_euclid(SLOT.0) as usize;
        let (from, to) = (index(span.start.0), index(span.start.0 + stopped));
        let passed = generator.random_range(0..INTERVAL.0);
        timeline.worst[from + 1..to].fill(None);
        timeline.worst[to] = Some(Nanos(stopped - passed));
    }
    timeline
}

fn clock_of(domain: &str) -> Vec<ClockRelation> {
    let relation = |at: Nanos| ClockRelation {
        at,
        offset: SignedNanos(GUEST_OFFSET),
        uncertainty: Nanos::from_micros(150),
        exchanges: 32,
    };
    if domain == "vm" {
        vec![relation(START), relation(START + Nanos::from_secs(4))]
    } else {
        Vec::new()
    }
}

fn round(generator: &mut Pcg64Mcg, by: Option<&Disturbance>, reach: Reach<'_>) -> TransferRecord {
    let inside_guest = by.is_some_and(|by| by.domain == "vm" && by.side == Side::Inside);
    let made = BlocksMade {
        kind: BlockKind::Module,
        length: LENGTH,
        clock: clock_of(if inside_guest { "vm" } else { "host" }),
        spans: blocks(generator, if inside_guest { GUEST_OFFSET } else { 0 }),
    };
    let is_blocks = by.is_some_and(|by| by.kind == DisturbanceKind::Block);
    let watched = DOMAINS
        .iter()
        .enumerate()
        .map(|(index, (name, _))| {
            let clock = clock_of(name);
            let spans = spans_on(&made.spans, Clock(&made.clock), Clock(&clock));
            let part = by.filter(|_| is_blocks).map_or(0.0, |by| reach(by, name));
            let offset = if *name == "vm" { GUEST_OFFSET } else { 0 };
            let timeline = timeline(generator, &spans, part, offset);
            let margins = Margins {
                uncertainty: Clock(&clock).uncertainty(),
                after: INTERVAL + QUIET,
            };
            let cut = if is_blocks {
                windows(&spans, &[&timeline], margins, index as u64)
            } else {
                Vec::new()
            };
            let factor = by
                .filter(|_| !is_blocks)
                .map_or(1.0, |by| 1.0 + reach(by, name));
            let seen = Distribution::from_values(
                (0..20_000).map(|_| Nanos((noise(generator) as f64 * factor) as u64)),
            );
            Watched {
                domain: (*name).to_owned(),
                cpu: CpuId(index as u32),
                windows: filled(&cut, &timeline),
                clock,
                timeline,
                seen,
                corrected: None,
                missed: 0,
                guest: None,
                cell: None,
                detached: None,
                invalid: Vec::new(),
                findings: Vec::new(),
            }
        })
        .collect();
    TransferRecord {
        id: by.map_or("quiet".to_owned(), ToString::to_string),
        group: 0,
        order: 0,
        disturbance: by.cloned(),
        started: String::new(),
        duration: Nanos::from_secs(4),
        blocks: is_blocks.then_some(made),
        load: None,
        watched,
        invalid: Vec::new(),
        findings: Vec::new(),
    }
}

fn disturbances(texts: &[&str]) -> Vec<Disturbance> {
    texts
        .iter()
        .map(|text| text.parse().expect("a disturbance"))
        .collect()
}

const BLOCKS: [&str; 5] = [
    "block:host",
    "block:task",
    "block:container",
    "block:vm",
    "block:under:vm",
];

fn rounds(seed: u64, texts: &[&str], reach: Reach<'_>) -> Vec<TransferRecord> {
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    disturbances(texts)
        .iter()
        .map(|by| round(&mut generator, Some(by), reach))
        .collect()
}

fn judged(rounds: &[TransferRecord], emulated: bool) -> Judged {
    judge(&Evidence {
        settings: &plan(),
        records: &[],
        visits: &VisitsByRecord::new(),
        transfers: rounds,
        emulated,
    })
}

fn verdict<'a>(judged: &'a Judged, by: &str, domain: &str) -> &'a Verdict {
    judged
        .verdicts
        .iter()
        .find(|verdict| {
            let found = verdict.disturbance.as_ref().map(ToString::to_string);
            verdict.domain == domain && found.as_deref() == Some(by)
        })
        .unwrap_or_else(|| panic!("no verdict on {by} in {domain}"))
}

fn estimate(verdict: &Verdict) -> f64 {
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => transfer.estimate,
        other => panic!("{other:?}"),
    }
}

fn row<'a>(judged: &'a Judged, question: &str) -> &'a ComparisonRow {
    judged
        .comparison
        .rows
        .iter()
        .find(|row| row.question == question)
        .expect("a row")
}

fn entry_of<'a>(judged: &'a Judged, question: &str, domain: usize) -> &'a ComparisonEntry {
    &row(judged, question).entries[domain]
}

fn answers(judged: &Judged, question: &str) -> Vec<String> {
    row(judged, question)
        .entries
        .iter()
        .map(|entry| entry.answer.clone())
        .collect()
}

/// Checks all twenty-five entries, with a guest that has its own clock.
#[test]
fn reports_the_isolation_that_was_simulated() {
    let judged = judged(&rounds(1, &BLOCKS, &isolated), false);
    assert_eq!(judged.verdicts.len(), 20);
    for by in disturbances(&BLOCKS) {
        for (domain, _) in DOMAINS {
            let verdict = verdict(&judged, &by.to_string(), domain);
            let crosses = by.domain == domain;
            let expected = if crosses {
                VerdictOutcome::Leaks
            } else {
                VerdictOutcome::Holds
            };
            assert_eq!(verdict.outcome, expected, "{}", verdict.statement);
            let truth = if crosses { 0.91 } else { 0.0 };
            assert!(
                (estimate(verdict) - truth).abs() < 0.06,
                "{}",
                verdict.statement
            );
            assert_eq!(verdict.statement.starts_with("positive control: "), crosses);
            assert_eq!(
                verdict.id,
                format!("transfer/{domain}/wakeup/{by}"),
                "as documented"
            );
            assert_eq!(verdict.records, [by.to_string()]);
        }
    }
    // Without loads there is not enough data to rate the guest "good".
    assert_eq!(
        answers(&judged, "isolation"),
        [
            SHARED_KERNEL,
            SHARED_KERNEL,
            SHARED_KERNEL,
            "not enough data"
        ]
    );
    let reason = &entry_of(&judged, "isolation", 3).reason;
    assert!(
        reason.contains("not measured with loads: host, task, container"),
        "{reason}"
    );
    let sentence = &judged.comparison.sentences[3].1;
    assert!(
        sentence.contains("solated from blocks in other domains")
            && sentence.contains("stopped by a block of the host's kernel under it"),
        "{sentence}"
    );
    // On an emulated machine, where loads are not judged, blocks are enough.
    let emulated = self::judged(&rounds(1, &BLOCKS, &isolated), true);
    assert_eq!(answers(&emulated, "isolation")[3], "good");
    let reason = &entry_of(&emulated, "isolation", 3).reason;
    assert!(
        reason.contains("Loads are not judged on an emulated machine"),
        "{reason}"
    );
    for entry in judged.comparison.rows.iter().flat_map(|row| &row.entries) {
        for id in &entry.verdicts {
            assert!(
                judged.verdicts.iter().any(|verdict| verdict.id == *id),
                "{id}"
            );
        }
    }
}

/// The task shares the host's CPU.
#[test]
fn reports_missing_isolation_as_a_leak() {
    let shared_cpu = |by: &Disturbance, domain: &str| {
        let shared = ["host", "task"];
        let both = shared.contains(&by.domain.as_str()) && shared.contains(&domain);
        f64::from(u8::from(both || by.domain == domain))
    };
    let judged = judged(&rounds(2, &BLOCKS, &shared_cpu), false);
    for (by, domain) in [("block:host", "task"), ("block:task", "host")] {
        let verdict = verdict(&judged, by, domain);
        assert_eq!(
            verdict.outcome,
            VerdictOutcome::Leaks,
            "{}",
            verdict.statement
        );
        assert!(estimate(verdict) > 0.85, "{}", verdict.statement);
    }
    assert_eq!(
        verdict(&judged, "block:host", "container").outcome,
        VerdictOutcome::Holds
    );
    assert_eq!(
        answers(&judged, "isolation"),
        [
            "not isolated",
            "not isolated",
            SHARED_KERNEL,
            "not enough data"
        ]
    );
    let sentence = &judged.comparison.sentences[1].1;
    assert_eq!(sentence, "Stopped by blocks in other domains (block:host).");
}

/// Twenty stalls of 20 ms in a round are twenty samples as taken and four hundred periods that passed:
/// 0.1 % of the samples as taken, 2 % of the corrected ones.
#[test]
fn interference_counts_the_periods_that_a_stall_skips() {
    let mut generator = Pcg64Mcg::seed_from_u64(4);
    let load: Disturbance = "cpu:host".parse().expect("a disturbance");
    let mut rounds = Vec::new();
    for (by, stalls) in [
        (None, 0),
        (Some(&load), 20),
        (None, 0),
        (Some(&load), 20),
        (None, 0),
    ] {
        let mut round = round(&mut generator, by, &isolated);
        for watched in round.watched.iter_mut().filter(|of| of.domain == "task") {
            let stall = |milliseconds| Nanos::from_millis(milliseconds);
            let mut corrected = watched.seen.clone();
            for _ in 0..stalls {
                watched.seen.merge(&Distribution::from_values([stall(20)]));
                corrected.merge(&Distribution::from_values((1..=20).map(stall)));
            }
            watched.missed = stalls * 19;
            watched.corrected = (stalls > 0).then_some(corrected);
        }
        rounds.push(round);
    }
    let judged = judged(&rounds, false);
    let verdict = verdict(&judged, "cpu:host", "task");
    assert_eq!(
        verdict.outcome,
        VerdictOutcome::Leaks,
        "{}",
        verdict.statement
    );
    // The stalls alone would be a leak, too.
    let Some(VerdictFigures::Interference { factors, .. }) = &verdict.figures else {
        panic!("{verdict:?}");
    };
    let p99 = factors.iter().find(|(quantile, _)| *quantile == 0.99);
    let factor = p99.expect("p99").1.estimate;
    assert!(factor > 4.0, "{factor}");
}

/// Rounds of one number are compared as neighbours in time, also if others between them are invalid.
#[test]
fn rounds_are_numbered_before_invalid_ones_are_left_out() {
    let mut generator = Pcg64Mcg::seed_from_u64(4);
    let load: Disturbance = "cpu:host".parse().expect("a disturbance");
    let bad = Finding::new(Severity::Error, "task", "disturbed from outside");
    let quiet = |faults: usize, generator: &mut Pcg64Mcg| {
        let mut round = round(generator, None, &isolated);
        round.invalid = vec![bad.clone(); faults];
        round
    };
    let mut made = Vec::new();
    // The second quiet round fails and is not repeated at once, the third one is.
    for faults in [0, 1, 0] {
        made.push(quiet(faults, &mut generator));
        made.push(round(&mut generator, Some(&load), &isolated));
    }
    made.push(quiet(1, &mut generator));
    made.push(quiet(0, &mut generator));
    let all = numbered(&made, |round| round.disturbance.is_none());
    let numbers = |rounds: &[(u32, &TransferRecord)]| -> Vec<u32> {
        rounds.iter().map(|(number, _)| *number).collect()
    };
    assert_eq!(numbers(&all), [0, 1, 2, 3, 3]);
    assert_eq!(numbers(&valid(&all, "task").0), [0, 2, 3]);
}

#[test]
fn reports_no_leak_of_quiet_domains_in_twenty_evaluations() {
    for seed in 0..20 {
        let judged = judged(&rounds(100 + seed, &["block:host"], &isolated), false);
        for domain in ["task", "container", "vm"] {
            let verdict = verdict(&judged, "block:host", domain);
            assert_ne!(
                verdict.outcome,
                VerdictOutcome::Leaks,
                "{}",
                verdict.statement
            );
        }
    }
}

/// Blocks that do not stop their own CPU prove nothing.
#[test]
fn decides_nothing_without_the_positive_control() {
    let broken = |by: &Disturbance, domain: &str| {
        if by.domain == "task" {
            0.0
        } else {
            isolated(by, domain)
        }
    };
    let judged = judged(&rounds(3, &BLOCKS, &broken), false);
    for (domain, _) in DOMAINS {
        let verdict = verdict(&judged, "block:task", domain);
        assert_eq!(verdict.outcome, VerdictOutcome::Inconclusive);
        let expected = if domain == "task" {
            "the positive control fails"
        } else {
            "do not stop task itself"
        };
        assert!(
            verdict.statement.contains(expected),
            "{}",
            verdict.statement
        );
    }
    assert_eq!(
        verdict(&judged, "block:host", "task").outcome,
        VerdictOutcome::Holds
    );
    assert_eq!(answers(&judged, "isolation")[1], "3 of 7 blocks open");
}

/// A core that the host's kernel does not control, as in a cell.
#[test]
fn isolation_from_the_host_kernel_is_excellent() {
    let excellent = |by: &Disturbance, domain: &str| {
        if by.side == Side::Under {
            0.0
        } else {
            isolated(by, domain)
        }
    };
    let judged = judged(&rounds(4, &BLOCKS, &excellent), true);
    // The round of the host's own CPU shows that its kernel can make blocks.
    assert_eq!(answers(&judged, "isolation")[3], "excellent");
    let mut unknown = rounds(4, &BLOCKS, &excellent);
    unknown.retain(|round| round.id != "block:host");
    let judged = self::judged(&unknown, true);
    assert_eq!(answers(&judged, "isolation")[3], "not enough data");
    let reason = &entry_of(&judged, "isolation", 3).reason;
    assert!(
        reason.contains("not measured with: block:host in vm"),
        "{reason}"
    );
}

/// With one real-time CPU only the host runs at the same time as each of the others.
#[test]
fn names_pairs_that_never_ran_at_the_same_time() {
    let mut made = rounds(7, &BLOCKS, &isolated);
    for round in &mut made {
        let by = round.disturbance.clone().expect("a disturbance");
        round.watched.retain(|watched| {
            watched.domain == by.domain || watched.domain == "host" || by.domain == "host"
        });
    }
    let judged = judged(&made, true);
    assert_eq!(
        answers(&judged, "isolation"),
        [
            SHARED_KERNEL,
            SHARED_KERNEL,
            SHARED_KERNEL,
            "not enough data"
        ]
    );
    for (index, missing) in [
        (1, "not measured with: container, vm"),
        (2, "not measured with: task, vm"),
        (3, "not measured with: task, container"),
    ] {
        let reason = &entry_of(&judged, "isolation", index).reason;
        assert!(reason.contains(missing), "{reason}");
    }
    let sentence = &judged.comparison.sentences[1].1;
    assert!(
        sentence.contains("solated from blocks in host"),
        "{sentence}"
    );
}

/// Verdicts from the cache equal new ones after more rounds are added.
#[test]
fn cached_verdicts_equal_new_ones() {
    let texts = [
        "block:host",
        "cache:task",
        "block:task",
        "block:under:vm",
        "cache:task",
    ];
    let mut all = rounds(8, &texts, &isolated);
    let mut generator = Pcg64Mcg::seed_from_u64(9);
    for index in [1, 4] {
        all.insert(index, round(&mut generator, None, &isolated));
    }
    for (number, round) in all.iter_mut().enumerate() {
        round.id = format!("{}/0/{number}", round.id);
    }
    let mut kept = TransferVerdicts::default();
    for made in 0..=all.len() {
        let drawn = kept.judge(&plan(), &all[..made], false);
        let anew = TransferVerdicts::default().judge(&plan(), &all[..made], false);
        assert_eq!(drawn, anew, "after {made} rounds");
    }
}

#[test]
fn compares_loads_with_the_quiet_rounds_between_them() {
    let mut generator = Pcg64Mcg::seed_from_u64(5);
    let slow = |by: &Disturbance, domain: &str| match (by.kind, domain) {
        (DisturbanceKind::Load(LoadKind::Cache), "container") => 2.0,
        _ => 0.0,
    };
    let mut made = Vec::new();
    for number in 0..4 {
        for by in disturbances(&["cache:task", "cpu:task"]) {
            let mut record = round(&mut generator, Some(&by), &slow);
            record.id = format!("{by}/0/{number}");
            made.push(record);
        }
        let mut record = round(&mut generator, None, &slow);
        record.id = format!("quiet/0/{number}");
        made.push(record);
    }
    let real = judged(&made, false);
    let leak = verdict(&real, "cache:task", "container");
    assert_eq!(leak.outcome, VerdictOutcome::Leaks, "{}", leak.statement);
    assert_eq!(leak.condition.to_string(), "cache@others");
    assert_eq!(leak.records.len(), 8);
    let held = verdict(&real, "cpu:task", "container");
    assert_ne!(held.outcome, VerdictOutcome::Leaks, "{}", held.statement);
    assert_eq!(
        verdict(&real, "cpu:task", "task").condition.to_string(),
        "cpu@same"
    );
    // If few CPUs emulate all CPUs, a load on any of them slows all.
    let emulated = judged(&made, true);
    let open = verdict(&emulated, "cache:task", "container");
    assert_eq!(open.outcome, VerdictOutcome::Inconclusive);
    assert!(open.statement.contains("emulated"), "{}", open.statement);
}

#[test]
fn excludes_invalid_rounds_from_the_figures() {
    let mut made = rounds(6, &["block:host"], &isolated);
    let bad = Finding::new(Severity::Error, "vm", "it never came up");
    made[0].watched[3].invalid = vec![bad.clone()];
    let partly = judged(&made, false);
    let missing = verdict(&partly, "block:host", "vm");
    assert!(missing.figures.is_none() && missing.statement.contains("never came up"));
    assert_eq!(
        verdict(&partly, "block:host", "task").outcome,
        VerdictOutcome::Holds
    );
    made[0].invalid = vec![bad];
    let wholly = judged(&made, false);
    for (domain, _) in DOMAINS {
        let verdict = verdict(&wholly, "block:host", domain);
        assert_eq!(verdict.outcome, VerdictOutcome::Inconclusive);
        assert!(verdict.figures.is_none() && verdict.exposure.samples == 0);
    }
}
