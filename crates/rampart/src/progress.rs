// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress on standard error: a bar on a terminal, otherwise lines. It is drawn rarely, because
//! drawing disturbs the measured machine.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rampart_evaluate::{Observer, Progress};
use rampart_model::{Evaluation, Finding, Nanos, Run, TransferRecord, plural};

use crate::arguments::ShowProgress;
use crate::output;

/// Steps of the bar of an evaluation.
const STEPS: u64 = 1000;

/// The chosen form of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Bar,
    Lines,
    None,
}

/// Returns the form of progress; by default a bar on a terminal.
pub(crate) fn style(choice: ShowProgress) -> Style {
    match choice {
        ShowProgress::Bar => Style::Bar,
        ShowProgress::Lines => Style::Lines,
        ShowProgress::None => Style::None,
        ShowProgress::Auto => {
            let interactive = io::stderr().is_terminal() && std::env::var_os("CI").is_none();
            if interactive {
                Style::Bar
            } else {
                Style::Lines
            }
        }
    }
}

/// Returns a bar that is drawn at most once a second.
pub(crate) fn bar(style: Style, steps: u64) -> ProgressBar {
    if style != Style::Bar {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::stderr_with_hz(1));
    let template = ProgressStyle::with_template("{wide_bar} {percent:>3}%  {msg}");
    bar.set_style(template.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// Shows the progress of an evaluation.
#[derive(Debug)]
pub(crate) struct EvaluationProgress {
    style: Style,
    bar: ProgressBar,
    last: Option<Instant>,
}

impl EvaluationProgress {
    /// Returns the progress in this style.
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            bar: bar(style, STEPS),
            last: None,
        }
    }

    /// Removes the bar.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }

    fn reasons(&self, location: &str, reasons: &[Finding]) {
        for reason in reasons {
            self.line(&format!("{location}: INVALID: {reason}"));
        }
    }

    fn line(&self, text: &str) {
        match self.style {
            Style::Bar => self.bar.suspend(|| output::say(text)),
            Style::Lines => output::say(text),
            Style::None => {}
        }
    }
}

impl Observer for EvaluationProgress {
    fn planned(&mut self, evaluation: &Evaluation) {
        let plan = &evaluation.settings;
        let list = |words: Vec<String>| words.join(", ");
        self.line(&format!(
            "Measuring {} with {} under {}: {} of {} in about {}.",
            list(
                plan.domains
                    .iter()
                    .map(|domain| format!("{} ({})", domain.name, domain.cpus.named()))
                    .collect()
            ),
            list(
                plan.meters
                    .iter()
                    .map(|meter| meter.meter.to_string())
                    .collect()
            ),
            list(plan.conditions.iter().map(ToString::to_string).collect()),
            plural(evaluation.runs.1, "run"),
            plan.run_duration,
            plan.total,
        ));
        if let Some(effects) = &evaluation.plan_effects {
            let changes = plural(effects.changes.len(), "change");
            let parts = plan.variants.len().saturating_sub(1);
            self.line(&format!(
                "The plan, {changes}, is applied and released in turn, {} each, and compared with {}.",
                plural(plan.repetitions, "time"),
                plural(parts, "other state")
            ));
        }
    }

    fn progress(&mut self, progress: &Progress) {
        if self
            .last
            .is_some_and(|last| last.elapsed() < Duration::from_secs(1))
        {
            return;
        }
        self.last = Some(Instant::now());
        self.bar.set_position((progress.done * STEPS as f64) as u64);
        self.bar.set_message(format!(
            "run {}/{}, {} left: {}",
            progress.run.0 + 1,
            progress.run.1,
            whole_seconds(progress.remaining),
            progress.record,
        ));
    }

    fn run_made(&mut self, record: &str, run: &Run) {
        let worst = run
            .threads
            .iter()
            .filter_map(|thread| thread.worst.first())
            .map(|event| event.value)
            .max();
        let samples: u64 = run.threads.iter().map(|thread| thread.samples).sum();
        if self.style == Style::Lines {
            let worst = worst.map_or_else(|| "none".to_owned(), |worst| worst.to_string());
            self.line(&format!(
                "run {:>3}  {record}: {samples} samples in {}, worst {worst}",
                run.order + 1,
                run.duration
            ));
        }
        self.reasons(&format!("run {:>3}  {record}", run.order + 1), &run.invalid);
    }

    fn round_made(&mut self, round: &TransferRecord) {
        let location = format!("round {:>3}  {}", round.order + 1, round.id);
        if self.style == Style::Lines {
            let worst: Vec<String> = round
                .watched
                .iter()
                .map(|watched| {
                    let worst = watched
                        .seen
                        .max
                        .map_or("none".to_owned(), |max| max.to_string());
                    format!("{} {worst}", watched.domain)
                })
                .collect();
            let blocks = round.blocks.as_ref().map_or_else(String::new, |blocks| {
                format!(", {} blocks of {}", blocks.spans.len(), blocks.length)
            });
            self.line(&format!(
                "{location}: {}{blocks}; worst: {}",
                round.duration,
                worst.join(", ")
            ));
        }
        self.reasons(&location, &round.invalid);
        for watched in &round.watched {
            self.reasons(&format!("{location}, {}", watched.domain), &watched.invalid);
        }
    }
}

/// Formats a duration in whole seconds.
pub(crate) fn whole_seconds(duration: Duration) -> String {
    Nanos::from_secs(duration.as_secs_f64().round() as u64).to_string()
}
