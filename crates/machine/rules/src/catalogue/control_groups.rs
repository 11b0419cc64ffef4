// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Control groups.

use super::*;

const V2: &str = "Documentation/admin-guide/cgroup-v2.rst, Cpuset";

const SLICE_CHOICES: &[Choice] = &[
    choice(
        "slices",
        Expected::NoRealTime,
        "NTO, SEAPATH, qitech",
        "all processes of a service stay within its slice",
    ),
    choice(
        "partition",
        Expected::Informational,
        "Documentation/admin-guide/cpu-isolation.rst",
        "an isolated partition removes its CPUs from all other groups",
    ),
];

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "control-group-version",
        title: "version of control groups",
        location: Location::Fact(Fact::ControlGroups, "/proc/self/mountinfo"),
        expected: Expected::Text("v2 alone"),
        reason: "Only v2 has partitions, groups that own CPUs. With v1 each task must be moved separately.",
        cost: "Old container engines need v1.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} systemd.unified_cgroup_hierarchy=1"),
        undo: Some("Remove the parameter and restart."),
        source: V2,
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "partitions-valid",
        title: "all partitions are valid",
        location: Location::Fact(
            Fact::Partitions,
            "/sys/fs/cgroup/{groups}/cpuset.cpus.partition",
        ),
        expected: Expected::Text("none is invalid"),
        applies: &[When::ControlGroupsV2],
        reason: "The kernel accepts a partition that it cannot maintain, and reports `invalid` only when the file is read.",
        cost: "None.",
        fix: Some("read the reason in cpuset.cpus.partition: another group may claim the CPUs"),
        by_hand: Some("the group that claims the CPUs is not known"),
        kernels: Kernels::all(
            "`isolated` from 6.1 on; below groups that are not partitions from 6.7 on",
        ),
        source: V2,
        severity: Severity::Error,
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "partition-modes",
        title: "partitions of control groups",
        location: text(&["/sys/fs/cgroup/{groups}/cpuset.cpus.partition"]),
        expected: Expected::Informational,
        reason: "`root` owns its CPUs, `isolated` also disables load balancing on them.",
        cost: "Other groups lose these CPUs.",
        disruptive: Some("tasks of other groups are moved away from its CPUs"),
        kernels: Kernels::all(
            "`isolated` from 6.1 on; systemd sets it with CPUSetPartition= from 2026 on",
        ),
        source: "Documentation/admin-guide/cgroup-v2.rst, Cpuset; systemd#42013",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "exclusive-cpus",
        title: "CPUs that a group reserves",
        location: list(&["/sys/fs/cgroup/{groups}/cpuset.cpus.exclusive"]),
        expected: Expected::Informational,
        reason: "A partition deep in the tree needs its CPUs reserved in all groups above it.",
        cost: "Other groups lose these CPUs.",
        kernels: Kernels::from(
            6,
            7,
            "before, the parent of a partition had to be a partition",
        ),
        source: V2,
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "partition-isolated-cpus",
        title: "CPUs in isolated partitions",
        location: list(&["/sys/fs/cgroup/cpuset.cpus.isolated"]),
        expected: Expected::Informational,
        reason: "The file shows the CPUs of all valid isolated partitions; it is read-only.",
        cost: "None.",
        undo: Some("Change the partitions."),
        kernels: Kernels::from(6, 8, "new"),
        source: V2,
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "system-slice-cpus",
        title: "CPUs of system services",
        location: list(&[
            "/sys/fs/cgroup/system.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/unified/system.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/cpuset/system.slice/cpuset.effective_cpus",
        ]),
        expected: Expected::NoRealTime,
        choices: SLICE_CHOICES,
        reason: "Services and their processes run on all CPUs of their slice.",
        cost: "A service that needs a real-time CPU must be in another slice.",
        fix: Some("systemctl set-property system.slice AllowedCPUs={housekeeping}"),
        undo: Some("systemctl revert system.slice"),
        source: "systemd.resource-control(5); NTO; SEAPATH ansible#439",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "user-slice-cpus",
        title: "CPUs of users' sessions",
        location: list(&[
            "/sys/fs/cgroup/user.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/unified/user.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/cpuset/user.slice/cpuset.effective_cpus",
        ]),
        expected: Expected::NoRealTime,
        choices: SLICE_CHOICES,
        reason: "Programs that users start from a shell on a real-time CPU disturb it at any time.",
        cost: "A program that needs a real-time CPU must be in another slice.",
        fix: Some("systemctl set-property user.slice AllowedCPUs={housekeeping}"),
        undo: Some("systemctl revert user.slice"),
        source: "systemd.resource-control(5); NTO; SEAPATH ansible#439",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "machine-slice-cpus",
        title: "CPUs of guests and containers of systemd",
        location: list(&[
            "/sys/fs/cgroup/machine.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/unified/machine.slice/cpuset.cpus.effective",
            "/sys/fs/cgroup/cpuset/machine.slice/cpuset.effective_cpus",
        ]),
        expected: Expected::Informational,
        reason: "Real-time guests need real-time CPUs in this slice, and their other threads must not use them.",
        cost: "If the whole slice is on real-time CPUs, so are the emulator's threads.",
        fix: Some(
            "<resource><partition>/machine/rt</partition> in libvirt for the real-time guests alone",
        ),
        source: "libvirt formatdomain; SEAPATH ansible#439, #438",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "group-affinity",
        title: "control groups use either real-time CPUs or others",
        location: Location::Fact(
            Fact::GroupCpus,
            "/sys/fs/cgroup/{groups}/cpuset.cpus.effective",
        ),
        expected: Expected::Text(
            "each group within the housekeeping CPUs, or within the real-time CPUs",
        ),
        reason: "The scheduler may place a program of such a group on a real-time CPU. Containers, pods and their sandboxes are in groups of their own, beside the slices of systemd.",
        cost: "A workload that needs a real-time CPU must be in another group.",
        fix: Some(
            "systemctl set-property {name} AllowedCPUs={housekeeping}\necho {housekeeping} | tee {paths}",
        ),
        undo: Some("systemctl revert of the unit, or write the old CPUs into cpuset.cpus."),
        source: "Documentation/admin-guide/cgroup-v2.rst, Cpuset; systemd.resource-control(5); containerd#10155",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "cpu-quota",
        title: "time limits of groups",
        location: Location::Fact(
            Fact::NotShown,
            "cpu.max of the group that the real-time thread is in",
        ),
        expected: Expected::Text("`max`: no quota on any group above a real-time thread"),
        reason: "A group without remaining quota is stopped for the rest of the period.",
        cost: "The group may use its CPUs fully.",
        fix: Some(
            "CPUQuota= (empty) in the unit\nremove --cpus and --cpu-quota from the container's options",
        ),
        undo: Some("Set the quota again."),
        by_hand: Some("the unit or container belongs to who wrote it"),
        source: "Documentation/admin-guide/cgroup-v2.rst, cpu.max; CRI-O cpu-quota annotation",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "v1-balancing",
        title: "balancing between all CPUs (cgroup v1)",
        location: text(&["/sys/fs/cgroup/cpuset/cpuset.sched_load_balance"]),
        expected: Expected::Number(0),
        applies: &[When::ControlGroupsV1],
        reason: "While the root group balances, no group below it can disable balancing.",
        cost: "Each group below must set its own balancing.",
        source: "Documentation/admin-guide/cgroup-v1/cpusets.rst; partrt; NTO cpuset-configure.sh",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "v1-exclusive",
        title: "groups that share no CPU (cgroup v1)",
        location: text(&["/sys/fs/cgroup/cpuset/{group}/cpuset.cpu_exclusive"]),
        expected: Expected::Informational,
        applies: &[When::ControlGroupsV1],
        reason: "No sibling group may then have the same CPUs.",
        cost: "Other groups cannot use them.",
        source: "Documentation/admin-guide/cgroup-v1/cpusets.rst; partrt",
        ..Knob::of(KnobGroup::ControlGroups)
    },
    Knob {
        name: "v1-real-time-budget",
        title: "real-time budgets of groups (cgroup v1)",
        location: text(&[
            "/sys/fs/cgroup/cpu/{group}/cpu.rt_runtime_us",
            "/sys/fs/cgroup/cpu,cpuacct/{group}/cpu.rt_runtime_us",
        ]),
        expected: Expected::Informational,
        applies: &[When::ControlGroupsV1],
        reason: "A group with 0 is refused real-time policies; a thread that already has one cannot be moved into it.",
        cost: "The sum of all budgets must not exceed that of the machine.",
        source: "Documentation/scheduler/sched-rt-group.rst; runc#2431",
        ..Knob::of(KnobGroup::ControlGroups)
    },
];
