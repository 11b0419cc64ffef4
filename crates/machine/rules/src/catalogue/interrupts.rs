// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "interrupt-affinity",
        title: "CPUs of interrupts",
        location: Location::Fact(Fact::InterruptAffinity, "/proc/irq/{irq}/smp_affinity_list"),
        expected: Expected::NoRealTime,
        reason: "An interrupt that may run on a real-time CPU can occur at any time, together with its soft interrupts.",
        cost: "Housekeeping CPUs handle the interrupts of all devices; a few controllers refuse a new affinity (EIO).",
        disruptive: Some("a device with many queues may reset or lose packets for a short time"),
        fix: Some("for i in /proc/irq/[0-9]*; do echo {housekeeping} > $i/smp_affinity_list; done"),
        verify: Some(
            "The counts of the real-time CPUs in /proc/interrupts do not rise. An IO-APIC line moves only with its next interrupt.",
        ),
        source: "Documentation/core-api/irq/irq-affinity.rst; tuned#364",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "default-interrupt-affinity",
        title: "CPUs of interrupts of new devices",
        location: mask(&["/proc/irq/default_smp_affinity"]),
        expected: Expected::NoRealTime,
        reason: "The interrupts of a new device start with this mask.",
        cost: "None.",
        source: "Documentation/core-api/irq/irq-affinity.rst",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "irqaffinity",
        title: "CPUs of interrupts from boot on",
        location: boot_cpus("irqaffinity", &[]),
        expected: Expected::NoRealTime,
        reason: "An IO-APIC line that was first routed to a real-time CPU leaves it only at its next interrupt, possibly hours later.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, irqaffinity=; tuned#364",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "managed-interrupts",
        title: "managed interrupts",
        location: boot("isolcpus"),
        expected: Expected::Contains("managed_irq"),
        reason: "Queues of disks and network interfaces get an interrupt for each CPU, whose affinity cannot be changed; only this parameter keeps them off the real-time CPUs.",
        cost: "Best effort: a queue whose CPUs are all isolated still interrupts one of them.",
        effect: KnobEffect::AtRestart,
        fix: Some("{add} isolcpus=managed_irq,domain,{real-time}"),
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
        reason: "The thread of a handler can have a priority below that of the real-time thread.",
        cost: "Each interrupt costs a context switch. PREEMPT_RT always threads interrupts.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, threadirqs",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "interrupt-broadcast",
        title: "interrupts between CPUs are not broadcast",
        location: boot("no_ipi_broadcast"),
        expected: Expected::Number(1),
        applies: &[When::X86, When::Feature("x2apic")],
        reason: "With the shorthand the kernel sends an interrupt for all online CPUs as one broadcast to every CPU of the machine, also to those that it does not use; x2APIC sends to a set of CPUs as fast.",
        cost: "One message for each cluster of CPUs in place of one for all.",
        effect: KnobEffect::AtRestart,
        source: "arch/x86/kernel/apic/ipi.c, apic_ipi_shorthand; kernel/apic/x2apic_cluster.c",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "message-signalled-interrupts",
        title: "devices send their interrupts as messages",
        location: boot("pci"),
        expected: Expected::Not(&["nomsi"]),
        reason: "Devices share interrupt lines, which move only at the next interrupt; each message goes to one CPU.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/PCI/msi-howto.rst",
        ..Knob::of(KnobGroup::Interrupts)
    },
    Knob {
        name: "irqbalance-banned-cpus",
        title: "CPUs that irqbalance does not use",
        location: Location::Fact(
            Fact::BannedCpus,
            "/etc/default/irqbalance, /etc/sysconfig/irqbalance, /etc/irqbalance.env",
        ),
        expected: Expected::CoversRealTime,
        choices: &[
            choice(
                "banned",
                Expected::CoversRealTime,
                "tuned realtime",
                "irqbalance may keep running and does not use these CPUs",
            ),
            choice(
                "none",
                Expected::Informational,
                "NTO (clear-irqbalance-banned-cpus.sh)",
                "the container runtime sets the list again for each container",
            ),
        ],
        reason: "A running irqbalance overwrites affinities that it did not set. Without a setting it leaves out the CPUs of isolcpus= and nohz_full=; a list that it cannot parse leaves out none.",
        cost: "None.",
        fix: Some(
            "echo IRQBALANCE_BANNED_CPULIST={real-time} | tee -a {paths} && systemctl restart irqbalance",
        ),
        undo: Some("Remove the line and restart irqbalance."),
        source: "irqbalance(1); irqbalance, cputree.c, setup_banned_cpus; tuned realtime; NTO",
        ..Knob::of(KnobGroup::Interrupts)
    },
];
