// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart apply`: a plan becomes what this machine is, until `rampart release`.

use std::path::PathBuf;

use clap::Args;
use rampart_host::{
    Application, BootPlan, HostError, MachineRoot, StateDirectory, read_knob_values,
};
use rampart_model::{
    ActivePlan, ChangeList, ChangeStep, ExitCode, PlanFinding, Reboot, StepAction,
};
use rampart_rules::{Isolation, Subject, changes_text};
use serde::Serialize;

use super::VERSION;
use super::plan::{ReadPlan, read_plan};
use super::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  rampart apply plan.toml --dry-run   what would change, in order, and what it disturbs
  rampart apply plan.toml             change it; `rampart release` takes it back exactly
  rampart apply plan.toml --boot      first the kernel command line; after the restart: rampart apply plan.toml

Every old value is on the disk before it is changed, and every new one is read back. The first that the
kernel does not grant ends it, and all is taken back. Nothing is undone when the command ends, nor by
any other command than `release`.
Exit codes: 0, the plan stands; 2, the file is no plan; 4, the plan does not fit, another one stands, or
a step is not granted; 5, it stands, and something that it expects of others is not so.";

/// Make a plan real on this machine, until `rampart release`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApplyArguments {
    /// The plan
    plan: PathBuf,

    /// Only say what would change
    #[arg(long)]
    dry_run: bool,

    /// Write what needs a restart into the boot loader's files; `apply` after the restart goes on. With
    /// --dry-run: show those files
    #[arg(long)]
    boot: bool,

    /// Print the changes, or what stands, as JSON; with --boot the boot loader's files beside it
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    recorded: RecordedMachine,
}

pub(crate) fn run(arguments: &ApplyArguments) -> Result<ExitCode, Failure> {
    if arguments.recorded.is_given() && !arguments.dry_run {
        return Err(Failure::usage(
            "--machine: a recorded machine cannot be changed; add --dry-run, or leave --machine out",
        ));
    }
    if !arguments.dry_run {
        let state = StateDirectory::standard();
        match arguments.boot {
            true => rampart_host::check_before_restart(&state),
            false => rampart_host::check_that_no_plan_is_active(&state),
        }
        .map_err(refusal)?;
    }
    let root = arguments.recorded.root()?;
    let read = read_plan(&arguments.plan, &root)?;
    refuse(&read)?;
    let changes = change_list(&root, &read);
    if arguments.boot {
        refuse_unasked_restart(&read)?;
    }
    if arguments.dry_run {
        let boot = match arguments.boot {
            true => Some(rampart_host::plan_boot(&root, &changes.boot_arguments).map_err(refusal)?),
            false => None,
        };
        if arguments.json {
            let document = changes;
            print_document(&WithBoot { document, boot })?;
        } else {
            let mut text = changes_text(&changes);
            if let Some(boot) = &boot {
                text.push_str(&boot_text(boot));
            }
            output::print(&text)?;
        }
        return Ok(ExitCode::Success);
    }
    if arguments.boot && prepare_restart(&read, &changes, arguments.json)? {
        return Ok(ExitCode::Success);
    }
    let standing = apply(&read, &changes)?;
    if arguments.json {
        print_document(&standing)?;
    } else {
        output::print(&active_text(&standing))?;
    }
    let expected = changes
        .steps
        .iter()
        .any(|step| step.action == StepAction::Expect);
    Ok(if expected {
        ExitCode::Partial
    } else {
        ExitCode::Success
    })
}

/// Whether a restart may be needed is the plan's to say.
fn refuse_unasked_restart(read: &ReadPlan) -> Result<(), Failure> {
    if read.resolved.boot.reboot == Reboot::Plan {
        return Ok(());
    }
    Err(Failure::new(
        ExitCode::PreconditionMissing,
        anyhow::anyhow!(
            "{}: --boot changes the kernel command line, and the plan allows no restart (is reboot = \"never\", \
             needed \"plan\"); fix: write reboot = \"plan\" under [boot]",
            read.file
        ),
    ))
}

fn refusal(error: HostError) -> Failure {
    Failure::new(ExitCode::PreconditionMissing, error)
}

/// A document, and what the boot loader needs beside it.
#[derive(Debug, Serialize)]
struct WithBoot<T> {
    #[serde(flatten)]
    document: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<BootPlan>,
}

fn print_document(document: &impl Serialize) -> Result<(), Failure> {
    output::print(&serde_json::to_string_pretty(document)?)?;
    Ok(())
}

/// The files that the boot loader needs.
fn boot_text(plan: &BootPlan) -> String {
    let mut text = format!("Kernel command line: {}\n", plan.arguments.join(" "));
    for file in &plan.files {
        text.push_str(&format!("  written: {}\n", file.path.display()));
    }
    if let Some(command) = &plan.command {
        text.push_str(&format!("  then run: {}\n", command.words.join(" ")));
    }
    if plan.is_as_wanted() {
        text.push_str("  it is so already\n");
    }
    text
}

/// Writes what the boot loader needs; answers whether the machine has to be restarted.
fn prepare_restart(read: &ReadPlan, changes: &ChangeList, json: bool) -> Result<bool, Failure> {
    let state = StateDirectory::standard();
    let report =
        rampart_host::prepare_restart(&state, &application(read, changes)).map_err(refusal)?;
    if !report.changed {
        output::say("rampart: the kernel command line is as the plan wants it");
        return Ok(false);
    }
    if json {
        let document = rampart_host::active_plan(&state).map_err(refusal)?;
        let boot = Some(report.plan);
        print_document(&WithBoot { document, boot })?;
        return Ok(true);
    }
    let mut text = String::new();
    for file in &report.plan.files {
        text.push_str(&format!("written: {}\n", file.path.display()));
    }
    text.push_str(&format!(
        "The next start has: {}\nnext: restart the machine, then rampart apply {}; rampart release takes it back\n",
        changes.boot_arguments.join(" "),
        read.file
    ));
    output::print(&text)?;
    Ok(true)
}

/// A plan that does not fit is not applied; each reason is told.
pub(crate) fn refuse(read: &ReadPlan) -> Result<(), Failure> {
    if !read.resolved.is_refused() {
        return Ok(());
    }
    let refusing: Vec<&PlanFinding> = read
        .resolved
        .findings
        .iter()
        .filter(|finding| finding.refuses())
        .collect();
    let lines: String = refusing
        .iter()
        .map(|finding| rampart_plan::finding_line(&read.place(finding.domain.as_deref()), finding))
        .collect();
    Err(Failure::new(
        ExitCode::PreconditionMissing,
        anyhow::anyhow!(
            "{}: the plan does not fit this machine\n{}",
            read.file,
            lines.trim_end()
        ),
    ))
}

/// What applying a plan changes on a machine.
pub(crate) fn change_list(root: &MachineRoot, read: &ReadPlan) -> ChangeList {
    let isolation = Isolation::of(&read.resolved);
    let readings = read_knob_values(root, &read.resolved.real_time);
    let subject = Subject {
        machine: &read.machine,
        readings: &readings,
    };
    rampart_rules::change_list(&read.resolved, subject, &isolation, VERSION)
}

/// Applies it, with a line on standard error for each step.
pub(crate) fn apply(read: &ReadPlan, changes: &ChangeList) -> Result<ActivePlan, Failure> {
    let application = application(read, changes);
    let mut progress = |step: &ChangeStep| {
        output::say(&format!("rampart: {}: {}", step.name, step.wanted));
    };
    rampart_host::apply(&StateDirectory::standard(), &application, &mut progress).map_err(refusal)
}

/// What applying it takes.
pub(crate) fn application<'a>(read: &'a ReadPlan, changes: &'a ChangeList) -> Application<'a> {
    Application {
        tool_version: VERSION,
        file: &read.path,
        text: &read.text,
        resolved: &read.resolved,
        changes,
    }
}

fn active_text(standing: &ActivePlan) -> String {
    let mut text = String::new();
    for domain in &standing.domains {
        text.push_str(&format!(
            "{}: {}, {}\n",
            domain.name,
            domain.cpus.named(),
            domain.isolation
        ));
    }
    for finding in &standing.findings {
        text.push_str(&format!("{finding}\n"));
    }
    let count = |action: StepAction| {
        standing
            .changes
            .steps
            .iter()
            .filter(|step| step.action == action)
            .count()
    };
    text.push_str(&format!(
        "{} stands: changed {}, as wanted before {}, left alone {}, waiting for a restart {}, not Rampart's to change {} (rampart apply {} --dry-run names them)\n",
        standing.file,
        count(StepAction::Apply),
        count(StepAction::AsWanted),
        count(StepAction::Skip),
        count(StepAction::AtRestart),
        count(StepAction::ByHand),
        standing.file,
    ));
    text.push_str("next: rampart status; rampart release takes it back\n");
    text
}
