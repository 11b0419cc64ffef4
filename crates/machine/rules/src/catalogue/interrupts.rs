// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "interrupt-affinity",
        title: "where interrupts go",
        location: Place::Fact(Fact::InterruptAffinity, "/proc/irq/{irq}/smp_affinity_list"),
        expected: Expected::NoRealTime,
        reason: "An interrupt that is allowed on a real-time CPU comes when the device likes, and brings its soft interrupts along.",
        cost: "Housekeeping CPUs serve all devices; a few controllers refuse to be moved (EIO).",
        disruptive: Some("a device with many queues may reset or lose packets for a moment"),
        fix: Some("for i in /proc/irq/[0-9]*; do echo {housekeeping} > $i/smp_affinity_list; done"),
        verify: Some(
            "The columns of the real-time CPUs in /proc/interrupts stand still. An IO-APIC line moves only with its next interrupt.",
        ),
        source: "Documentation/core-api/irq/irq-affinity.rst; tuned#364",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "default-interrupt-affinity",
        title: "where interrupts of new devices go",
        location: mask(&["/proc/irq/default_smp_affinity"]),
        expected: Expected::NoRealTime,
        reason: "A device that appears later begins with this mask.",
        cost: "None.",
        source: "Documentation/core-api/irq/irq-affinity.rst",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "irqaffinity",
        title: "where interrupts go from the boot on",
        location: boot_cpus("irqaffinity", &[]),
        expected: Expected::NoRealTime,
        reason: "A line of the IO-APIC that was first sent to a real-time CPU leaves it only at its next interrupt, perhaps hours later.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, irqaffinity=; tuned#364",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "managed-interrupts",
        title: "interrupts that the kernel spreads by itself",
        location: boot("isolcpus"),
        expected: Expected::Contains("managed_irq"),
        reason: "Queues of disks and network interfaces get an interrupt for each CPU that nobody can move; this is the only way to keep them off.",
        cost: "Best effort: a queue of which all CPUs are isolated still interrupts one.",
        effect: KnobEffect::AtRestart,
        fix: Some("isolcpus=managed_irq,domain,{real-time} on the kernel command line"),
        source: "Documentation/admin-guide/kernel-parameters.txt, isolcpus=; cpu-isolation.rst",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "threaded-interrupts",
        title: "interrupts run in threads",
        location: boot("threadirqs"),
        expected: Expected::Present,
        applies: &[
            When::OrdinaryKernel,
            When::Option("CONFIG_IRQ_FORCED_THREADING"),
        ],
        reason: "A handler in a thread can be given a priority below the real-time thread's.",
        cost: "Each interrupt costs a switch. PREEMPT_RT does it always.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, threadirqs",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "message-signalled-interrupts",
        title: "devices send their interrupts as messages",
        location: boot("pci"),
        expected: Expected::Not(&["nomsi"]),
        reason: "Lines are shared by devices and move late; messages go to one CPU each.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/PCI/msi-howto.rst",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "irqbalance-banned-cpus",
        title: "CPUs that irqbalance leaves alone",
        location: Place::Fact(
            Fact::BannedCpus,
            "/etc/default/irqbalance, /etc/sysconfig/irqbalance",
        ),
        expected: Expected::CoversRealTime,
        choices: &[
            choice(
                "banned",
                Expected::CoversRealTime,
                "tuned realtime",
                "irqbalance may go on and keeps off these CPUs",
            ),
            choice(
                "none",
                Expected::Informational,
                "NTO (clear-irqbalance-banned-cpus.sh)",
                "the container runtime owns the list, for each container anew",
            ),
        ],
        reason: "Where irqbalance runs, it undoes every affinity that it does not know of.",
        cost: "None.",
        fix: Some(
            "IRQBALANCE_BANNED_CPULIST={real-time} in /etc/default/irqbalance, then systemctl restart irqbalance",
        ),
        undo: Some("Remove the line and restart irqbalance."),
        source: "irqbalance(1); tuned realtime; NTO",
        ..Knob::of(KnobGroup::Interrupts)
    },
];
