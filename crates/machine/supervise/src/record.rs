// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of each domain: `domains/NAME.json` in the state directory, replaced atomically.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rampart_host::{StateDirectory, boot_id, process_start, replace_file};
use rampart_model::{DomainProgram, ProcessIdentity, SupervisedDomain};

use crate::SuperviseError;

/// The files of one domain.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    directory: PathBuf,
    name: String,
}

impl Files {
    /// Returns the files of a domain and creates their directory.
    pub(crate) fn of(state: &StateDirectory, name: &str) -> Result<Self, SuperviseError> {
        // Supervisors run in another directory, so relative paths would not resolve.
        let directory = std::path::absolute(directory(state))
            .map_err(SuperviseError::file("find", directory(state)))?;
        fs::create_dir_all(&directory)
            .map_err(SuperviseError::file("create the directory", &directory))?;
        Ok(Self {
            directory,
            name: name.to_owned(),
        })
    }

    fn with(&self, end: &str) -> PathBuf {
        self.directory.join(format!("{}.{end}", self.name))
    }

    /// Returns the path of the record.
    pub(crate) fn record(&self) -> PathBuf {
        self.with("json")
    }

    /// Returns the path of the program's output.
    pub(crate) fn log(&self) -> PathBuf {
        self.with("log")
    }

    /// Returns the path of the lock that the supervisor holds.
    pub(crate) fn lock(&self) -> PathBuf {
        self.with("lock")
    }

    /// Returns the path of the file in which `down` passes the time limit for the program's end.
    pub(crate) fn limit(&self) -> PathBuf {
        self.with("limit")
    }

    /// Returns the directory of the container or guest.
    pub(crate) fn inside(&self) -> PathBuf {
        self.with("run")
    }

    /// Replaces the record.
    pub(crate) fn write(&self, domain: &SupervisedDomain) -> Result<(), SuperviseError> {
        let path = self.record();
        let write = || replace_file(&path, &serde_json::to_vec_pretty(domain)?);
        write().map_err(SuperviseError::file("write the domain's record", path))
    }
}

fn directory(state: &StateDirectory) -> PathBuf {
    state.path().join("domains")
}

/// Returns the record of a domain, or `None` if the domain was never started.
///
/// # Errors
/// If the record cannot be read.
pub fn supervised(
    state: &StateDirectory,
    name: &str,
) -> Result<Option<SupervisedDomain>, SuperviseError> {
    read(&directory(state).join(format!("{name}.json")))
}

fn read(path: &Path) -> Result<Option<SupervisedDomain>, SuperviseError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(SuperviseError::file("read", path)(cause)),
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|cause| SuperviseError::file("parse", path)(cause.into()))
}

/// Returns the records of all domains that were ever started, ordered by name.
///
/// # Errors
/// If a record cannot be read.
pub fn supervised_all(state: &StateDirectory) -> Result<Vec<SupervisedDomain>, SuperviseError> {
    let mut paths: Vec<PathBuf> = fs::read_dir(directory(state))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    paths.sort();
    paths
        .iter()
        .filter_map(|path| read(path).transpose())
        .collect()
}

/// Whether the processes of a domain are alive, independent of the state in its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Liveness {
    /// Whether the supervisor is alive.
    pub supervisor: bool,
    /// Whether the program is alive.
    pub program: bool,
}

impl Liveness {
    /// Returns whether the program runs without a supervisor, because that was killed.
    #[must_use]
    pub const fn is_orphaned(self) -> bool {
        self.program && !self.supervisor
    }
}

/// Returns which processes of a domain are alive.
#[must_use]
pub fn liveness(domain: &SupervisedDomain) -> Liveness {
    let same_boot = domain.boot == boot_id();
    let alive = |identity: &ProcessIdentity| {
        same_boot && process_start(identity.process) == Some(identity.start)
    };
    Liveness {
        supervisor: alive(&domain.supervisor),
        program: match domain.kind.program() {
            // The driver knows the cell even if its supervisor was killed.
            DomainProgram::Image => same_boot && rampart_cells::operate::is_there(&domain.name),
            _ => domain.program.as_ref().is_some_and(alive),
        },
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use rampart_model::{DomainKind, SUPERVISION_SCHEMA_VERSION, SupervisedState};

    pub(crate) fn example() -> SupervisedDomain {
        let own = std::process::id();
        let identity = ProcessIdentity {
            process: own,
            start: process_start(own).expect("alive"),
        };
        SupervisedDomain {
            schema_version: SUPERVISION_SCHEMA_VERSION,
            tool_version: "0.1.0".to_owned(),
            name: "press".to_owned(),
            kind: DomainKind::Task,
            state: SupervisedState::Running,
            boot: boot_id(),
            supervisor: identity,
            program: Some(identity),
            started_at: None,
            restarts: 0,
            last_exit: None,
            log: "/nowhere".to_owned(),
            container: None,
            findings: Vec::new(),
        }
    }

    #[test]
    fn replaces_and_reads_a_record() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        assert_eq!(supervised(&state, "press").expect("none"), None);
        assert!(supervised_all(&state).expect("none").is_empty());
        let mut domain = example();
        let files = Files::of(&state, "press").expect("files");
        files.write(&domain).expect("written");
        domain.restarts = 3;
        files.write(&domain).expect("written again");
        assert_eq!(
            supervised(&state, "press").expect("read"),
            Some(domain.clone())
        );
        assert_eq!(supervised_all(&state).expect("read"), [domain]);
        fs::write(files.record(), "{").expect("damaged");
        assert!(supervised(&state, "press").is_err());
    }

    #[test]
    fn recognises_a_reused_process_number() {
        let mut domain = example();
        let both = Liveness {
            supervisor: true,
            program: true,
        };
        assert_eq!(liveness(&domain), both);
        domain.supervisor.start += 1;
        assert!(
            liveness(&domain).is_orphaned(),
            "another process has the number"
        );
        domain.boot = "another".to_owned();
        assert!(!liveness(&domain).program && !liveness(&domain).is_orphaned());
    }
}
