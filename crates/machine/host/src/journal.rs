// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal: what was there before, on disk before it is changed.
//!
//! One file a shield, one JSON object a line, a header first. Lines are appended and synced
//! before the writes that they tell of, so that a line cut off by a sudden end tells of a write
//! that never was. Reading the lines backwards and undoing each, whether or not its write took
//! place, leads back to the start (see the module `undo`). What is undone is marked in the same
//! file, without a sync: the marks matter after a sudden end of the process, which the kernel's
//! own copy of the file outlives, and not after one of the machine, which undoes everything.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde::{Deserialize, Serialize};

use crate::kernel::Kernel;
use crate::notation::Notation;
use crate::policy::Attributes;
use crate::tasks::{self, Task};
use crate::{HostError, StateDirectory};

/// Number of this form of the journal.
pub(crate) const JOURNAL_VERSION: u32 = 1;

/// Who wrote a journal, and under which boot of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`JOURNAL_VERSION`].
    pub(crate) version: u32,
    /// `/proc/sys/kernel/random/boot_id`: what is in the kernel does not outlive it.
    pub(crate) boot: String,
    /// The process.
    pub(crate) owner: u32,
    /// When that process started, in clock ticks since boot.
    pub(crate) owner_start: u64,
    /// Whether its changes stand after that process ended: those of an applied plan do.
    #[serde(default)]
    pub(crate) standing: bool,
    /// Whether what it tells of outlives a restart of the machine, as files of the boot loader do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) outlives_restart: bool,
}

/// One intended change, with all that is needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub(crate) enum Change {
    /// A file gets another value.
    Value {
        path: PathBuf,
        old: String,
        new: String,
        notation: Notation,
    },
    /// A controller is switched on for the children of a v2 group, or may be by a container
    /// runtime.
    Controller { path: PathBuf, controller: String },
    /// A control group is made, or may be made below by a container runtime.
    /// Tasks in it go to `home` before it is removed; without a home it is removed only empty.
    Group {
        path: PathBuf,
        home: Option<PathBuf>,
    },
    /// Threads move from one group to another. With `sweep`, threads that they fork there
    /// meanwhile go back with them.
    Tasks {
        from: PathBuf,
        to: PathBuf,
        sweep: bool,
        tasks: Vec<Task>,
    },
    /// The kernel may widen these affinities when the threads change group or their group
    /// changes its CPUs (before 6.2 it forgets what a thread asked for).
    Affinities { tasks: Vec<Task> },
    /// A thread gets another affinity.
    Affinity {
        task: Task,
        new: rampart_model::CpuSet,
    },
    /// A thread gets another policy.
    Policy {
        task: Task,
        old: Attributes,
        new: Attributes,
    },
    /// A file that lists words, each a switch, has `on` in it, and gets `off` in its place.
    Switch {
        path: PathBuf,
        on: String,
        off: String,
    },
    /// An instance of the kernel's tracing is made.
    TracingInstance { path: PathBuf },
    /// A file system of the kernel is mounted.
    Mount {
        #[serde(default = "tracefs")]
        kind: String,
        point: PathBuf,
    },
    /// A group of resctrl is made. Its tasks and CPUs are the default group's when it is removed.
    CacheGroup { path: PathBuf },
    /// A file of the boot loader gets another text, or is made.
    BootFile {
        path: PathBuf,
        old: Option<String>,
        new: String,
        /// The directories that were made with it, the innermost first.
        made_directories: Vec<PathBuf>,
        /// A program made it, and can make it again.
        is_made: bool,
    },
    /// A program of the boot loader makes `output` from files whose changes are recorded after this.
    BootCommand {
        words: Vec<String>,
        output: PathBuf,
        old: Option<String>,
    },
    /// A unit of systemd gets another value of a property until the next restart.
    UnitProperty {
        unit: String,
        property: String,
        old: String,
        new: String,
        /// A file of systemd's held the old value.
        had_drop_in: bool,
    },
    /// A service of systemd is stopped.
    ServiceStopped { unit: String },
    /// A module of the kernel is loaded.
    Module { name: String },
    /// The kernel looks for firmware in `directory` first, which holds a copy of an image.
    FirmwarePath { old: String, directory: PathBuf },
}

/// What was mounted when only that was.
fn tracefs() -> String {
    "tracefs".to_owned()
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Line {
    Header(Header),
    Change(Change),
    /// The change of this number, counted from 0, is undone.
    Undone(usize),
}

/// A journal that is being written. The file is made with the first line.
#[derive(Debug)]
pub(crate) struct Journal {
    kernel: Arc<dyn Kernel>,
    directory: PathBuf,
    path: PathBuf,
    file: Option<File>,
    /// Number of the next change.
    next: usize,
    outlives_restart: bool,
    standing: bool,
}

/// What a journal file holds.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// None where not even the header reached the disk.
    pub(crate) header: Option<Header>,
    /// Those not undone yet with their numbers, in the order in which they were made.
    pub(crate) changes: Vec<(usize, Change)>,
    /// Whether a line other than the last cannot be read.
    pub(crate) damaged: bool,
}

/// Identifier of the present boot.
pub(crate) fn boot_id(kernel: &dyn Kernel) -> String {
    kernel
        .read(Path::new("/proc/sys/kernel/random/boot_id"))
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Where the journals of a state directory lie.
pub(crate) fn directory(state: &StateDirectory) -> PathBuf {
    state.path().join("journal")
}

/// The journals of a state directory, the newest first.
pub(crate) fn files(state: &StateDirectory) -> Vec<PathBuf> {
    let mut files: Vec<(std::time::SystemTime, PathBuf)> = std::fs::read_dir(directory(state))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "jsonl"))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    files.into_iter().rev().map(|(_, path)| path).collect()
}

/// Reads a journal. A last line that was cut off is left out.
pub(crate) fn read(path: &Path) -> Result<Recorded, HostError> {
    let text = std::fs::read(path).map_err(|cause| {
        HostError::file(
            "read the journal",
            path,
            cause,
            "make it readable, or undo by hand and remove it",
        )
    })?;
    let mut recorded = Recorded {
        header: None,
        changes: Vec::new(),
        damaged: false,
    };
    let mut count = 0;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    for (index, line) in lines.iter().enumerate() {
        match serde_json::from_slice(line) {
            Ok(Line::Header(header)) => recorded.header = Some(header),
            Ok(Line::Change(change)) => {
                recorded.changes.push((count, change));
                count += 1;
            }
            Ok(Line::Undone(undone)) => recorded.changes.retain(|(number, _)| *number != undone),
            Err(_) => recorded.damaged |= index + 1 < lines.len(),
        }
    }
    Ok(recorded)
}

/// Removes a journal whose changes are undone.
pub(crate) fn remove(path: &Path) -> Result<(), HostError> {
    std::fs::remove_file(path)
        .and_then(|()| sync_directory_of(path))
        .map_err(|cause| HostError::file("remove the journal", path, cause, "remove it by hand"))
}

/// Opens a journal whose owner has ended, to mark in it what is undone.
pub(crate) fn open(path: &Path) -> Option<File> {
    OpenOptions::new().append(true).open(path).ok()
}

/// Marks a change as undone. A mark that cannot be written (the disk may be full) is left out:
/// what is undone twice is still undone.
pub(crate) fn mark(file: &mut File, number: usize) {
    if let Ok(mut line) = serde_json::to_vec(&Line::Undone(number)) {
        line.push(b'\n');
        let _ = file.write_all(&line);
    }
}

fn sync_directory_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

impl Journal {
    /// A journal in `state` that nothing was written to yet.
    pub(crate) fn new(kernel: Arc<dyn Kernel>, state: &StateDirectory) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let directory = directory(state);
        let owner = std::process::id();
        let start = tasks::stat_of(&*kernel, owner).map_or(0, |stat| stat.start);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("{owner}-{start}-{count}.jsonl"));
        Self {
            kernel,
            directory,
            path,
            file: None,
            next: 0,
            standing: false,
            outlives_restart: false,
        }
    }

    /// The same for changes that no restart undoes, and which stand until then.
    pub(crate) fn outliving(self) -> Self {
        Self {
            outlives_restart: true,
            ..self
        }
    }

    /// The same for changes that stand after this process has ended.
    pub(crate) fn standing(self) -> Self {
        Self {
            standing: true,
            ..self
        }
    }

    /// Its file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether nothing was written to it.
    pub(crate) fn is_empty(&self) -> bool {
        self.file.is_none()
    }

    /// Marks a change as undone.
    pub(crate) fn mark(&mut self, number: usize) {
        if let Some(file) = &mut self.file {
            mark(file, number);
        }
    }

    /// Brings intended changes to the disk and answers the number of the first. Only after this
    /// may they be made.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<usize, HostError> {
        let first = self.next;
        if changes.is_empty() {
            return Ok(first);
        }
        self.try_append(changes).map_err(|cause| {
            HostError::file(
                "write the journal, so nothing more is changed",
                &self.path,
                cause,
                "make its directory writable and free some space there, or name another one in RAMPART_STATE_DIR",
            )
        })?;
        self.next += changes.len();
        Ok(first)
    }

    fn try_append(&mut self, changes: &[Change]) -> io::Result<()> {
        self.kernel.step()?;
        let mut text = Vec::new();
        let new = self.file.is_none();
        if new {
            let owner = std::process::id();
            let header = Line::Header(Header {
                version: JOURNAL_VERSION,
                boot: boot_id(&*self.kernel),
                owner,
                owner_start: tasks::stat_of(&*self.kernel, owner).map_or(0, |stat| stat.start),
                outlives_restart: self.outlives_restart,
                standing: self.standing,
            });
            serde_json::to_writer(&mut text, &header)?;
            text.push(b'\n');
        }
        for change in changes {
            serde_json::to_writer(&mut text, &Line::Change(change.clone()))?;
            text.push(b'\n');
        }
        let file = match &mut self.file {
            Some(file) => file,
            empty @ None => {
                std::fs::create_dir_all(&self.directory)?;
                let file = OpenOptions::new()
                    .append(true)
                    .create_new(true)
                    .open(&self.path)?;
                empty.insert(file)
            }
        };
        file.write_all(&text)?;
        self.kernel.step()?;
        file.sync_all()?;
        if new {
            sync_directory_of(&self.path)?;
        }
        self.kernel.step()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cut_off_is_left_out_and_a_broken_one_is_told() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("a.jsonl");
        let change = Line::Change(Change::Group {
            path: "/sys/fs/cgroup/x".into(),
            home: None,
        });
        let whole = serde_json::to_string(&change).expect("json");
        std::fs::write(&path, format!("{whole}\n{}", &whole[..20])).expect("write");
        let recorded = read(&path).expect("read");
        assert_eq!(recorded.changes.len(), 1);
        assert!(!recorded.damaged && recorded.header.is_none());
        std::fs::write(&path, format!("{}\n{whole}\n", &whole[..20])).expect("write");
        let recorded = read(&path).expect("read");
        assert_eq!(recorded.changes.len(), 1);
        assert!(recorded.damaged);
    }
}
