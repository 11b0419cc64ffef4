// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that the kernel command line isolates, which no process has in its affinity by default.

use std::path::Path;

use rampart_model::CpuSet;

use crate::kernel::{Kernel, RunningKernel};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";

/// Adds the isolated CPUs to the affinity of the calling thread, as far as its cpuset allows. Threads
/// started later inherit the affinity, so call this before any is started.
///
/// `isolcpus=` removes its CPUs from the affinity that all processes inherit from the first one
/// (Documentation/admin-guide/kernel-parameters.txt). Without this call, the CPUs isolated for
/// real-time work would be the only ones that cannot be measured.
pub fn reach_isolated_cpus() {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    if let Ok(thread) = u32::try_from(thread) {
        // If the kernel refuses, the affinity stays as it was and only those CPUs are measured.
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
    fn adds_only_the_isolated_cpus() {
        assert_eq!(affinity_after("2-3\n", "0-1"), "0-3");
        assert_eq!(affinity_after("3\n", "0"), "0,3");
        assert_eq!(affinity_after("\n", "0-1"), "0-1");
        assert_eq!(affinity_after("3\n", "1,3"), "1,3");
    }
}
