// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the plan of the machine changed, and which of its changes mattered.

use comfy_table::Cell;
use rampart_model::{
    ChangeOutcome, EffectOutcome, EffectRatio, Evaluation, PlanEffect, PlanEffects, PlanVariant,
    VerdictOutcome,
};

use super::sections::{said_of, with_ends};
use super::text::Page;
use super::unwanted_activity;
use crate::format;

/// With the plan against without, each change, and what was not part of it.
pub(crate) fn effects(page: &mut Page, evaluation: &Evaluation) {
    let Some(effects) = &evaluation.plan_effects else {
        return;
    };
    whole(page, effects);
    unwanted_activity::of_plan(page, effects);
    parts(page, effects);
    unwanted_activity::of_changes(page, effects);
    not_compared(page, effects);
}

fn whole(page: &mut Page, effects: &PlanEffects) {
    let rows: Vec<&PlanEffect> = effects
        .effects
        .iter()
        .filter(|effect| effect.variant == PlanVariant::Before)
        .collect();
    let Some(first) = rows.first() else {
        return;
    };
    page.heading(
        "What the plan changed: with the plan ÷ without, with intervals; under 1 is shorter",
    );
    let several = rows.iter().any(|row| row.meter != first.meter);
    let mut quantiles: Vec<f64> = rows
        .iter()
        .flat_map(|row| row.ratios.iter().map(|ratio| ratio.quantile))
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let names: Vec<String> = quantiles.iter().map(|quantile| name(*quantile)).collect();
    let mut header = vec!["domain", "condition"];
    header.extend(several.then_some("meter"));
    header.push("verdict");
    header.extend(names.iter().map(String::as_str));
    header.push("exposure");
    let table = rows.iter().map(|row| {
        let mut cells = vec![
            page.cell(&row.domain),
            page.cell(&row.condition.to_string()),
        ];
        cells.extend(several.then(|| page.cell(row.meter.word())));
        cells.push(page.outcome_cell(colour(row.outcome), &row.outcome.to_string()));
        cells.extend(quantiles.iter().map(|quantile| {
            let ratio = row.ratios.iter().find(|ratio| ratio.quantile == *quantile);
            page.cell(&ratio.map_or_else(|| "–".to_owned(), figure))
        }));
        cells.push(page.cell(&exposure(row)));
        cells
    });
    let table: Vec<Vec<Cell>> = table.collect();
    page.figures(&header, table, 3 + usize::from(several));
    page.paragraph(
        "* differs, corrected for all that is compared here; the highest quantile that differs decides.",
        0,
    );
}

fn figure(ratio: &EffectRatio) -> String {
    let star = if ratio.differs { "*" } else { "" };
    format!("{}{star}", with_ends(&ratio.ratio))
}

fn exposure(effect: &PlanEffect) -> String {
    format!(
        "{} + {} runs, {} + {}",
        effect.exposure.0.runs,
        effect.exposure.1.runs,
        format::time(effect.exposure.0.duration),
        format::time(effect.exposure.1.duration),
    )
}

fn name(quantile: f64) -> String {
    if quantile >= 1.0 {
        "worst".to_owned()
    } else {
        format::quantile_name(quantile)
    }
}

const fn colour(outcome: EffectOutcome) -> Option<VerdictOutcome> {
    match outcome {
        EffectOutcome::Better => Some(VerdictOutcome::Holds),
        EffectOutcome::Worse => Some(VerdictOutcome::Fails),
        EffectOutcome::NoDifferenceShown => None,
        EffectOutcome::Inconclusive => Some(VerdictOutcome::Inconclusive),
    }
}

fn parts(page: &mut Page, effects: &PlanEffects) {
    if effects.ablation.is_empty() {
        return;
    }
    page.heading("Which changes of the plan mattered: the plan ÷ the plan without each");
    let rows = effects.ablation.iter().map(|one| {
        let colour = match one.outcome {
            ChangeOutcome::Mattered => Some(VerdictOutcome::Holds),
            ChangeOutcome::Backfired => Some(VerdictOutcome::Fails),
            ChangeOutcome::Mixed => Some(VerdictOutcome::Leaks),
            ChangeOutcome::NoDifferenceShown => None,
            ChangeOutcome::Inconclusive => Some(VerdictOutcome::Inconclusive),
        };
        vec![
            page.cell(&format!("{} ({})", one.change, one.change.title)),
            page.outcome_cell(colour, &one.outcome.to_string()),
            page.cell(&one.statement),
        ]
    });
    let rows: Vec<Vec<Cell>> = rows.collect();
    page.words(&["change", "verdict", "why"], rows);
}

fn not_compared(page: &mut Page, effects: &PlanEffects) {
    if effects.not_compared.is_empty() {
        return;
    }
    page.heading("Not part of the comparison");
    for one in &effects.not_compared {
        page.hanging(&format!("{}: ", one.what), "", 0);
        for finding in &one.findings {
            page.hanging("- ", &said_of(finding, &one.what), 2);
        }
    }
}
