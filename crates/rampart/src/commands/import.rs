// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart import`: shows a measurement of another tool.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rampart_model::ExitCode;
use rampart_peers::{read_cyclictest, read_rtla};

use crate::failure::Failure;
use crate::output;

/// The tool that wrote the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tool {
    /// `rtla timerlat hist` or `rtla osnoise hist`
    Rtla,
    /// `cyclictest -h` or `cyclictest -H`
    Cyclictest,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart import rtla timerlat.txt
  rtla osnoise hist -d 1m | rampart import rtla -
  rampart import cyclictest histogram.txt --json")]
pub(crate) struct Import {
    /// Tool that wrote the output
    pub(crate) tool: Tool,

    /// File with the output; `-` is standard input
    pub(crate) file: PathBuf,

    /// The histogram of cyclictest is in nanoseconds (option -N)
    #[arg(long)]
    pub(crate) nanoseconds: bool,

    /// Print the distributions as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn run(arguments: &Import) -> Result<ExitCode, Failure> {
    let text = read(&arguments.file)?;
    let measurement = match arguments.tool {
        Tool::Rtla => read_rtla(&text),
        Tool::Cyclictest => read_cyclictest(&text, arguments.nanoseconds),
    }
    .map_err(|error| Failure::usage(format!("{}: {error}", arguments.file.display())))?;
    if arguments.json {
        output::print_json(&measurement)?;
    } else {
        output::print_text(&rampart_present::peer_measurement(&measurement))?;
    }
    for finding in &measurement.findings {
        output::finding(finding);
    }
    Ok(ExitCode::Success)
}

fn read(file: &Path) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    let read = if file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
