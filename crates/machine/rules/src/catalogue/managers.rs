// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Other programs that tune the machine.

use super::*;

/// What all programs have in common.
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
        location: Place::Program(&["irqbalance"]),
        choices: &[
            choice(
                "stopped",
                Expected::Absent,
                "SEAPATH, LinuxCNC, most guides",
                "nothing moves interrupts behind a plan's back",
            ),
            choice(
                "banned",
                Expected::Informational,
                "tuned, NTO, CRI-O",
                "it may go on with the real-time CPUs banned, see irqbalance-banned-cpus",
            ),
        ],
        reason: "It moves interrupts between CPUs every ten seconds.",
        cost: "Interrupts stay where they are put, all on one CPU if nobody spreads them.",
        fix: Some("systemctl disable --now irqbalance"),
        undo: Some("systemctl enable --now irqbalance"),
        source: "irqbalance(1); the list of what fights over CPUs in SEAPATH ansible#996",
        ..program()
    },
    Knob {
        name: "tuned",
        title: "tuned",
        location: Place::Program(&["tuned"]),
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
        reason: "It sets many of these knobs itself, and puts its old values back when it ends.",
        cost: "What its profile set must be set elsewhere.",
        disruptive: Some(
            "stopping it takes its whole profile back at once: latency spikes up to a loss of service were seen",
        ),
        fix: Some("choose one manager: systemctl disable --now tuned, or leave the knobs to tuned"),
        undo: Some("systemctl enable --now tuned"),
        source: "NTO PR#704 (OCPBUGS-13065); tuned#98, #416",
        ..program()
    },
    Knob {
        name: "tuned-profile",
        title: "the profile of tuned",
        location: text(&["/etc/tuned/active_profile"]),
        expected: Expected::Informational,
        reason: "It tells which knobs tuned sets.",
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
        reason: "It hands the mask of housekeeping CPUs to units that read it; the kernel does nothing with it.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "tuned cpu-partitioning; NTO",
        ..program()
    },
    Knob {
        name: "stalld",
        title: "stalld",
        location: Place::Program(&["stalld"]),
        choices: &[
            choice(
                "stopped",
                Expected::Absent,
                "Rampart",
                "it boosts starving threads above real-time ones, which shows in the worst case",
            ),
            choice(
                "running",
                Expected::Present,
                "NTO, real-time hint",
                "a starving thread of the kernel can hang the machine",
            ),
        ],
        reason: "It lends a starving thread a deadline on the CPU of the real-time thread that starves it.",
        cost: "Without it, and without throttling, what starves stays so.",
        fix: Some("systemctl disable --now stalld"),
        undo: Some("systemctl enable --now stalld"),
        source: "stalld(8); NTO",
        ..program()
    },
    Knob {
        name: "ksmtuned",
        title: "ksmtuned",
        location: Place::Program(&["ksmtuned"]),
        reason: "It switches the merging of pages on again when memory grows short.",
        cost: "Equal guests need more memory.",
        fix: Some("systemctl mask --now ksm ksmtuned"),
        undo: Some("systemctl unmask ksm ksmtuned, and start them"),
        source: "tuned realtime-virtual-host, cpu-partitioning",
        ..program()
    },
    Knob {
        name: "numad",
        title: "numad",
        location: Place::Program(&["numad"]),
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
        location: Place::Program(&["thermald"]),
        reason: "It lowers frequencies and injects idle time before the hardware has to.",
        cost: "The hardware throttles later and harder: cool the machine well.",
        fix: Some("systemctl disable --now thermald"),
        undo: Some("systemctl enable --now thermald"),
        source: "thermald(8)",
        ..program()
    },
    Knob {
        name: "power-daemons",
        title: "daemons that save power",
        location: Place::Program(&[
            "power-profiles-daemon",
            "power-profiles-",
            "tuned-ppd",
            "auto-cpufreq",
            "tlp",
            "cpufreqd",
        ]),
        reason: "They set governors and preferences anew whenever the battery or the user says so.",
        cost: "Power.",
        fix: Some("systemctl disable --now of the one that runs"),
        undo: Some("systemctl enable --now of the same"),
        source: "power-profiles-daemon's and tlp's manuals",
        ..program()
    },
    Knob {
        name: "rtkit",
        title: "rtkit",
        location: Place::Program(&["rtkit-daemon"]),
        expected: Expected::Informational,
        reason: "It grants real-time priorities to desktop programs, as sound servers; they may run on any CPU that they may use.",
        cost: "Sound may stutter without it.",
        fix: Some("systemctl disable --now rtkit-daemon"),
        undo: Some("systemctl enable --now rtkit-daemon"),
        source: "rtkit's README",
        ..program()
    },
    Knob {
        name: "firmware-updates",
        title: "the timer that asks for firmware",
        location: Place::Exists(&[
            "/etc/systemd/system/timers.target.wants/fwupd-refresh.timer",
            "/usr/lib/systemd/system/timers.target.wants/fwupd-refresh.timer",
        ]),
        reason: "Reading the firmware's variables makes the firmware interrupt every CPU.",
        cost: "Firmware must be updated by hand.",
        fix: Some("systemctl disable --now fwupd-refresh.timer"),
        undo: Some("systemctl enable --now fwupd-refresh.timer"),
        source: "NTO faffd0396 (2026-08)",
        ..program()
    },
    Knob {
        name: "cset-shield",
        title: "a shield of cset",
        location: Place::Exists(&[
            "/sys/fs/cgroup/cpuset/cset",
            "/cpusets/user",
            "/sys/fs/cgroup/cpuset/user/cpuset.cpus",
        ]),
        reason: "Its groups claim CPUs that no plan knows of; it works with cgroup v1 only.",
        cost: "None.",
        fix: Some("cset shield --reset"),
        undo: Some("cset shield with the old CPUs"),
        source: "SUSE/cpuset#40",
        ..program()
    },
    Knob {
        name: "partrt",
        title: "partitions of partrt",
        location: Place::Exists(&["/tmp/partrt_env"]),
        reason: "Its groups and settings are undone from this file, and from guesses if it is lost.",
        cost: "None.",
        fix: Some("partrt undo"),
        undo: Some("partrt create with the old CPUs"),
        source: "partrt's manual",
        ..program()
    },
    Knob {
        name: "kubelet-cpus",
        title: "CPUs that Kubernetes gives away",
        location: Place::Exists(&["/var/lib/kubelet/cpu_manager_state"]),
        expected: Expected::Informational,
        reason: "The kubelet gives CPUs to containers and knows of no plan: those of the plan belong into its reservedSystemCPUs.",
        cost: "The node has fewer CPUs to give.",
        disruptive: Some("another policy needs the node drained and the file removed"),
        fix: Some("reservedSystemCPUs in the kubelet's configuration"),
        source: "Kubernetes, CPU management policies on a node",
        ..program()
    },
];
