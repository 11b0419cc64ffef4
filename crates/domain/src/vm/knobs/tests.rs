// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The knobs of guests on machines that are not there.

use std::path::Path;

use rampart_model::{Accelerator, GuestThreadRole, Nanos, SchedulingPolicy};

use super::super::arguments::arguments;
use super::super::description::Board;
use super::super::description::tests::{example, set};
use super::*;

/// The knobs of a guest whose program runs with the arguments that it is given.
fn knobs(
    facts: &HostFacts,
    guest: &Description,
    threads: &[GuestThread],
    locked: u64,
) -> Vec<Knob> {
    let words = arguments(guest, Path::new("/run/guest"));
    let command: Vec<String> = words
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    with_command(facts, guest, &command, threads, locked)
}

fn with_command(
    facts: &HostFacts,
    guest: &Description,
    command: &[String],
    threads: &[GuestThread],
    locked: u64,
) -> Vec<Knob> {
    all(&Known {
        facts,
        guest,
        command,
        threads,
        locked,
        hello: &hello(),
        firmware_interrupts: Some(9),
    })
}

fn hello() -> AgentHello {
    AgentHello {
        protocol: 1,
        program: "0.1.0".to_owned(),
        kernel_release: "6.1.0-rt".to_owned(),
        kernel_version: "#1 SMP PREEMPT_RT".to_owned(),
        architecture: "x86_64".to_owned(),
        boot_line: "quiet isolcpus=managed_irq,domain,1-2 nohz_full=1-2 rcu_nocbs=1-2".to_owned(),
        cpus: set("0-2"),
        problems: Vec::new(),
    }
}

fn threads(guest: &Description) -> Vec<GuestThread> {
    let mut threads: Vec<GuestThread> = (0u32..)
        .zip(&guest.cpus)
        .map(|(number, cpu)| GuestThread {
            name: format!("CPU {number}/KVM"),
            thread: 100 + number,
            role: GuestThreadRole::VirtualCpu(number),
            cpus: cpu.cpus.clone(),
            policy: cpu.policy,
        })
        .collect();
    threads.push(GuestThread {
        name: "qemu".to_owned(),
        thread: 99,
        role: GuestThreadRole::Other,
        cpus: guest.emulator.clone(),
        policy: SchedulingPolicy::Other,
    });
    threads
}

fn named<'a>(knobs: &'a [Knob], name: &str) -> &'a Knob {
    knobs
        .iter()
        .find(|knob| knob.told.name.contains(name))
        .unwrap_or_else(|| panic!("no knob {name}"))
}

fn satisfied(knobs: &[Knob], name: &str) -> bool {
    named(knobs, name).told.satisfied
}

fn facts(command_line: &str, files: &[(&'static str, &str)]) -> HostFacts {
    HostFacts {
        files: files
            .iter()
            .map(|(path, text)| (*path, (*text).to_owned()))
            .collect(),
        command_line: command_line.to_owned(),
        possible: set("0-3"),
        kernel_threads: vec![
            ("ksoftirqd/2".to_owned(), SchedulingPolicy::Fifo(2)),
            ("ksoftirqd/3".to_owned(), SchedulingPolicy::Other),
            ("ksoftirqd/0".to_owned(), SchedulingPolicy::Other),
            ("rcuc/2".to_owned(), SchedulingPolicy::Fifo(4)),
        ],
        idle_exit: Nanos(2_000),
        governors: vec!["performance".to_owned()],
        nodes: 1,
        firmware_interrupts: Some(9),
        ..HostFacts::default()
    }
}

#[test]
fn a_host_that_is_set_up_is_told_as_such() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let line = "isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu_nocbs=2-3 irqaffinity=0-1";
    let facts = facts(
        line,
        &[
            ("/proc/sys/kernel/sched_rt_runtime_us", "-1"),
            (
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "always madvise [never]",
            ),
            ("/sys/devices/virtual/workqueue/cpumask", "3"),
            ("/sys/module/kvm/parameters/halt_poll_ns", "200000"),
        ],
    );
    let found = knobs(&facts, &guest, &threads(&guest), 600 << 20);
    for name in [
        "isolcpus= on the host",
        "nohz_full= on the host",
        "irqaffinity=",
        "sched_rt_runtime_us",
        "transparent_hugepage",
        "workqueue/cpumask",
        "mem-lock",
        "huge pages",
        "thread of virtual CPU 2",
        "all other threads",
        "guest kernel",
        "nohz_full= on the guest",
        "rcuc/",
        "idle states",
        "kvm-hint-dedicated",
        "cpu_dma_latency",
        "SMI",
        "mem-merge",
        "prealloc",
        "topology",
        "devices",
        "pmu",
        "memory node",
        "resctrl",
        "managed_irq in",
        "default_hugepagesz",
    ] {
        let knob = named(&found, name);
        assert!(knob.told.satisfied, "{knob:?}");
        assert_eq!(knob.finding(), None);
    }
    for name in ["halt_poll_ns", "skew_tick", "ksoftirqd/"] {
        let knob = named(&found, name);
        assert!(!knob.told.satisfied, "{knob:?}");
        let finding = knob.finding().expect("a finding");
        assert!(finding.present.is_some() && finding.needed.is_some());
        assert!(finding.mend.is_some(), "{finding}");
    }
}

#[test]
fn a_stray_thread_and_a_wrong_policy_are_seen() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let mut threads = threads(&guest);
    threads[1].policy = SchedulingPolicy::Other;
    threads[3].cpus = set("0-3");
    let found = knobs(&facts("", &[]), &guest, &threads, 0);
    assert!(!satisfied(&found, "thread of virtual CPU 1"));
    let others = named(&found, "all other threads");
    assert!(!others.told.satisfied);
    assert!(
        others.told.present.contains("qemu"),
        "{}",
        others.told.present
    );
    assert!(!satisfied(&found, "mem-lock"));
}

#[test]
fn lists_that_differ_are_told() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let facts = facts("isolcpus=domain,2-3 nohz_full=3", &[]);
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    assert!(!satisfied(&found, "isolcpus=, nohz_full="));
    assert!(!satisfied(&found, "nohz_full= on the host"));
}

#[test]
fn what_is_not_there_is_no_knob() {
    let guest = example(Accelerator::Tcg, Board::Pc);
    let facts = facts("", &[("/sys/module/kvm/parameters/halt_poll_ns", "0")]);
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    assert!(
        !found
            .iter()
            .any(|knob| knob.told.name.contains("halt_poll"))
    );
    assert!(!satisfied(&found, "accelerator"));
}

#[test]
fn what_the_command_line_does_not_say_is_not_claimed() {
    let guest = example(Accelerator::Kvm, Board::Pc);
    let mut command: Vec<String> = arguments(&guest, Path::new("/run/guest"))
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    for word in &mut command {
        for (given, other) in [
            ("mem-merge=off", "mem-merge=on"),
            (",prealloc=on", ""),
            ("threads=1", "threads=2"),
            ("pmu=off", "pmu=on"),
            ("host,", "max,"),
            ("hugetlb=on", "hugetlb=off"),
            (",host-nodes=0,policy=bind", ""),
        ] {
            *word = word.replace(given, other);
        }
    }
    command.extend(["-device", "virtio-balloon-pci,id=b"].map(str::to_owned));
    let facts = HostFacts {
        nodes: 2,
        ..facts("", &[])
    };
    let found = with_command(&facts, &guest, &command, &threads(&guest), 0);
    for name in [
        "mem-merge",
        "prealloc",
        "topology",
        "pmu",
        "-cpu host",
        "huge pages",
        "memory node",
        "devices",
    ] {
        let knob = named(&found, name);
        assert!(!knob.told.satisfied && !knob.told.applied, "{knob:?}");
    }
    let devices = &named(&found, "devices").told.present;
    assert!(devices.contains("virtio-balloon-pci"), "{devices}");
}

#[test]
fn isolation_counts_only_for_what_it_keeps_away() {
    for (text, balancing, interrupts) in [
        ("2-3", true, false),
        ("nohz,2-3", false, false),
        ("domain,2-3", true, false),
        ("managed_irq,2-3", false, true),
        ("nohz,domain,managed_irq,2,3", true, true),
        ("2-N", true, false),
        ("domain,all", true, false),
    ] {
        let guest = example(Accelerator::Kvm, Board::Microvm);
        let facts = facts(&format!("isolcpus={text}"), &[]);
        let found = knobs(&facts, &guest, &threads(&guest), 0);
        assert_eq!(
            satisfied(&found, "isolcpus= on the host"),
            balancing,
            "{text}"
        );
        assert_eq!(satisfied(&found, "managed_irq in"), interrupts, "{text}");
    }
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let facts = facts("isolcpus=nohz,2-3", &[]);
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    assert!(!satisfied(&found, "isolcpus= on the host"));
    assert!(!satisfied(&found, "managed_irq in"));
}

#[test]
fn starving_the_kernels_own_threads_is_a_problem_unless_all_is_throttled() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let of = |runtime, policy| {
        let mut facts = facts("", &[("/proc/sys/kernel/sched_rt_runtime_us", runtime)]);
        facts.kernel_threads.push(("rcub/0".to_owned(), policy));
        knobs(&facts, &guest, &threads(&guest), 0)
    };
    let severity = |found: &[Knob], name| named(found, name).finding().map(|of| of.severity);
    let bare = of("-1", SchedulingPolicy::Fifo(1));
    assert_eq!(severity(&bare, "ksoftirqd/"), Some(Severity::Problem));
    assert_eq!(severity(&bare, "rcub/"), Some(Severity::Problem));
    assert_eq!(severity(&bare, "rcuc/"), None);
    let throttled = of("950000", SchedulingPolicy::Fifo(2));
    assert_eq!(severity(&throttled, "ksoftirqd/"), Some(Severity::Warning));
    assert_eq!(severity(&throttled, "rcub/"), None);
}

#[test]
fn virtual_cpus_that_take_turns_starve_nobody() {
    let mut guest = example(Accelerator::Kvm, Board::Microvm);
    for cpu in &mut guest.cpus {
        cpu.policy = SchedulingPolicy::Other;
    }
    let found = knobs(&facts("", &[]), &guest, &threads(&guest), 0);
    assert!(
        !found
            .iter()
            .any(|knob| knob.told.name.contains("ksoftirqd"))
    );
}

#[test]
fn what_would_mend_the_machine_is_told_and_whose_it_is() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let facts = HostFacts {
        idle_exit: Nanos::from_micros(200),
        divides_caches: true,
        iommus: 1,
        firmware_interrupts: Some(7),
        ..facts(
            "",
            &[
                ("/proc/sys/kernel/hung_task_timeout_secs", "120"),
                ("/proc/sys/kernel/soft_watchdog", "1"),
                ("/sys/module/rcutree/parameters/kthread_prio", "0"),
                ("/sys/module/kvm/parameters/halt_poll_ns", "200000"),
                ("/sys/devices/system/cpu/smt/active", "1"),
            ],
        )
    };
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    for (name, mend) in [
        ("hung_task", "sysctl kernel.hung_task_timeout_secs=600;"),
        ("soft_watchdog", "sysctl kernel.soft_watchdog=0;"),
        ("kthread_prio", "boot with rcutree.kthread_prio=2;"),
        ("halt_poll_ns", "boot with kvm.halt_poll_ns=0;"),
        (
            "smt/active",
            "echo off > /sys/devices/system/cpu/smt/control;",
        ),
        ("idle states", "cpupower"),
        ("cpu_dma_latency", "pm_qos_resume_latency_us"),
        ("iommu=", "boot the host with iommu=pt;"),
        ("resctrl", "mount -t resctrl"),
        ("SMI", "firmware"),
    ] {
        let finding = named(&found, name).finding().expect("a finding");
        let told = finding.mend.unwrap_or_default();
        assert!(told.contains(mend) && told.ends_with(BY_OWNER), "{told}");
    }
    assert_eq!(named(&found, "SMI").told.present, "2");
}
