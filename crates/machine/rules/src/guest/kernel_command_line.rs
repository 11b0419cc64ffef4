// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Settings on the kernel command lines of the host and of the guest (Linux document
//! `admin-guide/kernel-parameters.txt`).

use crate::{IsolatedCpus, KernelCommandLine};
use rampart_model::{CpuId, CpuSet};

use super::{GuestSubject, Setting};

/// Judges the host's kernel command line. A shield replaces some parameters at run time.
pub(super) fn of_host(known: &GuestSubject<'_>) -> Vec<Setting> {
    let cpus = &known.real_time_cpus();
    let line = &KernelCommandLine::parse(&known.facts.command_line);
    let last = known.facts.possible.iter().next_back().unwrap_or(CpuId(0));
    let row = |rule: &str, name: &str, wanted: String, satisfied: bool, reason: &str| {
        let fix = format!("boot the host with {name}={wanted}");
        Setting::new(
            rule,
            format!("{name}= on the host's kernel command line"),
            wanted,
            line.value(name).unwrap_or("absent"),
            satisfied,
            reason,
        )
        .fix(fix)
    };
    let covers = |name: &str| {
        let named = line.cpus(name, last);
        named.is_some_and(|named| cpus.is_subset(&named))
    };
    let isolated = line.isolcpus(last);
    let covered = |kind: fn(&IsolatedCpus) -> &Option<CpuSet>| {
        let named = isolated.as_ref().and_then(|all| kind(all).as_ref());
        named.is_some_and(|named| cpus.is_subset(named))
    };
    let word = |rule: &str, name: &str, wanted: &str, reason: &str| {
        row(
            rule,
            name,
            wanted.to_owned(),
            line.value(name) == Some(wanted),
            reason,
        )
    };
    let mut knobs = vec![
        row(
            "guest-host-isolcpus",
            "isolcpus",
            format!("domain,{cpus}"),
            covered(|all| &all.unbalanced),
            "disables load balancing on the CPUs from boot on; an isolated partition does so at run time",
        ),
        Setting::new(
            "managed-interrupts",
            "managed_irq in isolcpus= on the host's kernel command line",
            format!("managed_irq,{cpus}"),
            line.value("isolcpus").unwrap_or("absent"),
            covered(|all| &all.without_managed_interrupts),
            "keeps managed interrupts off the CPUs; no other setting can",
        )
        .fix(format!(
            "boot the host with isolcpus=managed_irq,domain,{cpus}"
        )),
        row(
            "nohz-full",
            "nohz_full",
            cpus.to_string(),
            covers("nohz_full"),
            "stops the tick while one virtual CPU runs alone; set at boot only",
        ),
        row(
            "rcu-nocbs",
            "rcu_nocbs",
            cpus.to_string(),
            // `nohz_full=` implies `rcu_nocbs=` (kernel-parameters.txt).
            covers("rcu_nocbs") || covers("nohz_full"),
            "moves RCU callbacks to threads on other CPUs; set at boot only",
        ),
        word(
            "skew-tick",
            "skew_tick",
            "1",
            "staggers the ticks, so that the CPUs do not contend for one lock",
        ),
        word(
            "tsc-reliable",
            "tsc",
            "reliable",
            "disables the watchdog of the clock source",
        ),
    ];
    let affinity = line.cpus("irqaffinity", last);
    knobs.push(
        Setting::new("irqaffinity", "irqaffinity= on the host's kernel command line",
            format!("CPUs without {cpus}"),
            line.value("irqaffinity").unwrap_or("absent"),
            affinity.is_some_and(|named| named.intersection(cpus).is_empty()),
            "an IO-APIC interrupt changes its CPU only when it arrives again, which may be hours later",
        )
        .fix(format!("boot the host with irqaffinity={}", known.guest.housekeeping)),
    );
    knobs.push(default_huge_page(known));
    if known.facts.iommus > 0 {
        knobs.push(word(
            "iommu",
            "iommu",
            "pt",
            "without it the IOMMU translates each memory access of the host's own devices, which costs time",
        ));
    }
    knobs.extend(agreement_of_cpu_lists(line, last));
    knobs
}

fn default_huge_page(known: &GuestSubject<'_>) -> Setting {
    let line = KernelCommandLine::parse(&known.facts.command_line);
    let present = line.value("default_hugepagesz");
    Setting::new(
        "default-huge-page-size",
        "default_hugepagesz= on the host's kernel command line",
        "the page size of the guest's memory, reserved at boot",
        present.unwrap_or("absent"),
        present.is_some() || known.guest.memory.huge_page.is_some(),
        "memory fragments while the machine runs, and few huge pages are free then",
    )
    .fix("boot the host with default_hugepagesz=1G hugepagesz=1G hugepages=NUMBER")
}

/// Judges whether the lists of CPUs agree; Linux 6.1 does not report a difference
/// (kernel/sched/isolation.c).
fn agreement_of_cpu_lists(line: &KernelCommandLine, last: CpuId) -> Option<Setting> {
    let lists = ["isolcpus", "nohz_full", "rcu_nocbs"].map(|name| line.cpus(name, last));
    let given: Vec<&CpuSet> = lists.iter().flatten().collect();
    let (first, rest) = given.split_first()?;
    if rest.is_empty() {
        return None;
    }
    let present: Vec<String> = given.iter().map(ToString::to_string).collect();
    let knob = Setting::new(
        "boot-lists-agree",
        "isolcpus=, nohz_full= and rcu_nocbs= on the host's kernel command line",
        "the same CPUs",
        present.join("; "),
        rest.iter().all(|other| other == first),
        "a CPU that is missing in one list is isolated in part, and the kernel does not report it",
    );
    Some(knob.fix("boot the host with one list in all of them"))
}

/// Judges the kernel and the kernel command line inside the guest.
pub(super) fn of_guest(known: &GuestSubject<'_>) -> Vec<Setting> {
    let guest = known.guest;
    let wanted = guest.real_time_inside().to_string();
    let mut knobs = vec![
        Setting::new(
            "guest-kernel",
            "guest kernel",
            "PREEMPT_RT",
            known.kernel_version,
            known.kernel_version.contains("PREEMPT_RT"),
            "without it no latency in the guest is bounded, whatever the host does",
        )
        .fix(format!(
            "name a real-time kernel in {}",
            known.guest.kernel_variable
        )),
    ];
    let line = KernelCommandLine::parse(known.kernel_command_line);
    let inside = guest.real_time_inside();
    let last = inside.iter().next_back().unwrap_or(CpuId(0));
    for name in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        if name == "nohz_full" && guest.emulated {
            knobs.push(tick_inside(known));
            continue;
        }
        let present = line.value(name);
        let satisfied = line.cpus(name, last).is_some_and(|named| named == inside);
        knobs.push(
            Setting::new(
                "guest-isolation",
                format!("{name}= on the guest's kernel command line"),
                wanted.clone(),
                present.unwrap_or("absent"),
                satisfied,
                "the guest's own housekeeping runs on its first CPU",
            )
            .applied(satisfied)
            .fix(format!(
                "name a kernel that supports {name}= in {}",
                known.guest.kernel_variable
            )),
        );
    }
    knobs
}

/// Judges the tick of a guest, which must stay on an emulated machine (see
/// `Description::kernel_command_line`).
fn tick_inside(known: &GuestSubject<'_>) -> Setting {
    let line = KernelCommandLine::parse(known.kernel_command_line);
    let present = line.value("nohz");
    let satisfied = present == Some("off");
    Setting::new("guest-tick", "nohz= on the guest's kernel command line",
        "off, and no nohz_full=, on an emulated machine",
        present.unwrap_or("absent"),
        satisfied,
        "the emulated processor may halt with a pending interrupt; the next tick wakes it, and without a tick it never wakes",
    )
    .applied(satisfied)
    .fix(format!(
        "name a kernel that supports nohz= in {}",
        known.guest.kernel_variable
    ))
}
