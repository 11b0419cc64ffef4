// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks, ticks and timers; read-copy-update.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "clock-source",
        title: "the clock that the kernel reads",
        location: Place::Fact(
            Fact::ClockSource,
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        expected: Expected::Text("tsc on x86, arch_sys_counter on Arm"),
        reason: "Other clocks are slow to read, or need a trap into the hypervisor, in each wakeup.",
        cost: "The counters of all CPUs must run in step.",
        fix: Some(
            "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource, or boot with tsc=reliable",
        ),
        source: "Documentation/timers/timekeeping.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "constant-counter",
        title: "the time stamp counter keeps its pace",
        location: Place::Fact(Fact::ConstantCounter, "/proc/cpuinfo, flags"),
        expected: Expected::Text("constant_tsc and nonstop_tsc"),
        applies: &[When::X86],
        reason: "A counter that follows the frequency or stops in idle states is given up as clock.",
        cost: "None.",
        effect: KnobEffect::InFirmware,
        fix: Some(
            "use another processor, or ask the host to show the flags to this guest (-cpu host,+invtsc)",
        ),
        undo: Some("Nothing is changed."),
        source: "Documentation/virt/kvm/x86/timekeeping.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "tsc-reliable",
        title: "the time stamp counter is not watched",
        location: boot("tsc"),
        expected: Expected::Word(&["reliable"]),
        applies: &[When::X86],
        choices: &[
            choice(
                "reliable",
                Expected::Word(&["reliable"]),
                "ni/meta-nilrt#711, NTO",
                "`nowatchdog` still leaves a timer",
            ),
            choice(
                "nowatchdog",
                Expected::Word(&["nowatchdog", "reliable"]),
                "tuned realtime-virtual-host (older)",
                "synchronisation is still checked at boot",
            ),
        ],
        reason: "Every half second a timer compares it with another clock, on each CPU in turn.",
        cost: "A counter that really goes wrong is no longer noticed: only where firmware and board are known.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, tsc=; ni/meta-nilrt#711",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "nohz-full",
        title: "CPUs without a tick",
        location: list(&["/sys/devices/system/cpu/nohz_full"]),
        expected: Expected::CoversRealTime,
        applies: &[When::Option("CONFIG_NO_HZ_FULL")],
        choices: &[
            choice(
                "tickless",
                Expected::CoversRealTime,
                "tuned realtime, NTO, cpu-isolation.rst",
                "a thread that runs alone is interrupted once a second at most",
            ),
            choice(
                "ticking",
                Expected::Informational,
                "Documentation/timers/no_hz.rst; NTO sets it apart",
                "threads that sleep and wake often pay for each system call and gain nothing",
            ),
        ],
        reason: "The tick interrupts a busy CPU 100 to 1000 times a second.",
        cost: "Dearer system calls and interrupts there; only with one runnable thread a CPU; POSIX CPU timers bring the tick back.",
        effect: KnobEffect::AtRestart,
        fix: Some("nohz_full={real-time} on the kernel command line"),
        undo: Some("Remove nohz_full= from the kernel command line and restart."),
        verify: Some(
            "/sys/devices/system/cpu/nohz_full; LOC in /proc/interrupts hardly rises under a busy loop.",
        ),
        source: "Documentation/timers/no_hz.rst; kernel-parameters.txt, nohz_full=",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "nohz",
        title: "idle CPUs stop their tick",
        location: boot("nohz"),
        expected: Expected::Not(&["off"]),
        reason: "nohz=off brings the tick back everywhere, and makes nohz_full= useless.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/timers/no_hz.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "high-resolution-timers",
        title: "fine timers are not switched off",
        location: boot("highres"),
        expected: Expected::Not(&["off"]),
        reason: "highres=off makes a thread wake at ticks only.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, highres=",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "skew-tick",
        title: "ticks of the CPUs come one after the other",
        location: boot("skew_tick"),
        expected: Expected::Word(&["1"]),
        reason: "Ticks at one instant make all CPUs want the same locks at that instant.",
        cost: "A little more power.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, skew_tick=; tuned network-latency",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "timer-migration",
        title: "timers may be armed on another CPU",
        location: text(&["/proc/sys/kernel/timer_migration"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "which is better depends on what the real-time threads do",
            ),
            choice(
                "stay",
                Expected::Number(0),
                "tuned realtime",
                "a thread's own timers fire on its own CPU, without an interrupt from another",
            ),
            choice(
                "migrate",
                Expected::Number(1),
                "NTO since 2026-06 (2b97174ec)",
                "old timers of TCP otherwise stay on the isolated CPU, at the price of cyclictest's results",
            ),
        ],
        reason: "It decides whether timers of ordinary code gather on busy CPUs or stay where they were armed.",
        cost: "0: timers stay on real-time CPUs. 1: some wakeups come from another CPU.",
        kernels: Kernels::all(
            "from 6.9 on timers are pulled at expiry in a hierarchy of CPUs, and not pushed when armed",
        ),
        source: "tuned realtime; NTO 2b97174ec; Documentation/admin-guide/sysctl/kernel.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "rcu-nocbs",
        title: "callbacks of RCU are taken off the real-time CPUs",
        location: boot_cpus("rcu_nocbs", &["nohz_full"]),
        expected: Expected::CoversRealTime,
        applies: &[When::Option("CONFIG_RCU_NOCB_CPU")],
        reason: "Freed memory is given back in soft interrupts of the CPU that freed it, in batches.",
        cost: "Threads on housekeeping CPUs do it, and each free is a little dearer.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, rcu_nocbs=; nohz_full= implies it",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-nocb-poll",
        title: "the threads of callbacks poll",
        location: boot("rcu_nocb_poll"),
        expected: Expected::Informational,
        choices: &[
            choice(
                "wake",
                Expected::Informational,
                "tuned, NTO",
                "polling threads are never idle",
            ),
            choice(
                "poll",
                Expected::Present,
                "SEAPATH",
                "a real-time CPU need not wake them",
            ),
        ],
        reason: "Without it the CPU that queues a callback wakes the thread that runs it.",
        cost: "Threads wake many times a second on housekeeping CPUs.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, rcu_nocb_poll",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-normal-after-boot",
        title: "grace periods are not expedited after the boot",
        location: text(&["/sys/module/rcupdate/parameters/rcu_normal_after_boot"]),
        expected: Expected::Number(1),
        reason: "An expedited grace period interrupts every CPU that is in the kernel.",
        cost: "Loading modules and changing network filters takes longer.",
        effect: KnobEffect::AtRestart,
        fix: Some("rcupdate.rcu_normal_after_boot=1 on the kernel command line"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt; tuned network-latency; PREEMPT_RT sets it by itself",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-expedited",
        title: "all grace periods are expedited",
        location: text(&["/sys/kernel/rcu_expedited"]),
        expected: Expected::Number(0),
        reason: "Each would interrupt every CPU that is in the kernel.",
        cost: "None.",
        source: "Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_expedited",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-patience",
        title: "how long RCU waits before it disturbs tickless CPUs",
        location: text(&["/sys/module/rcutree/parameters/nohz_full_patience_delay"]),
        expected: Expected::AtLeast(1000),
        applies: &[When::Tickless],
        reason: "A guest or thread that enters the kernel soon anyway need not be interrupted for a grace period.",
        cost: "Memory is freed up to a second later.",
        effect: KnobEffect::AtRestart,
        fix: Some("rcutree.nohz_full_patience_delay=1000 on the kernel command line"),
        undo: Some("Remove the parameter and restart."),
        kernels: Kernels::from(6, 11, "new"),
        source: "Documentation/admin-guide/kernel-parameters.txt; tuned network-latency",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-thread-priority",
        title: "priority that RCU gives its threads",
        location: text(&["/sys/module/rcutree/parameters/kthread_prio"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "it must be above the real-time threads of the machine, which differ",
            ),
            choice(
                "nto",
                Expected::Number(11),
                "NTO, realtime hint",
                "above every workload that keeps below 10",
            ),
        ],
        reason: "A real-time thread above it that never sleeps stops RCU on its CPU.",
        cost: "RCU's threads run before real-time threads of lower priority.",
        effect: KnobEffect::AtRestart,
        fix: Some("rcutree.kthread_prio=11 on the kernel command line"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcutree.kthread_prio=; NTO",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-softirq",
        title: "RCU works in soft interrupts",
        location: text(&["/sys/module/rcutree/parameters/use_softirq"]),
        expected: Expected::Informational,
        reason: "0 moves its work into the threads rcuc, which have a priority; PREEMPT_RT does so always.",
        cost: "More switches.",
        effect: KnobEffect::AtRestart,
        fix: Some("rcutree.use_softirq=0 on the kernel command line"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcutree.use_softirq",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-boost",
        title: "preempted readers are boosted",
        location: Place::KernelOption("CONFIG_RCU_BOOST"),
        expected: Expected::Present,
        applies: &[When::RealTimeKernel],
        reason: "A reader that is preempted for long holds up every grace period, until memory runs out.",
        cost: "None worth naming.",
        source: "Documentation/RCU/rcu.rst; kernel/rcu/Kconfig",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
];
