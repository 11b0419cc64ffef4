// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of recorded machines against all rules.

mod one_change;

use std::path::Path;

use rampart_model::{Check, CheckFinding, CheckState, CpuSet};
use rampart_rules::{Reading, Subject, Unread, check};

use crate::{MachineRoot, read_knob_values, read_machine};

fn recorded(name: &str) -> MachineRoot {
    MachineRoot::at(rampart_recorded::directory(name))
}

fn checked(root: &MachineRoot, real_time: &str) -> Check {
    let real_time: CpuSet = real_time.parse().expect("CPUs");
    let machine = read_machine(root);
    let readings = read_knob_values(root, &real_time);
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    let isolation = subject.isolation(real_time);
    check(subject, &isolation, "named with --cpus", None, "test")
}

fn finding<'a>(check: &'a Check, knob: &str) -> &'a CheckFinding {
    check
        .findings
        .iter()
        .find(|finding| finding.rule == knob)
        .unwrap_or_else(|| panic!("{knob}"))
}

#[test]
fn every_error_and_warning_has_values_and_a_fix() {
    for (name, cpus) in [
        ("virtual-machine", "1"),
        ("simulated", "1-3"),
        ("laptop", "6-7"),
        ("server", "2-3,6-7"),
        ("board", "4-5"),
    ] {
        let check = checked(&recorded(name), cpus);
        let all = check.counts;
        let sum = all.ok
            + all.warnings
            + all.errors
            + all.informational
            + all.not_read
            + all.not_applicable;
        assert_eq!(sum as usize, check.findings.len());
        for finding in &check.findings {
            if matches!(finding.state, CheckState::Error | CheckState::Warning) {
                assert!(!finding.found.is_empty(), "{name}: {}", finding.rule);
                assert!(!finding.expected.is_empty(), "{name}: {}", finding.rule);
                let set_elsewhere = finding.rule == "firmware-settings";
                assert!(
                    finding.fix.is_some() || set_elsewhere,
                    "{name}: {}",
                    finding.rule
                );
            }
        }
    }
}

#[test]
fn a_check_survives_serialisation() {
    for (name, cpus) in [("laptop", "6-7"), ("server", "2-3,6-7")] {
        let check = checked(&recorded(name), cpus);
        let text = serde_json::to_string(&check).expect("json");
        let read: Check = serde_json::from_str(&text).expect("a check");
        assert_eq!(read, check);
    }
}

/// Kernels have the same knob at different paths.
#[test]
fn a_knob_is_found_at_its_old_and_new_path() {
    for (release, path) in [
        ("5.10.0-30-amd64", "proc/sys/kernel/sched_nr_migrate"),
        ("6.1.0-40-amd64", "sys/kernel/debug/sched/nr_migrate"),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        write(
            directory.path(),
            &[
                ("sys/devices/system/cpu/online", "0-1"),
                ("proc/sys/kernel/osrelease", release),
                (path, "32"),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "1");
        let found = finding(&check, "migration-batch");
        assert_eq!(found.state, CheckState::Warning, "{path}");
        assert_eq!(found.found, "32");
        assert!(
            found.fix.as_deref().is_some_and(|fix| fix.contains('8')),
            "{found:?}"
        );
    }
}

#[test]
fn a_knob_of_another_kernel_is_not_read() {
    let check = checked(&recorded("server"), "2-3,6-7");
    for knob in ["fair-server", "rcu-patience", "default-receive-steering"] {
        let found = finding(&check, knob);
        assert_eq!(found.state, CheckState::NotApplicable, "{knob}");
        assert!(found.reason.contains("6.1"), "{}", found.reason);
    }
}

#[test]
fn reports_interrupts_and_threads_on_real_time_cpus() {
    let directory = tempfile::tempdir().expect("directory");
    let stat = |name: &str, flags: u32, priority: u32, policy: u32| {
        format!(
            "9 ({name}) S 2 0 0 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 0 {priority} {policy} 0 0 0\n"
        )
    };
    write(
        directory.path(),
        &[
            ("sys/devices/system/cpu/online", "0-3"),
            ("proc/sys/kernel/arch", "x86_64"),
            ("proc/sys/kernel/version", "#1 SMP PREEMPT_RT"),
            ("proc/2/comm", "kthreadd"),
            ("proc/2/stat", &stat("kthreadd", 2_129_984, 0, 0)),
            ("proc/2/status", "Cpus_allowed_list:\t0-1"),
            ("proc/20/stat", &stat("ksoftirqd/2", 69_238_848, 0, 0)),
            ("proc/20/status", "Cpus_allowed_list:\t2"),
            ("proc/21/stat", &stat("ksoftirqd/0", 69_238_848, 0, 0)),
            ("proc/22/stat", &stat("irq/40-eth0", 2_129_984, 50, 1)),
            ("proc/22/status", "Cpus_allowed_list:\t0-3"),
            ("proc/irq/0/smp_affinity_list", "0-3"),
            ("proc/irq/0/timer/.keep", ""),
            ("proc/irq/40/smp_affinity_list", "0-3"),
            ("proc/irq/40/effective_affinity_list", "2"),
            ("proc/irq/41/smp_affinity_list", "0,1"),
            ("sys/kernel/irq/40/actions", "eth0"),
            ("sys/kernel/irq/41/actions", "nvme0q0"),
        ],
    );
    let check = checked(&MachineRoot::at(directory.path()), "2-3");
    let interrupts = finding(&check, "interrupt-affinity");
    assert_eq!(interrupts.state, CheckState::Warning);
    assert_eq!(interrupts.found, "1 of 2 may arrive on CPUs 2-3");
    assert_eq!(interrupts.locations[0].found, "0-3, now 2");
    let softirq = finding(&check, "ksoftirqd-priority");
    assert_eq!(
        (softirq.state, softirq.locations.len()),
        (CheckState::Warning, 1)
    );
    assert_eq!(softirq.found, "other");
    assert_eq!(
        finding(&check, "interrupt-thread-affinity").state,
        CheckState::Warning
    );
    assert_eq!(
        finding(&check, "interrupt-thread-priority").found,
        "fifo:50"
    );
    assert_eq!(finding(&check, "idle-injection").state, CheckState::Ok);
    assert_eq!(finding(&check, "irqbalance").state, CheckState::Ok);
}

#[test]
fn idle_states_count_only_if_they_are_allowed() {
    const CPU: &str = "sys/devices/system/cpu/cpu1";
    for (disable, limit, expected) in [
        ("0", "0", CheckState::Warning),
        ("1", "0", CheckState::Ok),
        ("0", "10", CheckState::Ok),
        ("0", "n/a", CheckState::Ok),
        ("0", "200", CheckState::Warning),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        let state = |file: &str| format!("{CPU}/cpuidle/state1/{file}");
        write(
            directory.path(),
            &[
                ("sys/devices/system/cpu/online", "0-1"),
                (&state("name"), "C6"),
                (&state("latency"), "170"),
                (&state("disable"), disable),
                (&format!("{CPU}/power/pm_qos_resume_latency_us"), limit),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "1");
        let found = finding(&check, "idle-states");
        assert_eq!(found.state, expected, "{disable} {limit}: {}", found.found);
    }
}

/// The idle driver of a guest does not know the time that its hypervisor takes.
#[test]
fn in_a_guest_no_idle_state_is_short() {
    const CPU: &str = "sys/devices/system/cpu/cpu1";
    for (flags, limit, expected) in [
        ("fpu", "0", CheckState::Ok),
        ("fpu hypervisor", "0", CheckState::Warning),
        ("fpu hypervisor", "10", CheckState::Warning),
        ("fpu hypervisor", "n/a", CheckState::Ok),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        let state = |number: u32, file: &str| format!("{CPU}/cpuidle/state{number}/{file}");
        let processor = format!("processor : 1\nvendor_id : GenuineIntel\nflags : {flags}\n");
        write(
            directory.path(),
            &[
                ("proc/cpuinfo", &processor),
                ("sys/devices/system/cpu/online", "0-1"),
                (&state(0, "name"), "POLL"),
                (&state(0, "latency"), "0"),
                (&state(0, "disable"), "0"),
                (&state(1, "name"), "haltpoll idle"),
                (&state(1, "latency"), "1"),
                (&state(1, "disable"), "0"),
                (&format!("{CPU}/power/pm_qos_resume_latency_us"), limit),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "1");
        let found = finding(&check, "idle-states");
        assert_eq!(found.state, expected, "{flags} {limit}: {}", found.found);
    }
}

#[test]
fn an_invalid_partition_is_a_problem() {
    for (mode, expected) in [
        ("isolated", CheckState::Ok),
        ("member", CheckState::Ok),
        (
            "isolated invalid (Cpu list in cpuset.cpus not exclusive)",
            CheckState::Error,
        ),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        write(
            directory.path(),
            &[
                ("sys/devices/system/cpu/online", "0-1"),
                (
                    "proc/self/mountinfo",
                    "35 25 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                ),
                ("sys/fs/cgroup/rt.slice/cpuset.cpus.partition", mode),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "1");
        assert_eq!(
            finding(&check, "partitions-valid").state,
            expected,
            "{mode}"
        );
    }
}

#[test]
fn reads_banned_cpus_of_irqbalance_as_list_and_as_mask() {
    for (line, expected) in [
        ("IRQBALANCE_BANNED_CPULIST=2-3", CheckState::Ok),
        ("IRQBALANCE_BANNED_CPUS=\"0000000c\"", CheckState::Ok),
        ("IRQBALANCE_BANNED_CPUS=4", CheckState::Warning),
        // No CPU is isolated.
        ("#IRQBALANCE_BANNED_CPULIST=2-3", CheckState::Warning),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        write(
            directory.path(),
            &[
                ("sys/devices/system/cpu/online", "0-3"),
                ("proc/2/comm", "kthreadd"),
                ("proc/90/comm", "irqbalance"),
                ("etc/default/irqbalance", line),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "2-3");
        assert_eq!(
            finding(&check, "irqbalance-banned-cpus").state,
            expected,
            "{line}"
        );
        // It may run if it leaves out the real-time CPUs.
        let runs = match expected {
            CheckState::Ok => CheckState::NotApplicable,
            _ => CheckState::Warning,
        };
        assert_eq!(finding(&check, "irqbalance").state, runs, "{line}");
    }
}

#[test]
fn cpu_lists_of_the_kernel_command_line_must_agree() {
    for (line, expected) in [
        (
            "isolcpus=domain,managed_irq,2-3 nohz_full=2,3 rcu_nocbs=2-3",
            CheckState::Ok,
        ),
        ("isolcpus=2-3 nohz_full=3", CheckState::Error),
        ("isolcpus=2-3 isolcpus=1-3", CheckState::Error),
        ("isolcpus=2-3 isolcpus=managed_irq,2-3", CheckState::Ok),
        ("nohz_full=2-N", CheckState::Ok),
        ("isolcpus=", CheckState::Error),
        ("quiet", CheckState::NotApplicable),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        write(
            directory.path(),
            &[
                ("sys/devices/system/cpu/online", "0-3"),
                ("proc/cmdline", line),
            ],
        );
        let check = checked(&MachineRoot::at(directory.path()), "2-3");
        assert_eq!(
            finding(&check, "boot-lists-agree").state,
            expected,
            "{line}"
        );
    }
}

#[test]
fn checks_a_machine_without_files() {
    let directory = tempfile::tempdir().expect("directory");
    let check = checked(&MachineRoot::at(directory.path()), "1");
    assert!(check.is_unfit());
    assert_eq!(finding(&check, "irqbalance").state, CheckState::NotRead);
    assert!(check.not_read.iter().all(|one| !one.fix.is_empty()));
    // Each reason once, also if several knobs have it.
    let mut reasons: Vec<&str> = check.not_read.iter().map(|one| one.why.as_str()).collect();
    reasons.dedup();
    assert_eq!(reasons.len(), check.not_read.len());
}

/// Without privileges no file is opened that needs them.
#[test]
fn checks_the_running_machine() {
    let root = MachineRoot::system();
    let machine = read_machine(&root);
    let last = machine.topology.online.iter().next_back().expect("a CPU");
    let readings = read_knob_values(&root, &CpuSet::single(last));
    assert!(readings.kernel.is_some() && readings.limits.is_some());
    for locations in readings.files.values() {
        for location in locations {
            assert!(location.path.starts_with('/'));
            if let Reading::Refused(why) = location.reading {
                assert!(
                    matches!(why, Unread::Privilege | Unread::DebugFiles),
                    "{location:?}"
                );
            }
        }
    }
    checked(&root, &last.to_string());
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = directory.join(file);
        std::fs::create_dir_all(path.parent().expect("parent")).expect("directories");
        std::fs::write(path, text).expect("write");
    }
}
