// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workqueues.

use super::*;

const SOURCE: &str = "Documentation/core-api/workqueue.rst";

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "unbound-workqueues",
        title: "CPUs of work that may run anywhere",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask"]),
        expected: Expected::NoRealTime,
        reason: "Drivers and file systems hand the kernel work that it runs on whatever CPU is near.",
        cost: "Housekeeping CPUs run it.",
        disruptive: Some("a burst of moved work froze a network for a moment (SEAPATH)"),
        kernels: Kernels::all(
            "isolcpus= leaves its CPUs out; isolated partitions too from 6.8 on, which also shows cpumask_requested and cpumask_isolated",
        ),
        source: "Documentation/core-api/workqueue.rst; cpu-isolation.rst",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-masks",
        title: "CPUs of workqueues with a mask of their own",
        location: mask(&["/sys/devices/virtual/workqueue/{queue}/cpumask"]),
        expected: Expected::NoRealTime,
        reason: "A queue that shows itself in sysfs (writeback, scsi, nvme) has a mask besides the common one.",
        cost: "Housekeeping CPUs run it.",
        source: "Documentation/core-api/workqueue.rst; tuned cpu-partitioning; partrt",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "writeback-nodes",
        title: "writeback by memory node",
        location: text(&["/sys/devices/virtual/workqueue/writeback/numa"]),
        expected: Expected::Number(0),
        applies: &[When::SeveralNodes],
        reason: "With it the work goes to a CPU of the memory's node, even where the mask has none there.",
        cost: "Pages are written from farther away.",
        kernels: Kernels::before(6, 6, "6.6 has affinity_scope in its place"),
        source: "tuned cpu-partitioning; partrt",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-scope",
        title: "how near to its origin work is run",
        location: text(&["/sys/devices/virtual/workqueue/{queue}/affinity_scope"]),
        expected: Expected::Informational,
        reason: "Within the mask, work stays in the same cache or node as who asked for it.",
        cost: "None.",
        kernels: Kernels::from(6, 6, "before, `numa` alone"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-isolated",
        title: "CPUs that workqueues count as isolated",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask_isolated"]),
        expected: Expected::Informational,
        reason: "It shows whether the kernel knows of the isolation; it cannot be written.",
        cost: "None.",
        undo: Some("It follows isolcpus= and the isolated partitions."),
        kernels: Kernels::from(6, 8, "new"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-requested",
        title: "the mask that was asked for",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask_requested"]),
        expected: Expected::Informational,
        reason: "What is in use is this without the isolated CPUs; it cannot be written.",
        cost: "None.",
        undo: Some("It follows the common mask."),
        kernels: Kernels::from(6, 8, "new"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-boot-cpus",
        title: "CPUs of work that may run anywhere, from the boot on",
        location: boot_cpus("workqueue.unbound_cpus", &[]),
        expected: Expected::Informational,
        reason: "It says from the first moment what the mask says later.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some("workqueue.unbound_cpus={housekeeping} on the kernel command line"),
        kernels: Kernels::from(6, 6, "new"),
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.unbound_cpus",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-power-efficient",
        title: "work that asks for its own CPU need not get it",
        location: text(&["/sys/module/workqueue/parameters/power_efficient"]),
        expected: Expected::Word(&["Y", "1"]),
        reason: "Queues marked so become unbound, and then keep to the common mask.",
        cost: "Their data is no longer warm in the cache.",
        effect: KnobEffect::AtRestart,
        fix: Some("workqueue.power_efficient=1 on the kernel command line"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.power_efficient",
        ..Knob::of(KnobGroup::Workqueues)
    },
];
