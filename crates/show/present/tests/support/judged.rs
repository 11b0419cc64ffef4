// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Invented verdicts on the invented rounds and crash.

use rampart_model::{
    ComparisonEntry, ComparisonRow, Condition, CrashRecord, CrashWitness, Crossed, Distribution,
    Disturbance, DisturbanceKind, Evaluation, Exposure, Interval, LoadKind, LoadLocation,
    MeterKind, Nanos, Question, Side, SignedNanos, TransferRecord, Verdict, VerdictFigures,
    VerdictOutcome, Watched,
};

use super::conclude::Word;
use super::{IDLE, transfers};

const TRANSFER_TOLERANCE: f64 = 0.1;
const LOAD_TOLERANCE: f64 = 1.5;

/// Draws verdicts from the rounds and the crash.
pub(crate) fn judge(evaluation: &mut Evaluation) {
    for verdict in &mut evaluation.verdicts {
        if verdict.question == Question::Deadline {
            verdict.outcome = VerdictOutcome::Inconclusive;
            verdict.statement = "the machine is emulated in software: its times mean nothing, and no deadline is judged".to_owned();
        }
        if verdict.question == Question::SameAsHost {
            verdict.outcome = VerdictOutcome::Inconclusive;
            verdict
                .statement
                .push_str("; but these are emulated times, and nothing follows about real ones");
        }
    }
    let Some(quiet) = evaluation.transfers.first().cloned() else {
        return;
    };
    let mut drawn = Vec::new();
    for round in &evaluation.transfers {
        let Some(disturbance) = &round.disturbance else {
            continue;
        };
        for (index, watched) in round.watched.iter().enumerate() {
            drawn.push(match disturbance.kind {
                DisturbanceKind::Block => transfer(disturbance, round, watched),
                DisturbanceKind::Load(load) => {
                    interference(disturbance, load, round, watched, &quiet.watched[index])
                }
            });
        }
    }
    drawn.extend(evaluation.crash.iter().flat_map(crashed));
    evaluation.verdicts.extend(drawn);
}

fn verdict(question: Question, word: &str, domain: &str, rest: &str) -> Verdict {
    Verdict {
        id: format!("{word}/{domain}/wakeup/{rest}"),
        question,
        domain: domain.to_owned(),
        meter: MeterKind::Wakeup,
        condition: IDLE,
        disturbance: None,
        outcome: VerdictOutcome::Inconclusive,
        statement: "nothing valid was measured".to_owned(),
        figures: None,
        exposure: Exposure::default(),
        records: Vec::new(),
    }
}

fn of_round(
    question: Question,
    word: &str,
    disturbance: &Disturbance,
    round: &TransferRecord,
    watched: &Watched,
) -> Verdict {
    let mut verdict = verdict(question, word, &watched.domain, &disturbance.to_string());
    verdict.disturbance = Some(disturbance.clone());
    verdict.exposure = Exposure {
        samples: watched.seen.samples,
        duration: round.duration,
        cpus: 1,
        runs: 1,
        missed: watched.missed,
    };
    verdict.records = vec![round.id.clone()];
    if let Some(why) = round.invalid.first() {
        verdict.statement = format!("the round does not count: {}", why.what);
    }
    verdict
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn transfer(disturbance: &Disturbance, round: &TransferRecord, watched: &Watched) -> Verdict {
    let mut verdict = of_round(Question::Transfer, "transfer", disturbance, round, watched);
    let sorted = |with_block: bool| {
        let windows = watched
            .windows
            .iter()
            .filter(|window| window.block.is_some() == with_block);
        let mut all: Vec<u64> = windows
            .filter_map(|window| window.worst)
            .map(|worst| worst.0)
            .collect();
        all.sort_unstable();
        all
    };
    let (with, without) = (sorted(true), sorted(false));
    let (Some(upper), Some(lower)) = (with.get(with.len() / 2), without.get(without.len() / 2))
    else {
        return verdict;
    };
    let length = transfers::LENGTH.0 as f64;
    let excess = *upper as i64 - *lower as i64;
    let spread = |all: &[u64]| (all[all.len() * 3 / 4] - all[all.len() / 4]) as f64;
    let half = (spread(&with) + spread(&without)) * 0.4 / length + 0.004;
    let estimate = excess as f64 / length;
    let interval = Interval {
        estimate: rounded(estimate),
        low: rounded(estimate - half),
        high: rounded(estimate + half),
        confidence: 0.95,
    };
    verdict.outcome = if interval.low > TRANSFER_TOLERANCE {
        VerdictOutcome::Leaks
    } else if interval.high < TRANSFER_TOLERANCE {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    let crosses = verdict.outcome == VerdictOutcome::Leaks;
    verdict.statement = format!(
        "{:.0} % of a block of {} reaches it ({:.0} to {:.0} %), tolerated are 10 %",
        interval.estimate * 100.0,
        transfers::LENGTH,
        interval.low * 100.0,
        interval.high * 100.0
    );
    verdict.figures = Some(VerdictFigures::Transfer {
        transfer: interval,
        p_value: if crosses { 0.0001 } else { 0.38 },
        excess: SignedNanos(excess),
        kind: rampart_model::BlockKind::Module,
        length: transfers::LENGTH,
        with_block: with.len() as u32,
        without_block: without.len() as u32,
        tolerance: TRANSFER_TOLERANCE,
        crossed: Some(crossed(&with, &without)),
    });
    verdict
}

/// By the level of an emulated machine.
fn crossed(with: &[u64], without: &[u64]) -> Crossed {
    let level = 0.5;
    let limit = without[without.len() / 2] + (level * transfers::LENGTH.0 as f64) as u64;
    let count = |all: &[u64]| all.iter().filter(|worst| **worst > limit).count() as u32;
    let crossed = count(with);
    Crossed {
        level,
        with_block: crossed,
        without_block: count(without),
        at_most: rounded(f64::from(crossed + 3) / f64::from(with.len() as u32 + 3)),
    }
}

fn interference(
    disturbance: &Disturbance,
    load: LoadKind,
    round: &TransferRecord,
    watched: &Watched,
    quiet: &Watched,
) -> Verdict {
    let mut verdict = of_round(
        Question::Interference,
        "interference",
        disturbance,
        round,
        watched,
    );
    verdict.condition = Condition {
        load,
        location: Some(LoadLocation::Others),
    };
    verdict.records.push("quiet/0/0".to_owned());
    if !round.invalid.is_empty() {
        return verdict;
    }
    let factor = |quantile: f64, half: f64| {
        let of = |seen: &Distribution| seen.quantile(quantile).map(|value| value.0 as f64);
        let estimate = of(&watched.seen)? / of(&quiet.seen)?;
        let interval = Interval {
            estimate: rounded(estimate),
            low: rounded(estimate * (1.0 - half)),
            high: rounded(estimate * (1.0 + half)),
            confidence: 0.967,
        };
        Some((quantile, interval))
    };
    let factors: Vec<(f64, Interval)> = [(0.5, 0.04), (0.95, 0.11)]
        .into_iter()
        .filter_map(|(quantile, half)| factor(quantile, half))
        .collect();
    verdict.outcome = if factors.iter().any(|(_, one)| one.low > LOAD_TOLERANCE) {
        VerdictOutcome::Leaks
    } else if factors.iter().all(|(_, one)| one.high <= LOAD_TOLERANCE) {
        VerdictOutcome::Holds
    } else {
        VerdictOutcome::Inconclusive
    };
    let largest = factors
        .iter()
        .map(|(_, one)| one.estimate)
        .fold(0.0, f64::max);
    verdict.statement =
        format!("the largest factor is {largest:.2}, tolerated are {LOAD_TOLERANCE}");
    verdict.figures = Some(VerdictFigures::Interference {
        idle: "quiet/0/0".to_owned(),
        factors,
        tolerance: LOAD_TOLERANCE,
        batches: (4, 4),
    });
    verdict
}

fn crashed(crash: &CrashRecord) -> Vec<Verdict> {
    let of = |witness: &CrashWitness| {
        let mut verdict = verdict(Question::Crash, "crash", &witness.domain, "crash:host");
        let lived = witness.lived?;
        let survived = lived.0 > witness.uncertainty.0 as i64;
        verdict.outcome = if survived {
            VerdictOutcome::Holds
        } else {
            VerdictOutcome::Fails
        };
        let side = if lived.0 < 0 { "before" } else { "after" };
        verdict.statement = format!(
            "its last sample came {} {side} the crash; {} were waited for another",
            Nanos(lived.0.unsigned_abs()),
            crash.observed
        );
        verdict.figures = Some(VerdictFigures::Crash {
            lived,
            uncertainty: witness.uncertainty,
            observed: crash.observed,
        });
        verdict.exposure.duration = crash.observed;
        Some(verdict)
    };
    crash.witnesses.iter().filter_map(of).collect()
}

const UNJUDGED: Word = ("not judged here", VerdictOutcome::Inconclusive);
const IN_STRUCTURE: Word = ("in structure", VerdictOutcome::Holds);

fn asked_of(verdicts: &[Verdict], question: Question) -> Vec<&Verdict> {
    let asked = |one: &&Verdict| one.question == question;
    verdicts.iter().filter(asked).collect()
}

/// `block:host in vm` of those with this outcome; none where there is none.
fn named(verdicts: &[&Verdict], outcome: VerdictOutcome) -> Option<String> {
    let words: Vec<String> = verdicts
        .iter()
        .filter(|one| one.outcome == outcome)
        .filter_map(|one| Some(format!("{} in {}", one.disturbance.as_ref()?, one.domain)))
        .collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// The rows that rest on disturbances and on the crash in place of those that do without.
pub(crate) fn compare(evaluation: &mut Evaluation) {
    let names: Vec<String> = evaluation
        .plan
        .domains
        .iter()
        .map(|plan| plan.name.clone())
        .collect();
    let verdicts = evaluation.verdicts.clone();
    let ids = |on: &[&Verdict]| on.iter().map(|one| one.id.clone()).collect();
    let asked = |name: &str, question: Question| -> Vec<&Verdict> {
        let of = |one: &&Verdict| one.domain == name && one.question == question;
        verdicts.iter().filter(of).collect()
    };
    let cell =
        |name: &str, (answer, outcome): Word, reason: String, on: &[&Verdict]| ComparisonEntry {
            domain: name.to_owned(),
            answer: answer.to_owned(),
            outcome: Some(outcome),
            reason,
            verdicts: ids(on),
        };
    let blocks: Vec<&Verdict> = asked_of(&verdicts, Question::Transfer);
    let into = |name: &str| -> Vec<&Verdict> {
        let from_others = |one: &&&Verdict| {
            let by = one.disturbance.as_ref();
            one.domain == name && by.is_some_and(|by| by.domain != name)
        };
        blocks.iter().filter(from_others).copied().collect()
    };
    let out_of = |name: &str| -> Vec<&Verdict> {
        let its_own = |one: &&&Verdict| {
            let by = one.disturbance.as_ref();
            one.domain != name && by.is_some_and(|by| by.domain == name && by.side == Side::Inside)
        };
        blocks.iter().filter(its_own).copied().collect()
    };
    let judged = |name: &String| {
        let on = into(name);
        let emulated = "the machine is emulated: its times mean nothing";
        let (word, reason) = if let Some(crossing) = named(&on, VerdictOutcome::Leaks) {
            (
                ("no", VerdictOutcome::Fails),
                format!("blocks in other domains stop it: {crossing}"),
            )
        } else if named(&on, VerdictOutcome::Inconclusive).is_some() {
            (UNJUDGED, emulated.to_owned())
        } else {
            (
                IN_STRUCTURE,
                format!("no block in another domain stops it; {emulated}"),
            )
        };
        cell(name, word, reason, &on)
    };
    let separated = |name: &String| {
        let across = [into(name), out_of(name)].concat();
        let from_others = |one: &&Verdict| {
            let by = one.disturbance.as_ref();
            &one.domain == name && by.is_some_and(|by| &by.domain != name || by.side == Side::Under)
        };
        let mut on: Vec<&Verdict> = verdicts.iter().filter(from_others).collect();
        on.extend(out_of(name));
        let (word, reason) = if let Some(crossing) = named(&across, VerdictOutcome::Leaks) {
            (
                ("none", VerdictOutcome::Fails),
                format!("blocks cross: {crossing}"),
            )
        } else if let Some(open) = named(&across, VerdictOutcome::Inconclusive) {
            (
                ("not decided", VerdictOutcome::Inconclusive),
                format!("the windows do not decide about {open}"),
            )
        } else {
            (
                ("limited", VerdictOutcome::Leaks),
                "no block crosses; but it has no kernel of its own, only the host's".to_owned(),
            )
        };
        cell(name, word, reason, &on)
    };
    let independent = |name: &String| {
        let reason = "it ended with the host's kernel".to_owned();
        let no = ("no", VerdictOutcome::Fails);
        cell(name, no, reason, &asked(name, Question::Crash))
    };
    let row = |question: &str, cells| ComparisonRow {
        question: question.to_owned(),
        cells,
    };
    let same = |name: &String| {
        let on = asked(name, Question::SameAsHost);
        let (word, reason) = match name.as_str() {
            "host" => {
                return ComparisonEntry {
                    outcome: None,
                    ..cell(
                        name,
                        ("–", VerdictOutcome::Holds),
                        "it is the host".to_owned(),
                        &on,
                    )
                };
            }
            "vm" => (
                UNJUDGED,
                "it has a kernel of its own above the host's, and what that costs shows in times alone",
            ),
            _ => (
                IN_STRUCTURE,
                "it runs on the host's kernel under the same policy, verified",
            ),
        };
        cell(name, word, reason.to_owned(), &on)
    };
    evaluation.comparison.rows = vec![
        row(
            "real-time in the domain",
            names.iter().map(judged).collect(),
        ),
        row(
            "same latency as on the host",
            names.iter().map(same).collect(),
        ),
        row("separation", names.iter().map(separated).collect()),
        row(
            "complete independence from the host",
            names.iter().map(independent).collect(),
        ),
    ];
    for (name, sentence) in &mut evaluation.comparison.sentences {
        *sentence = match name.as_str() {
            "host" => "Blocks of its own CPU alone reach it.",
            "vm" => "Blocks of the CPU under it and of the host reach it; blocks inside it reach no other domain.",
            _ => "No block of another domain reaches it; a load of the shared cache does.",
        }
        .to_owned();
    }
}
