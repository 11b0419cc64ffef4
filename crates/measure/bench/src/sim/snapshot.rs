// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Saved machines: a machine is booted once, saved when its agent waits for a client, and restored in a fraction of a
//! second from then on.
//!
//! ```text
//! rampart/sim/snapshots/KEY/       one saved machine, locked (shared) by those that start from it
//!   ram                            its memory; machines map it privately, so no one writes to it
//!   state                          its devices and registers, QEMU's migration stream
//!   snapshot.json                  the size and the times of both files, to detect a damaged one
//! rampart/sim/snapshots/.KEY.lock  held by the process that makes it
//! rampart/sim/snapshots/.new-…     a machine that is being saved
//! ```
//!
//! The key is a hash of all that the machine depends on: emulator, kernel, root file system, initramfs, firmware,
//! device tree and command line. Something that changed has another key, and the old snapshot is removed with age.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rampart_qemu::{Qemu, QemuCommand, QmpError, escaped};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::cache::{create_directory, lock_directory, lock_within};
use super::error::SimError;
use super::packages::hexadecimal;

/// Version of the code that makes snapshots.
const RECIPE: u32 = 1;

const RAM: &str = "ram";
const STATE: &str = "state";
const RECORD: &str = "snapshot.json";
const BEING_MADE: &str = ".new-";

/// A snapshot that was not used for so long is removed.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

/// Disk space of all snapshots; those that were not used for longest are removed first. A machine of the default size
/// takes some 250 MB.
const MOST_BYTES: u64 = 8 << 30;

/// Free space that has to remain on the disk beside a machine whose whole memory is written.
const RESERVE_BYTES: u64 = 1 << 30;

/// Time limit for QEMU to save or load the state, a megabyte, on a busy machine.
const TRANSFER_LIMIT: Duration = Duration::from_secs(60);

/// Interval at which the progress is queried.
const LOOK_AGAIN: Duration = Duration::from_millis(3);

/// How the memory of a machine is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory<'a> {
    /// In a file that the machine writes to.
    Saved(&'a Path),
    /// In a file of which the machine has a private copy.
    Restored(&'a Path),
}

impl Memory<'_> {
    /// Returns QEMU's arguments for it.
    pub(super) fn arguments(self, mebibytes: u64) -> Vec<OsString> {
        let (path, is_shared) = match self {
            Self::Saved(path) => (path, "on"),
            Self::Restored(path) => (path, "off"),
        };
        let mut backend = OsString::from(format!(
            "memory-backend-file,id=ram,size={mebibytes}M,share={is_shared},mem-path="
        ));
        backend.push(escaped(path));
        let mut arguments = vec![OsString::from("-object"), backend];
        arguments.extend(["-machine", "memory-backend=ram"].map(OsString::from));
        if matches!(self, Self::Restored(_)) {
            arguments.extend(["-incoming", "defer"].map(OsString::from));
        }
        arguments
    }
}

/// The hash of what a machine depends on.
#[derive(Debug, Clone)]
pub(super) struct KeyBuilder(Sha256);

impl KeyBuilder {
    /// Begins with the emulator, which has the version of its file.
    pub(super) fn new(emulator: &QemuCommand) -> Self {
        let mut key = Self(Sha256::new());
        key.add(&RECIPE.to_le_bytes());
        key.add_file(&in_path(&emulator.program));
        for argument in &emulator.arguments {
            // Of an emulator that its loader starts, the program is among the arguments.
            key.add_file(Path::new(argument));
        }
        key
    }

    /// Adds bytes and their number, so that no two lists of them have the same hash by their concatenation.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds the path of a file, and which version of it is there: its size, times and number.
    pub(super) fn add_file(&mut self, path: &Path) {
        self.add(path.as_os_str().as_bytes());
        if let Ok(metadata) = fs::metadata(path) {
            let version = serde_json::to_vec(&FileVersion::of(&metadata)).unwrap_or_default();
            self.add(&version);
        }
    }

    /// Adds the arguments of QEMU, in which the directory of the run has no name of its own.
    pub(super) fn add_arguments(&mut self, arguments: &[OsString], directory: &Path) {
        for argument in arguments {
            self.add(&without(argument, directory));
        }
    }

    /// Returns the name of the snapshot.
    pub(super) fn finish(self) -> String {
        let mut name = hexadecimal(&self.0.finalize());
        name.truncate(32);
        name
    }
}

/// Returns the file of a program.
fn in_path(program: &Path) -> PathBuf {
    let search = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&search)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
        .unwrap_or_else(|| program.to_owned())
}

/// Returns the bytes of an argument without the name of the directory.
fn without(argument: &OsStr, directory: &Path) -> Vec<u8> {
    let (mut rest, name) = (argument.as_bytes(), escaped(directory));
    let name = name.as_bytes();
    let mut kept = Vec::with_capacity(rest.len());
    while let Some(at) = rest.windows(name.len()).position(|part| part == name) {
        kept.extend_from_slice(&rest[..at]);
        rest = &rest[at + name.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

/// What changes if a file is written to, truncated or copied: size, inode, and the times of the last change of its
/// content and of its inode, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FileVersion {
    bytes: u64,
    inode: u64,
    written: i128,
    changed: i128,
}

impl FileVersion {
    fn of(metadata: &Metadata) -> Self {
        let time = |seconds: i64, nanoseconds: i64| {
            i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds)
        };
        Self {
            bytes: metadata.size(),
            inode: metadata.ino(),
            written: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn read(path: &Path) -> Result<Self, String> {
        let metadata =
            fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self::of(&metadata))
    }
}

/// The content of `snapshot.json`.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    /// `/proc/sys/kernel/random/boot_id`. The files are not written through to the disk, so a snapshot counts only until
    /// this machine restarts.
    boot: String,
    ram: FileVersion,
    state: FileVersion,
}

impl Record {
    fn of(directory: &Path) -> Result<Self, String> {
        let path = "/proc/sys/kernel/random/boot_id";
        let boot = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        Ok(Self {
            boot: boot.trim().to_owned(),
            ram: FileVersion::read(&directory.join(RAM))?,
            state: FileVersion::read(&directory.join(STATE))?,
        })
    }
}

/// All snapshots of a user.
#[derive(Debug)]
pub(super) struct Snapshots {
    directory: PathBuf,
}

/// A saved machine. It is not removed as long as this value lives.
#[derive(Debug)]
pub(super) struct Snapshot {
    directory: PathBuf,
    lock: File,
}

/// Why there is no snapshot to start from.
#[derive(Debug)]
pub(super) enum Absent {
    /// None was made.
    NotMade,
    /// There was one that cannot be used, which is removed; with the reason.
    Damaged(String),
}

impl Snapshots {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Opens a snapshot. Removes a damaged one.
    pub(super) fn open(&self, key: &str) -> Result<Snapshot, Absent> {
        let directory = self.directory.join(key);
        let Ok(lock) = lock_directory(&directory, FlockOperation::NonBlockingLockShared) else {
            return Err(Absent::NotMade);
        };
        let snapshot = Snapshot { directory, lock };
        match snapshot.check() {
            Ok(()) => {
                // The age of the directory is the time since its last use.
                let _ = snapshot.lock.set_modified(SystemTime::now());
                Ok(snapshot)
            }
            Err(reason) => {
                snapshot.discard();
                Err(Absent::Damaged(reason))
            }
        }
    }

    /// Waits until no other process makes this snapshot, at most `limit`. Returns `None` after that.
    pub(super) fn lock_for_making(
        &self,
        key: &str,
        limit: Duration,
    ) -> Result<Option<File>, SimError> {
        create_directory(&self.directory)?;
        let path = self.directory.join(format!(".{key}.lock"));
        lock_within(&path, limit, &mut || ())
    }

    /// Returns whether the disk has space for a machine with this much memory.
    pub(super) fn has_space(&self, mebibytes: u64) -> bool {
        let needed = (mebibytes << 20).saturating_add(RESERVE_BYTES);
        rustix::fs::statvfs(&self.directory)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= needed)
    }

    /// Creates the directory of a machine that is to be saved, and removes what is old.
    pub(super) fn begin(&self) -> Result<Unfinished, SimError> {
        self.remove_old();
        let directory = tempfile::Builder::new()
            .prefix(BEING_MADE)
            .tempdir_in(&self.directory)
            .map_err(SimError::file("create a directory in", &self.directory))?;
        let lock = lock_directory(directory.path(), FlockOperation::NonBlockingLockExclusive)
            .map_err(SimError::file("lock", directory.path()))?;
        Ok(Unfinished {
            directory,
            _lock: lock,
        })
    }

    /// Saves a stopped machine, whose memory is in the file of `unfinished`, and ends it.
    pub(super) fn finish(
        &self,
        unfinished: Unfinished,
        qemu: &Qemu,
        key: &str,
    ) -> Result<(), SimError> {
        let failed = |reason: String| SimError::Snapshot { reason };
        let path = unfinished.directory.path();
        save(qemu, &path.join(STATE)).map_err(failed)?;
        qemu.kill();
        let record = Record::of(path).map_err(failed)?;
        let record = serde_json::to_vec(&record).map_err(|error| failed(error.to_string()))?;
        let file = path.join(RECORD);
        fs::write(&file, record).map_err(SimError::file("write", &file))?;
        let directory = self.directory.join(key);
        fs::rename(path, &directory).map_err(SimError::file("rename to", &directory))?;
        // It is no longer a temporary directory.
        let _ = unfinished.directory.keep();
        Ok(())
    }

    /// Removes snapshots by their age, then by their size, and what killed processes left. A removed file stays
    /// usable for the machines that have it mapped.
    fn remove_old(&self) {
        self.remove_old_beyond(MOST_BYTES);
    }

    fn remove_old_beyond(&self, most_bytes: u64) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let mut found = Vec::new();
        for entry in entries.flatten() {
            let (path, Ok(metadata)) = (entry.path(), entry.metadata()) else {
                continue;
            };
            let age = metadata
                .modified()
                .ok()
                .and_then(|time| time.elapsed().ok());
            let age = age.unwrap_or_default();
            if !metadata.is_dir() {
                // A lock that is held is of a file without a name then; its owner makes a snapshot all the same.
                if age > KEPT {
                    let _ = fs::remove_file(&path);
                }
            } else if entry
                .file_name()
                .as_bytes()
                .starts_with(BEING_MADE.as_bytes())
            {
                // A new one may not be locked yet.
                if age > TRANSFER_LIMIT {
                    remove_unless_used(&path);
                }
            } else {
                found.push((age, disk_bytes(&path), path));
            }
        }
        found.sort();
        let mut total = 0;
        for (age, bytes, path) in found {
            total += bytes;
            if age > KEPT || total > most_bytes {
                remove_unless_used(&path);
            }
        }
    }
}

/// Returns the disk space of a directory's files in bytes.
fn disk_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512));
    sizes.sum()
}

fn remove_unless_used(path: &Path) {
    if let Ok(_lock) = lock_directory(path, FlockOperation::NonBlockingLockExclusive) {
        // An error here only costs disk space.
        let _ = fs::remove_dir_all(path);
    }
}

/// The directory of a machine that is to be saved. It is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct Unfinished {
    directory: tempfile::TempDir,
    _lock: File,
}

impl Unfinished {
    pub(super) fn ram(&self) -> PathBuf {
        self.directory.path().join(RAM)
    }
}

impl Snapshot {
    fn check(&self) -> Result<(), String> {
        let path = self.directory.join(RECORD);
        let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let saved: Record = serde_json::from_slice(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let found = Record::of(&self.directory)?;
        for (name, saved, found) in [
            (RAM, saved.ram, found.ram),
            (STATE, saved.state, found.state),
        ] {
            if saved.bytes != found.bytes {
                return Err(format!(
                    "{name} has {} bytes, expected {}",
                    found.bytes, saved.bytes
                ));
            }
            if saved != found {
                return Err(format!("{name} was changed after it was saved"));
            }
        }
        match saved.boot == found.boot {
            true => Ok(()),
            false => Err("it was saved before this machine restarted".to_owned()),
        }
    }

    pub(super) fn ram(&self) -> PathBuf {
        self.directory.join(RAM)
    }

    /// Loads the state into a machine that was started with [`Memory::Restored`], and lets it continue.
    pub(super) fn restore(&self, qemu: &Qemu) -> Result<(), String> {
        prepare_transfer(qemu)?;
        let source = format!("exec:exec cat {}", quoted(&self.directory.join(STATE))?);
        execute(qemu, "migrate-incoming", json!({ "uri": source }))?;
        wait_for_transfer(qemu)?;
        execute(qemu, "cont", json!({}))
    }

    /// Removes the snapshot.
    pub(super) fn discard(&self) {
        // An error here means that another process has removed it.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Stops a machine and writes all but its memory to a file.
fn save(qemu: &Qemu, to: &Path) -> Result<(), String> {
    execute(qemu, "stop", json!({}))?;
    prepare_transfer(qemu)?;
    let target = format!("exec:exec cat > {}", quoted(to)?);
    execute(qemu, "migrate", json!({ "uri": target }))?;
    wait_for_transfer(qemu)
}

/// Leaves the memory, which is in a file, out of the stream (QEMU, `qapi/migration.json`, `x-ignore-shared`).
fn prepare_transfer(qemu: &Qemu) -> Result<(), String> {
    let capability = json!({ "capability": "x-ignore-shared", "state": true });
    let arguments = json!({ "capabilities": [capability] });
    execute(qemu, "migrate-set-capabilities", arguments)
}

fn wait_for_transfer(qemu: &Qemu) -> Result<(), String> {
    let end = Instant::now() + TRANSFER_LIMIT;
    loop {
        let progress = qemu.qmp().execute("query-migrate", json!({}));
        let progress = progress.map_err(|error| with_errors(qemu, &error))?;
        match progress["status"].as_str() {
            Some("completed") => return Ok(()),
            Some(failed @ ("failed" | "cancelled")) => {
                let reason = progress["error-desc"].as_str().unwrap_or_default();
                return Err(format!("{failed} {reason}; {}", qemu.stderr_tail()));
            }
            _ if Instant::now() > end => {
                return Err(format!("not within {} s", TRANSFER_LIMIT.as_secs()));
            }
            _ => thread::sleep(LOOK_AGAIN),
        }
    }
}

fn execute(qemu: &Qemu, command: &str, arguments: serde_json::Value) -> Result<(), String> {
    let answer = qemu.qmp().execute(command, arguments);
    answer.map(drop).map_err(|error| with_errors(qemu, &error))
}

/// QEMU writes why it ends to its standard error.
fn with_errors(qemu: &Qemu, error: &QmpError) -> String {
    format!("{error}; {}", qemu.stderr_tail())
}

/// Returns a path as a word of the shell that QEMU starts.
fn quoted(path: &Path) -> Result<String, String> {
    let invalid = || format!("{}: a path for the shell", path.display());
    let path = path.to_str().ok_or_else(invalid)?;
    shlex::try_quote(path)
        .map(std::borrow::Cow::into_owned)
        .map_err(|_| invalid())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0123";

    /// Writes a snapshot as if a machine had been saved.
    fn saved(snapshots: &Snapshots, key: &str) -> PathBuf {
        let directory = snapshots.directory.join(key);
        fs::create_dir_all(&directory).expect("made");
        for name in [RAM, STATE] {
            fs::write(directory.join(name), name).expect("written");
        }
        let record = Record::of(&directory).expect("a record");
        let record = serde_json::to_vec(&record).expect("text");
        fs::write(directory.join(RECORD), record).expect("written");
        directory
    }

    fn snapshots() -> (tempfile::TempDir, Snapshots) {
        let location = tempfile::tempdir().expect("a directory");
        let snapshots = Snapshots::new(location.path().to_owned());
        (location, snapshots)
    }

    fn age(path: &Path, age: Duration) {
        let file = File::open(path).expect("opened");
        file.set_modified(SystemTime::now() - age).expect("aged");
    }

    #[test]
    fn every_damage_is_noticed_and_ends_the_snapshot() {
        type Damage = fn(&Path);
        let damages: [(&str, Damage, &str); 6] = [
            (
                RAM,
                |path| fs::write(path, "r").expect("written"),
                "1 bytes, expected 3",
            ),
            (
                RAM,
                |path| fs::write(path, "rom").expect("written"),
                "was changed",
            ),
            (
                STATE,
                |path| fs::write(path, "STATE").expect("written"),
                "was changed",
            ),
            (
                STATE,
                |path| fs::remove_file(path).expect("removed"),
                "No such file",
            ),
            (RECORD, |path| fs::write(path, "{").expect("written"), "EOF"),
            (
                RECORD,
                |path| {
                    let text = fs::read_to_string(path).expect("read");
                    let mut record: Record = serde_json::from_str(&text).expect("a record");
                    record.boot = "another".to_owned();
                    fs::write(path, serde_json::to_vec(&record).expect("text")).expect("written");
                },
                "before this machine restarted",
            ),
        ];
        for (name, damage, reason) in damages {
            let (_location, snapshots) = snapshots();
            assert!(matches!(snapshots.open(KEY), Err(Absent::NotMade)));
            let directory = saved(&snapshots, KEY);
            snapshots.open(KEY).expect("usable");
            damage(&directory.join(name));
            match snapshots.open(KEY) {
                Err(Absent::Damaged(found)) => assert!(found.contains(reason), "{found}"),
                other => panic!("{name} is damaged: {other:?}"),
            }
            assert!(!directory.exists(), "{name}");
        }
    }

    #[test]
    fn removes_what_is_old_but_nothing_in_use() {
        let (_location, snapshots) = snapshots();
        let [new, old, used] = ["new", "old", "used"].map(|key| saved(&snapshots, key));
        let in_use = snapshots.open("used").expect("usable");
        let killed = snapshots.directory.join(".new-killed");
        fs::create_dir(&killed).expect("made");
        for path in [&old, &used, &killed] {
            age(path, KEPT + Duration::from_secs(60));
        }
        let unfinished = snapshots.begin().expect("begun");
        assert!(new.exists() && used.exists() && unfinished.ram().parent().is_some());
        assert!(!old.exists() && !killed.exists());
        drop(in_use);
        snapshots.remove_old();
        assert!(!used.exists());
    }

    #[test]
    fn an_opened_snapshot_is_new_again() {
        let (_location, snapshots) = snapshots();
        let directory = saved(&snapshots, KEY);
        age(&directory, KEPT - Duration::from_secs(60));
        drop(snapshots.open(KEY).expect("usable"));
        let age = fs::metadata(&directory)
            .expect("there")
            .modified()
            .expect("a time");
        assert!(age.elapsed().expect("in the past") < KEPT / 2);
    }

    #[test]
    fn removes_those_that_were_not_used_for_longest_if_all_are_too_large() {
        let (_location, snapshots) = snapshots();
        let keys = ["oldest", "older", "newest"];
        let directories = keys.map(|key| saved(&snapshots, key));
        for (number, directory) in directories.iter().enumerate() {
            age(directory, Duration::from_secs(3600 * (3 - number as u64)));
        }
        let of_one = disk_bytes(&directories[0]);
        assert!(of_one > 0);
        snapshots.remove_old_beyond(2 * of_one);
        let left = directories.map(|directory| directory.exists());
        assert_eq!(left, [false, true, true]);
    }

    #[test]
    fn a_key_depends_on_every_part_but_the_directory_of_the_run() {
        let location = tempfile::tempdir().expect("a directory");
        let file = location.path().join("kernel");
        fs::write(&file, "one").expect("written");
        let key = |emulator: &str, arguments: &[&str], run: &str| {
            let emulator = QemuCommand {
                program: emulator.into(),
                ..QemuCommand::default()
            };
            let mut key = KeyBuilder::new(&emulator);
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            key.add_arguments(&arguments, Path::new(run));
            key.add_file(&file);
            key.finish()
        };
        let first = key("true", &["-m", "1M", "path=/run/1/port"], "/run/1");
        assert_eq!(
            first,
            key("true", &["-m", "1M", "path=/run/2/port"], "/run/2")
        );
        assert_ne!(
            first,
            key("false", &["-m", "1M", "path=/run/1/port"], "/run/1")
        );
        assert_ne!(
            first,
            key("true", &["-m1", "M", "path=/run/1/port"], "/run/1")
        );
        assert_ne!(
            first,
            key("true", &["-m", "2M", "path=/run/1/port"], "/run/1")
        );
        fs::write(&file, "two").expect("written");
        assert_ne!(
            first,
            key("true", &["-m", "1M", "path=/run/1/port"], "/run/1")
        );
    }
}
