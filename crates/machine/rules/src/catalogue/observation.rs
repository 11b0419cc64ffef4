// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tracing, printing, accounting.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "console-level",
        title: "the log level of the console",
        location: text(&["/proc/sys/kernel/printk"]),
        expected: Expected::AtMost(4),
        reason: "Printing on a serial line takes 90 µs per character, with preemption disabled on many kernels.",
        cost: "Messages of low severity are in the log and not on the console.",
        kernels: Kernels::all("consoles with a thread of their own from 6.12 on"),
        source: "Documentation/admin-guide/sysctl/kernel.rst, printk",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "serial-console",
        title: "consoles",
        location: boot("console"),
        expected: Expected::Informational,
        reason: "A slow console makes every message slow.",
        cost: "Without it a machine that crashed leaves no message.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/serial-console.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "tracer",
        title: "no tracer is running",
        location: text(&[
            "/sys/kernel/tracing/current_tracer",
            "/sys/kernel/debug/tracing/current_tracer",
        ]),
        expected: Expected::Word(&["nop"]),
        reason: "An active tracer lengthens each kernel function.",
        cost: "None.",
        source: "Documentation/trace/ftrace.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "config-timerlat",
        title: "the kernel can explain late wakeups",
        location: Location::KernelOption("CONFIG_TIMERLAT_TRACER"),
        expected: Expected::Present,
        kernels: Kernels::from(5, 14, "new"),
        reason: "The tracer names the thread, interrupt or lock that made a wakeup late.",
        cost: "None until it runs.",
        source: "Documentation/trace/timerlat-tracer.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "config-osnoise",
        title: "the kernel can name sources of noise",
        location: Location::KernelOption("CONFIG_OSNOISE_TRACER"),
        expected: Expected::Present,
        kernels: Kernels::from(5, 14, "new"),
        reason: "The tracer counts the time that interrupts, threads and hardware take from a busy thread.",
        cost: "None until it runs.",
        source: "Documentation/trace/osnoise-tracer.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "config-hwlat",
        title: "the kernel can detect hardware latency",
        location: Location::KernelOption("CONFIG_HWLAT_TRACER"),
        expected: Expected::Present,
        reason: "The tracer shows the time that the firmware takes while interrupts are disabled.",
        cost: "The running tracer is itself a source of noise.",
        source: "Documentation/trace/hwlat_detector.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "scheduler-statistics",
        title: "statistics of the scheduler",
        location: text(&["/proc/sys/kernel/sched_schedstats"]),
        expected: Expected::Number(0),
        reason: "Each switch and wakeup is a little longer.",
        cost: "/proc/schedstat and perf sched show less.",
        source: "Documentation/scheduler/sched-stats.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "delay-accounting",
        title: "delay accounting",
        location: text(&["/proc/sys/kernel/task_delayacct"]),
        expected: Expected::Number(0),
        reason: "Each switch is a little longer.",
        cost: "iotop shows less.",
        kernels: Kernels::from(5, 14, "before, only a boot parameter"),
        source: "Documentation/accounting/delay-accounting.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "bpf-statistics",
        title: "statistics of BPF programs",
        location: text(&["/proc/sys/kernel/bpf_stats_enabled"]),
        expected: Expected::Number(0),
        reason: "Each run of a BPF program reads the clock twice.",
        cost: "bpftool shows no times.",
        source: "Documentation/admin-guide/sysctl/kernel.rst, bpf_stats_enabled",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "pressure-accounting",
        title: "pressure stall accounting",
        location: Location::Exists(&["/proc/pressure/cpu"]),
        expected: Expected::Informational,
        reason: "Each switch updates averages; a monitor runs in a thread under SCHED_FIFO 1.",
        cost: "systemd-oomd needs it.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} psi=0"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/accounting/psi.rst",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "audit",
        title: "auditing of system calls",
        location: boot("audit"),
        expected: Expected::Informational,
        choices: &[
            choice(
                "keep",
                Expected::Informational,
                "Rampart",
                "it affects security, not only latency",
            ),
            choice(
                "off",
                Expected::Word(&["0", "off"]),
                "users (ni/meta-nilrt#636)",
                "each system call is shorter",
            ),
        ],
        reason: "With audit rules each system call takes the slow path.",
        cost: "No record of the actions of users and programs.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, audit=",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "selinux-cache",
        title: "size of the SELinux decision cache",
        location: text(&["/sys/fs/selinux/avc/cache_threshold"]),
        expected: Expected::AtLeast(8192),
        reason: "A decision that is not in the cache is computed during the system call.",
        cost: "A little memory.",
        source: "tuned latency-performance and NTO, avc_cache_threshold",
        ..Knob::of(KnobGroup::Observation)
    },
    Knob {
        name: "blocked-modules",
        title: "modules that are blocked",
        location: boot("modprobe.blacklist"),
        expected: Expected::Informational,
        reason: "Unused devices such as sound cause interrupts and load firmware; their drivers can be blocked.",
        cost: "The devices do not work.",
        effect: KnobEffect::AtRestart,
        source: "ni/meta-nilrt#636 (snd*); kernel-parameters.txt, module_blacklist=",
        ..Knob::of(KnobGroup::Observation)
    },
];
