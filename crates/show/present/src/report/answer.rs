// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The start of the report: machine, progress, answers.

use jiff::Timestamp;
use rampart_model::{
    Bench, Evaluation, EvaluationState, MeterKind, Nanos, Question, Severity, Verdict,
    VerdictOutcome, plural,
};

use super::Report;
use super::next_command::about;
use crate::element::{
    Answer, Badge, Column, ColumnKind, Element, Entry, Outcome, Row, SpanStyle, Table, TableStyle,
    Text,
};
use crate::{format, transfer_matrix};

/// Returns the machine, and a warning if its times are not real.
pub(super) fn head(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let name = match evaluation.machine.host_name.as_str() {
        "" => "unnamed machine",
        name => name,
    };
    let mut all = vec![
        Element::Heading {
            level: 1,
            id: "top".to_owned(),
            text: name.into(),
            name: String::new(),
        },
        Element::paragraph(format::machine(evaluation)),
    ];
    if let Bench::Ssh { host } = &evaluation.bench {
        all.push(Element::paragraph(
            Text::from("Measured on ")
                .and(SpanStyle::Strong, host)
                .and(SpanStyle::Plain, ", over ssh."),
        ));
    }
    all.extend(emulation(evaluation));
    all
}

/// Returns what limits the figures, and when they were measured.
pub(super) fn circumstances(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let mut all = alarms(evaluation);
    all.push(Element::paragraph(state_line(evaluation)));
    if let Some(measured) = &evaluation.settings.measured {
        all.push(Element::paragraph(format::measured_plan(
            evaluation, measured,
        )));
    }
    all.extend(packages(evaluation));
    all
}

fn state_line(evaluation: &Evaluation) -> Text {
    let (made, planned) = evaluation.runs;
    let complete = evaluation.state == EvaluationState::Complete && made == planned;
    let mut parts = Vec::new();
    if complete {
        parts.push(format!("Complete: {made} of {planned} runs"));
    }
    parts.push(format!(
        "{} {}",
        if complete { "began" } else { "Began" },
        format::moment(&evaluation.started, Nanos::ZERO, false)
    ));
    if let Some(lasted) = lasted(evaluation).filter(|lasted| *lasted > Nanos::ZERO) {
        let word = match evaluation.state {
            EvaluationState::Complete => "took",
            _ => "last written after",
        };
        parts.push(format!("{word} {}", format::time(lasted)));
    }
    parts.extend(still_open(evaluation));
    parts.push(if evaluation.settings.deadline_from_user {
        format!("deadline {}", format::time(evaluation.settings.deadline))
    } else {
        "no deadline given (--deadline sets one)".to_owned()
    });
    parts.push(format!("rampart {}", evaluation.tool_version));
    parts.join(" · ").into()
}

/// Returns how much is inconclusive, with the time that would decide it if it is known; `None` if all is decided,
/// or if the machine is emulated, whose times decide nothing.
fn still_open(evaluation: &Evaluation) -> Option<String> {
    let open = inconclusive(evaluation);
    let judged = !open.is_empty() && !evaluation.machine.virtualisation.emulated;
    judged.then(|| match evaluation.comparison.decided_after {
        Some(after) => {
            let after = about(after);
            format!("{open} inconclusive: measuring for about {after} would decide more (--until-decided)")
        }
        None => format!("{open} inconclusive"),
    })
}

/// Formats `2 of 12 comparisons and 1 of 4 disturbances of other domains`.
pub(crate) fn inconclusive(evaluation: &Evaluation) -> String {
    let counts = [
        (count_of_open_comparisons(evaluation), "comparisons"),
        (
            count_of_open_disturbances(evaluation),
            "disturbances of other domains",
        ),
    ];
    let open: Vec<String> = counts
        .iter()
        .filter(|((open, _), _)| *open > 0)
        .map(|((open, all), of)| format!("{open} of {all} {of}"))
        .collect();
    open.join(" and ")
}

/// Returns the number of inconclusive comparisons with the host and with loads, and that of all.
fn count_of_open_comparisons(evaluation: &Evaluation) -> (usize, usize) {
    let comparisons = evaluation.verdicts.iter().filter(|verdict| {
        verdict.disturbance.is_none()
            && matches!(
                verdict.question,
                Question::SameAsHost | Question::Interference
            )
    });
    count_of_open(comparisons)
}

/// Returns the number of inconclusive verdicts on disturbances of other domains, and that of all.
fn count_of_open_disturbances(evaluation: &Evaluation) -> (usize, usize) {
    count_of_open(evaluation.verdicts.iter().filter(|verdict| {
        let by = verdict.disturbance.as_ref();
        by.is_some_and(|by| by.domain != verdict.domain)
    }))
}

fn count_of_open<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> (usize, usize) {
    let (open, decided): (Vec<_>, Vec<_>) =
        verdicts.partition(|verdict| verdict.outcome == VerdictOutcome::Inconclusive);
    (open.len(), open.len() + decided.len())
}

fn lasted(evaluation: &Evaluation) -> Option<Nanos> {
    let started: Timestamp = evaluation.started.parse().ok()?;
    let written: Timestamp = evaluation.written.parse().ok()?;
    let nanos = written.as_nanosecond() - started.as_nanosecond();
    u64::try_from(nanos).ok().map(Nanos)
}

fn alarm(severity: Severity, title: impl Into<String>, text: impl Into<Text>) -> Element {
    Element::Alarm {
        severity,
        title: title.into(),
        text: text.into(),
    }
}

fn emulation(evaluation: &Evaluation) -> Option<Element> {
    match &evaluation.bench {
        Bench::Sim {
            emulator, kernel, ..
        } => Some(alarm(
            Severity::Error,
            "Simulated machine: microseconds are not real.",
            format!(
                "Real here: Linux {kernel} with its scheduler, locks and interrupts, containers, KVM if this kernel has it, \
                 and so which domain can disturb which. Not real: times, caches, memory buses, idle states and frequencies, \
                 because the CPUs are emulated in software. Verdicts depend on whether a disturbance of known length reaches \
                 other domains. \
                 Emulator: {emulator}."
            ),
        )),
        _ if evaluation.machine.virtualisation.emulated => Some(alarm(
            Severity::Error,
            "Emulated machine: microseconds are not real.",
            "Its CPUs are emulated in software. This report shows only which domain can disturb which.",
        )),
        _ => None,
    }
}

/// Returns the packages of a simulated machine.
fn packages(evaluation: &Evaluation) -> Option<Element> {
    let Bench::Sim { packages, .. } = &evaluation.bench else {
        return None;
    };
    if packages.is_empty() {
        return None;
    }
    let rows = packages.iter().map(|(name, version)| {
        Row::new(vec![Text::of(SpanStyle::Code, name).into(), version.into()])
    });
    let columns = ["package", "version"].map(|name| Column::new(ColumnKind::Text, name));
    Some(Element::folded(
        format!("Built from {}", plural(packages.len(), "package")),
        vec![Element::Table(Table::new(
            TableStyle::Lines,
            "Packages of the simulated machine",
            columns.into(),
            rows.collect(),
        ))],
    ))
}

fn alarms(evaluation: &Evaluation) -> Vec<Element> {
    let mut all = Vec::new();
    let (made, planned) = evaluation.runs;
    let partial = "All figures are from these runs only.";
    match evaluation.state {
        EvaluationState::Running => all.push(alarm(
            Severity::Warning,
            format!("Killed, or still running: {made} of {planned} runs."),
            partial,
        )),
        EvaluationState::EndedEarly => all.push(alarm(
            Severity::Warning,
            format!("Ended early on request: {made} of {planned} runs."),
            partial,
        )),
        EvaluationState::Complete if made != planned => all.push(alarm(
            Severity::Warning,
            format!("Only {made} of {planned} runs were made."),
            "",
        )),
        EvaluationState::Complete => {}
    }
    let records = &evaluation.records;
    let invalid: Vec<&str> = records
        .iter()
        .filter(|record| !record.invalid.is_empty())
        .map(|record| record.id.as_str())
        .collect();
    if !invalid.is_empty() {
        all.push(alarm(
            Severity::Warning,
            format!(
                "{} of {} {}:",
                invalid.len(),
                plural(records.len(), "record"),
                if invalid.len() == 1 {
                    "is invalid and has no verdict"
                } else {
                    "are invalid and have no verdict"
                }
            ),
            format!(
                "{}. The reasons are under \"Findings\".",
                invalid.join(", ")
            ),
        ));
    }
    all
}

const QUESTIONS: [(Question, &str); 5] = [
    (Question::Deadline, "deadline"),
    (Question::SameAsHost, "compared with host"),
    (Question::Interference, "load elsewhere"),
    (Question::Transfer, "blocks elsewhere"),
    (Question::Crash, "crash of the host"),
];

/// Returns one sentence for each domain, with the most severe outcome of each question.
pub(super) fn answers(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let sentences = &evaluation.comparison.sentences;
    if sentences.is_empty() {
        return Vec::new();
    }
    let answers = sentences.iter().map(|(name, sentence)| {
        let domain = evaluation
            .settings
            .domains
            .iter()
            .find(|of| of.name == *name);
        let badges = QUESTIONS.iter().filter_map(|(question, words)| {
            let all: Vec<&Verdict> = evaluation
                .verdicts
                .iter()
                .filter(|of| of.domain == *name && of.question == *question)
                .filter(|of| of.disturbance.as_ref().is_none_or(|by| by.domain != *name))
                .collect();
            let verdict = gravest(&all)?;
            let more = match all.len() {
                1 => String::new(),
                several => format!(" (the most severe of {several} verdicts)"),
            };
            let (outcome, word) = report.outcome(verdict);
            Some(Badge {
                outcome,
                sign: outcome.sign(),
                about: (*words).to_owned(),
                word,
                word_seen: true,
                link: report.anchor(verdict),
                hint: format!("{}: {}{more}", subject(verdict), verdict.statement),
            })
        });
        Answer {
            name: name.clone(),
            place: domain.map_or_else(String::new, |of| of.cpus.named().to_string()),
            sentence: Text::prose(&format::prose(sentence)),
            badges: badges.collect(),
            description: domain.map_or_else(String::new, |of| of.description.clone()),
        }
    });
    vec![Element::Answers {
        answers: answers.collect(),
    }]
}

/// Returns the first verdict with the most severe outcome.
fn gravest<'a>(verdicts: &[&'a Verdict]) -> Option<&'a Verdict> {
    let gravity = |of: &Verdict| match of.outcome {
        VerdictOutcome::Holds => 0,
        VerdictOutcome::Inconclusive => 1,
        VerdictOutcome::Leaks => 2,
        VerdictOutcome::Fails => 3,
    };
    let worst = verdicts.iter().map(|of| gravity(of)).max()?;
    verdicts.iter().copied().find(|of| gravity(of) == worst)
}

/// Returns the condition or disturbance of a verdict.
pub(crate) fn subject(verdict: &Verdict) -> String {
    match &verdict.disturbance {
        Some(disturbance) => disturbance.to_string(),
        None if verdict.question == Question::Crash => "crash:host".to_owned(),
        None => verdict.condition.to_string(),
    }
}

/// If an answer has more evidence, the verdicts that hold are folded.
const SHOWN: usize = 6;

/// Returns a table of the questions with the answer for each domain and its verdicts.
pub(super) fn comparison(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let Some(first) = evaluation.comparison.rows.first() else {
        return Vec::new();
    };
    let leading = evaluation.settings.meters.first().map(|plan| plan.meter);
    let mut columns = vec![Column::new(ColumnKind::Text, "")];
    let domains = first.entries.iter().map(|entry| entry.domain.as_str());
    columns.extend(domains.map(|domain| Column::new(ColumnKind::Text, domain)));
    let rows = evaluation.comparison.rows.iter().map(|row| {
        let mut entries = vec![Entry::from(&row.question)];
        entries.extend(row.entries.iter().map(|of| {
            let verdicts: Vec<&Verdict> = of
                .verdicts
                .iter()
                .filter_map(|id| evaluation.verdicts.iter().find(|verdict| verdict.id == *id))
                .collect();
            let mut entry = Entry::outcome(
                of.outcome.map(Outcome::from),
                Text::of(SpanStyle::Strong, &of.answer),
            );
            entry.detail = vec![Element::remark(Text::prose(&format::prose(&of.reason)))];
            entry
                .detail
                .extend(evidence(report, &of.domain, &verdicts, leading));
            entry
        }));
        Row::new(entries)
    });
    let rows = rows.collect();
    let caption = "The questions, each answered for each domain";
    vec![
        Element::section("comparison", "Comparison", "Answers"),
        Element::Table(Table::new(TableStyle::Lines, caption, columns, rows).class("comparison")),
    ]
}

/// Returns the verdicts behind an answer.
fn evidence(
    report: &Report<'_>,
    domain: &str,
    verdicts: &[&Verdict],
    leading: Option<MeterKind>,
) -> Option<Element> {
    if verdicts.is_empty() {
        return None;
    }
    let badge = |verdict: &&Verdict| {
        let control = transfer_matrix::is_control(verdict);
        let mut about = subject(verdict);
        if Some(verdict.meter) != leading && verdict.disturbance.is_none() {
            about.push_str(&format!(" {}", verdict.meter));
        }
        if verdict.domain != domain {
            about.push_str(&format!(" in {}", verdict.domain));
        }
        if control {
            let affected = transfer_matrix::is_affected(verdict);
            about.push_str(if affected {
                " (control)"
            } else {
                " (control failed)"
            });
        }
        let (outcome, word) = if control {
            (Outcome::Own, String::new())
        } else {
            report.outcome(verdict)
        };
        let begin = if control {
            verdict.outcome.to_string()
        } else {
            word.clone()
        };
        Badge {
            outcome,
            sign: outcome.sign(),
            about,
            word,
            word_seen: false,
            link: report.anchor(verdict),
            hint: format!("{begin}: {}", verdict.statement),
        }
    };
    let fold = |of: &&Verdict| verdicts.len() > SHOWN && of.outcome == VerdictOutcome::Holds;
    let (holding, shown): (Vec<&Verdict>, Vec<&Verdict>) = verdicts.iter().partition(|of| fold(of));
    let and = if shown.is_empty() { "" } else { "and " };
    Some(Element::Badges {
        badges: shown.iter().map(badge).collect(),
        summary: match holding.len() {
            0 => String::new(),
            count => format!("{and}{count} that hold"),
        },
        folded: holding.iter().map(badge).collect(),
    })
}
