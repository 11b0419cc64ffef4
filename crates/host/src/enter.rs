// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program of ours inside a wall that stands.

use std::path::Path;

use rampart_model::StandingDomain;

use crate::HostError;
use crate::kernel::{Kernel, RunningKernel};

/// Moves a process, with all its threads, into the control group of a domain that stands; one
/// whose wall is affinity alone has none, and then nothing is done.
///
/// For processes that end with this one: where they came from is not recorded.
///
/// # Errors
/// If the kernel refuses.
pub fn enter_standing(domain: &StandingDomain, process: u32) -> Result<(), HostError> {
    match &domain.group {
        Some(group) => enter(&RunningKernel, Path::new(group), process),
        None => Ok(()),
    }
}

fn enter(kernel: &dyn Kernel, group: &Path, process: u32) -> Result<(), HostError> {
    // A group with controllers for others holds no processes itself; the shield has one for them
    // below.
    let inner = group.join("processes/cgroup.procs");
    let file = if kernel.exists(&inner) {
        inner
    } else {
        group.join("cgroup.procs")
    };
    kernel.write(&file, &process.to_string()).map_err(|cause| {
        HostError::file(
            "put a process into the domain's control group",
            &file,
            cause,
            "run `rampart` as root, and see with `rampart status` whether the wall stands",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_goes_where_processes_may_be() {
        let directory = tempfile::tempdir().expect("directory");
        let group = directory.path().join("group");
        let refusal = enter(&RunningKernel, &group, 7).expect_err("there is no group");
        assert!(refusal.to_string().contains("mend: "), "{refusal}");
        for inner in ["", "processes"] {
            let home = group.join(inner);
            std::fs::create_dir_all(&home).expect("group");
            std::fs::write(home.join("cgroup.procs"), "").expect("file");
            enter(&RunningKernel, &group, 7).expect("entered");
            let members = std::fs::read_to_string(home.join("cgroup.procs")).expect("members");
            assert_eq!(members, "7\n", "{inner}");
        }
    }
}
