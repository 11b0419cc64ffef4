// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst samples with what caused them.

use comfy_table::Cell;
use rampart_model::{Cause, CauseKind, Evaluation, ExplainedWorst, Nanos, Record, Run};

use super::LEAST_WIDTH;
use super::text::{Ink, Page};
use crate::format;
use crate::terminal::TerminalOptions;

/// Samples shown.
const WORST: usize = 10;

/// Causes named of one sample; more are summed up.
const CAUSES: usize = 3;

/// A table of the ten worst samples with their causes, for `rampart measure --explain`. `started`
/// is the moment that the table counts time from, on the clock of the samples. Empty without any.
#[must_use]
pub fn explained(all: &[ExplainedWorst], started: Nanos, options: TerminalOptions) -> String {
    let mut sorted: Vec<&ExplainedWorst> = all.iter().collect();
    sorted.sort_by_key(|of| std::cmp::Reverse(of.event.value));
    if sorted.is_empty() {
        return String::new();
    }
    let ink = Ink {
        colour: options.colour,
    };
    let mut page = Page::new(options.width.max(LEAST_WIDTH), ink);
    page.heading("Worst samples and what caused them");
    let rows = sorted.into_iter().take(WORST).map(|of| {
        let mut row = figures(&page, of, started);
        row.push(page.cell(&words(of)));
        row
    });
    let rows = rows.collect();
    page.aligned(&["value", "CPU", "after", "causes"], rows, 0..3);
    remark(&mut page);
    page.finish()
}

/// The same of an evaluation: of all its records, worst first.
pub(crate) fn causes(page: &mut Page, evaluation: &Evaluation) {
    let runs = evaluation
        .records
        .iter()
        .flat_map(|record| record.runs.iter().map(move |run| (record, run)));
    let mut all: Vec<(&Record, &Run, &ExplainedWorst)> = runs
        .filter(|(_, run)| run.invalid.is_empty())
        .flat_map(|(record, run)| run.explained.iter().map(move |of| (record, run, of)))
        .collect();
    if all.is_empty() {
        return;
    }
    all.sort_by_key(|(_, _, of)| std::cmp::Reverse(of.event.value));
    page.heading("Worst samples and what caused them");
    let rows = all.into_iter().take(WORST).map(|(record, run, of)| {
        let mut row = vec![
            page.cell(&record.domain),
            page.cell(&record.condition.to_string()),
        ];
        row.extend(figures(page, of, run.started_monotonic));
        row.push(page.cell(&words(of)));
        row
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    page.aligned(
        &["domain", "condition", "value", "CPU", "after", "causes"],
        rows,
        2..5,
    );
    remark(page);
}

fn figures(page: &Page, of: &ExplainedWorst, started: Nanos) -> Vec<Cell> {
    let after = of.event.at.saturating_sub(started).as_secs_f64();
    vec![
        page.cell(&format::time(of.event.value)),
        page.cell(&of.cpu.to_string()),
        page.cell(&format!("{after:.6}\u{a0}s")),
    ]
}

/// The causes in a line, the longest first, and what none of them accounts for.
fn words(of: &ExplainedWorst) -> String {
    let (unseen, seen): (Vec<&Cause>, Vec<&Cause>) = of
        .causes
        .iter()
        .partition(|cause| cause.kind == CauseKind::Unseen);
    let mut parts: Vec<String> = seen.iter().take(CAUSES).map(|one| cause(one)).collect();
    if let Some(rest @ [_, ..]) = seen.get(CAUSES..) {
        let sum: Nanos = rest.iter().map(|cause| cause.duration).sum();
        parts.push(format!("{}\u{a0}others {}", rest.len(), format::time(sum)));
    }
    // Where the rest went, as far as that is known.
    let names: Vec<&str> = unseen.iter().map(|cause| cause.name.as_str()).collect();
    if seen.is_empty() && !names.is_empty() {
        parts.push(names.join(", "));
    } else if of.unexplained > Nanos::ZERO || parts.is_empty() {
        let rest = format!("unexplained\u{a0}{}", format::time(of.unexplained));
        parts.push(match names.join(", ") {
            names if names.is_empty() => rest,
            names => format!("{rest} ({names})"),
        });
    }
    parts.join(", ")
}

fn cause(of: &Cause) -> String {
    format!(
        "{}\u{a0}{} {}",
        kind(of.kind),
        of.name,
        format::time(of.duration)
    )
}

const fn kind(kind: CauseKind) -> &'static str {
    match kind {
        CauseKind::Nmi => "NMI",
        CauseKind::Interrupt => "interrupt",
        CauseKind::Softirq => "softirq",
        CauseKind::Thread => "thread",
        CauseKind::Unseen => "unseen",
    }
}

fn remark(page: &mut Page) {
    page.paragraph(
        "Causes as the kernel's tracers saw them, the longest first, each with all its time in the sample's, less what interrupted it.",
        0,
    );
}
