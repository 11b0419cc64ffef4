// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Draws the view. It fits 80 columns and 24 lines; larger terminals show more.

use rampart_model::{CpuStatus, Severity, StatusSubject, clean};
use rampart_present::{busiest_threads, cpu_owner};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, Wrap};

use super::{Column, Shown, View};

const KEYS: &str = " q quit  p pause  ←→ column  ↑↓ order  PgUp PgDn CPUs  ? help";

const HELP: &str = "\
busy      part of the time that the CPU was not idle
irq/s     interrupts per second; soft/s: softirqs per second
p50, max  wakeup latency of a timer in the last ten seconds;
          one thread on each CPU, 100 times per second, with
          policy fifo:1 if the kernel allows it
noise     kinds of noise sources: activity on a real-time
          CPU that does not belong to its domain
runs      the busiest threads; [kernel threads]

← →  column to sort by         ↑ ↓  ascending, descending
p    pause                     q    quit";

/// Lines for findings if the terminal is high enough.
const FINDINGS: u16 = 6;

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>, view: &View) {
    let findings = if frame.area().height >= 16 {
        FINDINGS
    } else {
        0
    };
    let [head, cpus, below, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(findings),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(heading(shown, view)), head);
    table(frame, cpus, shown, view);
    if findings > 0 {
        frame.render_widget(Paragraph::new(finding_lines(shown)), below);
    }
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(KEYS).style(reversed), keys);
    if view.help {
        help(frame);
    }
}

fn heading(shown: &Shown<'_>, view: &View) -> Vec<Line<'static>> {
    let status = shown.status;
    let plan = match &status.plan {
        Some(plan) => format!("plan {} {}", plan.file, plan.state),
        None => "no plan is active".to_owned(),
    };
    let count = |subject| status.of(subject).count();
    let paused = if view.paused { "  PAUSED" } else { "" };
    vec![
        Line::from(clean(&format!("{}: {plan}{paused}", status.host_name)))
            .style(Style::new().add_modifier(Modifier::BOLD)),
        Line::from(format!(
            "drift {}, colocations {}, unwanted activity {}; over {}",
            count(StatusSubject::Drift),
            count(StatusSubject::Colocation),
            count(StatusSubject::UnwantedActivity),
            status.interval
        )),
        Line::from(clean(&shown.remarks.join("; "))),
    ]
}

fn table(frame: &mut Frame<'_>, area: Rect, shown: &Shown<'_>, view: &View) {
    let header = Column::ALL.map(|column| {
        let mark = match (column == view.sorted_by, view.descending) {
            (true, false) => "↑",
            (true, true) => "↓",
            _ => "",
        };
        format!("{}{mark}", column.title())
    });
    let header = Row::new(header.into_iter().chain(["runs".to_owned()]))
        .style(Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED));
    let cpus = view.order(shown);
    // A page key may have moved past the end.
    let first = view.first.min(cpus.len().saturating_sub(1));
    let rows = cpus
        .into_iter()
        .skip(first)
        .map(|cpu| Row::new(entries(cpu, shown)));
    let widths = [
        Constraint::Length(4),
        Constraint::Length(18),
        Constraint::Length(5),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(6),
        Constraint::Fill(1),
    ];
    frame.render_widget(Table::new(rows, widths).header(header), area);
}

fn entries(cpu: &CpuStatus, shown: &Shown<'_>) -> Vec<String> {
    let latency = shown
        .latencies
        .of(cpu.cpu)
        .and_then(crate::CpuLatency::recent);
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "–".to_owned());
    vec![
        cpu.cpu.to_string(),
        clean(&cpu_owner(cpu)),
        format!("{:.0}%", 100.0 * cpu.busy),
        format!("{:.0}", cpu.interrupts_per_second),
        format!("{:.0}", cpu.softirqs_per_second),
        or_dash(latency.map(|(median, _)| median.to_string())),
        or_dash(latency.map(|(_, maximum)| maximum.to_string())),
        match cpu.noise_sources.len() {
            0 => String::new(),
            count => count.to_string(),
        },
        clean(&busiest_threads(cpu, 2)),
    ]
}

fn finding_lines(shown: &Shown<'_>) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from("")];
    for finding in &shown.status.findings {
        let (word, style) = match finding.finding.severity {
            Severity::Error => ("error", Style::new().add_modifier(Modifier::BOLD)),
            Severity::Warning => ("warning", Style::new()),
            Severity::Note => ("note   ", Style::new().add_modifier(Modifier::DIM)),
        };
        let found = &finding.finding;
        let present = found.found.as_deref().unwrap_or_default();
        let text = format!("{word} {}: {} ({present})", found.location, found.what);
        lines.push(Line::from(clean(&text)).style(style));
    }
    lines
}

fn help(frame: &mut Frame<'_>) {
    let whole = frame.area();
    let (width, height) = (whole.width.min(60), whole.height.min(14));
    let area = Rect {
        x: whole.width.saturating_sub(width) / 2,
        y: whole.height.saturating_sub(height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let text = Paragraph::new(HELP)
        .wrap(Wrap { trim: false })
        .block(Block::bordered().title(" rampart status --watch "));
    frame.render_widget(text, area);
}
