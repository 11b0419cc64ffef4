// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other programs that configure the machine.

use super::*;

/// Returns the defaults of all programs.
const fn program() -> Knob {
    Knob {
        expected: Expected::Absent,
        ..Knob::of(KnobGroup::OtherManagers)
    }
}

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "irqbalance",
        title: "irqbalance",
        location: Location::Program(&["irqbalance"]),
        applies: &[When::BalancedInterrupts],
        choices: &[
            choice(
                "stopped",
                Expected::Absent,
                "SEAPATH, LinuxCNC, most guides",
                "nothing moves interrupts away from the CPUs that a plan assigns",
            ),
            choice(
                "banned",
                Expected::Informational,
                "tuned, NTO, CRI-O",
                "it may keep running with the real-time CPUs banned, see irqbalance-banned-cpus",
            ),
        ],
        reason: "It moves interrupts between CPUs every ten seconds.",
        cost: "Interrupts stay on the CPUs that they are assigned to; unless a plan or a service spreads them, all go to one CPU.",
        fix: Some("systemctl disable --now irqbalance"),
        undo: Some("systemctl enable --now irqbalance"),
        source: "irqbalance(1); the list of what fights over CPUs in SEAPATH ansible#996",
        ..program()
    },
    Knob {
        name: "tuned",
        title: "tuned",
        location: Location::Program(&["tuned"]),
        choices: &[
            choice(
                "one-manager",
                Expected::Absent,
                "Rampart",
                "two managers undo each other's settings",
            ),
            choice(
                "tuned",
                Expected::Informational,
                "tuned, NTO",
                "with a real-time profile it sets most of this catalogue",
            ),
        ],
        reason: "tuned sets many of these knobs, and restores the previous values when it stops.",
        cost: "The settings of its profile must be set by other means.",
        disruptive: Some(
            "stopping it reverts its whole profile at once: latency spikes and a loss of service have been observed",
        ),
        fix: Some("systemctl disable --now tuned\nleave the knobs to tuned"),
        undo: Some("systemctl enable --now tuned"),
        source: "NTO PR#704 (OCPBUGS-13065); tuned#98, #416",
        ..program()
    },
    Knob {
        name: "tuned-profile",
        title: "the profile of tuned",
        location: text(&["/etc/tuned/active_profile"]),
        expected: Expected::Informational,
        reason: "The profile decides which knobs tuned sets.",
        cost: "None.",
        fix: Some(
            "tuned-adm profile realtime, with isolated_cores={real-time} in /etc/tuned/realtime-variables.conf",
        ),
        source: "tuned-adm(8)",
        ..program()
    },
    Knob {
        name: "tuned-boot-mark",
        title: "tuned's mark on the kernel command line",
        location: boot("tuned.non_isolcpus"),
        expected: Expected::Informational,
        reason: "It passes the mask of housekeeping CPUs to units that read it; the kernel ignores it.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "tuned cpu-partitioning; NTO",
        ..program()
    },
    Knob {
        name: "stalld",
        title: "stalld",
        location: Location::Program(&["stalld"]),
        choices: &[
            choice(
                "stopped",
                Expected::Absent,
                "Rampart",
                "it boosts starving threads above real-time threads, which lengthens the worst case",
            ),
            choice(
                "running",
                Expected::Present,
                "NTO, real-time hint",
                "a starving kernel thread can hang the machine",
            ),
        ],
        reason: "stalld gives a starving thread SCHED_DEADLINE time on the CPU of the real-time thread that starves it.",
        cost: "Without stalld and without throttling, a starving thread does not run until the real-time thread sleeps.",
        fix: Some("systemctl disable --now stalld"),
        undo: Some("systemctl enable --now stalld"),
        source: "stalld(8); NTO",
        ..program()
    },
    Knob {
        name: "ksmtuned",
        title: "ksmtuned",
        location: Location::Program(&["ksmtuned"]),
        reason: "ksmtuned enables the merging of pages again when free memory is low.",
        cost: "Equal guests need more memory.",
        fix: Some("systemctl mask --now ksm ksmtuned"),
        undo: Some("systemctl unmask ksm ksmtuned, and start them"),
        source: "tuned realtime-virtual-host, cpu-partitioning",
        ..program()
    },
    Knob {
        name: "numad",
        title: "numad",
        location: Location::Program(&["numad"]),
        reason: "It moves processes and their memory between nodes.",
        cost: "Memory stays where it was first touched.",
        fix: Some("systemctl disable --now numad"),
        undo: Some("systemctl enable --now numad"),
        source: "numad(8)",
        ..program()
    },
    Knob {
        name: "thermald",
        title: "thermald",
        location: Location::Program(&["thermald"]),
        reason: "thermald lowers frequencies and injects idle time before the hardware throttles.",
        cost: "The hardware throttles later and more strongly: the machine needs sufficient cooling.",
        fix: Some("systemctl disable --now thermald"),
        undo: Some("systemctl enable --now thermald"),
        source: "thermald(8)",
        ..program()
    },
    Knob {
        name: "power-daemons",
        title: "daemons that save power",
        location: Location::Program(&[
            "power-profiles-daemon",
            "tuned-ppd",
            "auto-cpufreq",
            "tlp",
            "cpufreqd",
        ]),
        reason: "They set governors and energy preferences again when the power source or the user's choice changes.",
        cost: "Power.",
        fix: Some("systemctl disable --now {running}"),
        undo: Some("systemctl enable --now of the same daemon"),
        source: "power-profiles-daemon's and tlp's manuals",
        ..program()
    },
    Knob {
        name: "rt-conf",
        title: "rt-conf",
        location: Location::Program(&["rt-conf"]),
        reason: "rt-conf sets kernel parameters, affinities of interrupts and frequency governors from a file of its own.",
        cost: "The settings of its file must be set by other means.",
        fix: Some("snap stop --disable rt-conf"),
        undo: Some("snap start --enable rt-conf"),
        source: "rt-conf's manual",
        ..program()
    },
    Knob {
        name: "rtkit",
        title: "rtkit",
        location: Location::Program(&["rtkit-daemon"]),
        expected: Expected::Informational,
        reason: "rtkit gives real-time priorities to desktop programs such as sound servers, on any CPU in their affinity.",
        cost: "Sound may stutter without it.",
        fix: Some("systemctl disable --now rtkit-daemon"),
        undo: Some("systemctl enable --now rtkit-daemon"),
        source: "rtkit's README",
        ..program()
    },
    Knob {
        name: "firmware-updates",
        title: "the timer of firmware updates",
        location: Location::Exists(&[
            "/etc/systemd/system/timers.target.wants/fwupd-refresh.timer",
            "/usr/lib/systemd/system/timers.target.wants/fwupd-refresh.timer",
        ]),
        reason: "Reading the firmware's variables makes the firmware interrupt every CPU.",
        cost: "Firmware must be updated manually.",
        fix: Some("systemctl disable --now fwupd-refresh.timer"),
        by_hand: Some(
            "a timer that its package enables is only masked, which the rule does not see",
        ),
        undo: Some("systemctl enable --now fwupd-refresh.timer"),
        source: "NTO faffd0396 (2026-08)",
        ..program()
    },
    Knob {
        name: "cset-shield",
        title: "a shield of cset",
        location: Location::Exists(&[
            "/sys/fs/cgroup/cpuset/cset",
            "/cpusets/user",
            "/sys/fs/cgroup/cpuset/user/cpuset.cpus",
        ]),
        reason: "Its groups claim CPUs without the knowledge of a plan; cset works with cgroup v1 only.",
        cost: "None.",
        fix: Some("cset shield --reset"),
        undo: Some("cset shield with the old CPUs"),
        source: "SUSE/cpuset#40",
        ..program()
    },
    Knob {
        name: "partrt",
        title: "partitions of partrt",
        location: Location::Exists(&["/tmp/partrt_env"]),
        reason: "partrt restores its groups and settings from this file; without the file it has to guess.",
        cost: "None.",
        fix: Some("partrt undo"),
        undo: Some("partrt create with the old CPUs"),
        source: "partrt's manual",
        ..program()
    },
    Knob {
        name: "kubelet-cpus",
        title: "CPUs that Kubernetes assigns to containers",
        location: Location::Exists(&["/var/lib/kubelet/cpu_manager_state"]),
        expected: Expected::Informational,
        reason: "The kubelet assigns CPUs to containers and does not read plans: the CPUs of the plan belong in its reservedSystemCPUs.",
        cost: "The node has fewer CPUs for containers.",
        disruptive: Some("another policy needs the node drained and the file removed"),
        fix: Some("reservedSystemCPUs in the kubelet's configuration"),
        source: "Kubernetes, CPU management policies on a node",
        ..program()
    },
];
