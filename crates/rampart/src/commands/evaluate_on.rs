// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate --on`: runs the evaluation on another machine and receives its results as they
//! are produced.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rampart_bench::{BenchError, BenchSelection, Results, SilenceLimits, copy_programs};
use rampart_evaluate::{
    CRASH_SIGNS, DOCUMENT, ResultDirectory, add_crash, confirm_crash, read, signs_in_memory,
};
use rampart_model::{Bench, Evaluation, ExitCode, Finding, Nanos, Severity};

use super::evaluate::{DisturbArgument, Evaluate, default_directory, exit_code, show};
use super::evaluate_plan::selections;
use super::on::programs;
use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::{output, signals};

/// How long to wait for further signs of life after a crash.
const OBSERVED: Duration = Duration::from_secs(10);

/// Returns whether the kernel of the other machine panics at the end: by default on a simulated
/// machine, on others only on request.
fn crash_wanted(arguments: &Evaluate) -> Result<bool, Failure> {
    let named = arguments
        .disturb
        .as_ref()
        .map(|requested| requested.contains(&DisturbArgument::Crash));
    match (&arguments.on.on, named) {
        (BenchSelection::Sim(_), named) => Ok(named.unwrap_or(true)),
        (_, None | Some(false)) => Ok(false),
        (BenchSelection::Ssh(_), Some(true)) if arguments.allow_crash => Ok(true),
        (bench, Some(true)) => Err(Failure::usage(format!(
            "--disturb crash:host makes the kernel of {bench} panic; fix: add --on sim; fix: add \
             --on ssh:HOST --allow-crash"
        ))),
    }
}

/// Refuses a crash of this machine.
pub(crate) fn refuse_crash_here(arguments: &Evaluate) -> Result<(), Failure> {
    crash_wanted(arguments).map(|_| ())
}

/// Data received besides the files.
#[derive(Debug, Default)]
struct Received {
    /// The newest signs of life, and when they were received.
    signs: Option<(Vec<u8>, Instant)>,
}

pub(crate) fn run(arguments: &Evaluate, colour: bool) -> Result<ExitCode, Failure> {
    let crash = crash_wanted(arguments)?;
    let plan = arguments.plan.remote_arguments()?;
    if arguments.plan.plan.is_none() {
        selections(&arguments.domains)?;
    }
    let stop = signals::stop_flag()?;
    let path = arguments.out.clone().unwrap_or_else(default_directory);
    let directory = ResultDirectory::create(&path)?;
    let connected = arguments.on.connect(&stop, Some(OBSERVED));
    let connected = match connected {
        Ok(Some(machine)) => machine,
        Ok(None) => return Ok(ExitCode::Success),
        Err(failure) => {
            remove_if_empty(&path);
            return Err(failure);
        }
    };
    let machine = connected.as_ref();
    let bench = machine.bench();
    output::eprint(&format!(
        "rampart: evaluating on {}: Linux {}, {}",
        machine.name(),
        machine.agent().hello().kernel_release,
        machine.agent().hello().cpus.named()
    ));
    let copied = programs()
        .and_then(|programs| Ok(copy_programs(machine, &programs)?))
        .inspect_err(|_| remove_if_empty(&path))?;
    let mut argv = remote_command(arguments, copied.rampart, crash);
    if let Bench::Sim { .. } = bench
        && let Ok(cpus) = std::thread::available_parallelism()
    {
        argv.push(format!("--emulator-cpus={cpus}"));
    }
    argv.extend(plan);
    let command: Vec<String> = std::env::args().collect();
    let received = Mutex::new(Received::default());
    let results = Results::into_directory(directory.path());
    let ended = rampart_bench::run(
        machine,
        &argv,
        limits(arguments),
        &stop,
        |stdout| {
            results.unpack(stdout, |name, content| {
                if name == CRASH_SIGNS
                    && let Ok(mut received) = received.lock()
                {
                    machine.read_at_end(signs_in_memory(&content));
                    received.signs = Some((content.clone(), Instant::now()));
                }
                if name == DOCUMENT {
                    with_local_command(content, &bench, &command)
                } else {
                    content
                }
            })
        },
        output::eprint,
    )
    .inspect_err(|_| remove_if_empty(&path))?;
    if let Some(broken) = &ended.output.broken
        && ended.status.is_ok()
    {
        output::eprint(&format!(
            "warning: {}: the received results are incomplete: {broken}",
            machine.name()
        ));
    }

    let signs = received
        .into_inner()
        .ok()
        .and_then(|received| received.signs);
    let (code, crashed) = match (ended.status, signs) {
        (Ok(status), _) => (Some(ExitCode::from_status(status)), None),
        (Err(_), Some((signs, at))) if crash => {
            let evidence = machine.wait_for_crash(at, OBSERVED);
            let (observed, memory) = (evidence.observed, &evidence.memory);
            let record = confirm_crash(&signs, observed, evidence.confirmed, memory)?;
            (None, Some(record))
        }
        (Err(error), _) => {
            let lost = lost_finding(&error);
            let code = Failure::from(error).report();
            if path.join(DOCUMENT).exists() {
                let mut evaluation = read(&path)?;
                evaluation.findings.push(lost);
                directory.write(&evaluation)?;
                show(&evaluation, &path, arguments, colour)?;
            }
            remove_if_empty(&path);
            return Ok(code);
        }
    };
    drop(connected);
    let _ = fs::remove_file(path.join(CRASH_SIGNS));
    if !path.join(DOCUMENT).exists() {
        // The other machine refused the evaluation and printed the cause.
        remove_if_empty(&path);
        return Ok(code.unwrap_or(ExitCode::Failure));
    }
    let mut evaluation = read(&path)?;
    if let Some(crashed) = crashed {
        add_crash(&mut evaluation, crashed);
        directory.write(&evaluation)?;
    }
    show(&evaluation, &path, arguments, colour)?;
    Ok(code.unwrap_or_else(|| exit_code(&evaluation)))
}

/// Returns the limit of silence. No part of an evaluation takes longer than its total time, by default
/// at most four minutes.
fn limits(arguments: &Evaluate) -> SilenceLimits {
    let total = arguments
        .until_decided
        .or(arguments.duration)
        .unwrap_or(Nanos::from_secs(240));
    SilenceLimits::with_quiet(Duration::from_nanos(total.0))
}

/// Returns the command line for the other machine.
fn remote_command(arguments: &Evaluate, program: String, crash: bool) -> Vec<String> {
    let mut argv = vec![program, "--color".to_owned(), "never".to_owned()];
    argv.extend(arguments.remote_arguments());
    let progress = match arguments.show_progress {
        ShowProgress::None => "none",
        // There is no terminal there.
        ShowProgress::Auto | ShowProgress::Bar => "auto",
        ShowProgress::Lines => "lines",
    };
    argv.extend(["--show-progress", progress, "--out", "-"].map(str::to_owned));
    if crash {
        argv.push("--crash-host".to_owned());
    }
    argv
}

/// Returns the document with the bench and the command line of this machine.
fn with_local_command(content: Vec<u8>, bench: &Bench, command: &[String]) -> Vec<u8> {
    let Ok(mut evaluation) = serde_json::from_slice::<Evaluation>(&content) else {
        return content;
    };
    evaluation.bench = bench.clone();
    evaluation.command = command.to_vec();
    serde_json::to_vec(&evaluation).unwrap_or(content)
}

fn lost_finding(error: &BenchError) -> Finding {
    Finding::new(
        Severity::Error,
        "bench",
        format!("the machine was lost before the evaluation ended: {error}"),
    )
}

/// Removes a result directory without results.
fn remove_if_empty(path: &Path) {
    let _ = fs::remove_dir(path.join("histograms"));
    let _ = fs::remove_dir(path);
}
