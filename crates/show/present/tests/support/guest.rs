// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An invented KVM guest on a simulated machine: one real-time vCPU on CPU 4.

use rampart_model::{
    Accelerator, ClockRelation, CpuId, CpuSet, Finding, GuestKnob, GuestReport, GuestThread,
    GuestThreadRole, Nanos, SchedulingPolicy, Severity, SignedNanos,
};

use super::cpus;

/// The guest's clock minus the host's when the evaluation began: it booted later.
const OFFSET: i64 = -31_482_113_904;

/// How the guest's clock relates to the host's at `at`; it gains 3 ns in each ms.
pub(crate) fn clock(at: Nanos) -> ClockRelation {
    ClockRelation {
        at,
        offset: SignedNanos(OFFSET + (at.0 / 1_000_000 * 3) as i64),
        uncertainty: Nanos::from_micros(184),
        exchanges: 64,
    }
}

fn thread(name: &str, id: u32, role: GuestThreadRole, on: &str, policy: &str) -> GuestThread {
    GuestThread {
        name: name.to_owned(),
        thread: id,
        role,
        cpus: cpus(on),
        policy: policy.parse().expect("a policy"),
    }
}

fn knob(name: &str, wanted: &str, present: &str, applied: bool, reason: &str) -> GuestKnob {
    GuestKnob {
        rule: "guest-memory".to_owned(),
        fix: None,
        location: name.to_owned(),
        expected: wanted.to_owned(),
        found: present.to_owned(),
        satisfied: wanted == present,
        applied,
        reason: reason.to_owned(),
    }
}

fn knobs() -> Vec<GuestKnob> {
    vec![
        knob(
            "kernel of the host",
            "PREEMPT_RT",
            "PREEMPT_RT",
            false,
            "a vCPU is a thread: what delays threads delays the guest",
        ),
        knob(
            "isolcpus of the host",
            "4",
            "1-4",
            false,
            "ordinary tasks must not be put on a vCPU's CPU",
        ),
        knob(
            "nohz_full of the host",
            "4",
            "1-4",
            false,
            "the tick of the host ends in an exit of the guest",
        ),
        knob(
            "vCPU 1 bound to",
            "CPU 4",
            "CPU 4",
            true,
            "a vCPU that moves pays for cold caches and timers",
        ),
        knob(
            "policy of vCPU 1",
            "fifo:1",
            "fifo:1",
            true,
            "under the kernel's own threads, over everything else",
        ),
        knob(
            "memory locked",
            "all",
            "all",
            true,
            "a page fault of the guest's memory is served by the host",
        ),
        knob(
            "huge pages",
            "2 MiB",
            "4 KiB",
            false,
            "fewer levels and entries of the nested tables to walk",
        ),
        knob(
            "kvm.halt_poll_ns",
            "0",
            "200000",
            false,
            "polling after a halt takes the CPU that the guest's wake-up needs",
        ),
        knob(
            "pmu",
            "off",
            "off",
            true,
            "its interrupts are NMIs of the host",
        ),
    ]
    .into_iter()
    .map(|mut knob| {
        // More CPUs than asked for are isolated: that will do.
        knob.satisfied |= knob.found == "1-4";
        knob
    })
    .collect()
}

/// The guest, its clock read at these moments of the host's.
pub(crate) fn report(before: Nanos, after: Nanos) -> GuestReport {
    let virtual_cpu = GuestThreadRole::VirtualCpu;
    GuestReport {
        accelerator: Accelerator::Kvm,
        program: "QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7+deb12u16)".to_owned(),
        command: [
            "qemu-system-x86_64",
            "-name",
            "rampart-vm,debug-threads=on",
            "-S",
            "-machine",
            "microvm,accel=kvm",
            "-cpu",
            "host,pmu=off",
            "-smp",
            "2",
            "-m",
            "256M",
            "-overcommit",
            "mem-lock=on",
            "-kernel",
            "/boot/vmlinuz-6.1.0-56-rt-amd64",
            "-append",
            "console=ttyS0 isolcpus=1 nohz_full=1 rcu_nocbs=1 irqaffinity=0",
        ]
        .map(str::to_owned)
        .to_vec(),
        kernel: "6.1.0-56-rt-amd64 #1 SMP PREEMPT_RT Debian 6.1.148-1 (2025-08-26)".to_owned(),
        kernel_command_line: "console=ttyS0 isolcpus=1 nohz_full=1 rcu_nocbs=1 irqaffinity=0"
            .to_owned(),
        memory_bytes: 256 << 20,
        page_bytes: 4096,
        locked_bytes: 271 << 20,
        pinned: vec![Some(CpuId(0)), Some(CpuId(4))],
        threads: vec![
            thread("qemu-system-x86", 611, GuestThreadRole::Other, "0", "other"),
            thread("CPU 0/KVM", 615, virtual_cpu(0), "0", "other"),
            thread("CPU 1/KVM", 616, virtual_cpu(1), "4", "fifo:1"),
            thread("IO iothread0", 614, GuestThreadRole::Other, "0", "other"),
            thread("worker", 702, GuestThreadRole::Other, "0", "other"),
        ],
        knobs: knobs(),
        boot_time: Nanos::from_millis(14_720),
        clock: vec![clock(before), clock(after)],
        findings: vec![
            Finding::new(
                Severity::Warning,
                "/proc/sys/vm/nr_hugepages",
                "the guest's memory lies on small pages",
            )
            .values("0", "128")
            .fix("sysctl vm.nr_hugepages=128"),
        ],
    }
}

/// The policy of a measuring thread.
pub(crate) fn policy() -> SchedulingPolicy {
    "fifo:80".parse().expect("a policy")
}

/// A set with one CPU.
pub(crate) fn one(cpu: u32) -> CpuSet {
    CpuSet::single(CpuId(cpu))
}
