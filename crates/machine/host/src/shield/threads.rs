// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves single threads of an admitted process out of the shield and back.

use std::path::PathBuf;

use super::{ControlGroup, ControlGroupVersion, Shield};
use crate::HostError;
use crate::groups::{self, Hierarchies};
use crate::kernel::Kernel;

impl Shield {
    /// Moves one thread of an admitted process out of the shield, to the group of ordinary tasks,
    /// so that the process can measure inside and write outside. Returns whether it is outside: if
    /// the shield is a v2 group that is not threaded, all threads of a process stay together. The
    /// caller sets the thread's affinity.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_thread_out(&self, thread: u32) -> Result<bool, HostError> {
        let Some(group) = &self.group else {
            return Ok(true);
        };
        let Some(target) = outside_file(&*self.kernel, &self.hierarchies, group) else {
            return Ok(false);
        };
        // Not recorded: in v1 the journal contains the group of ordinary tasks, whose threads are
        // moved when it is removed; in v2 it is the root group.
        let written = self.kernel.write(&target, &thread.to_string());
        written.map(|()| true).map_err(|cause| {
            HostError::file("move a thread to", &target, cause, "name a running thread")
        })
    }

    /// Returns a thread's group in the hierarchy of the shield's group, from its root, or `None` with
    /// affinity alone or if the thread has ended.
    #[must_use]
    pub fn group_of(&self, thread: u32) -> Option<String> {
        groups::relative_group_of(&*self.kernel, thread, self.group.as_ref()?.version)
    }

    /// Moves one thread of an admitted process to a `group` that [`Shield::group_of`] returned for
    /// another thread. A new thread starts in the group of its creator, which may be outside.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_thread_in(&self, thread: u32, group: &str) -> Result<(), HostError> {
        let (Some(present), Some(own)) = (self.group_of(thread), &self.group) else {
            return Ok(());
        };
        let root = self.hierarchies.cpus(own.version);
        let Some(root) = root.filter(|_| present != group) else {
            return Ok(());
        };
        let file = match own.version {
            ControlGroupVersion::V1 => "tasks",
            ControlGroupVersion::V2 => "cgroup.threads",
        };
        // Not recorded: the group is the shield's or below it, and is emptied with it.
        let target = root.join(group.trim_start_matches('/')).join(file);
        let written = self.kernel.write(&target, &thread.to_string());
        written.map_err(|cause| {
            HostError::file("move a thread to", &target, cause, "name a running thread")
        })
    }
}

/// Returns the file of the group of ordinary tasks to which single threads are written, if any.
fn outside_file(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    group: &ControlGroup,
) -> Option<PathBuf> {
    let name = group.path.trim_start_matches('/');
    let mount = hierarchies.cpus(group.version)?;
    match group.version {
        ControlGroupVersion::V1 => {
            let rest = mount.join(format!("{name}-rest"));
            if kernel.is_directory(&rest) {
                return Some(rest.join("tasks"));
            }
            // The isolation of a plan has no such group: ordinary tasks are in the group of the
            // first process.
            let home = hierarchies.group_of(kernel, 1, group.version)?;
            Some(home.join("tasks"))
        }
        ControlGroupVersion::V2 => {
            let kind = kernel.read(&mount.join(name).join("cgroup.type")).ok()?;
            (kind.trim() == "threaded").then(|| mount.join("cgroup.threads"))
        }
    }
}
