// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the properties of a machine that the rules of a plan need, besides those of `facts`.

mod images;
#[cfg(test)]
mod tests;
mod threads;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub use images::kernel_image_version;
use rampart_model::{Environment, HugePages, Interrupt, Nanos, NetworkQueues, ResourceLimits};
use rampart_rules::readings::name_in_kernel;

use crate::facts::processes::{self, Process};
use crate::kernel_config::KernelConfig;
use crate::{MachineRoot, detached, processor_times, real_time};

/// Options of the kernel configuration that a plan can need.
const OPTIONS: [&str; 6] = [
    "CONFIG_ARM64_MPAM",
    "CONFIG_CPUSETS",
    "CONFIG_HUGETLBFS",
    "CONFIG_KVM",
    "CONFIG_NO_HZ_FULL",
    "CONFIG_X86_CPU_RESCTRL",
];

/// Time for which firmware interrupts are counted. Firmware that polls does so every second or more often.
const FIRMWARE_WATCH: Duration = Duration::from_secs(1);

/// Reads the environment of a plan. Never fails: what cannot be read is unknown. `guest_kernels` are
/// paths on this machine.
///
/// Takes a second if firmware interrupts can be counted.
#[must_use]
pub fn read_environment(root: &MachineRoot, guest_kernels: &[PathBuf]) -> Environment {
    let config = KernelConfig::read(root);
    let watch = root
        .is_system()
        .then(processor_times::read_smi_count)
        .flatten()
        .map(|count| (count, Instant::now()));
    let processes = Some(processes::processes(root)).filter(|processes| !processes.is_empty());
    Environment {
        huge_pages: huge_pages(root),
        cache_control: crate::facts::allocation::read(root),
        kernel_threads: processes.as_deref().and_then(threads::vital),
        kernel_options: OPTIONS
            .iter()
            .filter_map(|option| Some(((*option).to_owned(), config.is_set(option)?)))
            .collect(),
        managers: processes.as_deref().map(managers),
        interrupts: interrupts(root),
        network_queues: network_queues(root),
        limits: limits(root),
        group_budget: root
            .is_system()
            .then(real_time::free_real_time_budget)
            .flatten(),
        nmi_watchdog: root
            .line("proc/sys/kernel/nmi_watchdog")
            .map(|text| text != "0"),
        guest_kernels: guest_kernels
            .iter()
            .filter_map(|path| {
                let real_time = images::is_real_time(root, path)?;
                Some((path.display().to_string(), real_time))
            })
            .collect(),
        detach_driver: detached::read_detach_driver(root),
        device_nodes: device_nodes(root),
        device_drivers: device_drivers(root),
        firmware_interrupts: watch.and_then(|(before, since)| {
            std::thread::sleep(FIRMWARE_WATCH.saturating_sub(since.elapsed()));
            let after = processor_times::read_smi_count()?;
            Some((after.saturating_sub(before), Nanos::from(since.elapsed())))
        }),
    }
}

fn managers(processes: &[Process]) -> Vec<String> {
    let runs = |program: &&str| {
        let name = name_in_kernel(program);
        processes.iter().any(|process| process.name == name)
    };
    let running = rampart_rules::manager_programs().filter(runs);
    running.map(str::to_owned).collect()
}

/// Returns the huge pages of each node (Documentation/admin-guide/mm/hugetlbpage.rst), or of the
/// machine if it has no nodes.
fn huge_pages(root: &MachineRoot) -> Option<Vec<HugePages>> {
    let nodes = "sys/devices/system/node";
    let mut locations: Vec<(u32, String)> = root
        .numbered(nodes, "node")
        .into_iter()
        .map(|node| (node, format!("{nodes}/node{node}/hugepages")))
        .filter(|(_, directory)| root.exists(directory))
        .collect();
    if locations.is_empty() {
        locations.push((0, "sys/kernel/mm/hugepages".to_owned()));
    }
    let mut pages = Vec::new();
    for (node, directory) in locations {
        if !root.exists(&directory) {
            return None;
        }
        for name in root.names(&directory) {
            let kilobytes = name
                .strip_prefix("hugepages-")
                .and_then(|size| size.strip_suffix("kB"))
                .and_then(|size| size.parse::<u64>().ok());
            let number = |file: &str| root.value(&format!("{directory}/{name}/{file}"));
            let (Some(kilobytes), Some(total), Some(free)) =
                (kilobytes, number("nr_hugepages"), number("free_hugepages"))
            else {
                continue;
            };
            pages.push(HugePages {
                node,
                size: kilobytes.saturating_mul(1024),
                total,
                free,
            });
        }
    }
    Some(pages)
}

/// Returns the requested interrupts (Documentation/ABI/testing/sysfs-kernel-irq).
fn interrupts(root: &MachineRoot) -> Option<Vec<Interrupt>> {
    let directory = "sys/kernel/irq";
    if !root.exists(directory) {
        return None;
    }
    let interrupts = root
        .numbered(directory, "")
        .into_iter()
        .filter_map(|number| {
            let of = |file: &str| root.line(&format!("{directory}/{number}/{file}"));
            Some(Interrupt {
                number,
                // `None`: no driver has requested the interrupt.
                action: of("actions")?,
                chip: of("chip_name").unwrap_or_default(),
                name: of("name").unwrap_or_default(),
                cpus: root.value(&format!("proc/irq/{number}/smp_affinity_list")),
            })
        });
    Some(interrupts.collect())
}

/// Returns the number of queues of each hardware network interface, in the direction with more: each
/// can have its own interrupt. Ignores bridges, tunnels and the like. Returns `None` if interfaces
/// are not visible.
#[must_use]
pub fn network_queues(root: &MachineRoot) -> Option<Vec<NetworkQueues>> {
    let directory = "sys/class/net";
    if !root.exists(directory) {
        return None;
    }
    let interfaces = root.names(directory).into_iter().filter_map(|interface| {
        if !root.exists(&format!("{directory}/{interface}/device")) {
            return None;
        }
        let queues = format!("{directory}/{interface}/queues");
        let count = |kind: &str| root.numbered(&queues, kind).len();
        Some(NetworkQueues {
            queues: u32::try_from(count("rx-").max(count("tx-"))).ok()?,
            interface,
        })
    });
    Some(interfaces.collect())
}

/// Returns the memory nodes of PCI devices. The kernel writes -1 for an unknown node.
fn device_nodes(root: &MachineRoot) -> BTreeMap<String, u32> {
    let directory = "sys/bus/pci/devices";
    root.names(directory)
        .into_iter()
        .filter_map(|address| {
            let node = root.value(&format!("{directory}/{address}/numa_node"))?;
            Some((address, node))
        })
        .collect()
}

/// Returns the drivers of PCI devices.
fn device_drivers(root: &MachineRoot) -> BTreeMap<String, String> {
    let directory = "sys/bus/pci/devices";
    root.names(directory)
        .into_iter()
        .filter_map(|address| {
            let link = root.path(&format!("{directory}/{address}/driver"));
            let driver = std::fs::read_link(link).ok()?;
            let name = driver.file_name()?.to_string_lossy().into_owned();
            Some((address, name))
        })
        .collect()
}

/// `CAP_IPC_LOCK` and `CAP_SYS_NICE` of include/uapi/linux/capability.h.
const MAY_LOCK: u32 = 14;
const MAY_SCHEDULE: u32 = 23;

/// Reads limits and privileges of this process (proc_pid_limits(5), capabilities(7)).
fn limits(root: &MachineRoot) -> Option<ResourceLimits> {
    let limits = root.text("proc/self/limits")?;
    let status = root.text("proc/self/status")?;
    let soft = |name: &str| -> Option<&str> {
        let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let locked = soft("Max locked memory")?;
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())?;
    Some(ResourceLimits {
        locked_memory: match locked {
            "unlimited" => None,
            bytes => Some(bytes.parse().ok()?),
        },
        real_time_priority: soft("Max realtime priority")?.parse().ok()?,
        may_schedule: capabilities >> MAY_SCHEDULE & 1 == 1,
        may_lock: capabilities >> MAY_LOCK & 1 == 1,
    })
}
