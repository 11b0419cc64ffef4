// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The progress of an evaluation, as lines of text.

use std::collections::BTreeSet;

use rampart_model::{Evaluation, Finding, Nanos, Run, TransferRecord, grouped, plural};

use crate::report::inconclusive;

/// Returns what will be measured.
#[must_use]
pub fn planned_lines(evaluation: &Evaluation) -> Vec<String> {
    let plan = &evaluation.settings;
    let domains = plan.domains.iter();
    let domains = domains.map(|domain| format!("{} ({})", domain.name, domain.cpus.named()));
    let meters = plan.meters.iter().map(|meter| meter.meter.to_string());
    let list = |words: Vec<String>| words.join(", ");
    let mut lines = vec![format!(
        "Measuring {} with {} under {}: {} of {} in about {}.",
        list(domains.collect()),
        list(meters.collect()),
        list(plan.conditions.iter().map(ToString::to_string).collect()),
        plural(evaluation.runs.1, "run"),
        plan.run_duration,
        plan.total,
    )];
    if let Some(limit) = plan.until_decided {
        lines.push(format!(
            "What is then inconclusive is measured on, for {limit} in all at most."
        ));
    }
    if let Some(effects) = &evaluation.plan_effects {
        let changes = plural(effects.changes.len(), "change");
        let parts = plan.variants.len().saturating_sub(1);
        lines.push(format!(
            "The plan, {changes}, is applied and released in turn, {} each, and compared with {}.",
            plural(plan.repetitions, "time"),
            plural(parts, "other state")
        ));
    }
    lines
}

/// Returns that inconclusive comparisons are measured on until this time.
#[must_use]
pub fn measured_on_line(evaluation: &Evaluation, until: Nanos) -> String {
    format!(
        "{} are inconclusive: measuring them on until {until}. Ctrl-C ends it with a report of what is decided.",
        inconclusive(evaluation)
    )
}

/// Returns the result of a run, and the reasons why it is invalid.
#[must_use]
pub fn run_lines(record: &str, run: &Run) -> (String, Vec<String>) {
    let threads = run.threads.iter();
    let worst = threads
        .filter_map(|thread| thread.worst.first())
        .map(|event| event.value);
    let worst = worst
        .max()
        .map_or_else(|| "none".to_owned(), |worst| worst.to_string());
    let samples: u64 = run.threads.iter().map(|thread| thread.samples).sum();
    let location = format!("run {:>3}  {record}", run.order + 1);
    let result = format!(
        "{location}: {samples} samples in {}, worst {worst}",
        run.duration
    );
    (result, invalid(&location, &run.invalid))
}

/// Returns the result of a round, and the reasons why it or a part of it is invalid.
#[must_use]
pub fn round_lines(round: &TransferRecord) -> (String, Vec<String>) {
    let location = format!("round {:>3}  {}", round.order + 1, round.id);
    let worst = round.watched.iter().map(|watched| {
        let worst = watched
            .seen
            .max
            .map_or("none".to_owned(), |max| max.to_string());
        format!("{} {worst}", watched.domain)
    });
    let worst: Vec<String> = worst.collect();
    let blocks = round.blocks.as_ref().map_or_else(String::new, |blocks| {
        format!(", {} blocks of {}", blocks.spans.len(), blocks.length)
    });
    let result = format!(
        "{location}: {}{blocks}; worst: {}",
        round.duration,
        worst.join(", ")
    );
    let mut reasons = invalid(&location, &round.invalid);
    for watched in &round.watched {
        let location = format!("{location}, {}", watched.domain);
        reasons.extend(invalid(&location, &watched.invalid));
    }
    (result, reasons)
}

/// The runs since the last line of a log. Runs of a third of a second would be thousands of lines.
#[derive(Debug, Default)]
pub struct RunSummary {
    /// Numbers of the first and the last run.
    numbers: Option<(u32, u32)>,
    measured: Nanos,
    samples: u64,
    worst: Option<(Nanos, String)>,
    invalid: u32,
    records: BTreeSet<String>,
    /// Records with an invalid run, whose reasons were returned.
    with_reasons: BTreeSet<String>,
}

impl RunSummary {
    /// Adds a run. Returns the reasons why it is invalid, of each record once in a summary.
    pub fn add(&mut self, record: &str, run: &Run) -> Vec<String> {
        let first = self.numbers.map_or(run.order, |(first, _)| first);
        self.numbers = Some((first, run.order));
        self.measured += run.duration;
        self.samples += run.threads.iter().map(|thread| thread.samples).sum::<u64>();
        let worst = run.threads.iter().filter_map(|thread| thread.worst.first());
        if let Some(worst) = worst.map(|event| event.value).max()
            && self
                .worst
                .as_ref()
                .is_none_or(|(before, _)| *before < worst)
        {
            self.worst = Some((worst, record.to_owned()));
        }
        self.records.insert(record.to_owned());
        if run.invalid.is_empty() {
            return Vec::new();
        }
        self.invalid += 1;
        match self.with_reasons.insert(record.to_owned()) {
            true => run_lines(record, run).1,
            false => Vec::new(),
        }
    }

    /// Returns whether the runs took a minute, after which a log has a line.
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.measured >= Nanos::from_secs(60)
    }

    /// Returns the line for the runs since the last one; `None` without a run.
    pub fn take(&mut self) -> Option<String> {
        let of = std::mem::take(self);
        let (first, last) = of.numbers?;
        let (first, last) = (first + 1, last + 1);
        let numbers = match first == last {
            true => format!("run {first}"),
            false => format!("runs {first}–{last}"),
        };
        let worst = of.worst.map_or_else(
            || "worst none".to_owned(),
            |(worst, record)| format!("worst {worst} in {record}"),
        );
        let invalid = match of.invalid {
            0 => String::new(),
            invalid => format!("; {invalid} invalid"),
        };
        Some(format!(
            "{numbers} of {}: {} samples in {}, {worst}{invalid}",
            plural(of.records.len(), "record"),
            grouped(of.samples),
            of.measured,
        ))
    }
}

fn invalid(location: &str, reasons: &[Finding]) -> Vec<String> {
    let reasons = reasons.iter();
    reasons
        .map(|reason| format!("{location}: invalid: {reason}"))
        .collect()
}
