// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The journal: records old values on disk before they are changed.
//!
//! A journal is one file for each shield or plan, with one JSON object on each line, a header first.
//! Lines are appended and synced before the writes that they describe, so a truncated line describes
//! a write that was not made. Undoing the lines in reverse order, whether or not their writes were
//! made, restores the machine (see the module `undo`). Undone changes are marked in the same file
//! without a sync: the marks matter after a crash of the process, which the page cache survives, and
//! not after a crash of the machine, which undoes everything.

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

/// Version of the journal's format. Version 1 had other names for the lifetime of a journal.
pub(crate) const JOURNAL_VERSION: u32 = 2;

/// Version, boot and lifetime of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Header {
    /// [`JOURNAL_VERSION`].
    pub(crate) version: u32,
    /// `/proc/sys/kernel/random/boot_id`: a restart undoes changes in the kernel.
    pub(crate) boot: String,
    /// Whether its changes stay in effect after the process that wrote it, as those of a plan.
    #[serde(default)]
    pub(crate) persistent: bool,
    /// Whether its changes outlive a restart of the machine, as files of the boot loader.
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
    /// A controller is enabled for the children of a v2 group, by Rampart or a container runtime.
    Controller { path: PathBuf, controller: String },
    /// A control group is created, by Rampart or a container runtime below it. Its tasks are moved
    /// to `home` before it is removed; without a home it is removed only if it is empty.
    Group {
        path: PathBuf,
        home: Option<PathBuf>,
    },
    /// Threads move from one group to another. With `sweep`, threads that they forked there
    /// meanwhile are moved back with them.
    Tasks {
        from: PathBuf,
        to: PathBuf,
        sweep: bool,
        tasks: Vec<Task>,
    },
    /// The kernel may widen these affinities when the threads change group or their group
    /// changes its CPUs (before 6.2 it forgets the affinity that a thread requested).
    Affinities { tasks: Vec<Task> },
    /// A thread gets another affinity.
    Affinity {
        task: Task,
        new: rampart_model::CpuSet,
    },
    /// A thread gets another scheduling policy.
    Policy {
        task: Task,
        old: Attributes,
        new: Attributes,
    },
    /// A file that lists flags contains `on`, and gets `off` instead.
    Switch {
        path: PathBuf,
        on: String,
        off: String,
    },
    /// An instance of the kernel's tracing is created.
    TracingInstance { path: PathBuf },
    /// A file system of the kernel is mounted.
    Mount {
        #[serde(default = "tracefs")]
        kind: String,
        point: PathBuf,
    },
    /// A group of resctrl is created. When it is removed, its tasks and CPUs return to the default
    /// group.
    CacheGroup { path: PathBuf },
    /// A file of the boot loader is changed or created.
    BootFile {
        path: PathBuf,
        old: Option<String>,
        new: String,
        /// The directories created for it, the innermost first.
        created_directories: Vec<PathBuf>,
        /// Whether a program generates it, and can generate it again.
        is_generated: bool,
    },
    /// A program of the boot loader generates `output` from files whose changes are recorded after
    /// this.
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
        /// Whether a file of systemd contained the old value.
        had_drop_in: bool,
    },
    /// A service of systemd is stopped.
    ServiceStopped { unit: String },
    /// A CPU is taken for detached threads of the process `holder`, which started at `start`.
    TakenCpu {
        cpu: rampart_model::CpuId,
        holder: u32,
        start: u64,
    },
    /// A module of the kernel is loaded.
    Module { name: String },
    /// The kernel searches firmware in `directory` first, which contains a copy of an image.
    FirmwarePath { old: String, directory: PathBuf },
}

/// The file system of mounts that were recorded without one.
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

/// A journal that is being written. The file is created with the first line.
#[derive(Debug)]
pub(crate) struct Journal {
    kernel: Arc<dyn Kernel>,
    directory: PathBuf,
    path: PathBuf,
    file: Option<File>,
    /// Number of the next change.
    next: usize,
    outlives_restart: bool,
    persistent: bool,
}

/// The content of a journal file.
#[derive(Debug)]
pub(crate) struct Recorded {
    /// `None` if the header did not reach the disk.
    pub(crate) header: Option<Header>,
    /// The changes not undone yet with their numbers, in the order in which they were made.
    pub(crate) changes: Vec<(usize, Change)>,
    /// Whether a whole line cannot be read.
    pub(crate) damaged: bool,
}

impl Recorded {
    /// Returns whether the journal ends before its header, so that no change was made.
    pub(crate) fn is_unused(&self) -> bool {
        self.header.is_none() && self.changes.is_empty() && !self.damaged
    }
}

/// Returns the identifier of the current boot.
pub(crate) fn boot_id(kernel: &dyn Kernel) -> String {
    kernel
        .read(Path::new("/proc/sys/kernel/random/boot_id"))
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Returns the directory of the journals of a state directory.
pub(crate) fn directory(state: &StateDirectory) -> PathBuf {
    state.path().join("journal")
}

/// Returns the journals of a state directory, the newest first.
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

/// Reads a journal. Ignores a truncated last line.
pub(crate) fn read(path: &Path) -> Result<Recorded, HostError> {
    let text = std::fs::read(path).map_err(|cause| {
        let fix = "make the file readable and run `rampart release`";
        HostError::file("read the journal", path, cause, fix)
    })?;
    let mut recorded = Recorded {
        header: None,
        changes: Vec::new(),
        damaged: false,
    };
    let mut count = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(Line::Header(header)) => recorded.header = Some(header),
            Ok(Line::Change(change)) => {
                recorded.changes.push((count, change));
                count += 1;
            }
            Ok(Line::Undone(undone)) => recorded.changes.retain(|(number, _)| *number != undone),
            Err(_) => recorded.damaged |= line.ends_with(b"\n"),
        }
    }
    Ok(recorded)
}

/// Removes a journal whose changes are undone.
pub(crate) fn remove(path: &Path) -> Result<(), HostError> {
    std::fs::remove_file(path)
        .and_then(|()| sync_directory_of(path))
        .map_err(|cause| {
            let fix = format!("rm {}", path.display());
            HostError::file("remove the journal", path, cause, fix)
        })
}

/// Opens a journal whose owner has ended, to mark undone changes in it.
pub(crate) fn open(path: &Path) -> Option<File> {
    OpenOptions::new().append(true).open(path).ok()
}

/// Marks a change as undone. A mark that cannot be written, for instance on a full disk, is left out:
/// undoing a change twice does no harm.
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
    /// Returns an empty journal in `state`.
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
            persistent: false,
            outlives_restart: false,
        }
    }

    /// Marks the journal's changes as ones that no restart undoes.
    pub(crate) fn across_restarts(self) -> Self {
        Self {
            outlives_restart: true,
            ..self
        }
    }

    /// Marks the journal's changes as ones that stay in effect after this process has ended.
    pub(crate) fn persistent(self) -> Self {
        Self {
            persistent: true,
            ..self
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.file.is_none()
    }

    pub(crate) fn mark(&mut self, number: usize) {
        if let Some(file) = &mut self.file {
            mark(file, number);
        }
    }

    /// Writes intended changes to the disk and returns the number of the first. They may be made
    /// only after this.
    pub(crate) fn append(&mut self, changes: &[Change]) -> Result<usize, HostError> {
        let first = self.next;
        if changes.is_empty() {
            return Ok(first);
        }
        self.try_append(changes).map_err(|cause| {
            HostError::file(
                "write the journal",
                &self.path,
                cause,
                "set RAMPART_STATE_DIR to a writable directory with free space",
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
            let header = Line::Header(Header {
                version: JOURNAL_VERSION,
                boot: boot_id(&*self.kernel),
                outlives_restart: self.outlives_restart,
                persistent: self.persistent,
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
    fn ignores_a_truncated_last_line_and_reports_a_damaged_one() {
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
        assert!(!recorded.is_unused());
        std::fs::write(&path, format!("{}\n{whole}\n", &whole[..20])).expect("write");
        let recorded = read(&path).expect("read");
        assert_eq!(recorded.changes.len(), 1);
        assert!(recorded.damaged);
        for (text, is_unused) in [
            ("", true),
            (&whole[..20], true),
            ("{\"header\": {}}\n", false),
        ] {
            std::fs::write(&path, text).expect("write");
            assert_eq!(read(&path).expect("read").is_unused(), is_unused, "{text}");
        }
    }
}
