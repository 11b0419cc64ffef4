// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The questions of the comparisons. They follow from the settings alone and are fixed before
//! anything is measured. Pure.

use rampart_model::{
    Condition, DisturbanceKind, EvaluationSettings, MeterSettings, Nanos, VerdictOutcome,
};
use rampart_stats::{INTERFERENCE_TOLERANCE, Questions, Risk, SAME_AS_HOST_TOLERANCE, StallLength};

/// Without a deadline from the user, gaps of the meters without a period are compared above these
/// lengths.
const GAP_LENGTHS: [Nanos; 3] = [
    Nanos::from_micros(10),
    Nanos::from_micros(100),
    Nanos::from_millis(1),
];

/// Returns the questions of a comparison with the host.
pub(crate) fn same_as_host(
    plan: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
) -> Questions {
    of(
        plan,
        meter,
        domain,
        SAME_AS_HOST_TOLERANCE,
        VerdictOutcome::Fails,
    )
}

/// Returns the questions about a load, of the matrix or of a round.
pub(crate) fn interference(
    plan: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
) -> Questions {
    of(
        plan,
        meter,
        domain,
        INTERFERENCE_TOLERANCE,
        VerdictOutcome::Leaks,
    )
}

fn of(
    plan: &EvaluationSettings,
    meter: &MeterSettings,
    domain: &str,
    tolerance: f64,
    alarm: VerdictOutcome,
) -> Questions {
    let periodic = meter.meter.is_periodic();
    Questions {
        quantiles: periodic,
        stolen: !periodic,
        lengths: lengths(plan, meter, domain),
        tolerance,
        alarm,
        risk: Risk::of(count(plan), looks(plan)),
    }
}

/// Returns how often an evaluation may ask which comparisons are open, to measure those on: after the
/// planned runs, after the whole time, and with a limit for measuring on after each doubling.
fn looks(plan: &EvaluationSettings) -> u32 {
    let doublings = plan.until_decided.map_or(0, |limit| {
        (limit.0 / plan.total.0.max(1)).max(1).ilog2() + 1
    });
    2 + doublings
}

/// Returns the lengths above which a sample is a stall: the deadline if the user gave one.
fn lengths(plan: &EvaluationSettings, meter: &MeterSettings, domain: &str) -> Vec<StallLength> {
    if plan.deadline_is_named(domain) {
        vec![StallLength::over(plan.deadline_of(domain))]
    } else if meter.meter.is_periodic() {
        StallLength::of_period(meter.interval).to_vec()
    } else {
        GAP_LENGTHS.map(StallLength::over).to_vec()
    }
}

/// Returns the number of questions of the whole evaluation: of the comparisons of the matrix, of
/// the rounds with loads, and of the negative control.
fn count(plan: &EvaluationSettings) -> u32 {
    let loads = plan
        .conditions
        .iter()
        .filter(|condition| **condition != Condition::IDLE)
        .count();
    let hosts = plan
        .domains
        .iter()
        .filter(|domain| domain.selection.kind.is_housekeeping())
        .count();
    let with_host = if hosts == 0 {
        0
    } else {
        plan.domains.len() - hosts
    };
    let comparisons = with_host * plan.conditions.len() + plan.domains.len() * loads + 1;
    let matrix: u32 = plan
        .meters
        .iter()
        .map(|meter| {
            questions_per_comparison(meter) * u32::try_from(comparisons).unwrap_or(u32::MAX)
        })
        .sum();
    let rounds: usize = plan
        .transfer
        .iter()
        .flat_map(|transfer| &transfer.groups)
        .flat_map(|group| &group.disturbances)
        .filter(|disturbance| disturbance.kind != DisturbanceKind::Block)
        .count()
        * plan.domains.len();
    let rounds = u32::try_from(rounds * (2 + StallLength::OF_A_PERIOD)).unwrap_or(u32::MAX);
    matrix.saturating_add(rounds)
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
