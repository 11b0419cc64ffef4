// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Telling the gaps that the scheduler makes on purpose from noise.
//!
//! A real-time thread that never sleeps is held back in two ways so that others can live:
//! real-time throttling lets it run for `sched_rt_runtime_us` of each `sched_rt_period_us`
//! (sched-rt-group.rst), and from Linux 6.12 on the fair server, a deadline server for ordinary
//! threads, takes its runtime out of each of its periods when they starve. Either shows as gaps
//! of one length at a steady distance.

use rampart_model::{CpuId, Finding, Nanos, Severity};

/// A gap of the `noise` meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// When it ended (`CLOCK_MONOTONIC`).
    pub at: Nanos,
    /// Its length.
    pub length: Nanos,
}

/// One way in which the scheduler holds real-time threads back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Brake {
    /// Its name, as the subject of a sentence.
    pub name: String,
    /// The setting that it comes from.
    pub location: String,
    /// The setting's present value.
    pub present: String,
    /// What switches it off.
    pub fix: String,
    /// What it takes from the thread in each period.
    pub taken: Nanos,
    /// Its period.
    pub period: Nanos,
}

/// The shortest gap that is looked at; both brakes take 50 ms by default.
const SHORTEST: Nanos = Nanos::from_millis(10);

impl Brake {
    /// Accounting happens at ticks, 10 ms apart at the coarsest.
    fn length_fits(&self, gap: &Gap) -> bool {
        let slack = (self.taken.0 / 5).max(5_000_000);
        gap.length >= SHORTEST && gap.length.0.abs_diff(self.taken.0) <= slack
    }

    /// Whether two neighbouring gaps are a whole number of periods apart, within a tenth.
    fn distance_fits(&self, earlier: &Gap, later: &Gap) -> bool {
        let distance = later.at.saturating_sub(earlier.at).0;
        let periods = (distance + self.period.0 / 2) / self.period.0;
        periods >= 1 && distance.abs_diff(periods * self.period.0) <= self.period.0 / 10
    }

    /// The gaps that look like this brake; empty if they are no more than a coincidence.
    fn matching<'a>(&self, gaps: &'a [Gap]) -> Vec<&'a Gap> {
        if self.taken == Nanos::ZERO || self.period == Nanos::ZERO {
            return Vec::new();
        }
        let fitting: Vec<&Gap> = gaps.iter().filter(|gap| self.length_fits(gap)).collect();
        let steady = fitting
            .windows(2)
            .filter(|pair| self.distance_fits(pair[0], pair[1]))
            .count();
        // One alone proves nothing about the distance; of several, most have to keep it.
        if fitting.len() >= 2 && steady * 2 < fitting.len() - 1 {
            return Vec::new();
        }
        fitting
    }
}

/// What is to be said about `gaps` of the real-time thread on `cpu`, if they look like one of
/// `brakes`; several that look alike are named together. Gaps in rising order of their end.
#[must_use]
pub fn explain(cpu: CpuId, gaps: &[Gap], brakes: &[Brake]) -> Option<Finding> {
    let matches: Vec<(&Brake, Vec<&Gap>)> = brakes
        .iter()
        .map(|brake| (brake, brake.matching(gaps)))
        .filter(|(_, gaps)| !gaps.is_empty())
        .collect();
    let (first, fitting) = matches.first()?;
    let (shortest, longest) = (
        fitting.iter().map(|gap| gap.length).min()?,
        fitting.iter().map(|gap| gap.length).max()?,
    );
    let join = |text: &dyn Fn(&Brake) -> String, glue: &str| {
        let parts: Vec<String> = matches.iter().map(|(brake, _)| text(brake)).collect();
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
        join(&|brake| brake.name.clone(), " or "),
        first.taken,
        first.period,
    );
    Some(
        Finding::new(
            Severity::Warning,
            join(&|brake| brake.location.clone(), ", "),
            what,
        )
        .values(
            join(&|brake| brake.present.clone(), ", "),
            "off, or a policy that leaves time for other threads",
        )
        .fix(join(&|brake| brake.fix.clone(), "; or ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brake(name: &str, taken: u64) -> Brake {
        Brake {
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
    fn steady_gaps_of_the_right_length_are_explained() {
        let seen = gaps(&[
            (1_000, 50),
            (1_400, 12),
            (2_003, 48),
            (4_010, 52),
            (5_000, 51),
        ]);
        let finding = explain(CpuId(1), &seen, &[brake("throttling", 50)]).expect("explained");
        assert_eq!(finding.severity, Severity::Warning);
        assert!(
            finding
                .what
                .starts_with("4 gaps of 48 ms to 52 ms on CPU 1 look like throttling"),
            "{finding}"
        );
    }

    #[test]
    fn two_brakes_of_one_shape_are_named_together() {
        let seen = gaps(&[(1_000, 50), (2_000, 50)]);
        let brakes = [
            brake("throttling", 50),
            brake("server", 50),
            brake("other", 300),
        ];
        let finding = explain(CpuId(0), &seen, &brakes).expect("explained");
        assert!(finding.what.contains("throttling or server,"), "{finding}");
        assert_eq!(finding.location, "/throttling, /server");
    }

    #[test]
    fn other_gaps_are_not() {
        let throttling = [brake("throttling", 50)];
        for seen in [
            gaps(&[]),
            gaps(&[(1_000, 20), (2_000, 20)]),
            gaps(&[(1_000, 50), (1_300, 50), (1_750, 50), (2_200, 50)]),
            gaps(&[(1_000, 90)]),
        ] {
            assert_eq!(explain(CpuId(1), &seen, &throttling), None, "{seen:?}");
        }
        assert_eq!(
            explain(CpuId(1), &gaps(&[(1_000, 50)]), &[brake("off", 0)]),
            None
        );
    }
}
