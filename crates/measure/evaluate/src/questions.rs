// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions of the comparisons. They follow from the settings alone and are fixed before
//! anything is measured. Pure.

use std::collections::BTreeSet;

use rampart_model::{
    Condition, DisturbanceKind, EvaluationSettings, MeterSettings, Nanos, VerdictOutcome,
};
use rampart_stats::{
    INTERFERENCE_TOLERANCE, Look, Questions, Risk, SAME_AS_HOST_TOLERANCE, StallLength,
};

/// Without a deadline from the user, gaps of the meters without a period are compared above these
/// lengths.
const GAP_LENGTHS: [Nanos; 3] = [
    Nanos::from_micros(10),
    Nanos::from_micros(100),
    Nanos::from_millis(1),
];

/// Returns the questions of a comparison with the host.
pub(crate) fn same_as_host(
    settings: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
) -> Questions {
    of(
        settings,
        meter,
        domain,
        SAME_AS_HOST_TOLERANCE,
        VerdictOutcome::Fails,
    )
}

/// Returns the questions about a load, of the matrix or of a round.
pub(crate) fn interference(
    settings: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
) -> Questions {
    of(
        settings,
        meter,
        domain,
        INTERFERENCE_TOLERANCE,
        VerdictOutcome::Leaks,
    )
}

fn of(
    settings: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
    tolerance: f64,
    alarm: VerdictOutcome,
) -> Questions {
    let periodic = meter.meter.is_periodic();
    Questions {
        quantiles: periodic,
        stolen: !periodic,
        lengths: lengths(settings, meter, domain),
        tolerance,
        alarm,
        risk: Risk::of(count(settings), look(settings)),
    }
}

/// Returns the risk of a verdict on blocks. On an emulated machine open verdicts are not measured on.
pub(crate) fn risk_of_blocks(settings: &EvaluationSettings, emulated: bool) -> Risk {
    let pairs = judged(settings, |kind| kind == DisturbanceKind::Block);
    let look = if emulated { Look::ONLY } else { look(settings) };
    Risk::of(u32::try_from(pairs).unwrap_or(u32::MAX), look)
}

fn look(settings: &EvaluationSettings) -> Look {
    Look {
        number: settings.look,
        of: looks(settings),
    }
}

/// Returns how often an evaluation may ask which comparisons are open, to measure those on: after the
/// planned runs, and at [`times_of_looks`].
pub(crate) fn looks(settings: &EvaluationSettings) -> u32 {
    1 + u32::try_from(times_of_looks(settings).len()).unwrap_or(u32::MAX - 1)
}

/// Returns the times of the looks after that: the whole time, and with a limit for measuring on each
/// doubling and the limit.
pub(crate) fn times_of_looks(settings: &EvaluationSettings) -> Vec<Nanos> {
    let mut times = vec![settings.total];
    let limit = settings.until_decided.unwrap_or(settings.total);
    let mut next = settings.total;
    while next < limit {
        next = limit.min(Nanos(next.0.max(1).saturating_mul(2)));
        times.push(next);
    }
    times
}

/// Returns the lengths above which a sample is a stall: the deadline if the user gave one.
fn lengths(settings: &EvaluationSettings, meter: &MeterSettings, domain: &str) -> Vec<StallLength> {
    if settings.deadline_is_named(domain) {
        vec![StallLength::over(settings.deadline_of(domain))]
    } else if meter.meter.is_periodic() {
        StallLength::of_period(meter.interval).to_vec()
    } else {
        GAP_LENGTHS.map(StallLength::over).to_vec()
    }
}

/// Returns the number of questions of the whole evaluation: of the comparisons of the matrix, of
/// the rounds with loads, and of the negative control.
fn count(settings: &EvaluationSettings) -> u32 {
    let loads = settings
        .conditions
        .iter()
        .filter(|condition| **condition != Condition::IDLE)
        .count();
    let hosts = settings
        .domains
        .iter()
        .filter(|domain| domain.selection.kind.is_housekeeping())
        .count();
    let with_host = if hosts == 0 {
        0
    } else {
        settings.domains.len() - hosts
    };
    let comparisons = with_host * settings.conditions.len() + settings.domains.len() * loads + 1;
    let matrix: u32 = settings
        .meters
        .iter()
        .map(|meter| {
            questions_per_comparison(meter) * u32::try_from(comparisons).unwrap_or(u32::MAX)
        })
        .sum();
    let rounds = judged(settings, |kind| kind != DisturbanceKind::Block);
    let rounds = u32::try_from(rounds * (2 + StallLength::OF_A_PERIOD)).unwrap_or(u32::MAX);
    matrix.saturating_add(rounds)
}

/// Returns the number of verdicts on disturbances of these kinds. A repeated disturbance is one.
fn judged(settings: &EvaluationSettings, of_kind: impl Fn(DisturbanceKind) -> bool) -> usize {
    let groups = settings.transfer.iter().flat_map(|of| &of.groups);
    let disturbances: BTreeSet<_> = groups
        .flat_map(|group| &group.disturbances)
        .filter(|disturbance| of_kind(disturbance.kind))
        .collect();
    disturbances.len() * settings.domains.len()
}

fn questions_per_comparison(meter: &MeterSettings) -> u32 {
    let periodic = meter.meter.is_periodic();
    let lengths = if periodic {
        StallLength::OF_A_PERIOD
    } else {
        GAP_LENGTHS.len()
    };
    Questions::count(periodic, !periodic, lengths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{
        Disturbance, LoadKind, SchedulingPolicy, Side, TransferGroup, TransferSettings,
    };

    #[test]
    fn looks_at_the_whole_time_each_doubling_and_the_limit() {
        let text = include_str!("../../../show/present/tests/documents/full.json");
        let evaluation: rampart_model::Evaluation =
            serde_json::from_str(text).expect("an evaluation");
        let mut plan = evaluation.settings;
        plan.total = Nanos::from_secs(120);
        let mut at = |limit: Option<u64>| {
            plan.until_decided = limit.map(Nanos::from_secs);
            assert_eq!(looks(&plan) as usize, times_of_looks(&plan).len() + 1);
            let times = times_of_looks(&plan).into_iter();
            times.map(|time| time.as_secs_f64()).collect::<Vec<_>>()
        };
        assert_eq!(at(None), [120.0]);
        assert_eq!(at(Some(60)), [120.0]);
        assert_eq!(at(Some(240)), [120.0, 240.0]);
        assert_eq!(at(Some(360)), [120.0, 240.0, 360.0]);
    }

    #[test]
    fn a_repeated_round_asks_no_further_question() {
        let mut plan = crate::schedule::tests::plan(2, 1, 1);
        let domain = plan.domains[0].name.clone();
        let of = |kind| Disturbance {
            kind,
            side: Side::Inside,
            domain: domain.clone(),
        };
        let once = vec![
            of(DisturbanceKind::Block),
            of(DisturbanceKind::Load(LoadKind::Cache)),
        ];
        let mut asked = |disturbances: Vec<Disturbance>| {
            let group = TransferGroup {
                participants: Vec::new(),
                disturbances,
            };
            plan.transfer = Some(TransferSettings {
                groups: vec![group],
                interval: Nanos::from_millis(1),
                policy: SchedulingPolicy::Fifo(80),
                quiet: Nanos::SECOND,
                loaded: Nanos::SECOND,
                blocks: 40,
                block_factor: 5,
                shortest_block: Nanos::from_millis(10),
                findings: Vec::new(),
            });
            (count(&plan), risk_of_blocks(&plan, true).alarm)
        };
        let none = asked(Vec::new());
        let found = asked(once.clone());
        assert_eq!(found.1, Risk::SINGLE.alarm / 2.0, "one block, two domains");
        assert!(found.0 > none.0, "{found:?} {none:?}");
        assert_eq!(asked([once.clone(), once].concat()), found);
    }
}
