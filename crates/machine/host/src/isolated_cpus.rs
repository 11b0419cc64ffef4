// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUs that no process has in its affinity by default, because the kernel command line isolates them
//! or process 1 excludes them.

use std::path::Path;

use rampart_model::CpuSet;

use crate::kernel::{Kernel, RunningKernel};

const ISOLATED: &str = "/sys/devices/system/cpu/isolated";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Adds the isolated CPUs to the affinity of the calling thread, as far as its cpuset allows, and all
/// others if it has the affinity of process 1: that is inherited, and nobody chose it for this
/// program. Threads started later inherit the affinity, so call this before any is started.
///
/// `isolcpus=` removes its CPUs from the affinity that all processes inherit from the first one
/// (Documentation/admin-guide/kernel-parameters.txt), and so does `CPUAffinity=` of systemd
/// (systemd-system.conf(5)). Without this call, the CPUs for real-time work would be the only ones
/// that cannot be measured.
pub fn reach_isolated_cpus() {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    if let Ok(thread) = u32::try_from(thread) {
        // If the kernel refuses, the affinity stays as it was and only those CPUs are measured.
        let _ = reach(&RunningKernel, thread);
    }
}

fn reach(kernel: &dyn Kernel, thread: u32) -> std::io::Result<()> {
    let set = |path: &str| -> CpuSet {
        let text = kernel.read(Path::new(path)).unwrap_or_default();
        text.trim().parse().unwrap_or_default()
    };
    let present = kernel.affinity(thread)?;
    let is_inherited = kernel.affinity(1).is_ok_and(|first| first == present);
    let more = match is_inherited {
        true => set(ONLINE),
        false => CpuSet::new(),
    };
    let wanted = present.union(&set(ISOLATED)).union(&more);
    if wanted == present {
        return Ok(());
    }
    kernel.set_affinity(thread, &wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, Machine};

    fn affinity_after(isolated: &str, first: &str, before: &str) -> String {
        let mut machine = Machine::new(4, Layout::V2);
        machine.files.insert(ISOLATED.into(), isolated.to_owned());
        machine.files.insert(ONLINE.into(), "0-3\n".to_owned());
        machine.add_thread(1, false, Some(first.parse().expect("CPUs")));
        machine.add_thread(10, false, Some(before.parse().expect("CPUs")));
        let kernel = FakeKernel::new(machine);
        reach(&kernel, 10).expect("reach");
        kernel.affinity(10).expect("affinity").to_string()
    }

    #[test]
    fn adds_only_the_isolated_cpus_to_a_chosen_affinity() {
        assert_eq!(affinity_after("2-3\n", "0-3", "0-1"), "0-3");
        assert_eq!(affinity_after("3\n", "0-2", "0"), "0,3");
        assert_eq!(affinity_after("\n", "0-2", "0-1"), "0-1");
        assert_eq!(affinity_after("3\n", "0-2", "1,3"), "1,3");
    }

    #[test]
    fn adds_every_cpu_to_an_inherited_affinity() {
        assert_eq!(affinity_after("\n", "0-1", "0-1"), "0-3");
        assert_eq!(affinity_after("3\n", "0", "0"), "0-3");
        assert_eq!(affinity_after("\n", "0-3", "0-3"), "0-3");
    }
}
