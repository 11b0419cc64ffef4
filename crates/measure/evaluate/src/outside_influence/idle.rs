// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices that other programs used the CPUs while the machine was measured without a load: the load of
//! the experiment then adds little to theirs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rampart_host::{InfluenceSnapshot, ProgramThread};
use rampart_model::{CpuSet, Finding, Nanos, Severity};

use super::judge::time_used;

/// CPU time that all programs of others may use during a measurement without a load, in CPUs: a quarter of
/// one.
const OTHERS: f64 = 0.25;
/// The text of the finding, by which judges recognise it.
const WHAT: &str =
    "programs outside the experiment used the CPUs during a measurement without a load";

/// CPU time that programs of others used.
#[derive(Debug, Default)]
pub(super) struct OthersTime {
    watched: Nanos,
    /// That of the observed threads, by the name of the program.
    by_name: BTreeMap<String, Nanos>,
    /// That of all programs on CPUs that are not measured, without those of the experiment, in ns. Includes
    /// programs that began and ended between two snapshots.
    elsewhere: i128,
}

impl OthersTime {
    /// Adds the time between two snapshots; `measured` are the measured CPUs and `own` the processes of the
    /// experiment. Programs for which `belongs` returns true are part of a domain.
    pub(super) fn add(
        &mut self,
        measured: &CpuSet,
        own: &BTreeSet<u32>,
        belongs: impl Fn(&ProgramThread) -> bool,
        earlier: &InfluenceSnapshot,
        later: &InfluenceSnapshot,
    ) {
        self.watched += (later.clocks.monotonic).saturating_sub(earlier.clocks.monotonic);
        let before: BTreeMap<_, _> = earlier
            .programs
            .iter()
            .map(|thread| ((thread.thread, thread.start), thread))
            .collect();
        for thread in &later.programs {
            let used = time_used(before.get(&(thread.thread, thread.start)).copied(), thread);
            if !own.contains(&thread.process) {
                if used > Nanos::ZERO && !belongs(thread) {
                    *self.by_name.entry(thread.name.clone()).or_default() += used;
                }
            } else if !measured.contains(thread.cpu) {
                self.elsewhere -= i128::from(used.0);
            }
        }
        // On a measured CPU the ticks, by which these times are counted, may always hit the meter.
        for (cpu, now) in later
            .cpu_times
            .iter()
            .filter(|(cpu, _)| !measured.contains(**cpu))
        {
            if let Some(before) = earlier.cpu_times.get(cpu) {
                let used = now.programs.saturating_sub(before.programs);
                self.elsewhere += i128::from(used.0);
            }
        }
    }

    /// Returns a finding if programs of others used more than their share.
    pub(super) fn finding(&self) -> Option<Finding> {
        let watched = self.watched.as_secs_f64().max(1e-9);
        let cpus = |time: Nanos| time.as_secs_f64() / watched;
        let known: Nanos = self.by_name.values().copied().sum();
        let all = known.max(Nanos(u64::try_from(self.elsewhere).unwrap_or(0)));
        if cpus(all) <= OTHERS {
            return None;
        }
        let most = self.by_name.iter().max_by_key(|(_, time)| **time);
        let culprit = match most {
            Some((name, time)) if time.0 >= all.0 / 2 => format!("`{name}`"),
            _ => "many programs, or programs that ended soon".to_owned(),
        };
        Some(
            Finding::new(Severity::Warning, "idle measurement", WHAT)
                .values(
                    // In rough steps, so that the findings of many short runs are the same one.
                    format!("{culprit}, all together {}", rough(cpus(all))),
                    format!("at most {OTHERS} CPUs"),
                )
                .fix("end these programs before the measurement"),
        )
    }
}

/// Returns a number of CPUs in words.
fn rough(cpus: f64) -> &'static str {
    match cpus {
        cpus if cpus < 0.75 => "about half a CPU",
        cpus if cpus < 1.5 => "about a CPU",
        _ => "several CPUs",
    }
}

/// Returns the finding that other programs used the CPUs during a measurement without a load, if it is one
/// of these.
pub(crate) fn not_idle(findings: &[Finding]) -> Option<&Finding> {
    findings.iter().find(|finding| finding.what == WHAT)
}
