// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary of each domain: deadline, comparison with the host, loads, blocks. Pure.

use rampart_model::{
    DisturbanceKind, EvaluatedDomain, EvaluationSettings, MeterKind, Question, Record, Side,
    Verdict, VerdictFigures, VerdictOutcome,
};

use crate::comparison::Asked;
use crate::statements::{factor, grouped, quantile_name};

/// Returns the summary of a domain, a short sentence for each question.
///
/// `times` is false if the machine or the domain is emulated; no sentence rests on a time then.
pub(crate) fn sentence(
    plan: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
    meter: MeterKind,
    times: bool,
) -> String {
    let measured = records.iter().any(|record| {
        record.domain == domain.name && record.settings.meter == meter && record.exposure.runs > 0
    });
    let blocks = blocks_parts(plan, domain, verdicts);
    if !measured && blocks.is_empty() {
        return "No valid run was measured.".to_owned();
    }
    let asked = |question| Asked::new(verdicts, &domain.name, meter, question);
    let mut parts = Vec::new();
    if !measured {
        parts.push("no valid run of the matrix was measured".to_owned());
    } else if times {
        parts.push(deadline_part(&asked(Question::Deadline)));
        if !domain.selection.kind.is_housekeeping() {
            parts.push(same_part(&asked(Question::SameAsHost)));
        }
    } else {
        parts.push("latency is not judged on an emulated machine".to_owned());
    }
    let loads = asked(Question::Interference);
    if !loads.0.is_empty() {
        parts.push(match overall(&loads) {
            VerdictOutcome::Holds => "isolated from co-located loads".to_owned(),
            VerdictOutcome::Leaks => leak_part(&loads),
            _ => "not enough data to judge co-located loads".to_owned(),
        });
    }
    parts.extend(blocks);
    let sentences: Vec<String> = parts.iter().map(|part| as_sentence(part)).collect();
    sentences.join(" ")
}

/// Capitalises the first letter and adds a full stop.
fn as_sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|letter| letter.to_uppercase().to_string())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn same_part(same: &Asked<'_>) -> String {
    match overall(same) {
        VerdictOutcome::Holds => "latency is as good as on the host".to_owned(),
        VerdictOutcome::Fails => {
            let worse = same.with(VerdictOutcome::Fails);
            format!(
                "latency is worse than on the host under {}",
                Asked::conditions(&worse)
            )
        }
        _ => "not enough data to compare it with the host".to_owned(),
    }
}

/// Returns the effects of blocks in other domains, and of the host's kernel under the domain.
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
        parts.push(format!(
            "not isolated: blocks in other domains stop it ({})",
            felt.join(", ")
        ));
    } else if open {
        parts.push("not enough data to judge blocks in other domains".to_owned());
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
            "isolated: blocks in other domains do not stop it".to_owned()
        } else {
            format!("isolated: blocks in {} do not stop it", names.join(", "))
        });
    }
    for (outcome, _) in own.iter().filter(|(_, by)| by.side == Side::Under) {
        parts.push(
            match outcome {
                VerdictOutcome::Leaks | VerdictOutcome::Fails => {
                    "a block of the host's kernel under it stops it"
                }
                VerdictOutcome::Holds => {
                    "even a block of the host's kernel under it does not stop it"
                }
                VerdictOutcome::Inconclusive => {
                    "not enough data to judge blocks of the host's kernel under it"
                }
            }
            .to_owned(),
        );
    }
    parts
}

/// Returns the worst outcome of the verdicts.
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
        return "the deadline was not judged".to_owned();
    };
    let figures = format!("worst {max} under {condition}");
    match overall(asked) {
        VerdictOutcome::Holds => format!(
            "meets the deadline of {limit} in all {} cycles, {figures}",
            grouped(total)
        ),
        VerdictOutcome::Fails => {
            format!(
                "misses the deadline of {limit} in {} of {} cycles, {figures}",
                grouped(over),
                grouped(total)
            )
        }
        _ => format!(
            "not enough data to judge the deadline of {limit} after {} cycles, {figures}",
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
                        "not isolated from co-located loads: {} grows ×{} under {}",
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
        || "not isolated from co-located loads".to_owned(),
        |(_, words)| words,
    )
}
