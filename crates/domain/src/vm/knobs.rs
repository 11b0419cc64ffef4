// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that real-time guests are known to need, with what it is on this machine and in this
//! guest. The list and its sources: the profiles `realtime-virtual-host` and `-guest` of TuneD,
//! libvirt's document `kvm-realtime`, Red Hat's guide to real-time guests, Linux's
//! `kernel-parameters.txt` and `virt/kvm/api.rst`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rampart_agent::AgentHello;
use rampart_model::{
    Accelerator, CpuSet, Finding, GuestKnob, GuestThread, GuestThreadRole, Machine,
    SchedulingPolicy, Severity,
};

use super::description::{Description, VIRTUAL_CPU_PRIORITY};
use super::knob_table::{FILES, Wanted};

/// What was read from the host when the guest was started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct HostFacts {
    /// The content of each file of the table that is there.
    files: BTreeMap<&'static str, String>,
    command_line: String,
    /// Per-CPU threads of the kernel: name and policy.
    kernel_threads: Vec<(String, SchedulingPolicy)>,
    /// The longest exit latency of an idle state that is on, in nanoseconds.
    idle_exit: u64,
    /// Governors in use.
    governors: Vec<String>,
}

/// Names of per-CPU kernel threads that must run before a virtual CPU.
const KERNEL_THREADS: [&str; 4] = ["ksoftirqd/", "ktimers/", "rcuc/", "cpuhp/"];

impl HostFacts {
    /// Reads the machine below `root`.
    pub(super) fn read(root: &Path, machine: &Machine) -> Self {
        let files = FILES
            .iter()
            .filter_map(|row| {
                let text = fs::read_to_string(root.join(row.path.trim_start_matches('/'))).ok()?;
                Some((row.path, text.trim().to_owned()))
            })
            .collect();
        Self {
            files,
            command_line: machine.command_line.clone(),
            kernel_threads: kernel_threads(&root.join("proc")),
            idle_exit: machine
                .idle_states
                .iter()
                .filter(|state| !state.disabled)
                .map(|state| state.exit_latency.0)
                .max()
                .unwrap_or(0),
            governors: machine
                .frequency
                .governors
                .iter()
                .map(|(name, _)| name.clone())
                .collect(),
        }
    }
}

fn kernel_threads(proc: &Path) -> Vec<(String, SchedulingPolicy)> {
    fs::read_dir(proc)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let name = name.trim_end().to_owned();
            KERNEL_THREADS
                .iter()
                .any(|prefix| name.starts_with(prefix))
                .then_some(())?;
            Some((name, crate::placement::policy(id)?))
        })
        .collect()
}

/// Every knob. Pure.
pub(super) fn all(
    facts: &HostFacts,
    guest: &Description,
    threads: &[GuestThread],
    locked: u64,
    hello: &AgentHello,
) -> Vec<GuestKnob> {
    let mut knobs = Vec::new();
    if guest.real_time {
        knobs.extend(firmware_and_power(facts));
        knobs.extend(boot_line(facts, &real_time_cpus(guest)));
        knobs.extend(files(facts, guest));
        knobs.extend(kernel_thread_priorities(facts, &real_time_cpus(guest)));
        knobs.extend(memory(guest, locked));
    }
    knobs.extend(program(guest));
    knobs.extend(thread_places(guest, threads));
    if guest.real_time {
        knobs.extend(inside(guest, hello));
    }
    knobs
}

/// A knob that is not as it should be, as a finding.
pub(super) fn finding(knob: &GuestKnob) -> Option<Finding> {
    (!knob.satisfied).then(|| {
        Finding::new(Severity::Note, knob.name.clone(), knob.reason.clone())
            .values(knob.present.clone(), knob.wanted.clone())
    })
}

/// The host's CPUs that belong to real-time virtual ones.
fn real_time_cpus(guest: &Description) -> CpuSet {
    guest.pinned().into_iter().skip(1).flatten().collect()
}

fn knob(
    name: impl Into<String>,
    wanted: impl Into<String>,
    present: impl Into<String>,
    satisfied: bool,
    applied: bool,
    reason: &str,
) -> GuestKnob {
    GuestKnob {
        name: name.into(),
        wanted: wanted.into(),
        present: present.into(),
        satisfied,
        applied,
        reason: reason.to_owned(),
    }
}

fn firmware_and_power(facts: &HostFacts) -> Vec<GuestKnob> {
    let governors = if facts.governors.is_empty() {
        "none".to_owned()
    } else {
        facts.governors.join(", ")
    };
    vec![
        knob(
            "idle states",
            "exit within 10 µs (C1)",
            format!("exit within {:.1} µs", facts.idle_exit as f64 / 1000.0),
            facts.idle_exit <= 10_000,
            false,
            "a CPU in a deep idle state takes that long to answer an interrupt",
        ),
        knob(
            "frequency governors",
            "performance, or no frequency scaling",
            governors.clone(),
            governors == "none" || facts.governors.iter().all(|name| name == "performance"),
            false,
            "a CPU that first has to speed up answers late",
        ),
    ]
}

/// The host's own boot line. Some of it a shield does at run time; the rest only the boot line can.
fn boot_line(facts: &HostFacts, cpus: &CpuSet) -> Vec<GuestKnob> {
    let value = |name: &str| {
        facts
            .command_line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let list = |name: &str, reason: &str| {
        let present = value(name);
        let covered = present.map(cpus_in).unwrap_or_default();
        knob(
            format!("{name}= on the host's boot line"),
            cpus.to_string(),
            present.unwrap_or("absent"),
            cpus.is_subset(&covered),
            false,
            reason,
        )
    };
    let word = |name: &str, wanted: &str, reason: &str| {
        let present = value(name);
        knob(
            format!("{name}= on the host's boot line"),
            wanted,
            present.unwrap_or("absent"),
            present == Some(wanted),
            false,
            reason,
        )
    };
    let mut knobs = vec![
        list(
            "isolcpus",
            "keeps managed interrupts and the scheduler's balancing off the CPUs from boot on; an isolated partition does the second at run time",
        ),
        list(
            "nohz_full",
            "stops the tick while a virtual CPU runs alone; only at boot",
        ),
        list(
            "rcu_nocbs",
            "moves RCU callbacks to threads elsewhere; only at boot",
        ),
        word(
            "skew_tick",
            "1",
            "keeps the ticks of all CPUs from meeting on one lock",
        ),
        word(
            "tsc",
            "reliable",
            "switches the watchdog of the clock source off",
        ),
    ];
    let affinity = value("irqaffinity");
    let apart = affinity.is_some_and(|text| cpus_in(text).intersection(cpus).is_empty());
    knobs.push(knob(
        "irqaffinity= on the host's boot line",
        format!("CPUs without {cpus}"),
        affinity.unwrap_or("absent"),
        apart,
        false,
        "an interrupt line of the IO-APIC changes its CPU only at its next interrupt, which may be hours later",
    ));
    // 6.1 does not notice when these differ (kernel/sched/isolation.c).
    let lists = ["isolcpus", "nohz_full", "rcu_nocbs"].map(|name| value(name).map(cpus_in));
    let given: Vec<&CpuSet> = lists.iter().flatten().collect();
    if let Some((first, rest)) = given.split_first()
        && !rest.is_empty()
    {
        knobs.push(knob(
            "isolcpus=, nohz_full= and rcu_nocbs= on the host's boot line",
            "the same CPUs",
            given
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
            rest.iter().all(|other| other == first),
            false,
            "a CPU in one list and not in the other is half isolated, and the kernel does not say so",
        ));
    }
    knobs
}

/// The CPUs of a list that may begin with words, as `managed_irq,domain,1-3`.
fn cpus_in(text: &str) -> CpuSet {
    text.split(',')
        .filter_map(|part| part.parse::<CpuSet>().ok())
        .fold(CpuSet::new(), |all, part| all.union(&part))
}

fn files(facts: &HostFacts, guest: &Description) -> Vec<GuestKnob> {
    FILES
        .iter()
        .filter(|row| !row.kvm || guest.accelerator == Accelerator::Kvm)
        .filter_map(|row| {
            let present = facts.files.get(row.path)?;
            let satisfied = match row.wanted {
                Wanted::One(values) => values.contains(&present.as_str()),
                Wanted::Chosen(word) => present.contains(&format!("[{word}]")),
                Wanted::AtLeast(least) => present.parse::<i64>().is_ok_and(|value| value >= least),
                Wanted::Housekeeping => CpuSet::from_mask(present)
                    .is_ok_and(|cpus| cpus.intersection(&real_time_cpus(guest)).is_empty()),
                Wanted::Told => true,
            };
            let wanted = match row.wanted {
                Wanted::One(values) => values.join(" or "),
                Wanted::Chosen(word) => word.to_owned(),
                Wanted::AtLeast(least) => format!("{least} or more"),
                Wanted::Housekeeping => "the housekeeping CPUs".to_owned(),
                Wanted::Told => "a choice to be made by measuring both".to_owned(),
            };
            let applied = matches!(row.wanted, Wanted::Housekeeping) && satisfied;
            Some(knob(
                row.path, wanted, present, satisfied, applied, row.reason,
            ))
        })
        .collect()
}

/// The kernel's threads of the CPUs must run before the virtual CPU on them, or the virtual CPU,
/// which never gives way, starves them.
fn kernel_thread_priorities(facts: &HostFacts, cpus: &CpuSet) -> Vec<GuestKnob> {
    KERNEL_THREADS[..3]
        .iter()
        .filter_map(|prefix| {
            let of_cpus: Vec<&(String, SchedulingPolicy)> = facts
                .kernel_threads
                .iter()
                .filter(|(name, _)| {
                    name.strip_prefix(prefix)
                        .and_then(|number| number.parse::<CpuSet>().ok())
                        .is_some_and(|cpu| cpu.is_subset(cpus))
                })
                .collect();
            let (_, lowest) = of_cpus.iter().min_by_key(|(_, policy)| priority(*policy))?;
            Some(knob(
                format!("{prefix}CPU of the host"),
                format!("fifo:{} or more", VIRTUAL_CPU_PRIORITY + 1),
                lowest.to_string(),
                priority(*lowest) > VIRTUAL_CPU_PRIORITY,
                false,
                "a thread of the kernel that may not run before a busy virtual CPU is starved by it, except for the real-time throttling's pauses",
            ))
        })
        .collect()
}

fn priority(policy: SchedulingPolicy) -> u8 {
    match policy {
        SchedulingPolicy::Fifo(priority) | SchedulingPolicy::RoundRobin(priority) => priority,
        SchedulingPolicy::Deadline { .. } => u8::MAX,
        SchedulingPolicy::Other => 0,
    }
}

fn memory(guest: &Description, locked: u64) -> Vec<GuestKnob> {
    let backing = &guest.memory;
    let bytes = backing.mebibytes << 20;
    vec![
        knob(
            "huge pages behind the guest",
            format!("{} MiB in pages of 2 MiB or 1 GiB", backing.mebibytes),
            match backing.huge_page {
                Some(size) => format!("pages of {} KiB", size / 1024),
                None => "ordinary pages; not enough huge ones are free".to_owned(),
            },
            backing.huge_page.is_some(),
            backing.huge_page.is_some(),
            "fewer misses of the translation caches, and no page is moved or split: echo NUMBER > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        ),
        knob(
            "-overcommit mem-lock",
            "on",
            format!("{} ({} MiB locked)", on(backing.locked), locked >> 20),
            locked >= bytes,
            backing.locked,
            "a page of the guest or its program that is not in memory costs milliseconds; it needs an unlimited RLIMIT_MEMLOCK and free memory",
        ),
        knob(
            "mem-merge (KSM) for the guest",
            "off",
            "off",
            true,
            true,
            "merged pages are copied at the next write",
        ),
        knob(
            "prealloc for the guest's memory",
            "on",
            "on",
            true,
            true,
            "pages are there before the guest touches them",
        ),
        knob(
            "memory node",
            "that of the CPUs",
            match backing.node {
                Some(node) => format!("bound to node {node}"),
                None => "one node, or CPUs of several".to_owned(),
            },
            true,
            backing.node.is_some(),
            "memory of another node is slower",
        ),
    ]
}

fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

/// What QEMU is told.
fn program(guest: &Description) -> Vec<GuestKnob> {
    let kvm = guest.accelerator == Accelerator::Kvm;
    let dedicated = guest.is_dedicated();
    let mut knobs = vec![
        knob(
            "accelerator",
            "kvm",
            guest.accelerator.to_string(),
            kvm,
            true,
            "emulated instructions have no bound in time",
        ),
        knob(
            "topology",
            "one socket, one thread a core",
            "one socket, one thread a core",
            true,
            true,
            "the guest must not take two virtual CPUs for siblings",
        ),
        knob(
            "devices",
            "no USB, balloon, graphics, HPET or random source",
            "a serial line and a virtio port",
            true,
            true,
            "each emulated device wakes the program's main loop",
        ),
    ];
    if kvm && guest.real_time {
        knobs.push(knob(
            "-cpu host",
            "host",
            "host",
            true,
            true,
            "the processor's own timers and instructions",
        ));
        knobs.push(knob(
            "pmu",
            "off",
            "off",
            true,
            true,
            "counters of the guest cost time at each exit, and their interrupts come unasked",
        ));
        knobs.push(knob(
            "kvm-hint-dedicated",
            "on, where every virtual CPU has a CPU for itself",
            on(dedicated),
            dedicated,
            dedicated,
            "tells the guest that its CPUs are never preempted for long; untrue while its first CPU shares a housekeeping CPU",
        ));
        knobs.push(knob(
            "-overcommit cpu-pm",
            "on, where every virtual CPU has a CPU for itself; a choice to be made by measuring both",
            "off",
            true,
            false,
            "with it an idle virtual CPU stays in the guest: no exit at a wakeup, but the first CPU would keep its housekeeping CPU busy",
        ));
    }
    knobs
}

/// Threads as they were read back.
fn thread_places(guest: &Description, threads: &[GuestThread]) -> Vec<GuestKnob> {
    let mut knobs = Vec::new();
    for (number, cpu) in guest.cpus.iter().enumerate() {
        let role = u32::try_from(number).map(GuestThreadRole::VirtualCpu);
        let thread = threads.iter().find(|thread| Ok(thread.role) == role);
        let present = thread.map_or_else(
            || "no such thread".to_owned(),
            |thread| format!("CPU {}, {}", thread.cpus, thread.policy),
        );
        let satisfied =
            thread.is_some_and(|thread| thread.cpus == cpu.cpus && thread.policy == cpu.policy);
        knobs.push(knob(
            format!("thread of virtual CPU {number}"),
            format!("CPU {}, {}", cpu.cpus, cpu.policy),
            present,
            satisfied,
            satisfied,
            "one physical CPU for each real-time virtual one, before the guest runs its first instruction",
        ));
    }
    let strays: Vec<String> = threads
        .iter()
        .filter(|thread| thread.role == GuestThreadRole::Other)
        .filter(|thread| {
            !thread.cpus.is_subset(&guest.emulator) || thread.policy != SchedulingPolicy::Other
        })
        .map(|thread| format!("{} on CPU {}, {}", thread.name, thread.cpus, thread.policy))
        .collect();
    let others = threads
        .iter()
        .filter(|thread| thread.role == GuestThreadRole::Other)
        .count();
    knobs.push(knob(
        "all other threads of the program",
        format!("CPU {}, other", guest.emulator),
        if strays.is_empty() {
            format!("all {others} of them")
        } else {
            strays.join("; ")
        },
        strays.is_empty(),
        strays.is_empty(),
        "the program's main loop and workers on a real-time CPU would wait for the virtual CPU for ever, and it for them",
    ));
    knobs
}

/// What the guest itself says.
fn inside(guest: &Description, hello: &AgentHello) -> Vec<GuestKnob> {
    let wanted = guest.real_time_inside().to_string();
    let real_time = hello.kernel_version.contains("PREEMPT_RT");
    let mut knobs = vec![knob(
        "guest kernel",
        "PREEMPT_RT",
        hello.kernel_version.clone(),
        real_time,
        false,
        "without it latencies in the guest have no bound whatever the host does",
    )];
    for name in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        let present = hello
            .boot_line
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        knobs.push(knob(
            format!("{name}= on the guest's boot line"),
            wanted.clone(),
            present.unwrap_or("absent"),
            present.is_some_and(|text| cpus_in(text) == guest.real_time_inside()),
            true,
            "the guest's own housekeeping belongs on its first CPU",
        ));
    }
    knobs
}

#[cfg(test)]
#[path = "knobs_tests.rs"]
mod tests;
