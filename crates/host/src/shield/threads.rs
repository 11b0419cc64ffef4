// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single threads of a process that is inside the shield.

use std::path::PathBuf;

use super::{ControlGroup, ControlGroupVersion, Shield};
use crate::HostError;
use crate::groups::Hierarchies;
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
}

/// The file of the group of ordinary work that takes single threads; none where there is none.
fn home_file(
    kernel: &dyn Kernel,
    hierarchies: &Hierarchies,
    group: &ControlGroup,
) -> Option<PathBuf> {
    let name = group.path.trim_start_matches('/');
    match group.version {
        ControlGroupVersion::V1 => {
            let mount = hierarchies.legacy_with("cpuset")?;
            Some(mount.join(format!("{name}-rest")).join("tasks"))
        }
        ControlGroupVersion::V2 => {
            let mount = hierarchies.unified.as_deref()?;
            let kind = kernel.read(&mount.join(name).join("cgroup.type")).ok()?;
            (kind.trim() == "threaded").then(|| mount.join("cgroup.threads"))
        }
    }
}
