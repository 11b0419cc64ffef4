// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rules of the catalogue that affect every figure of an evaluation.

use std::cmp::Reverse;

use rampart_model::{CheckLocation, Finding};

use crate::entry::location_texts;
use crate::machine::assess::assess;
use crate::machine::check::Subject;
use crate::machine::compare::expected_text;
use crate::machine::facts::Judgement;
use crate::machine::fix::fix;
use crate::{Expected, Isolation, Knob, named};

/// Ids of the rules whose deviations affect measured latencies of all meters.
pub const FIGURE_RULES: [&str; 23] = [
    "not-emulated",
    "not-a-guest",
    "not-in-a-container",
    "preempt-rt",
    "clock-source",
    "enough-cpus",
    "sibling-threads",
    "one-kind-of-core",
    "governor",
    "idle-states",
    "real-time-throttling",
    "fair-server",
    "real-time-group-scheduling",
    "boot-lists-agree",
    "config-no-hz-full",
    "nohz-full",
    "numa-balancing",
    "transparent-huge-pages",
    "nmi-watchdog",
    "control-group-version",
    "irqbalance",
    "tuned",
    "stalld",
];

/// Ids of the rules about programs that move interrupts and threads, or tune the machine.
pub const MANAGER_RULES: [&str; 3] = ["irqbalance", "tuned", "stalld"];

/// Returns the deviations of a machine that affect measured figures, errors first.
#[must_use]
pub fn figure_findings(subject: Subject<'_>, isolation: &Isolation) -> Vec<Finding> {
    let mut findings = findings_of(FIGURE_RULES, subject, isolation);
    findings.sort_by_key(|finding| Reverse(finding.severity));
    findings
}

/// Returns a finding for each of these knobs that deviates, in the order of the ids.
pub fn findings_of<'a>(
    ids: impl IntoIterator<Item = &'a str>,
    subject: Subject<'_>,
    isolation: &Isolation,
) -> Vec<Finding> {
    ids.into_iter()
        .filter_map(named)
        .filter_map(|knob| deviation(knob, &subject, isolation))
        .collect()
}

/// Returns the finding of a knob, or `None` if it is as expected, not judged or not read.
fn deviation(knob: &Knob, subject: &Subject<'_>, isolation: &Isolation) -> Option<Finding> {
    let expected = knob.expected_by(isolation);
    let Judgement::Is {
        found,
        satisfied: Some(false),
        locations,
    } = assess(knob, subject, isolation)
    else {
        return None;
    };
    if expected == Expected::Informational {
        return None;
    }
    let finding = knob
        .rule()
        .finding(location(knob, &locations), clause(knob.reason))
        .values(found, expected_text(expected, Some(isolation)));
    Some(match fix(knob, expected, &locations, subject, isolation) {
        Some(fix) => finding.fix(fix.lines().next().unwrap_or_default()),
        None => finding,
    })
}

/// Returns the only location that deviates, or all of the knob's with `*` for each part in braces.
fn location(knob: &Knob, locations: &[CheckLocation]) -> String {
    let mut wrong = locations
        .iter()
        .filter(|location| location.satisfied == Some(false));
    if let (Some(only), None) = (wrong.next(), wrong.next()) {
        return only.location.clone();
    }
    let mut text = location_texts(knob.location)
        .into_iter()
        .next()
        .unwrap_or_default();
    while let Some((before, rest)) = text.split_once('{') {
        let Some((_, after)) = rest.split_once('}') else {
            break;
        };
        text = format!("{before}*{after}");
    }
    text
}

/// Returns a sentence as the second part of a finding: without a capital letter and a full stop.
fn clause(sentence: &str) -> String {
    let sentence = sentence.trim_end_matches('.');
    let mut letters = sentence.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if !second.is_uppercase() => {
            format!("{}{}", first.to_lowercase(), &sentence[first.len_utf8()..])
        }
        _ => sentence.to_owned(),
    }
}
