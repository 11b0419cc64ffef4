// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the values of a machine that the rules need.

mod files;
mod interrupts;
mod kernel_log;
mod processes;

pub(crate) use interrupts::{is_managed, is_of_each_cpu};

use rampart_model::{CpuSet, Finding, Machine};
use rampart_rules::{
    KernelCommandLine, KernelVersion, ProcessLimits, Readings, Subject, figure_findings,
};
use rustix::process::{Resource, getrlimit};

use crate::MachineRoot;
use crate::kernel_config::KernelConfig;

/// `CAP_IPC_LOCK` and `CAP_SYS_NICE` of include/uapi/linux/capability.h.
const CAPABILITIES: u64 = 1 << 14 | 1 << 23;

/// Reads the values that the rules need. Never fails: a value that cannot be read has a reason.
///
/// `real_time` are the CPUs for parts such as `{real-time-cpu}`.
#[must_use]
pub fn read_knob_values(root: &MachineRoot, real_time: &CpuSet) -> Readings {
    let cpuinfo = root.text("proc/cpuinfo").unwrap_or_default();
    let of_first = |wanted: &[&str]| {
        cpuinfo
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(label, _)| wanted.contains(&label.trim()))
            .map(|(_, value)| value.trim().to_owned())
    };
    let processes = processes::read(root);
    Readings {
        kernel: root
            .line("proc/sys/kernel/osrelease")
            .and_then(|release| KernelVersion::of_release(&release)),
        vendor: of_first(&["vendor_id"]).unwrap_or_default(),
        flags: of_first(&["flags", "Features"])
            .unwrap_or_default()
            .split_whitespace()
            .map(str::to_owned)
            .collect(),
        files: files::read(root, real_time),
        kernel_command_line: KernelCommandLine::parse(
            &root.text("proc/cmdline").unwrap_or_default(),
        ),
        options: KernelConfig::read(root).into_options(),
        threads: processes.as_ref().map(|all| all.kernel_threads.clone()),
        interrupts: interrupts::read(root),
        programs: processes.as_ref().map(|all| all.programs.clone()),
        program_threads: processes.map(|all| all.program_threads),
        kernel_log: kernel_log::read(root),
        limits: root.is_system().then(|| limits(root)),
        hosts_guests: ["dev/kvm", "sys/module/kvm_intel", "sys/module/kvm_amd"]
            .iter()
            .any(|path| root.exists(path)),
    }
}

/// Reads the machine and returns its deviations that affect figures measured on `real_time`.
///
/// Every other online CPU is a housekeeping CPU.
#[must_use]
pub fn read_figure_findings(
    root: &MachineRoot,
    machine: &Machine,
    real_time: &CpuSet,
) -> Vec<Finding> {
    let readings = read_knob_values(root, real_time);
    let subject = Subject {
        machine,
        readings: &readings,
    };
    let isolation = subject.isolation(real_time.clone());
    figure_findings(subject, &isolation)
}

/// Reads the limits and capabilities of this process.
fn limits(root: &MachineRoot) -> ProcessLimits {
    let effective = root
        .text("proc/self/status")
        .and_then(|status| {
            let digits = status
                .lines()
                .find_map(|line| line.strip_prefix("CapEff:"))?
                .trim()
                .to_owned();
            u64::from_str_radix(&digits, 16).ok()
        })
        .unwrap_or(0);
    ProcessLimits {
        locked_memory: getrlimit(Resource::Memlock).current,
        real_time_priority: getrlimit(Resource::Rtprio).current,
        privileged: effective & CAPABILITIES == CAPABILITIES,
    }
}

#[cfg(test)]
mod tests;
