// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler. The settings of its slices moved from /proc/sys/kernel to debugfs in 5.13, and
//! changed with EEVDF in 6.6.

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
                "a polling thread is not stopped for 50 ms of each second",
            ),
            choice(
                "safety-net",
                Expected::Informational,
                "Documentation/scheduler/sched-rt-group.rst",
                "a shell can still run and kill a runaway real-time thread",
            ),
        ],
        reason: "A real-time thread that does not sleep is stopped for the rest of each period.",
        cost: "A runaway real-time thread then hangs the machine: it occupies its CPU without end, and kernel threads that must run there starve. SCHED_DEADLINE threads are admitted without a test.",
        kernels: Kernels::all(
            "from 6.12 on the fair server also keeps ordinary threads running; in newer kernels whose \
             default is the whole period, it only limits the bandwidth of deadline threads",
        ),
        source: "Documentation/scheduler/sched-rt-group.rst; sched/tip c2e390197ad1",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "real-time-period",
        title: "the period of real-time throttling",
        location: text(&["/proc/sys/kernel/sched_rt_period_us"]),
        expected: Expected::Informational,
        reason: "The share of real-time threads is the runtime divided by this period.",
        cost: "A short period means many short stops, a long period few long stops.",
        source: "Documentation/scheduler/sched-rt-group.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "fair-server",
        title: "CPU time reserved for ordinary threads",
        location: text(&["/sys/kernel/debug/sched/fair_server/cpu{real-time-cpu}/runtime"]),
        expected: Expected::Number(0),
        choices: &[
            choice(
                "off",
                Expected::Number(0),
                "kernel mailing list, 2601.0/07693",
                "a polling thread on a tickless CPU is not interrupted",
            ),
            choice(
                "keep",
                Expected::Informational,
                "the kernel's default",
                "kernel threads that are bound to this CPU do not starve",
            ),
        ],
        reason: "From 6.12 on a deadline server gives ordinary threads 50 ms of each second, independent of the throttling.",
        cost: "Ordinary threads of these CPUs starve while a real-time thread runs, which can hang the machine; some kernels log a warning when 0 is written.",
        kernels: Kernels::from(6, 12, "before, only the throttling did so"),
        source: "Documentation/scheduler/sched-deadline.rst; kernel mailing list, 2601.0/07693",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "fair-server-period",
        title: "the period of the fair server",
        location: text(&["/sys/kernel/debug/sched/fair_server/cpu{real-time-cpu}/period"]),
        expected: Expected::Informational,
        reason: "The share of ordinary threads is the server's runtime divided by this period.",
        cost: "Runtime and period are checked as a pair: the order of the writes matters.",
        kernels: Kernels::from(6, 12, "before, there was no server"),
        source: "Documentation/scheduler/sched-deadline.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "extensible-server",
        title: "CPU time reserved for threads of a BPF scheduler",
        location: text(&["/sys/kernel/debug/sched/ext_server/cpu{real-time-cpu}/runtime"]),
        expected: Expected::Number(0),
        reason: "A deadline server gives this time to threads of a sched_ext scheduler.",
        cost: "Those threads starve while a real-time thread runs.",
        kernels: Kernels::from(
            6,
            12,
            "the file exists only in newer kernels, with sched_ext",
        ),
        source: "sched/tip c2e390197ad1",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "extensible-scheduler",
        title: "no sched_ext scheduler runs",
        location: Location::Fact(
            Fact::ExtensibleScheduler,
            "/sys/kernel/sched_ext/state, /sys/kernel/sched_ext/root/ops",
        ),
        expected: Expected::Text("none"),
        reason: "A BPF program schedules all ordinary threads: it wakes them on CPUs of its choice with interrupts between CPUs, and kernel threads of real-time work depend on it.",
        cost: "Ordinary threads run under the kernel's own scheduler.",
        fix: Some("pkill -x {name}\necho S > /proc/sysrq-trigger"),
        undo: Some("Start the scheduler again."),
        kernels: Kernels::from(6, 12, "new"),
        source: "Documentation/scheduler/sched-ext.rst; sched-ext/scx#2496",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "real-time-group-scheduling",
        title: "real-time policies are available in control groups",
        location: Location::Fact(
            Fact::GroupScheduling,
            "CONFIG_RT_GROUP_SCHED, rt_group_sched=, kernel.sched_rt_runtime_us",
        ),
        expected: Expected::Text("off, or a budget for each group"),
        reason: "With it, threads in a group without a budget cannot use real-time policies, including those of root, and cgroup v2 has no such budget.",
        cost: "Real-time budgets of groups are not available; cgroup v2 does not have them.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "sysctl kernel.sched_rt_runtime_us=-1\n{if 6.16} {add} rt_group_sched=0\nuse a kernel without CONFIG_RT_GROUP_SCHED",
        ),
        undo: Some("Remove rt_group_sched=0 from the kernel command line and restart."),
        kernels: Kernels::all(
            "rt_group_sched= and CONFIG_RT_GROUP_SCHED_DEFAULT_DISABLED from 6.16 on",
        ),
        source: "Documentation/admin-guide/cgroup-v2.rst, CPU; moby#22380, runc#2431, systemd#329",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "utilisation-clamp",
        title: "utilisation clamp of real-time threads",
        location: text(&["/proc/sys/kernel/sched_util_clamp_min_rt_default"]),
        expected: Expected::Number(1024),
        reason: "With the governor `schedutil` it requests the highest frequency as soon as a real-time thread runs.",
        cost: "Power.",
        source: "Documentation/scheduler/sched-util-clamp.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "energy-aware-scheduling",
        title: "energy-aware placement",
        location: text(&["/proc/sys/kernel/sched_energy_aware"]),
        expected: Expected::Informational,
        reason: "It moves ordinary threads to slow cores; the scheduler places real-time threads by priority only.",
        cost: "More power without it.",
        source: "Documentation/scheduler/sched-energy.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "migration-batch",
        title: "number of threads moved in one pass",
        location: text(&[
            "/sys/kernel/debug/sched/nr_migrate",
            "/proc/sys/kernel/sched_nr_migrate",
        ]),
        expected: Expected::AtMost(8),
        reason: "The load balancer moves up to this many threads with interrupts disabled.",
        cost: "Load spreads more slowly over the housekeeping CPUs.",
        kernels: Kernels::all(
            "a sysctl before 5.13, in debugfs since; the default is 8 with PREEMPT_RT, else 32",
        ),
        source: "kernel/sched/core.c, sysctl_sched_nr_migrate; Red Hat, tuning guide for real time",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "migration-cost",
        title: "time for which a thread counts as cache-hot",
        location: text(&[
            "/sys/kernel/debug/sched/migration_cost_ns",
            "/proc/sys/kernel/sched_migration_cost_ns",
        ]),
        expected: Expected::Informational,
        reason: "With a higher value the balancer moves ordinary threads less often; isolated CPUs are not balanced.",
        cost: "Load spreads more slowly.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since"),
        source: "tuned latency-performance (5 ms); kernel/sched/fair.c",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "time-slice",
        title: "minimum run time of an ordinary thread",
        location: text(&[
            "/sys/kernel/debug/sched/base_slice_ns",
            "/sys/kernel/debug/sched/min_granularity_ns",
            "/proc/sys/kernel/sched_min_granularity_ns",
        ]),
        expected: Expected::Informational,
        reason: "The slice divides CPU time among ordinary threads; it does not affect real-time threads.",
        cost: "Longer slices make a desktop less responsive, shorter slices cause more context switches.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since, base_slice_ns from 6.6 on"),
        source: "Documentation/scheduler/sched-eevdf.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "wakeup-granularity",
        title: "wakeup preemption of ordinary threads",
        location: text(&[
            "/sys/kernel/debug/sched/wakeup_granularity_ns",
            "/proc/sys/kernel/sched_wakeup_granularity_ns",
        ]),
        expected: Expected::Informational,
        reason: "It affects only ordinary threads.",
        cost: "A small value causes more context switches.",
        kernels: Kernels::before(
            6,
            6,
            "a sysctl before 5.13, in debugfs since; EEVDF does not have it",
        ),
        source: "tuned throughput-performance; Documentation/scheduler/sched-design-CFS.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "scheduling-latency",
        title: "the period in which each ordinary thread runs once",
        location: text(&[
            "/sys/kernel/debug/sched/latency_ns",
            "/proc/sys/kernel/sched_latency_ns",
        ]),
        expected: Expected::Informational,
        reason: "It affects only ordinary threads.",
        cost: "A small value causes more context switches.",
        kernels: Kernels::before(
            6,
            6,
            "a sysctl before 5.13, in debugfs since; EEVDF does not have it",
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
        reason: "With scaling, the same setting has a different effect on a machine with more CPUs.",
        cost: "None.",
        kernels: Kernels::all("a sysctl before 5.13, in debugfs since"),
        source: "kernel/sched/fair.c, sysctl_sched_tunable_scaling",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "scheduler-features",
        title: "features of the scheduler",
        location: text(&[
            "/sys/kernel/debug/sched/features",
            "/sys/kernel/debug/sched_features",
        ]),
        expected: Expected::Informational,
        reason: "RT_PUSH_IPI sends an interrupt to a CPU with a waiting real-time thread; HRTICK ends slices with a high-resolution timer.",
        cost: "The features are for scheduler development, and differ between kernels.",
        kernels: Kernels::all("in another file before 5.13"),
        source: "kernel/sched/features.h",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "automatic-groups",
        title: "automatic task groups",
        location: text(&["/proc/sys/kernel/sched_autogroup_enabled"]),
        expected: Expected::Informational,
        reason: "It changes the effect of `nice` between sessions; it does not affect real-time threads.",
        cost: "None.",
        source: "sched(7), the autogroup feature",
        ..Knob::of(KnobGroup::Scheduler)
    },
    Knob {
        name: "round-robin-slice",
        title: "time slice of SCHED_RR threads",
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
        reason: "The kernel refuses shorter periods, so that timers alone cannot occupy a CPU.",
        cost: "With very short periods a CPU can spend all its time in timers.",
        source: "Documentation/scheduler/sched-deadline.rst",
        ..Knob::of(KnobGroup::Scheduler)
    },
];
