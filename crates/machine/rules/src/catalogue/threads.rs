// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Priorities and CPUs of kernel threads, and limits of processes.

use super::*;

const LADDER: &str = "tuned realtime-virtual-host (ksoftirqd and ktimers 2, ktimersoftd 3, rcuc and rcub 4); NTO (all 11)";

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "ksoftirqd-priority",
        title: "priority of ksoftirqd",
        location: Location::ThreadPolicy(&["ksoftirqd/{cpu}"]),
        expected: Expected::FifoAtLeast(2),
        choices: &[
            choice(
                "tuned",
                Expected::FifoAtLeast(2),
                "tuned realtime-virtual-host",
                "just above virtual CPUs, which run at 1",
            ),
            choice(
                "nto",
                Expected::FifoAtLeast(11),
                "NTO",
                "above every workload with a priority below 10",
            ),
            choice(
                "kernel",
                Expected::Informational,
                "the kernel's default",
                "all real-time threads run before soft interrupts",
            ),
        ],
        applies: &[When::RealTimeKernel],
        reason: "A real-time thread above it that never sleeps starves timers and network on its CPU.",
        cost: "Soft interrupts run before real-time threads of lower priority.",
        source: LADDER,
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "ktimers-priority",
        title: "priority of the timer threads",
        location: Location::ThreadPolicy(&["ktimers/{cpu}", "ktimersd/{cpu}", "ktimersoftd/{cpu}"]),
        expected: Expected::FifoAtLeast(2),
        choices: &[
            choice(
                "tuned",
                Expected::FifoAtLeast(2),
                "tuned realtime-virtual-host",
                "just above virtual CPUs, which run at 1",
            ),
            choice(
                "nto",
                Expected::FifoAtLeast(11),
                "NTO",
                "above every workload with a priority below 10",
            ),
        ],
        applies: &[When::RealTimeKernel],
        reason: "Timers of ordinary threads and of the kernel expire in this thread.",
        cost: "Timers run before real-time threads of lower priority.",
        kernels: Kernels::all(
            "named ktimersoftd in old kernels, ktimers in the real-time patches from 6.1 on and in mainline from 6.13",
        ),
        source: LADDER,
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "rcuc-priority",
        title: "priority of the RCU callback threads",
        location: Location::ThreadPolicy(&["rcuc/{cpu}"]),
        expected: Expected::FifoAtLeast(4),
        choices: &[
            choice(
                "tuned",
                Expected::FifoAtLeast(4),
                "tuned realtime-virtual-host",
                "above the threads that it may have to wait for",
            ),
            choice(
                "nto",
                Expected::FifoAtLeast(11),
                "NTO",
                "together with rcutree.kthread_prio=11",
            ),
        ],
        applies: &[When::RealTimeKernel],
        reason: "If this thread starves, RCU does not free memory, and the machine stalls.",
        cost: "Callbacks run before real-time threads of lower priority.",
        fix: Some(
            "{add} rcutree.kthread_prio=11\nfor t in $(pgrep '^rcuc/'); do chrt --fifo --pid 4 $t; done",
        ),
        source: LADDER,
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "rcub-priority",
        title: "priority of the RCU boost threads",
        location: Location::ThreadPolicy(&["rcub/*"]),
        expected: Expected::FifoAtLeast(4),
        choices: &[
            choice(
                "tuned",
                Expected::FifoAtLeast(4),
                "tuned realtime-virtual-host",
                "above the threads that it may have to wait for",
            ),
            choice(
                "nto",
                Expected::FifoAtLeast(11),
                "NTO",
                "together with rcutree.kthread_prio=11",
            ),
        ],
        applies: &[When::RealTimeKernel],
        reason: "This thread gives its priority to a preempted reader that delays a grace period.",
        cost: "Boosted readers run before real-time threads of lower priority.",
        source: LADDER,
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "rcuo-affinity",
        title: "CPUs of the threads of offloaded RCU callbacks",
        location: Location::ThreadAffinity(&["rcuog/*", "rcuop/*", "rcuos/*", "rcuob/*"]),
        expected: Expected::NoRealTime,
        reason: "Callbacks that are offloaded from a real-time CPU should not run there in a thread.",
        cost: "Housekeeping CPUs run them.",
        source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst; tuned cpu-partitioning",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "interrupt-thread-priority",
        title: "priority of threaded interrupts",
        location: Location::ThreadPolicy(&["irq/*"]),
        expected: Expected::Informational,
        reason: "The kernel starts all of them at 50: the threads that an application's device needs must be above the application, the others below it.",
        cost: "An application above the interrupt thread of its device waits for data that this thread cannot deliver.",
        source: "kernel/irq/manage.c; SEAPATH ansible#996",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "interrupt-thread-affinity",
        title: "CPUs of threaded interrupts",
        location: Location::ThreadAffinity(&["irq/*"]),
        expected: Expected::NoRealTime,
        reason: "The thread of an interrupt runs on the CPUs of the interrupt, at priority 50.",
        cost: "Housekeeping CPUs run them.",
        fix: Some(
            "move the interrupt, the thread follows: echo {housekeeping} > /proc/irq/NUMBER/smp_affinity_list",
        ),
        by_hand: Some("the thread follows its interrupt, which the rule interrupt-affinity names"),
        source: "Documentation/core-api/irq/irq-affinity.rst; tuned realtime-virtual-host",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "kernel-thread-affinity",
        title: "CPUs of kernel threads that may be moved",
        location: Location::ThreadAffinity(&["*"]),
        expected: Expected::NoRealTime,
        reason: "A kernel thread without an affinity eventually runs on a real-time CPU.",
        cost: "Housekeeping CPUs run them.",
        kernels: Kernels::all("isolated partitions keep them away by themselves from 7.0 on"),
        source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst; tuned scheduler plugin",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "idle-injection",
        title: "threads that force CPUs to be idle",
        location: Location::ThreadPolicy(&["kidle_inj/*", "kidle_inject/*"]),
        expected: Expected::Absent,
        reason: "They run at priority 50 and keep a CPU idle to cool the machine.",
        cost: "The machine needs other means of cooling.",
        fix: Some("echo 0 into cur_state of each cooling device of type intel_powerclamp"),
        undo: Some("Write the old cur_state back."),
        by_hand: Some("the numbers of the cooling devices are not known"),
        source: "Documentation/admin-guide/thermal/intel_powerclamp.rst",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "vhost-affinity",
        title: "CPUs of the vhost threads",
        location: Location::ThreadAffinity(&["vhost-*"]),
        expected: Expected::NoRealTime,
        applies: &[When::Guests],
        reason: "They run when a guest's network is busy, and belong to no virtual CPU.",
        cost: "Housekeeping CPUs run them.",
        source: "kvm-rt guides of Red Hat and SEAPATH",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "guest-timer-thread-affinity",
        title: "CPUs of the threads of emulated PIT timers",
        location: Location::ThreadAffinity(&["kvm-pit/*"]),
        expected: Expected::NoRealTime,
        applies: &[When::Guests, When::X86],
        reason: "The emulated interval timer of a guest runs in a thread of the host.",
        cost: "Housekeeping CPUs run them.",
        source: "arch/x86/kvm/i8254.c",
        ..Knob::of(KnobGroup::KernelThreads)
    },
    Knob {
        name: "locked-memory-limit",
        title: "how much memory a process may lock",
        location: Location::Fact(Fact::LockedMemory, "RLIMIT_MEMLOCK"),
        expected: Expected::Text("without a limit, or CAP_IPC_LOCK"),
        reason: "A real-time thread locks its memory to avoid page faults at run time; a guest needs far more than its size.",
        cost: "A process can lock all memory.",
        effect: KnobEffect::ForWhatStartsNext,
        fix: Some(
            "ulimit -l unlimited\n`* - memlock unlimited` in a file in /etc/security/limits.d\nLimitMEMLOCK=infinity in the unit\n--ulimit memlock=-1 for the container",
        ),
        undo: Some("Remove the line."),
        by_hand: Some("the limit belongs to a session, a unit or a container"),
        source: "mlock(2), getrlimit(2); libvirt formatdomain, locked",
        ..Knob::of(KnobGroup::Limits)
    },
    Knob {
        name: "real-time-priority-limit",
        title: "which real-time priority a process may take",
        location: Location::Fact(Fact::RealTimePriority, "RLIMIT_RTPRIO"),
        expected: Expected::Text("99, or CAP_SYS_NICE"),
        reason: "Without it only a process with CAP_SYS_NICE may use a real-time policy.",
        cost: "A thread of that user can occupy a CPU completely.",
        effect: KnobEffect::ForWhatStartsNext,
        fix: Some(
            "`* - rtprio 99` in a file in /etc/security/limits.d\nLimitRTPRIO=99 in the unit\n--ulimit rtprio=99 for the container",
        ),
        undo: Some("Remove the line."),
        by_hand: Some("the limit belongs to a session, a unit or a container"),
        source: "sched(7), getrlimit(2); SCHED_DEADLINE needs CAP_SYS_NICE in any case",
        ..Knob::of(KnobGroup::Limits)
    },
    Knob {
        name: "timer-slack",
        title: "timer slack of ordinary threads",
        location: text(&["/proc/self/timerslack_ns"]),
        expected: Expected::Informational,
        reason: "Timers of ordinary threads fire up to 50 µs late to combine wakeups; real-time policies have no slack.",
        cost: "A small value causes more wakeups.",
        effect: KnobEffect::ForWhatStartsNext,
        fix: Some("prctl(PR_SET_TIMERSLACK, 1) in the program"),
        undo: Some("It ends with the program."),
        source: "prctl(2), PR_SET_TIMERSLACK",
        ..Knob::of(KnobGroup::Limits)
    },
];
