// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the meters with cyclictest and oslat: `make bench`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal"
)]

mod callgrind;
mod child;
mod machine_facts;
mod measures;
mod ours;
mod table;
mod theirs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Parser;
use rampart_model::{CpuId, CpuSet};

use crate::measures::{Bench, Measure};
use crate::table::Results;

/// Compare Rampart's meters with cyclictest and oslat, interleaved in one run
#[derive(Debug, Parser)]
#[command(name = "rampart-benchmarks")]
struct Arguments {
    /// The meter to compare
    #[arg(long, value_name = "PATH", default_value = "bin/rampart-meter")]
    meter: PathBuf,
    /// Pairs of runs for each measure
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: u16,
    /// Attempts for each pair, for machines on which a CPU can be taken away for a moment
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=1000))]
    attempts: u16,
    /// Only these measures, separated by commas
    #[arg(long, value_name = "MEASURE", value_delimiter = ',')]
    only: Vec<Measure>,
    /// CPU to measure on [default: the highest allowed CPU]
    #[arg(long, value_name = "CPU")]
    cpu: Option<u32>,
    /// CPU for everything else [default: the lowest allowed CPU]
    #[arg(long, value_name = "CPU")]
    housekeeping: Option<u32>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Also write the results as a document, for example docs/benchmarks.md
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rampart-benchmarks: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let measures = if arguments.only.is_empty() {
        &Measure::ALL[..]
    } else {
        &arguments.only
    };
    check_programs(&arguments.meter, measures)?;
    let (cpu, housekeeping) = select_cpus(arguments, &machine_facts::allowed())?;
    let date = jiff::Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let date = date.to_string();
    let machine = machine_facts::facts();
    let mut bench = Bench {
        meter: arguments.meter.clone(),
        cpu,
        housekeeping,
        pairs: usize::from(arguments.pairs),
        attempts: arguments.attempts,
        progress: |what| eprintln!("{what}"),
        versions: BTreeMap::new(),
        remarks: Vec::new(),
    };
    let mut rows = Vec::new();
    let mut failed = false;
    for measure in measures {
        match bench.run(*measure) {
            Ok(found) => rows.extend(found),
            Err(error) => {
                failed = true;
                bench.remarks.push(format!("Not measured: {error:#}."));
            }
        }
    }
    let mut versions: Vec<(String, String)> = bench.versions.into_iter().collect();
    if measures.contains(&Measure::Instructions) {
        versions.push(("valgrind".to_owned(), version_of("valgrind")));
    }
    let mut results = Results {
        date,
        command: command(arguments),
        machine,
        versions,
        rows,
        remarks: bench.remarks,
    };
    results.machine.push((
        "measured CPU, CPU for everything else".to_owned(),
        format!("{cpu}, {housekeeping}"),
    ));
    if arguments.json {
        println!("{}", serde_json::to_string_pretty(&results)?);
    } else {
        print!("{}", results.terminal());
    }
    if failed {
        bail!("some measures failed (see above); no document is written");
    }
    if let Some(path) = &arguments.write {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        std::fs::write(path, results.document())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Checks that all programs are installed; the error lists the missing ones with their packages.
fn check_programs(meter: &Path, measures: &[Measure]) -> Result<()> {
    if !meter.is_file() {
        bail!(
            "no meter at {}; build rampart-meter with `make build` or give its path with --meter",
            meter.display()
        );
    }
    let mut needed: Vec<_> = measures
        .iter()
        .flat_map(|measure| measure.needs())
        .collect();
    needed.sort_unstable();
    needed.dedup();
    needed.retain(|(program, _)| !in_path(program));
    if needed.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = needed.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    let programs: Vec<&str> = needed.iter().map(|(program, _)| *program).collect();
    bail!(
        "{} not found in PATH; install with `apt-get install {}`, or select other measures with --only",
        programs.join(", "),
        packages.join(" ")
    );
}

fn in_path(program: &str) -> bool {
    std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    })
}

/// Returns the measured CPU and the CPU for everything else.
fn select_cpus(arguments: &Arguments, allowed: &CpuSet) -> Result<(CpuId, CpuId)> {
    let pick = |asked: Option<u32>, otherwise: Option<CpuId>| -> Result<CpuId> {
        let cpu = asked
            .map(CpuId)
            .or(otherwise)
            .context("no CPU is allowed")?;
        if !allowed.contains(cpu) {
            bail!("CPU {cpu} is not allowed for this process (allowed: {allowed})");
        }
        Ok(cpu)
    };
    let cpu = pick(arguments.cpu, allowed.iter().next_back())?;
    let others = allowed.difference(&CpuSet::single(cpu));
    // With a single CPU, both programs share it with their housekeeping, so the comparison stays fair.
    let housekeeping = pick(arguments.housekeeping, others.first().or(Some(cpu)))?;
    Ok((cpu, housekeeping))
}

fn version_of(program: &str) -> String {
    Command::new(program)
        .arg("--version")
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_else(|error| format!("unknown ({error})"))
}

/// Returns the command that repeats this run.
fn command(arguments: &Arguments) -> String {
    let mut options = Vec::new();
    if arguments.pairs != 10 {
        options.push(format!("--pairs {}", arguments.pairs));
    }
    if !arguments.only.is_empty() {
        let names: Vec<String> = arguments
            .only
            .iter()
            .map(|measure| format!("{measure:?}").to_lowercase())
            .collect();
        options.push(format!("--only {}", names.join(",")));
    }
    for (name, cpu) in [
        ("--cpu", arguments.cpu),
        ("--housekeeping", arguments.housekeeping),
    ] {
        options.extend(cpu.map(|cpu| format!("{name} {cpu}")));
    }
    if let Some(path) = &arguments.write {
        options.push(format!("--write {}", path.display()));
    }
    if options.is_empty() {
        "make bench".to_owned()
    } else {
        format!("make bench ARGS=\"{}\"", options.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        Arguments::parse_from(std::iter::once(&"rampart-benchmarks").chain(words))
    }

    #[test]
    fn selects_the_highest_cpu_to_measure_and_the_lowest_for_housekeeping() {
        let allowed: CpuSet = "2-5".parse().expect("a list");
        let found = |words: &[&str]| select_cpus(&arguments(words), &allowed);
        assert_eq!(found(&[]).expect("two CPUs"), (CpuId(5), CpuId(2)));
        let named = found(&["--cpu", "2", "--housekeeping", "4"]);
        assert_eq!(named.expect("two CPUs"), (CpuId(2), CpuId(4)));
        assert!(found(&["--cpu", "9"]).is_err());
        let single: CpuSet = "3".parse().expect("a list");
        let shared = select_cpus(&arguments(&[]), &single);
        assert_eq!(shared.expect("one CPU"), (CpuId(3), CpuId(3)));
        assert!(select_cpus(&arguments(&[]), &CpuSet::new()).is_err());
    }

    #[test]
    fn prints_the_command_that_repeats_the_run() {
        assert_eq!(command(&arguments(&[])), "make bench");
        assert_eq!(
            command(&arguments(&[
                "--pairs",
                "20",
                "--only",
                "cpu,noise",
                "--json"
            ])),
            "make bench ARGS=\"--pairs 20 --only cpu,noise\""
        );
    }

    #[test]
    fn reports_a_missing_meter_and_wrong_arguments() {
        let error = check_programs(Path::new("no/such/meter"), &[]).expect_err("no meter");
        assert!(error.to_string().contains("make build"), "{error}");
        assert!(Arguments::try_parse_from(["x", "--pairs", "0"]).is_err());
        assert!(Arguments::try_parse_from(["x", "--only", "moon"]).is_err());
    }
}
