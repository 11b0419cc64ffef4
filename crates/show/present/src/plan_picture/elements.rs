// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture of a plan as elements.

use rampart_model::{CpuSet, Reboot, ResolvedPlan, clean, plural};

use super::plan_facts;
use crate::element::{
    Column, ColumnKind, Element, Entry, ListItem, Pair, Row, RowGroup, Table, TableStyle, Text,
};

/// CPUs in one line of the map: four groups of eight.
const MAP: usize = 32;

/// Returns the picture of a plan: a map with one sign for each CPU, CPUs in groups, domains with
/// the reasons of their CPUs, caches, memory nodes, interrupts, settings and findings.
#[must_use]
pub fn plan_picture(plan: &ResolvedPlan) -> Vec<Element> {
    let mut elements = map(plan);
    elements.push(Element::heading(2, "CPUs"));
    let rows = plan_facts::rows(plan).into_iter().map(|row| {
        vec![
            breakable(&row.cpus),
            row.owner,
            row.role,
            row.policy,
            row.node,
        ]
    });
    elements.push(lines_table(
        &["CPUs", "owner", "role", "policy", "node"],
        rows,
    ));
    domains(&mut elements, plan);
    shares(&mut elements, plan);
    interrupts(&mut elements, plan);
    settings(&mut elements, plan);
    if !plan.findings.is_empty() {
        elements.push(Element::heading(2, "Findings"));
        let items = plan.findings.iter();
        let items = items.map(|finding| item(finding.word(), finding.to_string()));
        elements.push(Element::List {
            items: items.collect(),
        });
    }
    elements.push(Element::heading(2, "Topology"));
    elements.push(Element::paragraph(&plan.fingerprint));
    elements
}

/// Returns a table of words with lines.
pub(crate) fn lines_table(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Element {
    let columns = header
        .iter()
        .map(|name| Column::new(ColumnKind::Text, *name));
    let rows = rows.map(|row| Row {
        entries: row.into_iter().map(Entry::from).collect(),
        ..Row::default()
    });
    Element::Table(Table {
        caption: String::new(),
        class: String::new(),
        style: TableStyle::Lines,
        columns: columns.collect(),
        groups: vec![RowGroup {
            rows: rows.collect(),
            ..RowGroup::default()
        }],
    })
}

/// Returns a list item with a name.
pub(crate) fn item(label: impl Into<String>, text: impl Into<Text>) -> ListItem {
    ListItem {
        label: label.into(),
        text: text.into(),
        items: Vec::new(),
    }
}

fn map(plan: &ResolvedPlan) -> Vec<Element> {
    // Spaces of a drawing are not broken.
    let fixed = |line: String| Element::paragraph(line.replace(' ', "\u{a0}"));
    let mut lines = Vec::new();
    for (node, cpus) in plan_facts::by_node(plan) {
        for chunk in cpus.chunks(MAP) {
            let ids = (
                chunk.first().map(|cpu| cpu.cpu.0).unwrap_or_default(),
                chunk.last().map(|cpu| cpu.cpu.0).unwrap_or_default(),
            );
            let location = node.map_or_else(String::new, |node| format!("node {node}"));
            let signs: Vec<String> = chunk
                .chunks(8)
                .map(|group| {
                    group
                        .iter()
                        .map(|cpu| plan_facts::sign(plan, cpu))
                        .collect()
                })
                .collect();
            // The CPU numbers of a node may have gaps.
            let label = if ids.0 == ids.1 {
                format!("CPU {}", ids.0)
            } else if chunk.len() == usize::try_from(ids.1 - ids.0).unwrap_or(0) + 1 {
                format!("CPUs {}-{}", ids.0, ids.1)
            } else {
                format!("CPUs {}…{}", ids.0, ids.1)
            };
            lines.push(fixed(format!("{location:9}{label:17}{}", signs.join(" "))));
        }
    }
    let legend: Vec<String> = plan_facts::legend(plan)
        .into_iter()
        .map(|(sign, meaning)| format!("{sign}\u{a0}{}", clean(&meaning).replace(' ', "\u{a0}")))
        .collect();
    lines.push(Element::paragraph(legend.join("\u{a0}\u{a0} ")));
    lines
}

fn domains(elements: &mut Vec<Element>, plan: &ResolvedPlan) {
    if plan.domains.is_empty() {
        return;
    }
    elements.push(Element::heading(2, "Domains"));
    let items = plan.domains.iter().map(|domain| {
        let letter = plan_facts::letter(plan, &domain.name).unwrap_or('*');
        let mut text = format!("{}, {}", domain.name, domain.kind);
        text.push_str(&format!(", {}", domain.cpus.named()));
        if !domain.emulator.is_empty() {
            text.push_str(&format!(", emulator on {}", domain.emulator));
        }
        for reason in domain.reasons.iter().chain(&plan_facts::owned(domain)) {
            text.push_str(&format!("; {reason}"));
        }
        item(letter, text)
    });
    elements.push(Element::List {
        items: items.collect(),
    });
}

fn shares(elements: &mut Vec<Element>, plan: &ResolvedPlan) {
    let shares = plan_facts::shares(plan);
    if shares.is_empty() {
        return;
    }
    elements.push(Element::heading(2, "Shared caches and memory nodes"));
    let rows = shares
        .into_iter()
        .map(|(what, cpus, who)| vec![what, breakable(&cpus), who]);
    elements.push(lines_table(&["resource", "CPUs", "domains"], rows));
}

fn interrupts(elements: &mut Vec<Element>, plan: &ResolvedPlan) {
    let owners = plan_facts::interrupts(plan);
    if owners.is_empty() {
        return;
    }
    elements.push(Element::heading(2, "Interrupts"));
    let items = owners.into_iter().map(|(owner, count, cpus, names)| {
        let count = plural(count, "interrupt");
        item(
            owner,
            format!("{count} on {}: {}", cpus.named(), names.join(", ")),
        )
    });
    elements.push(Element::List {
        items: items.collect(),
    });
}

fn settings(elements: &mut Vec<Element>, plan: &ResolvedPlan) {
    if plan.host.is_empty() && plan.boot.is_empty() {
        return;
    }
    elements.push(Element::heading(2, "Settings"));
    let host = plan.host.iter();
    let mut pairs: Vec<Pair> = host
        .map(|(name, choice)| Pair::new(name, choice.to_string()))
        .collect();
    if !plan.boot.arguments.is_empty() {
        let arguments = plan.boot.arguments.join(" ");
        pairs.push(Pair::new("kernel command line", arguments));
    }
    if plan.boot.reboot == Reboot::Plan {
        pairs.push(Pair::new("restart", "allowed if needed"));
    }
    elements.push(Element::Pairs { pairs });
}

/// Returns a list of CPUs that a table can break after commas.
fn breakable(cpus: &CpuSet) -> String {
    let text = cpus.to_string();
    if text.len() > 20 {
        text.replace(',', ", ")
    } else {
        text
    }
}
