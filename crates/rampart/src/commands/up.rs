// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart up` and `rampart down`: start and stop the programs of the active plan.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use rampart_host::StateDirectory;
use rampart_model::{ExitCode, Nanos, SupervisedDomain, SupervisedState};
use rampart_supervise::{
    DownOutcome, Launcher, LoadedPlan, SuperviseError, UpOutcome, down, supervise, supervised_all,
    up,
};
use serde_json::{Value, json};

use super::VERSION;
use crate::failure::Failure;
use crate::{output, signals};

const UP_EXAMPLES: &str = "\
Each program has a supervisor, which runs on the housekeeping CPUs, restarts
the program as `restart` in the plan requests (after 100 ms, doubling up to
30 s, again from 100 ms after a minute; at most 10 times in 10 minutes) and
places new threads as `threads` requests. It writes domains/NAME.json and the
output of the program NAME.log (rotated at 4 MiB) in the state directory.

Exit codes:
  0  every program runs in its domain
  4  none does
  5  some do not

Examples:
  rampart up                       every program of the plan
  rampart up press-control vision  the programs of these domains
  rampart up --foreground vision   as the supervisor, for a service manager";

/// Start and supervise the programs of the active plan
#[derive(Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub(crate) struct UpArguments {
    /// Domains [default: every domain with a program]
    domains: Vec<String>,

    /// Supervise one domain until its program ends or SIGTERM arrives
    #[arg(long)]
    foreground: bool,

    /// Print the outcome as JSON
    #[arg(long, conflicts_with = "foreground")]
    json: bool,
}

const DOWN_EXAMPLES: &str = "\
A task gets SIGTERM, a container the stop command of its engine, a guest an ACPI
power-down. A program that has not ended in time is killed.

Exit codes:
  0  no program runs
  4  none could be stopped
  5  some could not be stopped

Examples:
  rampart down                      every program that `up` started
  rampart down vision --within 30s  one domain, with more time";

/// Stop the programs that `up` started
#[derive(Debug, Args)]
#[command(after_help = DOWN_EXAMPLES)]
pub(crate) struct DownArguments {
    /// Domains [default: every domain that is up]
    domains: Vec<String>,

    /// Time that each program has to end before it is killed
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    within: Nanos,

    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

fn launcher() -> Result<Launcher, Failure> {
    Ok(Launcher {
        program: std::env::current_exe()?,
        version: VERSION.to_owned(),
    })
}

/// The outcome for one domain.
struct Row {
    name: String,
    word: &'static str,
    text: String,
    failed: bool,
    record: Option<SupervisedDomain>,
}

pub(crate) fn run_up(arguments: &UpArguments) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    let launcher = launcher()?;
    if arguments.foreground {
        let [name] = arguments.domains.as_slice() else {
            return Err(Failure::usage(
                "up --foreground: needs exactly one domain; fix: rampart up --foreground DOMAIN",
            ));
        };
        return foreground(&state, name, &launcher);
    }
    let standing = LoadedPlan::required(&state)?;
    let named = !arguments.domains.is_empty();
    let names: Vec<String> = if named {
        arguments.domains.clone()
    } else {
        let domains = standing.planned.domains.iter();
        domains.map(|domain| domain.name.clone()).collect()
    };
    for name in &names {
        standing.domain(name)?;
    }
    let mut rows = Vec::new();
    for name in names {
        match up(&state, &standing, &name, &launcher) {
            Ok(UpOutcome::Nothing(_)) if !named => {}
            answer => rows.push(upped(name, answer)),
        }
    }
    if rows.is_empty() {
        output::say(
            "note: no domain of the plan has a program; fix: write run = [\"PROGRAM\"] into the plan and apply it again",
        );
    }
    finish(&rows, arguments.json)
}

fn upped(name: String, answer: Result<UpOutcome, SuperviseError>) -> Row {
    let row = |word, text: String, failed, record| Row {
        name: name.clone(),
        word,
        text,
        failed,
        record,
    };
    match answer {
        Ok(UpOutcome::Running(record)) => row("running", told(&record), false, Some(record)),
        Ok(UpOutcome::Already(record)) => row("is up", told(&record), false, Some(record)),
        Ok(UpOutcome::Ended(record)) => {
            let last = record.last_exit.as_ref();
            let failed = last.is_none_or(|last| !last.success);
            let how = last.map_or("", |last| last.status.as_str());
            row(
                "ended",
                format!("{how}; log {}", record.log),
                failed,
                Some(record.clone()),
            )
        }
        Ok(UpOutcome::Restarting(record)) => {
            let last = record.last_exit.as_ref();
            let how = last.map_or("", |last| last.status.as_str());
            let text = format!("it ended with {how}; log {}", record.log);
            row("is started again", text, true, Some(record.clone()))
        }
        Ok(UpOutcome::Nothing(finding)) => row("failed", finding.to_string(), true, None),
        Err(error) => row("failed", error.to_string(), true, None),
    }
}

fn told(record: &SupervisedDomain) -> String {
    let process = record.program.map_or_else(
        || "no process".to_owned(),
        |program| format!("process {}", program.process),
    );
    let mut text = format!(
        "{process}, supervisor {}, log {}",
        record.supervisor.process, record.log
    );
    for finding in &record.findings {
        let _ = write!(text, "\n          {finding}");
    }
    text
}

fn foreground(
    state: &StateDirectory,
    name: &str,
    launcher: &Launcher,
) -> Result<ExitCode, Failure> {
    let stop = signals::stop_flag()?;
    let trouble = |error: &SuperviseError| {
        output::say(&format!(
            "warning: {name}: {error}; the program is supervised anyway"
        ));
    };
    let change = |record: &SupervisedDomain| {
        let last = record.last_exit.as_ref().filter(|_| {
            !matches!(
                record.state,
                SupervisedState::Starting | SupervisedState::Running
            )
        });
        let how = last.map_or_else(String::new, |last| format!(": {}", last.status));
        output::say(&format!("{}: {}{how}", record.name, record.state.word()));
    };
    let end = supervise(state, name, launcher, &stop, change, trouble)?;
    Ok(ExitCode::of_work(end != SupervisedState::Failed))
}

pub(crate) fn run_down(arguments: &DownArguments) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    let known: Vec<String> = supervised_all(&state)?
        .into_iter()
        .map(|record| record.name)
        .collect();
    let named = !arguments.domains.is_empty();
    let names = if named {
        // A domain of the plan that was never up is down.
        for name in &arguments.domains {
            if !known.contains(name) {
                LoadedPlan::required(&state)?.domain(name)?;
            }
        }
        arguments.domains.clone()
    } else {
        known
    };
    let limit = Duration::from_nanos(arguments.within.0);
    let mut rows = Vec::new();
    for name in names {
        let (word, text, failed) = match down(&state, &name, limit) {
            Ok(DownOutcome::Ended(how)) => ("ended", how, false),
            Ok(DownOutcome::WasDown) if !named => continue,
            Ok(DownOutcome::WasDown) => ("was down", String::new(), false),
            Err(error) => ("failed", error.to_string(), true),
        };
        rows.push(Row {
            name,
            word,
            text,
            failed,
            record: None,
        });
    }
    if rows.is_empty() {
        output::say("No program is up.");
    }
    finish(&rows, arguments.json)
}

fn finish(rows: &[Row], json: bool) -> Result<ExitCode, Failure> {
    if json {
        let all: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name,
                    "outcome": row.word.replace(' ', "-"),
                    "text": row.text,
                    "domain": row.record,
                })
            })
            .collect();
        output::print_json(&all)?;
    } else if !rows.is_empty() {
        let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let mut text = String::new();
        for row in rows {
            let line = format!("{:width$}  {:8}  {}", row.name, row.word, row.text);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        output::print(&text)?;
    }
    let failed = rows.iter().filter(|row| row.failed).count();
    Ok(ExitCode::of_parts(failed, rows.len()))
}
