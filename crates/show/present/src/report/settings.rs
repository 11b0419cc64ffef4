// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The effective settings of each domain, from its runs.

use rampart_model::{IsolationMechanism, Run, ShieldReport, plural};

use super::Report;
use super::figures::counts;
use crate::element::{Element, ListItem, Pair, SpanStyle, Text};
use crate::format;

/// Longer lists of capabilities are folded.
const CAPABILITIES: usize = 6;

/// Returns a card for each domain, on the page only.
pub(super) fn settings(report: &Report<'_>) -> Vec<Element> {
    let cards = report.evaluation.settings.domains.iter().map(|domain| {
        let records = report.evaluation.records.iter();
        let runs: Vec<&Run> = records
            .filter(|record| record.domain == domain.name)
            .flat_map(|record| &record.runs)
            .collect();
        let valid: Vec<&Run> = runs.iter().copied().filter(|run| counts(run)).collect();
        let place = format!(" {}", domain.cpus.named());
        let mut card = vec![
            Element::heading(3, Text::from(&domain.name).and(SpanStyle::Faint, place)),
            Element::remark(&domain.description),
        ];
        match valid.first() {
            Some(first) => card.extend(effective(first, &valid)),
            None if runs.is_empty() => card.push(Element::paragraph("It was not measured.")),
            None => card.push(Element::paragraph(
                "None of its runs is valid. The reasons are under \"Findings\".",
            )),
        }
        card
    });
    vec![Element::detail(vec![
        Element::section("domains", "Effective settings of each domain", "Settings"),
        Element::Columns {
            columns: cards.collect(),
            framed: true,
        },
    ])]
}

fn effective(first: &Run, runs: &[&Run]) -> Vec<Element> {
    let settings = &first.effective_settings;
    let shield = first.shield.as_ref();
    let list = |words: &[String]| match words {
        [] => "none".to_owned(),
        words => words.join(", "),
    };
    let isolation = shield.map_or(IsolationMechanism::None, |shield| shield.isolation);
    let mut pairs = vec![Pair::new("isolation", format::isolation(isolation))];
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            pairs.push(Pair::new(name, value));
        }
    };
    add(
        "partition reads",
        shield
            .and_then(|of| of.partition.as_deref())
            .unwrap_or_default(),
    );
    add("run by", &settings.runtime);
    add("placed by", &settings.placed_by);
    if settings.capabilities.len() > CAPABILITIES {
        let count = plural(settings.capabilities.len(), "capability")
            .replace("capabilitys", "capabilities");
        pairs.push(Pair {
            more: Some(list(&settings.capabilities)),
            ..Pair::new("capabilities", count)
        });
    } else {
        add("capabilities", &list(&settings.capabilities));
    }
    pairs.push(Pair::new("limits raised", list(&settings.limits)));
    pairs.push(Pair::new("own namespaces", list(&settings.namespaces)));
    let seccomp = if settings.seccomp {
        "a filter is active"
    } else {
        "no filter"
    };
    pairs.push(Pair::new("seccomp", seccomp));
    pairs.push(Pair::lines(
        "control groups",
        groups(&settings.control_groups),
    ));
    if let Some(shield) = shield {
        pairs.push(Pair::new(
            "tasks",
            format!(
                "{} moved away, {} of the kernel stay",
                format::grouped(shield.tasks_moved.into()),
                format::grouped(shield.tasks_left.into())
            ),
        ));
        let workqueues = shield
            .workqueues
            .as_ref()
            .map(|cpus| format!("on {}", cpus.named()));
        pairs.push(Pair::new(
            "unbound workqueues",
            workqueues.unwrap_or_else(|| "not changed".to_owned()),
        ));
        pairs.push(Pair::new(
            "idle states",
            match shield.resume_latency.as_deref() {
                Some("n/a") => "none allowed".to_owned(),
                Some(limit) => format!("at most {limit} µs to wake up"),
                None => "not changed".to_owned(),
            },
        ));
    }
    let mut elements = vec![Element::Pairs { pairs }];
    elements.extend(shield.into_iter().flat_map(interrupts));
    // Names of control groups may differ from run to run, settings may not.
    let substance = |run: &Run| {
        let mut settings = run.effective_settings.clone();
        settings.control_groups.clear();
        (settings, run.shield.as_ref().map(|shield| shield.isolation))
    };
    let others = runs
        .iter()
        .filter(|run| substance(run) != substance(first))
        .count();
    if others > 0 {
        let text = format!(
            "{} had other settings than run {}, which is shown here.",
            plural(others, "run"),
            first.order
        );
        elements.push(Element::paragraph(Text::of(SpanStyle::Wrong, text)));
    }
    elements
}

/// The groups that are not the root; how many are.
fn groups(all: &[String]) -> Vec<Text> {
    let (root, own): (Vec<&String>, Vec<&String>) =
        all.iter().partition(|group| group.ends_with(":/"));
    let mut lines: Vec<Text> = own
        .iter()
        .map(|group| Text::of(SpanStyle::Code, group.as_str()))
        .collect();
    if !root.is_empty() {
        lines.push(format!("the root of {}", plural(root.len(), "controller")).into());
    }
    lines
}

fn interrupts(shield: &ShieldReport) -> Vec<Element> {
    let stayed: Vec<_> = shield.interrupts.iter().filter(|one| !one.moved).collect();
    let moved = shield.interrupts.len() - stayed.len();
    let words = format!("{moved} moved away, {} not", stayed.len());
    let mut elements = vec![Element::Pairs {
        pairs: vec![Pair::new("interrupts", words)],
    }];
    if !stayed.is_empty() {
        let items = stayed.iter().map(|one| ListItem {
            label: format!("{} {}", one.interrupt, one.name),
            text: one.reason.as_deref().unwrap_or("no reason given").into(),
            items: Vec::new(),
        });
        elements.push(Element::folded(
            "interrupts that stay",
            vec![Element::List {
                items: items.collect(),
            }],
        ));
    }
    elements
}
