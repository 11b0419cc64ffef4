// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart import`: shows a measurement of another tool.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rampart_model::{ExitCode, Nanos};
use rampart_peers::{PeerMeasurement, PeerQuantile, PeerSeries, read_cyclictest, read_rtla};

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
        output::print(&summary(&measurement))?;
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

fn summary(measurement: &PeerMeasurement) -> String {
    let mut text = measurement.tool.clone();
    if let Some(duration) = measurement.duration {
        let _ = write!(text, ", {duration}");
    }
    let _ = writeln!(text, ", buckets of {}", measurement.bucket);
    for series in &measurement.series {
        let time = |time: Option<Nanos>| time.map_or_else(|| "–".to_owned(), |t| t.to_string());
        let _ = writeln!(
            text,
            "{:<4}{:<4} min {:>9}  avg {:>9}{}  max {:>9}  n {}",
            series.name,
            series.number.0,
            time(series.min),
            time(series.mean),
            quantiles(series),
            time(series.max),
            series.samples()
        );
        if let Some(beyond) = series.beyond.filter(|beyond| *beyond > 0) {
            let _ = writeln!(
                text,
                "        {beyond} samples ({:.3} %) lie beyond the buckets, which end at {} at the earliest; nothing but their greatest is known",
                beyond as f64 / series.samples() as f64 * 100.0,
                series.buckets_end
            );
        }
    }
    text
}

/// Only quantiles that at least ten samples lie beyond, as everywhere.
fn quantiles(series: &PeerSeries) -> String {
    let mut text = String::new();
    for (name, quantile) in [
        ("p50", 0.5),
        ("p99", 0.99),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
    ] {
        let told = series
            .quantile(quantile)
            .filter(|_| series.samples() as f64 * (1.0 - quantile) >= 10.0)
            .map_or_else(
                || "–".to_owned(),
                |quantile| match quantile {
                    PeerQuantile::AtMost(value) => value.to_string(),
                    PeerQuantile::Beyond(end) => format!("> {end}"),
                },
            );
        let _ = write!(text, "  {name} {told:>9}");
    }
    text
}
