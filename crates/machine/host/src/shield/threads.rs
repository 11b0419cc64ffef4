// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single threads of a process that is inside the shield.

use std::path::PathBuf;

use super::{ControlGroup, ControlGroupVersion, Shield};
use crate::HostError;
use crate::groups::{self, Hierarchies};
use crate::kernel::Kernel;

impl Shield {
    /// Moves one thread of an admitted process out of the shield, to where ordinary work runs,
    /// so that the process can measure inside and write outside. Says whether it is out: where
    /// the shield is a v2 group that could not be made threaded, all threads of a process stay
    /// together. The thread may run on any CPU outside; under a wall of affinity alone there is
    /// nothing to leave. Either way the caller sets its affinity.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn send_home(&self, thread: u32) -> Result<bool, HostError> {
        let Some(group) = &self.group else {
            return Ok(true);
        };
        let Some(target) = home_file(&*self.kernel, &self.hierarchies, group) else {
            return Ok(false);
        };
        // Nothing is to be recorded: in v1 the group of ordinary work is itself in the journal
        // and its threads leave it when it is removed; in v2 it is the root group.
        let written = self.kernel.write(&target, &thread.to_string());
        written.map(|()| true).map_err(|cause| {
            HostError::file(
                "move a thread out of the shield",
                &target,
                cause,
                "name a thread that is alive",
            )
        })
    }

    /// The group that a thread is in, in the hierarchy of the shield's own, from its root; none where
    /// the wall is affinity alone or the thread is gone.
    #[must_use]
    pub fn group_of(&self, thread: u32) -> Option<String> {
        groups::relative_group_of(&*self.kernel, thread, self.group.as_ref()?.version)
    }

    /// Moves one thread of an admitted process to the `group` that [`Shield::group_of`] told for
    /// another: a thread is born where the one that makes it was sent.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn bring_back(&self, thread: u32, group: &str) -> Result<(), HostError> {
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
        // Nothing is to be recorded: the group is the shield's or below it, and is emptied with it.
        let target = root.join(group.trim_start_matches('/')).join(file);
        let written = self.kernel.write(&target, &thread.to_string());
        written.map_err(|cause| {
            HostError::file(
                "move a thread back into the shield",
                &target,
                cause,
                "name a thread that is alive",
            )
        })
    }
}

/// The file of the group of ordinary work that takes single threads; none where there is none.
fn home_file(
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
            // The wall of a plan has no such group of its own: where ordinary work is, the first
            // process is.
            let home = hierarchies.group_of(kernel, 1, group.version)?;
            Some(home.join("tasks"))
        }
        ControlGroupVersion::V2 => {
            let kind = kernel.read(&mount.join(name).join("cgroup.type")).ok()?;
            (kind.trim() == "threaded").then(|| mount.join("cgroup.threads"))
        }
    }
}
