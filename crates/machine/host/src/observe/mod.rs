// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Observes the processes and settings of a machine at one moment.

mod counters;
mod groups;
mod programs;
#[cfg(test)]
mod tests;
mod threads;

use std::path::PathBuf;

use rampart_model::{
    ActivePlan, Allocation, CacheControl, ChangeTarget, CpuSet, Nanos, Observation, StepKind,
};
use rampart_rules::real_time_cpus;

use crate::facts::allocation;
use crate::facts::processes::running_programs;
use crate::{MachineRoot, StateDirectory, tasks};

pub(crate) use counters::table as interrupt_table;
pub(crate) use groups::isolation;
pub(crate) use threads::TICK;

/// The parts of a machine that an observation reads in detail.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Watch {
    /// CPUs whose threads are read with their affinity.
    pub cpus: CpuSet,
    /// Absolute paths of control groups.
    pub groups: Vec<String>,
    /// Settings whose values are read.
    pub locations: Vec<ChangeTarget>,
    /// Whether the plan has shares of caches.
    pub caches: bool,
    /// The file of the plan. A relative path is not read, because its directory is unknown.
    pub plan_file: Option<String>,
    /// Names of the domains whose programs are searched.
    pub domains: Vec<String>,
    /// The directory with the supervisors' files.
    pub programs: PathBuf,
}

impl Watch {
    /// Returns everything that a plan determines, or only the real-time CPUs without a plan.
    #[must_use]
    pub fn of(plan: Option<&ActivePlan>, root: &MachineRoot, state: &StateDirectory) -> Self {
        let programs = state.path().join("domains");
        let Some(plan) = plan else {
            let online = cpus(root, "sys/devices/system/cpu/online");
            return Self {
                cpus: real_time_cpus(&isolation(root).sources, &online)
                    .map(|found| found.cpus)
                    .unwrap_or_default(),
                programs,
                ..Self::default()
            };
        };
        Self {
            cpus: plan.resolved.real_time.clone(),
            groups: plan
                .domains
                .iter()
                .filter_map(|domain| domain.group.clone())
                .collect(),
            locations: plan
                .changes
                .to_apply()
                .flat_map(|step| &step.locations)
                .map(|location| location.target.clone())
                .collect(),
            caches: plan
                .changes
                .to_apply()
                .any(|step| step.kind == StepKind::Cache),
            plan_file: Some(plan.file.clone()),
            domains: plan
                .domains
                .iter()
                .map(|domain| domain.name.clone())
                .collect(),
            programs,
        }
    }
}

/// Observes a machine. Never fails: what cannot be read is `None` or missing.
#[must_use]
pub fn observe(root: &MachineRoot, watch: &Watch) -> Observation {
    let online = cpus(root, "sys/devices/system/cpu/online");
    let groups: std::collections::BTreeMap<_, _> = watch
        .groups
        .iter()
        .map(|path| (path.clone(), groups::read(root, path)))
        .collect();
    let programs = programs::read(root, watch);
    let mut closely: std::collections::BTreeSet<u32> = groups
        .values()
        .flat_map(|group| group.threads.iter().copied())
        .collect();
    closely.extend(programs.iter().filter_map(|program| program.process));
    // The counters last and together, so that their differences cover one interval.
    let isolation = isolation(root);
    let plan = watch
        .plan_file
        .as_deref()
        .filter(|file| file.starts_with('/'));
    let plan_text = plan.map(|file| text(root, file));
    let values = watch
        .locations
        .iter()
        .filter_map(|target| Some((target.clone(), value(root, target)?)))
        .collect();
    Observation {
        host_name: root.line("proc/sys/kernel/hostname").unwrap_or_default(),
        boot: root.line("proc/sys/kernel/random/boot_id"),
        isolation,
        allocation: watch.caches.then(|| allocation(root)).flatten(),
        plan_gone: matches!(plan_text, Some(Some(None))),
        plan_text: plan_text.flatten().flatten(),
        values,
        groups,
        programs,
        at: now(root),
        interrupts: counters::interrupts(root),
        softirqs: counters::softirqs(root),
        cpus: counters::cpus(root, &online),
        threads: threads::read(root, &watch.cpus, &closely),
        online,
    }
}

fn allocation(root: &MachineRoot) -> Option<Allocation> {
    match allocation::read(root)? {
        CacheControl::Mounted(allocation) => Some(allocation),
        CacheControl::Absent | CacheControl::NotMounted => None,
    }
}

/// Returns the value of a setting of the plan: `None` if it may not be read, `Some(None)` if it does
/// not exist.
fn value(root: &MachineRoot, target: &ChangeTarget) -> Option<Option<String>> {
    match target {
        ChangeTarget::File(path)
        | ChangeTarget::CpuListFile(path)
        | ChangeTarget::CpuMaskFile(path)
        | ChangeTarget::Schemata(path) => {
            let text = text(root, path)?;
            Some(text.map(|text| text.trim().to_owned()))
        }
        ChangeTarget::ThreadPolicy(thread) => Some(threads::policy(root, *thread)),
        ChangeTarget::Service(unit) => {
            let program = unit.strip_suffix(".service").unwrap_or(unit);
            let runs = running_programs(root)?.contains(program);
            Some(Some(if runs { "running" } else { "stopped" }.to_owned()))
        }
        ChangeTarget::ThreadAffinity(thread) => {
            Some(tasks::allowed(root, *thread).map(|cpus| cpus.to_string()))
        }
    }
}

/// Reads the text of a file by its absolute path: `None` if it may not be read, `Some(None)` if it does
/// not exist.
fn text(root: &MachineRoot, path: &str) -> Option<Option<String>> {
    match std::fs::read(root.path(path.trim_start_matches('/'))) {
        Ok(bytes) => Some(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(None),
        Err(_) => None,
    }
}

fn cpus(root: &MachineRoot, file: &str) -> CpuSet {
    // An empty file, and `(null)` of `nohz_full` on a kernel without it, are an empty set.
    root.value(file).unwrap_or_default()
}

/// Returns the time since boot.
fn now(root: &MachineRoot) -> Nanos {
    if root.is_system() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u64::try_from(now.tv_nsec).unwrap_or_default();
        return Nanos::from_secs(seconds) + Nanos(nanos);
    }
    let uptime = root.line("proc/uptime").unwrap_or_default();
    let seconds: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or_default();
    Nanos((seconds * 1e9) as u64)
}
