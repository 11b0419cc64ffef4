// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Distinguishes gaps that the scheduler causes on purpose from noise.
//!
//! The scheduler limits a real-time thread that never sleeps in two ways, so that other threads can
//! run: real-time throttling lets it run for `sched_rt_runtime_us` of each `sched_rt_period_us`
//! (sched-rt-group.rst), and from Linux 6.12 on the fair server, a deadline server for ordinary
//! threads, takes its runtime in each of its periods if they starve. Both show as gaps of equal
//! length at equal distances.

use rampart_model::{CpuId, Finding, Nanos, Severity, WorstEvent};

/// A time in which a measuring thread could not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// End of the gap (`CLOCK_MONOTONIC`).
    pub at: Nanos,
    /// Length of the gap.
    pub length: Nanos,
}

/// Returns the samples of a meter as gaps in rising order of their end. Of samples that overlap, as those of periods that
/// began while the thread could not run, only the longest is a gap.
#[must_use]
pub fn gaps(samples: impl IntoIterator<Item = WorstEvent>) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = samples
        .into_iter()
        .map(|sample| Gap {
            at: sample.at,
            length: sample.value,
        })
        .collect();
    gaps.sort_by_key(|gap| gap.at);
    let mut apart: Vec<Gap> = Vec::new();
    for gap in gaps {
        match apart.last_mut() {
            Some(last) if gap.at.saturating_sub(gap.length) < last.at => {
                if gap.length > last.length {
                    *last = gap;
                }
            }
            _ => apart.push(gap),
        }
    }
    apart
}

/// A mechanism with which the scheduler limits real-time threads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealTimeLimit {
    /// Name of the mechanism, as the subject of a sentence.
    pub name: String,
    /// The setting that enables it.
    pub location: String,
    /// Present value of the setting.
    pub present: String,
    /// Text of the fix that disables it.
    pub fix: String,
    /// Time that it takes from the thread in each period.
    pub taken: Nanos,
    /// Period of the mechanism.
    pub period: Nanos,
}

/// The shortest gap that is considered; both mechanisms take 50 ms by default.
const SHORTEST: Nanos = Nanos::from_millis(10);

impl RealTimeLimit {
    /// Returns whether the length of the gap fits. The accounting happens at ticks, at most 10 ms
    /// apart.
    fn length_fits(&self, gap: &Gap) -> bool {
        let slack = (self.taken.0 / 5).max(5_000_000);
        gap.length >= SHORTEST && gap.length.0.abs_diff(self.taken.0) <= slack
    }

    /// Returns whether two consecutive gaps are a whole number of periods apart, within a tenth of
    /// a period.
    fn distance_fits(&self, earlier: &Gap, later: &Gap) -> bool {
        let distance = later.at.saturating_sub(earlier.at).0;
        let periods = (distance + self.period.0 / 2) / self.period.0;
        periods >= 1 && distance.abs_diff(periods * self.period.0) <= self.period.0 / 10
    }

    /// Returns the gaps that fit this mechanism, or none if the match is a coincidence.
    fn matching<'a>(&self, gaps: &'a [Gap]) -> Vec<&'a Gap> {
        if self.taken == Nanos::ZERO || self.period == Nanos::ZERO {
            return Vec::new();
        }
        let fitting: Vec<&Gap> = gaps.iter().filter(|gap| self.length_fits(gap)).collect();
        let steady = fitting
            .windows(2)
            .filter(|pair| self.distance_fits(pair[0], pair[1]))
            .count();
        // One gap alone has no distance to check; of several, most distances have to fit.
        if fitting.len() >= 2 && steady * 2 < fitting.len() - 1 {
            return Vec::new();
        }
        fitting
    }
}

/// Returns a finding if `gaps` of the real-time thread on `cpu` fit one of `limits`. Mechanisms
/// that fit equally are named together. The gaps must be in rising order of their end.
#[must_use]
pub fn explain(cpu: CpuId, gaps: &[Gap], limits: &[RealTimeLimit]) -> Option<Finding> {
    let matches: Vec<(&RealTimeLimit, Vec<&Gap>)> = limits
        .iter()
        .map(|limit| (limit, limit.matching(gaps)))
        .filter(|(_, gaps)| !gaps.is_empty())
        .collect();
    let (first, fitting) = matches.first()?;
    let (shortest, longest) = (
        fitting.iter().map(|gap| gap.length).min()?,
        fitting.iter().map(|gap| gap.length).max()?,
    );
    let join = |text: &dyn Fn(&RealTimeLimit) -> String, glue: &str| {
        let parts: Vec<String> = matches.iter().map(|(limit, _)| text(limit)).collect();
        parts.join(glue)
    };
    let count = fitting.len();
    let gaps = if count == 1 {
        format!("1 gap of {longest} on CPU {cpu} looks")
    } else {
        format!("{count} gaps of {shortest} to {longest} on CPU {cpu} look")
    };
    let what = format!(
        "{gaps} like {}, which takes {} in each {}, not like noise of the machine",
        join(&|limit| limit.name.clone(), " or "),
        first.taken,
        first.period,
    );
    Some(
        Finding::new(
            Severity::Warning,
            join(&|limit| limit.location.clone(), ", "),
            what,
        )
        .values(
            join(&|limit| limit.present.clone(), ", "),
            "off, or a policy that leaves time for other threads",
        )
        .fix(join(&|limit| limit.fix.clone(), "; or ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(name: &str, taken: u64) -> RealTimeLimit {
        RealTimeLimit {
            name: name.to_owned(),
            location: format!("/{name}"),
            present: "on".to_owned(),
            fix: "off".to_owned(),
            taken: Nanos::from_millis(taken),
            period: Nanos::SECOND,
        }
    }

    fn gaps(gaps: &[(u64, u64)]) -> Vec<Gap> {
        gaps.iter()
            .map(|(at, length)| Gap {
                at: Nanos::from_millis(*at),
                length: Nanos::from_millis(*length),
            })
            .collect()
    }

    #[test]
    fn explains_regular_gaps_of_the_expected_length() {
        let seen = gaps(&[
            (1_000, 50),
            (1_400, 12),
            (2_003, 48),
            (4_010, 52),
            (5_000, 51),
        ]);
        let finding = explain(CpuId(1), &seen, &[limit("throttling", 50)]).expect("explained");
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            finding
                .what
                .starts_with("4 gaps of 48 ms to 52 ms on CPU 1 look like throttling"),
            "{finding}"
        );
    }

    #[test]
    fn names_mechanisms_that_fit_equally_together() {
        let seen = gaps(&[(1_000, 50), (2_000, 50)]);
        let limits = [
            limit("throttling", 50),
            limit("server", 50),
            limit("other", 300),
        ];
        let finding = explain(CpuId(0), &seen, &limits).expect("explained");
        assert!(finding.what.contains("throttling or server,"), "{finding}");
        assert_eq!(finding.location, "/throttling, /server");
    }

    #[test]
    fn does_not_explain_other_gaps() {
        let throttling = [limit("throttling", 50)];
        for seen in [
            gaps(&[]),
            gaps(&[(1_000, 20), (2_000, 20)]),
            gaps(&[(1_000, 50), (1_300, 50), (1_750, 50), (2_200, 50)]),
            gaps(&[(1_000, 90)]),
        ] {
            assert_eq!(explain(CpuId(1), &seen, &throttling), None, "{seen:?}");
        }
        assert_eq!(
            explain(CpuId(1), &gaps(&[(1_000, 50)]), &[limit("off", 0)]),
            None
        );
    }

    /// The samples of `wakeup`: each throttled period ends in several late cycles, whose delays overlap.
    #[test]
    fn late_wakeups_are_gaps_once() {
        let sample = |at, value, sequence| WorstEvent {
            at: Nanos::from_millis(at),
            value: Nanos::from_millis(value),
            sequence,
        };
        let gaps = super::gaps([
            sample(2_000, 49, 9),
            sample(1_000, 49, 1),
            sample(1_001, 48, 2),
            sample(1_002, 47, 3),
            sample(2_001, 48, 10),
        ]);
        let lengths: Vec<(u64, u64)> = gaps.iter().map(|gap| (gap.at.0, gap.length.0)).collect();
        assert_eq!(
            lengths,
            [(1_000_000_000, 49_000_000), (2_000_000_000, 49_000_000)]
        );
        let throttling = [limit("throttling", 50)];
        assert!(explain(CpuId(1), &gaps, &throttling).is_some());
    }
}
