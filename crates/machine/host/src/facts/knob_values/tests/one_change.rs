// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of one change of a machine on which the rules find nothing.

use super::*;

/// The files of a machine with CPUs 2 and 3 isolated, on which the rules below find nothing.
const QUIET: [(&str, &str); 15] = [
    ("sys/devices/system/cpu/online", "0-3"),
    ("sys/devices/system/cpu/isolated", "2-3"),
    ("sys/devices/system/cpu/nohz_full", "2-3"),
    ("proc/sys/kernel/arch", "x86_64"),
    ("proc/sys/kernel/osrelease", "6.12.48-rt"),
    ("proc/sys/kernel/sched_rt_runtime_us", "950000"),
    (
        "proc/cpuinfo",
        "vendor_id : GenuineIntel\nflags : tsc nonstop_tsc",
    ),
    ("proc/cmdline", "ro isolcpus=managed_irq,domain,2-3 quiet"),
    ("proc/2/comm", "kthreadd"),
    ("proc/modules", "ext4 1 2 - Live 0x0\n"),
    (
        "boot/config-6.12.48-rt",
        "# CONFIG_RT_GROUP_SCHED is not set\n",
    ),
    ("sys/kernel/sched_ext/state", "disabled"),
    ("sys/class/misc/hw_random/rng_current", "virtio_rng.0"),
    ("sys/bus/pci/devices/0000:00:02.0/class", "0x030000"),
    ("var/log/dmesg", "[    0.000000] Linux version 6.12.48-rt\n"),
];

/// One change of [`QUIET`], and what a rule then finds.
struct Case<'a> {
    rule: &'a str,
    files: &'a [(&'a str, &'a str)],
    state: CheckState,
    /// A part of what was found.
    found: &'a str,
    /// The fix; empty if none is needed.
    fix: &'a str,
}

const fn case<'a>(
    rule: &'a str,
    files: &'a [(&'a str, &'a str)],
    state: CheckState,
    found: &'a str,
    fix: &'a str,
) -> Case<'a> {
    Case {
        rule,
        files,
        state,
        found,
        fix,
    }
}

/// A line of `/proc/PID/stat` with this policy and priority.
fn stat_of(number: u32, name: &str, policy: u32, priority: u32) -> String {
    format!(
        "{number} ({name}) S 1 0 0 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 3 0 0 1 0 0 0 0 0 0 0 0 0 0 0 0 17 0 {priority} {policy} 0 0 0\n"
    )
}

/// Checks [`QUIET`] with the files of a case, and returns the finding of its rule.
fn judged(case: &Case<'_>) -> CheckFinding {
    let directory = tempfile::tempdir().expect("directory");
    write(directory.path(), &QUIET);
    write(directory.path(), case.files);
    let check = checked(&MachineRoot::at(directory.path()), "2-3");
    finding(&check, case.rule).clone()
}

fn compare(cases: &[Case<'_>]) {
    let quiet = tempfile::tempdir().expect("directory");
    write(quiet.path(), &QUIET);
    let quiet = checked(&MachineRoot::at(quiet.path()), "2-3");
    for case in cases {
        let before = finding(&quiet, case.rule);
        assert!(
            !matches!(before.state, CheckState::Error | CheckState::Warning),
            "{before:?}"
        );
        let found = judged(case);
        let words = format!("{} with {:?}: {found:?}", case.rule, case.files);
        assert_eq!(found.state, case.state, "{words}");
        assert!(found.found.contains(case.found), "{words}");
        assert_eq!(
            found.fix.as_deref().unwrap_or_default(),
            case.fix,
            "{words}"
        );
    }
}

#[test]
fn devices_and_interfaces_that_delay_are_found() {
    use CheckState::{Ok, Warning};
    const GPU: &str = "sys/bus/pci/devices/0000:00:02.0";
    compare(&[
        case(
            "receive-flush-timeout",
            &[("sys/class/net/enp2s0/gro_flush_timeout", "20000")],
            Warning,
            "20000",
            "echo 0 > /sys/class/net/enp2s0/gro_flush_timeout",
        ),
        case(
            "deferred-interrupts",
            &[("sys/class/net/enp2s0/napi_defer_hard_irqs", "1")],
            Warning,
            "1",
            "echo 0 > /sys/class/net/enp2s0/napi_defer_hard_irqs",
        ),
        case(
            "interrupt-broadcast",
            &[("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : x2apic")],
            Warning,
            "not given",
            "no_ipi_broadcast=1 on the kernel command line",
        ),
        case(
            "interrupt-broadcast",
            &[
                ("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : x2apic"),
                ("proc/cmdline", "ro no_ipi_broadcast=1"),
            ],
            Ok,
            "1",
            "",
        ),
        case(
            "device-runtime-power",
            &[
                (&format!("{GPU}/power/control"), "auto"),
                (&format!("{GPU}/power/runtime_status"), "suspended"),
            ],
            Warning,
            "0000:00:02.0 (display, suspended)",
            "echo on | tee /sys/bus/pci/devices/0000:00:02.0/power/control",
        ),
        case(
            "device-runtime-power",
            &[
                (&format!("{GPU}/power/control"), "on"),
                // A hub, and an interface.
                ("sys/bus/usb/devices/usb1/bDeviceClass", "09"),
                ("sys/bus/usb/devices/usb1/power/control", "auto"),
                ("sys/bus/usb/devices/1-1:1.0/power/control", "auto"),
            ],
            Ok,
            "no device",
            "",
        ),
        case(
            "device-runtime-power",
            &[
                ("sys/bus/usb/devices/1-1/bDeviceClass", "00"),
                ("sys/bus/usb/devices/1-1/power/control", "auto"),
            ],
            Warning,
            "1-1 (USB device, state unknown)",
            "echo on | tee /sys/bus/usb/devices/1-1/power/control",
        ),
        case(
            "storage-link-power",
            &[(
                "sys/class/scsi_host/host0/link_power_management_policy",
                "min_power",
            )],
            Warning,
            "min_power",
            "echo max_performance | tee /sys/class/scsi_host/host0/link_power_management_policy",
        ),
        case(
            "random-generator",
            &[
                ("sys/class/misc/hw_random/rng_current", "smccc_trng"),
                ("sys/class/misc/hw_random/rng_available", "smccc_trng none"),
            ],
            Warning,
            "smccc_trng",
            "echo none > /sys/class/misc/hw_random/rng_current\nuse a kernel without the driver of this generator",
        ),
        case(
            "random-generator",
            &[
                ("sys/class/misc/hw_random/rng_current", "tpm-rng-0"),
                ("sys/class/misc/hw_random/rng_available", "tpm-rng-0"),
                ("sys/class/misc/hw_random/rng_quality", "1024"),
            ],
            Warning,
            "tpm-rng-0",
            "echo 0 > /sys/class/misc/hw_random/rng_quality\nuse a kernel without the driver of this generator",
        ),
    ]);
}

#[test]
fn foreign_schedulers_modules_and_debugging_are_found() {
    use CheckState::{Informational, Ok, Warning};
    const CONFIG: &str = "boot/config-6.12.48-rt";
    compare(&[
        case(
            "extensible-scheduler",
            &[
                ("sys/kernel/sched_ext/state", "enabled"),
                ("sys/kernel/sched_ext/root/ops", "rusty"),
                ("proc/90/comm", "scx_rusty"),
            ],
            Warning,
            "rusty is enabled",
            "pkill -x scx_rusty\necho S > /proc/sysrq-trigger",
        ),
        case(
            "extensible-scheduler",
            &[
                ("sys/kernel/sched_ext/state", "enabled"),
                ("sys/kernel/sched_ext/root/ops", "own"),
            ],
            Warning,
            "own is enabled",
            "echo S > /proc/sysrq-trigger",
        ),
        case(
            "foreign-modules",
            &[(
                "proc/modules",
                "gpu 1 2 - Live 0x0 (POE)\nzfs 1 2 - Live 0x0 (OE)\nrampart 1 0 - Live 0x0 (OE)\n",
            )],
            Warning,
            "gpu",
            "module_blacklist=gpu on the kernel command line",
        ),
        case(
            "foreign-modules",
            &[("proc/modules", "zfs 1 2 - Live 0x0 (OE)\n")],
            Informational,
            "zfs",
            "",
        ),
        case(
            "foreign-modules",
            &[("proc/modules", "rampart 1 0 - Live 0x0 (OE)\n")],
            Ok,
            "none",
            "",
        ),
        case(
            "config-debugging",
            &[(CONFIG, "CONFIG_DEBUG_PREEMPT=y\nCONFIG_LOCK_STAT=y\n")],
            Warning,
            "CONFIG_DEBUG_PREEMPT, CONFIG_LOCK_STAT",
            "use a kernel without CONFIG_DEBUG_PREEMPT,CONFIG_LOCK_STAT",
        ),
        case(
            "real-time-group-scheduling",
            &[
                (CONFIG, "CONFIG_RT_GROUP_SCHED=y\n"),
                ("proc/sys/kernel/sched_rt_runtime_us", "-1"),
            ],
            Ok,
            "without a limit",
            "",
        ),
    ]);
}

/// Fixes name what this machine has, and nothing that cannot help.
#[test]
fn a_fix_is_one_of_this_machine() {
    const CLOCK: &str = "sys/devices/system/clocksource/clocksource0";
    let clock = |file: &str| format!("{CLOCK}/{file}_clocksource");
    let (current, available) = (clock("current"), clock("available"));
    let released = |release| ("proc/sys/kernel/osrelease", release);
    let before = ("boot/config-6.15.1-rt", "CONFIG_RT_GROUP_SCHED=y\n");
    let groups = ("boot/config-6.16.1-rt", "CONFIG_RT_GROUP_SCHED=y\n");
    let zero = "isolcpus=managed_irq,domain,0-3 nohz_full=0-3 rcu_nocbs=2-3";
    for (rule, files, expected) in [
        (
            "clock-source",
            &[(current.as_str(), "hpet"), (available.as_str(), "tsc hpet")][..],
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource\ntsc=reliable on the kernel command line  # if the kernel has refused the counter as unstable",
        ),
        (
            "clock-source",
            &[
                (current.as_str(), "hpet"),
                (available.as_str(), "hpet acpi_pm"),
            ],
            "tsc=reliable on the kernel command line  # if the kernel has refused the counter as unstable",
        ),
        (
            "clock-source",
            &[
                (current.as_str(), "hpet"),
                (available.as_str(), "hpet"),
                ("proc/cmdline", "tsc=reliable"),
            ],
            "",
        ),
        (
            "real-time-group-scheduling",
            &[before, released("6.15.1-rt")],
            "sysctl kernel.sched_rt_runtime_us=-1\nuse a kernel without CONFIG_RT_GROUP_SCHED",
        ),
        (
            "real-time-group-scheduling",
            &[groups, released("6.16.1-rt")],
            "sysctl kernel.sched_rt_runtime_us=-1\nrt_group_sched=0 on the kernel command line\nuse a kernel without CONFIG_RT_GROUP_SCHED",
        ),
        (
            "real-time-group-scheduling",
            &[
                groups,
                released("6.16.1-rt"),
                ("proc/cmdline", "rt_group_sched=off"),
            ],
            "",
        ),
        (
            "boot-cpu",
            &[("proc/cmdline", zero)],
            "isolcpus=managed_irq,domain,1-3 nohz_full=1-3 on the kernel command line, instead of the present isolcpus=, nohz_full=",
        ),
        ("boot-cpu", &[], "name other CPUs with --cpus"),
    ] {
        let directory = tempfile::tempdir().expect("directory");
        write(directory.path(), &QUIET);
        write(directory.path(), files);
        let cpus = if rule == "boot-cpu" { "0-2" } else { "2-3" };
        let check = checked(&MachineRoot::at(directory.path()), cpus);
        let fix = finding(&check, rule).fix.clone().unwrap_or_default();
        assert_eq!(fix, expected, "{rule} with {files:?}");
    }
}

#[test]
fn words_that_the_kernel_does_not_know_are_named() {
    use CheckState::{Error, Informational, Warning};
    compare(&[
        case(
            "isolcpus-flags",
            &[("proc/cmdline", "isolcpus=managed_irq,domian,2-3")],
            Error,
            "domian",
            "isolcpus=managed_irq,domain,2-3 on the kernel command line, instead of the present isolcpus=",
        ),
        case(
            "unknown-parameters",
            &[("proc/cmdline", "isolcpus=2-3 rcu_nocb=2-3")],
            Warning,
            "rcu_nocb is unknown, rcu_nocbs is similar",
            "remove rcu_nocb= from the kernel command line",
        ),
        case(
            "unknown-parameters",
            &[(
                "var/log/dmesg",
                "[ 0.1] Unknown kernel command line parameters \"BOOT_IMAGE=/vmlinuz splash\", will be passed to user space.",
            )],
            Informational,
            "BOOT_IMAGE=/vmlinuz splash",
            "",
        ),
    ]);
}

/// Every message of the catalogue is found in the log, and in no other.
#[test]
fn messages_of_the_kernel_log_are_found() {
    for (rule, message) in [
        ("logged-throttling", "sched: RT throttling activated"),
        (
            "logged-unstable-counter",
            "tsc: Marking TSC unstable due to clocksource watchdog",
        ),
        (
            "logged-unstable-counter",
            "clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:",
        ),
        ("logged-late-timers", "hrtimer: interrupt took 123456 ns"),
        (
            "logged-housekeeping",
            "Housekeeping: nohz_full= must match isolcpus=",
        ),
        (
            "logged-rcu-stalls",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
        ),
        (
            "logged-lockups",
            "watchdog: BUG: soft lockup - CPU#2 stuck for 26s! [loop:99]",
        ),
        (
            "logged-machine-checks",
            "mce: [Hardware Error]: Machine check events logged",
        ),
        (
            "logged-overheating",
            "CPU2: Core temperature is above threshold, cpu clock is throttled (total events = 1)",
        ),
        (
            "logged-sampling-limit",
            "perf: interrupt took too long (2501 > 2500), lowering kernel.perf_event_max_sample_rate to 79750",
        ),
    ] {
        let log = format!("[    0.000000] Linux version 6.12\n[   17.250000] {message}\n");
        let directory = tempfile::tempdir().expect("directory");
        write(directory.path(), &QUIET);
        write(directory.path(), &[("var/log/dmesg", &log)]);
        let check = checked(&MachineRoot::at(directory.path()), "2-3");
        let logged = check
            .findings
            .iter()
            .filter(|one| one.rule.starts_with("logged-"));
        for found in logged {
            let is_wrong = matches!(found.state, CheckState::Error | CheckState::Warning);
            assert_eq!(is_wrong, found.rule == rule, "{message}: {found:?}");
            assert_eq!(found.found.contains(message), is_wrong, "{found:?}");
        }
    }
    // Without the limit nothing is throttled any more.
    let found = judged(&case(
        "logged-throttling",
        &[
            ("proc/sys/kernel/sched_rt_runtime_us", "-1"),
            ("var/log/dmesg", "sched: RT throttling activated"),
        ],
        CheckState::NotApplicable,
        "",
        "",
    ));
    assert_eq!(found.state, CheckState::NotApplicable);
}

#[test]
fn groups_and_programs_that_reach_real_time_cpus_are_found_at_any_depth() {
    use CheckState::{Ok, Warning};
    const GROUPS: &str = "sys/fs/cgroup";
    let cpus = |group: &str| format!("{GROUPS}/{group}/cpuset.cpus.effective");
    let ordinary = stat_of(73, "pause", 0, 0);
    let fifo = |number| stat_of(number, "worker", 1, 80);
    compare(&[
        case(
            "group-affinity",
            &[
                (&cpus("kubepods.slice"), "0-3"),
                (&cpus("kubepods.slice/kubepods-besteffort.slice"), "0-3"),
                (&cpus("system.slice"), "0-1"),
            ],
            Warning,
            "kubepods.slice may use CPUs 0-3",
            "systemctl set-property kubepods.slice AllowedCPUs=0-1",
        ),
        // A pod that owns real-time CPUs: the groups above it include them, and its sandbox must not.
        case(
            "group-affinity",
            &[
                (&cpus("kubepods.slice"), "0-3"),
                (&cpus("kubepods.slice/pod.slice"), "0-3"),
                (&cpus("kubepods.slice/pod.slice/work.scope"), "2-3"),
                (&cpus("kubepods.slice/pod.slice/sandbox.scope"), "0-3"),
            ],
            Warning,
            "kubepods.slice/pod.slice/sandbox.scope may use CPUs 0-3",
            "systemctl set-property sandbox.scope AllowedCPUs=0-1",
        ),
        case(
            "group-affinity",
            &[(&cpus("docker"), "0-3"), (&cpus("docker/one"), "0-3")],
            Warning,
            "docker may use CPUs 0-3",
            "echo 0-1 | tee /sys/fs/cgroup/docker/cpuset.cpus",
        ),
        case(
            "group-affinity",
            &[
                (&cpus("machine.slice"), "0-3"),
                (&cpus("machine.slice/guest.scope"), "0-3"),
                (&cpus("machine.slice/guest.scope/vcpu0"), "2"),
                (&cpus("machine.slice/guest.scope/emulator"), "0-1"),
                (&cpus("init.scope"), "0-3"),
            ],
            Ok,
            "no group",
            "",
        ),
        case(
            "partitions-valid",
            &[
                (
                    "proc/self/mountinfo",
                    "35 25 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
                ),
                (
                    "sys/fs/cgroup/a.slice/b.slice/c.service/cpuset.cpus.partition",
                    "isolated invalid (Parent is not a partition root)",
                ),
            ],
            CheckState::Error,
            "1 of 1 invalid",
            "read the reason in cpuset.cpus.partition: another group may claim the CPUs",
        ),
        case(
            "program-affinity",
            &[
                ("proc/73/comm", "pause"),
                ("proc/73/stat", &ordinary),
                ("proc/73/status", "Cpus_allowed_list:\t0-3"),
            ],
            Warning,
            "pause may run on CPUs 0-3",
            "taskset -apc 0-1 73",
        ),
        case(
            "program-affinity",
            &[
                ("sys/devices/system/cpu/isolated", ""),
                ("proc/73/comm", "pause"),
                ("proc/73/stat", &ordinary),
                ("proc/73/status", "Cpus_allowed_list:\t0-3"),
            ],
            Ok,
            "no program",
            "",
        ),
        // A thread under a real-time policy, and not the first of its process.
        case(
            "program-affinity",
            &[
                ("sys/devices/system/cpu/isolated", ""),
                ("proc/73/comm", "pause"),
                ("proc/73/stat", &ordinary),
                ("proc/73/task/73/stat", &ordinary),
                ("proc/73/task/73/status", "Cpus_allowed_list:\t0-3"),
                ("proc/73/task/74/stat", &fifo(74)),
                ("proc/73/task/74/status", "Cpus_allowed_list:\t0-3"),
            ],
            Warning,
            "worker may run on CPUs 0-3, fifo:80",
            "taskset -apc 0-1 73",
        ),
        case(
            "floating-threads",
            &[
                ("proc/73/comm", "worker"),
                ("proc/73/stat", &fifo(73)),
                ("proc/73/task/73/stat", &fifo(73)),
                ("proc/73/task/73/status", "Cpus_allowed_list:\t2-3"),
                ("proc/73/task/74/stat", &fifo(74)),
                ("proc/73/task/74/status", "Cpus_allowed_list:\t2-3"),
                ("proc/73/task/75/stat", &fifo(75)),
                ("proc/73/task/75/status", "Cpus_allowed_list:\t2"),
            ],
            Warning,
            "2 threads: 73 (worker), 74 (worker)",
            // Thread 75 is on CPU 2 already.
            "taskset -pc 3 73; taskset -pc 2 74",
        ),
    ]);
}

#[test]
fn irqbalance_is_judged_by_the_cpus_that_it_leaves_out() {
    use CheckState::{NotApplicable, Ok, Warning};
    let program = ("proc/90/comm", "irqbalance");
    let fix = |file: &str| {
        format!(
            "echo IRQBALANCE_BANNED_CPULIST=2-3 | tee -a {file} && systemctl restart irqbalance"
        )
    };
    let yocto = fix("/etc/irqbalance.env");
    let debian = fix("/etc/default/irqbalance");
    let banned = "irqbalance-banned-cpus";
    compare(&[
        // Isolated and tickless CPUs by default, with and without a file.
        case(banned, &[program], Ok, "2-3", ""),
        case(
            banned,
            &[program, ("etc/default/irqbalance", "#\n")],
            Ok,
            "2-3",
            "",
        ),
        case(
            banned,
            &[
                program,
                ("etc/irqbalance.env", "IRQBALANCE_BANNED_CPULIST=3-2"),
            ],
            Warning,
            "IRQBALANCE_BANNED_CPULIST=3-2 in /etc/irqbalance.env does not name CPUs",
            &yocto,
        ),
        // An empty list replaces the default.
        case(
            banned,
            &[
                program,
                ("etc/default/irqbalance", "IRQBALANCE_BANNED_CPULIST=\n"),
            ],
            Warning,
            "none",
            &debian,
        ),
        case(
            banned,
            &[
                program,
                ("etc/default/irqbalance", "IRQBALANCE_BANNED_CPUS=\n"),
            ],
            Ok,
            "2-3",
            "",
        ),
        case("irqbalance", &[program], NotApplicable, "", ""),
        case(
            "irqbalance",
            &[
                program,
                ("sys/devices/system/cpu/isolated", ""),
                ("sys/devices/system/cpu/nohz_full", ""),
            ],
            Warning,
            "irqbalance runs",
            "systemctl disable --now irqbalance",
        ),
    ]);
}
