// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the host's settings that the rules of guests judge, when a guest is started.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use rampart_model::{Machine, Nanos, SchedulingPolicy, VitalThread};

use rampart_rules::guest::{FILES, HostFacts, HostFile};

/// Reads the settings of the machine below `root`.
pub(in super::super) fn read_host_facts(root: &Path, machine: &Machine) -> HostFacts {
    let text = |path: &str| {
        let text = fs::read_to_string(root.join(path.trim_start_matches('/'))).ok()?;
        Some(text.trim().to_owned())
    };
    let entries = |path: &str| fs::read_dir(root.join(path)).map(|all| all.flatten());
    let flags = text("/proc/cpuinfo").unwrap_or_default();
    HostFacts {
        files: FILES
            .iter()
            .flat_map(|row| paths(root, row))
            .filter_map(|path| Some((path.clone(), text(&path)?)))
            .collect(),
        command_line: machine.command_line.clone(),
        possible: machine.topology.possible.clone(),
        kernel_threads: kernel_threads(&root.join("proc")),
        idle_exit: machine
            .idle_states
            .iter()
            .filter(|state| !state.disabled)
            .map(|state| state.exit_latency)
            .max()
            .unwrap_or_default(),
        governors: machine
            .frequency
            .governors
            .iter()
            .map(|(name, _)| name.clone())
            .collect(),
        nodes: machine.topology.nodes.len(),
        firmware_interrupts: machine.system_management_interrupts.at_start,
        divides_caches: flags
            .split_whitespace()
            .any(|flag| matches!(flag, "cat_l2" | "cat_l3")),
        cache_groups: text("/sys/fs/resctrl/schemata").map(|_| {
            // The directory also contains `info`, `mon_groups`, `mon_data`, and files.
            entries("sys/fs/resctrl").map_or(0, |all| {
                all.filter(|entry| entry.path().join("schemata").is_file())
                    .count()
            })
        }),
        latency_limit: latency_limit(&root.join("dev/cpu_dma_latency")),
        held_awake: machine
            .topology
            .online
            .iter()
            .filter(|cpu| {
                let file =
                    format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
                // 0 is no limit, `n/a` no latency at all (Documentation/ABI/testing/
                // sysfs-devices-power).
                text(&file)
                    .is_some_and(|limit| limit == "n/a" || matches!(limit.parse(), Ok(1..=10u32)))
            })
            .collect(),
        iommus: entries("sys/class/iommu").map_or(0, Iterator::count),
    }
}

/// Returns the paths of a row, below `root`.
fn paths(root: &Path, row: &HostFile) -> Vec<String> {
    let Some((directory, beginning, after)) = row.listed() else {
        return vec![row.path.to_owned()];
    };
    fs::read_dir(root.join(directory.trim_start_matches('/')))
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(beginning))
        .map(|name| format!("{directory}/{name}{after}"))
        .collect()
}

/// Reads a time in microseconds, four bytes in the machine's own byte order
/// (Documentation/power/pm_qos_interface.rst). Reading makes no request.
fn latency_limit(file: &Path) -> Option<Nanos> {
    let mut bytes = [0; 4];
    fs::File::open(file).ok()?.read_exact(&mut bytes).ok()?;
    let micros = u64::try_from(i32::from_ne_bytes(bytes)).ok()?;
    Some(Nanos::from_micros(micros))
}

fn kernel_threads(proc: &Path) -> Vec<(String, SchedulingPolicy)> {
    fs::read_dir(proc)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let name = name.trim_end().to_owned();
            VitalThread::of(&name)?;
            Some((name, crate::meter_placement::policy(id)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rampart_model::CpuId;

    use super::*;

    #[test]
    fn reads_existing_files_and_leaves_others_unknown() {
        let directory = tempfile::tempdir().expect("directory");
        let write = |path: &str, bytes: &[u8]| {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("parent")).expect("directory");
            fs::write(path, bytes).expect("file");
        };
        let mut machine = rampart_host::read_machine(&rampart_host::MachineRoot::at("/nowhere"));
        machine.topology.online = (0..3).map(CpuId).collect();
        let facts = read_host_facts(directory.path(), &machine);
        assert_eq!(facts.latency_limit, None);
        assert_eq!((facts.cache_groups, facts.iommus), (None, 0));
        write("dev/cpu_dma_latency", &7i32.to_ne_bytes());
        write("proc/cpuinfo", b"flags\t\t: fpu cat_l3 cdp_l3\n");
        write("proc/sys/kernel/soft_watchdog", b"1\n");
        let queue = "sys/devices/virtual/workqueue";
        write(&format!("{queue}/cpumask"), b"7\n");
        write(&format!("{queue}/writeback/cpumask"), b"f\n");
        write(&format!("{queue}/nvme-wq/cpumask"), b"1\n");
        let check = "sys/devices/system/machinecheck/machinecheck";
        write(&format!("{check}0/ignore_ce"), b"1\n");
        write(&format!("{check}2/ignore_ce"), b"0\n");
        write("sys/fs/resctrl/schemata", b"L3:0=ff\n");
        write("sys/fs/resctrl/guest/schemata", b"L3:0=f0\n");
        write("sys/fs/resctrl/info/last_cmd_status", b"ok\n");
        write("sys/class/iommu/dmar0", b"");
        for (cpu, limit) in [(0, "0\n"), (1, "n/a\n"), (2, "5\n")] {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us");
            write(&file, limit.as_bytes());
        }
        let facts = read_host_facts(directory.path(), &machine);
        assert_eq!(facts.latency_limit, Some(Nanos::from_micros(7)));
        assert_eq!((facts.cache_groups, facts.iommus), (Some(1), 1));
        assert!(facts.divides_caches);
        assert_eq!(facts.held_awake, [CpuId(1), CpuId(2)]);
        for (path, text) in [
            ("proc/sys/kernel/soft_watchdog".to_owned(), "1"),
            (format!("{queue}/cpumask"), "7"),
            (format!("{queue}/writeback/cpumask"), "f"),
            (format!("{queue}/nvme-wq/cpumask"), "1"),
            (format!("{check}2/ignore_ce"), "0"),
        ] {
            let found = facts.files.get(&format!("/{path}")).map(String::as_str);
            assert_eq!(found, Some(text), "{path}");
        }
    }
}
