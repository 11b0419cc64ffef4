// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Processors, firmware, hypervisors, shared caches.

use super::*;

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "not-emulated",
        title: "the processor is real",
        location: Location::Fact(Fact::Emulation, "CPUID leaf 0x40000000, firmware tables"),
        expected: Expected::Text("hardware, or a guest of a real hypervisor"),
        applies: &[When::Guest],
        reason: "The speed of an emulated processor depends on the emulator; measured times are not meaningful.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some("run on hardware\non an emulated machine compare structure only, not times"),
        undo: Some("Nothing is changed."),
        by_hand: Some("the machine itself is another one"),
        source: "Intel SDM volume 2A, CPUID; QEMU's documentation of TCG",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "not-a-guest",
        title: "the kernel does not run under a hypervisor",
        location: Location::Fact(Fact::Hypervisor, "CPUID, firmware tables, device tree"),
        expected: Expected::Text("hardware, or CPUs that the host gives to this guest alone"),
        reason: "The host can take the CPUs at any time, and its latencies add to those of the guest.",
        cost: "None.",
        effect: KnobEffect::AtRestart,
        fix: Some(
            "run on the hardware itself\non the host, bind each CPU of this guest to a dedicated CPU",
        ),
        verify: Some("The eighth number of the `cpu` lines in /proc/stat (steal) does not change."),
        undo: Some("Nothing is changed here."),
        by_hand: Some("the machine itself is another one"),
        source: "Documentation/trace/osnoise-tracer.rst; Red Hat, real-time virtualisation, chapter 2",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "not-in-a-container",
        title: "Rampart runs on the host",
        location: Location::Fact(
            Fact::Container,
            "/run/systemd/container, /run/.containerenv, /.dockerenv, /proc/1/cgroup",
        ),
        expected: Expected::Text("the host, not a container on it"),
        reason: "In a container Rampart can neither isolate CPUs nor read all sources of noise.",
        cost: "None.",
        effect: KnobEffect::ForWhatStartsNext,
        fix: Some("run rampart on the host; it creates its own containers"),
        undo: Some("Nothing is changed."),
        by_hand: Some("the command is run elsewhere"),
        source: "systemd.io/CONTAINER_INTERFACE; cgroups(7); pid_namespaces(7)",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "enough-cpus",
        title: "a CPU is left for ordinary work",
        location: Location::Fact(Fact::EnoughCpus, "/sys/devices/system/cpu/online"),
        expected: Expected::Text("at least one online CPU besides the real-time ones"),
        reason: "Interrupts, timers and threads that leave the real-time CPUs need another CPU.",
        cost: "One CPU less for real-time work.",
        effect: KnobEffect::AtOnce,
        fix: Some("name fewer CPUs with --cpus\nadd a CPU to the machine"),
        undo: Some("Name other CPUs."),
        by_hand: Some("the choice of CPUs is the user's"),
        source: "ACRN checks/cpu_assignment.xsd; NTO performanceprofile_validation.go",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "boot-cpu",
        title: "the boot CPU does ordinary work",
        location: Location::Fact(Fact::BootCpu, "the CPUs of the plan"),
        expected: Expected::Text("CPU 0 is a housekeeping CPU"),
        reason: "CPU 0 keeps the time and runs work that cannot be moved; the kernel removes it from nohz_full=.",
        cost: "CPU 0 is not a real-time CPU.",
        fix: Some("{without-boot-cpu}"),
        undo: Some("Name other CPUs."),
        by_hand: Some("the real-time CPUs are others afterwards"),
        source: "Documentation/admin-guide/kernel-parameters.txt, nohz_full=; ACRN: no real-time guest on CPU 0",
        severity: Severity::Error,
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "sibling-threads",
        title: "no real-time core is shared by siblings",
        location: Location::Fact(
            Fact::Siblings,
            "/sys/devices/system/cpu/cpu{real-time-cpu}/topology/core_cpus_list",
        ),
        expected: Expected::Text(
            "each sibling of a real-time CPU is a real-time CPU of the same owner, or offline",
        ),
        reason: "Siblings share execution units, first-level caches and store buffers: the work of one slows the other immediately.",
        cost: "The sibling does no other work.",
        disruptive: Some("taking a CPU offline stops all CPUs for milliseconds"),
        fix: Some("echo off > /sys/devices/system/cpu/smt/control\nname whole cores with --cpus"),
        undo: Some("echo on > /sys/devices/system/cpu/smt/control"),
        source: "libvirt kbase/kvm-realtime; NTO performance profile creator (odd numbers of CPUs); CNTO#372",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "simultaneous-multithreading",
        title: "simultaneous multithreading",
        location: text(&["/sys/devices/system/cpu/smt/active"]),
        expected: Expected::Informational,
        choices: &[
            choice(
                "same-owner",
                Expected::Informational,
                "OpenShift, KubeVirt",
                "siblings keep their throughput if no core is split between owners",
            ),
            choice(
                "off",
                Expected::Number(0),
                "libvirt, Nova, Red Hat",
                "even an idle sibling takes a part of the core when it wakes",
            ),
        ],
        reason: "Siblings restrict how CPUs can be divided between owners.",
        cost: "Without it the throughput is a fifth to a third lower, and CPU numbers change.",
        disruptive: Some("takes CPUs offline, which stops all CPUs for milliseconds"),
        fix: Some("echo off > /sys/devices/system/cpu/smt/control\n{add} nosmt"),
        source: "Documentation/admin-guide/kernel-parameters.txt, nosmt; libvirt kbase/kvm-realtime; openshift-docs#28436",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "one-memory-node",
        title: "the real-time CPUs are on one memory node",
        location: Location::Fact(Fact::OneNode, "/sys/devices/system/node/node{node}/cpulist"),
        expected: Expected::Text("all CPUs of one real-time workload on one node"),
        applies: &[When::SeveralNodes],
        reason: "Access to memory of another node takes longer, over a shared interconnect.",
        cost: "None.",
        fix: Some("name CPUs of one node with --cpus"),
        undo: Some("Name other CPUs."),
        by_hand: Some("the choice of CPUs is the user's"),
        source: "KubeVirt vmi-create-admitter.go; NTO performance profile creator",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "one-kind-of-core",
        title: "the real-time CPUs are cores of one kind",
        location: Location::Fact(
            Fact::MixedCores,
            "/sys/devices/system/cpu/cpu{real-time-cpu}/cpu_capacity",
        ),
        expected: Expected::Text("all real-time CPUs of one capacity"),
        reason: "A thread that was sized on a fast core misses its deadline on a slow one.",
        cost: "None.",
        fix: Some("name CPUs of one kind with --cpus"),
        undo: Some("Name other CPUs."),
        by_hand: Some("the choice of CPUs is the user's"),
        source: "ACRN checks/cpu_assignment.xsd: no mixture of P and E cores",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "firmware-interrupts",
        title: "interrupts of the firmware (SMI)",
        location: Location::Fact(Fact::FirmwareInterrupts, "/dev/cpu/0/msr, register 0x34"),
        expected: Expected::Informational,
        applies: &[When::Intel, When::Hardware],
        reason: "The firmware stops every CPU for an unbounded time, and the kernel cannot observe it.",
        cost: "Functions of the firmware may need them (thermal control, legacy USB).",
        effect: KnobEffect::InFirmware,
        fix: Some(
            "disable legacy USB, power capping and patrol scrub in the firmware's setup, but no thermal interrupts",
        ),
        verify: Some(
            "The count does not rise over an hour of load; the hwlat tracer finds no gap.",
        ),
        undo: Some("Enable them again in the firmware's setup."),
        source: "Intel SDM volume 4, MSR_SMI_COUNT; Documentation/trace/hwlat_detector.rst",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "firmware-settings",
        title: "settings of the firmware",
        location: Location::Fact(Fact::NotShown, "the firmware's own menu"),
        expected: Expected::Text(
            "a real-time mode if it has one (Intel TCC), else C1E, deep idle states and patrol scrub off; virtualisation stays on",
        ),
        applies: &[When::Hardware],
        reason: "Power saving in the firmware costs latency, and the kernel cannot override all of it.",
        cost: "Power and heat.",
        effect: KnobEffect::InFirmware,
        verify: Some("The hwlat tracer finds no gap, and the count of firmware interrupts stays."),
        undo: Some("Restore the settings of the firmware."),
        source: "Intel TCC tools, step 3; Red Hat, real-time virtualisation, chapter 2; SUSE hardware testing guide",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "random-generator",
        title: "random numbers do not come from firmware",
        location: Location::Fact(
            Fact::RandomGenerator,
            "/sys/class/misc/hw_random/rng_current",
        ),
        expected: Expected::Text("a generator in hardware, or none"),
        reason: "A thread of the kernel reads the generator all the time. If firmware implements it, each read stops the CPU in the secure world, in System Management Mode or on the bus of a TPM, where the kernel cannot interrupt it.",
        cost: "The kernel's entropy comes from the processor and from interrupts.",
        fix: Some(
            "echo {name} > /sys/class/misc/hw_random/rng_current\necho 0 > {paths}\nuse a kernel without the driver of this generator",
        ),
        source: "drivers/char/hw_random/core.c, hwrng_fillfn; Arm DEN0098, True Random Number Generator Firmware Interface",
        ..Knob::of(KnobGroup::Hardware)
    },
    Knob {
        name: "shared-cache",
        title: "caches shared with housekeeping CPUs",
        location: Location::Fact(
            Fact::SharedCache,
            "/sys/devices/system/cpu/cpu{real-time-cpu}/cache/index{index}/shared_cpu_list",
        ),
        expected: Expected::Text("none, or an exclusive part for the real-time CPUs"),
        reason: "A co-located workload that streams through a shared cache evicts the real-time thread's lines.",
        cost: "The part of the cache that one group owns is not available to the others.",
        fix: Some(
            "assign separate cache ways to the real-time CPUs with resctrl\nchoose CPUs with a separate cache",
        ),
        undo: Some("Remove the resctrl group."),
        by_hand: Some("the shares depend on what runs on the other CPUs"),
        source: "Documentation/filesystems/resctrl.rst; ACRN and Intel real-time VM guides",
        ..Knob::of(KnobGroup::Cache)
    },
    Knob {
        name: "cache-allocation",
        title: "allocation of caches and memory bandwidth (resctrl)",
        location: Location::Fact(Fact::CacheAllocation, "/sys/fs/resctrl"),
        expected: Expected::Text("mounted if the processor supports it"),
        reason: "Without it a shared cache cannot be divided.",
        cost: "None until a group is created.",
        fix: Some("mount -t resctrl resctrl /sys/fs/resctrl"),
        undo: Some("umount /sys/fs/resctrl"),
        kernels: Kernels::all(
            "L2 and L3 from 4.10 on, memory bandwidth from 4.12, arm64's MPAM joined in 2026",
        ),
        source: "Documentation/filesystems/resctrl.rst; intel-cmt-cat#289: desktop parts often lack it",
        ..Knob::of(KnobGroup::Cache)
    },
    Knob {
        name: "cache-schemata",
        title: "division of caches",
        location: text(&["/sys/fs/resctrl/schemata"]),
        expected: Expected::Informational,
        reason: "The default group should not use the ways of a real-time group.",
        cost: "Fewer ways for ordinary work; some devices always write into fixed ways.",
        fix: Some("write a mask without the real-time group's ways, as in `L3:0=ff0`"),
        source: "Documentation/filesystems/resctrl.rst",
        ..Knob::of(KnobGroup::Cache)
    },
    Knob {
        name: "cache-group-mode",
        title: "sharing of ways between groups",
        location: text(&["/sys/fs/resctrl/{group}/mode"]),
        expected: Expected::Informational,
        reason: "`exclusive` makes the kernel refuse overlaps; `pseudo-locked` keeps data in the cache.",
        cost: "Pseudo-locked lines are not available to other groups, and some power states evict them.",
        source: "Documentation/filesystems/resctrl.rst",
        ..Knob::of(KnobGroup::Cache)
    },
    Knob {
        name: "config-resctrl",
        title: "the kernel can divide caches",
        location: Location::KernelOption("CONFIG_X86_CPU_RESCTRL"),
        expected: Expected::Present,
        applies: &[When::X86, When::Hardware],
        reason: "Without the option the kernel cannot use the allocation features of the processor.",
        cost: "None until it is used.",
        source: "Documentation/filesystems/resctrl.rst",
        ..Knob::of(KnobGroup::Cache)
    },
    Knob {
        name: "config-mpam",
        title: "the kernel can divide caches on Arm",
        location: Location::KernelOption("CONFIG_ARM64_MPAM"),
        expected: Expected::Informational,
        applies: &[When::Arm64],
        reason: "MPAM is the allocation feature of Arm processors; the kernel controls it through the same resctrl files.",
        cost: "None until it is used.",
        source: "Documentation/filesystems/resctrl.rst; Arm MPAM, DDI 0598",
        ..Knob::of(KnobGroup::Cache)
    },
];
