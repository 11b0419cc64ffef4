// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate`: measures domains under loads and disturbances, and judges them.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use rampart_evaluate::{Context, DisturbanceRequest, Request, ResultStream, evaluate, is_complete};
use rampart_model::{
    Condition, CpuList, Evaluation, ExitCode, LoadKind, LoadLocation, MeterKind, Nanos, Question,
    SchedulingPolicy, VerdictOutcome,
};
use rampart_supervise::PlanFile;

use super::evaluate_plan::selections;
use super::report::{Format, render};
use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
Ctrl-C ends early and keeps every result; a second Ctrl-C ends at once.

Examples:
  rampart evaluate                            all domains in two to six minutes
  rampart evaluate --for 1h --deadline 100us  exit code 3 if it is not met
  rampart evaluate --loads idle,cpu@same,io   other loads and their CPUs
  rampart evaluate --meters wakeup,noise,loop
  rampart evaluate --for 5m --disturb block   which domains a block reaches
  rampart evaluate --domains host,container:podman
  rampart evaluate --plan plan.toml --before-after
                                              effects of applying a plan
  rampart evaluate --plan plan.toml --ablate  which of its changes matter
  rampart evaluate --on sim --for 5m          on a simulated machine
  rampart evaluate --on sim:aarch64           on a simulated arm64 machine
  rampart evaluate --on ssh:root@board        on another machine";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, next_help_heading = "Measurement")]
pub(crate) struct Evaluate {
    /// Total time [default: 2m, and up to 6m for comparisons that are not decided
    /// then; 4m on an emulated machine]
    #[arg(long = "for", value_name = "DURATION")]
    pub(crate) duration: Option<Nanos>,

    /// Measure on until all comparisons are decided, for at most this total
    /// time [default without a value: 30m; default with --for: not beyond --for]
    #[arg(
        long,
        value_name = "DURATION",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "30m"
    )]
    pub(crate) until_decided: Option<Nanos>,

    /// Deadline to judge [default: none; the report names the round deadline that
    /// would have been met]
    #[arg(long, value_name = "TIME")]
    pub(crate) deadline: Option<Nanos>,

    /// Domains: host, task, container, container:podman, container:docker, vm,
    /// vm:noisy (a noisy neighbour: loaded, not measured), vm:tcg (emulated),
    /// detached, cell; one named twice runs twice. With --plan also its domains
    /// [default: all that suit this machine; the report lists the others]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) domains: Vec<String>,

    /// Loads: idle, cpu, memory, cache, io, each with @same or @others for its
    /// CPUs; or all
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = loads)]
    pub(crate) loads: Vec<Loads>,

    /// Disturbances of one domain while the others are measured: block, cpu,
    /// memory, cache, io, in every domain or in one (block:host, cache:task,
    /// block:under:vm); crash:host at the end, on another machine; or none
    /// [default: block,cache,cpu; on an emulated machine block; none
    /// without real-time policies; with --on sim also crash:host]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) disturb: Option<Vec<DisturbArgument>>,

    /// Meters: wakeup, noise, fwq, loop; in a cell without an operating system
    /// also irq and mmio. The report begins with the first
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) meters: Vec<MeterKind>,

    /// Real-time CPUs [default: the isolated ones, or the last cores: one, and
    /// with disturbances one for each domain but the host]
    #[arg(
        long,
        value_name = "CPUS",
        conflicts_with = "plan",
        help_heading = "How to measure"
    )]
    pub(crate) cpus: Option<CpuList>,

    /// Scheduling policy of the measuring threads: other, fifo:N, rr:N or
    /// deadline:RUNTIME/DEADLINE/PERIOD
    #[arg(long, value_name = "POLICY", help_heading = "How to measure")]
    pub(crate) policy: Option<SchedulingPolicy>,

    /// Period of wakeup and loop [default: 500us; 4ms on an emulated machine]
    #[arg(long, value_name = "TIME", help_heading = "How to measure")]
    pub(crate) interval: Option<Nanos>,

    /// Length of the quantum of fwq and of the work of loop
    #[arg(long, value_name = "TIME", help_heading = "How to measure")]
    pub(crate) work: Option<Nanos>,

    /// Seed of the order of runs and of the resampling [default: 1]
    #[arg(long, value_name = "NUMBER", help_heading = "How to measure")]
    pub(crate) seed: Option<u64>,

    /// Find the causes of the worst samples in the kernel's trace (as root)
    #[arg(long, help_heading = "How to measure")]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) plan: super::evaluate_plan::PlanOptions,

    #[command(flatten)]
    pub(crate) on: super::on::On,

    /// Allow crash:host on the machine of --on ssh:HOST
    #[arg(long, help_heading = "Another machine")]
    pub(crate) allow_crash: bool,

    /// Make the kernel of this machine panic at the end; set by `--on`
    #[arg(long, hide = true)]
    pub(crate) crash_host: bool,

    /// Number of real CPUs that run this emulated machine; set by `--on`
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) emulator_cpus: Option<u32>,

    /// Directory of the results; `-` writes a tar stream to standard output, in
    /// which a file is repeated each time it changes
    /// [default: rampart-results-TIME]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) out: Option<PathBuf>,

    /// Print the evaluation document instead of the report
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// How to show progress
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(crate) show_progress: ShowProgress,
}

/// One entry of `--disturb`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DisturbArgument {
    Disturbance(DisturbanceRequest),
    /// Makes the kernel of the host panic.
    Crash,
}

impl std::str::FromStr for DisturbArgument {
    type Err = rampart_model::ParseDisturbanceError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "crash:host" {
            Ok(Self::Crash)
        } else {
            text.parse().map(Self::Disturbance)
        }
    }
}

/// One entry of `--loads`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Loads {
    One(Condition),
    All,
}

fn loads(text: &str) -> Result<Loads, rampart_model::ParseConditionError> {
    if text == "all" {
        Ok(Loads::All)
    } else {
        text.parse().map(Loads::One)
    }
}

/// File name of the page in the result directory.
const PAGE: &str = "report.html";

pub(crate) fn run(arguments: &Evaluate, colour: bool) -> Result<ExitCode, Failure> {
    if !arguments.on.is_local() {
        return super::evaluate_on::run(arguments, colour);
    }
    super::evaluate_on::refuse_crash_here(arguments)?;
    let read = arguments.plan.read()?;
    let request = request(arguments, read.as_ref())?;
    let meter = super::meter_program()?;
    let streamed = arguments.out.as_deref() == Some(Path::new("-"));
    // Streamed results also need a directory while they are created.
    let temporary = streamed
        .then(|| {
            tempfile::Builder::new()
                .prefix("rampart-results-")
                .tempdir()
        })
        .transpose()?;
    let directory = match &temporary {
        Some(temporary) => temporary.path().to_owned(),
        None => arguments.out.clone().unwrap_or_else(default_directory),
    };
    let stream = streamed.then(|| ResultStream::new(io::stdout()));
    let context = Context {
        meter: &meter,
        output: &directory,
        stream: stream.clone(),
        crash_host: arguments.crash_host,
        explain: arguments.explain,
        plan: read.as_ref(),
        command: std::env::args().collect(),
        tool_version: super::VERSION,
    };
    let stop = signals::stop_flag()?;
    let mut observer = progress::EvaluationProgress::new(arguments.show_progress);
    let evaluation = evaluate(&request, &context, &mut observer, &stop)?;
    observer.finish();
    match stream {
        Some(stream) => stream.finish()?,
        None => show(&evaluation, &directory, arguments, colour)?,
    }
    Ok(exit_code(&evaluation))
}

fn request(arguments: &Evaluate, read: Option<&PlanFile>) -> Result<Request, Failure> {
    let disturbances = arguments.disturb.as_ref().map(|requested| {
        let mut requested: Vec<_> = requested
            .iter()
            .filter_map(|one| match one {
                DisturbArgument::Disturbance(one) => Some(one.clone()),
                DisturbArgument::Crash => None,
            })
            .collect();
        if requested.is_empty() {
            requested.push(DisturbanceRequest::Nothing);
        }
        requested
    });
    let plan = read.map(|read| arguments.plan.request(read, &arguments.domains));
    let domains = match &plan {
        Some(_) => Vec::new(),
        None => selections(&arguments.domains)?,
    };
    Ok(Request {
        total: arguments.duration,
        until_decided: arguments.until_decided,
        deadline: arguments.deadline,
        domains,
        plan,
        conditions: conditions(&arguments.loads),
        disturbances,
        meters: arguments.meters.clone(),
        cpus: super::cpus_here(arguments.cpus.as_ref())?,
        policy: arguments.policy,
        interval: arguments.interval,
        work: arguments.work,
        seed: arguments.seed,
        emulator_cpus: arguments.emulator_cpus,
    })
}

/// Writes the page, and prints the report and the path of the page.
pub(crate) fn show(
    evaluation: &Evaluation,
    directory: &Path,
    arguments: &Evaluate,
    colour: bool,
) -> Result<(), Failure> {
    let page = directory.join(PAGE);
    output::write(Some(&page), &render(evaluation, Format::Html, false))?;
    let format = if arguments.json {
        Format::Json
    } else {
        Format::Terminal
    };
    output::print(&render(evaluation, format, colour))?;
    output::eprint(&format!("\nPage: {}", absolute(&page)?.display()));
    Ok(())
}

/// Returns the conditions of `--loads`. `all` is idle and every load on the other and on the measured CPUs.
fn conditions(loads: &[Loads]) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for entry in loads {
        match entry {
            Loads::One(condition) => conditions.push(*condition),
            Loads::All => {
                conditions.push(Condition::IDLE);
                for location in [LoadLocation::Others, LoadLocation::Same] {
                    let loaded = LoadKind::ALL
                        .into_iter()
                        .filter(|load| *load != LoadKind::Idle);
                    conditions.extend(loaded.map(|load| Condition {
                        load,
                        location: Some(location),
                    }));
                }
            }
        }
    }
    conditions
}

/// Returns the default result directory, named after the time.
pub(crate) fn default_directory() -> PathBuf {
    PathBuf::from(format!(
        "rampart-results-{}",
        rampart_evaluate::file_name_of_now()
    ))
}

fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}: has no absolute path", path.display()))
}

/// Returns the exit code.
pub(crate) fn exit_code(evaluation: &Evaluation) -> ExitCode {
    let missed = evaluation.verdicts.iter().any(|verdict| {
        verdict.question == Question::Deadline
            && verdict.outcome != VerdictOutcome::Holds
            && evaluation.settings.deadline_is_named(&verdict.domain)
    });
    ExitCode::of_evaluation(is_complete(evaluation), !missed)
}
