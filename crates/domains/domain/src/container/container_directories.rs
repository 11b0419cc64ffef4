// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One directory for each container, created before the container starts, so that after a sudden
//! end the next start or `rampart release` finds and removes the container.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rampart_host::StateDirectory;
use rampart_model::{ContainerEngine, Finding, Severity};
use serde::{Deserialize, Serialize};

use super::helper_program;
use crate::DomainError;
use crate::process_settings::start_of;

const RECORD: &str = "container.json";

/// The facts known of a container before its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Its name.
    pub(super) id: String,
    /// Its runtime or engine.
    pub(super) engine: ContainerEngine,
    /// The program of the runtime or engine.
    pub(super) program: PathBuf,
    /// The process that started it.
    owner: u32,
    /// When that process started, in clock ticks since boot.
    owner_start: u64,
}

/// A container's directory. Dropping it removes the container and the directory.
#[derive(Debug)]
pub(crate) struct Container {
    pub(super) record: Record,
    pub(super) directory: PathBuf,
    removed: bool,
}

impl Container {
    /// Creates the directory and synchronises the record to the disk.
    pub(super) fn create(
        state: &StateDirectory,
        engine: ContainerEngine,
        program: &Path,
    ) -> Result<Self, DomainError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let owner = std::process::id();
        let owner_start = start_of(owner).unwrap_or(0);
        // With the start time the name stays unique when process ids are reused.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("rampart-meter-{owner}-{owner_start}-{count}");
        let directory = containers(state).join(&id);
        fs::create_dir_all(&directory)
            .map_err(DomainError::file("make the directory", &directory))?;
        let container = Self {
            record: Record {
                id,
                engine,
                program: program.to_owned(),
                owner,
                owner_start,
            },
            directory,
            removed: false,
        };
        container.write_record()?;
        Ok(container)
    }

    fn write_record(&self) -> Result<(), DomainError> {
        let path = self.directory.join(RECORD);
        let written = || {
            let mut text = serde_json::to_vec(&self.record)?;
            text.push(b'\n');
            rampart_host::replace_file(&path, &text)
        };
        written().map_err(DomainError::file("write the record", path))
    }

    /// Returns the root directory of the runtime's own state.
    pub(super) fn runtime_state(&self) -> PathBuf {
        self.directory.join("runtime")
    }

    /// Returns the file in which the runtime writes the id of the container's first process.
    pub(super) fn process_file(&self) -> PathBuf {
        self.directory.join("process")
    }

    /// Returns the name of the image that an engine may need.
    pub(super) fn image(&self) -> String {
        image(&self.record.id)
    }

    /// Removes the container, whether or not it still runs, and its directory.
    pub(crate) fn remove(mut self) -> Result<(), DomainError> {
        self.removed = true;
        remove(&self.record, &self.directory)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        if !self.removed {
            // `release_containers` finds what cannot be removed.
            let _ = remove(&self.record, &self.directory);
        }
    }
}

fn image(id: &str) -> String {
    format!("rampart-meter:{id}")
}

fn remove(record: &Record, directory: &Path) -> Result<(), DomainError> {
    let id = record.id.as_str();
    match record.engine {
        ContainerEngine::Embedded => {
            // A container that ended by itself has no state left.
            let root = directory.join("runtime");
            if root.join(id).exists() {
                let root = root.display().to_string();
                helper_program::persist(
                    &record.program,
                    &["--root", &root, "delete", "--force", id],
                )?;
            }
        }
        ContainerEngine::Podman => {
            helper_program::persist(
                &record.program,
                &["rm", "--force", "--ignore", "--time", "0", id],
            )?;
        }
        ContainerEngine::Docker => {
            // `--rm` has usually removed it already, and the image need not exist.
            let _ = helper_program::run(&record.program, &["rm", "--force", id]);
            let left = helper_program::run(
                &record.program,
                &[
                    "ps",
                    "--all",
                    "--quiet",
                    "--filter",
                    &format!("name=^{id}$"),
                ],
            )?;
            if !left.trim().is_empty() {
                helper_program::persist(&record.program, &["rm", "--force", id])?;
            }
            let _ = helper_program::run(&record.program, &["rmi", &image(id)]);
        }
    }
    fs::remove_dir_all(directory).map_err(DomainError::file("remove the directory", directory))
}

/// Result of [`release_containers`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasedContainers {
    /// Names of the removed containers.
    pub removed: Vec<String>,
    /// What could not be removed, with the reason.
    pub left: Vec<Finding>,
}

/// Removes the containers that ended processes left. Call it before [`rampart_host::release`],
/// which removes the control groups around them.
#[must_use]
pub fn release_containers(state: &StateDirectory) -> ReleasedContainers {
    let mut released = ReleasedContainers::default();
    let Ok(entries) = fs::read_dir(containers(state)) else {
        return released;
    };
    for directory in entries.flatten().map(|entry| entry.path()) {
        let name = directory
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let record: Option<Record> = fs::read(directory.join(RECORD))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        let result = match &record {
            Some(record) if is_alive(record) => continue,
            Some(record) => remove(record, &directory),
            // Without a record no container was started. Its owner, whose id is part of the name,
            // may be about to write it.
            None if owner_in(&name).is_some_and(|owner| start_of(owner).is_some()) => continue,
            None => fs::remove_dir_all(&directory)
                .map_err(DomainError::file("remove the directory", &directory)),
        };
        match result {
            Ok(()) => released.removed.push(name),
            Err(error) => released.left.push(
                Finding::new(
                    Severity::Error,
                    directory.display().to_string(),
                    error.to_string(),
                )
                .fix(format!("remove the container {name}, then the directory")),
            ),
        }
    }
    released
}

fn containers(state: &StateDirectory) -> PathBuf {
    state.path().join("containers")
}

fn is_alive(record: &Record) -> bool {
    start_of(record.owner) == Some(record.owner_start)
}

fn owner_in(name: &str) -> Option<u32> {
    name.strip_prefix("rampart-meter-")?
        .split('-')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateDirectory) {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        (directory, state)
    }

    #[test]
    fn releases_containers_of_ended_processes_only() {
        let (_directory, state) = state();
        let program = Path::new("/nowhere/runc");
        let ours = Container::create(&state, ContainerEngine::Embedded, program).expect("ours");
        let mut left = Container::create(&state, ContainerEngine::Embedded, program).expect("left");
        left.record.owner_start += 1;
        left.write_record().expect("record");
        left.removed = true;
        let torn = containers(&state).join("rampart-meter-4000000-1-0");
        fs::create_dir_all(&torn).expect("directory");

        let released = release_containers(&state);
        assert_eq!(released.removed.len(), 2, "{released:?}");
        assert!(!left.directory.exists() && !torn.exists());
        assert!(ours.directory.exists());
        let path = ours.directory.clone();
        drop(ours);
        assert!(!path.exists());
    }

    #[test]
    fn reports_and_keeps_what_cannot_be_removed() {
        let (_directory, state) = state();
        let program = Path::new("/nowhere/runc");
        let mut left = Container::create(&state, ContainerEngine::Embedded, program).expect("left");
        left.record.owner_start += 1;
        left.write_record().expect("record");
        left.removed = true;
        fs::create_dir_all(left.runtime_state().join(&left.record.id)).expect("state");
        let released = release_containers(&state);
        assert!(released.removed.is_empty());
        assert!(released.left[0].to_string().contains("/nowhere/runc"));
        assert!(left.directory.exists());
    }

    #[test]
    fn releases_nothing_without_a_directory() {
        let (_directory, state) = state();
        assert_eq!(release_containers(&state), ReleasedContainers::default());
    }
}
