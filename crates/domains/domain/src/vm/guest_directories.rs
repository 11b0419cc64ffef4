// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One directory for each guest, with its initramfs, sockets and logs. It is removed with the
//! guest; after a sudden end the next start or `rampart release` removes it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rampart_host::StateDirectory;
use rampart_model::{Finding, Severity};

use crate::DomainError;
use crate::process_settings::{owner_lives, start_of};

/// A guest's directory. Dropping it removes it.
#[derive(Debug)]
pub(super) struct GuestDirectory(PathBuf);

impl GuestDirectory {
    /// Creates a unique directory. Its name contains the id and the start of its owner's process,
    /// so that it stays unique when process ids are reused.
    pub(super) fn create(state: &StateDirectory) -> Result<Self, DomainError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let owner = std::process::id();
        let start = start_of(owner).unwrap_or(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = guests(state).join(format!("{owner}-{start}-{count}"));
        let path = std::path::absolute(&path).map_err(DomainError::file("find", &path))?;
        fs::create_dir_all(&path)
            .map_err(DomainError::file("make the guest's directory", &path))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for GuestDirectory {
    fn drop(&mut self) {
        // `release_guests` finds what cannot be removed.
        let _ = fs::remove_dir_all(&self.0);
        if let Some(parent) = self.0.parent() {
            // This fails while another guest is up.
            let _ = fs::remove_dir(parent);
        }
    }
}

fn guests(state: &StateDirectory) -> PathBuf {
    state.path().join("guests")
}

/// Result of [`release_guests`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReleasedGuests {
    /// Names of the removed directories.
    pub removed: Vec<String>,
    /// What could not be removed, with the reason.
    pub left: Vec<Finding>,
}

/// Removes the directories of guests whose process has ended. The guests themselves end with it.
#[must_use]
pub fn release_guests(state: &StateDirectory) -> ReleasedGuests {
    let mut released = ReleasedGuests::default();
    let directory = guests(state);
    let Ok(entries) = fs::read_dir(&directory) else {
        return released;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if owner_lives(&name) {
            continue;
        }
        match fs::remove_dir_all(&path) {
            Ok(()) => released.removed.push(name),
            Err(cause) => released.left.push(
                Finding::new(
                    Severity::Error,
                    path.display().to_string(),
                    format!("cannot remove the guest's directory: {cause}"),
                )
                .fix("remove the directory"),
            ),
        }
    }
    // This fails while a guest is up.
    let _ = fs::remove_dir(&directory);
    released
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_directories_of_ended_processes_only() {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        let ours = GuestDirectory::create(&state).expect("ours");
        let left = guests(&state).join("4000000-1-0");
        fs::create_dir_all(&left).expect("left");
        let released = release_guests(&state);
        assert_eq!(released.removed, ["4000000-1-0"]);
        assert!(ours.path().is_dir() && !left.exists());
        drop(ours);
        assert!(!guests(&state).exists());
        assert_eq!(release_guests(&state), ReleasedGuests::default());
    }
}
