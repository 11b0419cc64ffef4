// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about cpusets of control groups, at any depth (Documentation/admin-guide/cgroup-v2.rst, Cpuset).

use rampart_model::{CheckLocation, CpuSet};

use super::{Judgement, deviations};
use crate::{Isolation, Reading, Readings};

/// Files with the effective CPUs of a group, in v2, in a hybrid layout and in v1.
const EFFECTIVE: [&str; 3] = [
    "/sys/fs/cgroup/{groups}/cpuset.cpus.effective",
    "/sys/fs/cgroup/unified/{groups}/cpuset.cpus.effective",
    "/sys/fs/cgroup/cpuset/{groups}/cpuset.effective_cpus",
];

/// Slices of systemd with rules of their own, which cover all groups below: `system-slice-cpus`, `user-slice-cpus`.
const WITH_OWN_RULES: [&str; 2] = ["system.slice", "user.slice"];

/// Endings of units that run no program for longer than a moment.
const WITHOUT_PROGRAMS: [&str; 4] = [".mount", ".automount", ".swap", ".socket"];

/// Endings of units whose CPUs systemd sets.
const UNITS: [&str; 3] = [".slice", ".scope", ".service"];

/// A control group and the CPUs that its programs may use.
struct Group<'a> {
    /// Its path below the root of the hierarchy.
    path: &'a str,
    /// The file with its CPUs.
    file: &'a str,
    cpus: CpuSet,
}

impl Group<'_> {
    fn is_below(&self, other: &Group<'_>) -> bool {
        let rest = self.path.strip_prefix(other.path);
        rest.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// Judges groups whose programs may use both real-time and other CPUs. A group with real-time CPUs alone was given
/// them, and the groups above it then have to include them. Of groups below each other only the topmost is reported.
pub(super) fn cpus(readings: &Readings, isolation: &Isolation) -> Judgement {
    let groups: Vec<Group<'_>> = EFFECTIVE
        .into_iter()
        .flat_map(|template| readings.of(template))
        .filter_map(|location| {
            let Reading::Value(text) = &location.reading else {
                return None;
            };
            Some(Group {
                path: location.keys.first()?,
                file: &location.path,
                cpus: text.parse().ok()?,
            })
        })
        .collect();
    if groups.is_empty() {
        return Judgement::not_applicable("no control group below the root has a cpuset");
    }
    let reaches = |group: &&Group<'_>| !group.cpus.intersection(&isolation.real_time).is_empty();
    let dedicated: Vec<&Group<'_>> = groups
        .iter()
        .filter(reaches)
        .filter(|group| group.cpus.is_subset(&isolation.real_time))
        .collect();
    let mut mixed: Vec<&Group<'_>> = groups
        .iter()
        .filter(reaches)
        .filter(|group| !group.cpus.is_subset(&isolation.real_time))
        .filter(|group| !dedicated.iter().any(|one| one.is_below(group)))
        .filter(|group| is_judged(group.path))
        .collect();
    mixed.sort_by_key(|group| group.path);
    let topmost: Vec<&Group<'_>> = mixed
        .iter()
        .filter(|group| !mixed.iter().any(|other| group.is_below(other)))
        .copied()
        .collect();
    deviations(
        topmost.into_iter().map(|group| {
            let last = group.path.rsplit('/').next().unwrap_or(group.path);
            let location = if UNITS.iter().any(|ending| last.ends_with(ending)) {
                format!("{} ({last})", group.file)
            } else {
                // The file that is written has the same name without `effective`.
                let written = group.file.replace(".effective_cpus", ".cpus");
                written.trim_end_matches(".effective").to_owned()
            };
            (
                location,
                format!("{} may use {}", group.path, group.cpus.named()),
            )
        }),
        "no group reaches the real-time CPUs by chance",
        &format!("within {}", isolation.housekeeping),
    )
}

/// Returns whether a group may run programs that no other rule judges. The first process is alone in `init.scope`.
fn is_judged(path: &str) -> bool {
    let mut parts = path.split('/');
    let first = parts.next().unwrap_or_default();
    let is_top = parts.next().is_none();
    let last = path.rsplit('/').next().unwrap_or(path);
    !WITH_OWN_RULES.contains(&first)
        && !(is_top && (first == "machine.slice" || first == "init.scope"))
        && !WITHOUT_PROGRAMS.iter().any(|ending| last.ends_with(ending))
}

pub(super) fn partitions(readings: &Readings) -> Judgement {
    let locations: Vec<CheckLocation> = readings
        .of("/sys/fs/cgroup/{groups}/cpuset.cpus.partition")
        .iter()
        .filter_map(|location| match &location.reading {
            Reading::Value(mode) if mode != "member" => Some(CheckLocation {
                location: location.path.clone(),
                found: mode.clone(),
                expected: "not invalid".to_owned(),
                satisfied: Some(!mode.contains("invalid")),
            }),
            _ => None,
        })
        .collect();
    if locations.is_empty() {
        return Judgement::is("no partition", true);
    }
    let invalid = locations
        .iter()
        .filter(|location| location.satisfied == Some(false))
        .count();
    Judgement::Is {
        found: format!("{invalid} of {} invalid", locations.len()),
        satisfied: Some(invalid == 0),
        locations,
    }
}
