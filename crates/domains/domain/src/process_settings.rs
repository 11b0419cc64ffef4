// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a process's threads and effective settings from the kernel.

use std::fs;
use std::path::{Path, PathBuf};

use rampart_model::{EffectiveSettings, Nanos};

/// Names of the capabilities by number, from `include/uapi/linux/capability.h`.
const CAPABILITIES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// Limits that real-time programs raise, as `/proc/PID/limits` names them.
const LIMITS: [&str; 3] = [
    "Max locked memory",
    "Max realtime priority",
    "Max nice priority",
];

/// The namespaces of `/proc/PID/ns` that can isolate a program.
const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

/// One thread of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thread {
    /// Its id in the outermost PID namespace that this process is in.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: String,
}

/// Returns the start of a process in clock ticks since boot, field 22 of `/proc/PID/stat`
/// (proc_pid_stat(5)), or `None` if it has ended.
pub(crate) fn start_of(process: u32) -> Option<u64> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name may contain spaces and parentheses; the first field after it is number 3.
    line.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(22 - 3)?
        .parse()
        .ok()
}

/// Returns whether the process still lives whose id and start `name` begins with.
pub(crate) fn owner_lives(name: &str) -> bool {
    let mut parts = name.split('-');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let (Some(owner), Some(start)) = (number(), number()) else {
        return false;
    };
    u32::try_from(owner).is_ok_and(|owner| start_of(owner) == Some(start))
}

/// Returns the threads of a process by ascending id; none if it has ended.
pub(crate) fn threads(process: u32) -> Vec<Thread> {
    let directory = PathBuf::from(format!("/proc/{process}/task"));
    let Ok(entries) = fs::read_dir(&directory) else {
        return Vec::new();
    };
    let mut threads: Vec<Thread> = entries
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            Some(Thread {
                id,
                name: name.trim_end().to_owned(),
            })
        })
        .collect();
    threads.sort_by_key(|thread| thread.id);
    threads
}

/// Returns the CPU time of a thread: the first number of `/proc/PID/task/TID/schedstat`, or fields
/// 14 and 15 of its `stat` if the kernel does not count exactly. `None` if it has ended.
pub(crate) fn cpu_time(process: u32, thread: u32) -> Option<Nanos> {
    let directory = PathBuf::from(format!("/proc/{process}/task/{thread}"));
    let exact = fs::read_to_string(directory.join("schedstat")).ok();
    let exact = exact.and_then(|text| text.split_whitespace().next()?.parse().ok());
    if let Some(time) = exact {
        return Some(Nanos(time));
    }
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let tick = Nanos::SECOND.0 / rustix::param::clock_ticks_per_second().max(1);
    Some(Nanos((ticks(14)? + ticks(15)?) * tick))
}

/// Reads the effective settings of `process`, and the control groups of its measuring `thread`.
pub(crate) fn effective_settings(
    process: u32,
    thread: u32,
    runtime: &str,
    placed_by: &str,
) -> EffectiveSettings {
    let directory = PathBuf::from(format!("/proc/{process}"));
    let read = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    let status = read("status");
    let own_limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    EffectiveSettings {
        runtime: runtime.to_owned(),
        capabilities: field(&status, "CapPrm:")
            .and_then(|mask| u64::from_str_radix(mask, 16).ok())
            .map(capability_names)
            .unwrap_or_default(),
        limits: raised_limits(&read("limits"), &own_limits),
        placed_by: placed_by.to_owned(),
        control_groups: control_groups(&read(&format!("task/{thread}/cgroup"))),
        namespaces: NAMESPACES
            .into_iter()
            .filter(|name| namespace(&directory, name) != namespace(Path::new("/proc/self"), name))
            .map(str::to_owned)
            .collect(),
        // 2 is SECCOMP_MODE_FILTER, proc_pid_status(5).
        seccomp: field(&status, "Seccomp:") == Some("2"),
    }
}

fn namespace(process: &Path, name: &str) -> Option<PathBuf> {
    fs::read_link(process.join("ns").join(name)).ok()
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

/// Returns the names of a capability set, with the number of each unknown capability.
fn capability_names(mask: u64) -> Vec<String> {
    (0..64)
        .filter(|bit| mask & (1 << bit) != 0)
        .map(|bit| match CAPABILITIES.get(bit) {
            Some(name) => (*name).to_owned(),
            None => format!("capability {bit}"),
        })
        .collect()
}

/// Returns the soft and hard value of a limit in the text of `/proc/PID/limits`.
fn limit<'a>(limits: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let line = limits.lines().find(|line| line.starts_with(name))?;
    let mut values = line.get(name.len()..)?.split_whitespace();
    Some((values.next()?, values.next()?))
}

/// Returns the limits in `limits` that differ from the kernel's defaults or from this process's
/// own.
fn raised_limits(limits: &str, own: &str) -> Vec<String> {
    LIMITS
        .into_iter()
        .filter_map(|name| {
            let value = limit(limits, name)?;
            let raised = match name {
                "Max locked memory" => value.0 == "unlimited",
                _ => value.0 != "0",
            };
            (raised || limit(own, name) != Some(value)).then(|| format!("{name}: {}", value.0))
        })
        .collect()
}

/// Returns `controller:path` of each hierarchy, with `v2` for the unified one.
fn control_groups(text: &str) -> Vec<String> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let controllers = parts.next()?;
            let path = parts.next()?;
            let controllers = if controllers.is_empty() {
                "v2"
            } else {
                controllers
            };
            Some(format!("{controllers}:{path}"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_known_capabilities_and_numbers_others() {
        assert_eq!(capability_names(0), Vec::<String>::new());
        assert_eq!(
            capability_names(1 << 14 | 1 << 23 | 1 << 40 | 1 << 50),
            [
                "CAP_IPC_LOCK",
                "CAP_SYS_NICE",
                "CAP_CHECKPOINT_RESTORE",
                "capability 50"
            ]
        );
    }

    #[test]
    fn lists_limits_that_are_raised_or_differ_from_ours() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         unlimited            unlimited            bytes     \n\
                      Max nice priority         0                    0                    \n\
                      Max realtime priority     0                    0                    \n";
        assert_eq!(
            raised_limits(limits, limits),
            ["Max locked memory: unlimited"]
        );
        let own = limits.replace("unlimited", "8388608");
        assert!(raised_limits(&own, &own).is_empty());
        assert_eq!(raised_limits(&own, limits), ["Max locked memory: 8388608"]);
    }

    #[test]
    fn lists_groups_of_both_versions() {
        assert_eq!(
            control_groups("3:cpuset:/rampart\n1:cpu,cpuacct:/a:b\n0::/\n"),
            ["cpuset:/rampart", "cpu,cpuacct:/a:b", "v2:/"]
        );
    }

    #[test]
    fn reads_a_growing_cpu_time() {
        let process = std::process::id();
        let first = cpu_time(process, process).expect("our first thread");
        assert!(first < Nanos::from_secs(3600));
        assert_eq!(cpu_time(process, 0), None);
    }

    #[test]
    fn shares_every_namespace_with_itself() {
        let effective_settings =
            effective_settings(std::process::id(), std::process::id(), "", "itself");
        assert!(effective_settings.namespaces.is_empty());
        assert!(!effective_settings.control_groups.is_empty());
        assert!(
            threads(std::process::id())
                .iter()
                .any(|thread| thread.id == std::process::id())
        );
    }
}
