// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who disturbs whom: the matrix of walls, and the crash of the host.

use std::collections::BTreeSet;

use comfy_table::Cell;
use rampart_model::{
    BlockKind, Disturbance, DisturbanceKind, Evaluation, Interval, Nanos, Question, RecordedAfter,
    SignedNanos, Verdict, VerdictFigures, VerdictOutcome,
};

use super::text::Page;
use crate::{format, walls};

/// Room that a column with a watched domain takes, with its lines: `control 0.98`, and under it
/// `(−0.02–0.01)`.
const COLUMN: usize = 15;

/// One table for blocks and one for loads: rows are what was disturbed, columns who was watched.
pub(crate) fn matrix(page: &mut Page, evaluation: &Evaluation) {
    let all = walls::disturbances(evaluation);
    let watched = walls::watched(evaluation);
    let (blocks, loads): (Vec<&Disturbance>, Vec<&Disturbance>) = all
        .into_iter()
        .partition(|of| of.kind == DisturbanceKind::Block);
    if !blocks.is_empty() {
        page.heading("Who disturbs whom: part of a block that reaches the watched domain");
        table(page, evaluation, &blocks, &watched);
        page.paragraph(&block_remark(evaluation, &blocks), 0);
    }
    if !loads.is_empty() {
        page.heading("Who disturbs whom: by which factor a load slows the watched domain");
        table(page, evaluation, &loads, &watched);
        page.paragraph(
            "Quantile under load divided by the same without, the largest of those compared: 1 is no effect. (own): the load's own domain, no wall.",
            0,
        );
    }
    let invalid = evaluation
        .transfers
        .iter()
        .filter(|round| !round.invalid.is_empty())
        .count();
    if invalid > 0 {
        page.paragraph(
            &format!(
                "{invalid} of {} rounds do not count; the reasons stand under \"Warnings\".",
                evaluation.transfers.len()
            ),
            0,
        );
    }
}

fn table(page: &mut Page, evaluation: &Evaluation, rows: &[&Disturbance], watched: &[&str]) {
    let name = rows
        .iter()
        .map(|of| of.to_string().chars().count())
        .max()
        .unwrap_or(0);
    let columns = page.room().saturating_sub(name + 4) / COLUMN;
    for part in watched.chunks(columns.max(1)) {
        let mut header = vec!["disturbed"];
        header.extend(part);
        let rows = rows.iter().map(|disturbance| {
            let mut cells = vec![page.cell(&disturbance.to_string())];
            cells.extend(part.iter().map(|domain| {
                let found = walls::verdict(evaluation, disturbance, domain);
                found.map_or_else(|| page.cell("–"), |verdict| cell(page, verdict))
            }));
            cells
        });
        let rows = rows.collect();
        page.named(&header, rows);
    }
}

/// Outcome and figure on the first line, interval on the second.
fn cell(page: &Page, verdict: &Verdict) -> Cell {
    let (word, outcome) = if walls::is_control(verdict) {
        match walls::is_felt(verdict) {
            true => ("control".to_owned(), None),
            false => ("NOT\u{a0}FELT".to_owned(), Some(VerdictOutcome::Fails)),
        }
    } else if walls::is_own(verdict) {
        ("(own)".to_owned(), None)
    } else {
        (verdict.outcome.to_string(), Some(verdict.outcome))
    };
    let text = figure(verdict).map_or_else(
        || word.clone(),
        |(value, interval)| {
            let gap = if word.chars().count() > 8 {
                ' '
            } else {
                '\u{a0}'
            };
            format!("{word}{gap}{value} ({interval})")
        },
    );
    page.outcome_cell(outcome, &text)
}

/// The leading figure of a verdict and the ends of its interval.
fn figure(verdict: &Verdict) -> Option<(String, String)> {
    let two = |value: f64| {
        format!("{value:.2}")
            .replace("-0.00", "0.00")
            .replace('-', "−")
    };
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => Some((
            two(transfer.estimate),
            format!("{}–{}", two(transfer.low), two(transfer.high)),
        )),
        Some(VerdictFigures::Interference { factors, .. }) => {
            let by_estimate =
                |a: &&(f64, Interval), b: &&(f64, Interval)| a.1.estimate.total_cmp(&b.1.estimate);
            let (_, largest) = factors.iter().max_by(by_estimate)?;
            Some((
                format!("×{}", format::ratio(largest.estimate)),
                format!(
                    "{}–{}",
                    format::ratio(largest.low),
                    format::ratio(largest.high)
                ),
            ))
        }
        _ => None,
    }
}

/// How long, how many, by what, on how many windows.
fn block_remark(evaluation: &Evaluation, blocks: &[&Disturbance]) -> String {
    let verdicts = evaluation.verdicts.iter().filter(|verdict| {
        let by = verdict.disturbance.as_ref();
        by.is_some_and(|by| blocks.contains(&by))
    });
    let (mut lengths, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds = BTreeSet::new();
    let mut level = None;
    for verdict in verdicts {
        if let Some(VerdictFigures::Transfer {
            length,
            with_block,
            without_block,
            kind,
            transfer,
            tolerance,
            ..
        }) = &verdict.figures
        {
            lengths.push(format::time(*length));
            with.push(u64::from(*with_block));
            without.push(u64::from(*without_block));
            kinds.insert(*kind);
            level = Some((transfer.confidence, *tolerance));
        }
    }
    let Some((confidence, tolerance)) = level else {
        return "No round with blocks counts.".to_owned();
    };
    // Lengths as made differ by microseconds: said once where they read the same.
    lengths.dedup();
    let made = |kind: BlockKind| match (kind, kinds.len()) {
        (BlockKind::Module, 1) => "by the module, interrupts and preemption off",
        (BlockKind::Module, _) => "by the module",
        (BlockKind::Spin, 1) => "by a spinning thread, which interrupts still get past",
        (BlockKind::Spin, _) => "by a spinning thread",
        (BlockKind::Cell, 1) => "by the cell itself, interrupts masked",
        (BlockKind::Cell, _) => "by a cell itself",
    };
    let by: Vec<&str> = kinds.iter().map(|kind| made(*kind)).collect();
    let by = by.join(" or ");
    format!(
        "0: nothing of a block gets across; 1: all of it. Blocks of {} {by}; each cell from {} windows with a block and {} without; intervals of {:.0}\u{a0}%, up to {} counts as none. control: the block's own domain, where it must be felt.",
        lengths.join(", "),
        format::span(&with),
        format::span(&without),
        confidence * 100.0,
        format::ratio(tolerance),
    )
}

/// Until when each domain lived when the host's kernel was made to panic.
pub(crate) fn crash(page: &mut Page, evaluation: &Evaluation) {
    let Some(crash) = &evaluation.crash else {
        return;
    };
    page.heading("Crash of the host: until when each domain measured");
    let rows = crash.witnesses.iter().map(|witness| {
        let verdict = evaluation.verdicts.iter().find(|verdict| {
            verdict.domain == witness.domain && verdict.question == Question::Crash
        });
        let outcome = verdict.map(|verdict| verdict.outcome);
        let lived = witness
            .lived
            .map_or_else(|| "never measured".to_owned(), since_crash);
        let why = witness
            .invalid
            .first()
            .map(ToString::to_string)
            .or_else(|| witness.after.map(recorded_after))
            .unwrap_or_default();
        vec![
            page.cell(&witness.domain),
            page.outcome_cell(
                outcome,
                match outcome {
                    Some(VerdictOutcome::Holds) => "outlived it",
                    Some(VerdictOutcome::Fails | VerdictOutcome::Leaks) => "ended",
                    Some(VerdictOutcome::Inconclusive) => "inconclusive",
                    None => "not judged",
                },
            ),
            page.cell(&lived),
            page.cell(&format!("±\u{a0}{}", format::time(witness.uncertainty))),
            page.cell(&why),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    page.aligned(
        &["domain", "", "last sample", "uncertainty", ""],
        rows,
        2..4,
    );
    page.paragraph(
        &format!(
            "Crashed by {}; confirmed by {}; signs of life were waited for {}.",
            crash.how,
            crash
                .confirmed
                .as_deref()
                .unwrap_or("nobody: it is not certain that it crashed"),
            format::time(crash.observed)
        ),
        0,
    );
}

/// `2 527 samples after it, worst 11.8 ms, without a gap`
fn recorded_after(after: RecordedAfter) -> String {
    let gap = if after.without_gap {
        "without a gap"
    } else {
        "with gaps"
    };
    let lost = match after.lost {
        0 => String::new(),
        lost => format!(", {} lost", format::count(lost)),
    };
    format!(
        "{} samples after it, worst {}, {gap}{lost}",
        format::count(after.samples),
        format::time(after.worst)
    )
}

fn since_crash(SignedNanos(lived): SignedNanos) -> String {
    let time = format::time(Nanos(lived.unsigned_abs()));
    format!("{time} {}", if lived < 0 { "before" } else { "after" })
}
