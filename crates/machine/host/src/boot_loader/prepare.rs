// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the boot loader's files and generates its configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::tree::Live;
use super::{BootCommand, BootPlan, any_entry_has, generated_lines, plan};
use crate::changes::Changes;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::{HostError, StateDirectory};

/// Longest time to generate a configuration: `grub-mkconfig` searches for other systems on every disk.
pub(super) const GENERATE_LIMIT: Duration = Duration::from_secs(300);

/// The result of preparing a restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootReport {
    /// The boot loader, and the changes made.
    pub plan: BootPlan,
    /// Whether files were written, by this call or another in this boot that awaits the restart; if
    /// not, the next boot has the arguments already.
    pub changed: bool,
}

/// Changes this machine's boot loader files so that the next boots start the kernel with `arguments`,
/// for example `isolcpus=domain,2-3`. [`crate::release`] undoes it, also after restarts. Writes
/// nothing if the next boot has the arguments already. The caller holds the lock.
///
/// # Errors
/// As [`crate::plan_boot`]; and if a file cannot be written, or the loader's program fails or
/// generates a configuration without the arguments. Then every change is undone, or in the journal
/// for `release`.
pub(crate) fn prepare(
    kernel: Arc<dyn Kernel>,
    state: &StateDirectory,
    arguments: &[String],
) -> Result<BootReport, HostError> {
    let plan = plan(&Live(&*kernel), arguments)?;
    let changed = !plan.is_as_wanted();
    if changed {
        let mut changes = Changes::across_restarts(Arc::clone(&kernel), state);
        if let Err(error) = write(&plan, &*kernel, &mut changes) {
            // Changes that cannot be undone stay in the journal; report the first error.
            let _ = changes.undo();
            return Err(error);
        }
    }
    Ok(BootReport { plan, changed })
}

fn write(plan: &BootPlan, kernel: &dyn Kernel, changes: &mut Changes) -> Result<(), HostError> {
    let mut intended = Vec::new();
    if let Some(command) = &plan.command {
        // First, so that it is undone last, when its input files are restored.
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
        created_directories: missing_directories(kernel, &file.path),
        is_generated: false,
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
                    "make its file system writable, with free space",
                )
            })?;
        changes.step()?;
        if kernel.read(&file.path).ok().as_deref() != Some(&file.new) {
            return Err(HostError::Request {
                location: file.path.display().to_string(),
                what: "the file has another content after writing".to_owned(),
                found: "another text".to_owned(),
                expected: "the text that was written".to_owned(),
                fix: format!(
                    "find the process that writes it: fuser -v {}",
                    file.path.display()
                ),
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
        what: "the boot loader's program failed".to_owned(),
        found: what,
        expected: "exit status 0".to_owned(),
        fix: "run this command and remove the cause of its error".to_owned(),
    })?;
    changes.step()?;
    let new = text_of(kernel, &command.output)?;
    if let Some(new) = new.filter(|new| old.as_ref() != Some(new)) {
        changes.prepare(vec![Change::BootFile {
            path: command.output.clone(),
            old,
            new,
            created_directories: Vec::new(),
            is_generated: true,
        }])?;
    }
    if any_entry_has(&Live(kernel), &command.output, &plan.arguments) {
        return Ok(());
    }
    Err(HostError::Request {
        location: command.output.display().to_string(),
        what: format!(
            "`{}` generated it without the arguments of the plan",
            command.words.join(" ")
        ),
        found: generated_lines(&Live(kernel), &command.output)
            .into_iter()
            .next()
            .unwrap_or_else(|| "no kernel command line".to_owned()),
        expected: plan.arguments.join(" "),
        fix: "find the file that sets the kernel command line after Rampart's".to_owned(),
    })
}

fn text_of(kernel: &dyn Kernel, path: &Path) -> Result<Option<String>, HostError> {
    super::tree::BootTree::text(&Live(kernel), path)
}

/// Returns the missing directories above a file, the innermost first.
fn missing_directories(kernel: &dyn Kernel, path: &Path) -> Vec<PathBuf> {
    path.ancestors()
        .skip(1)
        .take_while(|directory| !kernel.exists(directory))
        .map(Path::to_owned)
        .collect()
}

/// Runs a loader's program. Returns the reason if it fails.
pub(super) fn run_command(kernel: &dyn Kernel, words: &[String]) -> Result<(), String> {
    let captured = kernel
        .run(words, GENERATE_LIMIT)
        .map_err(|error| format!("cannot start it: {error}"))?;
    match captured.status {
        Some(status) if status.success() => Ok(()),
        Some(status) => {
            let last: Vec<&str> = captured.errors.lines().rev().take(3).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            Err(format!("{status}: {}", last.join("; ")))
        }
        None => Err(format!(
            "it did not end within {} s",
            GENERATE_LIMIT.as_secs()
        )),
    }
}
