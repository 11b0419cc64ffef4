// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idle states and frequencies.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "governor",
        title: "who chooses the frequency",
        location: text(&[
            "/sys/devices/system/cpu/cpufreq/policy{real-time-policy}/scaling_governor",
        ]),
        expected: Expected::Word(&["performance"]),
        reason: "Other governors slow an idle CPU down, and the first cycles after a wakeup are slow.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/cpufreq.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "fixed-frequency",
        title: "the range of frequencies",
        location: Place::Fact(
            Fact::FrequencyRange,
            "/sys/devices/system/cpu/cpufreq/policy{real-time-policy}/scaling_min_freq, scaling_max_freq",
        ),
        expected: Expected::Informational,
        reason: "One frequency makes equal work take equal time.",
        cost: "The highest one that can be held is below the highest one.",
        fix: Some("write one frequency into scaling_min_freq and scaling_max_freq of the policy"),
        source: "NTO hardwareTuning; Documentation/admin-guide/pm/cpufreq.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "minimum-performance",
        title: "the lowest performance that intel_pstate may choose",
        location: text(&["/sys/devices/system/cpu/intel_pstate/min_perf_pct"]),
        expected: Expected::Number(100),
        reason: "The driver may lower the frequency under the governor `performance` too, within these limits.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_pstate.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "energy-preference",
        title: "what the processor prefers when it chooses by itself",
        location: text(&[
            "/sys/devices/system/cpu/cpufreq/policy{real-time-policy}/energy_performance_preference",
        ]),
        expected: Expected::Word(&["performance", "0"]),
        reason: "Processors that choose their frequency alone are told so what matters.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "energy-bias",
        title: "bias between performance and energy",
        location: text(&["/sys/devices/system/cpu/cpu{real-time-cpu}/power/energy_perf_bias"]),
        expected: Expected::Word(&["0", "performance"]),
        reason: "It bends the choices of the processor that no governor sees.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_epb.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "turbo",
        title: "frequencies above the nominal one (Intel)",
        location: text(&["/sys/devices/system/cpu/intel_pstate/no_turbo"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "fast and unsteady, or slow and steady: the work decides",
            ),
            choice(
                "on",
                Expected::Number(0),
                "tuned latency-performance",
                "shorter paths through the kernel",
            ),
            choice(
                "off",
                Expected::Number(1),
                "SUSE hardware testing guide; rt-conf",
                "what neighbours do no longer changes the speed",
            ),
        ],
        reason: "How fast a core is depends on how many others are busy and how warm they are.",
        cost: "Without it every path is longer.",
        source: "Documentation/admin-guide/pm/intel_pstate.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "boost",
        title: "frequencies above the nominal one",
        location: text(&["/sys/devices/system/cpu/cpufreq/boost"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "fast and unsteady, or slow and steady: the work decides",
            ),
            choice(
                "on",
                Expected::Number(1),
                "tuned latency-performance",
                "shorter paths through the kernel",
            ),
            choice(
                "off",
                Expected::Number(0),
                "SUSE hardware testing guide",
                "what neighbours do no longer changes the speed",
            ),
        ],
        reason: "How fast a core is depends on how many others are busy and how warm they are.",
        cost: "Without it every path is longer.",
        kernels: Kernels::all("for each policy too from 6.11 on"),
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "intel-pstate",
        title: "the driver of frequencies (Intel)",
        location: boot("intel_pstate"),
        expected: Expected::Informational,
        applies: &[When::Intel, When::Hardware],
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "with the governor `performance` and the idle states limited, each works",
            ),
            choice(
                "disable",
                Expected::Word(&["disable"]),
                "tuned realtime-virtual-host (older), Red Hat",
                "the old driver sets frequencies one by one and nothing by itself",
            ),
            choice(
                "active",
                Expected::Word(&["active", "passive"]),
                "NTO (chooses by the processor)",
                "new processors are badly served by the old driver",
            ),
        ],
        reason: "It decides whether the kernel or the processor chooses.",
        cost: "Fewer or other frequencies.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/pm/intel_pstate.rst; tuned; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "amd-pstate",
        title: "the driver of frequencies (AMD)",
        location: boot("amd_pstate"),
        expected: Expected::Informational,
        applies: &[When::Amd, When::Hardware],
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "with the governor `performance` each works",
            ),
            choice(
                "guided",
                Expected::Word(&["guided"]),
                "NTO",
                "the kernel sets bounds, the processor chooses within",
            ),
        ],
        reason: "It decides whether the kernel or the processor chooses.",
        cost: "Fewer or other frequencies.",
        effect: KnobEffect::AtRestart,
        kernels: Kernels::from(5, 17, "`active` from 6.3, `guided` from 6.4 on"),
        source: "Documentation/admin-guide/pm/amd-pstate.rst; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "idle-states",
        title: "how deeply idle real-time CPUs sleep",
        location: Place::Fact(
            Fact::IdleLatency,
            "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}/latency, disable",
        ),
        expected: Expected::Text("no state that takes more than 10 µs to wake from"),
        choices: &[
            choice(
                "limit",
                Expected::Text("no state that takes more than 10 µs to wake from"),
                "tuned (PM QoS, C1), CRI-O",
                "can be set and taken back for each CPU while the machine runs",
            ),
            choice(
                "poll",
                Expected::Text("no idle state at all"),
                "OpenShift guest guide (openshift-docs#75714)",
                "no time to wake at all, and no power saved",
            ),
        ],
        reason: "Waking from a deep state takes longer than everything a real-time kernel does to wake a thread.",
        cost: "Power and heat; other cores may lose their turbo.",
        fix: Some(
            "for s in /sys/devices/system/cpu/cpu[{real-time}]/cpuidle/state*; do write 1 to $s/disable where $s/latency is over 10; or hold /dev/cpu_dma_latency at 0",
        ),
        undo: Some("Write 0 to the same files, or let go of /dev/cpu_dma_latency."),
        source: "Documentation/admin-guide/pm/cpuidle.rst; tuned cpu plugin",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "resume-latency",
        title: "the wakeup time that a CPU must keep",
        location: text(&[
            "/sys/devices/system/cpu/cpu{real-time-cpu}/power/pm_qos_resume_latency_us",
        ]),
        expected: Expected::Informational,
        reason: "0 sets no limit, a number limits, `n/a` forbids every idle state.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/cpuidle.rst; tuned cpu plugin; CRI-O cpu-c-states",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "latency-request",
        title: "the wakeup time that a program asks for",
        location: Place::Exists(&["/dev/cpu_dma_latency"]),
        expected: Expected::Informational,
        reason: "A program that holds it open at 0 keeps all CPUs awake; cyclictest does so, and so hides that the machine does not.",
        cost: "Power and heat, on every CPU.",
        undo: Some("It ends when the program closes the file."),
        source: "Documentation/admin-guide/pm/cpuidle.rst; jlelli/rt-tests#7",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "idle-governor",
        title: "who chooses the idle state",
        location: text(&[
            "/sys/devices/system/cpu/cpuidle/current_governor",
            "/sys/devices/system/cpu/cpuidle/current_governor_ro",
        ]),
        expected: Expected::Informational,
        reason: "It guesses how long a CPU will be idle; a wrong guess costs the depth of the state.",
        cost: "None.",
        source: "Documentation/admin-guide/pm/cpuidle.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "intel-idle-limit",
        title: "the deepest state that intel_idle knows",
        location: boot("intel_idle.max_cstate"),
        expected: Expected::Informational,
        applies: &[When::Intel],
        choices: &[
            choice(
                "runtime",
                Expected::Informational,
                "tuned",
                "states are limited while the machine runs, for the CPUs that matter",
            ),
            choice(
                "boot",
                Expected::AtMost(1),
                "NTO, high power hint (0: the driver is not used)",
                "nothing can choose a deeper one",
            ),
        ],
        reason: "What the driver does not know nobody can choose.",
        cost: "Power and heat on every CPU.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/pm/intel_idle.rst; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "processor-idle-limit",
        title: "the deepest state that ACPI's driver knows",
        location: boot("processor.max_cstate"),
        expected: Expected::Informational,
        applies: &[When::X86],
        choices: &[
            choice(
                "runtime",
                Expected::Informational,
                "tuned",
                "states are limited while the machine runs, for the CPUs that matter",
            ),
            choice(
                "boot",
                Expected::AtMost(1),
                "NTO, high power hint",
                "nothing can choose a deeper one",
            ),
        ],
        reason: "What the driver does not know nobody can choose.",
        cost: "Power and heat on every CPU.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, processor.max_cstate=; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "idle-poll",
        title: "idle CPUs poll",
        location: boot("idle"),
        expected: Expected::Informational,
        applies: &[When::X86],
        choices: &[
            choice(
                "sleep",
                Expected::Informational,
                "SEAPATH (open question, #529)",
                "a polling sibling slows its core, a polling guest never gives its CPU back",
            ),
            choice(
                "poll",
                Expected::Word(&["poll"]),
                "OpenShift guest guide (openshift-docs#75714)",
                "a wakeup finds the CPU awake",
            ),
        ],
        reason: "A CPU that never sleeps needs no time to wake.",
        cost: "Full power on every CPU; siblings slow each other; no turbo for others.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/kernel-parameters.txt, idle=",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "guest-halt-polling",
        title: "a guest polls before it sleeps",
        location: text(&["/sys/module/haltpoll/parameters/guest_halt_poll_ns"]),
        expected: Expected::Informational,
        applies: &[When::Guest],
        reason: "It saves an exit to the host where the next wakeup is near.",
        cost: "The host's CPU is busy while the guest has nothing to do.",
        source: "Documentation/virt/guest-halt-polling.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "platform-profile",
        title: "the firmware's profile of power",
        location: text(&["/sys/firmware/acpi/platform_profile"]),
        expected: Expected::Word(&["performance"]),
        reason: "The firmware lowers limits of power and temperature under the others.",
        cost: "Power, heat, noise.",
        kernels: Kernels::from(5, 12, "new"),
        source: "Documentation/ABI/testing/sysfs-platform_profile; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "uncore-frequency",
        title: "frequency of what is between the cores (Intel)",
        location: text(&["/sys/devices/system/cpu/intel_uncore_frequency/{die}/min_freq_khz"]),
        expected: Expected::Informational,
        reason: "Caches and memory are slower to reach when it is low, and it falls when cores are idle.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "pci-link-power",
        title: "links of devices save power",
        location: text(&["/sys/module/pcie_aspm/parameters/policy"]),
        expected: Expected::Marked(&["performance"]),
        applies: &[When::Hardware],
        reason: "A link that sleeps takes microseconds to carry the next access or interrupt.",
        cost: "Power.",
        source: "Documentation/admin-guide/kernel-parameters.txt, pcie_aspm=",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "usb-suspend",
        title: "USB devices are put to sleep",
        location: text(&["/sys/module/usbcore/parameters/autosuspend"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "told",
                Expected::Informational,
                "Rampart",
                "it matters only with devices of the real-time work on that bus",
            ),
            choice(
                "never",
                Expected::Number(-1),
                "users (ni/meta-nilrt#636, qitech)",
                "a sleeping device misses its first millisecond",
            ),
        ],
        reason: "A device that sleeps must be woken before it answers.",
        cost: "Power.",
        effect: KnobEffect::ForWhatStartsNext,
        source: "Documentation/driver-api/usb/power-management.rst",
        ..Knob::of(KnobGroup::Power)
    },
];
