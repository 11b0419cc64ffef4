// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps interrupts and unbound workqueues off the shielded CPUs, and timers of these CPUs on them
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

/// The interrupts and workqueues kept away, and findings about the others.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) interrupts: Vec<InterruptMove>,
    pub(crate) workqueues: Option<CpuSet>,
    pub(crate) findings: Vec<Finding>,
}

/// Moves interrupts and workqueues. All old values reach the disk together.
pub(crate) fn keep_away(
    changes: &mut Changes,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
    request: &KeptAway,
) -> Result<Kept, HostError> {
    let kernel = changes.kernel();
    let mut kept = Kept::default();
    let away =
        |path: PathBuf, notation: Notation| away(&*kernel, path, notation, (cpus, housekeeping));

    let mut settings = Vec::new();
    if !request.leave_timers {
        settings.extend(keep_timers(&*kernel, cpus));
    }
    let workqueues = Path::new(WORKQUEUES);
    let global = workqueues.join("cpumask");
    if !request.leave_workqueues {
        settings.extend(away(global.clone(), Notation::Mask));
    }
    if !request.leave_workqueue_masks {
        for name in kernel.names(workqueues) {
            settings.extend(away(workqueues.join(name).join("cpumask"), Notation::Mask));
        }
    }
    if !request.leave_default_interrupts {
        let default = Path::new(INTERRUPTS).join("default_smp_affinity");
        settings.extend(away(default, Notation::Mask));
    }
    let requested = match request.leave_interrupts {
        true => Vec::new(),
        false => requested_interrupts(&*kernel),
    };
    let first_interrupt = settings.len();
    let mut interrupts = Vec::new();
    for (number, name) in requested {
        let path = Path::new(INTERRUPTS)
            .join(number.to_string())
            .join("smp_affinity_list");
        let owner = request.owned.get(&number);
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
            Ok(_) if leaves => pending_move(&*kernel, interrupt, cpus),
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

/// Returns the setting that keeps timers on the CPUs. The kernel arms the timer of a thread that
/// sleeps on a `nohz_full` CPU on a housekeeping CPU (`get_nohz_timer_target` in
/// kernel/sched/core.c), so a delay there delays the thread; without timer migration it does not.
fn keep_timers(kernel: &dyn Kernel, cpus: &CpuSet) -> Option<Setting> {
    let tickless = Notation::List.cpus(&kernel.read(Path::new(TICKLESS)).ok()?)?;
    (!tickless.intersection(cpus).is_empty()).then(|| Setting::text(TIMER_MIGRATION, "0"))
}

/// Returns the setting that removes the shielded CPUs from a file, or `None` if it has none of them.
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

/// Returns the interrupts that drivers have requested: each name of such an interrupt is a directory.
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

/// Returns why an interrupt is still on the CPUs: a move may take effect with its next arrival.
fn pending_move(kernel: &dyn Kernel, interrupt: u32, cpus: &CpuSet) -> Option<String> {
    let path = Path::new(INTERRUPTS)
        .join(interrupt.to_string())
        .join("effective_affinity_list");
    let effective = Notation::List.cpus(&kernel.read(&path).ok()?)?;
    (!effective.intersection(cpus).is_empty()).then(|| {
        let named = effective.named();
        format!("it is still on {named} and moves when it next arrives")
    })
}

fn refusal(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::IO | Errno::PERM) => {
            format!("the interrupt belongs to a CPU or the kernel manages its affinity ({error})")
        }
        Some(Errno::NOSPC) => {
            format!("the housekeeping CPUs have no free interrupt vector ({error})")
        }
        _ => error.to_string(),
    }
}
