// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler. Its scaling left /proc/sys/kernel for debugfs in 5.13, and changed with EEVDF in
//! 6.6.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "real-time-throttling",
        title: "how long real-time threads may run in each period",
        location: text(&["/proc/sys/kernel/sched_rt_runtime_us"]),
        expected: Expected::Number(-1),
        choices: &[
            choice(
                "unlimited",
                Expected::Number(-1),
                "tuned realtime, NTO, partrt",
                "a thread that polls is not stopped for 50 ms of each second",
            ),
            choice(
                "safety-net",
                Expected::Informational,
                "Documentation/scheduler/sched-rt-group.rst",
                "a real-time thread that runs away still leaves a shell to kill it from",
            ),
        ],
        reason: "A real-time thread that does not sleep is stopped for the rest of each period.",
        cost: "A thread that runs away takes its CPU for ever, and SCHED_DEADLINE is admitted without a test.",
        kernels: Kernels::all(
            "from 6.12 on the fair server keeps ordinary threads alive besides it; where newer kernels \
             default to the whole period, it only says how much deadline threads may ask for",
        ),
        source: "Documentation/scheduler/sched-rt-group.rst; sched/tip c2e390197ad1",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "real-time-period",
        title: "the period of that budget",
        location: text(&["/proc/sys/kernel/sched_rt_period_us"]),
        expected: Expected::Informational,
        reason: "The share of real-time threads is the runtime over this.",
        cost: "A short period means many short stops, a long one few long ones.",
        source: "Documentation/scheduler/sched-rt-group.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "fair-server",
        title: "time that waiting ordinary threads take from real-time ones",
        location: text(&["/sys/kernel/debug/sched/fair_server/cpu{real-time-cpu}/runtime"]),
        expected: Expected::Number(0),
        choices: &[
            choice(
                "off",
                Expected::Number(0),
                "kernel mailing list, 2601.0/07693",
                "a polling thread on a tickless CPU is left alone",
            ),
            choice(
                "keep",
                Expected::Informational,
                "the kernel's default",
                "kernel threads that only this CPU can run do not starve",
            ),
        ],
        reason: "From 6.12 on a deadline server gives ordinary threads 50 ms of each second, whatever the throttling says.",
        cost: "Ordinary threads of these CPUs starve while a real-time thread runs; some kernels warn when 0 is written.",
        kernels: Kernels::from(6, 12, "before, the throttling alone did it"),
        source: "Documentation/scheduler/sched-deadline.rst; kernel mailing list, 2601.0/07693",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "fair-server-period",
        title: "the period of the fair server",
        location: text(&["/sys/kernel/debug/sched/fair_server/cpu{real-time-cpu}/period"]),
        expected: Expected::Informational,
        reason: "The share of ordinary threads is the server's runtime over this.",
        cost: "Runtime and period are checked as a pair: the order of the writes matters.",
        kernels: Kernels::from(6, 12, "before, there was no server"),
        source: "Documentation/scheduler/sched-deadline.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "extensible-server",
        title: "time that threads of a BPF scheduler take from real-time ones",
        location: text(&["/sys/kernel/debug/sched/ext_server/cpu{real-time-cpu}/runtime"]),
        expected: Expected::Number(0),
        reason: "The same server for threads of a sched_ext scheduler.",
        cost: "Those threads starve while a real-time thread runs.",
        kernels: Kernels::from(
            6,
            12,
            "the file is there only in kernels newer than that, with sched_ext",
        ),
        source: "sched/tip c2e390197ad1",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "real-time-group-scheduling",
        title: "real-time policies are granted in control groups",
        location: Place::Fact(
            Fact::GroupScheduling,
            "CONFIG_RT_GROUP_SCHED, rt_group_sched=",
        ),
        expected: Expected::Text("off, or a budget for each group"),
        reason: "With it, a group without a budget is refused real-time policies, root included, and cgroup v2 cannot grant one.",
        cost: "Real-time budgets for groups are gone; cgroup v2 never had them.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "boot with rt_group_sched=0 (from 6.15), use another kernel, or: sysctl kernel.sched_rt_runtime_us=-1",
        ),
        undo: Some("Remove rt_group_sched=0 from the kernel command line and restart."),
        kernels: Kernels::all(
            "rt_group_sched= and CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED from 6.15 on",
        ),
        source: "Documentation/admin-guide/cgroup-v2.rst, CPU; moby#22380, runc#2431, systemd#329",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "utilisation-clamp",
        title: "the speed at which real-time threads run",
        location: text(&["/proc/sys/kernel/sched_util_clamp_min_rt_default"]),
        expected: Expected::Number(1024),
        reason: "Under the governor `schedutil` it asks for full speed as soon as a real-time thread runs.",
        cost: "Power.",
        source: "Documentation/scheduler/sched-util-clamp.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "energy-aware-scheduling",
        title: "placing by energy",
        location: text(&["/proc/sys/kernel/sched_energy_aware"]),
        expected: Expected::Informational,
        reason: "It packs ordinary threads onto slow cores; real-time threads are placed by priority alone.",
        cost: "More power without it.",
        source: "Documentation/scheduler/sched-energy.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "migration-batch",
        title: "threads moved in one go",
        location: text(&[
            "/sys/kernel/debug/sched/nr_migrate",
            "/proc/sys/kernel/sched_nr_migrate",
        ]),
        expected: Expected::AtMost(8),
        reason: "The balancer moves up to this many threads with interrupts off.",
        cost: "Load spreads more slowly over the housekeeping CPUs.",
        kernels: Kernels::all(
            "a sysctl before 5.13, in debugfs since; PREEMPT_RT begins with 8, others with 32",
        ),
        source: "kernel/sched/core.c, sysctl_sched_nr_migrate; Red Hat, tuning guide for real time",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "migration-cost",
        title: "how long a thread counts as warm in its cache",
        location: text(&[
            "/sys/kernel/debug/sched/migration_cost_ns",
            "/proc/sys/kernel/sched_migration_cost_ns",
        ]),
        expected: Expected::Informational,
        reason: "A higher value moves ordinary threads less often; isolated CPUs are not balanced anyway.",
        cost: "Load spreads more slowly.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since"),
        source: "tuned latency-performance (5 ms); kernel/sched/fair.c",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "time-slice",
        title: "how long an ordinary thread runs at least",
        location: text(&[
            "/sys/kernel/debug/sched/base_slice_ns",
            "/sys/kernel/debug/sched/min_granularity_ns",
            "/proc/sys/kernel/sched_min_granularity_ns",
        ]),
        expected: Expected::Informational,
        reason: "It divides housekeeping CPUs among ordinary threads; real-time threads do not wait for it.",
        cost: "Longer slices make the desktop sluggish, shorter ones cost switches.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since, base_slice_ns from 6.6 on"),
        source: "Documentation/scheduler/sched-eevdf.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "wakeup-granularity",
        title: "how soon a woken ordinary thread takes over",
        location: text(&[
            "/sys/kernel/debug/sched/wakeup_granularity_ns",
            "/proc/sys/kernel/sched_wakeup_granularity_ns",
        ]),
        expected: Expected::Informational,
        reason: "It is about ordinary threads among themselves.",
        cost: "More switches when it is small.",
        kernels: Kernels::before(
            6,
            6,
            "a sysctl before 5.13, in debugfs since; EEVDF has no such thing",
        ),
        source: "tuned throughput-performance; Documentation/scheduler/sched-design-CFS.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "scheduling-latency",
        title: "the time in which each ordinary thread runs once",
        location: text(&[
            "/sys/kernel/debug/sched/latency_ns",
            "/proc/sys/kernel/sched_latency_ns",
        ]),
        expected: Expected::Informational,
        reason: "It is about ordinary threads among themselves.",
        cost: "More switches when it is small.",
        kernels: Kernels::before(
            6,
            6,
            "a sysctl before 5.13, in debugfs since; EEVDF has no such thing",
        ),
        source: "Documentation/scheduler/sched-design-CFS.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "scaling-of-slices",
        title: "whether slices grow with the number of CPUs",
        location: text(&[
            "/sys/kernel/debug/sched/tunable_scaling",
            "/proc/sys/kernel/sched_tunable_scaling",
        ]),
        expected: Expected::Informational,
        reason: "What was set on one machine means something else on a larger one.",
        cost: "None.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since"),
        source: "kernel/sched/fair.c, sysctl_sched_tunable_scaling",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "scheduler-features",
        title: "switches within the scheduler",
        location: text(&[
            "/sys/kernel/debug/sched/features",
            "/sys/kernel/debug/sched_features",
        ]),
        expected: Expected::Informational,
        reason: "RT_PUSH_IPI sends an interrupt where a real-time thread waits; HRTICK ends slices to the microsecond.",
        cost: "They are for people who work on the scheduler, and change between kernels.",
        kernels: Kernels::all("at another path before 5.13"),
        source: "kernel/sched/features.h",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "automatic-groups",
        title: "a group for each terminal",
        location: text(&["/proc/sys/kernel/sched_autogroup_enabled"]),
        expected: Expected::Informational,
        reason: "It changes what `nice` means between terminals; real-time threads are not concerned.",
        cost: "None.",
        source: "sched(7), the autogroup feature",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "round-robin-slice",
        title: "how long a SCHED_RR thread runs before its equals",
        location: text(&["/proc/sys/kernel/sched_rr_timeslice_ms"]),
        expected: Expected::Informational,
        reason: "Threads of one priority under SCHED_RR take turns of this length.",
        cost: "Short turns cost switches.",
        source: "sched(7), SCHED_RR",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "deadline-period-limit",
        title: "the shortest period of SCHED_DEADLINE",
        location: text(&["/proc/sys/kernel/sched_deadline_period_min_us"]),
        expected: Expected::Informational,
        reason: "Shorter periods are refused, so that timers alone cannot fill a CPU.",
        cost: "Very short periods leave a CPU nothing but timers.",
        source: "Documentation/scheduler/sched-deadline.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
];
