// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first answer: which domain to use, what harms latencies most, what to do next.

use rampart_model::{
    Condition, Distribution, Evaluation, EvaluationState, Finding, MeterKind, Nanos, Question,
    Record, Severity, Verdict, VerdictFigures, VerdictOutcome, plural,
};
use rampart_rules::{by_harm, harm};
use rampart_stats::{BestDomain, Criterion, best_domain};

use super::Report;
use super::next_command::next;
use crate::element::{AnswerPart, Element, SpanStyle, Text};
use crate::format;

/// Returns the first answer.
pub(super) fn first_answer(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let best = best_domain(evaluation);
    let (why, command) = next(evaluation, best.as_ref());
    let mut parts = Vec::new();
    let measured = measured_cause(evaluation, best.as_ref());
    let advice = first_fix(evaluation, best.as_ref(), measured.is_some());
    for (label, text) in [("What hurts most", measured), ("First finding", advice)] {
        parts.extend(text.map(|text| AnswerPart {
            label,
            text,
            command: String::new(),
        }));
    }
    parts.push(AnswerPart {
        label: "Next",
        text: Text::prose(&why),
        command,
    });
    vec![Element::FirstAnswer {
        answer: answer(evaluation, best.as_ref()),
        parts,
    }]
}

/// Returns which domain is best, how good it is, and why it is better than the others.
fn answer(evaluation: &Evaluation, best: Option<&BestDomain<'_>>) -> Text {
    let Some(best) = best else {
        return Text::of(SpanStyle::Strong, nothing_measured(evaluation));
    };
    let mut text = Text::default();
    if evaluation.state != EvaluationState::Complete {
        text = text.and(SpanStyle::Plain, "So far: ");
    }
    let choice = choice(evaluation, best);
    let reason = reason(evaluation, best);
    let (end, rest) = if best.by_structure {
        let rest = "Microseconds are not real here, so no latency is compared.";
        (".", format!(" {reason} {rest}").replace("  ", " "))
    } else {
        let figures = figures(evaluation, best);
        (":", format!(" {figures}. {reason}"))
    };
    text.and(SpanStyle::Strong, choice + end)
        .and(SpanStyle::Plain, rest.trim_end())
}

fn nothing_measured(evaluation: &Evaluation) -> &'static str {
    match evaluation.state {
        EvaluationState::Running => "Nothing is measured yet.",
        EvaluationState::EndedEarly | EvaluationState::Complete => {
            "Nothing was measured: no run is valid."
        }
    }
}

/// Returns the choice, without an end: figures follow.
fn choice(evaluation: &Evaluation, best: &BestDomain<'_>) -> String {
    if let Some(limit) = missed_by_all(evaluation, best) {
        let first = format!("No domain meets {} here", format::time(limit));
        return match best.domains.as_slice() {
            _ if best.ruled_out.is_empty() => first,
            [only] => format!("{first}, {only} comes nearest"),
            several => format!("{first}, {} come nearest", listed(several, "and")),
        };
    }
    if best.ruled_out.is_empty() {
        return match best.domains.as_slice() {
            [only] => format!("Only {only} was measured"),
            several => equal(evaluation, several),
        };
    }
    let names = listed(&best.domains, "or");
    match limit_of_all(evaluation, best) {
        Some(limit) => format!("Use {names} for {}", format::time(limit)),
        None => format!("Use {names}"),
    }
}

/// Returns that no domain is better than the others. They may differ all the same, by p50 alone or under one load.
fn equal(evaluation: &Evaluation, domains: &[&str]) -> String {
    let differs = evaluation.verdicts.iter().any(|verdict| {
        verdict.question == Question::SameAsHost
            && verdict.outcome == VerdictOutcome::Fails
            && domains.contains(&verdict.domain.as_str())
    });
    let names = listed(domains, "and");
    if differs {
        format!("None of {names} was shown to be best")
    } else {
        format!("No difference between {names} was shown")
    }
}

/// Returns why the best domains are better than the others, as a sentence; empty if they are not.
fn reason(evaluation: &Evaluation, best: &BestDomain<'_>) -> String {
    let Some((_, criterion)) = best.ruled_out.first() else {
        return String::new();
    };
    let others: Vec<&str> = best
        .ruled_out
        .iter()
        .filter(|(_, by)| by == criterion)
        .map(|(domain, _)| *domain)
        .collect();
    // By structure the machine's own work rules out the host, whatever the blocks show.
    let is_shared = |domain: &&str| {
        let kind = evaluation.kind_of(domain);
        kind.is_some_and(|kind| kind.is_housekeeping())
    };
    let all_shared = others.iter().all(is_shared);
    let others = listed(&others, "and");
    let equals = listed(&best.domains, "and");
    let mut reason = match criterion {
        Criterion::Deadline => format!("The deadline was missed in {others}"),
        Criterion::Latency if has_load(evaluation) => {
            format!("Latency under load is higher in {others} than in {equals}")
        }
        Criterion::Latency => format!("Latency is higher in {others} than in {equals}"),
        Criterion::Isolation if best.by_structure && all_shared => {
            format!("Other programs of the machine share the CPUs of {others}")
        }
        Criterion::Isolation if best.by_structure => {
            format!("Not isolated from work or blocks in other domains: {others}")
        }
        Criterion::Isolation => format!("Not isolated from loads or blocks elsewhere: {others}"),
        Criterion::Crash => format!("A crash of the host ends {others}"),
    };
    if best.domains.len() > 1 {
        reason.push_str(&format!(". {}", equal(evaluation, &best.domains)));
    }
    reason + "."
}

/// Returns the deadline of the best domains if the user set it and it is the same for all.
fn limit_of_all(evaluation: &Evaluation, best: &BestDomain<'_>) -> Option<Nanos> {
    let settings = &evaluation.settings;
    let limit = settings.deadline_of(best.domains.first()?);
    let is_own =
        |domain: &&str| settings.deadline_is_named(domain) && settings.deadline_of(domain) == limit;
    (!best.by_structure && best.domains.iter().all(is_own)).then_some(limit)
}

/// Returns the deadline that the user set if every measured domain missed it.
fn missed_by_all(evaluation: &Evaluation, best: &BestDomain<'_>) -> Option<Nanos> {
    let settings = &evaluation.settings;
    let missed = |domain: &&str| {
        settings.deadline_is_named(domain)
            && deadline_verdicts(evaluation, domain)
                .any(|verdict| verdict.outcome == VerdictOutcome::Fails)
    };
    (!best.by_structure && best.domains.iter().all(missed))
        .then(|| settings.deadline_of(best.domains[0]))
}

fn deadline_verdicts<'a>(
    evaluation: &'a Evaluation,
    domain: &str,
) -> impl Iterator<Item = &'a Verdict> {
    let meter = evaluation.settings.meters.first().map(|first| first.meter);
    evaluation.verdicts.iter().filter(move |verdict| {
        verdict.domain == domain
            && verdict.question == Question::Deadline
            && Some(verdict.meter) == meter
    })
}

fn has_load(evaluation: &Evaluation) -> bool {
    let mut conditions = evaluation.settings.conditions.iter();
    conditions.any(|condition| *condition != Condition::IDLE)
}

/// Returns the deadline or the worst sample, and p99, over all conditions of the best domains.
fn figures(evaluation: &Evaluation, best: &BestDomain<'_>) -> String {
    let Some(meter) = evaluation.settings.meters.first().map(|first| first.meter) else {
        return String::new();
    };
    let records: Vec<&Record> = evaluation
        .records
        .iter()
        .filter(|record| best.domains.contains(&record.domain.as_str()))
        .filter(|record| record.settings.meter == meter && record.exposure.runs > 0)
        .collect();
    let cycles: u64 = records
        .iter()
        .map(|record| record.exposure.samples + record.exposure.missed)
        .sum();
    let worst = records
        .iter()
        .filter_map(|record| Some((record.worst.first()?.value, record.condition)))
        .max_by_key(|(value, _)| *value);
    let Some((worst, condition)) = worst else {
        return String::new();
    };
    let sample = match meter {
        MeterKind::Wakeup => "wake-up",
        MeterKind::Noise => "gap",
        _ => "sample",
    };
    let worst = format!("{} {}", format::time(worst), condition.in_words());
    let verdicts: Vec<&Verdict> = best
        .domains
        .iter()
        .filter(|domain| evaluation.settings.deadline_is_named(domain))
        .flat_map(|domain| deadline_verdicts(evaluation, domain))
        .collect();
    if let Some((limit, judged, over)) = exceedances(&verdicts) {
        let judged = format!("{}\u{a0}cycles", format::grouped(judged));
        let too_few = verdicts
            .iter()
            .any(|verdict| verdict.outcome == VerdictOutcome::Inconclusive);
        let misses = match over {
            0 if too_few => format!("no miss in {judged} (too few to decide)"),
            0 => format!("no miss in {judged}"),
            over => format!(
                "{} of {judged} missed {}",
                format::grouped(over),
                format::time(limit)
            ),
        };
        return format!("{misses}, worst {sample} {worst}");
    }
    let p99 = records.iter().filter_map(|record| p99(record)).max();
    let p99 = p99.map_or_else(String::new, |p99| {
        format!(", p99 at most {}", format::time(p99))
    });
    let cycles = format!("{}\u{a0}cycles", format::grouped(cycles));
    format!("worst {sample} of {cycles} {worst}{p99}")
}

/// Returns the deadline, the cycles and the exceedances of these verdicts; `None` if the domains
/// have different deadlines or no figures.
fn exceedances(verdicts: &[&Verdict]) -> Option<(Nanos, u64, u64)> {
    let mut limit = None;
    let (mut all, mut over) = (0, 0);
    for verdict in verdicts {
        let Some(VerdictFigures::Deadline {
            deadline,
            cycles,
            exceedances,
            ..
        }) = &verdict.figures
        else {
            continue;
        };
        if limit.is_some_and(|limit| limit != *deadline) {
            return None;
        }
        limit = Some(*deadline);
        all += cycles;
        over += exceedances;
    }
    Some((limit?, all, over))
}

/// Returns p99 over all CPUs of a record, corrected for missed periods.
fn p99(record: &Record) -> Option<Nanos> {
    let series = record.settings.meter.primary_series();
    let mut whole = Distribution::default();
    for cpu in &record.cpus {
        for of in cpu.series.iter().filter(|of| of.series == series) {
            whole.merge(of.corrected.as_ref().unwrap_or(&of.seen));
        }
    }
    whole.backed_quantile(0.99)
}

/// Returns the largest cause of latency that was measured: time that a hypervisor took, then a load that reaches the best
/// domain.
fn measured_cause(evaluation: &Evaluation, best: Option<&BestDomain<'_>>) -> Option<Text> {
    let steal = evaluation.machine.virtualisation.steal;
    if let Some(part) = steal.filter(|part| *part >= MUCH_STEAL)
        && best.is_none_or(|best| !best.by_structure)
    {
        let part = format::percent(part);
        let text = format!("The hypervisor under this machine took {part} of its CPU time.");
        return Some(text.into());
    }
    worst_leak(evaluation, best?).map(Text::from)
}

/// The part of the CPU time from which on a hypervisor is a cause.
const MUCH_STEAL: f64 = 0.01;

/// Returns the finding about the machine to fix first, which was not measured here: an error, or a warning if no cause is
/// `measured`.
fn first_fix(
    evaluation: &Evaluation,
    best: Option<&BestDomain<'_>>,
    measured: bool,
) -> Option<Text> {
    // What every figure of an emulated machine is marked with.
    let about_times = ["not-emulated", "not-a-guest"];
    let by_structure = best.is_some_and(|best| best.by_structure);
    let of_machine = evaluation
        .machine
        .findings
        .iter()
        .chain(&evaluation.settings.findings)
        .filter(|finding| {
            let rule = finding.rule.as_deref().unwrap_or_default();
            !(by_structure && about_times.contains(&rule))
        });
    let ordered = by_harm(of_machine);
    let first = ordered.first();
    if measured && first.is_none_or(|finding| finding.severity < Severity::Error) {
        return None;
    }
    let text = finding_text(first?);
    Some(match ordered.len() - 1 {
        0 => text,
        more => text.and(
            SpanStyle::Plain,
            format!(
                " {} under \u{201c}Findings\u{201d}.",
                plural(more, "more finding")
            ),
        ),
    })
}

fn finding_text(finding: &Finding) -> Text {
    let rule = finding.rule.as_deref().unwrap_or_default();
    let clause = harm(rule).map_or_else(
        || format!("{}: {}", finding.location, finding.what),
        str::to_owned,
    );
    let mut text = Text::prose(&sentence(&clause));
    if let Some(fix) = finding.fix.as_deref().and_then(|fix| fix.lines().next()) {
        text = text.and(SpanStyle::Plain, " Fix: ");
        text.0.extend(Text::prose(fix).0);
        text = text.and(SpanStyle::Plain, ".");
    }
    text
}

/// Returns the load with the largest factor among those that leak into the best domains.
fn worst_leak(evaluation: &Evaluation, best: &BestDomain<'_>) -> Option<String> {
    if best.by_structure {
        return None;
    }
    let leaks = evaluation.verdicts.iter().filter(|verdict| {
        verdict.question == Question::Interference
            && verdict.outcome == VerdictOutcome::Leaks
            && verdict.disturbance.is_none()
            && best.domains.contains(&verdict.domain.as_str())
    });
    let factors = leaks.flat_map(|verdict| {
        let (factors, answers) = match &verdict.figures {
            Some(VerdictFigures::Interference {
                factors, answers, ..
            }) => (factors.as_slice(), answers.as_ref()),
            _ => (&[][..], None),
        };
        let leaks = move |quantile: f64| {
            let answer = answers.and_then(|all| all.on_quantile(quantile));
            answer.is_none_or(|outcome| outcome == VerdictOutcome::Leaks)
        };
        let each = factors.iter().filter(move |(quantile, _)| leaks(*quantile));
        each.map(move |(quantile, factor)| (verdict, *quantile, *factor))
    });
    // By the lower end, since a wide interval has a large estimate by chance.
    let (verdict, quantile, factor) =
        factors.max_by(|(.., one), (.., other)| one.low.total_cmp(&other.low))?;
    let load = verdict.condition.in_words();
    Some(format!(
        "{} of {} is {} times as long {load} as while idle.",
        format::quantile_name(quantile),
        verdict.domain,
        format::factor(factor.estimate)
    ))
}

/// Capitalises the first letter and adds a full stop.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first: String = letters
        .next()
        .map(|letter| letter.to_uppercase().collect())
        .unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

/// Lists names: `a`, `a or b`, `a, b or c`.
fn listed(names: &[&str], word: &str) -> String {
    match names {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} {word} {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_that_rules_nothing_out_is_not_denied() {
        let text = include_str!("../../tests/documents/full.json");
        let mut evaluation: Evaluation = serde_json::from_str(text).expect("an evaluation");
        evaluation
            .verdicts
            .retain(|verdict| verdict.question == Question::SameAsHost);
        let mut text = |outcome| {
            for verdict in &mut evaluation.verdicts {
                verdict.outcome = outcome;
            }
            equal(&evaluation, &["host", "task"])
        };
        assert_eq!(
            text(VerdictOutcome::Holds),
            "No difference between host and task was shown"
        );
        assert_eq!(
            text(VerdictOutcome::Fails),
            "None of host and task was shown to be best"
        );
    }
}
