// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records the machine for a test: copies the files that `read_machine`, `read_knob_values` and
//! `read_environment` read into a directory. Usage: `record DIRECTORY`. Review the result before
//! sharing it: it contains the host name, the kernel command line, the kernel log and the names of processes.
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::io;
use std::path::{Path, PathBuf};

use rampart_host::{MachineRoot, read_knob_values};
use rampart_model::CpuSet;

const CPU: &str = "sys/devices/system/cpu";

/// Returns the paths to copy; `*` matches any name, `**` one or more directories.
fn patterns() -> Vec<String> {
    let plain = [
        "etc/os-release",
        "etc/systemd/system.conf",
        "etc/systemd/system.conf.d/*",
        "etc/tuned/*",
        "proc/*/comm",
        "proc/*/stat",
        "proc/1/cgroup",
        "proc/1/mountinfo",
        "proc/cmdline",
        "proc/cpuinfo",
        "proc/filesystems",
        "proc/device-tree/compatible",
        "proc/device-tree/hypervisor/compatible",
        "proc/device-tree/model",
        "proc/irq/*/smp_affinity_list",
        "proc/meminfo",
        "proc/self/limits",
        "proc/self/mountinfo",
        "proc/self/status",
        "proc/stat",
        "proc/sys/kernel/arch",
        "proc/sys/kernel/hostname",
        "proc/sys/kernel/nmi_watchdog",
        "proc/sys/kernel/numa_balancing",
        "proc/sys/kernel/osrelease",
        "proc/sys/kernel/sched_rt_period_us",
        "proc/sys/kernel/sched_rt_runtime_us",
        "proc/sys/kernel/version",
        "sys/bus/pci/devices/*/numa_node",
        "sys/class/dmi/id/bios_version",
        "sys/class/dmi/id/board_vendor",
        "sys/class/dmi/id/product_name",
        "sys/class/dmi/id/sys_vendor",
        "sys/class/net/*/device/uevent",
        "sys/class/net/*/queues/*/rps_cpus",
        "sys/devices/cpu_atom/cpus",
        "sys/devices/system/clocksource/clocksource0/available_clocksource",
        "sys/devices/system/clocksource/clocksource0/current_clocksource",
        "sys/devices/system/node/*/cpulist",
        "sys/devices/system/node/*/hugepages/*/free_hugepages",
        "sys/devices/system/node/*/hugepages/*/nr_hugepages",
        "sys/devices/system/node/*/meminfo",
        "sys/fs/resctrl/cpus_list",
        "sys/fs/resctrl/mode",
        "sys/fs/resctrl/schemata",
        "sys/fs/resctrl/*/cpus_list",
        "sys/fs/resctrl/*/mode",
        "sys/fs/resctrl/*/schemata",
        "sys/fs/resctrl/info/*/bandwidth_gran",
        "sys/fs/resctrl/info/*/cbm_mask",
        "sys/fs/resctrl/info/*/min_bandwidth",
        "sys/fs/resctrl/info/*/min_cbm_bits",
        "sys/fs/resctrl/info/*/num_closids",
        "sys/fs/resctrl/info/*/shareable_bits",
        "sys/fs/resctrl/info/*/sparse_masks",
        "sys/fs/cgroup/*/cpuset.cpus",
        "sys/fs/cgroup/*/cpuset.cpus.effective",
        "sys/fs/cgroup/*/cpuset.cpus.partition",
        "sys/fs/cgroup/*/*/cpuset.cpus",
        "sys/fs/cgroup/*/*/cpuset.cpus.partition",
        "sys/fs/cgroup/*/*/*/cpuset.cpus",
        "sys/fs/cgroup/*/*/*/cpuset.cpus.partition",
        "sys/fs/cgroup/*/*/*/*/cpuset.cpus",
        "sys/fs/cgroup/*/*/*/*/cpuset.cpus.partition",
        "sys/fs/cgroup/cpuset/*/cpuset.cpus",
        "sys/fs/cgroup/cpuset/*/cpuset.cpu_exclusive",
        "sys/fs/cgroup/cpu/cpu.rt_runtime_us",
        "sys/fs/cgroup/cpu,cpuacct/cpu.rt_runtime_us",
        "sys/hypervisor/type",
        "sys/kernel/irq/*/actions",
        "sys/kernel/irq/*/chip_name",
        "sys/kernel/irq/*/name",
        "sys/kernel/debug/sched/fair_server/cpu0/period",
        "sys/kernel/debug/sched/fair_server/cpu0/runtime",
        "sys/kernel/debug/sched/preempt",
        "sys/kernel/mm/transparent_hugepage/enabled",
        "sys/kernel/realtime",
    ];
    let cpu = [
        "cpufreq/boost",
        "cpufreq/*/affected_cpus",
        "cpufreq/*/boost",
        "cpufreq/*/scaling_driver",
        "cpufreq/*/scaling_governor",
        "cpufreq/*/scaling_max_freq",
        "cpufreq/*/scaling_min_freq",
        "cpuidle/current_driver",
        "*/acpi_cppc/highest_perf",
        "*/cache/*/id",
        "*/cache/*/level",
        "*/cache/*/shared_cpu_list",
        "*/cache/*/size",
        "*/cache/*/type",
        "*/cpu_capacity",
        "*/cpuidle/*/disable",
        "*/cpuidle/*/latency",
        "*/cpuidle/*/name",
        "*/topology/core_cpus_list",
        "*/topology/core_id",
        "*/topology/physical_package_id",
        "intel_pstate/no_turbo",
        "isolated",
        "nohz_full",
        "online",
        "possible",
        "vulnerabilities/*",
    ];
    let knobs = [
        "proc/*/comm",
        "proc/*/stat",
        "proc/*/status",
        "proc/*/task/*/stat",
        "proc/*/task/*/status",
        "proc/irq/*/smp_affinity_list",
        "proc/irq/*/effective_affinity_list",
        "sys/kernel/debug/irq/irqs/*",
        "sys/kernel/irq/*/actions",
        "sys/kernel/irq/*/chip_name",
        "sys/kernel/irq/*/hwirq",
    ];
    let plain = plain.into_iter().chain(knobs).map(str::to_owned);
    plain
        .chain(
            rampart_rules::readings::file_templates()
                .into_iter()
                .map(starred),
        )
        .chain(cpu.into_iter().map(|file| format!("{CPU}/{file}")))
        .collect()
}

/// Converts a path template of the rules to a pattern: names with braces become `*`, directories at any depth `**`.
fn starred(template: &str) -> String {
    let parts = template.split('/').filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts
        .map(|part| match part {
            "{groups}" => "**",
            part if part.contains('{') => "*",
            part => part,
        })
        .collect();
    parts.join("/")
}

fn copy(from: &Path, to: &Path, pattern: &str) -> io::Result<usize> {
    let (first, rest) = match pattern.split_once('/') {
        Some((first, rest)) => (first, Some(rest)),
        None => (pattern, None),
    };
    let names: Vec<PathBuf> = if first == "*" || first == "**" {
        let entries = std::fs::read_dir(from).into_iter().flatten().flatten();
        let is_wanted = |entry: &std::fs::DirEntry| {
            // Links would lead in circles.
            first == "*" || entry.file_type().is_ok_and(|kind| kind.is_dir())
        };
        entries
            .filter(is_wanted)
            .map(|entry| entry.file_name().into())
            .collect()
    } else {
        vec![first.into()]
    };
    let mut copied = 0;
    for name in names {
        let (from, to) = (from.join(&name), to.join(&name));
        if first == "**" {
            copied += copy(&from, &to, pattern)?;
        }
        copied += match rest {
            Some(rest) => copy(&from, &to, rest)?,
            None => match std::fs::read(&from) {
                Ok(bytes) => {
                    std::fs::create_dir_all(to.parent().unwrap_or(&to))?;
                    std::fs::write(&to, bytes)?;
                    1
                }
                Err(_) => 0,
            },
        };
    }
    Ok(copied)
}

fn main() -> io::Result<()> {
    let Some(target) = std::env::args_os().nth(1).map(PathBuf::from) else {
        println!("usage: record DIRECTORY");
        return Ok(());
    };
    let mut copied = 0;
    for pattern in patterns() {
        copied += copy(Path::new("/"), &target, &pattern)?;
    }
    let readings = read_knob_values(&MachineRoot::system(), &CpuSet::new());
    if let Some(log) = readings.kernel_log {
        let file = target.join("var/log/dmesg");
        std::fs::create_dir_all(file.parent().unwrap_or(&target))?;
        std::fs::write(&file, log.join("\n"))?;
        copied += 1;
    }
    println!(
        "{copied} files copied, without the kernel configuration: write the lines that matter to boot/config-RELEASE"
    );
    Ok(())
}
