// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks, ticks, timers and RCU.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "clock-source",
        title: "the clock that the kernel reads",
        location: Location::Fact(
            Fact::ClockSource,
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
        ),
        expected: Expected::Text("tsc on x86, arch_sys_counter on Arm"),
        reason: "Other clocks are slow to read, or trap into the hypervisor, at each wakeup.",
        cost: "The counters of all CPUs must run in step.",
        fix: Some(
            "{if clock tsc} echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource\n{if clock arch_sys_counter} echo arch_sys_counter > /sys/devices/system/clocksource/clocksource0/current_clocksource\n{if x86} {add} tsc=reliable  # if the kernel has refused the counter as unstable\n{if guest} on the host, give this guest a constant counter: -cpu host,+invtsc",
        ),
        source: "Documentation/timers/timekeeping.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "constant-counter",
        title: "the time stamp counter has a constant rate",
        location: Location::Fact(Fact::ConstantCounter, "/proc/cpuinfo, flags"),
        expected: Expected::Text("constant_tsc and nonstop_tsc"),
        applies: &[When::X86],
        reason: "The kernel does not use a counter that follows the frequency or stops in idle states as clock source.",
        cost: "None.",
        effect: KnobEffect::InFirmware,
        fix: Some(
            "{if guest} on the host, expose the flags to this guest: -cpu host,+invtsc\n{if hardware} use another processor",
        ),
        undo: Some("Nothing is changed."),
        by_hand: Some("the processor, or what the hypervisor shows of it, is another one"),
        source: "Documentation/virt/kvm/x86/timekeeping.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "tsc-reliable",
        title: "the clocksource watchdog is off",
        location: boot("tsc"),
        expected: Expected::Word(&["reliable"]),
        applies: &[When::X86],
        choices: &[
            choice(
                "reliable",
                Expected::Word(&["reliable"]),
                "ni/meta-nilrt#711, NTO",
                "`nowatchdog` leaves a timer active",
            ),
            choice(
                "nowatchdog",
                Expected::Word(&["nowatchdog", "reliable"]),
                "tuned realtime-virtual-host (older)",
                "synchronisation is still checked at boot",
            ),
        ],
        reason: "Every half second a timer compares the time stamp counter with another clock, on each CPU in turn.",
        cost: "A faulty counter is no longer detected: use it only with known firmware and boards.",
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
                "Documentation/timers/no_hz.rst; NTO sets it separately",
                "threads that sleep and wake often have slower system calls without a benefit",
            ),
        ],
        reason: "The tick interrupts a busy CPU 100 to 1000 times a second.",
        cost: "System calls and interrupts take longer on these CPUs. It works only with one runnable thread per CPU; POSIX CPU timers start the tick again.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "{if 6.11} {add} nohz_full={real-time} rcutree.nohz_full_patience_delay=1000\n{if before 6.11} {add} nohz_full={real-time}",
        ),
        undo: Some("Remove nohz_full= from the kernel command line and restart."),
        verify: Some(
            "/sys/devices/system/cpu/nohz_full names the CPUs; LOC in /proc/interrupts hardly rises under a busy loop.",
        ),
        source: "Documentation/timers/no_hz.rst; kernel-parameters.txt, nohz_full=",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "nohz",
        title: "idle CPUs stop their tick",
        location: boot("nohz"),
        expected: Expected::Not(&["off"]),
        reason: "nohz=off enables the tick on all CPUs, and makes nohz_full= ineffective.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/timers/no_hz.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "high-resolution-timers",
        title: "high-resolution timers are not disabled",
        location: boot("highres"),
        expected: Expected::Not(&["off"]),
        reason: "With highres=off a thread wakes only at ticks.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, highres=",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "skew-tick",
        title: "ticks of the CPUs are skewed",
        location: boot("skew_tick"),
        expected: Expected::Word(&["1"]),
        reason: "Simultaneous ticks make all CPUs contend for the same locks.",
        cost: "Slightly more power.",
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
                "informational",
                Expected::Informational,
                "Rampart",
                "the better value depends on the real-time workload",
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
                "otherwise old TCP timers stay on the isolated CPU; results of cyclictest get worse",
            ),
        ],
        reason: "It decides whether timers of ordinary code move to busy CPUs or stay on the CPU that armed them.",
        cost: "0: timers stay on real-time CPUs. 1: some wakeups come from another CPU.",
        kernels: Kernels::all(
            "from 6.9 on timers move at expiry, in a hierarchy of CPUs, instead of when they are armed",
        ),
        source: "tuned realtime; NTO 2b97174ec; Documentation/admin-guide/sysctl/kernel.rst",
        ..Knob::of(KnobGroup::Timers)
    },
    Knob {
        name: "rcu-nocbs",
        title: "RCU callbacks are offloaded from the real-time CPUs",
        location: boot_cpus("rcu_nocbs", &["nohz_full"]),
        expected: Expected::CoversRealTime,
        applies: &[When::Option("CONFIG_RCU_NOCB_CPU")],
        reason: "Without offloading, soft interrupts of the CPU that freed memory release it in batches.",
        cost: "Threads on housekeeping CPUs do this work, and each call_rcu() takes slightly longer.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, rcu_nocbs=; nohz_full= implies it",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-nocb-poll",
        title: "the threads of offloaded callbacks poll",
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
                "a real-time CPU does not have to wake them",
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
        title: "grace periods are not expedited after boot",
        location: text(&["/sys/module/rcupdate/parameters/rcu_normal_after_boot"]),
        expected: Expected::Number(1),
        reason: "An expedited grace period interrupts every CPU that is in the kernel.",
        cost: "Loading modules and changing network filters take longer.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} rcupdate.rcu_normal_after_boot=1"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt; tuned network-latency; PREEMPT_RT sets it by itself",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-expedited",
        title: "all grace periods are expedited",
        location: text(&["/sys/kernel/rcu_expedited"]),
        expected: Expected::Number(0),
        reason: "Each expedited grace period interrupts every CPU that is in the kernel.",
        cost: "None.",
        source: "Documentation/admin-guide/kernel-parameters.txt, rcupdate.rcu_expedited",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-patience",
        title: "how long RCU waits before it interrupts tickless CPUs",
        location: text(&["/sys/module/rcutree/parameters/nohz_full_patience_delay"]),
        expected: Expected::AtLeast(1000),
        applies: &[When::Tickless],
        reason: "RCU need not interrupt a guest or thread that will enter the kernel soon.",
        cost: "Memory is freed up to a second later.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} rcutree.nohz_full_patience_delay=1000"),
        undo: Some("Remove the parameter and restart."),
        kernels: Kernels::from(6, 11, "new"),
        source: "Documentation/admin-guide/kernel-parameters.txt; tuned network-latency",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-thread-priority",
        title: "priority of the RCU threads",
        location: text(&["/sys/module/rcutree/parameters/kthread_prio"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "Rampart",
                "it must be above the real-time threads, whose priorities differ between machines",
            ),
            choice(
                "nto",
                Expected::Number(11),
                "NTO, realtime hint",
                "above every workload with a priority below 10",
            ),
        ],
        reason: "A real-time thread above it that never sleeps stops RCU on its CPU.",
        cost: "RCU's threads run before real-time threads of lower priority.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} rcutree.kthread_prio=11"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcutree.kthread_prio=; NTO",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-softirq",
        title: "RCU runs in soft interrupts",
        location: text(&["/sys/module/rcutree/parameters/use_softirq"]),
        expected: Expected::Informational,
        reason: "0 moves the work into the rcuc threads, which have a priority; PREEMPT_RT always does so.",
        cost: "More switches.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} rcutree.use_softirq=0"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, rcutree.use_softirq",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "rcu-boost",
        title: "preempted readers are boosted",
        location: Location::KernelOption("CONFIG_RCU_BOOST"),
        expected: Expected::Present,
        applies: &[When::RealTimeKernel],
        reason: "A reader that is preempted for a long time delays every grace period, until memory runs out.",
        cost: "Negligible.",
        source: "Documentation/RCU/rcu.rst; kernel/rcu/Kconfig",
        ..Knob::of(KnobGroup::ReadCopyUpdate)
    },
];
