// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM on the host. Most module parameters are read-only while the module is loaded.

use super::*;

/// Returns the defaults of all parameters of KVM's modules.
const fn parameter() -> Knob {
    Knob {
        applies: &[When::Guests],
        effect: KnobEffect::AtReload,
        disruptive: Some("no guest may run while the module is loaded again"),
        ..Knob::of(KnobGroup::Kvm)
    }
}

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "config-kvm",
        title: "the kernel can run guests",
        location: Location::KernelOption("CONFIG_KVM"),
        expected: Expected::Present,
        applies: &[When::Guests],
        reason: "Without it the machine runs only emulated guests.",
        cost: "None.",
        source: "Documentation/virt/kvm/api.rst",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Kvm)
    },
    Knob {
        name: "kvm",
        title: "the machine can host guests",
        location: Location::Exists(&["/dev/kvm"]),
        expected: Expected::Present,
        applies: &[When::Guests],
        severity: Severity::Error,
        reason: "Guests with hardware virtualisation need it; with PREEMPT_RT on AMD the clock source must be the TSC.",
        cost: "None until a guest runs.",
        fix: Some(
            "{if intel} modprobe kvm_intel\n{if amd} modprobe kvm_amd\n{if hardware} enable virtualisation in the firmware\n{if guest} enable nested virtualisation in the hypervisor",
        ),
        source: "Documentation/virt/kvm/api.rst",
        ..Knob::of(KnobGroup::Kvm)
    },
    Knob {
        name: "kvm-clock-sync",
        title: "regular updates of guests' clocks",
        location: text(&["/sys/module/kvm/parameters/kvmclock_periodic_sync"]),
        expected: Expected::Word(&["N", "0"]),
        reason: "Every five minutes all virtual CPUs are interrupted to correct the paravirtual clock.",
        cost: "The clocks of guests drift apart slightly.",
        fix: Some(
            "options kvm kvmclock_periodic_sync=0 in /etc/modprobe.d/, and load the module again",
        ),
        by_hand: Some("the module cannot be loaded again while guests run"),
        source: "tuned realtime-virtual-host; Documentation/virt/kvm/x86/timekeeping.rst",
        ..parameter()
    },
    Knob {
        name: "kvm-pause-exits",
        title: "pause-loop exits (Intel)",
        location: text(&["/sys/module/kvm_intel/parameters/ple_gap"]),
        expected: Expected::Number(0),
        reason: "The exits help if virtual CPUs share CPUs, and only cost time if each has a dedicated CPU.",
        cost: "Overcommitted guests spin longer.",
        fix: Some("options kvm_intel ple_gap=0 in /etc/modprobe.d/, and load the module again"),
        by_hand: Some("the module cannot be loaded again while guests run"),
        source: "tuned realtime-virtual-host",
        ..parameter()
    },
    Knob {
        name: "kvm-pause-filter",
        title: "pause-loop exits (AMD)",
        location: text(&["/sys/module/kvm_amd/parameters/pause_filter_count"]),
        expected: Expected::Number(0),
        reason: "The exits help if virtual CPUs share CPUs, and only cost time if each has a dedicated CPU.",
        cost: "Overcommitted guests spin longer.",
        fix: Some(
            "options kvm_amd pause_filter_count=0 in /etc/modprobe.d/, and load the module again",
        ),
        by_hand: Some("the module cannot be loaded again while guests run"),
        source: "Documentation/virt/kvm/; the counterpart of ple_gap",
        ..parameter()
    },
    Knob {
        name: "kvm-split-huge-pages",
        title: "huge pages of guests are split for their code",
        location: text(&["/sys/module/kvm/parameters/nx_huge_pages"]),
        expected: Expected::Word(&["N", "off", "never", "0"]),
        applies: &[When::Guests, When::X86],
        reason: "A thread merges split pages again while the guest waits, with spikes of about 100 µs.",
        cost: "On processors with the flaw (iTLB multihit) a guest can crash the machine.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        source: "Documentation/admin-guide/hw-vuln/multihit.rst; tuned e4a0e48",
        ..parameter()
    },
    Knob {
        name: "kvm-huge-page-recovery",
        title: "the share of split pages that is merged again",
        location: text(&["/sys/module/kvm/parameters/nx_huge_pages_recovery_ratio"]),
        expected: Expected::Informational,
        applies: &[When::Guests, When::X86],
        reason: "If pages must be split, 0 keeps them split and avoids the spikes.",
        cost: "Memory for the tables of small pages.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        source: "Documentation/admin-guide/kernel-parameters.txt, kvm.nx_huge_pages_recovery_ratio",
        ..parameter()
    },
    Knob {
        name: "kvm-halt-polling",
        title: "the host polls when a guest sleeps",
        location: text(&["/sys/module/kvm/parameters/halt_poll_ns"]),
        expected: Expected::Number(0),
        reason: "A halted virtual CPU keeps its CPU busy for a while: the CPU time looks like load, and other threads wait.",
        cost: "A wakeup of the guest takes the full path through the host. QEMU can set it for one guest.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        kernels: Kernels::all("default 200 µs on x86, 500 µs on arm64"),
        source: "Documentation/virt/kvm/halt-polling.rst; SEAPATH",
        ..parameter()
    },
    Knob {
        name: "kvm-timer-advance",
        title: "guests' timers fire early",
        location: text(&[
            "/sys/module/kvm/parameters/lapic_timer_advance",
            "/sys/module/kvm/parameters/lapic_timer_advance_ns",
        ]),
        expected: Expected::Informational,
        applies: &[When::Guests, When::X86],
        reason: "An early timer compensates for the host's wakeup path; the host adapts the advance itself (-1, or Y).",
        cost: "A fixed value is right for one machine and one kernel only: tuned removed it; the gain was 3 to 4 µs.",
        kernels: Kernels::all(
            "a number of nanoseconds in older kernels, a switch named lapic_timer_advance in newer kernels (6.18 has it)",
        ),
        source: "tuned 51c50a3; arch/x86/kvm/lapic.c",
        ..parameter()
    },
    Knob {
        name: "kvm-posted-timers",
        title: "guests' timers are delivered by another CPU",
        location: text(&["/sys/module/kvm/parameters/pi_inject_timer"]),
        expected: Expected::Informational,
        applies: &[When::Guests, When::X86],
        reason: "Enabled by default with nohz_full=; a housekeeping CPU then posts the timer without an exit if APICv is active and the guest may halt without an exit.",
        cost: "The VMX preemption timer is not used then: measure with and without it.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        source: "arch/x86/kvm/lapic.c, pi_inject_timer",
        ..parameter()
    },
    Knob {
        name: "kvm-shortest-period",
        title: "the shortest period of a guest's timer",
        location: text(&["/sys/module/kvm/parameters/min_timer_period_us"]),
        expected: Expected::Informational,
        applies: &[When::Guests, When::X86],
        reason: "A periodic timer of a guest never fires faster than this.",
        cost: "Shorter periods let a guest busy the host.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        source: "arch/x86/kvm/x86.c, min_timer_period_us",
        ..parameter()
    },
    Knob {
        name: "kvm-apicv",
        title: "interrupts without an exit (Intel)",
        location: text(&["/sys/module/kvm_intel/parameters/enable_apicv"]),
        expected: Expected::Word(&["Y", "1"]),
        reason: "The processor delivers interrupts to a running guest without the hypervisor.",
        cost: "None.",
        fix: Some(
            "options kvm_intel enable_apicv=1 in /etc/modprobe.d/, on a processor that supports it",
        ),
        by_hand: Some("the module cannot be loaded again while guests run"),
        source: "Intel SDM volume 3C, APIC virtualisation",
        ..parameter()
    },
    Knob {
        name: "kvm-avic",
        title: "interrupts without an exit (AMD)",
        location: text(&["/sys/module/kvm_amd/parameters/avic"]),
        expected: Expected::Informational,
        reason: "The processor delivers interrupts to a running guest without the hypervisor.",
        cost: "Some guest features exclude it, and some processors have errata.",
        fix: Some("options kvm_amd avic=1 in /etc/modprobe.d/, on a processor that supports it"),
        by_hand: Some("the module cannot be loaded again while guests run"),
        source: "AMD APM volume 2, AVIC",
        ..parameter()
    },
    Knob {
        name: "kvm-preemption-timer",
        title: "guests' timers use the VMX preemption timer (Intel)",
        location: text(&["/sys/module/kvm_intel/parameters/preemption_timer"]),
        expected: Expected::Informational,
        reason: "Without it each timer of a guest is a timer of the host.",
        cost: "None.",
        source: "arch/x86/kvm/vmx/vmx.c, preemption_timer",
        ..parameter()
    },
    Knob {
        name: "kvm-cache-flush",
        title: "the L1 data cache is flushed at guest entry (Intel)",
        location: text(&["/sys/module/kvm_intel/parameters/vmentry_l1d_flush"]),
        expected: Expected::Informational,
        reason: "On processors with the flaw (L1TF) each guest entry starts with a cold cache.",
        cost: "Without it a guest can read recently used data of the core.",
        effect: KnobEffect::AtOnce,
        disruptive: None,
        source: "Documentation/admin-guide/hw-vuln/l1tf.rst",
        ..parameter()
    },
    Knob {
        name: "kvm-arm-mode",
        title: "the mode of KVM on Arm",
        location: boot("kvm-arm.mode"),
        expected: Expected::Informational,
        applies: &[When::Arm64],
        reason: "`nvhe` runs the kernel below the hypervisor's exception level, `protected` also protects guests from the host.",
        cost: "`nvhe` makes exits slower on processors with VHE.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, kvm-arm.mode=",
        ..Knob::of(KnobGroup::Kvm)
    },
    Knob {
        name: "kvm-arm-direct-interrupts",
        title: "devices interrupt guests directly (Arm, GICv4)",
        location: boot("kvm-arm.vgic_v4_enable"),
        expected: Expected::Informational,
        applies: &[When::Arm64],
        reason: "A device's message reaches a running virtual CPU without the host.",
        cost: "Needs a GICv4.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, kvm-arm.vgic_v4_enable=",
        ..Knob::of(KnobGroup::Kvm)
    },
    Knob {
        name: "iommu",
        title: "devices can be passed through to guests",
        location: Location::Fact(Fact::Iommu, "/sys/class/iommu, /sys/kernel/iommu_groups"),
        expected: Expected::Text("on, with devices of the host passed through"),
        applies: &[When::Guests, When::Hardware],
        reason: "Without it a device of a guest could write to all memory, and no device can be passed through safely.",
        cost: "Without `iommu=pt` the addresses of all transfers by the host's own devices are translated.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "{if intel} {add} intel_iommu=on iommu=pt\n{if amd} {add} iommu=pt\n{if arm64} {add} iommu.passthrough=1",
        ),
        undo: Some("Remove the parameters and restart."),
        source: "Documentation/arch/x86/iommu.rst; NTO",
        ..Knob::of(KnobGroup::Kvm)
    },
];
