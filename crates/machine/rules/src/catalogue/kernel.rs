// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Build options of the kernel, mitigations, and isolation of CPUs.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "preempt-rt",
        title: "the kernel is built for real time",
        location: Location::Fact(Fact::Preemption, "/proc/version"),
        expected: Expected::Text("PREEMPT_RT"),
        reason: "Only PREEMPT_RT bounds the delay of a woken thread by the kernel.",
        cost: "Some throughput; drivers from outside the kernel may not build.",
        effect: KnobEffect::WithAnotherKernel,
        fix: Some("{real-time-kernel}"),
        verify: Some(
            "`uname -v` contains PREEMPT_RT. Many PREEMPT_RT kernels do not have /sys/kernel/realtime.",
        ),
        undo: Some("Restart with the old kernel."),
        kernels: Kernels::all("a patch before 6.12, mainline from 6.12 on (x86, arm64, riscv)"),
        source: "Documentation/core-api/real-time/theory.rst; openshift CNTO#1635",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "preempt-mode",
        title: "the preemption mode of a kernel without PREEMPT_RT",
        location: Location::Fact(Fact::PreemptionMode, "/sys/kernel/debug/sched/preempt"),
        expected: Expected::Text("full"),
        applies: &[When::OrdinaryKernel, When::Option("CONFIG_PREEMPT_DYNAMIC")],
        reason: "Without PREEMPT_RT the mode `full` has the lowest latency: it preempts the kernel wherever no lock is held.",
        cost: "A little throughput.",
        fix: Some("echo full > /sys/kernel/debug/sched/preempt\n{add} preempt=full"),
        kernels: Kernels::from(5, 12, "`lazy` from 6.13 on"),
        source: "Documentation/admin-guide/kernel-parameters.txt, preempt=",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-high-resolution-timers",
        title: "high-resolution timers are built in",
        location: Location::KernelOption("CONFIG_HIGH_RES_TIMERS"),
        expected: Expected::Present,
        reason: "Without it a thread wakes at the next tick at the earliest.",
        cost: "None.",
        source: "Documentation/timers/highres.rst",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-no-hz-full",
        title: "the tick can be stopped on busy CPUs",
        location: Location::KernelOption("CONFIG_NO_HZ_FULL"),
        expected: Expected::Present,
        reason: "`nohz_full=` is ignored without it.",
        cost: "Entering and leaving the kernel takes longer, only on the CPUs that use it.",
        source: "Documentation/timers/no_hz.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-rcu-nocb",
        title: "RCU callbacks can be offloaded",
        location: Location::KernelOption("CONFIG_RCU_NOCB_CPU"),
        expected: Expected::Present,
        reason: "`rcu_nocbs=` is ignored without it.",
        cost: "None until it is used.",
        source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-cpusets",
        title: "control groups can own CPUs",
        location: Location::KernelOption("CONFIG_CPUSETS"),
        expected: Expected::Present,
        reason: "Isolation of tasks needs cpusets; without them only affinity is available.",
        cost: "None.",
        source: "Documentation/admin-guide/cgroup-v2.rst, Cpuset",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-cpu-isolation",
        title: "CPUs can be isolated at boot",
        location: Location::KernelOption("CONFIG_CPU_ISOLATION"),
        expected: Expected::Present,
        reason: "`isolcpus=` and `nohz_full=` need it to keep unbound work off their CPUs.",
        cost: "None.",
        source: "Documentation/admin-guide/cpu-isolation.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-tick-rate",
        title: "ticks per second",
        location: Location::KernelOption("CONFIG_HZ"),
        expected: Expected::Informational,
        reason: "Each tick interrupts a busy CPU; at a higher rate, code that waits for a tick waits less.",
        cost: "A higher rate costs time on every CPU with a tick.",
        source: "Documentation/timers/no_hz.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-lock-debugging",
        title: "lock debugging is not built in",
        location: Location::KernelOption("CONFIG_PROVE_LOCKING"),
        expected: Expected::Absent,
        reason: "The checks of every lock make each kernel code path several times longer.",
        cost: "Deadlocks are no longer found before they happen.",
        source: "Documentation/locking/lockdep-design.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-address-sanitizer",
        title: "the address sanitizer is not built in",
        location: Location::KernelOption("CONFIG_KASAN"),
        expected: Expected::Absent,
        reason: "Each access of the kernel is checked, which makes it several times slower.",
        cost: "Invalid accesses are no longer found.",
        source: "Documentation/dev-tools/kasan.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "config-debugging",
        title: "no option is built in that slows the whole kernel for debugging",
        location: Location::Fact(Fact::DebugOptions, "the kernel's configuration"),
        expected: Expected::Text("none"),
        reason: "Such options check every lock, allocation or section without preemption, which lengthens each of them.",
        cost: "Faults of the kernel are found later.",
        effect: KnobEffect::WithAnotherKernel,
        fix: Some("use a kernel without {names}"),
        undo: Some("Restart with the old kernel."),
        source: "lib/Kconfig.debug; Documentation/core-api/real-time/architecture-porting.rst",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "foreign-modules",
        title: "modules from outside the kernel",
        location: Location::Fact(Fact::ForeignModules, "/proc/modules"),
        expected: Expected::Text("no module without its source, none forced to load"),
        reason: "Nobody has checked such a module for sections without preemption or interrupts, and some stop all CPUs for milliseconds.",
        cost: "Its device or function is not available.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} module_blacklist={names}"),
        undo: Some("Remove module_blacklist= from the kernel command line and restart."),
        source: "Documentation/admin-guide/tainted-kernels.rst; kernel-parameters.txt, module_blacklist=",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "mitigations",
        title: "mitigations of CPU vulnerabilities",
        location: Location::Fact(Fact::Mitigations, "/sys/devices/system/cpu/vulnerabilities"),
        expected: Expected::Informational,
        choices: &[
            choice(
                "keep",
                Expected::Informational,
                "the kernel's default",
                "lower latency costs security here; Rampart never changes it unless the plan names it",
            ),
            choice(
                "off",
                Expected::Informational,
                "users (ni/meta-nilrt#636, wg-aerospace#222)",
                "each entry into the kernel is shorter, on a closed machine",
            ),
        ],
        reason: "Mitigations lengthen each entry into the kernel and each switch between guests.",
        cost: "Without them one program can read another's memory.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} mitigations=off  # on a closed machine only"),
        undo: Some("Remove mitigations= from the kernel command line and restart."),
        source: "Documentation/admin-guide/hw-vuln/; kernel-parameters.txt, mitigations=",
        ..Knob::of(KnobGroup::Kernel)
    },
    Knob {
        name: "scheduler-isolation",
        title: "the scheduler does not balance the real-time CPUs",
        location: Location::Fact(
            Fact::Balancing,
            "/sys/devices/system/cpu/isolated and /sys/fs/cgroup/cpuset.cpus.isolated",
        ),
        expected: Expected::CoversRealTime,
        choices: &[
            choice(
                "partition",
                Expected::CoversRealTime,
                "Documentation/admin-guide/cpu-isolation.rst",
                "an isolated cpuset partition can be created and removed while the machine runs",
            ),
            choice(
                "isolcpus",
                Expected::CoversRealTime,
                "tuned realtime, NTO (static isolation)",
                "works from the first instruction of user space on and on every kernel, and cannot be undone without a restart",
            ),
        ],
        reason: "The load balancer moves ordinary threads onto every idle CPU, and examines each CPU regularly.",
        cost: "The kernel no longer spreads threads of a process over isolated CPUs: each thread needs an affinity.",
        disruptive: Some("creating a partition moves the tasks of other groups away from its CPUs"),
        effect: KnobEffect::AtOnce,
        fix: Some(
            "apply a plan with a domain on these CPUs: rampart apply PLAN\n{add} isolcpus=domain,managed_irq,{real-time}",
        ),
        undo: Some(
            "Write `member` to cpuset.cpus.partition and remove the group; a boot parameter needs a restart without it.",
        ),
        kernels: Kernels::all(
            "isolated partitions from 6.1 on; unbound work leaves them too from 6.8 on; kernel threads, timers and managed interrupts from 7.0 on",
        ),
        by_hand: Some("the plan has to be written"),
        source: "Documentation/admin-guide/cpu-isolation.rst; cgroup-v2.rst, cpuset.cpus.partition",
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "boot-lists-agree",
        title: "the CPU lists of the kernel command line agree",
        location: Location::Fact(
            Fact::BootLists,
            "/proc/cmdline: isolcpus=, nohz_full=, rcu_nocbs=",
        ),
        expected: Expected::Text("one list, and the real-time CPUs in it"),
        applies: &[When::BootIsolation],
        reason: "A CPU in only some of the lists has the costs of isolation without its benefit, and only the kernel log reports a list that the kernel refuses: the second of one kind.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "{if 6.11} {add} isolcpus=domain,managed_irq,{real-time} nohz_full={real-time} rcu_nocbs={real-time} rcutree.nohz_full_patience_delay=1000\n{if before 6.11} {add} isolcpus=domain,managed_irq,{real-time} nohz_full={real-time} rcu_nocbs={real-time}",
        ),
        undo: Some("Restore the old kernel command line and restart."),
        source: "kernel/sched/isolation.c, housekeeping_setup: compares them only where both name the same kind of housekeeping",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "isolcpus-flags",
        title: "all flags of isolcpus= are known to the kernel",
        location: Location::Fact(Fact::IsolcpusFlags, "/proc/cmdline: isolcpus="),
        expected: Expected::Text("of nohz, domain and managed_irq alone"),
        reason: "The kernel skips a flag that it does not know, so what the flag was written for is not in effect; the only message is in the kernel log.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} isolcpus=managed_irq,domain,{real-time}"),
        undo: Some("Restore the old kernel command line and restart."),
        source: "kernel/sched/isolation.c, housekeeping_isolcpus_setup",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "unknown-parameters",
        title: "no kernel parameter is misspelt",
        location: Location::Fact(
            Fact::UnknownParameters,
            "/proc/cmdline, kernel log: Unknown kernel command line parameters",
        ),
        expected: Expected::Text("no word that resembles a parameter of this catalogue"),
        reason: "The kernel passes a parameter that it does not know to the first process, and it has no effect.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some("{remove} {names}"),
        undo: Some("Restore the old kernel command line and restart."),
        kernels: Kernels::all("the kernel logs unknown words from 5.13 on"),
        source: "init/main.c, print_unknown_bootoptions",
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "program-affinity",
        title: "programs run either on real-time CPUs or on others",
        location: Location::Fact(
            Fact::ProgramAffinity,
            "/proc/{process}/task/{thread}/status, Cpus_allowed_list",
        ),
        expected: Expected::Text(
            "each thread within the housekeeping CPUs, or within the real-time CPUs",
        ),
        reason: "A thread with both may be placed on a real-time CPU, and on an isolated one it stays. A real-time policy moves it there whenever its own CPU is busy.",
        cost: "The program has fewer CPUs.",
        fix: Some("taskset -apc {housekeeping} {id}"),
        undo: Some("taskset -apc with the old CPUs."),
        source: "kernel/sched/core.c, select_task_rq; kernel/sched/rt.c, push_rt_task; containerd#10155, kubernetes#85764",
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "floating-threads",
        title: "each real-time thread is bound to one CPU",
        location: Location::Fact(
            Fact::FloatingThreads,
            "/proc/{process}/task/{thread}/status, Cpus_allowed_list",
        ),
        expected: Expected::Text("no real-time thread on several real-time CPUs"),
        reason: "The kernel moves such a thread between its CPUs, each time with cold caches and an interrupt of the other CPU, and two threads may meet on one CPU while another is idle.",
        cost: "Each thread needs a CPU in the program or in its start.",
        fix: Some("taskset -pc {expected} {id}"),
        undo: Some("taskset -pc with the old CPUs."),
        source: "kernel/sched/rt.c, push_rt_task and pull_rt_task; sched_setaffinity(2)",
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "first-process-affinity",
        title: "the first process does not run on the real-time CPUs",
        location: Location::Fact(Fact::FirstProcess, "/proc/1/status, Cpus_allowed_list"),
        expected: Expected::NoRealTime,
        reason: "Every service inherits the affinity of the first process.",
        cost: "A service that needs a real-time CPU needs an explicit affinity.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "{add} systemd.cpu_affinity={housekeeping}\nCPUAffinity={housekeeping} in /etc/systemd/system.conf",
        ),
        undo: Some("Remove the parameter, or the line, and restart."),
        source: "NTO; systemd-system.conf(5); systemd#33977: not for slices",
        ..Knob::of(KnobGroup::Isolation)
    },
    Knob {
        name: "cpu-online",
        title: "the real-time CPUs are online",
        location: text(&["/sys/devices/system/cpu/cpu{real-time-cpu}/online"]),
        expected: Expected::Number(1),
        reason: "Taking a CPU offline and online again also removes timers that were armed on it before its isolation.",
        cost: "Each change stops all CPUs for milliseconds: before real-time work begins, never during it.",
        disruptive: Some("stops all CPUs for milliseconds, and moves all work off the CPU"),
        source: "Documentation/admin-guide/kernel-per-CPU-kthreads.rst; partrt; Bolt, USENIX ATC 2015",
        ..Knob::of(KnobGroup::Isolation)
    },
];
