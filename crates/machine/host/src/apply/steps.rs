// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One knob: recorded, written, read back.

use std::io;
use std::path::Path;

use rampart_model::{ChangeLocation, ChangeStep, ChangeTarget, CpuSet, Finding, Severity};

use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::groups;
use crate::notation::Notation;
use crate::shield::recorded;
use crate::systemd;

/// Whether a step is made before the walls are raised. A CPU that is taken away rewrites the CPUs
/// of groups and interrupts. A thread that is behind a wall already has what the wall left it for
/// its affinity, and giving that back later would keep it there when the wall is gone. Huge pages
/// may not be had, and memory is moved for them: better before a wall than behind it. A service that
/// works against the plan would move meanwhile what the walls move, and again before they are down.
pub(super) fn comes_before_walls(step: &ChangeStep) -> bool {
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

/// Makes a step, and answers what did not come out as asked without being a reason to stop.
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
                    "{}: the kernel took {} and made it {present}",
                    location.location, setting.value
                );
                return Err(not_granted(step, what));
            }
            Err(error) => {
                let what = format!(
                    "{}: the kernel refuses {}: {error}",
                    location.location, setting.value
                );
                return Err(not_granted(step, what));
            }
        }
    }
    Ok(findings)
}

fn is_huge_pages(path: &str) -> bool {
    path.ends_with("/nr_hugepages")
}

/// How often the kernel is asked again for the rest of the huge pages, while it finds more.
const ASKED_AGAIN: usize = 4;

/// Reserves huge pages. The kernel gives as many as it finds memory in one piece for, says nothing
/// where that is fewer, and may find more when it is asked again
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
    let wanted: u64 = location
        .value
        .parse()
        .map_err(|_| not_granted(step, format!("{path}: `{}` is no number", location.value)))?;
    let mut given = None;
    for _ in 0..ASKED_AGAIN {
        let answer = changes.set(std::slice::from_ref(&setting))?.pop();
        let present = match answer {
            Some(Ok(present)) => present,
            Some(Err(error)) => {
                let what = format!("{path}: the kernel refuses {wanted}: {error}");
                return Err(not_granted(step, what));
            }
            None => String::new(),
        };
        let now = present.parse::<u64>().ok();
        if now == Some(wanted) {
            return Ok(());
        }
        if now <= given {
            break;
        }
        given = now;
    }
    Err(HostError::Request {
        location: path.to_owned(),
        what: "the kernel does not find enough contiguous memory for pages of this size; all earlier changes were undone".to_owned(),
        present: given.map_or_else(|| "no number".to_owned(), |given| format!("{given} pages")),
        needed: format!("{wanted}"),
        fix: format!(
            "free memory on that node (echo 1 > /proc/sys/vm/compact_memory after ending what uses it), apply the plan early after the start, give the guests less memory, or write `{} = \"skip\"` under [host]; pages of 1 GiB come with `rampart apply --boot`",
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
            "it runs and was not started by a systemd service, so it was not stopped",
        )
        .values("running", "stopped")
        .fix("stop it by the means that started it"),
    ))
}

/// Some files hold several numbers, of which the first is the one that is written
/// (`kernel.printk`).
fn reads_as(setting: &Setting, present: &str) -> bool {
    setting.notation.same(present, &setting.value)
        || (setting.notation == Notation::Text
            && present.split_whitespace().next() == Some(setting.value.as_str()))
}

fn not_granted(step: &ChangeStep, what: String) -> HostError {
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
        not_granted(
            step,
            format!("{}: `{}` are no CPUs", location.location, location.value),
        )
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
        let what = format!("{}: `{}` is no policy", location.location, location.value);
        return Err(not_granted(step, what));
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
                "{}: the kernel took {policy} and made it {}",
                location.location,
                present.policy()
            );
            Err(not_granted(step, what))
        }
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(location))),
        Err(error) => {
            let what = format!(
                "{}: the kernel refuses {policy}: {error}",
                location.location
            );
            Err(not_granted(step, what))
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
    let stays = |why: &str| stays(location, &cpus, why);
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
        Ok(present) => Ok(Some(stays(&format!("it is on {}", present.named())))),
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(location))),
        // Threads of the kernel come and go, and some are bound after they were listed.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok(Some(stays(&error.to_string())))
        }
        Err(error) => {
            let what = format!(
                "{}: the kernel refuses {}: {error}",
                location.location,
                cpus.named()
            );
            Err(not_granted(step, what))
        }
    }
}

fn gone(location: &ChangeLocation) -> Finding {
    Finding::new(
        Severity::Note,
        location.location.clone(),
        "it ended before it could be changed",
    )
}

fn stays(location: &ChangeLocation, wanted: &CpuSet, why: &str) -> Finding {
    let present = location.present.parse::<CpuSet>();
    let present = present.map_or_else(
        |_| location.present.clone(),
        |cpus| cpus.named().to_string(),
    );
    Finding::new(
        Severity::Note,
        location.location.clone(),
        format!("the kernel leaves it where it is: {why}"),
    )
    .values(present, wanted.named().to_string())
    .fix("isolate the CPUs on the kernel command line: `rampart apply --boot`")
}
