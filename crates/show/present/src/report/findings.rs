// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors, warnings and notes, the most severe first.

use std::collections::BTreeSet;

use rampart_model::{Evaluation, EvaluationPart, Finding, NotMeasured, Severity, plural};

use super::Report;
use crate::element::{Element, FindingItem, ListItem, Text};

/// Returns findings, the most severe first, each once; those that differ in the found value alone
/// are one. The location is left out where `heading` ends with it. Empty without findings.
pub(crate) fn findings<'a>(
    all: impl IntoIterator<Item = &'a Finding>,
    heading: &str,
) -> Vec<Element> {
    let mut found: Vec<(&Finding, BTreeSet<&str>)> = Vec::new();
    for finding in all {
        let value = finding.found.as_deref();
        match found.iter_mut().find(|(other, _)| same(other, finding)) {
            Some((_, values)) => values.extend(value),
            None => found.push((finding, value.into_iter().collect())),
        }
    }
    if found.is_empty() {
        return Vec::new();
    }
    found.sort_by_key(|(finding, _)| std::cmp::Reverse(finding.severity));
    let items = found.into_iter().map(|(finding, values)| FindingItem {
        severity: finding.severity,
        word: finding.severity.name(),
        location: if !heading.is_empty() && heading.ends_with(&finding.location) {
            String::new()
        } else {
            finding.location.clone()
        },
        what: Text::prose(&finding.what),
        values: value_words(finding, &values),
        fixes: fixes(finding).map(Text::prose).collect(),
    });
    vec![Element::Findings {
        findings: items.collect(),
    }]
}

/// Returns whether two findings differ at most in the value found.
fn same(one: &Finding, other: &Finding) -> bool {
    one.location == other.location
        && one.what == other.what
        && one.expected == other.expected
        && one.fix == other.fix
}

/// `expected 0 %, found 2 %; also 3 %, 7 %`
fn value_words(finding: &Finding, values: &BTreeSet<&str>) -> String {
    let expected = finding.expected.as_ref();
    let found = finding.found.as_ref();
    let mut parts = Vec::new();
    parts.extend(expected.map(|expected| format!("expected {expected}")));
    parts.extend(found.map(|found| format!("found {found}")));
    let mut words = parts.join(", ");
    let others: Vec<&str> = values
        .iter()
        .copied()
        .filter(|value| Some(*value) != finding.found.as_deref())
        .collect();
    if !others.is_empty() {
        words.push_str(&format!("; also {}", others.join(", ")));
    }
    words
}

/// Returns a finding at a location that names more than its own.
fn at(location: String, of: &Finding) -> Finding {
    let location = if location.ends_with(&of.location) {
        location
    } else {
        format!("{location}: {}", of.location)
    };
    Finding {
        location,
        ..of.clone()
    }
}

/// Returns a finding as an error, since an invalid record is never only a warning.
fn error(location: String, of: &Finding) -> Finding {
    Finding {
        severity: Severity::Error,
        ..at(location, of)
    }
}

/// Returns findings of invalid records first, then of the others. Only the page has notes.
pub(super) fn findings_section(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let variants = evaluation.plan_effects.iter().flat_map(|all| &all.records);
    let records: Vec<_> = evaluation
        .records
        .iter()
        .chain(variants.map(|variant| &variant.record))
        .collect();
    let runs = || records.iter().flat_map(|record| &record.runs);
    let rounds = || evaluation.transfers.iter();
    let invalid = records
        .iter()
        .flat_map(|record| record.invalid.iter().map(|of| error(record.id.clone(), of)));
    let invalid_runs = records.iter().copied().flat_map(|record| {
        record.runs.iter().flat_map(move |run| {
            let location = format!("run {} of {}", run.order, record.id);
            run.invalid.iter().map(move |of| {
                // The record is named already.
                let of = Finding {
                    location: if of.location == record.id {
                        String::new()
                    } else {
                        of.location.clone()
                    },
                    ..of.clone()
                };
                error(location.clone(), &of)
            })
        })
    });
    let invalid_rounds = rounds().flat_map(|round| {
        let own = round
            .invalid
            .iter()
            .map(|of| error(format!("round {}", round.id), of));
        own.chain(round.watched.iter().flat_map(|watched| {
            let location = format!("{} in round {}", watched.domain, round.id);
            watched
                .invalid
                .iter()
                .map(move |of| error(location.clone(), of))
        }))
    });
    let planned = evaluation
        .settings
        .transfer
        .iter()
        .flat_map(|plan| &plan.findings);
    let of_rounds = rounds().flat_map(|round| {
        let watched = round.watched.iter().flat_map(|watched| {
            let guest = watched.guest.iter().flat_map(|guest| &guest.findings);
            watched.findings.iter().chain(guest)
        });
        round.findings.iter().chain(watched)
    });
    let shields = runs().flat_map(|run| run.shield.iter().flat_map(|shield| &shield.findings));
    let of_runs = runs().flat_map(|run| {
        let guest = run.guest.iter().flat_map(|guest| &guest.findings);
        run.findings.iter().chain(guest)
    });
    let of_plan = evaluation
        .settings
        .findings
        .iter()
        .chain(&evaluation.findings);
    let groups: [(&str, Vec<Finding>); 8] = [
        ("Records without a verdict", invalid.collect()),
        ("Runs that do not count", invalid_runs.collect()),
        ("Rounds that do not count", invalid_rounds.collect()),
        ("This evaluation", of_plan.cloned().collect()),
        ("Isolation", shields.cloned().collect()),
        ("Runs", of_runs.cloned().collect()),
        (
            "Who disturbs whom",
            planned.chain(of_rounds).cloned().collect(),
        ),
        ("The machine", evaluation.machine.findings.clone()),
    ];
    let mut elements = Vec::new();
    let mut notes_only = true;
    for (number, (title, all)) in groups.iter().enumerate() {
        // What was found in runs and in rounds is shown once.
        let is_new = |of: &&Finding| {
            let mut before = groups[..number].iter().flat_map(|(_, before)| before);
            !before.any(|other| same(other, of))
        };
        let new: Vec<&Finding> = all.iter().filter(is_new).collect();
        if new.is_empty() {
            continue;
        }
        let (notes, grave): (Vec<&Finding>, Vec<&Finding>) = new
            .into_iter()
            .partition(|of| of.severity == Severity::Note);
        let mut notes = findings(notes, "");
        if grave.is_empty() {
            notes.insert(0, Element::heading(3, *title));
        } else {
            notes_only = false;
            elements.push(Element::heading(3, *title));
            elements.extend(findings(grave, ""));
        }
        if !notes.is_empty() {
            elements.push(Element::detail(notes));
        }
    }
    let none = elements.is_empty();
    elements.insert(0, Element::section("findings", "Findings", "Findings"));
    if none {
        elements.push(Element::paragraph("No errors, warnings or notes."));
    }
    if notes_only {
        return vec![Element::detail(elements)];
    }
    elements
}

/// Returns the name of a part of an evaluation, without the domains of a round.
fn part_name(part: &EvaluationPart) -> String {
    match part {
        EvaluationPart::Domain(domain) => format!("domain {domain}"),
        EvaluationPart::DomainAfterFailures(domain) => {
            format!("domain {domain}, from its second failure on")
        }
        EvaluationPart::Meter { domain, meter } => format!("{domain}/{meter}"),
        EvaluationPart::Load(load) => format!("load {}", load.word()),
        EvaluationPart::LoadsOfStressNg => "loads by stress-ng".to_owned(),
        EvaluationPart::Disturbances => "disturbances between domains".to_owned(),
        EvaluationPart::Disturbance(disturbance) => format!("disturbance {disturbance}"),
        EvaluationPart::Record(id) => format!("record {id}"),
        EvaluationPart::Round { id, .. } => format!("round {id}"),
        EvaluationPart::Change(change) => change.to_string(),
    }
}

/// Returns a part of an evaluation in words.
pub(crate) fn part_words(part: &EvaluationPart) -> String {
    let name = part_name(part);
    match part {
        EvaluationPart::Round { domains, .. } => format!("{name} in {}", domains.join(", ")),
        _ => name,
    }
}

/// Returns the heading and findings of something that was not measured.
pub(super) fn not_measured_findings(of: &NotMeasured) -> Vec<Element> {
    let mut elements = vec![Element::heading(4, Text::from(&part_words(&of.part)))];
    elements.extend(findings(&of.findings, &part_name(&of.part)));
    elements
}

/// Returns the parts that were not measured: those that failed with their reasons, then in one line
/// what this machine does not have, what was not requested and what was not reached.
pub(super) fn not_measured(report: &Report<'_>) -> Vec<Element> {
    let evaluation = report.evaluation;
    let (absent, failed): (Vec<&NotMeasured>, Vec<&NotMeasured>) = evaluation
        .not_measured
        .iter()
        .partition(|one| is_absent(evaluation, one));
    let mut names = names(&absent);
    let mut reasons: Vec<ListItem> = absent
        .iter()
        .map(|one| reason(&one.part, &one.findings))
        .collect();
    for one in evaluation.availability.iter().filter(|one| !one.available) {
        let name = one.domain.to_string();
        let part = EvaluationPart::Domain(name.clone());
        if evaluation
            .not_measured
            .iter()
            .all(|other| other.part != part)
        {
            reasons.push(reason(&part, &one.findings));
            names.push(name);
        }
    }
    let mut elements: Vec<Element> = failed.into_iter().flat_map(not_measured_findings).collect();
    if !names.is_empty() {
        elements.push(Element::paragraph(format!(
            "Not on this machine, not requested or not reached: {}.",
            names.join(", ")
        )));
        elements.push(Element::folded(
            format!("{} with reasons", plural(reasons.len(), "part")),
            vec![Element::List { items: reasons }],
        ));
    }
    let heading = Element::section("not-measured", "Not measured", "Not measured");
    if elements.is_empty() {
        let all = Element::paragraph("Everything that was planned was measured.");
        return vec![Element::detail(vec![heading, all])];
    }
    elements.insert(0, heading);
    elements
}

/// Returns the names of parts; several records and rounds are one.
fn names(parts: &[&NotMeasured]) -> Vec<String> {
    let (runs, others): (Vec<&EvaluationPart>, Vec<&EvaluationPart>) =
        parts.iter().map(|one| &one.part).partition(|part| {
            matches!(
                part,
                EvaluationPart::Record(_) | EvaluationPart::Round { .. }
            )
        });
    let name = |part: &EvaluationPart| match part {
        EvaluationPart::Domain(domain) => domain.clone(),
        part => part_words(part),
    };
    let mut names: Vec<String> = others.into_iter().map(name).collect();
    match runs[..] {
        [] => {}
        [one] => names.push(name(one)),
        _ => names.push(format!("{} records and rounds", runs.len())),
    }
    names
}

/// Returns whether a part is missing without a fault: the machine cannot host the domain and no user
/// asked for it, or only notes explain it.
fn is_absent(evaluation: &Evaluation, one: &NotMeasured) -> bool {
    let is_unavailable = match &one.part {
        EvaluationPart::Domain(domain) => {
            let mut planned = evaluation.settings.domains.iter();
            let mut kinds = evaluation.availability.iter();
            planned.all(|planned| planned.name != *domain)
                && kinds.any(|kind| !kind.available && kind.domain.to_string() == *domain)
        }
        _ => false,
    };
    is_unavailable
        || one
            .findings
            .iter()
            .all(|finding| finding.severity == Severity::Note)
}

fn fixes(finding: &Finding) -> impl Iterator<Item = &str> {
    finding.fix.iter().flat_map(|fix| fix.lines())
}

/// Returns why a part is missing, without a severity: it is not a fault of the evaluation.
fn reason(part: &EvaluationPart, findings: &[Finding]) -> ListItem {
    let name = part_name(part);
    let texts: Vec<String> = findings
        .iter()
        .map(|finding| {
            let location = match finding.location.as_str() {
                location if name.ends_with(location) => String::new(),
                location => format!("{location}: "),
            };
            let fixes: String = fixes(finding).map(|fix| format!(" Fix: {fix}.")).collect();
            format!("{location}{}.{fixes}", finding.what)
        })
        .collect();
    ListItem {
        label: part_words(part),
        text: Text::prose(&texts.join(" ")),
        items: Vec::new(),
    }
}
