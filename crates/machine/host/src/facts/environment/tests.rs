// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the environment of a plan, read from trees of files.

use std::path::PathBuf;

use rampart_model::{CpuId, SchedulingPolicy};

use super::*;

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, MachineRoot) {
    let directory = tempfile::tempdir().expect("directory");
    for (file, text) in files {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        std::fs::write(path, text).expect("write");
    }
    let root = MachineRoot::at(directory.path());
    (directory, root)
}

#[test]
fn a_machine_without_files_is_unknown() {
    let (_directory, root) = tree(&[]);
    assert_eq!(read_environment(&root, &[]), Environment::default());
}

#[test]
fn reads_all_files() {
    let pages = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
    let stat = "(rcuc/3) S 2 0 0 0 -1 69238848 0 0 0 0 0 0 0 0 -2 0 1 0 3 0 0 1 0 0 0 0 0 0 0 2147483647 0 0 0 0 17 3 4 1 0";
    let mut image = vec![b'.'; 64];
    image.extend(b"Linux version 6.1 PREEMPT_RT\0");
    let image = String::from_utf8(image).expect("text");
    let (_directory, root) = tree(&[
        (&format!("{pages}/nr_hugepages"), "8\n"),
        (&format!("{pages}/free_hugepages"), "5\n"),
        // With RCU boosting for nodes, this number is not that of a CPU.
        ("proc/29/comm", "rcub/0\n"),
        ("proc/29/stat", &format!("29 {stat}")),
        ("proc/30/comm", "rcuc/3\n"),
        ("proc/30/stat", &format!("30 {stat}")),
        ("proc/900/comm", "irqbalance\n"),
        ("proc/901/comm", "power-profiles-\n"),
        (
            "proc/self/limits",
            "Limit  Soft Limit  Hard Limit  Units\nMax locked memory         8388608              8388608              bytes\nMax realtime priority     7                    9\n",
        ),
        ("proc/self/status", "Name:\tx\nCapEff:\t0000000000804000\n"),
        ("proc/sys/kernel/nmi_watchdog", "1\n"),
        ("proc/sys/kernel/osrelease", "6.1\n"),
        (
            "boot/config-6.1",
            "CONFIG_CPUSETS=y\n# CONFIG_NO_HZ_FULL is not set\nCONFIG_KVM=m\n",
        ),
        ("boot/vmlinux", &image),
        ("proc/irq/24/smp_affinity_list", "0-1\n"),
        ("sys/kernel/irq/24/actions", "eth0-rx-0\n"),
        ("sys/kernel/irq/24/chip_name", "PCI-MSIX\n"),
        ("sys/kernel/irq/24/name", "edge\n"),
        ("sys/kernel/irq/25/actions", "\n"),
        ("sys/class/net/eth0/device/vendor", "1\n"),
        ("sys/class/net/eth0/queues/rx-0/rps_cpus", "0\n"),
        ("sys/class/net/eth0/queues/rx-1/rps_cpus", "0\n"),
        ("sys/class/net/eth0/queues/tx-0/xps_cpus", "0\n"),
        ("sys/class/net/eth1/device/vendor", "1\n"),
        ("sys/class/net/eth1/queues/rx-0/rps_cpus", "0\n"),
        ("sys/class/net/eth1/queues/tx-0/xps_cpus", "0\n"),
        ("sys/class/net/eth1/queues/tx-1/xps_cpus", "0\n"),
        ("sys/class/net/lo/queues/rx-0/rps_cpus", "0\n"),
        ("sys/bus/pci/devices/0000:03:00.0/numa_node", "1\n"),
        ("sys/bus/pci/devices/0000:04:00.0/numa_node", "-1\n"),
    ]);
    let kernel = PathBuf::from("/boot/vmlinux");
    let missing = PathBuf::from("/boot/none");
    let found = read_environment(&root, &[kernel, missing]);
    let pages = found.huge_pages.expect("huge pages");
    assert_eq!((pages.len(), pages[0].node, pages[0].size), (1, 1, 2 << 20));
    assert_eq!((pages[0].total, pages[0].free), (8, 5));
    let threads = found.kernel_threads.expect("threads");
    assert_eq!(threads.len(), 1);
    assert_eq!(
        (threads[0].cpu, threads[0].policy),
        (CpuId(3), SchedulingPolicy::Fifo(4))
    );
    assert_eq!(
        found.managers.expect("managers"),
        ["irqbalance", "power-profiles-daemon"]
    );
    let limits = found.limits.expect("limits");
    assert_eq!(
        (limits.locked_memory, limits.real_time_priority),
        (Some(8 << 20), 7)
    );
    assert!(limits.may_lock && limits.may_schedule);
    assert_eq!(found.nmi_watchdog, Some(true));
    let option = |name: &str| found.kernel_options.get(name).copied();
    assert_eq!(option("CONFIG_CPUSETS"), Some(true));
    assert_eq!(option("CONFIG_KVM"), Some(true));
    assert_eq!(option("CONFIG_NO_HZ_FULL"), Some(false));
    let interrupts = found.interrupts.expect("interrupts");
    assert_eq!(interrupts.len(), 1);
    assert_eq!(
        (interrupts[0].action.as_str(), interrupts[0].name.as_str()),
        ("eth0-rx-0", "edge")
    );
    assert_eq!(interrupts[0].cpus, "0-1".parse().ok());
    let queues = found.network_queues.expect("queues");
    let counts: Vec<u32> = queues.iter().map(|queues| queues.queues).collect();
    assert_eq!(counts, [2, 2], "of receiving or sending");
    assert_eq!(found.device_nodes.len(), 1);
    assert_eq!(found.guest_kernels.get("/boot/vmlinux"), Some(&true));
    assert_eq!(found.guest_kernels.len(), 1);
    assert!(found.device_drivers.is_empty());
    let device = root.path("sys/bus/pci/devices/0000:03:00.0");
    std::os::unix::fs::symlink("../../drivers/e1000e", device.join("driver")).expect("a link");
    let found = read_environment(&root, &[]);
    assert_eq!(found.device_drivers["0000:03:00.0"], "e1000e");
}

#[test]
fn reads_the_running_machine_and_recorded_ones() {
    let _ = read_environment(&MachineRoot::system(), &[]);
    for name in ["board", "laptop", "server", "simulated", "virtual-machine"] {
        let found = read_environment(&MachineRoot::at(rampart_recorded::directory(name)), &[]);
        assert!(
            found.kernel_options.contains_key("CONFIG_CPUSETS"),
            "{name}"
        );
    }
}
