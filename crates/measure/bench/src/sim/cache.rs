// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cache directory: packages, images, and a directory for each running machine.
//!
//! ```text
//! rampart/sim/
//!   apt/x86_64/        lists and packages of one architecture
//!   x86_64/current     names the image in use
//!   x86_64/IDENTITY/   one image; machines that booted from it hold a shared lock of the directory
//!   emulators/         packages of emulators that are not installed, and the unpacked packages
//!   run/NUMBER/        one running machine: sockets, console; locked by the process that runs it
//!   snapshots/         saved machines (`snapshot`)
//!   up-x86_64          names the machine with this name that other commands may join
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::architecture::Architecture;
use super::error::SimError;
use super::snapshot::Snapshots;

/// How long to wait for another build. A build without progress ends itself.
const BUILD_LIMIT: Duration = Duration::from_secs(60 * 60);

/// How long to wait for another `sim up`, which starts a few programs in its machine.
const COMING_UP_LIMIT: Duration = Duration::from_secs(120);

/// Interval at which a lock is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// The cache directory of this user's simulated machines.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    /// Opens `$XDG_CACHE_HOME/rampart/sim`, or `~/.cache/rampart/sim` (XDG Base Directory
    /// Specification: a relative path in the variable is ignored).
    pub(super) fn of_this_user() -> Result<Self, SimError> {
        let absolute = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let base = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
            .ok_or(SimError::NoCacheDirectory)?;
        let root = base.join("rampart/sim");
        create_directory(&root)?;
        Ok(Self { root })
    }

    /// Returns the directory of lists and packages of one architecture.
    pub(super) fn apt(&self, architecture: &Architecture) -> PathBuf {
        self.root.join("apt").join(architecture.image_name())
    }

    /// Returns the directory of images of one architecture.
    pub(super) fn images(&self, architecture: &Architecture) -> PathBuf {
        self.root.join(architecture.image_name())
    }

    /// Returns the directory of emulators that are not installed, and of their packages.
    pub(super) fn emulators(&self) -> PathBuf {
        self.root.join("emulators")
    }

    /// Creates the directory of one machine, locked until the result is dropped. Also removes
    /// directories whose process was killed.
    pub(super) fn running(&self) -> Result<RunDirectory, SimError> {
        let all = self.root.join("run");
        create_directory(&all)?;
        remove_unlocked(&all)?;
        let mut number = std::process::id();
        loop {
            let path = all.join(number.to_string());
            match fs::create_dir(&path) {
                Ok(()) => {
                    let lock = lock_directory(&path, FlockOperation::NonBlockingLockExclusive)
                        .map_err(SimError::file("lock", &path))?;
                    return Ok(RunDirectory { path, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    number = number.wrapping_add(1_000_003);
                }
                Err(error) => return Err(SimError::file("create", &path)(error)),
            }
        }
    }

    /// Returns the saved machines.
    pub(super) fn snapshots(&self) -> Snapshots {
        Snapshots::new(self.root.join("snapshots"))
    }

    /// Returns the path of the file that names the machine of this architecture started by `sim up`.
    pub(super) fn up(&self, architecture: &Architecture) -> PathBuf {
        self.root.join(format!("up-{}", architecture.name))
    }

    /// Takes the lock that admits one build at a time. Calls `waiting` after each failed attempt.
    pub(super) fn lock_for_building(&self, waiting: &mut dyn FnMut()) -> Result<File, SimError> {
        self.lock_for_building_within(BUILD_LIMIT, waiting)
    }

    fn lock_for_building_within(
        &self,
        limit: Duration,
        waiting: &mut dyn FnMut(),
    ) -> Result<File, SimError> {
        let path = self.root.join("build.lock");
        lock_within(&path, limit, waiting)?.ok_or(SimError::OtherBuild { path, limit })
    }

    /// Takes the lock that lets one `sim up` run after the other, so that the second sees the first.
    pub(super) fn lock_for_coming_up(&self, architecture: &Architecture) -> Result<File, SimError> {
        self.lock_for_coming_up_within(architecture, COMING_UP_LIMIT)
    }

    fn lock_for_coming_up_within(
        &self,
        architecture: &Architecture,
        limit: Duration,
    ) -> Result<File, SimError> {
        let path = self.up(architecture).with_extension("lock");
        lock_within(&path, limit, &mut || ())?.ok_or(SimError::OtherUp { path, limit })
    }
}

/// Locks a file, which is created if it does not exist. Calls `waiting` after each failed attempt.
/// Returns `None` if it is still locked after `limit`.
pub(super) fn lock_within(
    path: &Path,
    limit: Duration,
    waiting: &mut dyn FnMut(),
) -> Result<Option<File>, SimError> {
    let file = File::create(path).map_err(SimError::file("create", path))?;
    let begin = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(file)),
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(SimError::file("lock", path)(error.into())),
        }
        if begin.elapsed() >= limit {
            return Ok(None);
        }
        waiting();
        thread::sleep(RETRY_INTERVAL);
    }
}

/// The directory of one running machine. Dropping this value removes it.
#[derive(Debug)]
pub(super) struct RunDirectory {
    path: PathBuf,
    _lock: File,
}

impl RunDirectory {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        // The next machine removes what cannot be removed now.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Locks the directory itself. This needs no file inside, and it can be removed while locked.
pub(super) fn lock_directory(path: &Path, operation: FlockOperation) -> io::Result<File> {
    let directory = File::open(path)?;
    flock(&directory, operation)?;
    Ok(directory)
}

/// Creates a directory and its parents.
pub(super) fn create_directory(path: &Path) -> Result<(), SimError> {
    fs::create_dir_all(path).map_err(SimError::file("create the directory", path))
}

/// Removes the unlocked directories below `all`.
fn remove_unlocked(all: &Path) -> Result<(), SimError> {
    let entries = fs::read_dir(all).map_err(SimError::file("list", all))?;
    for entry in entries.flatten() {
        let path = entry.path();
        // Its process may not have locked a new directory yet.
        let is_new = entry
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|made| made.elapsed().is_ok_and(|age| age.as_secs() < 10));
        if !is_new
            && let Ok(_lock) = lock_directory(&path, FlockOperation::NonBlockingLockExclusive)
        {
            let _ = fs::remove_dir_all(&path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path().to_owned();
        (directory, Cache { root })
    }

    #[test]
    fn removes_the_directory_with_its_machine() {
        let (_directory, cache) = cache();
        let first = cache.running().expect("made");
        let second = cache.running().expect("made");
        assert_ne!(first.path(), second.path());
        let path = first.path().to_owned();
        assert!(path.is_dir());
        drop(first);
        assert!(!path.exists());
        assert!(second.path().is_dir());
    }

    #[test]
    fn limits_the_wait_for_another_build() {
        let (_directory, cache) = cache();
        let held = cache.lock_for_building(&mut || ()).expect("free");
        let mut attempts = 0;
        let error = cache
            .lock_for_building_within(Duration::from_millis(100), &mut || attempts += 1)
            .expect_err("held");
        assert!(error.to_string().contains("build.lock"), "{error}");
        assert!(attempts > 0);
        drop(held);
        cache.lock_for_building(&mut || ()).expect("free again");
    }

    #[test]
    fn limits_the_wait_for_another_start() {
        let (_directory, cache) = cache();
        let [one, other] = ["x86_64", "aarch64"].map(|name| Architecture::named(name).expect(name));
        let held = cache.lock_for_coming_up(one).expect("free");
        let error = cache
            .lock_for_coming_up_within(one, Duration::from_millis(100))
            .expect_err("held");
        let text = error.to_string();
        assert!(
            text.contains("up-x86_64.lock") && text.contains("fix:"),
            "{text}"
        );
        cache.lock_for_coming_up(other).expect("another machine");
        drop(held);
        cache.lock_for_coming_up(one).expect("free again");
    }

    #[test]
    fn removes_only_unlocked_directories() {
        let (_directory, cache) = cache();
        let held = cache.running().expect("made");
        let left = cache.root.join("run/4");
        fs::create_dir(&left).expect("made");
        let old = std::time::SystemTime::now() - std::time::Duration::from_secs(60);
        for path in [held.path(), &left] {
            File::open(path)
                .expect("opened")
                .set_modified(old)
                .expect("aged");
        }
        remove_unlocked(&cache.root.join("run")).expect("listed");
        assert!(held.path().is_dir());
        assert!(!left.exists());
    }
}
