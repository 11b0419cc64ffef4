// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests the effects of a plan and its changes with simulated runs whose truth is known.

use std::collections::BTreeMap;

use rampart_evaluate::{Evidence, VisitsByRecord, judge_effects};
use rampart_model::{
    ChangeOutcome, Condition, CpuId, CpuSet, Distribution, DomainKind, EffectOutcome,
    EvaluationSettings, Exposure, MeterKind, MeterSettings, Nanos, PlanChange, PlanEffects,
    PlanVariant, Record, StepKind, VariantRecord, VariantSettings,
};
use rampart_stats::Visit;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

fn change(name: &str) -> PlanChange {
    PlanChange {
        kind: StepKind::Knob,
        name: name.to_owned(),
        title: format!("what {name} is"),
    }
}

/// Returns runs whose level differs by a few percent; `factor` multiplies all samples.
fn runs(generator: &mut Pcg64Mcg, count: usize, factor: f64) -> Vec<Visit> {
    (0..)
        .take(count)
        .map(|number| {
            let level = 5_000.0 * factor * (1.0 + 0.04 * (generator.random::<f64>() - 0.5));
            let slices = (0..4).map(|_| {
                Distribution::from_values((0..3_000).map(|_| {
                    let tail = -generator.random::<f64>().max(1e-9).ln();
                    Nanos((level * (1.0 + 0.2 * tail)) as u64)
                }))
            });
            Visit::of(number, slices.collect())
        })
        .collect()
}

fn record(variant: &PlanVariant, runs: usize) -> Record {
    Record {
        emulated: false,
        id: format!("{}press/wakeup/idle", variant.prefix()),
        domain: "press".to_owned(),
        kind: DomainKind::Task,
        settings: MeterSettings::new(MeterKind::Wakeup, CpuSet::single(CpuId(1))),
        condition: Condition::IDLE,
        exposure: Exposure {
            samples: runs as u64 * 12_000,
            duration: Nanos::from_secs(runs as u64 * 4),
            cpus: 1,
            runs: runs as u32,
            missed: 0,
        },
        cpus: Vec::new(),
        worst: Vec::new(),
        runs: Vec::new(),
        invalid: Vec::new(),
    }
}

/// Judges variants whose latencies are those with the plan times a factor.
fn judged(variants: &[(PlanVariant, f64)], count: usize, emulated: bool) -> PlanEffects {
    let mut generator = Pcg64Mcg::seed_from_u64(5);
    let mut made = BTreeMap::new();
    let with = record(&PlanVariant::After, count);
    made.insert(with.id.clone(), runs(&mut generator, count, 1.0));
    let mut effects = PlanEffects::default();
    for (variant, factor) in variants {
        let record = record(variant, count);
        made.insert(record.id.clone(), runs(&mut generator, count, *factor));
        effects.records.push(VariantRecord {
            variant: variant.clone(),
            record,
        });
        if let PlanVariant::Without(change) = variant {
            effects.changes.push(change.clone());
        }
    }
    let all = [&PlanVariant::After]
        .into_iter()
        .chain(variants.iter().map(|variant| &variant.0));
    let plan = EvaluationSettings {
        measured: None,
        variants: all
            .map(|variant| VariantSettings {
                variant: variant.clone(),
                visits: 1,
            })
            .collect(),
        transfer: None,
        housekeeping: CpuSet::single(CpuId(0)),
        domains: Vec::new(),
        meters: Vec::new(),
        conditions: Vec::new(),
        repetitions: 5,
        run_duration: Nanos::from_secs(4),
        deadline: Nanos::from_micros(100),
        until_decided: None,
        look: 1,
        deadline_from_user: false,
        total: Nanos::from_secs(120),
        seed: 1,
        findings: Vec::new(),
    };
    let visits: VisitsByRecord<'_> = made
        .iter()
        .map(|(id, runs)| (id.clone(), runs.as_slice()))
        .collect();
    judge_effects(
        &mut effects,
        &Evidence {
            settings: &plan,
            records: &[with],
            visits: &visits,
            transfers: &[],
            emulated,
        },
    );
    effects
}

#[test]
fn reports_better_and_worse_plans() {
    for (factor, expected, word) in [
        (2.0, EffectOutcome::Better, "shorter at p50, p99, p99.9"),
        (0.5, EffectOutcome::Worse, "longer at p50, p99, p99.9"),
        (
            1.0,
            EffectOutcome::NoDifferenceShown,
            "would probably have been detected",
        ),
    ] {
        let effects = judged(&[(PlanVariant::Before, factor)], 6, false);
        let [effect] = effects.effects.as_slice() else {
            panic!("one effect: {effects:?}");
        };
        assert_eq!(effect.outcome, expected, "{}", effect.statement);
        assert!(effect.statement.contains(word), "{}", effect.statement);
        assert!(effect.statement.contains("without the plan"));
        assert_eq!(effect.ratios.len(), 4, "three quantiles and the worst");
        let median = effect.ratios[0].ratio;
        assert!(
            median.low <= 1.0 / factor && 1.0 / factor <= median.high,
            "{median:?}"
        );
        assert!(effects.ablation.is_empty());
    }
}

#[test]
fn needs_two_runs_and_reports_an_emulated_machine() {
    let effects = judged(&[(PlanVariant::Before, 3.0)], 1, false);
    let effect = &effects.effects[0];
    assert_eq!(effect.outcome, EffectOutcome::Inconclusive);
    assert!(
        effect.statement.contains("needs at least two runs"),
        "{}",
        effect.statement
    );
    assert!(effect.ratios.iter().all(|ratio| !ratio.differs));
    let effects = judged(&[(PlanVariant::Before, 3.0)], 6, true);
    let effect = &effects.effects[0];
    assert_eq!(effect.outcome, EffectOutcome::Better);
    assert!(
        effect.statement.contains("emulated"),
        "{}",
        effect.statement
    );
}

#[test]
fn sorts_changes_by_their_effect() {
    let without = |name: &str, factor: f64| (PlanVariant::Without(change(name)), factor);
    let effects = judged(
        &[
            without("nothing", 1.0),
            without("little", 1.3),
            without("harm", 0.6),
            without("much", 3.0),
        ],
        6,
        false,
    );
    let sorted: Vec<(&str, ChangeOutcome)> = effects
        .ablation
        .iter()
        .map(|one| (&*one.change.name, one.outcome))
        .collect();
    assert_eq!(
        sorted,
        [
            ("harm", ChangeOutcome::Backfired),
            ("much", ChangeOutcome::Mattered),
            ("little", ChangeOutcome::Mattered),
            ("nothing", ChangeOutcome::NoDifferenceShown),
        ],
        "{:#?}",
        effects.ablation
    );
    assert!(
        effects.ablation[1].statement.contains("×0.3"),
        "{:?}",
        effects.ablation[1]
    );
    assert!(
        effects.ablation[3]
            .statement
            .contains("no difference in 1 comparison. A ratio of"),
        "{:?}",
        effects.ablation[3]
    );
}
