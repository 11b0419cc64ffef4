// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Applies the step of a knob: records, writes and reads back its values.

use std::io;
use std::path::Path;

use rampart_model::{ChangeLocation, ChangeStep, ChangeTarget, CpuSet, Finding, Severity};

use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::groups;
use crate::notation::Notation;
use crate::shield::recorded;
use crate::systemd;

/// Returns whether a step is applied before the isolation:
///
/// - A CPU that goes offline changes the CPUs of groups and interrupts.
/// - The affinity of an isolated thread is what isolation left it; recorded then, it would be kept
///   after the isolation has been lowered.
/// - Huge pages may not be available, and reserving them migrates memory.
/// - A service that works against the plan would move what isolation moves, at both ends.
pub(super) fn is_before_isolation(step: &ChangeStep) -> bool {
    step.locations
        .iter()
        .any(|location| match &location.target {
            ChangeTarget::File(path) => {
                (path.starts_with("/sys/devices/system/cpu/cpu") && path.ends_with("/online"))
                    || is_huge_pages(path)
            }
            ChangeTarget::ThreadAffinity(_) | ChangeTarget::Service(_) => true,
            _ => false,
        })
}

/// Applies a step. Returns a finding for each deviation that is no reason to stop.
pub(super) fn make(changes: &mut Changes, step: &ChangeStep) -> Result<Vec<Finding>, HostError> {
    let mut findings = Vec::new();
    let mut settings = Vec::new();
    for location in &step.locations {
        match &location.target {
            ChangeTarget::ThreadPolicy(thread) => {
                findings.extend(set_policy(changes, step, location, *thread)?);
            }
            ChangeTarget::ThreadAffinity(thread) => {
                findings.extend(set_affinity(changes, step, location, *thread)?);
            }
            ChangeTarget::Service(unit) => findings.extend(stop(changes, location, unit)?),
            ChangeTarget::File(path) if is_huge_pages(path) => {
                reserve(changes, step, path, location)?;
            }
            ChangeTarget::File(path) => settings.push((location, file(changes, path, location))),
            ChangeTarget::Schemata(path) => settings.push((
                location,
                Setting {
                    notation: Notation::Schemata,
                    ..Setting::text(path, location.value.clone())
                },
            )),
            ChangeTarget::CpuListFile(path) => {
                settings.push((location, cpus(step, path, location, Notation::List)?));
            }
            ChangeTarget::CpuMaskFile(path) => {
                settings.push((location, cpus(step, path, location, Notation::Mask)?));
            }
        }
    }
    let (locations, settings): (Vec<&ChangeLocation>, Vec<Setting>) = settings.into_iter().unzip();
    let answers = changes.set(&settings)?;
    for ((location, setting), answer) in locations.into_iter().zip(&settings).zip(answers) {
        match answer {
            Ok(present) if reads_as(setting, &present) => {}
            Ok(present) => {
                let what = format!(
                    "{}: the kernel changed {} to {present}",
                    location.location, setting.value
                );
                return Err(refused(step, what));
            }
            Err(error) => {
                let what = format!(
                    "{}: the kernel refuses {}: {error}",
                    location.location, setting.value
                );
                return Err(refused(step, what));
            }
        }
    }
    Ok(findings)
}

fn is_huge_pages(path: &str) -> bool {
    path.ends_with("/nr_hugepages")
}

/// Number of times that the same number of huge pages is requested, while the kernel finds more.
const RESERVE_ATTEMPTS: usize = 4;

/// Reserves huge pages. The kernel reserves as many as it finds contiguous memory for, without an
/// error if that is fewer, and may find more on a further request
/// (Documentation/admin-guide/mm/hugetlbpage.rst).
fn reserve(
    changes: &mut Changes,
    step: &ChangeStep,
    path: &str,
    location: &ChangeLocation,
) -> Result<(), HostError> {
    let setting = Setting {
        notation: Notation::Pages,
        ..Setting::text(path, location.value.clone())
    };
    let wanted: u64 = location.value.parse().map_err(|_| {
        refused(
            step,
            format!("{path}: `{}` is not a number", location.value),
        )
    })?;
    let mut reserved = None;
    for _ in 0..RESERVE_ATTEMPTS {
        let answer = changes.set(std::slice::from_ref(&setting))?.pop();
        let present = match answer {
            Some(Ok(present)) => present,
            Some(Err(error)) => {
                let what = format!("{path}: the kernel refuses {wanted}: {error}");
                return Err(refused(step, what));
            }
            None => String::new(),
        };
        let now = present.parse::<u64>().ok();
        if now == Some(wanted) {
            return Ok(());
        }
        if now <= reserved {
            break;
        }
        reserved = now;
    }
    Err(HostError::Request {
        location: path.to_owned(),
        what: "the kernel does not find enough contiguous memory for pages of this size; all earlier changes were undone".to_owned(),
        found: reserved.map_or_else(|| "no number".to_owned(), |pages| format!("{pages} pages")),
        expected: format!("{wanted}"),
        fix: format!(
            "end programs on that node and run `echo 1 > /proc/sys/vm/compact_memory`\napply the plan early after the start\ngive the guests less memory\nrampart apply --boot (pages of 1 GiB)\nwrite `{} = \"skip\"` under [host]",
            step.name
        ),
    })
}

fn stop(
    changes: &mut Changes,
    location: &ChangeLocation,
    unit: &str,
) -> Result<Option<Finding>, HostError> {
    if systemd::stop_service(changes, unit)? {
        return Ok(None);
    }
    Ok(Some(
        Finding::new(
            Severity::Warning,
            location.location.clone(),
            "it was not stopped, because no systemd service started it",
        )
        .values("running", "stopped")
        .fix("stop it with the program that started it"),
    ))
}

/// Returns whether a file has the setting's value. Of a file with several numbers only the first is
/// written (`kernel.printk`).
fn reads_as(setting: &Setting, present: &str) -> bool {
    setting.notation.same(present, &setting.value)
        || (setting.notation == Notation::Text
            && present.split_whitespace().next() == Some(setting.value.as_str()))
}

fn refused(step: &ChangeStep, what: String) -> HostError {
    HostError::Step {
        step: step.name.clone(),
        what,
        fix: format!("write `{} = \"skip\"` under [host] of the plan", step.name),
    }
}

fn file(changes: &Changes, path: &str, location: &ChangeLocation) -> Setting {
    let marked = changes
        .kernel()
        .read(Path::new(path))
        .is_ok_and(|present| present.contains('[') && present.contains(']'));
    Setting {
        notation: if marked {
            Notation::Marked
        } else {
            Notation::Text
        },
        ..Setting::text(path, location.value.clone())
    }
}

fn cpus(
    step: &ChangeStep,
    path: &str,
    location: &ChangeLocation,
    notation: Notation,
) -> Result<Setting, HostError> {
    Ok(Setting::cpus(path, &set_of(step, location)?, notation))
}

fn set_of(step: &ChangeStep, location: &ChangeLocation) -> Result<CpuSet, HostError> {
    location.value.parse().map_err(|_| {
        let what = format!(
            "{}: `{}` is not a list of CPUs",
            location.location, location.value
        );
        refused(step, what)
    })
}

fn set_policy(
    changes: &mut Changes,
    step: &ChangeStep,
    location: &ChangeLocation,
    thread: u32,
) -> Result<Option<Finding>, HostError> {
    let kernel = changes.kernel();
    let Ok(policy) = location.value.parse() else {
        let what = format!(
            "{}: `{}` is not a scheduling policy",
            location.location, location.value
        );
        return Err(refused(step, what));
    };
    let Some(task) = recorded(&*kernel, thread) else {
        return Ok(Some(gone(location)));
    };
    let answer = changes.set_policy(task, policy)?;
    let present = answer.and_then(|()| kernel.attributes(thread));
    match present {
        Ok(present) if present.policy() == policy => Ok(None),
        Ok(present) => {
            let what = format!(
                "{}: the kernel changed {policy} to {}",
                location.location,
                present.policy()
            );
            Err(refused(step, what))
        }
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(location))),
        Err(error) => {
            let what = format!(
                "{}: the kernel refuses {policy}: {error}",
                location.location
            );
            Err(refused(step, what))
        }
    }
}

fn set_affinity(
    changes: &mut Changes,
    step: &ChangeStep,
    location: &ChangeLocation,
    thread: u32,
) -> Result<Option<Finding>, HostError> {
    let kernel = changes.kernel();
    let cpus = set_of(step, location)?;
    let not_moved = |why: &str| not_moved(location, &cpus, why);
    let Some(task) = recorded(&*kernel, thread) else {
        return Ok(Some(gone(location)));
    };
    if task.affinity == cpus {
        return Ok(None);
    }
    let answer = changes
        .set_affinities(vec![(task, cpus.clone())])?
        .pop()
        .unwrap_or(Ok(()));
    match answer.and_then(|()| kernel.affinity(thread)) {
        Ok(present) if present == cpus => Ok(None),
        Ok(present) => Ok(Some(not_moved(&format!("it is on {}", present.named())))),
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(location))),
        // Some kernel threads are bound to a CPU after they were listed.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok(Some(not_moved(&error.to_string())))
        }
        Err(error) => {
            let what = format!(
                "{}: the kernel refuses {}: {error}",
                location.location,
                cpus.named()
            );
            Err(refused(step, what))
        }
    }
}

fn gone(location: &ChangeLocation) -> Finding {
    Finding::new(
        Severity::Note,
        location.location.clone(),
        "the thread ended before it could be changed",
    )
}

fn not_moved(location: &ChangeLocation, wanted: &CpuSet, why: &str) -> Finding {
    let present = location.present.parse::<CpuSet>();
    let present = present.map_or_else(
        |_| location.present.clone(),
        |cpus| cpus.named().to_string(),
    );
    Finding::new(
        Severity::Note,
        location.location.clone(),
        format!("the kernel did not move the thread: {why}"),
    )
    .values(present, wanted.named().to_string())
    .fix("isolate the CPUs on the kernel command line: `rampart apply --boot`")
}
