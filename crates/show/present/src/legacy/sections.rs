// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts around the table of records.

use std::collections::BTreeSet;

use comfy_table::Cell;
use rampart_model::{Evaluation, Finding, Interval, Question, Severity, Verdict, VerdictFigures};

use super::text::Page;
use crate::format;

/// Worst events shown.
const WORST: usize = 8;

/// One sentence for each domain.
pub(crate) fn sentences(page: &mut Page, evaluation: &Evaluation) {
    if evaluation.comparison.sentences.is_empty() {
        return;
    }
    page.blank();
    let names = evaluation
        .comparison
        .sentences
        .iter()
        .map(|(name, _)| name.chars().count());
    // A longer name pushes its own sentence alone.
    let width = names.max().unwrap_or(0).min(14);
    for (name, sentence) in &evaluation.comparison.sentences {
        page.hanging(&format!("{name:width$}  "), sentence, 0);
    }
}

/// The questions, each answered for each domain.
pub(crate) fn comparison(page: &mut Page, evaluation: &Evaluation) {
    let Some(first) = evaluation.comparison.rows.first() else {
        return;
    };
    let mut header = vec![""];
    header.extend(first.cells.iter().map(|cell| cell.domain.as_str()));
    let rows = evaluation.comparison.rows.iter().map(|row| {
        let mut cells = vec![page.cell(&row.question)];
        cells.extend(
            row.cells
                .iter()
                .map(|cell| page.outcome_cell(cell.outcome, &cell.answer)),
        );
        cells
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    page.heading("Comparison");
    page.words(&header, rows);
}

/// Verdicts on one question; those on disturbances stand in the matrix of walls.
fn asked(evaluation: &Evaluation, question: Question) -> Vec<&Verdict> {
    evaluation
        .verdicts
        .iter()
        .filter(|verdict| verdict.question == question && verdict.disturbance.is_none())
        .collect()
}

/// The verdicts on the deadline, with their bounds.
pub(crate) fn deadline(page: &mut Page, evaluation: &Evaluation) {
    let verdicts = asked(evaluation, Question::Deadline);
    if verdicts.is_empty() {
        return;
    }
    let own = evaluation
        .plan
        .domains
        .iter()
        .any(|one| one.deadline.is_some());
    let deadline = if own {
        "of each domain".to_owned()
    } else {
        format::time(evaluation.plan.deadline)
    };
    page.heading(&format!(
        "Deadline {deadline}: the chance that a cycle misses it, and how long between misses"
    ));
    let mut header = vec!["domain", "condition"];
    let several = several_meters(&verdicts);
    header.extend(several.then_some("meter"));
    header.push("verdict");
    header.extend(own.then_some("deadline"));
    header.extend(["over", "cycles", "chance", "between", "sure"]);
    let rows = verdicts.into_iter().map(|verdict| {
        let mut row = names(page, verdict, several);
        if own {
            row.push(page.cell(&format::time(evaluation.plan.deadline_of(&verdict.domain))));
        }
        let Some(VerdictFigures::Deadline {
            cycles,
            exceedances,
            upper_bound,
            confidence,
            time_between_violations,
            ..
        }) = &verdict.figures
        else {
            row.extend(["–"; 5].map(|dash| page.cell(dash)));
            return row;
        };
        let between = time_between_violations.map(|time| format!("≥\u{a0}{}", format::time(time)));
        row.extend([
            page.cell(&format::grouped(*exceedances)),
            page.cell(&format::count(*cycles)),
            page.cell(&format!(
                "≤\u{a0}{}",
                format::chance(*upper_bound).replace(' ', "\u{a0}")
            )),
            page.cell(&between.unwrap_or_else(|| "–".to_owned())),
            page.cell(&format!("{:.0}\u{a0}%", confidence * 100.0)),
        ]);
        row
    });
    let rows = rows.collect();
    page.figures(&header, rows, if several { 4 } else { 3 });
}

/// Whether a table must say which meter a row is from.
fn several_meters(verdicts: &[&Verdict]) -> bool {
    verdicts
        .windows(2)
        .any(|pair| pair[0].meter != pair[1].meter)
}

/// The cells that say which verdict a row is.
fn names(page: &Page, verdict: &Verdict, several_meters: bool) -> Vec<Cell> {
    let mut cells = vec![
        page.cell(&verdict.domain),
        page.cell(&verdict.condition.to_string()),
    ];
    if several_meters {
        cells.push(page.cell(verdict.meter.word()));
    }
    cells.push(page.outcome_cell(Some(verdict.outcome), &verdict.outcome.to_string()));
    cells
}

/// Interference factors, and ratios to the host.
pub(crate) fn ratios(page: &mut Page, evaluation: &Evaluation) {
    for (question, heading) in [
        (
            Question::Interference,
            "Interference factors: loaded ÷ idle, with intervals; 1 is no effect",
        ),
        (
            Question::SameAsHost,
            "Same as the host: domain ÷ host, with intervals; 1 is the same",
        ),
    ] {
        let verdicts = asked(evaluation, question);
        let quantiles = quantiles(&verdicts);
        if verdicts.is_empty() {
            continue;
        }
        page.heading(heading);
        let names_of_quantiles: Vec<String> = quantiles
            .iter()
            .map(|quantile| format::quantile_name(*quantile))
            .collect();
        let several = several_meters(&verdicts);
        let mut header = vec!["domain", "condition"];
        header.extend(several.then_some("meter"));
        header.push("verdict");
        header.extend(names_of_quantiles.iter().map(String::as_str));
        header.extend(quantiles.is_empty().then_some("why"));
        let rows = verdicts.iter().map(|verdict| {
            let mut row = names(page, verdict, several);
            row.extend(quantiles.iter().map(|quantile| {
                let interval = intervals(verdict).iter().find(|(of, _)| of == quantile);
                page.cell(
                    &interval.map_or_else(|| "–".to_owned(), |(_, interval)| with_ends(interval)),
                )
            }));
            if quantiles.is_empty() {
                row.push(page.cell(&verdict.statement));
            }
            row
        });
        let rows = rows.collect();
        let text_columns = 3 + usize::from(several) + usize::from(quantiles.is_empty());
        page.figures(&header, rows, text_columns);
    }
}

fn intervals(verdict: &Verdict) -> &[(f64, Interval)] {
    match &verdict.figures {
        Some(VerdictFigures::Interference { factors, .. }) => factors,
        Some(VerdictFigures::SameAsHost { ratios, .. }) => ratios,
        Some(
            VerdictFigures::Deadline { .. }
            | VerdictFigures::Transfer { .. }
            | VerdictFigures::Crash { .. },
        )
        | None => &[],
    }
}

pub(crate) fn with_ends(interval: &Interval) -> String {
    format!(
        "{} ({}–{})",
        format::ratio(interval.estimate),
        format::ratio(interval.low),
        format::ratio(interval.high)
    )
}

fn quantiles(verdicts: &[&Verdict]) -> Vec<f64> {
    let mut all: Vec<f64> = verdicts
        .iter()
        .flat_map(|verdict| intervals(verdict))
        .map(|(quantile, _)| *quantile)
        .collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// The worst events of all records of the leading meter.
pub(crate) fn worst(page: &mut Page, evaluation: &Evaluation) {
    let Some(leading) = evaluation
        .plan
        .meters
        .first()
        .map(|plan| plan.meter)
        .or_else(|| evaluation.records.first().map(|record| record.plan.meter))
    else {
        return;
    };
    let records = evaluation
        .records
        .iter()
        .filter(|record| record.plan.meter == leading);
    let mut events: Vec<_> = records
        .flat_map(|record| record.worst.iter().map(move |event| (record, event)))
        .collect();
    events.sort_by_key(|(_, event)| std::cmp::Reverse(event.value));
    if events.is_empty() {
        return;
    }
    page.heading(&format!("Worst events of {leading}"));
    let rows = events.into_iter().take(WORST).map(|(record, event)| {
        let run = record.runs.iter().find(|run| run.order == event.run);
        vec![
            page.cell(&record.domain),
            page.cell(&record.condition.to_string()),
            page.cell(&format::time(event.value)),
            page.cell(&event.cpu.to_string()),
            page.cell(&event.run.to_string()),
            page.cell(&format!("{:.6}\u{a0}s", event.since_start.as_secs_f64())),
            page.cell(run.map_or("–", |run| run.started.as_str())),
        ]
    });
    let rows = rows.collect();
    page.figures(
        &[
            "domain",
            "condition",
            "value",
            "CPU",
            "run",
            "after",
            "start of the run",
        ],
        rows,
        2,
    );
}

/// A finding under a heading that already names its place.
pub(crate) fn said_of(finding: &Finding, heading: &str) -> String {
    let text = finding.to_string();
    let without_location = text.strip_prefix(&format!("{}: ", finding.location));
    match without_location {
        Some(rest) if heading.ends_with(&finding.location) => rest.to_owned(),
        _ => text,
    }
}

/// What was not measured, and why.
pub(crate) fn not_measured(page: &mut Page, evaluation: &Evaluation) {
    if evaluation.not_measured.is_empty() {
        return;
    }
    page.heading("Not measured");
    for not_measured in &evaluation.not_measured {
        page.hanging(&format!("{}: ", not_measured.what), "", 0);
        for finding in &not_measured.findings {
            page.hanging("- ", &said_of(finding, &not_measured.what), 2);
        }
    }
}

/// Each finding once, in their order: of those that differ in the present value alone the first,
/// and how many other values there were.
fn once(all: &[&Finding]) -> Vec<String> {
    let mut found: Vec<(&Finding, BTreeSet<&Option<String>>)> = Vec::new();
    for finding in all {
        let same = |other: &&mut (&Finding, BTreeSet<&Option<String>>)| {
            let other = other.0;
            (&other.location, &other.what, &other.expected, &other.fix)
                == (
                    &finding.location,
                    &finding.what,
                    &finding.expected,
                    &finding.fix,
                )
        };
        match found.iter_mut().find(same) {
            Some((_, values)) => {
                values.insert(&finding.found);
            }
            None => found.push((finding, BTreeSet::from([&finding.found]))),
        }
    }
    let text = |(finding, values): (&Finding, BTreeSet<&Option<String>>)| match values.len() - 1 {
        0 => finding.to_string(),
        1 => format!("{finding}; once more with another value"),
        more => format!("{finding}; {more} times more with other values"),
    };
    found.into_iter().map(text).collect()
}

/// Invalid records first, then what weakens the rest.
pub(crate) fn warnings(page: &mut Page, evaluation: &Evaluation) {
    let mut lines: Vec<(bool, String)> = Vec::new();
    let variants = evaluation.plan_effects.iter().flat_map(|all| &all.records);
    let records = evaluation
        .records
        .iter()
        .chain(variants.map(|variant| &variant.record));
    for record in records {
        lines.extend(record.invalid.iter().map(|finding| {
            (
                true,
                format!("INVALID {}: {}", record.id, said_of(finding, &record.id)),
            )
        }));
        for run in &record.runs {
            lines.extend(run.invalid.iter().map(|finding| {
                (
                    true,
                    format!(
                        "run {} of {} does not count: {}",
                        run.order,
                        record.id,
                        said_of(finding, &record.id)
                    ),
                )
            }));
        }
    }
    for round in &evaluation.transfers {
        let watched = round.watched.iter().flat_map(|watched| {
            watched
                .invalid
                .iter()
                .map(|finding| (watched.domain.as_str(), finding))
        });
        let all = round
            .invalid
            .iter()
            .map(|finding| ("", finding))
            .chain(watched);
        lines.extend(all.map(|(domain, finding)| {
            let of = [domain, round.id.as_str()].join(if domain.is_empty() { "" } else { " in " });
            (
                true,
                format!("round {of} does not count: {}", said_of(finding, &round.id)),
            )
        }));
    }
    let of_plan = evaluation
        .plan
        .findings
        .iter()
        .chain(
            evaluation
                .plan
                .transfer
                .iter()
                .flat_map(|plan| &plan.findings),
        )
        .chain(&evaluation.findings)
        .chain(&evaluation.machine.findings);
    let of_runs = evaluation
        .records
        .iter()
        .flat_map(|record| &record.runs)
        .flat_map(|run| {
            let shield = run.shield.iter().flat_map(|shield| &shield.findings);
            run.findings.iter().chain(shield)
        });
    let of_rounds = evaluation.transfers.iter().flat_map(|round| {
        let watched = round.watched.iter().flat_map(|watched| {
            let guest = watched.guest.iter().flat_map(|guest| &guest.findings);
            watched.findings.iter().chain(guest)
        });
        round.findings.iter().chain(watched)
    });
    let of_guests = evaluation
        .records
        .iter()
        .flat_map(|record| &record.runs)
        .flat_map(|run| run.guest.iter().flat_map(|guest| &guest.findings));
    let notable = of_plan
        .chain(of_runs)
        .chain(of_guests)
        .chain(of_rounds)
        .filter(|finding| finding.severity > Severity::Note);
    let mut sorted: Vec<&Finding> = notable.collect();
    sorted.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    lines.extend(once(&sorted).into_iter().map(|text| (false, text)));
    if lines.is_empty() {
        return;
    }
    page.heading("Warnings");
    for (alarming, line) in lines {
        if alarming {
            page.alarm(&line);
        } else {
            page.hanging("- ", &line, 0);
        }
    }
}
