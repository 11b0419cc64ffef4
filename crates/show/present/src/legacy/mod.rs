// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The evaluation as text for a terminal, a log or a mail.

mod causes;
mod cells;
mod effects;
mod guests;
mod records;
mod sections;
mod text;
mod unwanted_activity;
mod walls;

pub use causes::explained;

use rampart_model::{Bench, Evaluation};

use crate::format;
use text::{Ink, Page};

/// Narrower terminals get lines of this many columns.
const LEAST_WIDTH: u16 = 60;

use crate::terminal::TerminalOptions;

/// The evaluation as text: machine, one sentence for each domain, the comparison, what the plan
/// changed, who disturbs whom, every record with its exposure, interference, worst events and their causes, guests, cells, what
/// was not measured, warnings.
#[must_use]
pub fn evaluation_text(evaluation: &Evaluation, options: TerminalOptions) -> String {
    let mut page = Page::new(
        options.width.max(LEAST_WIDTH),
        Ink {
            colour: options.colour,
        },
    );
    head(&mut page, evaluation);
    sections::sentences(&mut page, evaluation);
    sections::comparison(&mut page, evaluation);
    effects::effects(&mut page, evaluation);
    walls::matrix(&mut page, evaluation);
    walls::crash(&mut page, evaluation);
    records::records(&mut page, evaluation);
    sections::deadline(&mut page, evaluation);
    sections::ratios(&mut page, evaluation);
    sections::worst(&mut page, evaluation);
    causes::causes(&mut page, evaluation);
    guests::guests(&mut page, evaluation);
    cells::cells(&mut page, evaluation);
    sections::not_measured(&mut page, evaluation);
    sections::warnings(&mut page, evaluation);
    page.finish()
}

/// What machine, how far, and what must be known before any figure is read.
fn head(page: &mut Page, evaluation: &Evaluation) {
    page.paragraph(&format::machine(evaluation), 0);
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
        if let Some(measured) = &evaluation.plan.measured {
            page.paragraph(&format::measured_plan(evaluation, measured), 0);
        }
    }
    match &evaluation.bench {
        Bench::Local => {}
        Bench::Ssh { host } => page.paragraph(&format!("Measured on {host}, over ssh."), 0),
        Bench::Sim {
            emulator,
            kernel,
            packages,
        } => page.alarm(&format!(
            "SIMULATED MACHINE: {emulator}, Linux {kernel}, from {} packages. {}",
            packages.len(),
            format::SIMULATED
        )),
    }
    if evaluation.machine.virtualisation.emulated && !matches!(evaluation.bench, Bench::Sim { .. })
    {
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
