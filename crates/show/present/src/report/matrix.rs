// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The transfer matrix and the details of its pairs.

use std::collections::BTreeSet;

use rampart_model::{
    BlockKind, Disturbance, DisturbanceKind, Evaluation, Interval, Question, Side, TransferRecord,
    Verdict, VerdictFigures, VerdictOutcome, plural,
};

use super::interval::{RatioAxis, transfer_drawing};
use super::timeline::{Traces, pair_rounds};
use super::{Report, once};
use crate::charts::{Matrix, MatrixEntry, MatrixGroup, MatrixRow, PairDetail};
use crate::element::{Element, Outcome, SpanStyle, Text};
use crate::{format, transfer_matrix};

/// Returns the matrix: blocks first, then loads.
pub(super) fn matrix(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let all = transfer_matrix::disturbances(evaluation);
    let watched = transfer_matrix::watched(evaluation);
    if all.is_empty() || watched.is_empty() {
        return Vec::new();
    }
    let (blocks, loads): (Vec<&Disturbance>, Vec<&Disturbance>) = all
        .iter()
        .copied()
        .partition(|of| of.kind == DisturbanceKind::Block);
    let mut traces = Traces::new(report);
    let mut groups = Vec::new();
    if !blocks.is_empty() {
        let rows = blocks.iter().map(|of| row(&mut traces, of, &watched, None));
        groups.push(MatrixGroup {
            title: "Part of a block that reaches the watched domain".into(),
            name: "Blocks".to_owned(),
            about: "part that reaches the watched domain: 0 none of it, 1 all".to_owned(),
            rows: rows.collect(),
            remark: block_remark(evaluation, &blocks).into(),
        });
    }
    if !loads.is_empty() {
        let tolerance = tolerance(evaluation, Question::Interference).unwrap_or(1.5);
        let leading: Vec<Interval> = evaluation
            .verdicts
            .iter()
            .filter(|verdict| {
                verdict
                    .disturbance
                    .as_ref()
                    .is_some_and(|of| loads.contains(&of))
            })
            .filter_map(leading)
            .collect();
        let axis = RatioAxis::of(leading.iter(), tolerance);
        let rows = loads
            .iter()
            .map(|of| row(&mut traces, of, &watched, Some(axis)));
        groups.push(MatrixGroup {
            title: "Factor by which a load slows the watched domain".into(),
            name: "Loads".to_owned(),
            about: "factor on the largest of the compared quantiles: 1 no effect".to_owned(),
            rows: rows.collect(),
            remark: format!(
                "Quantile under load divided by the same quantile without it, the largest of those compared: 1 is no effect, \
                 up to {} counts as isolated. own: the load's own domain, no verdict.",
                format::factor(tolerance)
            )
            .into(),
        });
    }
    let mut elements = vec![
        Element::section("transfer-matrix", "Who disturbs whom", "Transfer"),
        Element::detail(vec![Element::remark(
            "A row is a disturbance of one domain, a column is a domain measured meanwhile. A domain's own block (●) is the \
             positive control: without an effect there, its row proves nothing. Choose an entry to see its latencies in time.",
        )]),
        Element::Matrix(Matrix {
            corner: "disturbed".to_owned(),
            columns: watched.iter().map(|domain| report.name(domain)).collect(),
            selected: selected(evaluation, &all, &watched),
            groups,
            traces: traces.all,
        }),
    ];
    let rounds = &evaluation.transfers;
    let invalid = rounds
        .iter()
        .filter(|round| !round.invalid.is_empty())
        .count();
    if invalid > 0 {
        elements.push(Element::paragraph(format!(
            "{invalid} of {} rounds are invalid. The reasons are under \"Findings\".",
            rounds.len()
        )));
    }
    elements
}

/// Returns the initial pair: a leak between two domains before all others.
fn selected(
    evaluation: &Evaluation,
    rows: &[&Disturbance],
    columns: &[&str],
) -> Option<(usize, usize)> {
    let mut best: Option<(u32, (usize, usize))> = None;
    for (row, of) in rows.iter().enumerate() {
        for (column, domain) in columns.iter().enumerate() {
            if rounds(evaluation, of, domain).is_empty() {
                continue;
            }
            let verdict = transfer_matrix::verdict(evaluation, of, domain);
            let leaks = verdict.is_some_and(|verdict| {
                verdict.outcome == VerdictOutcome::Leaks && !transfer_matrix::is_own(verdict)
            });
            let rank = u32::from(leaks) * 4
                + u32::from(of.domain != **domain) * 2
                + u32::from(of.kind == DisturbanceKind::Block);
            if best.is_none_or(|(highest, _)| rank > highest) {
                best = Some((rank, (row, column)));
            }
        }
    }
    best.map(|(_, at)| at)
}

/// Returns the rounds with this disturbance in which the domain was watched.
pub(super) fn rounds<'a>(
    evaluation: &'a Evaluation,
    of: &Disturbance,
    domain: &str,
) -> Vec<&'a TransferRecord> {
    let all = evaluation.transfers.iter();
    all.filter(|round| round.disturbance.as_ref() == Some(of))
        .filter(|round| round.watched.iter().any(|watched| watched.domain == domain))
        .collect()
}

/// Returns how many blocks were made; those of several CPUs at once are one.
pub(super) fn block_count(round: &TransferRecord) -> usize {
    let spans = round.blocks.iter().flat_map(|blocks| &blocks.spans);
    spans
        .map(|span| span.sequence)
        .collect::<BTreeSet<u32>>()
        .len()
}

fn row(
    traces: &mut Traces<'_, '_>,
    of: &Disturbance,
    watched: &[&str],
    axis: Option<RatioAxis>,
) -> MatrixRow {
    let evaluation = traces.report.evaluation;
    let first = evaluation
        .transfers
        .iter()
        .find(|round| round.disturbance.as_ref() == Some(of));
    MatrixRow {
        name: of.to_string(),
        about: about(of, first),
        entries: watched
            .iter()
            .map(|domain| entry(traces, of, domain, axis))
            .collect(),
    }
}

/// Returns the kind and the location of a disturbance.
fn about(of: &Disturbance, round: Option<&TransferRecord>) -> Vec<Text> {
    let Some(made) = round.and_then(|round| round.blocks.as_ref()) else {
        let version = round
            .and_then(|round| round.load.as_ref())
            .map(|load| &load.version);
        return vec![version.map_or("not made", String::as_str).into()];
    };
    let cpus = once(made.spans.iter().map(|span| span.cpu.to_string())).join(",");
    let location = match of.side {
        Side::Under => format!("by the host, CPU {cpus} under the guest"),
        Side::Inside if made.clock.is_empty() => format!("CPU {cpus}"),
        Side::Inside => format!("CPU {cpus} of {}", of.domain),
    };
    let count = plural(round.map_or(0, block_count), "block");
    let mut lines = vec![format!("{count} of {}, {location}", format::time(made.length)).into()];
    if made.kind == BlockKind::Spin {
        lines.push(Text::of(SpanStyle::Wrong, format::block_kind(made.kind)));
    }
    lines
}

fn entry(
    traces: &mut Traces<'_, '_>,
    of: &Disturbance,
    domain: &str,
    axis: Option<RatioAxis>,
) -> MatrixEntry {
    let report = traces.report;
    let verdict = transfer_matrix::verdict(report.evaluation, of, domain);
    let (outcome, sign, word) = match verdict {
        None => (None, "–", "not judged".to_owned()),
        Some(verdict) => {
            let (outcome, sign, word) = mark(verdict);
            (Some(outcome), sign, word)
        }
    };
    let (mut figure, mut ends, mut drawing) = (String::new(), String::new(), None);
    if let Some((verdict, leading)) = verdict.and_then(|of| Some((of, leading(of)?))) {
        let drawn = outcome.unwrap_or(Outcome::Inconclusive);
        let text = match (&verdict.figures, axis) {
            (Some(VerdictFigures::Transfer { tolerance, .. }), _) => {
                drawing = Some(transfer_drawing(&leading, *tolerance, drawn));
                |value| format::fraction(value, 2)
            }
            (_, axis) => {
                drawing = axis.map(|axis| axis.drawing(&leading, drawn));
                format::factor
            }
        };
        let cross = if axis.is_some() { "×" } else { "" };
        figure = format!("{cross}{}", text(leading.estimate));
        ends = format!("{}–{}", text(leading.low), text(leading.high));
    }
    let rounds = rounds(report.evaluation, of, domain);
    let pair = (verdict.is_some() || !rounds.is_empty()).then(|| PairDetail {
        title: title(of, domain, verdict),
        statement: verdict.map_or_else(
            || "No verdict was drawn from it.".into(),
            |verdict| Text::prose(&format::prose(&verdict.statement)),
        ),
        rounds: pair_rounds(traces, &rounds, domain, verdict),
    });
    MatrixEntry {
        id: verdict.and_then(|verdict| report.anchor(verdict)),
        domain: domain.to_owned(),
        outcome,
        sign,
        word,
        figure,
        ends,
        drawing,
        hint: verdict.map_or_else(String::new, |verdict| {
            format!(
                "{} ({})",
                verdict.statement,
                format::exposure(&verdict.exposure)
            )
        }),
        pair,
    }
}

fn title(of: &Disturbance, domain: &str, verdict: Option<&Verdict>) -> Text {
    let title = Text::of(SpanStyle::Code, of.to_string())
        .and(SpanStyle::Plain, " seen from ")
        .and(SpanStyle::Strong, domain);
    match verdict {
        None => title,
        Some(verdict) => {
            let (_, sign, word) = mark(verdict);
            title.and(SpanStyle::Plain, format!(": {sign} {word}"))
        }
    }
}

/// Colour, sign and word of a verdict in the matrix.
fn mark(verdict: &Verdict) -> (Outcome, &'static str, String) {
    if transfer_matrix::is_control(verdict) {
        return if transfer_matrix::is_affected(verdict) {
            (Outcome::Own, "●", "control".to_owned())
        } else {
            (Outcome::Fails, "✗", "NO\u{a0}EFFECT".to_owned())
        };
    }
    if transfer_matrix::is_own(verdict) {
        return (Outcome::Own, "○", "own".to_owned());
    }
    let outcome = Outcome::from(verdict.outcome);
    (outcome, outcome.sign(), verdict.outcome.to_string())
}

/// Returns the figure that an entry leads with: the transfer, or the largest factor.
pub(super) fn leading(verdict: &Verdict) -> Option<Interval> {
    match verdict.figures.as_ref()? {
        VerdictFigures::Transfer { transfer, .. } => Some(*transfer),
        VerdictFigures::Interference { factors, .. } => factors
            .iter()
            .map(|(_, interval)| *interval)
            .max_by(|a, b| a.estimate.total_cmp(&b.estimate)),
        _ => None,
    }
}

/// Returns the largest figure that counts as isolated from a disturbance.
fn tolerance(evaluation: &Evaluation, question: Question) -> Option<f64> {
    let disturbed = evaluation.verdicts.iter();
    let disturbed = disturbed.filter(|verdict| verdict.disturbance.is_some());
    disturbed
        .filter(|verdict| verdict.question == question)
        .find_map(|verdict| match verdict.figures.as_ref()? {
            VerdictFigures::Interference { tolerance, .. }
            | VerdictFigures::Transfer { tolerance, .. } => Some(*tolerance),
            _ => None,
        })
}

/// Returns length, number and kind of the blocks, and the number of windows.
fn block_remark(evaluation: &Evaluation, blocks: &[&Disturbance]) -> String {
    let (mut lengths, mut with, mut without) = (Vec::new(), Vec::new(), Vec::new());
    let mut kinds = BTreeSet::new();
    let mut level = None;
    let verdicts = evaluation.verdicts.iter();
    for verdict in verdicts.filter(|of| {
        of.disturbance
            .as_ref()
            .is_some_and(|of| blocks.contains(&of))
    }) {
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
            lengths.push(*length);
            with.push(u64::from(*with_block));
            without.push(u64::from(*without_block));
            kinds.insert(*kind);
            level = Some((transfer.confidence, *tolerance));
        }
    }
    let Some((confidence, tolerance)) = level else {
        return "No round with blocks is valid.".to_owned();
    };
    // Lengths differ by microseconds, which their text rarely shows.
    let mut extremes: Vec<String> = [lengths.iter().min(), lengths.iter().max()]
        .into_iter()
        .flatten()
        .map(|length| format::time(*length))
        .collect();
    extremes.dedup();
    let by: Vec<&str> = kinds.iter().map(|kind| format::block_kind(*kind)).collect();
    format!(
        "0: no part of a block reaches the domain. 1: all of it does. Blocks of {} {}. Each entry rests on {} windows with a \
         block and {} without. Intervals of {}; up to {} counts as isolated. control: the block's own domain, where \
         it must have an effect.",
        extremes.join(" to "),
        by.join(", or "),
        format::span(&with),
        format::span(&without),
        format::confidence(confidence),
        format::factor(tolerance),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::verdicts;

    #[test]
    fn every_verdict_on_a_disturbance_has_its_entry_and_is_in_no_other_table() {
        let text = include_str!("../../tests/documents/transfers.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        let of_disturbances = evaluation
            .verdicts
            .iter()
            .filter(|verdict| verdict.disturbance.is_some())
            .count();
        assert!(of_disturbances > 50, "{of_disturbances}");
        let report = Report::new(&evaluation);
        let elements = matrix(&report);
        let entries = elements.iter().find_map(|element| match element {
            Element::Matrix(matrix) => Some(&matrix.groups),
            _ => None,
        });
        let entries = entries.expect("a matrix").iter();
        let entries = entries.flat_map(|group| group.rows.iter().flat_map(|row| &row.entries));
        let judged = entries.filter(|entry| entry.outcome.is_some()).count();
        assert_eq!(judged, of_disturbances);
        let tables = |evaluation: &Evaluation| verdicts::interference(&Report::new(evaluation));
        let with = tables(&evaluation);
        evaluation
            .verdicts
            .retain(|verdict| verdict.disturbance.is_none());
        assert_eq!(with, tables(&evaluation));
    }
}
