// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPUs that irqbalance excludes.

use rampart_model::{CheckLocation, CpuSet};

use super::Judgement;
use super::cpus::named;
use crate::{Isolation, Readings};

/// The files from which distributions start irqbalance: Debian's, Red Hat's and SUSE's, and that of its own unit.
const FILES: [&str; 3] = [
    "/etc/default/irqbalance",
    "/etc/sysconfig/irqbalance",
    "/etc/irqbalance.env",
];

/// The CPUs that irqbalance excludes, and why.
struct Banned<'a> {
    /// The CPUs; none if the setting is invalid.
    cpus: CpuSet,
    /// The file with the setting, or with no setting; `None` without a file.
    file: Option<&'a str>,
    /// The reason, in words.
    why: String,
}

/// Returns the CPUs that irqbalance excludes, as its `setup_banned_cpus` (cputree.c) does: those of
/// `IRQBALANCE_BANNED_CPUS`, a mask, if it is not empty; else those of `IRQBALANCE_BANNED_CPULIST`, also if it is empty
/// or invalid, which excludes none; else isolated and tickless CPUs.
fn banned(readings: &Readings) -> Banned<'_> {
    let file = FILES
        .into_iter()
        .find_map(|file| Some((file, readings.value(file)?)));
    let setting = |name: &str| {
        let (file, text) = file?;
        let value = text.lines().rev().find_map(|line| {
            let value = line.trim().strip_prefix(name)?.strip_prefix('=')?;
            Some(value.trim().trim_matches(['"', '\'']).to_owned())
        })?;
        Some((file, value))
    };
    if let Some((file, mask)) = setting("IRQBALANCE_BANNED_CPUS").filter(|one| !one.1.is_empty()) {
        return of_setting(
            file,
            "IRQBALANCE_BANNED_CPUS",
            &mask,
            CpuSet::from_mask(&mask).ok(),
        );
    }
    if let Some((file, list)) = setting("IRQBALANCE_BANNED_CPULIST") {
        let cpus = match list.as_str() {
            "" => Some(CpuSet::new()),
            list => list.parse().ok(),
        };
        return of_setting(file, "IRQBALANCE_BANNED_CPULIST", &list, cpus);
    }
    let of = |file: &str| -> CpuSet {
        let text = readings.value(file).unwrap_or_default();
        text.parse().unwrap_or_default()
    };
    let cpus =
        of("/sys/devices/system/cpu/isolated").union(&of("/sys/devices/system/cpu/nohz_full"));
    Banned {
        why: format!("{}, isolated and tickless CPUs by default", named(&cpus)),
        cpus,
        file: file.map(|(file, _)| file),
    }
}

fn of_setting<'a>(file: &'a str, name: &str, value: &str, cpus: Option<CpuSet>) -> Banned<'a> {
    Banned {
        why: match &cpus {
            Some(cpus) => named(cpus),
            None => format!("none: {name}={value} in {file} does not name CPUs"),
        },
        cpus: cpus.unwrap_or_default(),
        file: Some(file),
    }
}

fn runs(readings: &Readings) -> bool {
    let programs = readings.programs.as_ref();
    programs.is_none_or(|programs| programs.contains("irqbalance"))
}

/// Returns whether irqbalance runs and excludes all real-time CPUs.
pub(crate) fn keeps_off(readings: &Readings, isolation: &Isolation) -> bool {
    let programs = readings.programs.as_ref();
    programs.is_some_and(|programs| programs.contains("irqbalance"))
        && !isolation.real_time.is_empty()
        && isolation.real_time.is_subset(&banned(readings).cpus)
}

pub(super) fn banned_cpus(readings: &Readings, isolation: &Isolation) -> Judgement {
    if !runs(readings) {
        return Judgement::not_applicable("irqbalance does not run");
    }
    let banned = banned(readings);
    let satisfied = isolation.real_time.is_subset(&banned.cpus);
    Judgement::Is {
        satisfied: Some(satisfied),
        locations: vec![CheckLocation {
            location: banned.file.unwrap_or(FILES[0]).to_owned(),
            found: banned.why.clone(),
            expected: isolation.real_time.to_string(),
            satisfied: Some(satisfied),
        }],
        found: banned.why,
    }
}
