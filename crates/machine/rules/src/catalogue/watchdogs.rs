// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watchdogs, and checks that run by themselves.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "nmi-watchdog",
        title: "the watchdog that nothing can mask",
        location: text(&["/proc/sys/kernel/nmi_watchdog"]),
        expected: Expected::Number(0),
        reason: "A counter interrupts every CPU every few seconds, with interrupts off too.",
        cost: "A CPU that hangs with interrupts off is not noticed.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst; tuned realtime; partrt",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "lockup-watchdog",
        title: "watchdogs for CPUs that hang",
        location: text(&["/proc/sys/kernel/watchdog"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "elsewhere",
                Expected::Informational,
                "Documentation/admin-guide/lockup-watchdogs.rst",
                "housekeeping CPUs alone are watched, see watchdog-cpus",
            ),
            choice(
                "off",
                Expected::Number(0),
                "tuned network-latency (nosoftlockup), NTO, partrt",
                "no timer is left anywhere",
            ),
        ],
        reason: "A timer and a thread of the highest priority run on each CPU that is watched.",
        cost: "A CPU that hangs is not noticed.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "watchdog-cpus",
        title: "CPUs that are watched",
        location: list(&["/proc/sys/kernel/watchdog_cpumask"]),
        expected: Expected::NoRealTime,
        reason: "The watchdogs then leave the real-time CPUs alone; so they begin where nohz_full= is set.",
        cost: "A real-time CPU that hangs is not noticed.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "hung-task-watchdog",
        title: "seconds until a blocked task is reported",
        location: text(&["/proc/sys/kernel/hung_task_timeout_secs"]),
        expected: Expected::ZeroOrAtLeast(600),
        reason: "Ordinary threads starve longer on a machine with real-time work, and each report is printed.",
        cost: "Blocked tasks are reported later.",
        source: "tuned realtime; Documentation/admin-guide/sysctl/kernel.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "corrected-errors",
        title: "looking for corrected errors of the hardware",
        location: text(&["/sys/devices/system/machinecheck/machinecheck{real-time-cpu}/ignore_ce"]),
        expected: Expected::Number(1),
        applies: &[When::X86],
        reason: "A timer on each CPU asks the hardware, every few minutes and more often when it found some.",
        cost: "Memory that is about to fail gives no warning.",
        source: "Documentation/arch/x86/x86_64/machinecheck.rst; tuned realtime-virtual-host",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "corrected-errors-interval",
        title: "seconds between looks for corrected errors",
        location: text(&[
            "/sys/devices/system/machinecheck/machinecheck{real-time-cpu}/check_interval",
        ]),
        expected: Expected::Informational,
        applies: &[When::X86],
        choices: &[
            choice(
                "ignored",
                Expected::Informational,
                "tuned",
                "it does not matter once corrected errors are ignored",
            ),
            choice(
                "never",
                Expected::Number(0),
                "partrt",
                "0 stops the timer, on kernels of any age",
            ),
        ],
        reason: "How often that timer comes.",
        cost: "Memory that is about to fail gives no warning.",
        source: "Documentation/arch/x86/x86_64/machinecheck.rst; partrt",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "machine-check",
        title: "machine checks at boot",
        location: boot("mce"),
        expected: Expected::Informational,
        applies: &[When::X86],
        choices: &[
            choice(
                "keep",
                Expected::Informational,
                "Rampart",
                "an error that is not seen corrupts data",
            ),
            choice(
                "ignore-corrected",
                Expected::Word(&["ignore_ce"]),
                "tuned, ni/meta-nilrt",
                "the timers alone are gone",
            ),
            choice(
                "off",
                Expected::Word(&["off", "ignore_ce"]),
                "NTO real-time kernel profile",
                "no machine check can interrupt",
            ),
        ],
        reason: "It decides whether the hardware's errors are looked for at all.",
        cost: "With `off` an error that cannot be corrected goes unseen.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/arch/x86/x86_64/boot-options.rst; NTO; ni/meta-nilrt#711",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "memory-error-polling",
        title: "milliseconds between looks for errors of the memory",
        location: text(&["/sys/module/edac_core/parameters/edac_mc_poll_msec"]),
        expected: Expected::Informational,
        reason: "The driver reads registers of the memory controller, which may take the firmware's help.",
        cost: "Memory that is about to fail gives no warning.",
        source: "Documentation/driver-api/edac.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "rcu-stall-detector",
        title: "reports of stalled grace periods",
        location: text(&["/sys/module/rcupdate/parameters/rcu_cpu_stall_suppress"]),
        expected: Expected::Informational,
        reason: "A real-time thread that starves RCU is reported, with a trace of every CPU by an interrupt that nothing masks.",
        cost: "A machine that is about to run out of memory gives no warning.",
        source: "Documentation/RCU/stallwarn.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "workqueue-watchdog",
        title: "reports of work that does not get on",
        location: text(&["/sys/module/workqueue/parameters/watchdog_thresh"]),
        expected: Expected::Informational,
        reason: "Work that is bound to a busy real-time CPU is reported after this many seconds, and each report is printed.",
        cost: "Work that starves is not noticed.",
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.watchdog_thresh",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "split-locks",
        title: "locked accesses over two cache lines",
        location: text(&["/proc/sys/kernel/split_lock_mitigate"]),
        expected: Expected::Informational,
        applies: &[When::X86],
        reason: "Such an access stops the memory of all cores; with 1 who makes them is slowed down.",
        cost: "Old programs, some games and guests, become slow.",
        kernels: Kernels::from(6, 2, "detected from 5.7 on, split_lock_detect="),
        source: "Documentation/admin-guide/sysctl/kernel.rst, split_lock_mitigate",
        ..Knob::of(KnobGroup::Watchdogs)
    },
];
