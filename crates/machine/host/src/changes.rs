// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes to a machine. The old value is on disk before each change is made.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rampart_model::{CpuSet, SchedulingPolicy};

use crate::journal::{self, Change, Journal};
use crate::kernel::Kernel;
use crate::notation::Notation;
use crate::policy::Attributes;
use crate::tasks::Task;
use crate::undo::{Undone, undo};
use crate::{HostError, StateDirectory};

/// A file and the value to write to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) path: PathBuf,
    pub(crate) value: String,
    pub(crate) notation: Notation,
}

impl Setting {
    /// Returns a setting of CPUs as a list.
    pub(crate) fn list(path: impl Into<PathBuf>, cpus: &CpuSet) -> Self {
        Self::cpus(path, cpus, Notation::List)
    }

    /// Returns a setting of CPUs in a notation.
    pub(crate) fn cpus(path: impl Into<PathBuf>, cpus: &CpuSet, notation: Notation) -> Self {
        Self {
            path: path.into(),
            value: notation.write(cpus),
            notation,
        }
    }

    /// Returns a setting of a text or number.
    pub(crate) fn text(path: impl Into<PathBuf>, value: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            value: value.into(),
            notation: Notation::Text,
        }
    }
}

/// The changes of one shield, plan or driver, with their journal.
#[derive(Debug)]
pub(crate) struct Changes {
    kernel: Arc<dyn Kernel>,
    journal: Journal,
    made: Vec<(usize, Change)>,
}

impl Changes {
    /// Starts a list of changes that are undone when this process has ended.
    pub(crate) fn new(kernel: Arc<dyn Kernel>, state: &StateDirectory) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&kernel), state),
            kernel,
            made: Vec::new(),
        }
    }

    /// Starts a list of changes that stay in effect after this process and after a restart.
    pub(crate) fn across_restarts(kernel: Arc<dyn Kernel>, state: &StateDirectory) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&kernel), state).across_restarts(),
            kernel,
            made: Vec::new(),
        }
    }

    /// Starts a list of changes that stay in effect after this process has ended.
    pub(crate) fn persistent(kernel: Arc<dyn Kernel>, state: &StateDirectory) -> Self {
        Self {
            journal: Journal::new(Arc::clone(&kernel), state).persistent(),
            kernel,
            made: Vec::new(),
        }
    }

    pub(crate) fn kernel(&self) -> Arc<dyn Kernel> {
        Arc::clone(&self.kernel)
    }

    /// Records intended changes in the journal. They may be made only after this.
    pub(crate) fn prepare(&mut self, changes: Vec<Change>) -> Result<(), HostError> {
        let first = self.journal.append(&changes)?;
        self.made.extend((first..).zip(changes));
        Ok(())
    }

    /// Returns whether an equal change was recorded before.
    pub(crate) fn has(&self, change: &Change) -> bool {
        self.made.iter().any(|(_, made)| made == change)
    }

    /// Marks a point at which a test may end the process.
    pub(crate) fn step(&self) -> Result<(), HostError> {
        self.kernel.step().map_err(|cause| {
            let path = self.journal.path();
            HostError::file("continue after writing", path, cause, "rampart release")
        })
    }

    /// Records and writes settings: all old values reach the disk together, then each setting is
    /// written. Returns for each the value read back, or the kernel's error.
    pub(crate) fn set(
        &mut self,
        settings: &[Setting],
    ) -> Result<Vec<io::Result<String>>, HostError> {
        let olds: Vec<io::Result<String>> = settings
            .iter()
            .map(|setting| self.kernel.read(&setting.path))
            .collect();
        let intended = settings
            .iter()
            .zip(&olds)
            .filter_map(|(setting, old)| {
                let old = old.as_ref().ok()?;
                let same = setting.notation.same(old, &setting.value);
                (!same).then(|| value_change(setting, old, &setting.value))
            })
            .collect();
        self.prepare(intended)?;
        let mut answers = Vec::with_capacity(settings.len());
        for (setting, old) in settings.iter().zip(olds) {
            answers.push(match old {
                Ok(old) => self.write(setting, &old)?,
                Err(error) => Err(error),
            });
        }
        Ok(answers)
    }

    fn write(&mut self, setting: &Setting, old: &str) -> Result<io::Result<String>, HostError> {
        if setting.notation.same(old, &setting.value) {
            return Ok(Ok(old.trim().to_owned()));
        }
        self.step()?;
        let answer = self.kernel.write(&setting.path, &setting.value);
        self.step()?;
        let present = match answer.and_then(|()| self.kernel.read(&setting.path)) {
            Ok(present) => present,
            Err(error) => return Ok(Err(error)),
        };
        // The kernel may store another value; undoing must recognise it as Rampart's.
        let known = setting.notation.results_from(&present, old, &setting.value)
            || setting.notation.same(&present, old);
        if !known {
            self.prepare(vec![value_change(setting, old, &present)])?;
        }
        Ok(Ok(present.trim().to_owned()))
    }

    /// Records and sets affinities. Returns the kernel's answer for each.
    pub(crate) fn set_affinities(
        &mut self,
        wanted: Vec<(Task, CpuSet)>,
    ) -> Result<Vec<io::Result<()>>, HostError> {
        self.prepare(
            wanted
                .iter()
                .map(|(task, new)| Change::Affinity {
                    task: task.clone(),
                    new: new.clone(),
                })
                .collect(),
        )?;
        let mut answers = Vec::with_capacity(wanted.len());
        for (task, new) in wanted {
            self.step()?;
            answers.push(self.kernel.set_affinity(task.thread, &new));
        }
        Ok(answers)
    }

    /// Records and sets the scheduling policy of a thread.
    pub(crate) fn set_policy(
        &mut self,
        task: Task,
        policy: SchedulingPolicy,
    ) -> Result<io::Result<()>, HostError> {
        let old = match self.kernel.attributes(task.thread) {
            Ok(old) => old,
            Err(error) => return Ok(Err(error)),
        };
        let new = Attributes::of(policy);
        let thread = task.thread;
        self.prepare(vec![Change::Policy { task, old, new }])?;
        self.step()?;
        let answer = self.kernel.set_attributes(thread, &new);
        self.step()?;
        Ok(answer)
    }

    /// Undoes all changes and removes the journal. If a change cannot be undone, the journal stays
    /// and the error contains the first such change.
    pub(crate) fn undo(&mut self) -> Result<Undone, HostError> {
        let undone = self.undo_since(0)?;
        let journal = self.journal.path();
        if let Some(first) = undone.failed.first() {
            return Err(HostError::NotRestored {
                journal: journal.to_owned(),
                count: undone.failed.len(),
                first: first.clone(),
            });
        }
        if !self.journal.is_empty() {
            self.step()?;
            journal::remove(journal)?;
        }
        Ok(undone)
    }

    /// Undoes all changes except the first `count`.
    pub(crate) fn undo_since(&mut self, count: usize) -> Result<Undone, HostError> {
        let since = self.made.split_off(count.min(self.made.len()));
        let journal = &mut self.journal;
        let mut done = BTreeSet::new();
        let answer = undo(&*self.kernel, &since, |number| {
            journal.mark(number);
            done.insert(number);
        });
        // Changes that were not undone are retried by `undo`.
        let failed = since
            .into_iter()
            .filter(|(number, _)| !done.contains(number));
        self.made.extend(failed);
        answer.map_err(|cause| {
            let path = self.journal.path();
            HostError::file("undo the journal", path, cause, "rampart release")
        })
    }

    /// Returns the number of recorded changes.
    pub(crate) fn count(&self) -> usize {
        self.made.len()
    }
}

fn value_change(setting: &Setting, old: &str, new: &str) -> Change {
    Change::Value {
        path: setting.path.clone(),
        old: setting.notation.relevant_part(old, &setting.value),
        new: setting.notation.relevant_part(new, &setting.value),
        notation: setting.notation,
    }
}
