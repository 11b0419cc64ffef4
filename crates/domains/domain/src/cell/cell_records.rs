// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records of cells: one file for each cell that a run creates, written before the cell, and one if
//! the run started the hypervisor. After a sudden end the next start or `rampart release` uses them
//! to clean up.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rampart_cells::operate::{EnableOrder, Operator, disable, enable};
use rampart_host::StateDirectory;
use rampart_model::{Finding, Severity};

use crate::DomainError;
use crate::process_settings::{owner_lives, start_of};

/// The file which records that Rampart started the hypervisor and has to end it.
const ENABLED: &str = "hypervisor";

/// A cell's record. Dropping it removes the file, and ends the hypervisor with the last one.
#[derive(Debug)]
pub(super) struct CellFile {
    path: PathBuf,
    /// The unique name of the cell.
    name: String,
    state: StateDirectory,
}

impl CellFile {
    /// Writes the record of a cell to be created, and starts the hypervisor under Linux if it is
    /// not running.
    pub(super) fn create(
        state: &StateDirectory,
        domain: &str,
        order: &EnableOrder,
    ) -> Result<Self, DomainError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let owner = std::process::id();
        let start = start_of(owner).unwrap_or(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = cells(state);
        fs::create_dir_all(&directory).map_err(DomainError::file("make", &directory))?;
        let file = Self {
            path: directory.join(format!("{owner}-{start}-{count}")),
            name: cell_name(domain, owner, count),
            state: state.clone(),
        };
        write(&file.path, &file.name)?;
        let marker = directory.join(ENABLED);
        if !rampart_cells::operate::is_enabled() {
            write(&marker, "enabled for an evaluation\n")?;
            enable(state, order)?;
        }
        Ok(file)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for CellFile {
    fn drop(&mut self) {
        // `release_cells` finds what cannot be removed.
        let _ = fs::remove_file(&self.path);
        if let Some(directory) = self.path.parent() {
            let _ = leave(&self.state, directory);
        }
    }
}

fn write(path: &Path, text: &str) -> Result<(), DomainError> {
    rampart_host::replace_file(path, text.as_bytes()).map_err(DomainError::file("write", path))
}

/// Returns letters, digits and dashes of the domain's name with a unique suffix; at most 32 bytes
/// (`rampart_hypervisor_core::format::NAME_BYTES`).
fn cell_name(domain: &str, owner: u32, count: u32) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = domain.chars().map(plain).take(12).collect();
    format!("{name}.{owner}.{count}")
}

fn cells(state: &StateDirectory) -> PathBuf {
    state.path().join("cells")
}

/// Ends the hypervisor if Rampart started it and no recorded cell is left. If there are other
/// cells, it stays and belongs to them.
fn leave(state: &StateDirectory, directory: &Path) -> Result<(), String> {
    let marker = directory.join(ENABLED);
    let others = fs::read_dir(directory).map_or(0, Iterator::count);
    if !marker.exists() || others > 1 {
        return Ok(());
    }
    let theirs = Operator::open()
        .and_then(|operator| operator.in_use())
        .is_ok_and(|in_use| !in_use.cells.is_empty());
    if !theirs {
        disable(state, false).map_err(|error| error.to_string())?;
    }
    // This fails if another process has just created a record.
    let _ = fs::remove_file(&marker);
    let _ = fs::remove_dir(directory);
    Ok(())
}

/// Result of [`release_cells`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasedCells {
    /// Names of the destroyed cells.
    pub removed: Vec<String>,
    /// What could not be undone, with the reason.
    pub left: Vec<Finding>,
}

/// Destroys the cells of processes that have ended, and ends the hypervisor if it was started only
/// for them.
#[must_use]
pub fn release_cells(state: &StateDirectory) -> ReleasedCells {
    let mut released = ReleasedCells::default();
    let directory = cells(state);
    let Ok(entries) = fs::read_dir(&directory) else {
        return released;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let owner = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        // A file that is being written has a dot before its name.
        let owner = owner.trim_start_matches('.');
        if owner.starts_with(ENABLED) || owner_lives(owner) {
            continue;
        }
        let name = fs::read_to_string(&path).unwrap_or_default();
        let destroyed = Operator::open().and_then(|operator| {
            let in_use = operator.in_use()?;
            match in_use.cells.iter().any(|cell| cell.name == name) {
                true => operator.destroy(&name).map(|()| true),
                false => Ok(false),
            }
        });
        match destroyed {
            Ok(was_there) => {
                let _ = fs::remove_file(&path);
                released.removed.extend(was_there.then_some(name));
            }
            // Without the driver the cell ended with the boot in which it was created.
            Err(_) if !rampart_cells::operate::is_enabled() => {
                let _ = fs::remove_file(&path);
            }
            Err(error) => released.left.push(
                Finding::new(
                    Severity::Error,
                    format!("cell {name}"),
                    format!("cannot destroy it: {error}"),
                )
                .fix(format!("rampart cell destroy {name}")),
            ),
        }
    }
    if let Err(error) = leave(state, &directory) {
        released.left.push(
            Finding::new(
                Severity::Error,
                "hypervisor",
                format!("cannot end it: {error}"),
            )
            .fix("rampart cell disable"),
        );
    }
    let _ = fs::remove_dir(&directory);
    released
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_valid_cell_names() {
        let name = cell_name("cell:linux-number-17", 4_194_304, 12);
        assert_eq!(name, "cell-linux-n.4194304.12");
        assert!(name.len() <= rampart_hypervisor_core::format::NAME_BYTES);
    }

    #[test]
    fn releases_cells_of_ended_processes_only() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        let own = start_of(std::process::id()).expect("our start");
        fs::create_dir_all(cells(&state)).expect("directory");
        let ours = cells(&state).join(format!("{}-{own}-0", std::process::id()));
        let left = cells(&state).join("4000000-1-0");
        fs::write(&ours, "ours").expect("written");
        fs::write(&left, "left").expect("written");
        assert_eq!(release_cells(&state), ReleasedCells::default());
        assert!(ours.exists() && !left.exists());
    }
}
