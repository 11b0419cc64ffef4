// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watchdogs and periodic checks of the kernel.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "nmi-watchdog",
        title: "the NMI watchdog",
        location: text(&["/proc/sys/kernel/nmi_watchdog"]),
        expected: Expected::Number(0),
        reason: "A counter interrupts every CPU every few seconds, even with interrupts disabled.",
        cost: "A CPU that hangs with interrupts disabled is not detected.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst; tuned realtime; partrt",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "lockup-watchdog",
        title: "lockup watchdogs",
        location: text(&["/proc/sys/kernel/watchdog"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "elsewhere",
                Expected::Informational,
                "Documentation/admin-guide/lockup-watchdogs.rst",
                "only housekeeping CPUs are monitored, see watchdog-cpus",
            ),
            choice(
                "off",
                Expected::Number(0),
                "tuned network-latency (nosoftlockup), NTO, partrt",
                "no watchdog timer remains on any CPU",
            ),
        ],
        reason: "A timer and a thread of the highest priority run on each monitored CPU.",
        cost: "A CPU that hangs is not detected.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "watchdog-cpus",
        title: "CPUs that the lockup watchdogs monitor",
        location: list(&["/proc/sys/kernel/watchdog_cpumask"]),
        expected: Expected::NoRealTime,
        reason: "The watchdogs then do not run on the real-time CPUs; this is the default with nohz_full=.",
        cost: "A real-time CPU that hangs is not detected.",
        source: "Documentation/admin-guide/lockup-watchdogs.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "hung-task-watchdog",
        title: "seconds until a blocked task is reported",
        location: text(&["/proc/sys/kernel/hung_task_timeout_secs"]),
        expected: Expected::ZeroOrAtLeast(600),
        reason: "Ordinary threads wait longer on a machine with real-time work, and each report is printed.",
        cost: "Blocked tasks are reported later.",
        source: "tuned realtime; Documentation/admin-guide/sysctl/kernel.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "corrected-errors",
        title: "polling for corrected hardware errors",
        location: text(&["/sys/devices/system/machinecheck/machinecheck{real-time-cpu}/ignore_ce"]),
        expected: Expected::Number(1),
        applies: &[When::X86],
        reason: "A timer on each CPU polls the hardware every few minutes, and more often after an error.",
        cost: "There is no warning before memory fails.",
        source: "Documentation/arch/x86/x86_64/machinecheck.rst; tuned realtime-virtual-host",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "corrected-errors-interval",
        title: "seconds between polls for corrected errors",
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
                "it has no effect if corrected errors are ignored",
            ),
            choice(
                "never",
                Expected::Number(0),
                "partrt",
                "0 stops the timer, on kernels of any age",
            ),
        ],
        reason: "The interval of that timer.",
        cost: "There is no warning before memory fails.",
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
                "an undetected error corrupts data",
            ),
            choice(
                "ignore-corrected",
                Expected::Word(&["ignore_ce"]),
                "tuned, ni/meta-nilrt",
                "only the timers are removed",
            ),
            choice(
                "off",
                Expected::Word(&["off", "ignore_ce"]),
                "NTO real-time kernel profile",
                "no machine check can interrupt",
            ),
        ],
        reason: "It decides whether the kernel detects hardware errors.",
        cost: "With `off` an uncorrectable error is not detected.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/arch/x86/x86_64/boot-options.rst; NTO; ni/meta-nilrt#711",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "memory-error-polling",
        title: "milliseconds between polls for memory errors",
        location: text(&["/sys/module/edac_core/parameters/edac_mc_poll_msec"]),
        expected: Expected::Informational,
        reason: "The driver reads registers of the memory controller, which may cause firmware interrupts.",
        cost: "There is no warning before memory fails.",
        source: "Documentation/driver-api/edac.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "rcu-stall-detector",
        title: "reports of stalled grace periods",
        location: text(&["/sys/module/rcupdate/parameters/rcu_cpu_stall_suppress"]),
        expected: Expected::Informational,
        reason: "The report of a real-time thread that starves RCU includes a trace of every CPU, taken by a non-maskable interrupt.",
        cost: "There is no warning before the machine runs out of memory.",
        source: "Documentation/RCU/stallwarn.rst",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "workqueue-watchdog",
        title: "reports of stalled workqueues",
        location: text(&["/sys/module/workqueue/parameters/watchdog_thresh"]),
        expected: Expected::Informational,
        reason: "Work that is bound to a busy real-time CPU is reported after this many seconds; printing takes time.",
        cost: "Starving work is not detected.",
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.watchdog_thresh",
        ..Knob::of(KnobGroup::Watchdogs)
    },
    Knob {
        name: "split-locks",
        title: "atomic accesses across two cache lines",
        location: text(&["/proc/sys/kernel/split_lock_mitigate"]),
        expected: Expected::Informational,
        applies: &[When::X86],
        reason: "Such an access locks the memory bus for all cores; with 1 the kernel slows the program that makes it.",
        cost: "Old programs, some games and some guests become slow.",
        kernels: Kernels::from(6, 2, "detected from 5.7 on, split_lock_detect="),
        source: "Documentation/admin-guide/sysctl/kernel.rst, split_lock_mitigate",
        ..Knob::of(KnobGroup::Watchdogs)
    },
];
