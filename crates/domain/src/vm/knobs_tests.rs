// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::super::description::Board;
use super::super::description::tests::{example, set};
use super::*;

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

fn named<'a>(knobs: &'a [GuestKnob], name: &str) -> &'a GuestKnob {
    knobs
        .iter()
        .find(|knob| knob.name.contains(name))
        .unwrap_or_else(|| panic!("no knob {name}"))
}

fn facts(command_line: &str, files: &[(&'static str, &str)]) -> HostFacts {
    HostFacts {
        files: files
            .iter()
            .map(|(path, text)| (*path, (*text).to_owned()))
            .collect(),
        command_line: command_line.to_owned(),
        kernel_threads: vec![
            ("ksoftirqd/2".to_owned(), SchedulingPolicy::Fifo(2)),
            ("ksoftirqd/3".to_owned(), SchedulingPolicy::Other),
            ("ksoftirqd/0".to_owned(), SchedulingPolicy::Other),
            ("rcuc/2".to_owned(), SchedulingPolicy::Fifo(4)),
        ],
        idle_exit: 2_000,
        governors: vec!["performance".to_owned()],
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
    let knobs = all(&facts, &guest, &threads(&guest), 600 << 20, &hello());
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
    ] {
        let knob = named(&knobs, name);
        assert!(knob.satisfied, "{knob:?}");
        assert_eq!(finding(knob), None);
    }
    for name in [
        "halt_poll_ns",
        "skew_tick",
        "ksoftirqd/",
        "kvm-hint-dedicated",
    ] {
        let knob = named(&knobs, name);
        assert!(!knob.satisfied, "{knob:?}");
        assert!(finding(knob).is_some_and(|finding| finding.present.is_some()));
    }
}

#[test]
fn a_stray_thread_and_a_wrong_policy_are_seen() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let mut threads = threads(&guest);
    threads[1].policy = SchedulingPolicy::Other;
    threads[3].cpus = set("0-3");
    let knobs = all(&facts("", &[]), &guest, &threads, 0, &hello());
    assert!(!named(&knobs, "thread of virtual CPU 1").satisfied);
    let others = named(&knobs, "all other threads");
    assert!(!others.satisfied);
    assert!(others.present.contains("qemu"), "{}", others.present);
    assert!(!named(&knobs, "mem-lock").satisfied);
}

#[test]
fn lists_that_differ_are_told() {
    let guest = example(Accelerator::Kvm, Board::Microvm);
    let facts = facts("isolcpus=domain,2-3 nohz_full=3", &[]);
    let knobs = all(&facts, &guest, &threads(&guest), 0, &hello());
    assert!(!named(&knobs, "isolcpus=, nohz_full=").satisfied);
    assert!(!named(&knobs, "nohz_full= on the host").satisfied);
    assert_eq!(cpus_in("managed_irq,domain,2-3,5"), set("2-3,5"));
}

#[test]
fn what_is_not_there_is_no_knob() {
    let guest = example(Accelerator::Tcg, Board::Pc);
    let facts = facts("", &[("/sys/module/kvm/parameters/halt_poll_ns", "0")]);
    let knobs = all(&facts, &guest, &threads(&guest), 0, &hello());
    assert!(!knobs.iter().any(|knob| knob.name.contains("halt_poll")));
    assert!(!named(&knobs, "accelerator").satisfied);
}
