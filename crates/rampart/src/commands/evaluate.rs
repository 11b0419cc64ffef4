// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart evaluate`: measures domains under loads and disturbances, and judges them.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rampart_evaluate::{
    Context, DisturbanceRequest, PlanSwitch, Request, ResultStream, evaluate, is_complete,
};
use rampart_model::{
    Condition, Evaluation, ExitCode, LoadKind, LoadLocation, Question, VerdictOutcome,
};
use rampart_supervise::PlanFile;

use super::evaluate_plan::{Switch, selections};
use super::report::render;
use crate::arguments::{DisturbArgument, Evaluate, Format, Loads};
use crate::failure::Failure;
use crate::{output, progress, signals};

/// File name of the page in the result directory.
const PAGE: &str = "report.html";

pub(crate) fn run(arguments: &Evaluate, colour: bool) -> Result<ExitCode, Failure> {
    if !arguments.on.is_local() {
        return super::evaluate_on::run(arguments, colour);
    }
    super::evaluate_on::refuse_crash_here(arguments)?;
    let read = arguments.plan.read()?;
    let request = request(arguments, read.as_ref())?;
    let switch = read.as_ref().map(Switch);
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
        switch: switch.as_ref().map(|switch| switch as &dyn PlanSwitch),
        command: std::env::args().collect(),
        tool_version: super::VERSION,
    };
    let stop = signals::stop_flag()?;
    let mut observer = progress::EvaluationProgress::new(progress::style(arguments.show_progress));
    let evaluation = evaluate(&request, &context, &mut observer, &stop)?;
    observer.clear();
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
