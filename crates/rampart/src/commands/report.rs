// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart report`: renders an evaluation document again.

use rampart_model::{Evaluation, ExitCode};
use rampart_present::TerminalOptions;

use crate::arguments::{Format, Report};
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Report, colour: bool) -> Result<ExitCode, Failure> {
    let evaluation = rampart_evaluate::read(&arguments.results)?;
    let colour = colour && arguments.output.is_none();
    output::write(
        arguments.output.as_deref(),
        &render(&evaluation, arguments.format, colour),
    )?;
    Ok(ExitCode::Success)
}

/// Renders a document.
pub(crate) fn render(evaluation: &Evaluation, format: Format, colour: bool) -> String {
    match format {
        Format::Terminal => {
            let width = output::terminal_width();
            rampart_present::terminal(
                &rampart_present::report(evaluation),
                TerminalOptions { width, colour },
            )
        }
        Format::Html => rampart_present::html(evaluation),
        Format::Json => rampart_present::json(evaluation),
        Format::Junit => rampart_present::junit(evaluation),
    }
}
