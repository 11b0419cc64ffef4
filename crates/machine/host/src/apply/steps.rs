// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One knob: recorded, written, read back.

use std::io;
use std::path::Path;

use rampart_model::{ChangePlace, ChangeStep, ChangeTarget, CpuSet, Finding, Severity};

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
    step.places.iter().any(|place| match &place.target {
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
    for place in &step.places {
        match &place.target {
            ChangeTarget::ThreadPolicy(thread) => {
                findings.extend(set_policy(changes, step, place, *thread)?);
            }
            ChangeTarget::ThreadAffinity(thread) => {
                findings.extend(set_affinity(changes, step, place, *thread)?);
            }
            ChangeTarget::Service(unit) => findings.extend(stop(changes, place, unit)?),
            ChangeTarget::File(path) if is_huge_pages(path) => {
                reserve(changes, step, path, place)?;
            }
            ChangeTarget::File(path) => settings.push((place, file(changes, path, place))),
            ChangeTarget::Schemata(path) => settings.push((
                place,
                Setting {
                    notation: Notation::Schemata,
                    ..Setting::text(path, place.value.clone())
                },
            )),
            ChangeTarget::CpuListFile(path) => {
                settings.push((place, cpus(step, path, place, Notation::List)?));
            }
            ChangeTarget::CpuMaskFile(path) => {
                settings.push((place, cpus(step, path, place, Notation::Mask)?));
            }
        }
    }
    let (places, settings): (Vec<&ChangePlace>, Vec<Setting>) = settings.into_iter().unzip();
    let answers = changes.set(&settings)?;
    for ((place, setting), answer) in places.into_iter().zip(&settings).zip(answers) {
        match answer {
            Ok(present) if reads_as(setting, &present) => {}
            Ok(present) => {
                let what = format!(
                    "{}: the kernel took {} and made it {present}",
                    place.place, setting.value
                );
                return Err(not_granted(step, what));
            }
            Err(error) => {
                let what = format!(
                    "{}: the kernel refuses {}: {error}",
                    place.place, setting.value
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
    place: &ChangePlace,
) -> Result<(), HostError> {
    let setting = Setting {
        notation: Notation::Pages,
        ..Setting::text(path, place.value.clone())
    };
    let wanted: u64 = place
        .value
        .parse()
        .map_err(|_| not_granted(step, format!("{path}: `{}` is no number", place.value)))?;
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
        place: path.to_owned(),
        what: "the kernel does not find so much memory in pieces of this size; all that was changed before is taken back".to_owned(),
        present: given.map_or_else(|| "no number".to_owned(), |given| format!("{given} pages")),
        needed: format!("{wanted}"),
        mend: format!(
            "free memory on that node (echo 1 > /proc/sys/vm/compact_memory after ending what uses it), apply the plan early after the start, give the guests less memory, or write `{} = \"skip\"` under [host]; pages of 1 GiB come with `rampart apply --boot`",
            step.name
        ),
    })
}

fn stop(
    changes: &mut Changes,
    place: &ChangePlace,
    unit: &str,
) -> Result<Option<Finding>, HostError> {
    if systemd::stop_service(changes, unit)? {
        return Ok(None);
    }
    Ok(Some(
        Finding::new(
            Severity::Warning,
            place.place.clone(),
            "it runs, and no service of systemd started it, so it was left",
        )
        .values("running", "stopped")
        .mend("stop it by the means that started it"),
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
        mend: format!("write `{} = \"skip\"` under [host] of the plan", step.name),
    }
}

fn file(changes: &Changes, path: &str, place: &ChangePlace) -> Setting {
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
        ..Setting::text(path, place.value.clone())
    }
}

fn cpus(
    step: &ChangeStep,
    path: &str,
    place: &ChangePlace,
    notation: Notation,
) -> Result<Setting, HostError> {
    Ok(Setting::cpus(path, &set_of(step, place)?, notation))
}

fn set_of(step: &ChangeStep, place: &ChangePlace) -> Result<CpuSet, HostError> {
    place.value.parse().map_err(|_| {
        not_granted(
            step,
            format!("{}: `{}` are no CPUs", place.place, place.value),
        )
    })
}

fn set_policy(
    changes: &mut Changes,
    step: &ChangeStep,
    place: &ChangePlace,
    thread: u32,
) -> Result<Option<Finding>, HostError> {
    let kernel = changes.kernel();
    let Ok(policy) = place.value.parse() else {
        let what = format!("{}: `{}` is no policy", place.place, place.value);
        return Err(not_granted(step, what));
    };
    let Some(task) = recorded(&*kernel, thread) else {
        return Ok(Some(gone(place)));
    };
    let answer = changes.set_policy(task, policy)?;
    let present = answer.and_then(|()| kernel.attributes(thread));
    match present {
        Ok(present) if present.policy() == policy => Ok(None),
        Ok(present) => {
            let what = format!(
                "{}: the kernel took {policy} and made it {}",
                place.place,
                present.policy()
            );
            Err(not_granted(step, what))
        }
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(place))),
        Err(error) => {
            let what = format!("{}: the kernel refuses {policy}: {error}", place.place);
            Err(not_granted(step, what))
        }
    }
}

fn set_affinity(
    changes: &mut Changes,
    step: &ChangeStep,
    place: &ChangePlace,
    thread: u32,
) -> Result<Option<Finding>, HostError> {
    let kernel = changes.kernel();
    let cpus = set_of(step, place)?;
    let stays = |why: &str| stays(place, &cpus, why);
    let Some(task) = recorded(&*kernel, thread) else {
        return Ok(Some(gone(place)));
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
        Err(error) if groups::is_gone(&error) => Ok(Some(gone(place))),
        // Threads of the kernel come and go, and some are bound after they were listed.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Ok(Some(stays(&error.to_string())))
        }
        Err(error) => {
            let what = format!(
                "{}: the kernel refuses {}: {error}",
                place.place,
                cpus.named()
            );
            Err(not_granted(step, what))
        }
    }
}

fn gone(place: &ChangePlace) -> Finding {
    Finding::new(
        Severity::Note,
        place.place.clone(),
        "it ended before it could be changed",
    )
}

fn stays(place: &ChangePlace, wanted: &CpuSet, why: &str) -> Finding {
    let present = place.present.parse::<CpuSet>();
    let present = present.map_or_else(|_| place.present.clone(), |cpus| cpus.named().to_string());
    Finding::new(
        Severity::Note,
        place.place.clone(),
        format!("the kernel leaves it where it is: {why}"),
    )
    .values(present, wanted.named().to_string())
    .mend("isolate the CPUs on the boot line: `rampart apply --boot`")
}
