// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of caches and memory bandwidth: a group of resctrl for each domain with a share
//! (Documentation/filesystems/resctrl.rst). Changes of the default group are journalled; the files of
//! created groups are removed with them.

use std::path::{Path, PathBuf};

use rampart_model::{
    ActivePlan, Allocation, CacheControl, ChangeLocation, ChangeStep, ChangeTarget, CpuSet,
    Finding, Schemata, Severity, StepKind,
};
use rampart_rules::{DividedGroup, cache_requests, cache_share_text, divide};

use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::facts::allocation;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::mounts;
use crate::notation::Notation;

const MOUNT: (&str, &str) = ("find resctrl", "mount resctrl");

/// Divides the caches as the steps request, and stores the chosen ways in the plan.
pub(super) fn share(
    changes: &mut Changes,
    plan: &mut ActivePlan,
    steps: &[ChangeStep],
    progress: &mut dyn FnMut(&ChangeStep),
) -> Result<(), HostError> {
    let is_requested = |name: &str| {
        steps
            .iter()
            .any(|step| step.kind == StepKind::Cache && step.name == name)
    };
    let mut domains = plan.resolved.domains.clone();
    domains.retain(|domain| is_requested(&domain.name));
    let requests = cache_requests(&domains);
    let Some(first) = requests.first() else {
        return Ok(());
    };
    let allocation = mounted(changes, first.domain)?;
    let division = divide(&allocation, &requests).map_err(|refusal| {
        let finding = refusal.finding;
        HostError::Request {
            location: format!("domain `{}`, {}", refusal.domain, finding.location),
            what: finding.what,
            found: finding.found.unwrap_or_default(),
            expected: finding.expected.unwrap_or_default(),
            fix: finding.fix.unwrap_or_default(),
        }
    })?;
    let point = PathBuf::from(&allocation.point);
    // First, so that it is undone last: no other group may have the ways of an exclusive group.
    let rest = shrink_default(changes, &point, &division.rest, first.domain)?;
    for group in &division.groups {
        let step =
            |step: &&mut ChangeStep| step.kind == StepKind::Cache && step.name == group.domain;
        let mut wanted = String::new();
        let mut known = plan.resolved.domains.iter_mut();
        if let Some(domain) = known.find(|domain| domain.name == group.domain) {
            domain.cache_ways.clone_from(&group.ways);
            wanted = cache_share_text(domain);
        }
        let chosen = plan.changes.steps.iter_mut().find(step);
        if let Some(step) = chosen {
            step.wanted = wanted;
            progress(step);
            step.locations = make_group(changes, &point, group)?;
            step.locations.extend(rest.clone());
        }
        plan.findings.extend(group.findings.iter().cloned());
        plan.findings
            .extend(take_exclusively(changes, &point, group)?);
    }
    Ok(())
}

/// Returns the caches and bandwidth that can be divided. Mounts resctrl if it is not mounted.
fn mounted(changes: &mut Changes, domain: &str) -> Result<Allocation, HostError> {
    let kernel = changes.kernel();
    let read = || allocation::read(&&*kernel);
    let present = read();
    if let Some(CacheControl::Mounted(allocation)) = present {
        return Ok(allocation);
    }
    if present == Some(CacheControl::NotMounted) {
        let point = Path::new(allocation::USUAL_POINT);
        let fix = "run `dmesg | grep resctrl`, or remove `cache` from the plan";
        mounts::mount(changes, allocation::KIND, point, MOUNT, fix)?;
        if let Some(CacheControl::Mounted(allocation)) = read() {
            return Ok(allocation);
        }
    }
    Err(HostError::Request {
        location: format!("domain `{domain}`, cache"),
        what: "no share of a cache can be set on this machine".to_owned(),
        found: "no resctrl in /proc/filesystems".to_owned(),
        expected: "resctrl, of a kernel that can divide the processor's caches".to_owned(),
        fix: "leave `cache` out of the plan\nwrite cache-schemata = \"skip\" under [host]"
            .to_owned(),
    })
}

/// Removes the ways of exclusive shares from the default group.
fn shrink_default(
    changes: &mut Changes,
    point: &Path,
    rest: &Schemata,
    domain: &str,
) -> Result<Option<ChangeLocation>, HostError> {
    if rest.0.is_empty() {
        return Ok(None);
    }
    let kernel = changes.kernel();
    let path = point.join("schemata");
    let setting = Setting {
        path: path.clone(),
        value: rest.to_string(),
        notation: Notation::Schemata,
    };
    let before = kernel.read(&path).unwrap_or_default();
    let answer = changes.set(&[setting])?.pop();
    let present = match answer {
        Some(Ok(present)) => present,
        Some(Err(error)) => return Err(refused(&*kernel, point, domain, (&path, rest), &error)),
        None => String::new(),
    };
    verify(domain, &path, rest, &present)?;
    let present = Schemata::parse(&before).about(rest).to_string();
    Ok(Some(change_location(
        &path,
        ChangeTarget::Schemata,
        present,
        rest.to_string(),
    )))
}

/// Creates the group of a domain; sets its ways before its CPUs.
fn make_group(
    changes: &mut Changes,
    point: &Path,
    group: &DividedGroup,
) -> Result<Vec<ChangeLocation>, HostError> {
    let kernel = changes.kernel();
    let path = point.join(&group.name);
    changes.prepare(vec![Change::CacheGroup { path: path.clone() }])?;
    changes.step()?;
    kernel.make_directory(&path).map_err(|cause| {
        let fix = "remove an unused group of resctrl, or leave `cache` out of the plan";
        HostError::file("create the resctrl group", &path, cause, fix)
    })?;
    let mut locations = Vec::new();
    if !group.schemata.0.is_empty() {
        let file = path.join("schemata");
        changes.step()?;
        kernel
            .write(&file, &group.schemata.to_string())
            .map_err(|error| {
                refused(
                    &*kernel,
                    point,
                    &group.domain,
                    (&file, &group.schemata),
                    &error,
                )
            })?;
        let present = kernel.read(&file).unwrap_or_default();
        verify(&group.domain, &file, &group.schemata, &present)?;
        let value = group.schemata.to_string();
        locations.push(change_location(
            &file,
            ChangeTarget::Schemata,
            "the default group's".to_owned(),
            value,
        ));
    }
    let file = path.join("cpus_list");
    changes.step()?;
    let answer = kernel
        .write(&file, &group.cpus.to_string())
        .and_then(|()| kernel.read(&file));
    match answer {
        Ok(present) if present.trim().parse::<CpuSet>().ok().as_ref() == Some(&group.cpus) => {}
        Ok(present) => {
            return Err(different_value(
                &group.domain,
                &file,
                &present,
                &group.cpus.to_string(),
            ));
        }
        Err(error) => {
            return Err(refused(
                &*kernel,
                point,
                &group.domain,
                (&file, &group.cpus),
                &error,
            ));
        }
    }
    changes.step()?;
    locations.push(change_location(
        &file,
        ChangeTarget::CpuListFile,
        "the default group's".to_owned(),
        group.cpus.to_string(),
    ));
    Ok(locations)
}

/// Sets a group's mode so that the kernel lets no other group have its ways. If the kernel refuses,
/// the ways are exclusive only until another group is changed.
fn take_exclusively(
    changes: &Changes,
    point: &Path,
    group: &DividedGroup,
) -> Result<Option<Finding>, HostError> {
    if !group.exclusive_mode {
        return Ok(None);
    }
    let kernel = changes.kernel();
    let file = point.join(&group.name).join("mode");
    changes.step()?;
    let answer = kernel.write(&file, "exclusive");
    changes.step()?;
    let Err(error) = answer else {
        return Ok(None);
    };
    Ok(Some(
        Finding::new(
            Severity::Note,
            file.display().to_string(),
            format!(
                "the kernel does not reserve the ways of `{}` for its group: {error}{}",
                group.domain,
                last_status(&*kernel, point)
            ),
        )
        .values("shareable", "exclusive")
        .fix("create no other group with the same ways; `rampart status` reports one"),
    ))
}

fn change_location(
    path: &Path,
    target: fn(String) -> ChangeTarget,
    present: String,
    value: String,
) -> ChangeLocation {
    let path = path.display().to_string();
    ChangeLocation {
        target: target(path.clone()),
        location: path,
        present,
        value,
    }
}

fn verify(domain: &str, path: &Path, wanted: &Schemata, present: &str) -> Result<(), HostError> {
    let present = Schemata::parse(present).about(wanted);
    if present == *wanted {
        return Ok(());
    }
    let (present, wanted) = (present.to_string(), wanted.to_string());
    Err(different_value(domain, path, &present, &wanted))
}

fn different_value(domain: &str, path: &Path, present: &str, wanted: &str) -> HostError {
    HostError::Step {
        step: format!("cache of {domain}"),
        what: format!(
            "{}: the kernel changed {} to {}",
            path.display(),
            wanted.replace('\n', " "),
            present.trim().replace('\n', " ")
        ),
        fix: WITHOUT_CACHE.to_owned(),
    }
}

const WITHOUT_CACHE: &str =
    "leave `cache` out of the plan\nwrite cache-schemata = \"skip\" under [host]";

fn refused(
    kernel: &dyn Kernel,
    point: &Path,
    domain: &str,
    (path, value): (&Path, &dyn std::fmt::Display),
    error: &std::io::Error,
) -> HostError {
    HostError::Step {
        step: format!("cache of {domain}"),
        what: format!(
            "{}: the kernel refuses {}: {error}{}",
            path.display(),
            value.to_string().replace('\n', " "),
            last_status(kernel, point)
        ),
        fix: WITHOUT_CACHE.to_owned(),
    }
}

/// Returns resctrl's status of the last write after a colon, or an empty text if it is `ok`.
fn last_status(kernel: &dyn Kernel, point: &Path) -> String {
    let status = kernel.read(&point.join("info/last_cmd_status"));
    match status.as_deref().map(str::trim) {
        Ok("" | "ok") | Err(_) => String::new(),
        Ok(text) => format!(": {text}"),
    }
}
