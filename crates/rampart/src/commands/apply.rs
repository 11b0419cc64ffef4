// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart apply`: applies a plan to this machine until `rampart release`.

use std::path::Path;

use clap::Args;
use rampart_host::{BootPlan, StateDirectory};
use rampart_model::{ChangeList, ChangeStep, ExitCode, StepAction};
use rampart_present::BootFiles;
use rampart_supervise::PlanFile;
use serde::Serialize;

use super::VERSION;
use super::on::On;
use super::plan_argument::PlanArgument;
use super::recorded::RecordedMachine;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Rampart saves every old value to disk before it changes it, and reads every new
value back. If the kernel refuses a step, all steps before it are undone. The
plan stays active when the command ends, until `rampart release`. With --on it
is active on that machine; with --on sim on that of `rampart sim up`.

Exit codes:
  0  the plan is active
  2  the file is not a plan
  4  the plan does not fit, another plan is active, or a step was refused
  5  the plan is active, but it expects settings that Rampart does not change

Examples:
  rampart apply plan.toml --dry-run   list the changes and what they disturb
  rampart apply plan.toml             apply them
  rampart apply plan.toml --boot      first change the kernel command line;
                                      after the restart: apply plan.toml
  rampart apply plan.toml --on ssh:root@board
                                      a plan from here on another machine";

/// Apply a plan to this machine until `rampart release`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApplyArguments {
    #[command(flatten)]
    pub(super) plan: PlanArgument,

    /// Only list the changes
    #[arg(long)]
    pub(super) dry_run: bool,

    /// First write the kernel command line into the boot loader's files;
    /// run `apply` again after the restart. With --dry-run: list the files
    #[arg(long)]
    pub(super) boot: bool,

    /// Print the changes or the active plan as JSON, with --boot also the files
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) recorded: RecordedMachine,

    #[command(flatten)]
    pub(super) on: On,
}

pub(crate) fn run(arguments: &ApplyArguments, colour: bool) -> Result<ExitCode, Failure> {
    if arguments.recorded.is_given() && !arguments.dry_run {
        return Err(Failure::usage(
            "--machine: a recorded machine cannot be changed; fix: add --dry-run",
        ));
    }
    let state = StateDirectory::standard();
    if !arguments.dry_run {
        match arguments.boot {
            true => rampart_host::check_before_restart(&state)?,
            false => rampart_host::check_that_no_plan_is_active(&state)?,
        }
    }
    let root = arguments.recorded.root()?;
    let plan = arguments.plan.read(&root)?;
    plan.check_fit()?;
    let changes = plan.change_list(&root, VERSION);
    if arguments.boot {
        plan.check_restart()?;
    }
    if arguments.dry_run {
        let boot = match arguments.boot {
            true => Some(rampart_host::plan_boot(&root, &changes.boot_arguments)?),
            false => None,
        };
        if arguments.json {
            let document = changes;
            output::print_json(&WithBoot { document, boot })?;
        } else {
            output::print_elements(&rampart_present::changes(&changes), colour)?;
            if let Some(boot) = &boot {
                output::print_text(&with_files(boot, rampart_present::boot_files))?;
            }
        }
        return Ok(ExitCode::Success);
    }
    if arguments.boot && prepare_restart(&plan, &changes, &state, arguments.json)? {
        return Ok(ExitCode::Success);
    }
    let active = plan.apply(&changes, &state, VERSION, &mut print_step)?;
    if arguments.json {
        output::print_json(&active)?;
    } else {
        output::print_text(&rampart_present::applied(&active))?;
    }
    let expects_others = changes
        .steps
        .iter()
        .any(|step| step.action == StepAction::Expect);
    Ok(ExitCode::of_work(!expects_others))
}

/// Prints a step that is about to be applied.
pub(super) fn print_step(step: &ChangeStep) {
    output::eprint(&rampart_present::applied_step(step));
}

/// A document, with the files of the boot loader beside it.
#[derive(Debug, Serialize)]
struct WithBoot<T> {
    #[serde(flatten)]
    document: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<BootPlan>,
}

/// Calls `show` with the files of the boot loader.
fn with_files<T>(boot: &BootPlan, show: impl FnOnce(&BootFiles<'_>) -> T) -> T {
    let files: Vec<&Path> = boot.files.iter().map(|file| file.path.as_path()).collect();
    show(&BootFiles {
        arguments: &boot.arguments,
        files: &files,
        command: boot
            .command
            .as_ref()
            .map(|command| command.words.as_slice()),
    })
}

/// Writes the boot loader's files. Returns whether the machine has to be restarted.
fn prepare_restart(
    plan: &PlanFile,
    changes: &ChangeList,
    state: &StateDirectory,
    json: bool,
) -> Result<bool, Failure> {
    let report = rampart_host::prepare_restart(state, &plan.application(changes, VERSION))?;
    if !report.changed {
        output::eprint("The kernel command line already has the plan's arguments.");
        return Ok(false);
    }
    if json {
        let document = rampart_host::active_plan(state)?;
        let boot = Some(report.plan);
        output::print_json(&WithBoot { document, boot })?;
        return Ok(true);
    }
    let text = with_files(&report.plan, |files| {
        let arguments = &changes.boot_arguments;
        rampart_present::boot_files_written(
            &BootFiles {
                arguments,
                ..*files
            },
            &plan.file,
        )
    });
    output::print_text(&text)?;
    Ok(true)
}
