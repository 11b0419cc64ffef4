// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notices what influences a measurement from outside the experiment: programs of others on the
//! measured CPUs, interrupts sent there, a changed placement, changed clocks.
//!
//! docs/verdicts.md states what counts as outside. The machine is read by
//! [`rampart_host::InfluenceReader`], the judgement is pure ([`judge`]).

mod idle;
mod judge;
#[cfg(test)]
mod tests;
mod unexplained;

use std::time::{Duration, Instant};

use rampart_domain::Running;
use rampart_host::InfluenceReader;
use rampart_model::{CpuSet, Finding, IsolationMechanism};

pub(crate) use self::idle::not_idle;
pub(crate) use self::judge::MeasuredDomain;
use self::judge::{GroupOfPlan, Judge};

/// Shortest time between two observations during a measurement. Of an influence that begins and ends
/// between two observations only the time of an isolated CPU is seen.
const INTERVAL: Duration = Duration::from_millis(500);

/// An influence from outside the experiment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Influence {
    /// The influenced domain, an index of those that are watched; `None` for all.
    pub(crate) domain: Option<usize>,
    /// The description of the influence.
    pub(crate) finding: Finding,
}

/// Observes the domains that measure at the same time. Keep it for all measurements in the same
/// isolation: it then notices an interrupt that was moved between two of them, and needs less time. After a
/// change of the isolation the routes of interrupts that it knows are old, and a new one is needed.
#[derive(Debug, Default)]
pub(crate) struct OutsideInfluence {
    reader: InfluenceReader,
    judge: Judge,
    looked: Option<Instant>,
}

impl OutsideInfluence {
    /// Begins to watch domains whose meters are prepared.
    pub(crate) fn watch(&mut self, domains: Vec<MeasuredDomain>) {
        let all = |isolated_only: bool| {
            domains
                .iter()
                .filter(|domain| domain.isolated || !isolated_only)
                .fold(CpuSet::new(), |all, domain| all.union(&domain.cpus))
        };
        let (cpus, isolated) = (all(false), all(true));
        let measuring = domains
            .iter()
            .flat_map(|domain| domain.measuring.iter().copied());
        self.reader.watch(cpus, isolated, measuring.collect());
        let snapshot = self.reader.read();
        self.judge.begin(domains, std::process::id(), snapshot);
        self.looked = Some(Instant::now());
    }

    /// Observes the machine if the last observation is old enough. Called often during a measurement.
    pub(crate) fn look(&mut self) {
        let is_old = |looked: Instant| looked.elapsed() >= INTERVAL;
        if self.looked.is_some_and(is_old) {
            self.judge.add(self.reader.read());
            self.looked = Some(Instant::now());
        }
    }

    /// Looks at the machine, stops watching and returns all influences.
    pub(crate) fn end(&mut self) -> Vec<Influence> {
        self.judge.add(self.reader.read());
        self.looked = None;
        self.judge.end()
    }

    /// Returns a warning if programs of others used the CPUs in the measurement that has ended. Only for
    /// measurements without a load: there it means that the machine was not idle ([`not_idle`]).
    pub(crate) fn others_finding(&self) -> Option<Finding> {
        self.judge.others_finding()
    }

    /// Returns the findings of [`OutsideInfluence::end`], where only one domain is watched.
    pub(crate) fn findings(&mut self) -> impl Iterator<Item = Finding> + use<> {
        self.end().into_iter().map(|influence| influence.finding)
    }
}

impl MeasuredDomain {
    /// Returns a domain whose meter is prepared to measure on `cpus`.
    pub(crate) fn of(running: &dyn Running, cpus: &CpuSet) -> Self {
        let isolation = running.isolation();
        let plan = running.shield().filter(|shield| shield.is_of_active_plan());
        Self {
            cpus: cpus.clone(),
            isolated: isolation
                .as_ref()
                .is_some_and(|report| report.isolation > IsolationMechanism::AffinityOnly),
            measuring: running.measuring_threads(),
            kept_away: isolation
                .iter()
                .flat_map(|report| &report.interrupts)
                .filter(|interrupt| interrupt.moved)
                .map(|interrupt| interrupt.interrupt)
                .collect(),
            group_of_plan: plan.and_then(|shield| shield.control_group()).map(|group| {
                GroupOfPlan {
                    unified: group.version == rampart_host::ControlGroupVersion::V2,
                    path: group.path.clone(),
                }
            }),
        }
    }
}
