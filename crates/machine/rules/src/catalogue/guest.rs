// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings of one guest, which no file of the host shows. `rampart export libvirt` writes most of
//! them.

use super::*;

/// Returns the defaults of all settings of a guest.
const fn setting() -> Knob {
    Knob {
        expected: Expected::Present,
        cost: "None.",
        effect: KnobEffect::ForWhatStartsNext,
        verify: Some("Read the guest's description, or its QEMU's command line."),
        undo: Some("Remove the setting and restart the guest."),
        ..Knob::of(KnobGroup::Guest)
    }
}

pub(super) const KNOBS: &[Knob] = &[
    Knob {
        name: "guest-cpu-pinning",
        title: "each virtual CPU has a dedicated CPU",
        location: Location::Guest(
            "<vcpupin vcpu='0' cpuset='…'/>; in QEMU sched_setaffinity on the threads that QMP query-cpus-fast names, before `cont`",
        ),
        expected: Expected::Text("one to one, and no other thread on these CPUs"),
        reason: "A virtual CPU that waits for a CPU blocks all virtual CPUs that wait for its lock.",
        fix: Some("stop services that move threads (irqbalance, tuned), and restart the guest"),
        source: "libvirt formatdomain, cputune; SEAPATH ansible#438",
        severity: Severity::Error,
        ..setting()
    },
    Knob {
        name: "guest-cpu-priority",
        title: "virtual CPUs run under SCHED_FIFO",
        location: Location::Guest("<vcpusched vcpus='…' scheduler='fifo' priority='1'/>"),
        expected: Expected::FifoAtLeast(1),
        reason: "Ordinary threads must not preempt a virtual CPU; priority 1 is below the kernel's own threads.",
        cost: "A guest that spins without end starves all threads that are bound to that CPU.",
        source: "tuned realtime-virtual-host; libvirt kbase/kvm-realtime (whose example names a vCPU too many)",
        ..setting()
    },
    Knob {
        name: "guest-emulator-pinning",
        title: "the emulator's other threads are on housekeeping CPUs",
        location: Location::Guest("<emulatorpin cpuset='…'/>"),
        expected: Expected::NoRealTime,
        reason: "On a CPU of a virtual CPU they never run while the guest spins, and the guest never boots.",
        source: "SEAPATH ansible#438; KubeVirt isolateEmulatorThread; Nova emulator_threads_policy",
        ..setting()
    },
    Knob {
        name: "guest-io-threads",
        title: "threads of the guest's disks are on housekeeping CPUs",
        location: Location::Guest("<iothreadpin iothread='1' cpuset='…'/>"),
        expected: Expected::NoRealTime,
        reason: "They run when the disks are busy, and would disturb a real-time CPU.",
        source: "libvirt formatdomain, cputune; kubevirt PR#15404",
        ..setting()
    },
    Knob {
        name: "guest-two-cpus",
        title: "a real-time guest has two virtual CPUs, or CPUs for its emulator",
        location: Location::Guest("<vcpu placement='static'>2</vcpu>"),
        expected: Expected::Text("2 virtual CPUs or more, or CPUs for the emulator"),
        reason: "With one virtual CPU the guest's kernel runs its own work on the real-time CPU.",
        cost: "One more CPU for each guest.",
        fix: Some("write <vcpu placement='static'>2</vcpu> into the guest's description"),
        source: "libvirt kbase/kvm-realtime; Nova real-time.rst",
        severity: Severity::Error,
        ..setting()
    },
    Knob {
        name: "guest-topology",
        title: "the guest's topology has cores without siblings",
        location: Location::Guest("<topology sockets='1' cores='N' threads='1'/>"),
        reason: "A guest that sees siblings schedules its work accordingly.",
        source: "Red Hat, real-time virtualisation; KubeVirt (arm64 allows nothing else)",
        ..setting()
    },
    Knob {
        name: "guest-processor",
        title: "the guest has the host's processor model, with its deadline timer",
        location: Location::Guest(
            "<cpu mode='host-passthrough'><feature policy='require' name='tsc-deadline'/>; -cpu host,+tsc-deadline",
        ),
        reason: "The deadline timer avoids accesses to the interrupt controller when a timer is armed.",
        cost: "The guest cannot move to another kind of processor.",
        source: "libvirt kbase/kvm-realtime; SEAPATH",
        ..setting()
    },
    Knob {
        name: "guest-counters",
        title: "the guest has no performance counters",
        location: Location::Guest("<pmu state='off'/>; -cpu …,pmu=off"),
        expected: Expected::Absent,
        reason: "Saving and restoring the counters lengthens each exit, and the guest's watchdog would use them.",
        cost: "perf in the guest counts nothing.",
        source: "libvirt kbase/kvm-realtime; KubeVirt; SEAPATH",
        ..setting()
    },
    Knob {
        name: "guest-dedicated-hint",
        title: "the guest has the hint that its CPUs are dedicated",
        location: Location::Guest(
            "<kvm><hint-dedicated state='on'/></kvm>; -cpu …,kvm-hint-dedicated=on",
        ),
        reason: "The guest's locks then spin as on hardware.",
        cost: "On shared CPUs the hint makes the guest's locks slow.",
        source: "Documentation/virt/kvm/x86/cpuid.rst, KVM_HINTS_REALTIME",
        ..setting()
    },
    Knob {
        name: "guest-idle",
        title: "the guest halts without an exit",
        location: Location::Guest("-overcommit cpu-pm=on"),
        expected: Expected::Informational,
        choices: &[
            choice(
                "measure",
                Expected::Informational,
                "Rampart",
                "it changes the path of the guest's timers: measure with and without it",
            ),
            choice(
                "guest",
                Expected::Present,
                "KVM's documentation, for dedicated CPUs",
                "no exit when the guest goes idle",
            ),
        ],
        reason: "HLT and MWAIT then stay in the guest.",
        cost: "The host sees a CPU that is always busy; x86 only.",
        source: "Documentation/virt/kvm/api.rst, KVM_CAP_X86_DISABLE_EXITS",
        ..setting()
    },
    Knob {
        name: "guest-idle-poll",
        title: "the guest polls when idle",
        location: Location::Guest("idle=poll on the guest's own kernel command line"),
        expected: Expected::Informational,
        choices: &[
            choice(
                "measure",
                Expected::Informational,
                "SEAPATH (open question, #529)",
                "a CPU of the host is always busy",
            ),
            choice(
                "poll",
                Expected::Present,
                "OpenShift guest guide (openshift-docs#75714)",
                "no exit and no wakeup",
            ),
        ],
        reason: "A virtual CPU that never sleeps need not be woken.",
        cost: "Full power for each virtual CPU.",
        source: "openshift-docs#75714; SEAPATH #529",
        ..setting()
    },
    Knob {
        name: "guest-memory",
        title: "the guest's memory is huge pages on the node of its CPUs",
        location: Location::Guest(
            "<hugepages><page size='1' unit='GiB' nodeset='0'/></hugepages> <numatune mode='strict'>",
        ),
        reason: "TLB misses are shorter, and no memory is on a remote node.",
        source: "Red Hat, real-time virtualisation; KubeVirt guestMappingPassthrough",
        ..setting()
    },
    Knob {
        name: "guest-memory-locked",
        title: "the guest's memory is allocated and locked",
        location: Location::Guest(
            "<locked/> <nosharepages/> <allocation mode='immediate'/>; -overcommit mem-lock=on",
        ),
        reason: "A page fault in the host stops the virtual CPU for up to milliseconds.",
        cost: "QEMU locks far more memory than the guest has: 490 MiB for a guest of 64 MiB have been observed.",
        source: "libvirt formatdomain; libvirt kbase/kvm-realtime",
        ..setting()
    },
    Knob {
        name: "guest-devices",
        title: "the guest has no devices that it does not need",
        location: Location::Guest(
            "no HPET, USB, balloon, random generator, graphics; <memballoon model='none'/>",
        ),
        expected: Expected::Absent,
        reason: "Each emulated access costs thousands of cycles in the host, and some devices poll.",
        source: "libvirt kbase/kvm-realtime; ACRN (2000 to 3000 cycles for an access to a serial port)",
        ..setting()
    },
    Knob {
        name: "guest-passthrough",
        title: "real-time devices are passed through to the guest",
        location: Location::Guest(
            "VFIO, with its interrupts on the CPU of the virtual CPU that owns the device",
        ),
        expected: Expected::Informational,
        reason: "With an emulated device the guest waits for threads of the host.",
        cost: "Needs an IOMMU, and the host can no longer use the device.",
        source: "Documentation/driver-api/vfio.rst; ACRN",
        ..setting()
    },
    Knob {
        name: "guest-cache",
        title: "the guest has a dedicated part of the cache",
        location: Location::Guest(
            "<cachetune vcpus='…'><cache id='0' level='3' type='both' size='…'/></cachetune>",
        ),
        expected: Expected::Informational,
        reason: "A co-located workload cannot evict lines in other ways.",
        cost: "Other workloads have less cache.",
        source: "libvirt formatdomain, cachetune; ACRN and Intel real-time VM guides",
        ..setting()
    },
    Knob {
        name: "guest-kernel",
        title: "the guest's own kernel is PREEMPT_RT",
        location: Location::Guest(
            "the kernel in the guest, with isolcpus=, nohz_full=, rcu_nocbs= on its real-time virtual CPUs",
        ),
        reason: "A stock guest on a fully tuned host reached 9.5 ms, with tens of µs expected.",
        source: "ocp-virt-cookbook#141; tuned realtime-virtual-guest",
        ..setting()
    },
    Knob {
        name: "guest-thread-names",
        title: "the guest's threads have names",
        location: Location::Guest("-name NAME,debug-threads=on"),
        reason: "A tool that sets affinities can distinguish virtual CPUs from other threads.",
        source: "QEMU's documentation of -name",
        ..setting()
    },
    Knob {
        name: "guest-accelerator",
        title: "the guest runs with hardware virtualisation (KVM)",
        location: Location::Guest("<domain type='kvm'>; QEMU's -accel kvm"),
        expected: Expected::Text("kvm"),
        reason: "Emulated instructions have no bounded duration.",
        source: "QEMU's documentation of TCG; Documentation/virt/kvm/api.rst",
        ..setting()
    },
    Knob {
        name: "guest-isolation",
        title: "the guest keeps its real-time CPUs free of other work",
        location: Location::Guest(
            "isolcpus=, nohz_full= and rcu_nocbs= on the guest's kernel command line",
        ),
        expected: Expected::Text("all real-time CPUs of the guest, and no other"),
        reason: "The housekeeping of the guest runs on its first CPU.",
        source: "tuned realtime-virtual-guest; Documentation/admin-guide/cpu-isolation.rst",
        ..setting()
    },
    Knob {
        name: "guest-tick",
        title: "a guest on an emulated machine keeps its tick",
        location: Location::Guest("nohz= on the guest's kernel command line"),
        expected: Expected::Text("off, and no nohz_full="),
        reason: "An emulated processor may halt with an interrupt pending; without a tick it would never wake.",
        source: "Rampart: seen with QEMU's TCG",
        ..setting()
    },
    Knob {
        name: "guest-starves-kernel-threads",
        title: "virtual CPUs do not starve the kernel",
        location: Location::Guest(
            "priorities of ksoftirqd, ktimers, rcuc and rcub on the guest's CPUs; sched_rt_runtime_us",
        ),
        expected: Expected::Text(
            "kernel threads above the virtual CPU, or real-time throttling on",
        ),
        reason: "A busy virtual CPU never yields: a kernel thread below its priority never runs, and the host hangs.",
        fix: Some(
            "for t in $(pgrep '^(ksoftirqd|ktimers|rcuc|rcub)/'); do chrt --fifo --pid 2 $t; done",
        ),
        source: "tuned realtime-virtual-host; Documentation/scheduler/sched-rt-group.rst",
        severity: Severity::Error,
        ..setting()
    },
    Knob {
        name: "guest-firmware-interrupts",
        title: "no SMI while the guest runs",
        location: Location::Guest("register 0x34 of the host, before and after"),
        expected: Expected::Number(0),
        reason: "The firmware stops all CPUs, and the kernel cannot observe it.",
        effect: KnobEffect::InFirmware,
        source: "Intel SDM volume 4, MSR_SMI_COUNT",
        ..setting()
    },
    Knob {
        name: "guest-host-isolcpus",
        title: "the host isolates the guest's CPUs at boot",
        location: Location::Guest("isolcpus=domain on the host's kernel command line"),
        expected: Expected::Informational,
        reason: "It disables load balancing on the CPUs from boot on; an isolated partition does so at run time.",
        effect: KnobEffect::AtRestart,
        source: "Documentation/admin-guide/cpu-isolation.rst",
        ..setting()
    },
];
