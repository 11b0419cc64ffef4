// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart up` and `rampart down`: start and stop the programs of the active plan.

use std::time::Duration;

use clap::Args;
use rampart_host::StateDirectory;
use rampart_model::{ExitCode, Nanos, SupervisedDomain, SupervisedState};
use rampart_present::{ProgramOutcome, last_exit, supervised};
use rampart_supervise::{
    DownOutcome, Launcher, LoadedPlan, StandbyOutcome, SuperviseError, UpOutcome, down,
    keep_standby, remove_standby, supervise, supervised_all, up,
};

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
    let plan = LoadedPlan::required(&state)?;
    let named = !arguments.domains.is_empty();
    let names: Vec<String> = if named {
        arguments.domains.clone()
    } else {
        let domains = plan.planned.domains.iter();
        domains.map(|domain| domain.name.clone()).collect()
    };
    for name in &names {
        plan.domain(name)?;
    }
    let mut outcomes = Vec::new();
    for name in names {
        match up(&state, &plan, &name, &launcher) {
            Ok(UpOutcome::Nothing(_)) if !named => {}
            result => outcomes.push(up_outcome(name, result)),
        }
    }
    if !named {
        // After the cells, whose devices they leave alone.
        let created = |one: &ProgramOutcome| one.domain.is_some() && one.outcome != "is-up";
        let renewed = outcomes.iter().any(created);
        for standby in &plan.planned.standbys {
            let (outcome, text, failed) = match keep_standby(&state, standby, renewed) {
                Ok(StandbyOutcome::Kept(memory)) => ("kept", format!("memory {memory}"), false),
                Ok(StandbyOutcome::Already) => ("is-kept", String::new(), false),
                Err(error) => ("failed", error.to_string(), true),
            };
            outcomes.push(ProgramOutcome {
                name: standby.name.clone(),
                outcome,
                text,
                failed,
                domain: None,
            });
        }
    }
    if outcomes.is_empty() {
        output::eprint(
            "note: no domain of the plan has a program; fix: write run = [\"PROGRAM\"] into the plan and apply it again",
        );
    }
    finish(&outcomes, arguments.json)
}

fn up_outcome(name: String, result: Result<UpOutcome, SuperviseError>) -> ProgramOutcome {
    let outcome = |outcome, text: String, failed, domain| ProgramOutcome {
        name,
        outcome,
        text,
        failed,
        domain,
    };
    match result {
        Ok(UpOutcome::Running(domain)) => {
            outcome("running", supervised(&domain), false, Some(domain))
        }
        Ok(UpOutcome::Already(domain)) => {
            outcome("is-up", supervised(&domain), false, Some(domain))
        }
        Ok(UpOutcome::Ended(domain)) => {
            let failed = domain.last_exit.as_ref().is_none_or(|last| !last.success);
            outcome("ended", last_exit(&domain), failed, Some(domain))
        }
        Ok(UpOutcome::Restarting(domain)) => {
            outcome("is-started-again", last_exit(&domain), true, Some(domain))
        }
        Ok(UpOutcome::Nothing(finding)) => outcome("failed", finding.to_string(), true, None),
        Err(error) => outcome("failed", error.to_string(), true, None),
    }
}

fn foreground(
    state: &StateDirectory,
    name: &str,
    launcher: &Launcher,
) -> Result<ExitCode, Failure> {
    let stop = signals::stop_flag()?;
    let trouble = |error: &SuperviseError| {
        output::eprint(&format!(
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
        output::eprint(&format!("{}: {}{how}", record.name, record.state.word()));
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
    let mut outcomes = Vec::new();
    for name in names {
        let (outcome, text, failed) = match down(&state, &name, limit) {
            Ok(DownOutcome::Ended(how)) => ("ended", how, false),
            Ok(DownOutcome::WasDown) if !named => continue,
            Ok(DownOutcome::WasDown) => ("was-down", String::new(), false),
            Err(error) => ("failed", error.to_string(), true),
        };
        outcomes.push(ProgramOutcome {
            name,
            outcome,
            text,
            failed,
            domain: None,
        });
    }
    if !named && let Ok(Some(plan)) = LoadedPlan::load(&state) {
        for standby in plan.planned.standbys {
            let (outcome, text, failed) = match remove_standby(&standby.name) {
                Ok(true) => ("removed", String::new(), false),
                Ok(false) => continue,
                Err(error) => ("failed", error.to_string(), true),
            };
            outcomes.push(ProgramOutcome {
                name: standby.name,
                outcome,
                text,
                failed,
                domain: None,
            });
        }
    }
    if outcomes.is_empty() {
        output::eprint("No program is up.");
    }
    finish(&outcomes, arguments.json)
}

fn finish(outcomes: &[ProgramOutcome], json: bool) -> Result<ExitCode, Failure> {
    if json {
        output::print_json(&outcomes)?;
    } else if !outcomes.is_empty() {
        output::print_text(&rampart_present::program_outcomes(outcomes))?;
    }
    let failed = outcomes.iter().filter(|outcome| outcome.failed).count();
    Ok(ExitCode::of_parts(failed, outcomes.len()))
}
