// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The settings of guests on invented machines.

use std::path::Path;

use rampart_model::{Accelerator, GuestThreadRole, Nanos, SchedulingPolicy, Severity};

use super::super::description::Board;
use super::super::description::tests::{example, set};
use super::super::qemu_arguments::arguments;
use rampart_rules::guest::guest_finding;

use super::*;

/// Returns the settings of a guest whose program runs with the arguments of its description.
fn knobs(
    facts: &HostFacts,
    guest: &Description,
    threads: &[GuestThread],
    locked: u64,
) -> Vec<GuestKnob> {
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
) -> Vec<GuestKnob> {
    let settings = all(&Known {
        facts,
        guest,
        command,
        threads,
        locked,
        hello: &hello(),
        firmware_interrupts: Some(9),
    });
    for setting in &settings {
        let rule = rampart_rules::rule(&setting.rule);
        let rule = rule.unwrap_or_else(|| panic!("{setting:?}"));
        let severity = guest_finding(setting).map(|finding| finding.severity);
        assert!(severity.is_none_or(|severity| severity == rule.severity));
    }
    settings
}

fn hello() -> AgentHello {
    AgentHello {
        protocol: 1,
        program: "0.1.0".to_owned(),
        kernel_release: "6.1.0-rt".to_owned(),
        kernel_version: "#1 SMP PREEMPT_RT".to_owned(),
        architecture: "x86_64".to_owned(),
        kernel_command_line: "quiet isolcpus=managed_irq,domain,1-2 nohz_full=1-2 rcu_nocbs=1-2"
            .to_owned(),
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

fn named<'a>(knobs: &'a [GuestKnob], name: &str) -> &'a GuestKnob {
    knobs
        .iter()
        .find(|knob| knob.location.contains(name))
        .unwrap_or_else(|| panic!("no knob {name}"))
}

fn satisfied(knobs: &[GuestKnob], name: &str) -> bool {
    named(knobs, name).satisfied
}

fn facts(command_line: &str, files: &[(&str, &str)]) -> HostFacts {
    HostFacts {
        files: files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
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
fn accepts_a_configured_host() {
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
        assert!(knob.satisfied, "{knob:?}");
        assert_eq!(guest_finding(knob), None);
    }
    for name in ["halt_poll_ns", "skew_tick", "ksoftirqd/"] {
        let knob = named(&found, name);
        assert!(!knob.satisfied, "{knob:?}");
        let finding = guest_finding(knob).expect("a finding");
        assert!(finding.found.is_some() && finding.expected.is_some());
        assert!(finding.fix.is_some(), "{finding}");
    }
}

#[test]
fn reports_a_stray_thread_and_a_wrong_policy() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let mut threads = threads(&guest);
    threads[1].policy = SchedulingPolicy::Other;
    threads[3].cpus = set("0-3");
    let found = knobs(&facts("", &[]), &guest, &threads, 0);
    assert!(!satisfied(&found, "thread of virtual CPU 1"));
    let others = named(&found, "all other threads");
    assert!(!others.satisfied);
    assert!(others.found.contains("qemu"), "{}", others.found);
    assert!(!satisfied(&found, "mem-lock"));
}

#[test]
fn reports_lists_that_differ() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let facts = facts("isolcpus=domain,2-3 nohz_full=3", &[]);
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    assert!(!satisfied(&found, "isolcpus=, nohz_full="));
    assert!(!satisfied(&found, "nohz_full= on the host"));
}

#[test]
fn lists_no_setting_of_a_missing_file() {
    let guest = example(Accelerator::Tcg, Board::Pc);
    let facts = facts("", &[("/sys/module/kvm/parameters/halt_poll_ns", "0")]);
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    assert!(!found.iter().any(|knob| knob.location.contains("halt_poll")));
    assert!(!satisfied(&found, "accelerator"));
}

#[test]
fn claims_nothing_that_the_command_line_lacks() {
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
        assert!(!knob.satisfied && !knob.applied, "{knob:?}");
    }
    let devices = &named(&found, "devices").found;
    assert!(devices.contains("virtio-balloon-pci"), "{devices}");
}

#[test]
fn accepts_isolation_only_for_its_flags() {
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
fn reports_starved_kernel_threads_unless_throttled() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let of = |runtime, policy| {
        let mut facts = facts("", &[("/proc/sys/kernel/sched_rt_runtime_us", runtime)]);
        facts.kernel_threads.push(("rcub/0".to_owned(), policy));
        knobs(&facts, &guest, &threads(&guest), 0)
    };
    let severity =
        |found: &[GuestKnob], name| guest_finding(named(found, name)).map(|of| of.severity);
    let bare = of("-1", SchedulingPolicy::Fifo(1));
    assert_eq!(severity(&bare, "ksoftirqd/"), Some(Severity::Error));
    assert_eq!(severity(&bare, "rcub/"), Some(Severity::Error));
    assert_eq!(severity(&bare, "rcuc/"), None);
    let throttled = of("950000", SchedulingPolicy::Fifo(2));
    assert_eq!(severity(&throttled, "ksoftirqd/"), Some(Severity::Warning));
    assert_eq!(severity(&throttled, "rcub/"), None);
}

#[test]
fn accepts_virtual_cpus_that_take_turns() {
    let mut guest = example(Accelerator::Kvm, Board::Microvm);
    for cpu in &mut guest.cpus {
        cpu.policy = SchedulingPolicy::Other;
    }
    let found = knobs(&facts("", &[]), &guest, &threads(&guest), 0);
    assert!(!found.iter().any(|knob| knob.location.contains("ksoftirqd")));
}

#[test]
fn names_a_fix_for_each_setting_of_the_machine() {
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
                ("/proc/sys/kernel/sched_rt_runtime_us", "950000"),
                ("/proc/sys/vm/swappiness", "60"),
                ("/sys/devices/virtual/workqueue/cpumask", "f"),
            ],
        )
    };
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    for (name, fix) in [
        ("hung_task", "sysctl kernel.hung_task_timeout_secs=600"),
        ("soft_watchdog", "sysctl kernel.soft_watchdog=0"),
        ("kthread_prio", "boot with rcutree.kthread_prio=2"),
        ("halt_poll_ns", "boot with kvm.halt_poll_ns=0"),
        (
            "sched_rt_runtime_us",
            "sysctl kernel.sched_rt_runtime_us=-1",
        ),
        ("swappiness", "sysctl vm.swappiness=10"),
        (
            "workqueue/cpumask",
            "echo 3 > /sys/devices/virtual/workqueue/cpumask",
        ),
        ("idle states", "cpupower"),
        ("cpu_dma_latency", "pm_qos_resume_latency_us"),
        ("iommu=", "boot the host with iommu=pt"),
        ("resctrl", "cache = { ways = 2"),
        ("SMI", "firmware"),
    ] {
        let finding = guest_finding(named(&found, name)).expect("a finding");
        let shown = finding.fix.unwrap_or_default();
        assert!(shown.contains(fix), "{shown}");
    }
    assert_eq!(named(&found, "SMI").found, "2");
}

#[test]
fn accepts_the_tick_on_an_emulated_machine() {
    let mut guest = example(Accelerator::Kvm, Board::Microvm);
    guest.emulated = true;
    let facts = facts("", &[]);
    let of = |kernel_command_line: &str| {
        let mut hello = hello();
        kernel_command_line.clone_into(&mut hello.kernel_command_line);
        all(&Known {
            facts: &facts,
            guest: &guest,
            command: &[],
            threads: &threads(&guest),
            locked: 0,
            hello: &hello,
            firmware_interrupts: None,
        })
    };
    let own = guest.kernel_command_line();
    let found = of(&own);
    let inside: Vec<&GuestKnob> = found
        .iter()
        .filter(|knob| knob.location.contains("on the guest's kernel command line"))
        .collect();
    assert_eq!(inside.len(), 3);
    for knob in inside {
        assert!(knob.satisfied && knob.applied, "{knob:?}");
    }
    let tick = named(&found, "nohz= on the guest");
    assert_eq!(tick.found, "off");
    assert!(tick.reason.contains("tick"));
    let other = of(&own.replace("nohz=off", ""));
    assert!(!satisfied(&other, "nohz= on the guest"));
}

#[test]
fn judges_files_like_the_rules_of_machines() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let pages = "/sys/kernel/mm/transparent_hugepage/enabled";
    let apicv = "/sys/module/kvm_intel/parameters/enable_apicv";
    let split = "/sys/module/kvm/parameters/nx_huge_pages";
    let siblings = "/sys/devices/system/cpu/smt/active";
    let check = "/sys/devices/system/machinecheck/machinecheck";
    for (file, text, expected) in [
        (pages, "always madvise [never]", true),
        (pages, "always [madvise] never", false),
        (pages, "never", true),
        ("/proc/sys/vm/swappiness", "60", false),
        ("/proc/sys/vm/swappiness", "5", true),
        (apicv, "N", false),
        (apicv, "Y", true),
        (split, "0", true),
        (split, "off", true),
        (split, "auto", false),
        (siblings, "1", true),
        (siblings, "0", true),
        // On real-time CPUs, which exclude CPU 0.
        (format!("{check}2/ignore_ce").as_str(), "0", false),
        (format!("{check}2/ignore_ce").as_str(), "1", true),
        ("/sys/devices/virtual/workqueue/nvme-wq/cpumask", "f", false),
        ("/sys/devices/virtual/workqueue/nvme-wq/cpumask", "3", true),
    ] {
        let found = knobs(&facts("", &[(file, text)]), &guest, &threads(&guest), 0);
        let name = match file {
            _ if file.starts_with(check) => "ignore_ce",
            _ if file.contains("nvme-wq") => "workqueue/*/cpumask",
            _ => file,
        };
        assert_eq!(satisfied(&found, name), expected, "{file} is {text}");
    }
    let first = format!("{check}0/ignore_ce");
    let balancing = "/proc/sys/kernel/numa_balancing";
    let of = |nodes| {
        let facts = HostFacts {
            nodes,
            ..facts("", &[(balancing, "1"), (first.as_str(), "0")])
        };
        knobs(&facts, &guest, &threads(&guest), 0)
    };
    let (one, two) = (of(1), of(2));
    assert!(!one.iter().any(|knob| knob.location == balancing));
    assert!(!satisfied(&two, balancing));
    assert!(!one.iter().any(|knob| knob.location.contains("ignore_ce")));
}

#[test]
fn merges_deviations_of_one_form() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let queue = "/sys/devices/virtual/workqueue";
    let facts = facts(
        "",
        &[
            (format!("{queue}/a/cpumask").as_str(), "f"),
            (format!("{queue}/b/cpumask").as_str(), "3"),
            (format!("{queue}/c/cpumask").as_str(), "c"),
        ],
    );
    let found = knobs(&facts, &guest, &threads(&guest), 0);
    let knob = &named(&found, "workqueue/*/cpumask");
    assert_eq!(
        knob.found,
        format!("{queue}/a/cpumask is f; 2 of 3 are not as expected")
    );
    assert_eq!(knob.expected, "within CPUs 0-1");
}

#[test]
fn finds_timer_threads_by_each_name() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    for name in ["ktimers/3", "ktimersd/3", "ktimersoftd/3"] {
        let mut facts = facts("", &[]);
        let thread = (name.to_owned(), SchedulingPolicy::Fifo(1));
        facts.kernel_threads.push(thread);
        let found = knobs(&facts, &guest, &threads(&guest), 0);
        assert!(!satisfied(&found, name.trim_end_matches('3')), "{name}");
    }
}

#[test]
fn accepts_idle_states_that_power_management_prevents() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let of = |limit, held: &[u32]| {
        let facts = HostFacts {
            idle_exit: Nanos::from_micros(200),
            latency_limit: limit,
            held_awake: held.iter().copied().map(rampart_model::CpuId).collect(),
            ..facts("", &[])
        };
        let found = knobs(&facts, &guest, &threads(&guest), 0);
        let idle = satisfied(&found, "idle states");
        assert_eq!(idle, satisfied(&found, "cpu_dma_latency"));
        idle
    };
    assert!(!of(None, &[]));
    assert!(!of(Some(Nanos::from_secs(2000)), &[2]));
    assert!(of(None, &[2, 3]));
    assert!(of(Some(Nanos::ZERO), &[]));
}
