// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The summary of each domain: latency, comparison with the host, loads, blocks. Pure.

use rampart_model::{
    DisturbanceKind, EvaluatedDomain, EvaluationSettings, MeterKind, Question, Record, Side,
    Verdict, VerdictFigures, VerdictOutcome, factor, grouped, quantile_name,
};

use crate::comparison::Asked;

/// Returns the summary of a domain in one sentence: its latency, then what is decided on the host,
/// loads and blocks, then what is not decided.
///
/// `times` is false if the machine or the domain is emulated; no sentence rests on a time then.
pub(crate) fn sentence(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    records: &[Record],
    verdicts: &[Verdict],
    meter: MeterKind,
    times: bool,
) -> String {
    let records: Vec<&Record> = records
        .iter()
        .filter(|record| record.domain == domain.name && record.settings.meter == meter)
        .filter(|record| record.exposure.runs > 0)
        .collect();
    let blocks = blocks_parts(settings, domain, verdicts);
    if records.is_empty() && blocks == Parts::default() {
        return "No valid run was measured.".to_owned();
    }
    let asked = |question| Asked::new(verdicts, &domain.name, meter, question);
    let mut parts = Parts::default();
    if times && !records.is_empty() {
        parts
            .decided
            .push(if settings.deadline_is_named(&domain.name) {
                deadline_part(&asked(Question::Deadline))
            } else {
                worst_part(&records)
            });
        if !domain.selection.kind.is_housekeeping() {
            same_part(&asked(Question::SameAsHost), &mut parts);
        }
        loads_part(&asked(Question::Interference), &mut parts);
    }
    parts.decided.extend(blocks.decided);
    parts.open.extend(blocks.open);
    if parts.decided.is_empty() && !times {
        parts
            .decided
            .push("latency is not judged on an emulated machine".to_owned());
    }
    if !parts.open.is_empty() {
        parts
            .decided
            .push(format!("not decided: {}", parts.open.join(", ")));
    }
    as_sentence(&parts.decided.join(", "))
}

/// The parts of a summary.
#[derive(Debug, Default, PartialEq)]
struct Parts {
    /// Answers.
    decided: Vec<String>,
    /// Subjects of the questions without an answer.
    open: Vec<String>,
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

/// Returns the worst sample of valid runs with its exposure.
fn worst_part(records: &[&Record]) -> String {
    let cycles: u64 = records
        .iter()
        .map(|record| record.exposure.samples + record.exposure.missed)
        .sum();
    let worst = records
        .iter()
        .filter_map(|record| Some((record.worst.first()?.value, record.condition)))
        .max_by_key(|(value, _)| *value);
    match worst {
        Some((value, condition)) => {
            format!(
                "worst {value} {} in {} cycles",
                condition.in_words(),
                grouped(cycles)
            )
        }
        None => format!("no delay in {} cycles", grouped(cycles)),
    }
}

fn same_part(same: &Asked<'_>, parts: &mut Parts) {
    match overall(same) {
        VerdictOutcome::Holds => parts.decided.push("as good as the host".to_owned()),
        VerdictOutcome::Fails => {
            let worse = same.in_words(&same.with(VerdictOutcome::Fails));
            parts.decided.push(match same.what_fails() {
                Some(subjects) => format!("{subjects} worse than on the host {worse}"),
                None => format!("worse than the host {worse}"),
            });
        }
        _ => match same.decided_so_far() {
            Some((decided, open)) => {
                parts
                    .decided
                    .push(format!("{decided} no worse than on the host"));
                parts.open.push(format!("{open} compared with the host"));
            }
            None => parts.open.push("the comparison with the host".to_owned()),
        },
    }
}

fn loads_part(loads: &Asked<'_>, parts: &mut Parts) {
    if loads.0.is_empty() {
        return;
    }
    match overall(loads) {
        VerdictOutcome::Holds => {
            let beside = loads.beside_others();
            parts.decided.push(format!("isolated from loads{beside}"));
        }
        VerdictOutcome::Leaks => parts.decided.push(leak_part(loads)),
        _ => match loads.decided_so_far() {
            Some((decided, open)) => {
                let beside = loads.beside_others();
                parts
                    .decided
                    .push(format!("{decided} isolated from loads{beside}"));
                parts.open.push(format!("{open} under loads"));
            }
            None => parts.open.push("isolation from loads".to_owned()),
        },
    }
}

/// Returns the effects of blocks in other domains, and of the host's kernel under the domain.
fn blocks_parts(
    settings: &EvaluationSettings,
    domain: &EvaluatedDomain,
    verdicts: &[Verdict],
) -> Parts {
    let blocks = verdicts
        .iter()
        .filter(|verdict| verdict.domain == domain.name)
        .filter_map(|verdict| Some((verdict.outcome, verdict.disturbance.as_ref()?)))
        .filter(|(_, by)| by.kind == DisturbanceKind::Block);
    let (own, elsewhere): (Vec<_>, Vec<_>) = blocks.partition(|(_, by)| by.domain == domain.name);
    let mut parts = Parts::default();
    let affected: Vec<String> = elsewhere
        .iter()
        .filter(|(outcome, _)| matches!(outcome, VerdictOutcome::Leaks | VerdictOutcome::Fails))
        .map(|(_, by)| by.to_string())
        .collect();
    let open = elsewhere
        .iter()
        .any(|(outcome, _)| *outcome == VerdictOutcome::Inconclusive);
    if !affected.is_empty() {
        parts.decided.push(format!(
            "stopped by blocks in other domains ({})",
            affected.join(", ")
        ));
    } else if open {
        parts
            .open
            .push("isolation from blocks in other domains".to_owned());
    } else if !elsewhere.is_empty() {
        let watched = |other: &&EvaluatedDomain| {
            other.name != domain.name && elsewhere.iter().any(|(_, by)| by.domain == other.name)
        };
        let names: Vec<&str> = settings
            .domains
            .iter()
            .filter(watched)
            .map(|other| other.name.as_str())
            .collect();
        parts
            .decided
            .push(if names.len() + 1 == settings.domains.len() {
                "isolated from blocks in other domains".to_owned()
            } else {
                format!("isolated from blocks in {}", names.join(" and "))
            });
    }
    for (outcome, _) in own.iter().filter(|(_, by)| by.side == Side::Under) {
        match outcome {
            VerdictOutcome::Leaks | VerdictOutcome::Fails => parts
                .decided
                .push("stopped by a block of the host's kernel under it".to_owned()),
            VerdictOutcome::Holds => parts
                .decided
                .push("not stopped by a block of the host's kernel under it".to_owned()),
            VerdictOutcome::Inconclusive => {
                parts
                    .open
                    .push("blocks of the host's kernel under it".to_owned());
            }
        }
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
        return "deadline not judged".to_owned();
    };
    let figures = format!("worst {max} {}", condition.in_words());
    match overall(asked) {
        VerdictOutcome::Holds => {
            format!("meets {limit} in all {} cycles ({figures})", grouped(total))
        }
        VerdictOutcome::Fails => {
            format!(
                "misses {limit} in {} of {} cycles ({figures})",
                grouped(over),
                grouped(total)
            )
        }
        _ => format!(
            "no miss of {limit} in {} cycles, too few to decide ({figures})",
            grouped(total)
        ),
    }
}

fn leak_part(asked: &Asked<'_>) -> String {
    let mut worst: Option<(f64, String)> = None;
    for verdict in asked.with(VerdictOutcome::Leaks) {
        if let Some(VerdictFigures::Interference {
            factors, tolerance, ..
        }) = &verdict.figures
        {
            // A load may leak by stalls alone.
            let beyond = factors.iter().filter(|(_, of)| of.low > *tolerance);
            for (quantile, interval) in beyond {
                if worst
                    .as_ref()
                    .is_none_or(|(estimate, _)| interval.estimate > *estimate)
                {
                    let words = format!(
                        "not isolated from loads ({} ×{} {})",
                        quantile_name(*quantile),
                        factor(interval.estimate),
                        verdict.condition.in_words()
                    );
                    worst = Some((interval.estimate, words));
                }
            }
        }
    }
    worst.map_or_else(
        || {
            let leaking = asked.in_words(&asked.with(VerdictOutcome::Leaks));
            format!("not isolated from loads (stalls {leaking})")
        },
        |(_, words)| words,
    )
}
