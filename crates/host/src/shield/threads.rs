// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Single threads of a process that is inside the shield.

use std::path::{Path, PathBuf};

use super::{ControlGroup, ControlGroupVersion, Shield};
use crate::HostError;

impl Shield {
    /// Moves one thread of an admitted process out of the shield, to where ordinary work runs,
    /// so that the process can measure inside and write outside. Says whether it is out: in
    /// cgroup v2 all threads of a process outside a threaded subtree stay together. Under a
    /// wall of affinity alone there is nothing to leave; the caller sets the affinity.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn send_home(&self, thread: u32) -> Result<bool, HostError> {
        let Some(group) = &self.group else {
            return Ok(true);
        };
        let Some(target) = home_file(group, self.hierarchies.legacy_with("cpuset")) else {
            return Ok(false);
        };
        // Nothing is to be recorded: the group of ordinary work is itself in the journal and
        // its threads leave it when it is removed.
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
fn home_file(group: &ControlGroup, cpuset: Option<&Path>) -> Option<PathBuf> {
    match group.version {
        ControlGroupVersion::V1 => {
            let name = group.path.trim_start_matches('/');
            Some(cpuset?.join(format!("{name}-rest")).join("tasks"))
        }
        ControlGroupVersion::V2 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_work_is_beside_the_shield() {
        let group = |version| ControlGroup {
            version,
            path: "/rampart-7-0".to_owned(),
        };
        let mount = Some(Path::new("/sys/fs/cgroup/cpuset"));
        assert_eq!(
            home_file(&group(ControlGroupVersion::V1), mount).as_deref(),
            Some(Path::new("/sys/fs/cgroup/cpuset/rampart-7-0-rest/tasks"))
        );
        assert_eq!(home_file(&group(ControlGroupVersion::V2), mount), None);
    }
}
