// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes what the boot loader needs.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::tree::Live;
use super::{BootCommand, BootPlan, is_made, made_lines, plan};
use crate::changes::Changes;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::{HostError, StateDirectory};

/// How long a program that makes a configuration may take: `grub-mkconfig` looks for other systems
/// on every disk.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// What preparing a restart did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootReport {
    /// What was found and written.
    pub plan: BootPlan,
    /// Whether anything was written, by this call or another under the same boot that awaits the
    /// restart; if not, the next start has the arguments already.
    pub changed: bool,
}

/// Writes what this machine's boot loader needs to start the kernel with `arguments`, for example
/// `isolcpus=domain,2-3`, at the next restart and those after it. [`crate::release`] takes it back,
/// after any number of restarts. Nothing is written where the next start has them already. The lock
/// is held.
///
/// # Errors
/// As [`crate::plan_boot`]; and if a file cannot be written or the loader's own program fails, or
/// makes a configuration without the arguments. Then everything is as before, or in the journal for
/// `release`.
pub(crate) fn prepare(
    kernel: Arc<dyn Kernel>,
    state: &StateDirectory,
    arguments: &[String],
) -> Result<BootReport, HostError> {
    let plan = plan(&Live(&*kernel), arguments)?;
    let changed = !plan.is_as_wanted();
    if changed {
        let mut changes = Changes::outliving(Arc::clone(&kernel), state);
        if let Err(error) = write(&plan, &*kernel, &mut changes) {
            // What cannot be undone now stays in the journal; the first cause is what matters.
            let _ = changes.undo();
            return Err(error);
        }
    }
    Ok(BootReport { plan, changed })
}

fn write(plan: &BootPlan, kernel: &dyn Kernel, changes: &mut Changes) -> Result<(), HostError> {
    let mut intended = Vec::new();
    if let Some(command) = &plan.command {
        // First, so that it is undone last: from files that are as before.
        intended.push(Change::BootCommand {
            words: command.words.clone(),
            output: command.output.clone(),
            old: text_of(kernel, &command.output)?,
        });
    }
    intended.extend(plan.files.iter().map(|file| Change::BootFile {
        path: file.path.clone(),
        old: file.old.clone(),
        new: file.new.clone(),
        made_directories: missing_directories(kernel, &file.path),
        is_made: false,
    }));
    changes.prepare(intended)?;
    for file in &plan.files {
        changes.step()?;
        kernel
            .replace_file(&file.path, &file.new)
            .map_err(|cause| {
                HostError::file(
                    "write",
                    &file.path,
                    cause,
                    "make its file system writable and free some space there",
                )
            })?;
        changes.step()?;
        if kernel.read(&file.path).ok().as_deref() != Some(&file.new) {
            return Err(HostError::Request {
                location: file.path.display().to_string(),
                what: "it does not read back as it was written".to_owned(),
                present: "another text".to_owned(),
                needed: "the text that was written".to_owned(),
                fix: "look who else writes it".to_owned(),
            });
        }
    }
    match &plan.command {
        Some(command) => run(command, plan, kernel, changes),
        None => Ok(()),
    }
}

fn run(
    command: &BootCommand,
    plan: &BootPlan,
    kernel: &dyn Kernel,
    changes: &mut Changes,
) -> Result<(), HostError> {
    let old = text_of(kernel, &command.output)?;
    changes.step()?;
    run_command(kernel, &command.words).map_err(|what| HostError::Request {
        location: command.words.join(" "),
        what: "the boot loader's own program failed".to_owned(),
        present: what,
        needed: "a run without an error".to_owned(),
        fix: "run it by hand and remove the cause".to_owned(),
    })?;
    changes.step()?;
    let new = text_of(kernel, &command.output)?;
    if let Some(new) = new.filter(|new| old.as_ref() != Some(new)) {
        changes.prepare(vec![Change::BootFile {
            path: command.output.clone(),
            old,
            new,
            made_directories: Vec::new(),
            is_made: true,
        }])?;
    }
    if is_made(&Live(kernel), &command.output, &plan.arguments) {
        return Ok(());
    }
    Err(HostError::Request {
        location: command.output.display().to_string(),
        what: format!(
            "`{}` made it without the arguments of the plan",
            command.words.join(" ")
        ),
        present: made_lines(&Live(kernel), &command.output)
            .into_iter()
            .next()
            .unwrap_or_else(|| "no kernel command line".to_owned()),
        needed: plan.arguments.join(" "),
        fix: "look for a file that sets the kernel command line after Rampart's".to_owned(),
    })
}

fn text_of(kernel: &dyn Kernel, path: &Path) -> Result<Option<String>, HostError> {
    super::tree::BootTree::text(&Live(kernel), path)
}

/// The directories above a file that are not there, the innermost first.
fn missing_directories(kernel: &dyn Kernel, path: &Path) -> Vec<PathBuf> {
    path.ancestors()
        .skip(1)
        .take_while(|directory| !kernel.exists(directory))
        .map(Path::to_owned)
        .collect()
}

/// Runs a loader's program; what went wrong.
pub(super) fn run_command(kernel: &dyn Kernel, words: &[String]) -> Result<(), String> {
    let said = kernel
        .run(words, PATIENCE)
        .map_err(|error| format!("it cannot be started: {error}"))?;
    match said.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let last: Vec<&str> = said.errors.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            Err(format!("{status}: {}", last.join("; ")))
        }
        None => Err(format!("it did not end within {} s", PATIENCE.as_secs())),
    }
}
