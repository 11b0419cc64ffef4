// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart plan`: propose, check and show the plan of a machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use rampart_host::read_machine;
use rampart_model::{ExitCode, PlanFinding, ResolvedPlan, Severity, plural};
use rampart_plan::{PictureOptions, Wish};
use rampart_supervise::PlanFile;

use crate::commands::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  rampart plan propose --real-time-cpus 2 --guests 1 --out plan.toml
  rampart plan check plan.toml
  rampart plan show plan.toml --html plan.html

`check` and `show` end with 4 where a finding refuses the plan on this machine, and with 2 where the
file is no plan. `rampart schema plan` describes every field.";

/// Write, check and show the plan of a machine: who owns which CPU
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PlanArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Write a plan that fits this machine
    Propose(Propose),
    /// Say what a plan breaks on this machine
    Check(Check),
    /// Show who owns each CPU, interrupt, cache and memory node
    Show(Show),
}

#[derive(Debug, Args)]
struct Propose {
    /// Real-time CPUs in all; without it one for each task and container, two for each guest
    #[arg(long, value_name = "NUMBER")]
    real_time_cpus: Option<u32>,

    /// Tasks; without any domain it is one
    #[arg(long, alias = "task", value_name = "NUMBER", default_value_t = 0)]
    tasks: u32,

    /// Containers
    #[arg(long, alias = "container", value_name = "NUMBER", default_value_t = 0)]
    containers: u32,

    /// KVM guests
    #[arg(long, alias = "guest", value_name = "NUMBER", default_value_t = 0)]
    guests: u32,

    /// Write to this file instead of standard output; a file that is there stays as it is
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    #[command(flatten)]
    recorded: RecordedMachine,
}

#[derive(Debug, Args)]
struct Check {
    /// The plan
    plan: PathBuf,

    /// Print the resolved plan with its findings as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recorded: RecordedMachine,
}

#[derive(Debug, Args)]
struct Show {
    /// The plan
    plan: PathBuf,

    /// Write the picture as one page into this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Print the resolved plan as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recorded: RecordedMachine,
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
    let wish = Wish {
        real_time_cpus: arguments.real_time_cpus,
        tasks: arguments.tasks,
        containers: arguments.containers,
        guests: arguments.guests,
    };
    let proposal = rampart_plan::propose(&machine, &wish)?;
    let text = proposal.to_toml();
    let Some(file) = &arguments.out else {
        output::print(&text)?;
        return Ok(ExitCode::Success);
    };
    // A plan is edited by hand; no command may take that work away.
    if file.exists() {
        return Err(Failure::usage(format!(
            "--out {}: there is a file already; name another, or remove it",
            file.display()
        )));
    }
    output::write(Some(file), &text)?;
    output::say(&format!(
        "rampart: the plan is in {}; next: rampart plan check {}",
        file.display(),
        file.display()
    ));
    Ok(ExitCode::Success)
}

fn outcome(resolved: &ResolvedPlan) -> ExitCode {
    ExitCode::of_check(!resolved.is_refused())
}

fn check(arguments: &Check) -> Result<ExitCode, Failure> {
    let read = PlanFile::read(&arguments.plan, &arguments.recorded.root()?)?;
    let findings = &read.resolved.findings;
    if arguments.json {
        output::print_json(&read.resolved)?;
        return Ok(outcome(&read.resolved));
    }
    let file = arguments.plan.display();
    let mut text = String::new();
    for finding in findings {
        let location = read.location(finding.domain.as_deref());
        text.push_str(&rampart_plan::finding_line(&location, finding));
    }
    let count = |severity: Severity| {
        let open = |finding: &&PlanFinding| {
            finding.finding.severity == severity && finding.waived.is_none()
        };
        findings.iter().filter(open).count()
    };
    let waived = findings
        .iter()
        .filter(|finding| finding.waived.is_some())
        .count();
    let verdict = if read.resolved.is_refused() {
        "refused"
    } else {
        "fits this machine"
    };
    text.push_str(&format!(
        "{file}: {verdict}; {} refusing, {}, {}, {waived} waived\n",
        count(Severity::Error),
        plural(count(Severity::Warning), "warning"),
        plural(count(Severity::Note), "note"),
    ));
    output::print(&text)?;
    Ok(outcome(&read.resolved))
}

fn show(arguments: &Show) -> Result<ExitCode, Failure> {
    let read = PlanFile::read(&arguments.plan, &arguments.recorded.root()?)?;
    if let Some(page) = &arguments.html {
        let title = format!("Plan {}", arguments.plan.display());
        output::write(Some(page), &rampart_plan::html(&read.resolved, &title))?;
        output::say(&format!("rampart: the page is {}", page.display()));
    }
    if arguments.json {
        output::print_json(&read.resolved)?;
    } else if arguments.html.is_none() {
        let width = super::report::terminal_width();
        output::print(&rampart_plan::terminal(
            &read.resolved,
            PictureOptions { width },
        ))?;
    }
    Ok(outcome(&read.resolved))
}
