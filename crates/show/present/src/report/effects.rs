// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Effects of the plan of the machine and of its changes.

use rampart_model::{
    ChangeOutcome, EffectOutcome, EffectRatio, PlanEffect, PlanEffects, PlanVariant, plural,
};

use super::findings::not_measured_findings;
use super::interval::RatioAxis;
use super::verdicts::{quantile_columns, ratio_entry};
use super::{Report, unwanted_activity};
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// Returns the effect of the plan, the effect of each change, and the parts that were not compared.
pub(super) fn effects(report: &Report<'_>) -> Vec<Element> {
    let Some(effects) = &report.evaluation.plan_effects else {
        return Vec::new();
    };
    let mut all = whole(report, effects);
    all.extend(parts(effects));
    all
}

fn whole(report: &Report<'_>, effects: &PlanEffects) -> Vec<Element> {
    let rows: Vec<&PlanEffect> = effects
        .effects
        .iter()
        .filter(|effect| effect.variant == PlanVariant::Before)
        .collect();
    if rows.is_empty() && effects.not_compared.is_empty() {
        return Vec::new();
    }
    let mut all = vec![Element::section(
        "plan-effects",
        "Effects of the plan: with the plan ÷ without, with intervals; less than 1 is shorter",
        "Plan",
    )];
    if !rows.is_empty() {
        let changes: Vec<String> = effects.changes.iter().map(ToString::to_string).collect();
        all.push(Element::detail(vec![Element::remark(format!(
            "A quantile with the plan applied divided by the same quantile without it, measured in turn on the same CPUs \
             under the same policy, with its 95\u{a0}% interval. There is no difference if all intervals are within {} to {} \
             (shaded). {}: {}.",
            format::factor(1.0 / effects.tolerance),
            format::factor(effects.tolerance),
            plural(changes.len(), "change"),
            changes.join(", ")
        ))]));
        all.push(effect_table(report, &rows, effects.tolerance));
        all.push(Element::paragraph(
            "* differs, corrected for all that is compared here (Holm). The highest quantile that differs decides.",
        ));
    }
    all.extend(unwanted_activity::of_plan(report, &rows));
    if !effects.not_compared.is_empty() {
        all.push(Element::heading(3, "Not part of the comparison"));
        all.extend(effects.not_compared.iter().flat_map(not_measured_findings));
    }
    all
}

fn effect_table(report: &Report<'_>, rows: &[&PlanEffect], tolerance: f64) -> Element {
    let several = rows.windows(2).any(|pair| pair[0].meter != pair[1].meter);
    let ratios = || rows.iter().flat_map(|row| &row.ratios);
    let mut quantiles: Vec<f64> = ratios().map(|ratio| ratio.quantile).collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let axis = RatioAxis::of(ratios().map(|ratio| &ratio.ratio), tolerance);
    let text = |name| Column::new(ColumnKind::Text, name);
    let mut columns = vec![text("domain"), text("condition")];
    columns.extend(several.then(|| text("meter")));
    columns.push(Column::new(ColumnKind::Outcome, "verdict"));
    columns.extend(
        quantile_columns(&quantiles, axis).zip(&quantiles).map(
            |(column, quantile)| match quantile {
                // The worst of a run is written as the last quantile.
                1.0.. => Column {
                    name: "worst".into(),
                    ..column
                },
                _ => column,
            },
        ),
    );
    columns.push(Column::new(ColumnKind::Figure, "exposure"));
    let rows = rows.iter().map(|effect| {
        let mut entries = vec![
            Entry::from(report.name(&effect.domain)),
            effect.condition.to_string().into(),
        ];
        entries.extend(several.then(|| effect.meter.word().into()));
        let outcome = match effect.outcome {
            EffectOutcome::Better => Some(Outcome::Holds),
            EffectOutcome::Worse => Some(Outcome::Fails),
            EffectOutcome::NoDifferenceShown => None,
            EffectOutcome::Inconclusive => Some(Outcome::Inconclusive),
        };
        let mut verdict = Entry::outcome(outcome, effect.outcome.to_string());
        if effect.ratios.is_empty() {
            verdict.detail = vec![Element::remark(format::prose(&effect.statement))];
        }
        entries.push(verdict);
        entries.extend(quantiles.iter().map(|quantile| {
            let ratio = effect
                .ratios
                .iter()
                .find(|ratio| ratio.quantile == *quantile);
            ratio.map_or_else(|| "–".into(), |ratio| figure(ratio, axis))
        }));
        let (with, without) = effect.exposure;
        entries.push(
            format!(
                "{} + {} runs, {} + {}",
                with.runs,
                without.runs,
                format::time(with.duration),
                format::time(without.duration),
            )
            .into(),
        );
        Row {
            hint: effect.statement.clone(),
            ..Row::new(entries)
        }
    });
    let rows = rows.collect();
    let caption = "With the plan against without";
    Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("ratios"))
}

fn figure(of: &EffectRatio, axis: RatioAxis) -> Entry {
    let outcome = match of.differs {
        false => Outcome::Inconclusive,
        true if of.ratio.estimate < 1.0 => Outcome::Holds,
        true => Outcome::Fails,
    };
    ratio_entry(&of.ratio, axis, outcome, if of.differs { "*" } else { "" })
}

fn parts(effects: &PlanEffects) -> Vec<Element> {
    if effects.ablation.is_empty() {
        return unwanted_activity::of_changes(effects);
    }
    let rows = effects.ablation.iter().map(|one| {
        let outcome = match one.outcome {
            ChangeOutcome::Mattered => Some(Outcome::Holds),
            ChangeOutcome::Backfired => Some(Outcome::Fails),
            ChangeOutcome::Mixed => Some(Outcome::Leaks),
            ChangeOutcome::NoDifferenceShown => None,
            ChangeOutcome::Inconclusive => Some(Outcome::Inconclusive),
        };
        Row::new(vec![
            Text::of(SpanStyle::Strong, one.change.to_string())
                .and(SpanStyle::Plain, format!(" ({})", one.change.title))
                .into(),
            Entry::outcome(outcome, one.outcome.to_string()),
            Text::prose(&one.statement).into(),
        ])
    });
    let rows = rows.collect();
    let compared = effects.effects.iter();
    let compared = compared.filter(|effect| effect.variant != PlanVariant::Before);
    let mut all = vec![
        Element::section(
            "ablation",
            "Which changes of the plan mattered: the plan ÷ the plan without each",
            "Changes",
        ),
        Element::detail(vec![Element::remark(format!(
            "The whole plan against the plan without each change, measured in turn: {}, corrected for each other (Holm), \
             so that at most one evaluation in twenty reports a difference by mistake.",
            plural(compared.count(), "comparison")
        ))]),
        Element::Table(Table::new(
            TableStyle::Lines,
            "Which changes mattered",
            vec![
                Column::new(ColumnKind::Text, "change"),
                Column::new(ColumnKind::Outcome, "verdict"),
                Column::new(ColumnKind::Text, "why"),
            ],
            rows,
        )),
    ];
    all.extend(unwanted_activity::of_changes(effects));
    all
}
