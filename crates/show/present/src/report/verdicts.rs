// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Verdicts with their figures.

use rampart_model::{
    Answers, Interval, Nanos, Question, StallAnswer, StolenAnswer, Verdict, VerdictFigures,
    VerdictOutcome,
};

use super::Report;
use super::interval::RatioAxis;
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// Returns the verdicts on a question; those on disturbances are in the matrix.
fn asked<'a>(report: &Report<'a>, question: Question) -> Vec<&'a Verdict> {
    let verdicts = report.evaluation.verdicts.iter();
    verdicts
        .filter(|verdict| verdict.question == question && verdict.disturbance.is_none())
        .collect()
}

fn several_meters(verdicts: &[&Verdict]) -> bool {
    verdicts
        .windows(2)
        .any(|pair| pair[0].meter != pair[1].meter)
}

/// The columns that name a verdict.
fn name_columns(several_meters: bool) -> Vec<Column> {
    let text = |name| Column::new(ColumnKind::Text, name);
    let mut columns = vec![text("domain"), text("condition")];
    columns.extend(several_meters.then(|| text("meter")));
    columns.push(Column::new(ColumnKind::Outcome, "verdict"));
    columns
}

/// Returns the entries of a verdict. Without figures the statement follows the outcome.
fn names(report: &Report<'_>, verdict: &Verdict, several_meters: bool, bare: bool) -> Vec<Entry> {
    let mut entries = vec![
        report.name(&verdict.domain).into(),
        verdict.condition.to_string().into(),
    ];
    entries.extend(several_meters.then(|| verdict.meter.word().into()));
    let (outcome, word) = report.outcome(verdict);
    let mut entry = Entry::outcome(Some(outcome), word);
    if bare {
        entry.detail = vec![Element::remark(format::prose(&verdict.statement))];
    }
    entries.push(entry);
    entries
}

fn row(report: &Report<'_>, verdict: &Verdict, entries: Vec<Entry>) -> Row {
    Row {
        id: report.anchor(verdict),
        hint: format!(
            "{} ({})",
            verdict.statement,
            format::exposure(&verdict.exposure)
        ),
        entries,
        ..Row::default()
    }
}

/// Returns the verdicts on the deadline: exceedances, the bound on bursts, the exposure.
pub(super) fn deadline(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::Deadline);
    if verdicts.is_empty() {
        return reached(report);
    }
    let plan = &report.evaluation.settings;
    let own = plan.domains.iter().any(|one| one.deadline.is_some());
    let title = if own {
        "of each domain".to_owned()
    } else {
        format::time(plan.deadline)
    };
    let several = several_meters(&verdicts);
    let figure = |name| Column::new(ColumnKind::Figure, name);
    let mut columns = name_columns(several);
    columns.extend(own.then(|| figure("deadline")));
    columns.extend(["over", "cycles"].map(figure));
    columns.push(figure("worst").detail());
    // Documents of older versions bound the chance of a cycle.
    let by_visits = verdicts.iter().any(|verdict| {
        matches!(
            verdict.figures,
            Some(VerdictFigures::Deadline {
                visits: Some(_),
                ..
            })
        )
    });
    columns.push(figure(if by_visits { "visits" } else { "chance" }));
    columns.extend(["between", "confidence"].map(figure));
    columns.push(Column::new(ColumnKind::Text, "exposure").detail());
    let rows = verdicts.into_iter().map(|verdict| {
        let bare = verdict.figures.is_none();
        let mut entries = names(report, verdict, several, bare);
        entries.extend(own.then(|| format::time(plan.deadline_of(&verdict.domain)).into()));
        if let Some(VerdictFigures::Deadline {
            cycles,
            exceedances,
            visits,
            upper_bound,
            confidence,
            time_between_violations,
            max,
            ..
        }) = &verdict.figures
        {
            let between =
                time_between_violations.map(|time| format!("≥\u{a0}{}", format::time(time)));
            entries.extend([
                format::grouped(*exceedances).into(),
                format::count(*cycles).into(),
                format::time(*max).into(),
                Text::of(
                    SpanStyle::Strong,
                    match visits {
                        Some((with, all)) => {
                            format!("{with} of {all} (≤\u{a0}{})", format::chance(*upper_bound))
                        }
                        None => format!("≤\u{a0}{}", format::chance(*upper_bound)),
                    },
                )
                .into(),
                Text::of(SpanStyle::Strong, between.unwrap_or_else(|| "–".to_owned())).into(),
                format::confidence(*confidence).into(),
            ]);
        } else {
            entries.extend(["–"; 6].map(Entry::from));
        }
        entries.push(format::exposure(&verdict.exposure).into());
        row(report, verdict, entries)
    });
    let rows = rows.collect();
    let caption = "Verdicts on the deadline";
    vec![
        Element::section(
            "deadline",
            if by_visits {
                format!("Deadline {title}: the visits that missed it, and how long between bursts")
            } else {
                format!(
                    "Deadline {title}: the chance that a cycle misses it, and how long between misses"
                )
            },
            "Deadline",
        ),
        Element::detail(vec![Element::remark(if by_visits {
            "A miss is a sample over the deadline, or a missed period whose corrected lateness is over it. \
                 Misses come in bursts. The bound on the time between bursts rests on how many visits (runs of the \
                 measurement) had a miss: without any in a time T it is about T/3. A longer run shows more."
        } else {
            "A miss is a sample over the deadline, or a missed period whose corrected lateness is over it. \
                 No miss in n cycles only shows that the chance is less than about 3/n, and no miss in a time T that \
                 misses are at least about T/3 apart. A longer run shows more."
        })]),
        Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("verdicts")),
    ]
}

/// Returns the worst samples and the round deadlines that were met, for an evaluation without a
/// deadline from the user.
fn reached(report: &Report<'_>) -> Vec<Element> {
    let all = &report.evaluation.comparison.reached;
    let Some(confidence) = all.first().map(|first| first.confidence) else {
        return Vec::new();
    };
    let text = |name| Column::new(ColumnKind::Text, name);
    let figure = |name| Column::new(ColumnKind::Figure, name);
    let columns = vec![
        text("domain"),
        text("condition"),
        text("meter"),
        figure("worst"),
        figure("cycles"),
        figure("would meet"),
        figure("over the next lower deadline"),
        figure("time between worse"),
    ];
    let rows = all.iter().filter_map(|reached| {
        let record = report.evaluation.record(&reached.record)?;
        let met = reached.deadlines.last().filter(|(_, over)| *over == 0);
        let missed = reached.deadlines.iter().rev().find(|(_, over)| *over > 0);
        Some(Row::new(vec![
            report.name(&record.domain).into(),
            record.condition.to_string().into(),
            record.settings.meter.word().into(),
            format::time(reached.worst).into(),
            format::count(reached.cycles).into(),
            Text::of(
                SpanStyle::Strong,
                met.map_or_else(|| "–".to_owned(), |(deadline, _)| format::time(*deadline)),
            )
            .into(),
            missed
                .map_or_else(
                    || "–".to_owned(),
                    |(deadline, over)| {
                        format!("{}: {}", format::time(*deadline), format::grouped(*over))
                    },
                )
                .into(),
            format!("≥\u{a0}{}", format::time(reached.between)).into(),
        ]))
    });
    let rows = rows.collect();
    let caption = "Round deadlines that were met";
    vec![
        Element::section(
            "deadline",
            "No deadline was given: the worst samples, and which deadline would have been met",
            "Deadline",
        ),
        Element::detail(vec![Element::remark(format!(
            "With --deadline there are verdicts. Bursts of samples that are worse than the worst are at least so far apart \
             on average, at {} confidence.",
            format::confidence(confidence)
        ))]),
        Element::Table(Table::new(TableStyle::Figures, caption, columns, rows)),
    ]
}

/// Returns the negative control in one line.
fn control(report: &Report<'_>) -> Option<Element> {
    let control = report.evaluation.comparison.control.as_ref()?;
    let text = if control.outcome == VerdictOutcome::Fails {
        "differs from itself, so that no comparison of this evaluation decides anything"
    } else {
        "does not differ from itself"
    };
    Some(Element::remark(format!(
        "Negative control: {} {text} ({}).",
        control.record, control.statement
    )))
}

fn intervals(verdict: &Verdict) -> &[(f64, Interval)] {
    match &verdict.figures {
        Some(VerdictFigures::Interference { factors, .. }) => factors,
        Some(VerdictFigures::SameAsHost { ratios, .. }) => ratios,
        _ => &[],
    }
}

/// The answers on each question; `None` in documents of older versions.
fn answers(verdict: &Verdict) -> Option<&Answers> {
    match &verdict.figures {
        Some(
            VerdictFigures::Interference { answers, .. }
            | VerdictFigures::SameAsHost { answers, .. },
        ) => answers.as_ref(),
        _ => None,
    }
}

/// The lengths above which samples are compared, ascending.
fn stall_lengths(verdicts: &[&Verdict]) -> Vec<Nanos> {
    let mut lengths: Vec<Nanos> = verdicts
        .iter()
        .filter_map(|verdict| answers(verdict))
        .flat_map(|answers| &answers.stalls)
        .map(|stall| stall.over)
        .collect();
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// Samples above a length on both sides, and how many more there may be.
fn stall_entry(stall: &StallAnswer) -> Entry {
    Entry::outcome(
        Some(stall.outcome.into()),
        format!(
            "{} against {} (≤\u{a0}+{}/s)",
            format::grouped(stall.events.0),
            format::grouped(stall.events.1),
            format::factor(stall.added_at_most.max(0.0))
        ),
    )
}

/// Stolen time on both sides, and how much more there may be.
fn stolen_entry(stolen: &StolenAnswer) -> Entry {
    let percent = |share: f64| format!("{:.3}\u{a0}%", share * 100.0);
    let more = stolen.added_at_most.map_or_else(String::new, |bound| {
        format!(" (≤\u{a0}+{})", percent(bound.max(0.0)))
    });
    Entry::outcome(
        Some(stolen.outcome.into()),
        format!(
            "{} against {}{more}",
            percent(stolen.shares.0),
            percent(stolen.shares.1)
        ),
    )
}

/// An entry for a ratio without an interval: too few visits, or a quantile that was not compared.
fn too_few(verdict: &Verdict, quantile: f64) -> Entry {
    let asked = answers(verdict).filter(|answers| {
        answers
            .quantiles
            .iter()
            .any(|answer| answer.quantile == quantile)
    });
    asked.map_or_else(
        || "–".into(),
        |answers| format!("too few ({})", answers.visits.0.min(answers.visits.1)).into(),
    )
}

fn tolerance(verdict: &Verdict) -> Option<f64> {
    match &verdict.figures {
        Some(
            VerdictFigures::Interference { tolerance, .. }
            | VerdictFigures::SameAsHost { tolerance, .. },
        ) => Some(*tolerance),
        _ => None,
    }
}

/// An estimate with the ends of its interval, drawn on the axis.
pub(super) fn ratio_entry(of: &Interval, axis: RatioAxis, outcome: Outcome, star: &str) -> Entry {
    let ends = format!(" ({}–{})", format::factor(of.low), format::factor(of.high));
    Entry {
        text: Text::of(SpanStyle::Strong, format::factor(of.estimate))
            .and(SpanStyle::Plain, ends + star),
        drawing: Some(axis.drawing(of, outcome)),
        ..Entry::default()
    }
}

/// The columns of quantiles, with the axis of their drawings.
pub(super) fn quantile_columns(quantiles: &[f64], axis: RatioAxis) -> impl Iterator<Item = Column> {
    quantiles.iter().map(move |quantile| Column {
        axis: Some(axis.axis()),
        ..Column::new(ColumnKind::Figure, format::quantile_name(*quantile))
    })
}

fn ratios(report: &Report<'_>, verdicts: &[&Verdict], caption: &str) -> Element {
    let mut quantiles: Vec<f64> = verdicts
        .iter()
        .flat_map(|verdict| {
            let asked = answers(verdict).map_or(&[][..], |answers| &answers.quantiles);
            let compared = intervals(verdict).iter().map(|(quantile, _)| *quantile);
            compared.chain(asked.iter().map(|answer| answer.quantile))
        })
        .collect();
    quantiles.sort_by(f64::total_cmp);
    quantiles.dedup();
    let widest = verdicts.iter().filter_map(|of| tolerance(of));
    let axis = RatioAxis::of(
        verdicts
            .iter()
            .flat_map(|verdict| intervals(verdict))
            .map(|(_, interval)| interval),
        widest.fold(1.0, f64::max),
    );
    let several = several_meters(verdicts);
    let mut columns = name_columns(several);
    columns.extend(quantile_columns(&quantiles, axis));
    let lengths = stall_lengths(verdicts);
    let stolen = verdicts
        .iter()
        .filter_map(|verdict| answers(verdict))
        .any(|answers| answers.stolen.is_some());
    columns.extend(stolen.then(|| Column::new(ColumnKind::Figure, "stolen time")));
    columns.extend(lengths.iter().map(|length| {
        Column::new(
            ColumnKind::Figure,
            format!("over\u{a0}{}", format::time(*length)),
        )
    }));
    let empty = quantiles.is_empty() && lengths.is_empty();
    columns.extend(empty.then(|| Column::new(ColumnKind::Text, "why")));
    let rows = verdicts.iter().map(|verdict| {
        let bare = intervals(verdict).is_empty() && answers(verdict).is_none() && !empty;
        let mut entries = names(report, verdict, several, bare);
        let mut own = axis;
        own.tolerance = tolerance(verdict).unwrap_or(1.0);
        entries.extend(quantiles.iter().map(|quantile| {
            let interval = intervals(verdict).iter().find(|(of, _)| of == quantile);
            interval.map_or_else(
                || too_few(verdict, *quantile),
                |(_, of)| ratio_entry(of, own, verdict.outcome.into(), ""),
            )
        }));
        entries.extend(stolen.then(|| {
            let stolen = answers(verdict).and_then(|answers| answers.stolen.as_ref());
            stolen.map_or_else(|| "–".into(), stolen_entry)
        }));
        entries.extend(lengths.iter().map(|length| {
            let stall = answers(verdict)
                .and_then(|answers| answers.stalls.iter().find(|stall| stall.over == *length));
            stall.map_or_else(|| "–".into(), stall_entry)
        }));
        entries.extend(empty.then(|| Entry::from(&verdict.statement)));
        row(report, verdict, entries)
    });
    let rows = rows.collect();
    Element::Table(Table::new(TableStyle::Figures, caption, columns, rows).class("ratios"))
}

/// `95 % `, or nothing without intervals.
fn confidence(verdicts: &[&Verdict]) -> String {
    let first = verdicts.iter().flat_map(|of| intervals(of)).next();
    first.map_or_else(String::new, |(_, interval)| {
        format!("{} ", format::confidence(interval.confidence))
    })
}

/// Explains the columns of stalls, if there are any.
fn about_stalls(verdicts: &[&Verdict]) -> String {
    let tolerated: Vec<String> = stall_lengths(verdicts)
        .iter()
        .filter_map(|length| {
            let stalls = verdicts
                .iter()
                .filter_map(|verdict| answers(verdict))
                .flat_map(|answers| &answers.stalls);
            let most = stalls
                .filter(|stall| stall.over == *length)
                .map(|stall| stall.tolerated)
                .reduce(f64::max)?;
            Some(format!("{}/s over {length}", format::factor(most)))
        })
        .collect();
    if tolerated.is_empty() {
        return String::new();
    }
    format!(
        " The columns on lengths count the samples over them on both sides, a stall of many periods as one, and bound how \
         many more there may be per second. Tolerated are {}.",
        tolerated.join(" and ")
    )
}

/// Returns the interference factors: loaded ÷ idle.
pub(super) fn interference(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::Interference);
    if verdicts.is_empty() {
        return Vec::new();
    }
    let tolerated = verdicts.iter().find_map(|of| tolerance(of));
    let tolerated = tolerated.map_or_else(String::new, |tolerance| {
        format!(
            " The isolation counts as holding up to {} (shaded).",
            format::factor(tolerance)
        )
    });
    vec![
        Element::section(
            "interference",
            "Interference factors: loaded ÷ idle, with intervals; 1 is no effect",
            "Interference",
        ),
        Element::detail(vec![Element::remark(format!(
            "A quantile under load divided by the same quantile idle, with its {}interval.{tolerated}{}",
            confidence(&verdicts),
            about_stalls(&verdicts)
        ))]),
        ratios(report, &verdicts, "Interference factors"),
    ]
}

/// Returns the ratios to the host.
pub(super) fn same_as_host(report: &Report<'_>) -> Vec<Element> {
    let verdicts = asked(report, Question::SameAsHost);
    if verdicts.is_empty() {
        return Vec::new();
    }
    let detectable = verdicts
        .iter()
        .filter_map(|verdict| match &verdict.figures {
            Some(VerdictFigures::SameAsHost {
                smallest_detectable,
                ..
            }) => *smallest_detectable,
            _ => None,
        });
    let detectable = detectable.max_by(f64::total_cmp);
    let mut remark = format!(
        "A quantile in the domain divided by the same quantile on the host, measured in turn, with its {}interval. \
         Less than 1: the domain is faster.",
        confidence(&verdicts)
    );
    if verdicts.iter().any(|of| answers(of).is_some()) {
        remark.push_str(" Their CPUs differ, and the meter's reader shares one of the host's.");
    }
    remark.push_str(&about_stalls(&verdicts));
    if let Some(tolerance) = verdicts.iter().find_map(|of| tolerance(of)) {
        remark.push_str(&format!(
            " Up to {} counts as no worse (shaded).",
            format::factor(tolerance)
        ));
    }
    if let Some(smallest) = detectable {
        remark.push_str(&format!(
            " This exposure can distinguish a ratio of {} from 1.",
            format::factor(smallest)
        ));
    }
    let mut elements = vec![
        Element::section(
            "same-as-host",
            "Compared with the host: domain ÷ host, with intervals; 1 is the same",
            "Host",
        ),
        Element::detail(vec![Element::remark(remark)]),
        ratios(report, &verdicts, "Ratios to the host"),
    ];
    elements.extend(control(report));
    elements
}
