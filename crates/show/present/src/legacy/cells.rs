// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often each cell came to the hypervisor.

use rampart_model::Evaluation;

use super::text::Page;
use crate::cells::{CellSum, sums};
use crate::format;

/// One row a cell: interrupts, exits because of them, all exits by reason.
pub(crate) fn cells(page: &mut Page, evaluation: &Evaluation) {
    let sums = sums(evaluation);
    if sums.is_empty() {
        return;
    }
    page.heading("Exits of the cells to the hypervisor while they measured");
    let header = [
        "cell",
        "time",
        "interrupts",
        "exits for them",
        "for each",
        "exits of any sort",
    ];
    let rows = sums.iter().map(|sum| {
        let texts = [
            sum.domain.to_owned(),
            format::time(sum.observed),
            sum.interrupts
                .map_or_else(|| "not asked".to_owned(), format::grouped),
            format::grouped(sum.interrupt_exits),
            sum.exits_per_interrupt()
                .map_or_else(|| "–".to_owned(), per_interrupt),
            by_reason(sum),
        ];
        texts.iter().map(|text| page.cell(text)).collect()
    });
    let rows = rows.collect();
    page.named(&header, rows);
    for sum in &sums {
        let last = sum.last;
        page.hanging(
            &format!("{}: ", sum.domain),
            &format!(
                "{}, {}; {} of its own on {}; interface revision {} of the hypervisor; {} looked at",
                last.payload.words(),
                last.program,
                memory(last.memory_bytes),
                last.cpus.named(),
                last.revision,
                rampart_model::plural(sum.reports, "measurement"),
            ),
            0,
        );
        for failure in &sum.failures {
            page.hanging("- failed: ", failure, 2);
        }
        for finding in &last.findings {
            page.hanging("- ", &finding.to_string(), 2);
        }
    }
}

/// `0`, `0.25`: a share of a million is still told.
fn per_interrupt(exits: f64) -> String {
    if exits == 0.0 {
        "0".to_owned()
    } else {
        format!("{exits:.6}").trim_end_matches('0').to_owned()
    }
}

fn by_reason(sum: &CellSum<'_>) -> String {
    if sum.exits.is_empty() {
        return "0".to_owned();
    }
    let reasons: Vec<String> = sum
        .exits
        .iter()
        .map(|(reason, count)| format!("{} {reason}", format::grouped(*count)))
        .collect();
    format!(
        "{}: {}",
        format::grouped(sum.all_exits()),
        reasons.join(", ")
    )
}

fn memory(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}
