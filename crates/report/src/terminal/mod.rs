// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evaluation as text for a terminal, a log or a mail.

mod records;
mod sections;
mod text;

use rampart_model::Evaluation;

use crate::format;
use text::{Ink, Page};

/// How the terminal wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns; nothing that can be broken is wider. Under 60 counts as 60.
    pub width: u16,
    /// Whether to use ANSI colours. They repeat what words say and carry nothing of their own.
    pub colour: bool,
}

impl Default for TerminalOptions {
    /// 80 columns, no colour.
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
        }
    }
}

/// The evaluation as text: machine, one sentence for each domain, the comparison, every record
/// with its exposure, interference, worst events, what was not measured, warnings.
#[must_use]
pub fn terminal(evaluation: &Evaluation, options: TerminalOptions) -> String {
    let mut page = Page::new(
        options.width.max(60),
        Ink {
            colour: options.colour,
        },
    );
    head(&mut page, evaluation);
    sections::sentences(&mut page, evaluation);
    sections::comparison(&mut page, evaluation);
    records::records(&mut page, evaluation);
    sections::deadline(&mut page, evaluation);
    sections::ratios(&mut page, evaluation);
    sections::worst(&mut page, evaluation);
    sections::not_measured(&mut page, evaluation);
    sections::warnings(&mut page, evaluation);
    page.finish()
}

/// What machine, how far, and what must be known before any figure is read.
fn head(page: &mut Page, evaluation: &Evaluation) {
    page.paragraph(&format::machine(&evaluation.machine), 0);
    let (state, alarming) = format::state(evaluation);
    if alarming {
        page.alarm(&state);
    } else {
        let deadline = evaluation.plan.deadline;
        page.paragraph(
            &format!(
                "{state} Began {}; deadline {}{}; rampart {}.",
                evaluation.started,
                format::time(deadline),
                if evaluation.plan.deadline_from_user {
                    ""
                } else {
                    " (the meter's own period)"
                },
                evaluation.tool_version
            ),
            0,
        );
    }
    if evaluation.machine.virtualisation.emulated {
        page.alarm(format::EMULATED);
    }
    let invalid = evaluation
        .records
        .iter()
        .filter(|record| !record.invalid.is_empty())
        .count();
    if invalid > 0 {
        page.alarm(&format!(
            "INVALID: {invalid} of {} records carry no verdict; the reasons stand under \"Warnings\".",
            evaluation.records.len()
        ));
    }
}
