// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Idle states and frequencies.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "governor",
        title: "the frequency governor",
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
        location: Location::Fact(
            Fact::FrequencyRange,
            "/sys/devices/system/cpu/cpufreq/policy{real-time-policy}/scaling_min_freq, scaling_max_freq",
        ),
        expected: Expected::Informational,
        reason: "One frequency makes equal work take equal time.",
        cost: "The highest sustainable frequency is below the maximum frequency.",
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
        title: "the energy preference of the processor",
        location: text(&[
            "/sys/devices/system/cpu/cpufreq/policy{real-time-policy}/energy_performance_preference",
        ]),
        expected: Expected::Word(&["performance", "0"]),
        reason: "The preference guides processors that choose their frequency themselves.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_pstate.rst, amd-pstate.rst; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "energy-bias",
        title: "bias between performance and energy",
        location: text(&["/sys/devices/system/cpu/cpu{real-time-cpu}/power/energy_perf_bias"]),
        expected: Expected::Word(&["0", "performance"]),
        reason: "The bias influences decisions of the processor that no governor controls.",
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
                "informational",
                Expected::Informational,
                "Rampart",
                "the right choice depends on the workload: faster and less regular, or slower and more regular",
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
                "the load of other cores no longer changes the speed",
            ),
        ],
        reason: "The speed of a core depends on the load and the temperature of the other cores.",
        cost: "Without it every code path takes longer.",
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
                "informational",
                Expected::Informational,
                "Rampart",
                "the right choice depends on the workload: faster and less regular, or slower and more regular",
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
                "the load of other cores no longer changes the speed",
            ),
        ],
        reason: "The speed of a core depends on the load and the temperature of the other cores.",
        cost: "Without it every code path takes longer.",
        kernels: Kernels::all("for each policy too from 6.11 on"),
        source: "Documentation/admin-guide/pm/cpufreq.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "intel-pstate",
        title: "the frequency driver (Intel)",
        location: boot("intel_pstate"),
        expected: Expected::Informational,
        applies: &[When::Intel, When::Hardware],
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "Rampart",
                "with the governor `performance` and the idle states limited, each works",
            ),
            choice(
                "disable",
                Expected::Word(&["disable"]),
                "tuned realtime-virtual-host (older), Red Hat",
                "the older driver sets only the frequencies that the governor requests",
            ),
            choice(
                "active",
                Expected::Word(&["active", "passive"]),
                "NTO (depends on the processor)",
                "the older driver does not support new processors well",
            ),
        ],
        reason: "It decides whether the kernel or the processor chooses the frequency.",
        cost: "Fewer or different frequencies are available.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/pm/intel_pstate.rst; tuned; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "amd-pstate",
        title: "the frequency driver (AMD)",
        location: boot("amd_pstate"),
        expected: Expected::Informational,
        applies: &[When::Amd, When::Hardware],
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "Rampart",
                "with the governor `performance` each works",
            ),
            choice(
                "guided",
                Expected::Word(&["guided"]),
                "NTO",
                "the kernel sets bounds, and the processor chooses within them",
            ),
        ],
        reason: "It decides whether the kernel or the processor chooses the frequency.",
        cost: "Fewer or different frequencies are available.",
        effect: KnobEffect::AtRestart,
        kernels: Kernels::from(5, 17, "`active` from 6.3, `guided` from 6.4 on"),
        source: "Documentation/admin-guide/pm/amd-pstate.rst; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "idle-states",
        title: "how deeply idle real-time CPUs sleep",
        location: Location::Fact(
            Fact::IdleLatency,
            "/sys/devices/system/cpu/cpu{real-time-cpu}/cpuidle/state{state}/latency, disable",
        ),
        expected: Expected::Text(
            "no state that takes more than 10 µs to wake from, in a guest none",
        ),
        choices: &[
            choice(
                "limit",
                Expected::Text("no state that takes more than 10 µs to wake from, in a guest none"),
                "tuned (PM QoS, C1), CRI-O",
                "can be set and reverted for each CPU while the machine runs",
            ),
            choice(
                "poll",
                Expected::Text("no idle state at all"),
                "OpenShift guest guide (openshift-docs#75714)",
                "no wakeup time, and no power saving",
            ),
        ],
        reason: "The wakeup from a deep state takes longer than all the work of a real-time kernel to wake a thread. In a guest every halt returns the CPU to the hypervisor, which may run another thread on it.",
        cost: "Power and heat; other cores may lose their turbo.",
        fix: Some(
            "{if hardware} echo 10 | tee /sys/devices/system/cpu/cpu{each-real-time}/power/pm_qos_resume_latency_us\n{if guest} echo n/a | tee /sys/devices/system/cpu/cpu{each-real-time}/power/pm_qos_resume_latency_us\nhold /dev/cpu_dma_latency open with the value 0",
        ),
        undo: Some("Write 0 to the same files, or close /dev/cpu_dma_latency."),
        source: "Documentation/admin-guide/pm/cpuidle.rst; Documentation/virt/guest-halt-polling.rst; tuned cpu plugin",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "resume-latency",
        title: "the wakeup latency limit of a CPU",
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
        title: "the wakeup latency limit that a program requests",
        location: Location::Exists(&["/dev/cpu_dma_latency"]),
        expected: Expected::Informational,
        reason: "A program that holds the file open with 0 keeps all CPUs out of idle states; cyclictest does so, and therefore does not measure the wakeup from them.",
        cost: "Power and heat, on every CPU.",
        undo: Some("It ends when the program closes the file."),
        source: "Documentation/admin-guide/pm/cpuidle.rst; jlelli/rt-tests#7",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "idle-governor",
        title: "the idle governor",
        location: text(&[
            "/sys/devices/system/cpu/cpuidle/current_governor",
            "/sys/devices/system/cpu/cpuidle/current_governor_ro",
        ]),
        expected: Expected::Informational,
        reason: "The governor predicts how long a CPU will be idle; a wrong prediction costs the wakeup time of the chosen state.",
        cost: "None.",
        source: "Documentation/admin-guide/pm/cpuidle.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "intel-idle-limit",
        title: "the deepest state that intel_idle uses",
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
                "no governor can choose a deeper state",
            ),
        ],
        reason: "No governor can choose a state that the driver does not provide.",
        cost: "Power and heat on every CPU.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/pm/intel_idle.rst; NTO",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "processor-idle-limit",
        title: "the deepest state that the ACPI idle driver uses",
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
                "no governor can choose a deeper state",
            ),
        ],
        reason: "No governor can choose a state that the driver does not provide.",
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
                "a polling sibling slows its core, and a polling guest never yields its CPU",
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
        reason: "Polling avoids an exit to the host if the next wakeup is near.",
        cost: "The host's CPU is busy while the guest is idle.",
        source: "Documentation/virt/guest-halt-polling.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "platform-profile",
        title: "the power profile of the firmware",
        location: text(&["/sys/firmware/acpi/platform_profile"]),
        expected: Expected::Word(&["performance"]),
        reason: "Under the other profiles the firmware lowers the limits of power and temperature.",
        cost: "Power, heat, noise.",
        kernels: Kernels::from(5, 12, "new"),
        source: "Documentation/ABI/testing/sysfs-platform_profile; tuned latency-performance",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "uncore-frequency",
        title: "the uncore frequency (Intel)",
        location: text(&["/sys/devices/system/cpu/intel_uncore_frequency/{die}/min_freq_khz"]),
        expected: Expected::Informational,
        reason: "Access to caches and memory is slower at a low uncore frequency, which drops when cores are idle.",
        cost: "Power and heat.",
        source: "Documentation/admin-guide/pm/intel_uncore_frequency_scaling.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "pci-link-power",
        title: "power saving of PCIe links",
        location: text(&["/sys/module/pcie_aspm/parameters/policy"]),
        expected: Expected::Marked(&["performance"]),
        applies: &[When::Hardware],
        reason: "A link in a low-power state delays the next access or interrupt by microseconds.",
        cost: "Power.",
        source: "Documentation/admin-guide/kernel-parameters.txt, pcie_aspm=",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "device-runtime-power",
        title: "devices are not suspended while they are idle",
        location: Location::Fact(
            Fact::DevicePower,
            "/sys/bus/pci/devices/{device}/power/control, /sys/bus/usb/devices/{device}/power/control",
        ),
        expected: Expected::Text("on for displays, storage, network interfaces and USB devices"),
        choices: &[
            choice(
                "awake",
                Expected::Text("on for displays, storage, network interfaces and USB devices"),
                "users of graphics and storage beside real-time work",
                "no device resumes while real-time work runs",
            ),
            choice(
                "keep",
                Expected::Informational,
                "the defaults of drivers",
                "real-time work that shares no bus with these devices is not delayed",
            ),
        ],
        applies: &[When::Hardware],
        reason: "A device that resumes is initialised again by its driver and by firmware: the next access takes milliseconds, and others on its bus wait.",
        cost: "Power and heat.",
        fix: Some("echo on | tee {paths}"),
        source: "Documentation/power/runtime_pm.rst; Documentation/ABI/testing/sysfs-devices-power",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "storage-link-power",
        title: "power saving of SATA links",
        location: text(&["/sys/class/scsi_host/{host}/link_power_management_policy"]),
        expected: Expected::Not(&["min_power", "min_power_with_partial"]),
        applies: &[When::Hardware],
        reason: "A link that sleeps delays the next access to its disk by up to 10 ms.",
        cost: "Power.",
        fix: Some("echo max_performance | tee {paths}"),
        source: "Documentation/scsi/link_power_management_policy.rst",
        ..Knob::of(KnobGroup::Power)
    },
    Knob {
        name: "usb-suspend",
        title: "USB devices are suspended when idle",
        location: text(&["/sys/module/usbcore/parameters/autosuspend"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "informational",
                Expected::Informational,
                "Rampart",
                "it matters only if the real-time work uses a USB device",
            ),
            choice(
                "never",
                Expected::Number(-1),
                "users (ni/meta-nilrt#636, qitech)",
                "a suspended device does not respond in its first millisecond",
            ),
        ],
        reason: "A suspended device must resume before it responds.",
        cost: "Power.",
        effect: KnobEffect::ForWhatStartsNext,
        source: "Documentation/driver-api/usb/power-management.rst",
        ..Knob::of(KnobGroup::Power)
    },
];
