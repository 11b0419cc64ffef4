// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The picture for a terminal. No colour: signs and words say everything.

use comfy_table::{ContentArrangement, Table, presets};
use rampart_model::{CpuSet, PlanFinding, ResolvedPlan, clean, plural, wrapped};

use super::parts;

/// How the terminal wants it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureOptions {
    /// Columns; under 60 counts as 60.
    pub width: u16,
}

impl Default for PictureOptions {
    fn default() -> Self {
        Self { width: 80 }
    }
}

/// CPUs in one line of the map: four groups of eight.
const MAP: usize = 32;

/// Draws who owns what: a map with one sign a CPU, CPUs in groups, domains with the reasons of
/// their CPUs, interrupts, caches and nodes, findings.
#[must_use]
pub fn terminal(plan: &ResolvedPlan, options: PictureOptions) -> String {
    let width = usize::from(options.width.max(60));
    let mut lines: Vec<String> = Vec::new();
    map(&mut lines, plan, width);
    lines.push(String::new());
    let rows = parts::rows(plan).into_iter().map(|row| {
        vec![
            breakable(&row.cpus),
            row.owner,
            row.role,
            row.policy,
            row.node,
        ]
    });
    table(
        &mut lines,
        width,
        &["CPUs", "owner", "role", "policy", "node"],
        rows,
    );
    domains(&mut lines, plan, width);
    shares(&mut lines, plan, width);
    interrupts(&mut lines, plan, width);
    settings(&mut lines, plan, width);
    findings(&mut lines, &plan.findings, width);
    lines.push(String::new());
    hanging(&mut lines, "Topology  ", &plan.fingerprint, width);
    let mut text = lines.join("\n");
    text.push('\n');
    text
}

fn map(lines: &mut Vec<String>, plan: &ResolvedPlan, width: usize) {
    for (node, cpus) in parts::by_node(plan) {
        for chunk in cpus.chunks(MAP) {
            let ids = (
                chunk.first().map(|cpu| cpu.cpu.0).unwrap_or_default(),
                chunk.last().map(|cpu| cpu.cpu.0).unwrap_or_default(),
            );
            let location = node.map_or_else(String::new, |node| format!("node {node}"));
            let signs: Vec<String> = chunk
                .chunks(8)
                .map(|group| group.iter().map(|cpu| parts::sign(plan, cpu)).collect())
                .collect();
            // Numbers of one node need not follow each other.
            let label = if ids.0 == ids.1 {
                format!("CPU {}", ids.0)
            } else if chunk.len() == usize::try_from(ids.1 - ids.0).unwrap_or(0) + 1 {
                format!("CPUs {}-{}", ids.0, ids.1)
            } else {
                format!("CPUs {}…{}", ids.0, ids.1)
            };
            lines.push(format!("{location:9}{label:17}{}", signs.join(" ")));
        }
    }
    let legend: Vec<String> = parts::legend(plan)
        .into_iter()
        .map(|(sign, meaning)| format!("{sign}\u{a0}{}", clean(&meaning).replace(' ', "\u{a0}")))
        .collect();
    hanging(lines, &" ".repeat(26), &legend.join("\u{a0}\u{a0} "), width);
}

fn domains(lines: &mut Vec<String>, plan: &ResolvedPlan, width: usize) {
    if plan.domains.is_empty() {
        return;
    }
    heading(lines, "Domains");
    for domain in &plan.domains {
        let letter = parts::letter(plan, &domain.name).unwrap_or('*');
        let mut text = format!("{}, {}", domain.name, domain.kind);
        text.push_str(&format!(", {}", domain.cpus.named()));
        if !domain.emulator.is_empty() {
            text.push_str(&format!(", emulator on {}", domain.emulator));
        }
        for reason in domain.reasons.iter().chain(&parts::owned(domain)) {
            text.push_str(&format!("; {reason}"));
        }
        hanging(lines, &format!("{letter} "), &text, width);
    }
}

fn shares(lines: &mut Vec<String>, plan: &ResolvedPlan, width: usize) {
    let shares = parts::shares(plan);
    if shares.is_empty() {
        return;
    }
    heading(lines, "Caches of several CPUs, and memory");
    let rows = shares
        .into_iter()
        .map(|(what, cpus, who)| vec![what, breakable(&cpus), who]);
    table(lines, width, &["what", "CPUs", "who"], rows);
}

fn interrupts(lines: &mut Vec<String>, plan: &ResolvedPlan, width: usize) {
    let owners = parts::interrupts(plan);
    if owners.is_empty() {
        return;
    }
    heading(lines, "Interrupts");
    for (owner, count, cpus, names) in owners {
        let label = format!("{owner}: ");
        let count = plural(count, "interrupt");
        let text = format!("{count} on {}: {}", cpus.named(), names.join(", "));
        hanging(lines, &label, &text, width);
    }
}

fn settings(lines: &mut Vec<String>, plan: &ResolvedPlan, width: usize) {
    if plan.host.is_empty() && plan.boot.is_empty() {
        return;
    }
    heading(lines, "Settings");
    for (name, choice) in &plan.host {
        hanging(lines, &format!("{name}: "), &choice.to_string(), width);
    }
    if !plan.boot.arguments.is_empty() {
        hanging(
            lines,
            "boot arguments: ",
            &plan.boot.arguments.join(" "),
            width,
        );
    }
    if plan.boot.reboot == rampart_model::Reboot::Plan {
        hanging(lines, "restart: ", "the plan may need one", width);
    }
}

/// A finding in one line, as compilers tell theirs: place, word, what, rule, and the reason of its
/// waiver.
#[must_use]
pub fn finding_line(location: &str, finding: &PlanFinding) -> String {
    let word = parts::word(finding);
    let text = clean(&format!("{location}: {word}: {}", said(finding)));
    format!("{text}\n")
}

fn said(finding: &PlanFinding) -> String {
    let mut text = format!("{} [{}]", finding.finding, finding.rule());
    if let Some(reason) = &finding.waived {
        text.push_str(&format!("; waived: {reason}"));
    }
    text
}

/// Findings as lines, the gravest first.
fn findings(lines: &mut Vec<String>, findings: &[PlanFinding], width: usize) {
    if findings.is_empty() {
        return;
    }
    heading(lines, "Findings");
    for finding in findings {
        let text = said(finding);
        hanging(lines, &format!("{:8}", parts::word(finding)), &text, width);
    }
}

fn heading(lines: &mut Vec<String>, text: &str) {
    lines.push(String::new());
    lines.push(text.to_owned());
}

/// A list of CPUs that a table can break after commas.
fn breakable(cpus: &CpuSet) -> String {
    let text = cpus.to_string();
    if text.len() > 20 {
        text.replace(',', ", ")
    } else {
        text
    }
}

fn table(
    lines: &mut Vec<String>,
    width: usize,
    header: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
) {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .set_header(header.iter().copied())
        .force_no_tty();
    for row in rows {
        table.add_row(row.iter().map(|cell| clean(cell)));
    }
    lines.extend(table.lines().map(|line| line.trim_end().to_owned()));
}

/// Text after a label; further lines stand under the first.
fn hanging(lines: &mut Vec<String>, label: &str, text: &str, width: usize) {
    let label = clean(label);
    let rest = " ".repeat(label.chars().count().min(width / 2));
    lines.extend(
        wrapped(&label, &rest, &clean(text), width)
            .iter()
            .map(|line| line.replace('\u{a0}', " ").trim_end().to_owned()),
    );
}
