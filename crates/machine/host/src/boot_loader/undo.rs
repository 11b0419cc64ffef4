// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes back what was written for the boot loader.

use std::io;
use std::path::{Path, PathBuf};

use rampart_model::{Finding, Severity};

use super::prepare::run_command;
use crate::kernel::Kernel;
use crate::undo::Undone;

const BY_HAND: &str =
    "take the arguments of the plan out of it by hand, where they are still in it";

/// A file gets its old text again, if it still has Rampart's. One that a program made and somebody
/// made again is not told of: the program is run again.
pub(crate) fn file(
    kernel: &dyn Kernel,
    path: &Path,
    old: Option<&str>,
    new: &str,
    made_directories: &[PathBuf],
    is_made: bool,
    undone: &mut Undone,
) -> io::Result<()> {
    let present = match kernel.read(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            undone.failed(path, format!("cannot be read: {error}"), BY_HAND);
            return Ok(());
        }
    };
    if let Err(error) = kernel.remove_temporary_file(path) {
        undone.failed(
            path,
            format!("a part of it cannot be removed: {error}"),
            BY_HAND,
        );
        return Ok(());
    }
    if present.as_deref() != old {
        if present.as_deref() != Some(new) {
            if !is_made {
                undone.left.push(
                    Finding::new(
                        Severity::Warning,
                        path.display().to_string(),
                        "someone else changed it after Rampart wrote it, so it was left",
                    )
                    .fix(BY_HAND),
                );
            }
            return Ok(());
        }
        let answer = match old {
            Some(old) => kernel.replace_file(path, old),
            None => kernel.remove_file(path),
        };
        kernel.step()?;
        match (answer, old) {
            (Ok(()), Some(_)) => undone.restored(path, "its text again"),
            (Ok(()), None) => undone.restored(path, "removed"),
            (Err(error), _) => {
                undone.failed(
                    path,
                    format!("cannot have its old text back: {error}"),
                    BY_HAND,
                );
                return Ok(());
            }
        }
    }
    for directory in made_directories {
        // Somebody may have put another file there.
        let _ = kernel.remove_directory(directory);
    }
    Ok(())
}

/// What a program made is made again, where it is not as before: a kernel came or went meanwhile,
/// or Rampart was ended before it could note what was made.
pub(crate) fn command(
    kernel: &dyn Kernel,
    words: &[String],
    output: &Path,
    old: Option<&str>,
    undone: &mut Undone,
) {
    let present = kernel.read(output).ok();
    if present.as_deref() == old {
        return;
    }
    match run_command(kernel, words) {
        Ok(()) => undone.restored(output, format!("made again by `{}`", words.join(" "))),
        Err(what) => undone.failed(
            output,
            format!("`{}` failed: {what}", words.join(" ")),
            &words.join(" "),
        ),
    }
}
