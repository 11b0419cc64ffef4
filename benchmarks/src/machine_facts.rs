// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The properties of the machine that a benchmark's figures depend on.

use std::fs;

use rampart_model::{CpuId, CpuSet};

/// Name and value, in the order of output.
pub(crate) type Facts = Vec<(String, String)>;

fn line(path: &str) -> String {
    fs::read_to_string(path).map_or_else(
        |error| format!("not readable ({error})"),
        |text| text.trim().to_owned(),
    )
}

/// Returns the value after `key` and a colon in a file such as `/proc/cpuinfo`.
fn value(text: &str, key: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.trim() == key)
        .map(|(_, value)| value.trim().to_owned())
}

/// Returns the CPUs that this process may run on, from `/proc/self/status`.
pub(crate) fn allowed() -> CpuSet {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| value(&status, "Cpus_allowed_list"))
        .and_then(|list| list.parse().ok())
        .unwrap_or_else(|| CpuSet::single(CpuId(0)))
}

/// Returns all properties for the table.
pub(crate) fn facts() -> Facts {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = value(&cpuinfo, "flags").unwrap_or_default();
    let virtual_machine = flags.split(' ').any(|flag| flag == "hypervisor");
    let processor = value(&cpuinfo, "model name").unwrap_or_else(|| "unknown".to_owned());
    [
        ("processor", processor),
        ("CPUs", line("/sys/devices/system/cpu/online")),
        (
            "virtual machine",
            if virtual_machine {
                "yes"
            } else {
                "not detected"
            }
            .to_owned(),
        ),
        (
            "kernel",
            format!(
                "{} {}",
                line("/proc/sys/kernel/osrelease"),
                line("/proc/sys/kernel/version")
            ),
        ),
        (
            "clock source",
            line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        ),
        ("load average at the start", line("/proc/loadavg")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_values_by_key() {
        let text = "processor\t: 0\nmodel name\t: A: B\nflags\t\t: fpu hypervisor\n";
        assert_eq!(value(text, "model name").as_deref(), Some("A: B"));
        assert_eq!(value(text, "flags").as_deref(), Some("fpu hypervisor"));
        assert_eq!(value(text, "model"), None);
    }

    #[test]
    fn reads_the_allowed_cpus_and_all_properties() {
        assert!(!allowed().is_empty());
        assert_eq!(facts().len(), 6);
    }
}
