// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Undoes the changes of ended processes and of the active plan.

use std::path::Path;

use rampart_model::{Finding, ReleaseReport, Restored, Severity};

use crate::active_plan;
use crate::journal::{self, Header, JOURNAL_VERSION, Recorded};
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::Lock;
use crate::state_directory::is_root;
use crate::undo::undo;
use crate::{HostError, StateDirectory};

/// Undoes all changes of ended processes and of the applied plan. Does nothing without any.
///
/// # Errors
/// If a running process has shielded the machine, or a journal cannot be read or removed.
pub fn release(state: &StateDirectory) -> Result<ReleaseReport, HostError> {
    release_on(&RunningKernel, state, is_root())
}

/// Does what [`release`] does, and takes the lock of the machine too if `machine` is set.
fn release_on(
    kernel: &dyn Kernel,
    state: &StateDirectory,
    machine: bool,
) -> Result<ReleaseReport, HostError> {
    // An application that ended before its first change has left only plan.json.
    if !journal::directory(state).is_dir() && !active_plan::exists(state) {
        return Ok(ReleaseReport::default());
    }
    let _lock = Lock::take(state, machine)?;
    release_locked(kernel, state)
}

/// The journals to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// All.
    All,
    /// Those of ended processes; an applied plan stays active.
    Ended,
}

/// Releases every journal of a state directory whose lock is held. Removes `plan.json` if nothing of
/// the plan is left.
pub(crate) fn release_locked(
    kernel: &dyn Kernel,
    state: &StateDirectory,
) -> Result<ReleaseReport, HostError> {
    let mut report = release_those(kernel, state, Which::All)?;
    if journal::files(state).is_empty() && active_plan::exists(state) {
        kernel
            .step()
            .map_err(|cause| HostError::file("write to", state.path(), cause, "rampart release"))?;
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
        let is_in_effect = recorded
            .header
            .as_ref()
            .is_some_and(|header| is_in_effect(kernel, header));
        if which == Which::Ended && is_in_effect {
            continue;
        }
        if release_one(kernel, &path, &recorded, &mut report)? {
            journal::remove(&path)?;
            report.journals.push(path);
        }
    }
    Ok(report)
}

/// Returns whether a journal's changes stay in effect until the user releases them.
fn is_in_effect(kernel: &dyn Kernel, header: &Header) -> bool {
    header.outlives_restart || (header.persistent && header.boot == journal::boot_id(kernel))
}

/// Undoes the changes of a journal. Returns whether all were undone.
fn release_one(
    kernel: &dyn Kernel,
    path: &Path,
    recorded: &Recorded,
    report: &mut ReleaseReport,
) -> Result<bool, HostError> {
    let location = path.display().to_string();
    let Some(header) = &recorded.header else {
        // The header reaches the disk before the first change is made.
        if recorded.is_unused() {
            return Ok(true);
        }
        report.left.push(
            Finding::new(
                Severity::Error,
                location,
                "the header of this journal cannot be read; nothing was undone",
            )
            .fix(format!(
                "run `rampart release` of the version that wrote it\nrestart the machine, then rm {}",
                path.display()
            )),
        );
        return Ok(false);
    };
    if header.version != JOURNAL_VERSION {
        report.left.push(
            Finding::new(
                Severity::Error,
                location,
                "another version of Rampart wrote this journal",
            )
            .values(header.version.to_string(), JOURNAL_VERSION.to_string())
            .fix("run `rampart release` of that version\nrestart the machine"),
        );
        return Ok(false);
    }
    if header.boot != journal::boot_id(kernel) && !header.outlives_restart {
        report.left.push(Finding::new(
            Severity::Note,
            location,
            "a restart of the machine undid the changes; the journal was discarded",
        ));
        return Ok(true);
    }
    let mut file = journal::open(path);
    let mark = |number| {
        if let Some(file) = &mut file {
            journal::mark(file, number);
        }
    };
    let undone = undo(kernel, &recorded.changes, mark)
        .map_err(|cause| HostError::file("undo the journal", path, cause, "rampart release"))?;
    let done = undone.failed.is_empty() && !recorded.damaged;
    if recorded.damaged {
        report.left.push(
            Finding::new(
                Severity::Error,
                location,
                "a line of this journal cannot be read; the other changes were undone",
            )
            .fix(format!("restart the machine, then rm {}", path.display())),
        );
    }
    report.restored.extend(undone.restored);
    report.left.extend(undone.left);
    report.left.extend(undone.failed);
    Ok(done)
}

/// Undoes the changes of ended processes and returns findings about that. Keeps files of the boot
/// loader until the user releases them.
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
                "{} changes of an ended process were undone first",
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

    /// A journal without a header that this version reads may be the only record of the old values.
    #[test]
    fn a_journal_that_cannot_be_read_is_kept() {
        let directory = crate::fake::directory();
        let state = StateDirectory::at(directory.path().join("state"));
        let kernel = FakeKernel::new(ordinary(Layout::V2));
        let journals = journal::directory(&state);
        std::fs::create_dir_all(&journals).expect("directory");
        let path = journals.join("1-2-3.jsonl");
        let change = r#"{"change":{"change":"group","path":"/sys/fs/cgroup/x","home":null}}"#;
        for (text, problem) in [
            (
                format!("{{\"header\":{{\"version\":1,\"boot\":7}}}}\n{change}\n"),
                "header",
            ),
            (
                format!("{{\"header\":{{\"version\":1,\"boot\":\"a\"}}}}\n{change}\n"),
                "another version",
            ),
            (format!("{change}\n"), "header"),
        ] {
            std::fs::write(&path, &text).expect("written");
            let report = release_on(&kernel, &state, false).expect("a report");
            assert!(report.left[0].to_string().contains(problem), "{report:?}");
            assert_eq!(std::fs::read_to_string(&path).expect("kept"), text);
        }
    }

    /// There is no journal if the process was killed before its first line, or the plan needed no
    /// change.
    #[test]
    fn a_plan_without_a_journal_is_released() {
        let directory = crate::fake::directory();
        let state = StateDirectory::at(directory.path().join("state"));
        let kernel = FakeKernel::new(ordinary(Layout::V2));
        let release = || release_on(&kernel, &state, false).expect("released");
        assert_eq!(release(), ReleaseReport::default());
        assert!(!state.path().exists(), "creates no directory");

        std::fs::create_dir_all(state.path()).expect("directory");
        for text in ["{\"state\": \"begun\"}", "cut o"] {
            std::fs::write(state.path().join("plan.json"), text).expect("written");
            let report = release();
            assert!(!active_plan::exists(&state), "{text}");
            assert_eq!(report.restored.len(), 1, "{report:?}");
        }
    }
}
