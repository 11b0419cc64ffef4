// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that let one process at a time change the machine. The kernel drops them when their holder
//! ends. All shields of one process share them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::{FlockOperation, flock};

use crate::{HostError, StateDirectory};

/// The lock of the machine, for processes with different state directories.
const MACHINE_LOCK: &str = "/run/rampart.lock";

/// Held locks.
#[derive(Debug)]
pub(crate) struct Lock(Vec<File>);

impl Lock {
    /// Takes the lock of a state directory and, with `machine`, that of the machine.
    pub(crate) fn take(state: &StateDirectory, machine: bool) -> Result<Self, HostError> {
        let mut files = Vec::new();
        let path = state.path().join("lock");
        let fix = "set RAMPART_STATE_DIR to a writable directory";
        std::fs::create_dir_all(state.path())
            .and_then(|()| open(&path))
            .map_err(|cause| HostError::file("open the lock file", &path, cause, fix))
            .and_then(|file| lock_file(file, &path))
            .map(|file| files.push(file))?;
        if machine {
            let path = PathBuf::from(MACHINE_LOCK);
            // Without /run there is only the lock of the state directory.
            if let Ok(file) = open(&path) {
                files.push(lock_file(file, &path)?);
            }
        }
        Ok(Self(files))
    }
}

impl Drop for Lock {
    /// Does not leave it to closing the files: a child process that another thread starts has them open
    /// too, and so the lock, until it executes its program.
    fn drop(&mut self) {
        for file in &self.0 {
            // If it fails, the lock ends with the last open file.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// The locks that shields of this process hold, by state directory.
static SHARED: Mutex<Vec<(PathBuf, Weak<Lock>)>> = Mutex::new(Vec::new());

/// A lock that all shields of this process share.
#[derive(Debug)]
pub(crate) struct SharedLock {
    pub(crate) lock: Arc<Lock>,
    /// Whether this process has no other shield, so that all journals are from ended processes.
    pub(crate) first: bool,
}

impl SharedLock {
    /// Takes the lock for the first shield of this process, and shares it with the others.
    pub(crate) fn take(state: &StateDirectory, machine: bool) -> Result<Self, HostError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.retain(|(_, lock)| lock.strong_count() > 0);
        let known = shared
            .iter()
            .find(|(path, _)| path == state.path())
            .and_then(|(_, lock)| lock.upgrade());
        if let Some(lock) = known {
            return Ok(Self { lock, first: false });
        }
        let lock = Arc::new(Lock::take(state, machine)?);
        shared.push((state.path().to_owned(), Arc::downgrade(&lock)));
        Ok(Self { lock, first: true })
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

fn lock_file(mut file: File, path: &Path) -> Result<File, HostError> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // For the error message of other processes; the lock works without it.
            let _ = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut owner = String::new();
            let _ = file.read_to_string(&mut owner);
            let owner = owner.trim();
            Err(HostError::Busy {
                path: path.to_owned(),
                owner: if owner.is_empty() { "unknown" } else { owner }.to_owned(),
            })
        }
        Err(cause) => Err(HostError::file(
            "lock",
            path,
            cause.into(),
            "set RAMPART_STATE_DIR to a directory on a local file system",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_a_second_process_and_names_the_owner() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path().join("state"));
        let first = Lock::take(&state, false).expect("first");
        let refusal = Lock::take(&state, false).expect_err("second").to_string();
        assert!(
            refusal.contains(&format!("process {}", std::process::id())),
            "{refusal}"
        );
        drop(first);
        Lock::take(&state, false).expect("after the first is dropped");
    }

    #[test]
    fn ends_though_a_child_has_the_file_open() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path().join("state"));
        let lock = Lock::take(&state, false).expect("taken");
        let _of_a_child = lock.0[0].try_clone().expect("the same open file");
        drop(lock);
        Lock::take(&state, false).expect("after the drop");
    }

    #[test]
    fn shields_of_one_process_share_a_lock_until_the_last_is_dropped() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path().join("state"));
        let one = SharedLock::take(&state, false).expect("one");
        let two = SharedLock::take(&state, false).expect("two");
        assert!(one.first && !two.first);
        drop(one);
        Lock::take(&state, false).expect_err("held for the second");
        drop(two);
        assert!(SharedLock::take(&state, false).expect("anew").first);
    }
}
