// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guests: effective settings, threads, clock.

use std::collections::BTreeSet;

use rampart_model::{
    Accelerator, ClockRelation, Evaluation, GuestKnob, GuestReport, GuestThreadRole, plural,
};

use super::Report;
use super::findings::findings;
use super::timeline::known_within;
use crate::element::{
    Column, ColumnKind, Element, Entry, Outcome, Pair, Row, RowGroup, SpanStyle, Table, TableStyle,
    Text,
};
use crate::format;

/// Returns every report on a guest: those of runs, then those of rounds.
fn reports<'a>(evaluation: &'a Evaluation, domain: &str) -> Vec<&'a GuestReport> {
    let records = evaluation.records.iter();
    let runs = records
        .filter(|record| record.domain == domain)
        .flat_map(|record| &record.runs)
        .filter_map(|run| run.guest.as_ref());
    let watched = evaluation.transfers.iter().flat_map(|round| &round.watched);
    let rounds = watched
        .filter(|watched| watched.domain == domain)
        .filter_map(|watched| watched.guest.as_ref());
    runs.chain(rounds).collect()
}

/// Returns a part for each guest.
pub(super) fn guests(report: &Report<'_>) -> Vec<Element> {
    let mut elements = Vec::new();
    for domain in &report.evaluation.settings.domains {
        let all = reports(report.evaluation, &domain.name);
        if let Some(last) = all.last() {
            elements.push(Element::heading(3, report.name(&domain.name)));
            elements.extend(guest(last, &all));
        }
    }
    if !elements.is_empty() {
        elements.insert(0, Element::section("guests", "Guests", "Guests"));
    }
    elements
}

fn guest(last: &GuestReport, all: &[&GuestReport]) -> Vec<Element> {
    // The settings of the last report; differences in other runs are listed.
    let settings = |of: &GuestReport| (of.knobs.clone(), of.pinned.clone(), of.accelerator);
    let others = all
        .iter()
        .filter(|of| settings(of) != settings(last))
        .count();
    let missing = last.knobs.iter().filter(|knob| !knob.satisfied).count();
    let mut words = format!(
        "{} of {} as expected",
        last.knobs.len() - missing,
        last.knobs.len()
    );
    if others > 0 {
        words.push_str(&format!(
            "; {others} of {} reports differ from this one",
            all.len()
        ));
    }
    let accelerator = match last.accelerator {
        Accelerator::Kvm => "KVM".into(),
        Accelerator::Tcg => Text::of(SpanStyle::Wrong, "software (TCG): its times are emulated"),
    };
    let mib = |bytes: u64| format!("{}\u{a0}MiB", bytes >> 20);
    let mut pairs = vec![
        Pair::new("run by", accelerator),
        Pair::new("program", &last.program),
        Pair::new("kernel", &last.kernel),
        Pair::new(
            "memory",
            format!(
                "{} on pages of {}, {} of the program locked",
                mib(last.memory_bytes),
                format::bytes(last.page_bytes),
                mib(last.locked_bytes)
            ),
        ),
        Pair::new(
            "started",
            format!("{} until the first message", format::time(last.boot_time)),
        ),
        Pair::new("threads", threads(last)),
    ];
    let relations: Vec<ClockRelation> =
        all.iter().flat_map(|of| of.clock.iter().copied()).collect();
    if let Some((uncertainty, exchanges)) = known_within(&relations) {
        pairs.push(Pair::new(
            "clock",
            format!(
                "read {} times against the host's, known within ±{} ({exchanges} exchanges each)",
                relations.len(),
                format::time(uncertainty)
            ),
        ));
    }
    pairs.push(Pair::new("settings", words));
    let command_line = Text::of(SpanStyle::Code, &last.kernel_command_line);
    let mut page = vec![
        Element::Pairs {
            pairs: vec![
                Pair::new("kernel command line", command_line),
                Pair::lines("CPUs", pinned(last)),
            ],
        },
        thread_table(last),
        Element::folded(
            "Command line",
            vec![Element::paragraph(Text::of(
                SpanStyle::Code,
                format::shell(&last.command),
            ))],
        ),
    ];
    page.extend(findings(&last.findings, ""));
    vec![
        Element::Pairs { pairs },
        knobs(&last.knobs),
        Element::detail(page),
    ]
}

fn pinned(guest: &GuestReport) -> Vec<Text> {
    let cpus = guest.pinned.iter().enumerate();
    cpus.map(|(number, host)| match host {
        Some(host) => format!("CPU {number} is bound to CPU {host} of the host").into(),
        None => format!("CPU {number} is not bound").into(),
    })
    .collect()
}

fn threads(guest: &GuestReport) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut locations = BTreeSet::new();
    let mut others = 0;
    for thread in &guest.threads {
        let cpus = thread.cpus.named();
        match thread.role {
            GuestThreadRole::VirtualCpu(number) => {
                words.push(format!("vCPU {number} on {cpus} {}", thread.policy));
            }
            GuestThreadRole::Other => {
                others += 1;
                locations.insert(cpus.to_string());
            }
        }
    }
    if others > 0 {
        let locations: Vec<String> = locations.into_iter().collect();
        words.push(format!(
            "{} on {}",
            plural(others, "other"),
            locations.join(" and ")
        ));
    }
    words.join(", ")
}

/// Returns missing settings first; only the page has those that are as expected.
fn knobs(all: &[GuestKnob]) -> Element {
    let rows = |satisfied: bool| {
        let knobs = all.iter().filter(move |knob| knob.satisfied == satisfied);
        knobs
            .map(|knob| {
                let (outcome, word) = if knob.satisfied {
                    (Outcome::Holds, "as expected")
                } else {
                    (Outcome::Fails, "missing")
                };
                Row::new(vec![
                    knob.location.as_str().into(),
                    Entry::outcome(Some(outcome), word),
                    Text::of(SpanStyle::Code, &knob.found).into(),
                    Text::of(SpanStyle::Code, &knob.expected).into(),
                    if knob.applied { "Rampart" } else { "–" }.into(),
                    knob.reason.as_str().into(),
                ])
            })
            .collect()
    };
    let mut columns = vec![
        Column::new(ColumnKind::Text, "setting"),
        Column::new(ColumnKind::Outcome, ""),
    ];
    columns.extend(["found", "expected"].map(|name| Column::new(ColumnKind::Text, name)));
    columns.push(Column::new(ColumnKind::Text, "set by").detail());
    columns.push(Column::new(ColumnKind::Text, "why"));
    Element::Table(Table {
        groups: vec![
            RowGroup {
                rows: rows(false),
                ..RowGroup::default()
            },
            RowGroup {
                rows: rows(true),
                detail: true,
                ..RowGroup::default()
            },
        ],
        ..Table::new(
            TableStyle::Lines,
            "Settings of the guest",
            columns,
            Vec::new(),
        )
        .class("knobs")
    })
}

fn thread_table(guest: &GuestReport) -> Element {
    let rows = guest.threads.iter().map(|thread| {
        let role = match thread.role {
            GuestThreadRole::VirtualCpu(number) => format!("virtual CPU {number}"),
            GuestThreadRole::Other => "everything else".to_owned(),
        };
        Row::new(vec![
            thread.name.as_str().into(),
            role.into(),
            thread.cpus.to_string().into(),
            thread.policy.to_string().into(),
            thread.thread.to_string().into(),
        ])
    });
    let mut columns = ["thread", "for"]
        .map(|name| Column::new(ColumnKind::Text, name))
        .to_vec();
    columns.extend(["on CPUs", "policy", "id"].map(|name| Column::new(ColumnKind::Figure, name)));
    let caption = "Threads of the program, at the end";
    Element::Table(Table::new(
        TableStyle::Figures,
        caption,
        columns,
        rows.collect(),
    ))
}
