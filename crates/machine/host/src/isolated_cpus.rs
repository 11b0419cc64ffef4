// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that the kernel command line set aside, which no process is given by itself.

use std::path::Path;

use rampart_model::CpuSet;

use crate::kernel::{Kernel, RunningKernel};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// Adds the isolated CPUs to the affinity of the calling thread, which those that it starts
/// inherit; the kernel allows as many as its cpuset has. To be called before any is started.
///
/// `isolcpus=` takes its CPUs from the affinity that the first process hands down to all others
/// (Documentation/admin-guide/kernel-parameters.txt), so that without this the CPUs that were set
/// aside for real-time work would be the only ones that cannot be measured. Whoever restricted this
/// process by hand restricted it among the others.
pub fn reach_isolated_cpus() {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    if let Ok(thread) = u32::try_from(thread) {
        // Where the kernel refuses, what may be used stays as it was, and is what is measured.
        let _ = reach(&RunningKernel, thread);
    }
}

fn reach(kernel: &dyn Kernel, thread: u32) -> std::io::Result<()> {
    let isolated: CpuSet = kernel
        .read(Path::new(ISOLATED))?
        .trim()
        .parse()
        .unwrap_or_default();
    let present = kernel.affinity(thread)?;
    if isolated.is_subset(&present) {
        return Ok(());
    }
    kernel.set_affinity(thread, &present.union(&isolated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, Machine};

    fn affinity_after(isolated: &str, before: &str) -> String {
        let mut machine = Machine::new(4, Layout::V2);
        machine.files.insert(ISOLATED.into(), isolated.to_owned());
        machine.add_thread(10, false, Some(before.parse().expect("CPUs")));
        let kernel = FakeKernel::new(machine);
        reach(&kernel, 10).expect("reach");
        kernel.affinity(10).expect("affinity").to_string()
    }

    #[test]
    fn isolated_cpus_are_added_and_others_are_not() {
        assert_eq!(affinity_after("2-3\n", "0-1"), "0-3");
        assert_eq!(affinity_after("3\n", "0"), "0,3");
        assert_eq!(affinity_after("\n", "0-1"), "0-1");
        assert_eq!(affinity_after("3\n", "1,3"), "1,3");
    }
}
