// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One sentence for each domain: deadline first, then the comparison with the host, then loads,
//! then blocks. Pure.

use rampart_model::{
    DisturbanceKind, EvaluatedDomain, EvaluationSettings, MeterKind, Question, Record, Side,
    Verdict, VerdictFigures, VerdictOutcome,
};

use crate::comparison::Asked;
use crate::statements::{factor, grouped, quantile_name};

/// The sentence of a domain. Where the machine or the domain is emulated, `times` is false, and no
/// part of it rests on one.
pub(crate) fn sentence(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
    meter: MeterKind,
    times: bool,
) -> String {
    let measured = records.iter().any(|record| {
        record.domain == domain.name && record.plan.meter == meter && record.exposure.runs > 0
    });
    let blocks = blocks_parts(plan, domain, verdicts);
    if !measured && blocks.is_empty() {
        return "Nothing valid was measured.".to_owned();
    }
    let asked = |question| Asked::new(verdicts, &domain.name, meter, question);
    let mut parts = Vec::new();
    if !measured {
        parts.push("no valid run of the matrix was made".to_owned());
    } else if times {
        parts.push(deadline_part(&asked(Question::Deadline)));
        if !domain.selection.kind.is_housekeeping() {
            parts.push(same_part(&asked(Question::SameAsHost)));
        }
    } else {
        parts.push("no deadline is judged here, nor a likeness to the host: emulated".to_owned());
    }
    let loads = asked(Question::Interference);
    if !loads.0.is_empty() {
        parts.push(match overall(&loads) {
            VerdictOutcome::Holds => "a load beside it does not reach it".to_owned(),
            VerdictOutcome::Leaks => leak_part(&loads),
            _ => "whether a load beside it reaches it is not decided".to_owned(),
        });
    }
    parts.extend(blocks);
    let text = parts.join("; ");
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn same_part(same: &Asked<'_>) -> String {
    match overall(same) {
        VerdictOutcome::Holds => "it is as good as the host".to_owned(),
        VerdictOutcome::Fails => {
            let worse = same.with(VerdictOutcome::Fails);
            format!(
                "it is worse than the host under {}",
                Asked::conditions(&worse)
            )
        }
        _ => "whether it is as good as the host is not decided".to_owned(),
    }
}

/// What blocks did to it: those in other domains, and those that the host's kernel makes under it.
fn blocks_parts(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts: &[Verdict],
) -> Vec<String> {
    let blocks = verdicts
        .iter()
        .filter(|verdict| verdict.domain == domain.name)
        .filter_map(|verdict| Some((verdict.outcome, verdict.disturbance.as_ref()?)))
        .filter(|(_, by)| by.kind == DisturbanceKind::Block);
    let (own, elsewhere): (Vec<_>, Vec<_>) = blocks.partition(|(_, by)| by.domain == domain.name);
    let mut parts = Vec::new();
    let felt: Vec<String> = elsewhere
        .iter()
        .filter(|(outcome, _)| matches!(outcome, VerdictOutcome::Leaks | VerdictOutcome::Fails))
        .map(|(_, by)| by.to_string())
        .collect();
    let open = elsewhere
        .iter()
        .any(|(outcome, _)| *outcome == VerdictOutcome::Inconclusive);
    if !felt.is_empty() {
        parts.push(format!("blocks elsewhere stop it: {}", felt.join(", ")));
    } else if open {
        parts.push("whether blocks elsewhere stop it is not decided".to_owned());
    } else if !elsewhere.is_empty() {
        let watched = |other: &&EvaluatedDomain| {
            other.name != domain.name && elsewhere.iter().any(|(_, by)| by.domain == other.name)
        };
        let names: Vec<&str> = plan
            .domains
            .iter()
            .filter(watched)
            .map(|other| other.name.as_str())
            .collect();
        parts.push(if names.len() + 1 == plan.domains.len() {
            "blocks elsewhere do not stop it".to_owned()
        } else {
            format!("blocks in {} do not stop it", names.join(", "))
        });
    }
    for (outcome, _) in own.iter().filter(|(_, by)| by.side == Side::Under) {
        parts.push(
            match outcome {
                VerdictOutcome::Leaks | VerdictOutcome::Fails => {
                    "the host's kernel stops it by stopping the CPU under it"
                }
                VerdictOutcome::Holds => {
                    "not even the host's kernel, stopping the CPU under it, stops it"
                }
                VerdictOutcome::Inconclusive => {
                    "whether the host's kernel stops it by stopping the CPU under it is not decided"
                }
            }
            .to_owned(),
        );
    }
    parts
}

/// The worst outcome among the verdicts.
fn overall(asked: &Asked<'_>) -> VerdictOutcome {
    for outcome in [
        VerdictOutcome::Fails,
        VerdictOutcome::Leaks,
        VerdictOutcome::Inconclusive,
    ] {
        if !asked.with(outcome).is_empty() {
            return outcome;
        }
    }
    if asked.0.is_empty() {
        VerdictOutcome::Inconclusive
    } else {
        VerdictOutcome::Holds
    }
}

fn deadline_part(asked: &Asked<'_>) -> String {
    let (mut total, mut over, mut worst) = (0, 0, None);
    let mut limit = None;
    for verdict in &asked.0 {
        if let Some(VerdictFigures::Deadline {
            deadline,
            cycles,
            exceedances,
            max,
            ..
        }) = &verdict.figures
        {
            total += cycles;
            over += exceedances;
            limit = Some(*deadline);
            worst = worst.max(Some((*max, verdict.condition)));
        }
    }
    let (Some(limit), Some((max, condition))) = (limit, worst) else {
        return "no deadline was judged".to_owned();
    };
    let figures = format!("worst {max} under {condition}");
    match overall(asked) {
        VerdictOutcome::Holds => format!(
            "meets {limit} in all of {} cycles, {figures}",
            grouped(total)
        ),
        VerdictOutcome::Fails => {
            format!(
                "misses {limit} in {} of {} cycles, {figures}",
                grouped(over),
                grouped(total)
            )
        }
        _ => format!(
            "whether it meets {limit} is not decided after {} cycles, {figures}",
            grouped(total)
        ),
    }
}

fn leak_part(asked: &Asked<'_>) -> String {
    let mut worst: Option<(f64, String)> = None;
    for verdict in asked.with(VerdictOutcome::Leaks) {
        if let Some(VerdictFigures::Interference { factors, .. }) = &verdict.figures {
            for (quantile, interval) in factors {
                if worst
                    .as_ref()
                    .is_none_or(|(estimate, _)| interval.estimate > *estimate)
                {
                    let words = format!(
                        "a load beside it reaches it: {} grows ×{} under {}",
                        quantile_name(*quantile),
                        factor(interval.estimate),
                        verdict.condition
                    );
                    worst = Some((interval.estimate, words));
                }
            }
        }
    }
    worst.map_or_else(
        || "a load beside it reaches it".to_owned(),
        |(_, words)| words,
    )
}
