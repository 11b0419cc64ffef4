// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps interrupts and unbound workqueues off the shielded CPUs, and their timers on them
//! (Documentation/core-api/irq/irq-affinity.rst, Documentation/core-api/workqueue.rst,
//! Documentation/admin-guide/sysctl/kernel.rst).

use std::io;
use std::path::{Path, PathBuf};

use rampart_model::{CpuSet, Finding, InterruptMove, Severity};
use rustix::io::Errno;

use super::KeptAway;
use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::kernel::Kernel;
use crate::notation::Notation;

const INTERRUPTS: &str = "/proc/irq";
const WORKQUEUES: &str = "/sys/devices/virtual/workqueue";
const TICKLESS: &str = "/sys/devices/system/cpu/nohz_full";
const TIMER_MIGRATION: &str = "/proc/sys/kernel/timer_migration";

/// What was reached.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) interrupts: Vec<InterruptMove>,
    pub(crate) workqueues: Option<CpuSet>,
    pub(crate) findings: Vec<Finding>,
}

/// Moves what can be moved. The old values of all of it reach the disk together.
pub(crate) fn keep_away(
    changes: &mut Changes,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    wish: &KeptAway,
) -> Result<Kept, HostError> {
    let kernel = changes.kernel();
    let mut kept = Kept::default();
    let away =
        |path: PathBuf, notation: Notation| away(&*kernel, path, notation, (cpus, housekeeping));

    let mut settings = Vec::new();
    if !wish.leave_timers {
        settings.extend(timers_stay(&*kernel, cpus));
    }
    let workqueues = Path::new(WORKQUEUES);
    let global = workqueues.join("cpumask");
    if !wish.leave_workqueues {
        settings.extend(away(global.clone(), Notation::Mask));
    }
    if !wish.leave_workqueue_masks {
        for name in kernel.names(workqueues) {
            settings.extend(away(workqueues.join(name).join("cpumask"), Notation::Mask));
        }
    }
    if !wish.leave_default_interrupts {
        let default = Path::new(INTERRUPTS).join("default_smp_affinity");
        settings.extend(away(default, Notation::Mask));
    }
    let requested = match wish.leave_interrupts {
        true => Vec::new(),
        false => requested_interrupts(&*kernel),
    };
    let first_interrupt = settings.len();
    let mut interrupts = Vec::new();
    for (number, name) in requested {
        let path = Path::new(INTERRUPTS)
            .join(number.to_string())
            .join("smp_affinity_list");
        let owner = wish.owned.get(&number);
        let setting = match owner {
            Some(owner) => Some(Setting::cpus(path, owner, Notation::List)),
            None => away(path, Notation::List),
        };
        if let Some(setting) = setting {
            settings.push(setting);
            interrupts.push((number, name, owner.is_none()));
        }
    }

    let mut answers = changes.set(&settings)?;
    let interrupt_answers = answers.split_off(first_interrupt);
    for (setting, answer) in settings.iter().zip(&answers) {
        if let Err(error) = answer {
            kept.findings.push(
                Finding::new(
                    Severity::Warning,
                    setting.path.display().to_string(),
                    format!("the kernel refuses to keep it off the shielded CPUs: {error}"),
                )
                .fix(format!(
                    "echo {} > {}",
                    setting.value,
                    setting.path.display()
                )),
            );
        }
    }
    kept.workqueues = kernel
        .read(&global)
        .ok()
        .and_then(|text| Notation::Mask.cpus(&text))
        .filter(|named| named.intersection(cpus).is_empty());
    for ((interrupt, name, leaves), answer) in interrupts.into_iter().zip(interrupt_answers) {
        let reason = match answer {
            Ok(_) if leaves => still_there(&*kernel, interrupt, cpus),
            Ok(_) => None,
            Err(error) => Some(refusal(&error)),
        };
        kept.interrupts.push(InterruptMove {
            interrupt,
            name,
            moved: reason.is_none(),
            reason,
        });
    }
    Ok(kept)
}

/// A thread that sleeps on a `nohz_full` CPU has its timer armed on a housekeeping CPU
/// (`get_nohz_timer_target` in kernel/sched/core.c), so that whatever holds up that one holds up
/// the thread: a wall that leaks by the kernel's own doing. Without migration timers stay.
fn timers_stay(kernel: &dyn Kernel, cpus: &CpuSet) -> Option<Setting> {
    let tickless = Notation::List.cpus(&kernel.read(Path::new(TICKLESS)).ok()?)?;
    (!tickless.intersection(cpus).is_empty()).then(|| Setting::text(TIMER_MIGRATION, "0"))
}

/// The setting that takes the shielded CPUs from a file; none where it does not name them.
fn away(
    kernel: &dyn Kernel,
    path: PathBuf,
    notation: Notation,
    (cpus, housekeeping): (&CpuSet, &CpuSet),
) -> Option<Setting> {
    let present = notation.cpus(&kernel.read(&path).ok()?)?;
    if present.intersection(cpus).is_empty() {
        return None;
    }
    let kept = present.intersection(housekeeping);
    let kept = if kept.is_empty() { housekeeping } else { &kept };
    Some(Setting::cpus(path, kept, notation))
}

/// Interrupts that a driver asked for: each of its names is a directory beside the files.
fn requested_interrupts(kernel: &dyn Kernel) -> Vec<(u32, String)> {
    let mut found: Vec<(u32, String)> = kernel
        .names(Path::new(INTERRUPTS))
        .iter()
        .filter_map(|name| name.parse().ok())
        .filter_map(|number: u32| {
            let directory = Path::new(INTERRUPTS).join(number.to_string());
            let names: Vec<String> = kernel
                .names(&directory)
                .into_iter()
                .filter(|name| kernel.is_directory(&directory.join(name)))
                .collect();
            (!names.is_empty()).then(|| (number, names.join(", ")))
        })
        .collect();
    found.sort();
    found
}

/// A move may wait for the interrupt's next arrival.
fn still_there(kernel: &dyn Kernel, interrupt: u32, cpus: &CpuSet) -> Option<String> {
    let path = Path::new(INTERRUPTS)
        .join(interrupt.to_string())
        .join("effective_affinity_list");
    let effective = Notation::List.cpus(&kernel.read(&path).ok()?)?;
    (!effective.intersection(cpus).is_empty()).then(|| {
        let named = effective.named();
        format!("it still arrives at {named} and moves with its next arrival")
    })
}

fn refusal(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::IO | Errno::PERM) => format!(
            "the kernel does not let it be moved, as it belongs to a CPU or is managed by the kernel ({error})"
        ),
        Some(Errno::NOSPC) => {
            format!("the housekeeping CPUs have no interrupt vector left ({error})")
        }
        _ => error.to_string(),
    }
}
