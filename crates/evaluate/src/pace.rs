// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How far an evaluation is, and how long the rest will take.

use std::time::{Duration, Instant};

use rampart_model::{ExperimentPlan, Nanos};

use crate::Progress;
use crate::transfer::session::PlannedRound;

/// What a run or a round costs besides its own time, about: only to tell people what to expect.
const OVERHEAD: Nanos = Nanos::from_millis(800);

/// Holds the time that went by against what was expected.
#[derive(Debug)]
pub(crate) struct Pace {
    began: Instant,
    total: Duration,
    /// Expected seconds of each run and round.
    expected: Vec<f64>,
    number: u32,
    record: String,
}

impl Pace {
    /// Of a plan with so many runs and these rounds.
    pub(crate) fn new(plan: &ExperimentPlan, runs: usize, rounds: &[PlannedRound]) -> Self {
        let run = plan.run_duration + OVERHEAD;
        let rounds = rounds.iter().map(|round| round.duration + OVERHEAD);
        Self {
            began: Instant::now(),
            total: plan.total.into(),
            expected: std::iter::repeat_n(run, runs)
                .chain(rounds)
                .map(Nanos::as_secs_f64)
                .collect(),
            number: 0,
            record: String::new(),
        }
    }

    /// One more round is to be made after the run or round of this number.
    pub(crate) fn repeat(&mut self, number: u32) {
        let place = (number as usize).min(self.expected.len().saturating_sub(1));
        if let Some(same) = self.expected.get(place).copied() {
            self.expected.insert(place, same);
        }
    }

    /// How long all of it is expected to take, or was planned to, whichever is longer.
    pub(crate) fn whole(&self) -> Duration {
        self.total
            .max(Duration::from_secs_f64(self.expected.iter().sum()))
    }

    /// Runs and rounds together.
    pub(crate) fn planned(&self) -> u32 {
        u32::try_from(self.expected.len()).unwrap_or(u32::MAX)
    }

    /// The run or round of this number begins.
    pub(crate) fn begin(&mut self, number: u32, record: &str) {
        self.number = number;
        record.clone_into(&mut self.record);
    }

    /// As it stands.
    pub(crate) fn progress(&self) -> Progress {
        let number = (self.number as usize).min(self.expected.len());
        let elapsed = self.began.elapsed();
        let (made, left) = self.expected.split_at(number);
        let (made, left) = (made.iter().sum::<f64>(), left.iter().sum::<f64>());
        // Before anything is over there is only the plan to judge from. The one being made counts
        // as made by half.
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
