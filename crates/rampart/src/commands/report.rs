// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart report`: renders an evaluation document again.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rampart_model::{Evaluation, ExitCode};

use crate::failure::Failure;
use crate::output;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Text for this terminal
    Terminal,
    /// One self-contained HTML page
    Html,
    /// The evaluation document
    Json,
    /// JUnit XML with one test case for each verdict
    Junit,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart report rampart-results-20260101-120000
  rampart report DIR --format html --output page.html
  rampart report DIR --format junit > verdicts.xml")]
pub(crate) struct Report {
    /// Directory of `rampart evaluate`, or its evaluation.json
    pub(crate) results: PathBuf,

    /// Format of the report
    #[arg(long, value_name = "FORMAT", default_value = "terminal")]
    pub(crate) format: Format,

    /// File to write [default: standard output]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

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
            let elements = rampart_present::report(evaluation);
            output::terminal_text(&elements, output::terminal_width(), colour)
        }
        Format::Html => rampart_present::html(evaluation),
        Format::Json => rampart_present::json(evaluation),
        Format::Junit => rampart_present::junit(evaluation),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rampart_model::{Bench, Evaluation, Finding, Severity};
    use rampart_present::Element;

    use crate::arguments::Arguments;

    /// Returns the commands of the first answer.
    fn next_commands(evaluation: &Evaluation) -> Vec<String> {
        let elements = rampart_present::report(evaluation);
        let parts = elements.into_iter().flat_map(|element| match element {
            Element::FirstAnswer { parts, .. } => parts,
            _ => Vec::new(),
        });
        let commands = parts.map(|part| part.command);
        commands.filter(|command| !command.is_empty()).collect()
    }

    #[test]
    fn the_next_command_of_every_report_is_valid() {
        let documents = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../show/present/tests/documents"
        );
        let mut commands = Vec::new();
        for file in std::fs::read_dir(documents).expect("a directory") {
            let text = std::fs::read_to_string(file.expect("a file").path()).expect("a text");
            let mut evaluation: Evaluation = serde_json::from_str(&text).expect("an evaluation");
            commands.extend(next_commands(&evaluation));
            evaluation.verdicts.clear();
            commands.extend(next_commands(&evaluation));
            let error = Finding::new(Severity::Error, "kernel", "not built for real time");
            evaluation.machine.findings.push(error);
            evaluation.bench = Bench::Ssh {
                host: "root@board".to_owned(),
            };
            commands.extend(next_commands(&evaluation));
        }
        commands.sort();
        commands.dedup();
        assert!(commands.len() > 4, "{commands:?}");
        for command in &commands {
            let words = command.trim_start_matches("sudo ").split(' ');
            if let Err(error) = Arguments::try_parse_from(words) {
                panic!("{command}: {error}");
            }
        }
    }
}
