// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Estimates the progress and the remaining time of an evaluation.

use std::time::{Duration, Instant};

use rampart_model::{EvaluationSettings, Nanos};

use crate::Progress;
use crate::kept_meters::meters_stay_up;
use crate::matrix_time::RunLimits;
use crate::measuring_costs::MeasuringCosts;
use crate::transfer::session::PlannedRound;

/// Compares the elapsed time with the expected time.
#[derive(Debug)]
pub(crate) struct ProgressEstimate {
    began: Instant,
    total: Duration,
    /// Expected seconds of each run and round.
    expected: Vec<f64>,
    number: u32,
    record: String,
}

impl ProgressEstimate {
    /// Creates the estimate for a plan with this many runs and these rounds, on a machine with
    /// these costs.
    pub(crate) fn new(
        settings: &EvaluationSettings,
        runs: usize,
        rounds: &[PlannedRound],
        costs: &MeasuringCosts,
    ) -> Self {
        let emulated = *costs == MeasuringCosts::EMULATED;
        let stay_up = settings.variants.is_empty() && meters_stay_up(&settings.domains, emulated);
        let run = settings.run_duration + RunLimits::of(costs, stay_up).overhead;
        let rounds = rounds
            .iter()
            .map(|round| round.duration + costs.round_overhead);
        Self {
            began: Instant::now(),
            total: settings.total.into(),
            expected: std::iter::repeat_n(run, runs)
                .chain(rounds)
                .map(Nanos::as_secs_f64)
                .collect(),
            number: 0,
            record: String::new(),
        }
    }

    /// Adds one more round after the run or round of this number.
    pub(crate) fn repeat(&mut self, number: u32) {
        let index = (number as usize).min(self.expected.len().saturating_sub(1));
        if let Some(same) = self.expected.get(index).copied() {
            self.expected.insert(index, same);
        }
    }

    /// Adds runs of this length at the end.
    pub(crate) fn add(&mut self, runs: usize, each: Nanos) {
        self.expected
            .extend(std::iter::repeat_n(each.as_secs_f64(), runs));
    }

    /// Returns the number of runs and rounds.
    pub(crate) fn planned(&self) -> u32 {
        u32::try_from(self.expected.len()).unwrap_or(u32::MAX)
    }

    /// Records that the run or round of this number begins.
    pub(crate) fn begin(&mut self, number: u32, record: &str) {
        self.number = number;
        record.clone_into(&mut self.record);
    }

    /// Returns the present progress.
    pub(crate) fn progress(&self) -> Progress {
        let number = (self.number as usize).min(self.expected.len());
        let elapsed = self.began.elapsed();
        let (made, left) = self.expected.split_at(number);
        let (made, left) = (made.iter().sum::<f64>(), left.iter().sum::<f64>());
        // Without a completed run, the estimate uses the plan alone. The present run counts as half
        // done.
        let half = self.expected.get(number).map_or(0.0, |one| one / 2.0);
        let whole = if number == 0 {
            self.total.as_secs_f64()
        } else {
            elapsed.as_secs_f64() * (made + left) / (made + half).max(1e-9)
        };
        let slowness = whole / (made + left).max(1e-9);
        let remaining = (whole - elapsed.as_secs_f64()).clamp(0.0, left * slowness);
        let remaining = Duration::from_secs_f64(remaining);
        Progress {
            run: (self.number, self.planned()),
            record: self.record.clone(),
            done: (elapsed.as_secs_f64() / (elapsed + remaining).as_secs_f64().max(1e-9)).min(1.0),
            remaining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::session;
    use crate::{Request, propose, schedule};
    use rampart_host::{MachineRoot, read_machine};
    use rampart_model::{Availability, Cpu, CpuId, CpuSet, DomainKind, DomainSelection};

    /// The expected time of a proposal's runs and rounds is within its time, by the same costs.
    #[test]
    fn expects_no_more_than_was_planned() {
        let mut machine = read_machine(&MachineRoot::system());
        let all: CpuSet = (0..4).map(CpuId).collect();
        machine.topology.cpus = all
            .iter()
            .map(|id| Cpu {
                id,
                core: Some(id.0),
                package: Some(0),
                node: Some(0),
                siblings: CpuSet::single(id),
                capacity: None,
            })
            .collect();
        machine.topology.online = all.clone();
        machine.topology.allowed = all;
        machine.topology.isolated = CpuSet::new();
        machine.topology.isolation_sources.clear();
        let availability =
            [DomainKind::Host, DomainKind::Task, DomainKind::Vm].map(|kind| Availability {
                domain: DomainSelection::of(kind),
                available: true,
                description: String::new(),
                findings: Vec::new(),
            });
        let mut longest: f64 = 0.0;
        for emulated in [false, true] {
            machine.virtualisation.emulated = emulated;
            for seconds in (100..2000).step_by(37) {
                let request = Request {
                    total: Some(Nanos::from_secs(seconds)),
                    ..Request::default()
                };
                let plan = propose(&machine, &availability, &request)
                    .expect("a plan")
                    .settings;
                let transfer = plan.transfer.iter();
                let rounds: Vec<PlannedRound> = transfer
                    .flat_map(|transfer| session::order(transfer, 1))
                    .collect();
                let runs = schedule(&plan).len();
                let estimate =
                    ProgressEstimate::new(&plan, runs, &rounds, MeasuringCosts::of(emulated));
                let expected: f64 = estimate.expected.iter().sum();
                assert!(
                    expected <= seconds as f64 + 1e-6,
                    "{expected} of {seconds} s"
                );
                longest = longest.max(expected / seconds as f64);
            }
        }
        assert!(longest > 0.8, "{longest}");
    }
}
