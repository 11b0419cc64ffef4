// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Workqueues.

use super::*;

const SOURCE: &str = "Documentation/core-api/workqueue.rst";

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "unbound-workqueues",
        title: "CPUs of unbound work",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask"]),
        expected: Expected::NoRealTime,
        reason: "Drivers and file systems queue work that the kernel may run on any CPU of the mask.",
        cost: "Housekeeping CPUs run it.",
        disruptive: Some("a burst of moved work has stopped a network for a moment (SEAPATH)"),
        kernels: Kernels::all(
            "isolcpus= leaves its CPUs out; isolated partitions too from 6.8 on, which also shows cpumask_requested and cpumask_isolated",
        ),
        source: "Documentation/core-api/workqueue.rst; cpu-isolation.rst",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-masks",
        title: "CPUs of workqueues with a separate mask",
        location: mask(&["/sys/devices/virtual/workqueue/{queue}/cpumask"]),
        expected: Expected::NoRealTime,
        reason: "A queue with a directory in sysfs (writeback, scsi, nvme) has its own mask in addition to the common mask.",
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
        reason: "With it the work runs on a CPU of the memory's node, even if the mask has no CPU of that node.",
        cost: "Pages may be written from another memory node.",
        kernels: Kernels::before(6, 6, "6.6 replaces it with affinity_scope"),
        source: "tuned cpu-partitioning; partrt",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-scope",
        title: "affinity scope of queued work",
        location: text(&["/sys/devices/virtual/workqueue/{queue}/affinity_scope"]),
        expected: Expected::Informational,
        reason: "Within the mask, work runs in the same cache or node as the CPU that queued it.",
        cost: "None.",
        kernels: Kernels::from(6, 6, "before, `numa` alone"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-isolated",
        title: "CPUs that workqueues treat as isolated",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask_isolated"]),
        expected: Expected::Informational,
        reason: "The file shows whether workqueues take the isolation into account; it is read-only.",
        cost: "None.",
        undo: Some("It follows isolcpus= and the isolated partitions."),
        kernels: Kernels::from(6, 8, "new"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-requested",
        title: "the requested mask",
        location: mask(&["/sys/devices/virtual/workqueue/cpumask_requested"]),
        expected: Expected::Informational,
        reason: "The mask in use is the requested mask without the isolated CPUs; the file is read-only.",
        cost: "None.",
        undo: Some("It follows the common mask."),
        kernels: Kernels::from(6, 8, "new"),
        source: SOURCE,
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-boot-cpus",
        title: "CPUs of unbound work, from boot on",
        location: boot_cpus("workqueue.unbound_cpus", &[]),
        expected: Expected::Informational,
        reason: "The parameter sets the mask before the first process starts.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} workqueue.unbound_cpus={housekeeping}"),
        kernels: Kernels::from(6, 6, "new"),
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.unbound_cpus",
        ..Knob::of(KnobGroup::Workqueues)
    },
    Knob {
        name: "workqueue-power-efficient",
        title: "per-CPU work may run on other CPUs",
        location: text(&["/sys/module/workqueue/parameters/power_efficient"]),
        expected: Expected::Word(&["Y", "1"]),
        reason: "Queues with this flag become unbound, and then follow the common mask.",
        cost: "Their data is no longer warm in the cache.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} workqueue.power_efficient=1"),
        undo: Some("Remove the parameter and restart."),
        source: "Documentation/admin-guide/kernel-parameters.txt, workqueue.power_efficient",
        ..Knob::of(KnobGroup::Workqueues)
    },
];
