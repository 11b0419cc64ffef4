// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Progress on standard error: a bar on a terminal, otherwise lines, few unless each run is requested. It is drawn rarely, because
//! drawing disturbs the measured machine.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rampart_evaluate::{Observer, Progress};
use rampart_model::{Evaluation, Nanos, Run, TransferRecord};
use rampart_present::RunSummary;

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
    /// The runs since the last line, if not each has one.
    summary: Option<RunSummary>,
    bar: ProgressBar,
    last: Option<Instant>,
}

impl EvaluationProgress {
    /// Returns the progress in this form.
    pub(crate) fn new(choice: ShowProgress) -> Self {
        let style = style(choice);
        Self {
            style,
            summary: (choice == ShowProgress::Auto).then(RunSummary::default),
            bar: bar(style, STEPS),
            last: None,
        }
    }

    /// Removes the bar, or prints the last line.
    pub(crate) fn finish(&mut self) {
        self.summarise();
        self.bar.finish_and_clear();
    }

    /// Prints the line for the runs since the last one.
    fn summarise(&mut self) {
        if self.style == Style::Lines
            && let Some(line) = self.summary.as_mut().and_then(RunSummary::take)
        {
            output::eprint(&line);
        }
    }

    /// A bar shows no results, only why one is invalid.
    fn result(&self, (result, reasons): (String, Vec<String>)) {
        if self.style == Style::Lines {
            output::eprint(&result);
        }
        self.lines(&reasons);
    }

    fn lines(&self, lines: &[String]) {
        for text in lines {
            match self.style {
                Style::Bar => self.bar.suspend(|| output::eprint(text)),
                Style::Lines => output::eprint(text),
                Style::None => {}
            }
        }
    }
}

impl Observer for EvaluationProgress {
    fn planned(&mut self, evaluation: &Evaluation) {
        self.lines(&rampart_present::planned_lines(evaluation));
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
        let Some(summary) = &mut self.summary else {
            self.result(rampart_present::run_lines(record, run));
            return;
        };
        let (reasons, is_long) = (summary.add(record, run), summary.is_long());
        self.lines(&reasons);
        if is_long {
            self.summarise();
        }
    }

    fn measured_on(&mut self, evaluation: &Evaluation, until: Nanos) {
        self.summarise();
        self.lines(&[rampart_present::measured_on_line(evaluation, until)]);
    }

    fn round_made(&mut self, round: &TransferRecord) {
        self.summarise();
        self.result(rampart_present::round_lines(round));
    }
}

/// Formats a duration in whole seconds.
pub(crate) fn whole_seconds(duration: Duration) -> String {
    Nanos::from_secs(duration.as_secs_f64().round() as u64).to_string()
}
