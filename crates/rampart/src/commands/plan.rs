// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart plan`: proposes, checks and shows the plan of a machine.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use rampart_host::read_machine;
use rampart_model::{ExitCode, ResolvedPlan};
use rampart_plan::ProposalRequest;

use super::on::On;
use super::plan_argument::PlanArgument;
use super::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
`rampart schema plan` describes every field of a plan.

Examples:
  rampart plan propose --real-time-cpus 2 --guests 1 --out plan.toml
  rampart plan check plan.toml
  rampart plan show plan.toml --html plan.html";

const PROPOSE_EXAMPLES: &str = "\
Examples:
  rampart plan propose
  rampart plan propose --real-time-cpus 2 --guests 1 --out plan.toml
  rampart plan propose --on ssh:root@board --out board.toml
                                          the file is written here";

const CHECK_EXAMPLES: &str = "\
Exit codes:
  0  the plan fits this machine
  2  the file is not a plan
  4  an error refuses the plan on this machine

Examples:
  rampart plan check plan.toml
  rampart plan check plan.toml --on ssh:root@board
  rampart plan check plan.toml --machine recorded/";

const SHOW_EXAMPLES: &str = "\
Exit codes: those of `rampart plan check`.

Examples:
  rampart plan show plan.toml
  rampart plan show plan.toml --html plan.html";

/// Write, check and show a plan: the domains of a machine and their CPUs
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Action {
    /// Write a plan that fits this machine
    #[command(after_help = PROPOSE_EXAMPLES)]
    Propose(Propose),
    /// Check a plan against this machine
    #[command(after_help = CHECK_EXAMPLES)]
    Check(Check),
    /// Show the owner of each CPU, interrupt, cache and memory node
    #[command(after_help = SHOW_EXAMPLES)]
    Show(Show),
}

#[derive(Debug, Args)]
pub(crate) struct Propose {
    /// Real-time CPUs in total [default: one for each task and container, two
    /// for each guest]
    #[arg(long, value_name = "NUMBER")]
    pub(super) real_time_cpus: Option<u32>,

    /// Number of tasks; without any domain the plan has one task
    #[arg(long, alias = "task", value_name = "NUMBER", default_value_t = 0)]
    pub(super) tasks: u32,

    /// Number of containers
    #[arg(long, alias = "container", value_name = "NUMBER", default_value_t = 0)]
    pub(super) containers: u32,

    /// Number of KVM guests
    #[arg(long, alias = "guest", value_name = "NUMBER", default_value_t = 0)]
    pub(super) guests: u32,

    /// File to write; it must not exist [default: standard output]
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) out: Option<PathBuf>,

    #[command(flatten)]
    pub(super) recorded: RecordedMachine,

    #[command(flatten)]
    pub(super) on: On,
}

#[derive(Debug, Args)]
pub(crate) struct Check {
    #[command(flatten)]
    pub(super) plan: PlanArgument,

    /// Print the resolved plan with its findings as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) recorded: RecordedMachine,

    #[command(flatten)]
    pub(super) on: On,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    #[command(flatten)]
    pub(super) plan: PlanArgument,

    /// Write the picture as an HTML page into this file
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,

    /// Print the resolved plan as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) recorded: RecordedMachine,

    #[command(flatten)]
    pub(super) on: On,
}

impl PlanArguments {
    pub(super) fn on(&self) -> &On {
        match &self.action {
            Action::Propose(propose) => &propose.on,
            Action::Check(check) => &check.on,
            Action::Show(show) => &show.on,
        }
    }

    pub(super) fn recorded(&self) -> &RecordedMachine {
        match &self.action {
            Action::Propose(propose) => &propose.recorded,
            Action::Check(check) => &check.recorded,
            Action::Show(show) => &show.recorded,
        }
    }
}

pub(crate) fn run(arguments: &PlanArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        Action::Propose(propose) => write_proposal(propose),
        Action::Check(arguments) => check(arguments),
        Action::Show(arguments) => show(arguments),
    }
}

fn write_proposal(arguments: &Propose) -> Result<ExitCode, Failure> {
    let machine = read_machine(&arguments.recorded.root()?);
    let request = ProposalRequest {
        real_time_cpus: arguments.real_time_cpus,
        tasks: arguments.tasks,
        containers: arguments.containers,
        guests: arguments.guests,
    };
    let proposal = rampart_plan::propose(&machine, &request)?;
    let text = proposal.to_toml();
    let Some(file) = &arguments.out else {
        output::print(&text)?;
        return Ok(ExitCode::Success);
    };
    refuse_existing(file)?;
    write_plan(file, &text, "")?;
    Ok(ExitCode::Success)
}

/// Refuses to replace a file: users edit plans.
pub(super) fn refuse_existing(file: &Path) -> Result<(), Failure> {
    if !file.exists() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--out {}: the file exists; fix: name another file",
        file.display()
    )))
}

/// Writes a proposed plan. `options` follow the next command.
pub(super) fn write_plan(file: &Path, text: &str, options: &str) -> Result<(), Failure> {
    output::write(Some(file), text)?;
    output::eprint(&format!(
        "Wrote {}. Next: rampart plan check {}{options}",
        file.display(),
        file.display()
    ));
    Ok(())
}

fn outcome(resolved: &ResolvedPlan) -> ExitCode {
    ExitCode::of_check(!resolved.is_refused())
}

fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    let read = arguments.plan.read(&arguments.recorded.root()?)?;
    if arguments.json {
        output::print_json(&read.resolved)?;
        return Ok(outcome(&read.resolved));
    }
    let elements = rampart_present::plan_findings(&read.resolved, &read.file, |finding| {
        read.location(finding.domain.as_deref())
    });
    output::print_text(&elements)?;
    Ok(outcome(&read.resolved))
}

/// Writes the picture of a plan as a page.
pub(super) fn write_page(
    page: &Path,
    resolved: &ResolvedPlan,
    plan: &PlanArgument,
) -> Result<(), Failure> {
    let title = format!("Plan {}", plan.file().display());
    output::write(Some(page), &rampart_present::plan_page(resolved, &title))?;
    output::eprint(&format!("Wrote {}.", page.display()));
    Ok(())
}

fn show(arguments: &Show) -> Result<ExitCode, Failure> {
    let read = arguments.plan.read(&arguments.recorded.root()?)?;
    if let Some(page) = &arguments.html {
        write_page(page, &read.resolved, &arguments.plan)?;
    }
    if arguments.json {
        output::print_json(&read.resolved)?;
    } else if arguments.html.is_none() {
        output::print_elements(&rampart_present::plan_picture(&read.resolved), false)?;
    }
    Ok(outcome(&read.resolved))
}
