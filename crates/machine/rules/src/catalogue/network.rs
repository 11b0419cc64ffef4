// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network interfaces.

use super::*;

const SCALING: &str = "Documentation/networking/scaling.rst";

const COALESCING_CHOICES: &[Choice] = &[
    choice(
        "off",
        Expected::Number(0),
        "EtherCAT masters (LinuxCNC#2281, genode#5362)",
        "a packet is received as soon as it arrives",
    ),
    choice(
        "polling",
        Expected::Informational,
        "Documentation/networking/napi.rst, busy polling",
        "a program that polls the interface itself needs its interrupt deferred",
    ),
];

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "network-queues",
        title: "queues of network interfaces",
        location: Location::Fact(
            Fact::NetworkQueues,
            "/sys/class/net/{device}/queues/rx-{queue}",
        ),
        expected: Expected::Text("no more receive queues than housekeeping CPUs"),
        reason: "Each queue has an interrupt; with more queues than housekeeping CPUs some interrupts reach real-time CPUs.",
        cost: "Less throughput.",
        disruptive: Some("many interfaces reset when the number of queues changes"),
        fix: Some(
            "ethtool --set-channels DEVICE combined N, with N at most the number of housekeeping CPUs",
        ),
        undo: Some("Set the old number with ethtool."),
        by_hand: Some("the interface and its number of queues depend on the driver"),
        source: "NTO net plugin; tuned; SEAPATH (tuned.conf.j2: the reset cost it its quorum)",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "receive-steering",
        title: "CPUs that process received packets (RPS)",
        location: mask(&["/sys/class/net/{device}/queues/rx-{queue}/rps_cpus"]),
        expected: Expected::NoRealTime,
        reason: "The kernel sends an interrupt to the other CPU for each steered batch of packets.",
        cost: "None.",
        source: SCALING,
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "default-receive-steering",
        title: "RPS CPUs of new interfaces",
        location: mask(&["/proc/sys/net/core/rps_default_mask"]),
        expected: Expected::NoRealTime,
        reason: "A new interface, such as that of a container, starts with this mask.",
        cost: "None.",
        kernels: Kernels::from(6, 3, "new"),
        source: "Documentation/admin-guide/sysctl/net.rst, rps_default_mask; tuned; NTO",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "transmit-steering",
        title: "CPUs that send through a queue (XPS)",
        location: mask(&["/sys/class/net/{device}/queues/tx-{queue}/xps_cpus"]),
        expected: Expected::Informational,
        reason: "A real-time thread that sends packets needs a separate queue; the other real-time threads need none.",
        cost: "None.",
        source: SCALING,
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "threaded-polling",
        title: "interfaces are polled by a thread",
        location: text(&["/sys/class/net/{device}/threaded"]),
        expected: Expected::Informational,
        reason: "A thread can have an affinity and a priority, a soft interrupt cannot.",
        cost: "A switch for each batch of packets.",
        kernels: Kernels::from(5, 12, "new"),
        source: "Documentation/networking/napi.rst",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "receive-flush-timeout",
        title: "time that received packets wait for others, in nanoseconds",
        location: text(&["/sys/class/net/{device}/gro_flush_timeout"]),
        expected: Expected::Number(0),
        choices: COALESCING_CHOICES,
        reason: "The kernel holds packets back until this time has passed, so each arrives later by up to it.",
        cost: "More interrupts and less throughput.",
        source: "Documentation/networking/napi.rst, Software IRQ coalescing; LinuxCNC#4199",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "deferred-interrupts",
        title: "polls without a packet before the interrupt of an interface is enabled again",
        location: text(&["/sys/class/net/{device}/napi_defer_hard_irqs"]),
        expected: Expected::Number(0),
        choices: COALESCING_CHOICES,
        reason: "Meanwhile a timer polls the interface (gro_flush_timeout), and a packet waits for the timer.",
        cost: "More interrupts.",
        source: "Documentation/networking/napi.rst, Software IRQ coalescing; LinuxCNC#4199",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "backlog-threads",
        title: "threads that process the packet backlog",
        location: Location::ThreadPolicy(&["backlog_napi/*"]),
        expected: Expected::Informational,
        reason: "With PREEMPT_RT a thread on the target CPU processes the packets that were steered to it.",
        cost: "None.",
        kernels: Kernels::from(6, 10, "new"),
        source: "net/core/dev.c, thread_backlog_napi",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "busy-read",
        title: "busy-poll time of read() in microseconds",
        location: text(&["/proc/sys/net/core/busy_read"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "NTO (dropped on real-time kernels)",
                "polling with locks held is not suitable for PREEMPT_RT",
            ),
            choice(
                "tuned",
                Expected::Number(50),
                "tuned network-latency",
                "a reader finds its packet without an interrupt",
            ),
        ],
        reason: "A reader polls the interface instead of waiting for its interrupt.",
        cost: "The CPU is busy while it waits.",
        source: "Documentation/networking/napi.rst, busy polling",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "busy-poll",
        title: "busy-poll time of poll() in microseconds",
        location: text(&["/proc/sys/net/core/busy_poll"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "NTO (dropped on real-time kernels)",
                "polling with locks held is not suitable for PREEMPT_RT",
            ),
            choice(
                "tuned",
                Expected::Number(50),
                "tuned network-latency",
                "a reader finds its packet without an interrupt",
            ),
        ],
        reason: "poll() and select() poll the interface instead of waiting for its interrupt.",
        cost: "The CPU is busy while it waits.",
        source: "Documentation/networking/napi.rst, busy polling",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "tcp-fast-open",
        title: "TCP connections that open with data (Fast Open)",
        location: text(&["/proc/sys/net/ipv4/tcp_fastopen"]),
        expected: Expected::Informational,
        reason: "It saves a round trip when a connection opens (3: client and server), and does not change the machine's own latency.",
        cost: "Some networks drop such packets.",
        source: "tuned network-latency; Documentation/networking/ip-sysctl.rst",
        ..Knob::of(KnobGroup::Network)
    },
    Knob {
        name: "timestamping-held-open",
        title: "time stamps of packets stay enabled",
        location: Location::Fact(Fact::NotShown, "a socket with SO_TIMESTAMPING"),
        expected: Expected::Text("one such socket is open all the time"),
        reason: "The first socket that requests time stamps makes the kernel patch its code, which interrupts every CPU.",
        cost: "Each packet is stamped.",
        fix: Some("enable the plugin rtentsk of tuned\nkeep a socket with SO_TIMESTAMPING open"),
        undo: Some("Close the socket."),
        by_hand: Some("a program has to keep the socket open"),
        source: "tuned network-latency, plugin rtentsk",
        ..Knob::of(KnobGroup::Network)
    },
];
