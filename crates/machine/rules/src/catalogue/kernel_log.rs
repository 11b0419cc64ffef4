// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages of the kernel log that show a disturbance since the machine started.

use super::*;

/// Returns the defaults of all messages.
const fn message(group: KnobGroup) -> Knob {
    Knob {
        expected: Expected::Absent,
        cost: "None.",
        effect: KnobEffect::AtRestart,
        undo: Some("Nothing is changed by reading the log."),
        ..Knob::of(group)
    }
}

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "logged-throttling",
        title: "the kernel has not stopped a real-time thread",
        location: Location::KernelLog(&["RT throttling activated"]),
        applies: &[When::Throttling],
        reason: "A real-time thread used up its time of a period and was stopped for the rest, usually 50 ms of each second. The kernel logs it once.",
        cost: "Without the limit, a real-time thread that never sleeps keeps its CPU.",
        effect: KnobEffect::AtOnce,
        fix: Some("sysctl kernel.sched_rt_runtime_us=-1"),
        undo: Some("Write the old value."),
        source: "kernel/sched/rt.c, sched_rt_runtime_exceeded",
        ..message(KnobGroup::Scheduler)
    },
    Knob {
        name: "logged-unstable-counter",
        title: "the kernel trusts the time stamp counter",
        location: Location::KernelLog(&[
            "Marking TSC unstable",
            "Marking clocksource 'tsc' as unstable",
            "Marking clocksource 'tsc-early' as unstable",
            "TSC found unstable",
        ]),
        applies: &[When::X86, When::Feature("nonstop_tsc")],
        reason: "Each reading of the clock then takes a microsecond or more from another timer, with a lock between CPUs.",
        fix: Some("{add} tsc=nowatchdog  # if the message names the clocksource watchdog"),
        undo: Some("Remove tsc= from the kernel command line and restart."),
        source: "arch/x86/kernel/tsc.c, mark_tsc_unstable; kernel/time/clocksource.c",
        ..message(KnobGroup::Timers)
    },
    Knob {
        name: "logged-late-timers",
        title: "timer interrupts are short",
        location: Location::KernelLog(&["hrtimer: interrupt took"]),
        reason: "A timer interrupt ran for longer than the time to the next timer: firmware, a hypervisor or a debugging option held the CPU.",
        fix: Some("rampart measure noise --cpus {real-time} --explain names what holds the CPU"),
        source: "kernel/time/hrtimer.c, hrtimer_interrupt",
        ..message(KnobGroup::Timers)
    },
    Knob {
        name: "logged-housekeeping",
        title: "the kernel accepts the lists of isolated CPUs",
        location: Location::KernelLog(&["Housekeeping: ", "isolcpus: Invalid flag"]),
        reason: "The kernel has refused isolcpus= or nohz_full=, in whole or in part.",
        fix: Some(
            "{if 6.11} {add} isolcpus=managed_irq,domain,{real-time} nohz_full={real-time} rcu_nocbs={real-time} rcutree.nohz_full_patience_delay=1000\n{if before 6.11} {add} isolcpus=managed_irq,domain,{real-time} nohz_full={real-time} rcu_nocbs={real-time}",
        ),
        source: "kernel/sched/isolation.c, housekeeping_setup",
        severity: Severity::Error,
        ..message(KnobGroup::Isolation)
    },
    Knob {
        name: "logged-rcu-stalls",
        title: "RCU has not waited for a CPU",
        location: Location::KernelLog(&[
            "detected stalls on CPUs/tasks",
            "self-detected stall on CPU",
            "detected expedited stalls",
        ]),
        reason: "A CPU did not leave a real-time thread, a section without preemption or a hypervisor for many seconds; memory cannot be freed meanwhile.",
        fix: Some(
            "let the real-time thread sleep in each period, or give rcuc/* a higher priority (rampart knobs rcuc-priority)",
        ),
        source: "Documentation/RCU/stallwarn.rst",
        ..message(KnobGroup::ReadCopyUpdate)
    },
    Knob {
        name: "logged-lockups",
        title: "no CPU has hung",
        location: Location::KernelLog(&[
            "BUG: soft lockup",
            "hard LOCKUP",
            "Watchdog detected hard",
        ]),
        reason: "A CPU ran kernel code for seconds without another thread or an interrupt; every thread there waited for as long.",
        fix: Some("remove or update the driver that the call trace after the message names"),
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        ..message(KnobGroup::Watchdogs)
    },
    Knob {
        name: "logged-machine-checks",
        title: "the hardware reports no errors",
        location: Location::KernelLog(&["Hardware Error", "Machine check events logged"]),
        reason: "Firmware or an interrupt of every CPU handles each corrected error, and a failing part reports many of them.",
        fix: Some("replace the part that the message names"),
        source: "Documentation/arch/x86/x86_64/machinecheck.rst; Documentation/admin-guide/ras.rst",
        ..message(KnobGroup::Watchdogs)
    },
    Knob {
        name: "logged-overheating",
        title: "no CPU was slowed down by heat",
        location: Location::KernelLog(&["cpu clock throttled", "cpu clock is throttled"]),
        reason: "The hardware lowers the clock of a hot core, so the same work takes several times longer.",
        fix: Some(
            "improve the cooling, or lower the highest frequency (rampart knobs fixed-frequency)",
        ),
        source: "arch/x86/kernel/cpu/mce/therm_throt.c",
        ..message(KnobGroup::Power)
    },
    Knob {
        name: "logged-sampling-limit",
        title: "perf does not interrupt for long",
        location: Location::KernelLog(&["perf: interrupt took too long"]),
        reason: "A program samples with perf, whose interrupts cannot be disabled, and they took longer than their limit.",
        fix: Some("stop the programs that sample with perf"),
        source: "Documentation/admin-guide/sysctl/kernel.rst, perf_cpu_time_max_percent",
        ..message(KnobGroup::Observation)
    },
];
