// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Takes back what an ended process left changed.

use std::path::{Path, PathBuf};

use rampart_model::{Finding, ReleaseReport, Restored, Severity};

use crate::active_plan;
use crate::journal::{self, Header, JOURNAL_VERSION, Recorded};
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::Lock;
use crate::state::is_root;
use crate::tasks;
use crate::undo::undo;
use crate::{HostError, StateDirectory};

/// A journal that was not released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingJournal {
    /// Its file.
    pub path: PathBuf,
    /// The process that wrote it.
    pub owner: u32,
    /// Whether that process still lives, so that the changes are in use.
    pub owner_alive: bool,
    /// How many changes it holds.
    pub changes: usize,
    /// Whether they are those of an applied plan, which stands without its process, or its boot
    /// line.
    pub standing: bool,
}

/// Puts back everything that ended processes left changed, and takes back the applied plan.
/// Nothing to do is no error.
///
/// # Errors
/// If a living process holds the machine, or a journal cannot be read or removed.
pub fn release(state: &StateDirectory) -> Result<ReleaseReport, HostError> {
    release_on(&RunningKernel, state, is_root())
}

/// With `machine` the lock of the whole machine is taken too.
fn release_on(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    machine: bool,
) -> Result<ReleaseReport, HostError> {
    // An application that ends before its first change leaves its document alone.
    if !journal::directory(state).is_dir() && !active_plan::is_there(state) {
        return Ok(ReleaseReport::default());
    }
    let _lock = Lock::take(state, machine)?;
    release_locked(kernel, state)
}

/// Which journals are released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All.
    All,
    /// Those of processes that have ended; an applied plan stands.
    Ended,
}

/// The journals that were not released yet.
#[must_use]
pub fn pending(state: &StateDirectory) -> Vec<PendingJournal> {
    journal::files(state)
        .into_iter()
        .filter_map(|path| {
            let recorded = journal::read(&path).ok()?;
            let header = recorded.header?;
            Some(PendingJournal {
                path,
                owner: header.owner,
                owner_alive: is_alive(&RunningKernel, &header),
                changes: recorded.changes.len(),
                standing: header.standing || header.outlives_restart,
            })
        })
        .collect()
}

fn is_alive(kernel: &dyn Kernel, header: &Header) -> bool {
    header.boot == journal::boot_id(kernel)
        && tasks::stat_of(kernel, header.owner).is_some_and(|stat| stat.start == header.owner_start)
}

/// Releases every journal of a state directory whose lock is held: whoever wrote them is done.
/// Where nothing of an applied plan is left, its document goes too.
pub(crate) fn release_locked(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<ReleaseReport, HostError> {
    let mut report = release_those(kernel, state, Which::All)?;
    if journal::files(state).is_empty() && active_plan::is_there(state) {
        kernel.step().map_err(|cause| {
            let fix = "run `rampart release` again";
            HostError::file("go on", state.path(), cause, fix)
        })?;
        active_plan::remove(state)?;
        if report == ReleaseReport::default() {
            report.restored.push(Restored {
                location: state.path().join("plan.json").display().to_string(),
                what: "removed; the plan had changed nothing".to_owned(),
            });
        }
    }
    Ok(report)
}

pub(crate) fn release_those(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    which: Which,
) -> Result<ReleaseReport, HostError> {
    let mut report = ReleaseReport::default();
    for path in journal::files(state) {
        let recorded = journal::read(&path)?;
        let is_active = recorded
            .header
            .as_ref()
            .is_some_and(|header| stands(kernel, header));
        if which == Which::Ended && is_active {
            continue;
        }
        if release_one(kernel, &path, &recorded, &mut report)? {
            journal::remove(&path)?;
            report.journals.push(path);
        }
    }
    Ok(report)
}

/// Whether what a journal tells of is there until somebody asks for its release.
fn stands(kernel: &dyn Kernel, header: &Header) -> bool {
    header.outlives_restart || (header.standing && header.boot == journal::boot_id(kernel))
}

/// Whether the journal is done with.
fn release_one(
    kernel: &dyn Kernel,
    path: &Path,
    recorded: &Recorded,
    report: &mut ReleaseReport,
) -> Result<bool, HostError> {
    let location = path.display().to_string();
    // Without a header on the disk nothing had been changed yet.
    let Some(header) = &recorded.header else {
        return Ok(true);
    };
    if header.version != JOURNAL_VERSION {
        report.left.push(
            Finding::new(
                Severity::Error,
                location,
                "another version of Rampart wrote this journal",
            )
            .values(header.version.to_string(), JOURNAL_VERSION.to_string())
            .fix("run `rampart release` of that version, or restart the machine"),
        );
        return Ok(false);
    }
    if header.boot != journal::boot_id(kernel) && !header.outlives_restart {
        report.left.push(Finding::new(
            Severity::Note,
            location,
            "the machine was restarted since, which undid the changes; the journal was discarded",
        ));
        return Ok(true);
    }
    let mut file = journal::open(path);
    let mark = |number| {
        if let Some(file) = &mut file {
            journal::mark(file, number);
        }
    };
    let undone = undo(kernel, &recorded.changes, mark).map_err(|cause| {
        HostError::file(
            "undo the journal",
            path,
            cause,
            "run `rampart release` again",
        )
    })?;
    let done = undone.failed.is_empty() && !recorded.damaged;
    if recorded.damaged {
        report.left.push(
            Finding::new(
                Severity::Error,
                location,
                "a line of this journal cannot be read; the other changes were undone",
            )
            .fix("undo what the line tells of by hand and remove the file, or restart the machine"),
        );
    }
    report.restored.extend(undone.restored);
    report.left.extend(undone.left);
    report.left.extend(undone.failed);
    Ok(done)
}

/// Puts back what an ended process left, and tells. What was written for the boot loader is not
/// left, but stands until somebody asks for its release.
pub(crate) fn release_first(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<Vec<Finding>, HostError> {
    let report = release_those(kernel, state, Which::Ended)?;
    let mut findings = Vec::new();
    if !report.restored.is_empty() {
        findings.push(Finding::new(
            Severity::Note,
            state.path().display().to_string(),
            format!(
                "{} changes that an ended process had left were put back first",
                report.restored.len()
            ),
        ));
    }
    findings.extend(report.left);
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, ordinary};

    /// Killed between the document and the first line of the journal, or of a plan that needed no
    /// change: there is no journal, and the plan is released all the same.
    #[test]
    fn a_plan_without_a_journal_is_released() {
        let directory = crate::fake::directory();
        let state = StateDirectory::at(directory.path().join("state"));
        let kernel = FakeKernel::new(ordinary(Layout::V2));
        let release = || release_on(&kernel, &state, false).expect("released");
        assert_eq!(release(), ReleaseReport::default());
        assert!(!state.path().exists(), "nothing to do makes no directory");

        std::fs::create_dir_all(state.path()).expect("directory");
        for text in ["{\"state\": \"begun\"}", "cut o"] {
            std::fs::write(state.path().join("plan.json"), text).expect("written");
            let report = release();
            assert!(!active_plan::is_there(&state), "{text}");
            assert_eq!(report.restored.len(), 1, "{report:?}");
        }
    }
}
