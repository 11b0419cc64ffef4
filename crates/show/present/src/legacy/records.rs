// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One row for each record: what was measured, with what it rests on.

use comfy_table::Cell;
use rampart_model::{Distribution, Evaluation, MeterKind, MeterSettings, Record, Series};

use super::text::Page;
use crate::format;

/// One table for each meter, its rows grouped by condition so that domains stand under each other.
pub(crate) fn records(page: &mut Page, evaluation: &Evaluation) {
    if evaluation.records.is_empty() {
        page.heading("Records");
        page.paragraph("Nothing was measured.", 0);
        return;
    }
    for meter in MeterKind::ALL {
        let of_meter: Vec<&Record> = evaluation
            .records
            .iter()
            .filter(|record| record.plan.meter == meter)
            .collect();
        if let Some(first) = of_meter.first() {
            let emulated = of_meter
                .iter()
                .all(|record| format::is_emulated(evaluation, record));
            let mark = if emulated { "EMULATED " } else { "" };
            page.heading(&format!("{mark}{}", title(&first.plan)));
            table(page, evaluation, &of_meter);
        }
    }
    page.paragraph(
        "As seen, all CPUs of a domain together, warm-up apart. A dash: fewer than 10 samples lie above that quantile.",
        0,
    );
}

fn title(plan: &MeterSettings) -> String {
    let what = match plan.meter {
        MeterKind::Wakeup => "how late a thread wakes from a timer",
        MeterKind::Noise => "gaps in a loop that only reads the counter",
        MeterKind::Fwq => "by how much a fixed piece of work takes longer",
        MeterKind::Loop => "end of the work of a control loop after its planned start",
        MeterKind::Irq => "from the timer to the handler of its interrupt",
        MeterKind::Mmio => "one read of a register on a page that traps",
    };
    let every = if plan.meter.is_periodic() {
        format!(", every {}", format::time(plan.interval))
    } else {
        String::new()
    };
    if plan.meter.needs_bare_metal() {
        return format!("{}: {what}{every}, no operating system", plan.meter);
    }
    format!("{}: {what}{every}, policy {}", plan.meter, plan.policy)
}

fn table(page: &mut Page, evaluation: &Evaluation, records: &[&Record]) {
    let header = [
        "", "samples", "time", "runs", "p50", "p99", "p99.9", "max", "over", "missed",
    ];
    let mut rows = Vec::new();
    // Where all are emulated the heading says so.
    let mixed = records
        .iter()
        .any(|record| !format::is_emulated(evaluation, record));
    let mut conditions = evaluation.plan.conditions.clone();
    for record in records {
        if !conditions.contains(&record.condition) {
            conditions.push(record.condition);
        }
    }
    for condition in conditions {
        let of_condition: Vec<&&Record> = records
            .iter()
            .filter(|record| record.condition == condition)
            .collect();
        if of_condition.is_empty() {
            continue;
        }
        rows.push(vec![
            page.cell(&condition.to_string())
                .add_attribute(comfy_table::Attribute::Bold),
        ]);
        for record in of_condition {
            rows.push(row(page, record, mixed));
            if record.plan.meter == MeterKind::Mmio {
                rows.push(mapped_row(page, record));
            }
        }
    }
    page.figures(&header, rows, 1);
}

fn row(page: &Page, record: &Record, mixed: bool) -> Vec<Cell> {
    let distribution = format::primary(record);
    let exposure = &record.exposure;
    let over = format::over_deadline(record);
    let name = if record.invalid.is_empty() && record.emulated && mixed {
        page.cell(&format!("\u{a0}\u{a0}{} emulated", record.domain))
    } else if record.invalid.is_empty() {
        page.cell(&format!("\u{a0}\u{a0}{}", record.domain))
    } else {
        page.warning_cell(&format!("!! {} INVALID", record.domain))
    };
    let figure = |value: u64| {
        let text = format::count(value);
        if value > 0 {
            page.warning_cell(&text)
        } else {
            page.cell(&text)
        }
    };
    let mut cells = vec![
        name,
        page.cell(&format::count(exposure.samples)),
        page.cell(&format::time(exposure.duration)),
        page.cell(&exposure.runs.to_string()),
    ];
    cells.extend(quantiles(page, &distribution));
    cells.extend([figure(over), figure(exposure.missed)]);
    cells
}

/// What `mmio` measured beside the page that traps.
fn mapped_row(page: &Page, record: &Record) -> Vec<Cell> {
    let mapped = format::all_cpus(record, Series::MappedAccess);
    let mut cells = vec![
        page.cell("\u{a0}\u{a0}\u{a0}\u{a0}page mapped"),
        page.cell(&format::count(mapped.samples)),
        page.cell(""),
        page.cell(""),
    ];
    cells.extend(quantiles(page, &mapped));
    cells
}

fn quantiles(page: &Page, distribution: &Distribution) -> Vec<Cell> {
    let backed = |quantile| distribution.backed_quantile(quantile);
    [backed(0.5), backed(0.99), backed(0.999), distribution.max]
        .map(|time| page.cell(&format::time_or_dash(time)))
        .into()
}
