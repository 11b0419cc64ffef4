// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An invented evaluation of a plan of the machine: without it, with it, and without each of its
//! changes.

use rampart_model::{
    ChangeEffect, ChangeOutcome, DomainKind, EffectOutcome, EffectRatio, Evaluation, Finding,
    Interval, LoadKind, LoadLocation, MeasuredPlan, MeterKind, Nanos, NotMeasured, PlanChange,
    PlanEffect, PlanEffects, PlanVariant, Record, SchedulingPolicy, Severity, StepKind,
    UnwantedActivity, VariantRecord, VariantSettings,
};

use super::{IDLE, Scenario, conclude, cpus, domain, loaded};

pub(crate) fn plan() -> Evaluation {
    let mut domains = vec![
        domain(
            "host",
            DomainKind::Host,
            "0",
            "a plain real-time thread on CPU 0",
        ),
        domain(
            "press",
            DomainKind::Task,
            "1",
            "a process in an isolated partition of CPU 1",
        ),
    ];
    domains[1].policy = Some(SchedulingPolicy::Fifo(70));
    domains[1].deadline = Some(Nanos::from_micros(60));
    let mut evaluation = Scenario {
        housekeeping: cpus("0"),
        domains,
        conditions: vec![IDLE, loaded(LoadKind::Cpu, LoadLocation::Others)],
        meters: vec![MeterKind::Wakeup],
        repetitions: 4,
        run_duration: Nanos::from_millis(1_500),
        interval: Nanos::from_micros(500),
        deadline: Nanos::from_micros(500),
        slowness: 1.0,
        made: 16,
        seed: 34,
    }
    .evaluation();
    evaluation.plan.deadline_from_user = false;
    for record in &mut evaluation.records {
        record.plan.deadline = Some(evaluation.plan.deadline_of(&record.domain));
    }
    conclude::conclude(&mut evaluation);
    evaluation.plan.measured = Some(MeasuredPlan {
        file: "press.toml".to_owned(),
        fingerprint: "2 CPUs".to_owned(),
        stands: false,
    });
    let changes = [
        (
            StepKind::Isolation,
            "press",
            "control group, interrupts, workqueues",
        ),
        (
            StepKind::Knob,
            "timer-migration",
            "timers stay where they are set",
        ),
        (StepKind::Knob, "cpu-idle", "no deep idle states"),
        (StepKind::Knob, "ksm", "no merging of equal pages"),
        (StepKind::Knob, "swappiness", "little swapping"),
    ]
    .map(|(kind, name, title)| PlanChange {
        kind,
        name: name.to_owned(),
        title: title.to_owned(),
    })
    .to_vec();
    let without = changes.iter().cloned().map(PlanVariant::Without);
    evaluation.plan.variants = [PlanVariant::After, PlanVariant::Before]
        .into_iter()
        .chain(without)
        .map(|variant| VariantSettings {
            visits: if variant == PlanVariant::After { 2 } else { 1 },
            variant,
        })
        .collect();
    evaluation.plan_effects = Some(effects(&evaluation, changes));
    evaluation
}

fn effects(evaluation: &Evaluation, changes: Vec<PlanChange>) -> PlanEffects {
    let of = |variant: &PlanVariant, record: &Record, factors: [f64; 4], outcome: EffectOutcome| {
        effect(variant, record, factors, outcome)
    };
    let mut effects = Vec::new();
    for (location, record) in evaluation.records.iter().enumerate() {
        let (factors, outcome) = match location {
            0 => ([1.0, 1.02, 1.05, 1.1], EffectOutcome::NoDifferenceShown),
            1 => ([1.04, 1.3, 1.6, 1.2], EffectOutcome::Worse),
            2 => ([0.98, 0.9, 0.7, 0.6], EffectOutcome::Inconclusive),
            _ => ([0.95, 0.4, 0.21, 0.12], EffectOutcome::Better),
        };
        effects.push(of(&PlanVariant::Before, record, factors, outcome));
    }
    let press = evaluation.records.last().expect("a record");
    let judged = [
        (
            [0.99, 0.5, 0.3, 0.2],
            EffectOutcome::Better,
            ChangeOutcome::Mattered,
        ),
        (
            [1.0, 1.01, 1.0, 0.9],
            EffectOutcome::NoDifferenceShown,
            ChangeOutcome::NoDifferenceShown,
        ),
        (
            [1.4, 1.5, 1.3, 1.1],
            EffectOutcome::Worse,
            ChangeOutcome::Backfired,
        ),
        (
            [1.0, 0.98, 0.9, 0.8],
            EffectOutcome::Inconclusive,
            ChangeOutcome::Inconclusive,
        ),
        (
            [1.2, 0.98, 0.6, 0.8],
            EffectOutcome::Better,
            ChangeOutcome::Mixed,
        ),
    ];
    let mut ablation = Vec::new();
    for (change, (factors, outcome, all)) in changes.iter().zip(judged) {
        let one = of(
            &PlanVariant::Without(change.clone()),
            press,
            factors,
            outcome,
        );
        ablation.push(ChangeEffect {
            change: change.clone(),
            outcome: all,
            statement: over_all(&one, all),
        });
        effects.push(one);
    }
    ablation.sort_by_key(|one| match one.outcome {
        ChangeOutcome::Backfired => 0,
        ChangeOutcome::Mixed => 1,
        ChangeOutcome::Mattered => 2,
        ChangeOutcome::NoDifferenceShown => 3,
        ChangeOutcome::Inconclusive => 4,
    });
    PlanEffects {
        tolerance: 1.25,
        changes,
        not_compared: vec![NotMeasured {
            what: "kernel command line nohz_full".to_owned(),
            findings: vec![
                Finding::new(
                    Severity::Note,
                    "nohz_full",
                    "it needs a restart, so all variants run with its present value",
                )
                .values("absent", "nohz_full=1")
                .fix("rampart apply press.toml --boot, then restart"),
            ],
        }],
        records: vec![VariantRecord {
            variant: PlanVariant::Before,
            record: Record {
                id: format!("{}{}", PlanVariant::Before.prefix(), press.id),
                ..press.clone()
            },
        }],
        effects,
        ablation,
    }
}

/// With the plan only ticks are left, without it everything comes.
fn unwanted_activity(all: u64) -> UnwantedActivity {
    UnwantedActivity {
        watched: Nanos::from_secs(40),
        device_interrupts: 8_412 * all,
        device_softirqs: 2_310 * all,
        cross_calls: 12 + 604 * all,
        timer_interrupts: 40_800 + 10_000 * all,
        kernel_threads: Nanos::from_millis(3 + 310 * all),
        programs: Nanos::from_millis(1_870 * all),
    }
}

fn effect(
    variant: &PlanVariant,
    record: &Record,
    factors: [f64; 4],
    outcome: EffectOutcome,
) -> PlanEffect {
    let ratios: Vec<EffectRatio> = [0.5, 0.99, 0.999, 1.0]
        .into_iter()
        .zip(factors)
        .map(|(quantile, factor)| {
            let differs = match outcome {
                EffectOutcome::Better => factor < 0.8,
                EffectOutcome::Worse => factor > 1.25,
                _ => false,
            };
            EffectRatio {
                quantile,
                ratio: Interval {
                    estimate: factor,
                    low: factor * 0.85,
                    high: factor * 1.18,
                    confidence: 0.95,
                },
                p_value: if differs { 0.004 } else { 0.6 },
                differs,
            }
        })
        .collect();
    PlanEffect {
        variant: variant.clone(),
        domain: record.domain.clone(),
        meter: record.plan.meter,
        condition: record.condition,
        outcome,
        statement: format!("p99.9 ×{} of those {variant}: {outcome}", factors[2]),
        ratios,
        smallest_detectable: Some(1.4),
        unwanted_activity: Some((unwanted_activity(0), unwanted_activity(1))),
        exposure: (record.exposure, record.exposure),
        records: (
            record.id.clone(),
            format!("{}{}", variant.prefix(), record.id),
        ),
    }
}

/// As an evaluation words it.
fn over_all(one: &PlanEffect, outcome: ChangeOutcome) -> String {
    let found = match outcome {
        ChangeOutcome::Mattered => "better in 1 and worse in 0 of 1 comparison; most: with it",
        ChangeOutcome::Backfired => "better in 0 and worse in 1 of 1 comparison; most: with it",
        ChangeOutcome::Mixed => "better in 1 and worse in 1 of 2 comparisons; most: with it",
        ChangeOutcome::NoDifferenceShown | ChangeOutcome::Inconclusive => {
            "nothing differs in 1 comparison; a ratio of 1.3 would probably have been seen in each;"
        }
    };
    let (with, without) = one.exposure;
    format!(
        "{found} {}; {} runs and {} with it, {} runs and {} without it",
        one.statement, with.runs, with.duration, without.runs, without.duration
    )
}
