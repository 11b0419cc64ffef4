// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the effect of a plan and of each of its changes. Pure; the formulae are in
//! `rampart-stats`.

use rampart_model::{
    ChangeEffect, ChangeOutcome, Distribution, EffectOutcome, EffectRatio, Exposure, Nanos,
    PlanChange, PlanEffect, PlanEffects, PlanVariant, Record, UnwantedActivity, factor, plural,
    quantile_name,
};
use rampart_stats::{
    Basis, EFFECT_QUANTILES, EFFECT_RISK, EFFECT_TOLERANCE, Effect, Resampling, WORST_OF_RUN,
    effect, holm,
};

use crate::judge::Evidence;

/// "No difference" is only concluded if a quantile at least this high was compared.
const TAIL: f64 = 0.99;

/// The note on figures from an emulated machine.
const EMULATED: &str = ". This machine is emulated, a real one may differ";

/// A comparison before the correction for multiple comparisons.
struct Found<'a> {
    variant: &'a PlanVariant,
    with: &'a Record,
    without: &'a Record,
    effect: Option<Effect>,
}

/// Judges all comparisons again: the record of each other variant against the evaluation's own
/// record of the same entry.
pub fn judge_effects(effects: &mut PlanEffects, evidence: &Evidence<'_>) {
    let Evidence {
        settings,
        records,
        visits,
        emulated,
        ..
    } = *evidence;
    let resampling = Resampling {
        seed: settings.seed,
        ..Resampling::default()
    };
    let runs = |record: &Record| -> Vec<Vec<Distribution>> {
        let visits = visits.get(&record.id).copied().unwrap_or(&[]);
        visits
            .iter()
            .map(|visit| {
                let slices = visit.slices.iter();
                slices.map(|slice| slice.corrected().clone()).collect()
            })
            .collect()
    };
    let found: Vec<Found<'_>> = effects
        .records
        .iter()
        .filter(|variant| variant.record.exposure.runs > 0)
        .filter_map(|variant| {
            let without = &variant.record;
            let with = records.iter().find(|with| {
                with.domain == without.domain
                    && with.settings.meter == without.settings.meter
                    && with.condition == without.condition
                    && with.exposure.runs > 0
            })?;
            Some(Found {
                variant: &variant.variant,
                with,
                without,
                effect: effect(&runs(with), &runs(without), &EFFECT_QUANTILES, &resampling),
            })
        })
        .collect();
    // Two questions, two families: whether the plan has an effect, and which change has.
    let (whole, parts): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|found| *found.variant == PlanVariant::Before);
    let mut judged = family(&whole, emulated);
    judged.extend(family(&parts, emulated));
    effects.ablation = effects
        .changes
        .iter()
        .filter_map(|change| over_all(change, &judged))
        .collect();
    sort(&mut effects.ablation, &judged);
    effects.effects = judged;
}

/// Judges a family of comparisons, corrected for their number.
fn family(found: &[Found<'_>], emulated: bool) -> Vec<PlanEffect> {
    let decides = |effect: &&Effect| effect.basis == Basis::Runs;
    let chances: Vec<f64> = found
        .iter()
        .filter_map(|found| found.effect.as_ref())
        .filter(decides)
        .flat_map(|effect| effect.ratios.iter().map(|ratio| ratio.p_value))
        .collect();
    let mut adjusted = holm(&chances).into_iter();
    found
        .iter()
        .map(|found| {
            let ratios = found.effect.as_ref().map_or_else(Vec::new, |effect| {
                let decides = decides(&effect);
                let ratios = effect.ratios.iter().map(|ratio| {
                    let p_value = if decides {
                        adjusted.next().unwrap_or(1.0)
                    } else {
                        1.0
                    };
                    EffectRatio {
                        quantile: ratio.quantile,
                        ratio: ratio.ratio,
                        p_value,
                        differs: p_value <= EFFECT_RISK,
                    }
                });
                ratios.collect()
            });
            judge(found, ratios, emulated)
        })
        .collect()
}

fn judge(found: &Found<'_>, ratios: Vec<EffectRatio>, emulated: bool) -> PlanEffect {
    let basis = found.effect.as_ref().map(|effect| effect.basis);
    let outcome = outcome(basis, &ratios);
    let smallest = found
        .effect
        .as_ref()
        .filter(|effect| effect.basis == Basis::Runs)
        .map(|effect| effect.smallest_detectable);
    let mut statement = statement(outcome, basis, &ratios, smallest, found.variant);
    if emulated {
        statement.push_str(EMULATED);
    }
    PlanEffect {
        variant: found.variant.clone(),
        domain: found.with.domain.clone(),
        meter: found.with.settings.meter,
        condition: found.with.condition,
        outcome,
        statement,
        ratios,
        smallest_detectable: smallest,
        unwanted_activity: unwanted_activity(found.with).zip(unwanted_activity(found.without)),
        exposure: (found.with.exposure, found.without.exposure),
        records: (found.with.id.clone(), found.without.id.clone()),
    }
}

/// Sums the unwanted activity of the valid runs. Returns `None` if it was not counted.
fn unwanted_activity(record: &Record) -> Option<UnwantedActivity> {
    let valid = record.runs.iter().filter(|run| run.invalid.is_empty());
    let counted = valid.filter_map(|run| run.unwanted_activity);
    counted.reduce(UnwantedActivity::and)
}

/// Returns the highest quantile that differs, since deadlines depend on the tail.
fn decisive(ratios: &[EffectRatio]) -> Option<&EffectRatio> {
    ratios.iter().rev().find(|ratio| ratio.differs)
}

fn outcome(basis: Option<Basis>, ratios: &[EffectRatio]) -> EffectOutcome {
    if basis != Some(Basis::Runs) {
        return EffectOutcome::Inconclusive;
    }
    match decisive(ratios) {
        Some(ratio) if ratio.ratio.estimate < 1.0 => return EffectOutcome::Better,
        Some(_) => return EffectOutcome::Worse,
        None => {}
    }
    // The worst of a few runs varies too much to show equality.
    let mut quantiles = ratios
        .iter()
        .filter(|ratio| ratio.quantile < WORST_OF_RUN)
        .peekable();
    let reaches_tail = ratios
        .iter()
        .any(|ratio| (TAIL..WORST_OF_RUN).contains(&ratio.quantile));
    let within = |ratio: &EffectRatio| {
        ratio.ratio.low >= 1.0 / EFFECT_TOLERANCE && ratio.ratio.high <= EFFECT_TOLERANCE
    };
    if reaches_tail && quantiles.peek().is_some() && quantiles.all(within) {
        EffectOutcome::NoDifferenceShown
    } else {
        EffectOutcome::Inconclusive
    }
}

fn name(quantile: f64) -> String {
    if quantile >= WORST_OF_RUN {
        "worst of a run".to_owned()
    } else {
        quantile_name(quantile)
    }
}

fn figure(ratio: &EffectRatio) -> String {
    format!(
        "{} ×{} ({} to {})",
        name(ratio.quantile),
        factor(ratio.ratio.estimate),
        factor(ratio.ratio.low),
        factor(ratio.ratio.high)
    )
}

fn statement(
    outcome: EffectOutcome,
    basis: Option<Basis>,
    ratios: &[EffectRatio],
    smallest: Option<f64>,
    variant: &PlanVariant,
) -> String {
    if ratios.is_empty() {
        return "not enough data: too few samples".to_owned();
    }
    let figures: Vec<String> = ratios.iter().map(figure).collect();
    let differing = |shorter: bool| -> Vec<String> {
        ratios
            .iter()
            .filter(|ratio| ratio.differs && (ratio.ratio.estimate < 1.0) == shorter)
            .map(|ratio| name(ratio.quantile))
            .collect()
    };
    let smallest = smallest.map_or_else(String::new, |ratio| {
        format!(
            ". A ratio of {} would probably have been detected",
            factor(ratio)
        )
    });
    let conclusion = match outcome {
        EffectOutcome::Better | EffectOutcome::Worse => {
            let parts: Vec<String> = [(true, "shorter"), (false, "longer")]
                .into_iter()
                .map(|(shorter, word)| (differing(shorter), word))
                .filter(|(names, _)| !names.is_empty())
                .map(|(names, word)| format!("{word} at {}", names.join(", ")))
                .collect();
            parts.join(", ")
        }
        EffectOutcome::NoDifferenceShown => {
            format!("no difference shown, all within ×{EFFECT_TOLERANCE}{smallest}")
        }
        EffectOutcome::Inconclusive if basis == Some(Basis::Runs) => {
            format!("not enough data, measure longer{smallest}")
        }
        EffectOutcome::Inconclusive => {
            "not enough data: the spread between runs needs at least two runs".to_owned()
        }
    };
    format!("{} of those {variant}: {conclusion}", figures.join(", "))
}

/// Returns the effect of a change over all its comparisons, or `None` if it has none.
fn over_all(change: &PlanChange, effects: &[PlanEffect]) -> Option<ChangeEffect> {
    let own: Vec<&PlanEffect> = of(change, effects).collect();
    if own.is_empty() {
        return None;
    }
    let count = |outcome| {
        own.iter()
            .filter(|effect| effect.outcome == outcome)
            .count()
    };
    let (better, worse) = (count(EffectOutcome::Better), count(EffectOutcome::Worse));
    let outcome = match (better, worse) {
        (0, 0) if count(EffectOutcome::NoDifferenceShown) == own.len() => {
            ChangeOutcome::NoDifferenceShown
        }
        (0, 0) => ChangeOutcome::Inconclusive,
        (_, 0) => ChangeOutcome::Mattered,
        (0, _) => ChangeOutcome::Backfired,
        _ => ChangeOutcome::Mixed,
    };
    let compared = plural(own.len(), "comparison");
    let found = match strongest(&own) {
        Some((effect, ratio)) => format!(
            "better in {better} and worse in {worse} of {compared}. Largest: with it {} of {} by {} \
             under {}, p {}",
            figure(ratio),
            effect.domain,
            effect.meter,
            effect.condition,
            chance(ratio.p_value)
        ),
        None => format!(
            "no difference in {compared}. {}",
            would_be_seen(&own, &compared)
        ),
    };
    let statement = format!("{found}. {}", exposure(&own));
    Some(ChangeEffect {
        change: change.clone(),
        outcome,
        statement,
    })
}

/// Returns the smallest ratio that all comparisons would have detected.
fn would_be_seen(effects: &[&PlanEffect], compared: &str) -> String {
    let blind = effects
        .iter()
        .filter(|effect| effect.smallest_detectable.is_none())
        .count();
    if blind > 0 {
        return format!("{blind} of {compared} had too few runs or samples");
    }
    let smallest = effects
        .iter()
        .filter_map(|effect| effect.smallest_detectable)
        .fold(1.0, f64::max);
    format!(
        "A ratio of {} would probably have been detected in each",
        factor(smallest)
    )
}

/// Returns the exposure of all comparisons of a change together.
fn exposure(effects: &[&PlanEffect]) -> String {
    let all = |side: fn(&PlanEffect) -> &Exposure, word: &str| {
        let sides = || effects.iter().map(|effect| side(effect));
        let runs: u32 = sides().map(|exposure| exposure.runs).sum();
        let duration = sides().fold(Nanos::ZERO, |sum, exposure| sum + exposure.duration);
        format!("{} and {duration} {word} it", plural(runs, "run"))
    };
    format!(
        "{}, {}",
        all(|effect| &effect.exposure.0, "with"),
        all(|effect| &effect.exposure.1, "without")
    )
}

fn of<'a>(
    change: &'a PlanChange,
    effects: &'a [PlanEffect],
) -> impl Iterator<Item = &'a PlanEffect> {
    effects.iter().filter(
        move |effect| matches!(&effect.variant, PlanVariant::Without(other) if other == change),
    )
}

/// Returns the largest decisive ratio.
fn strongest<'a>(effects: &[&'a PlanEffect]) -> Option<(&'a PlanEffect, &'a EffectRatio)> {
    effects
        .iter()
        .filter_map(|effect| Some((*effect, decisive(&effect.ratios)?)))
        .max_by(|(_, one), (_, other)| size(one).total_cmp(&size(other)))
}

fn size(ratio: &EffectRatio) -> f64 {
    ratio.ratio.estimate.ln().abs()
}

/// Sorts changes: those that backfired, then those that helped, by size, then the rest.
fn sort(ablation: &mut [ChangeEffect], effects: &[PlanEffect]) {
    let rank = |outcome: ChangeOutcome| match outcome {
        ChangeOutcome::Backfired => 0,
        ChangeOutcome::Mixed => 1,
        ChangeOutcome::Mattered => 2,
        ChangeOutcome::NoDifferenceShown => 3,
        ChangeOutcome::Inconclusive => 4,
    };
    let largest = |change: &PlanChange| {
        let own: Vec<&PlanEffect> = of(change, effects).collect();
        strongest(&own).map_or(0.0, |(_, ratio)| size(ratio))
    };
    ablation.sort_by(|one, other| {
        rank(one.outcome)
            .cmp(&rank(other.outcome))
            .then(largest(&other.change).total_cmp(&largest(&one.change)))
    });
}

fn chance(value: f64) -> String {
    if value < 0.001 {
        "under 0.001".to_owned()
    } else {
        format!("{value:.3}")
    }
}
