// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lays out the elements of the view. They fit 80 columns and 24 lines; larger terminals show more.

use rampart_model::{Severity, clean};
use rampart_present::element::{Element, FindingItem, Table as CpuTable};
use rampart_present::{LIVE_STATUS_KEYS, TerminalOptions, live_status, live_status_help, terminal};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table};

use super::{Shown, View};

/// Lines for findings if the terminal is high enough.
const FINDINGS: u16 = 7;

/// Draws the view.
pub fn draw(frame: &mut Frame<'_>, shown: &Shown<'_>, view: &View) {
    let findings = if frame.area().height >= 16 {
        FINDINGS
    } else {
        0
    };
    let [mut head, cpus, below, keys] = Layout::vertical([
        Constraint::Length(3),
        Constraint::Min(3),
        Constraint::Length(findings),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let elements = live_status(
        shown.status,
        &view.order(shown),
        (view.sorted_by, view.descending),
        view.paused,
        shown.remarks,
    );
    for element in &elements {
        match element {
            Element::Heading { text, .. } => {
                let style = Style::new().add_modifier(Modifier::BOLD);
                line(frame, &mut head, &text.plain(), style);
            }
            Element::Paragraph { text, .. } => {
                line(frame, &mut head, &text.plain(), Style::new());
            }
            Element::Table(of) => table(frame, cpus, of, view.first),
            Element::Findings { findings } => {
                let lines = findings.iter().flat_map(|one| finding(one, below.width));
                // An empty line separates them from the table.
                let lines: Vec<Line<'_>> = [Line::default()].into_iter().chain(lines).collect();
                frame.render_widget(Paragraph::new(lines), below);
            }
            _ => {}
        }
    }
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    frame.render_widget(Paragraph::new(LIVE_STATUS_KEYS).style(reversed), keys);
    if view.help {
        help(frame);
    }
}

/// Draws one line at the top of an area, and leaves the rest of the area.
fn line(frame: &mut Frame<'_>, area: &mut Rect, text: &str, style: Style) {
    let [first, rest] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(*area);
    frame.render_widget(Paragraph::new(clean(text)).style(style), first);
    *area = rest;
}

/// Draws a table from the row with this number on. The last column gets the rest of the width.
fn table(frame: &mut Frame<'_>, area: Rect, of: &CpuTable, first: usize) {
    let header: Vec<String> = of
        .columns
        .iter()
        .map(|column| column.name.plain())
        .collect();
    let rows: Vec<Vec<String>> = of
        .groups
        .iter()
        .flat_map(|group| &group.rows)
        .map(|row| {
            let entries = row.entries.iter();
            entries.map(|entry| clean(&entry.text.plain())).collect()
        })
        .collect();
    let widths: Vec<Constraint> = (0..header.len())
        .map(|column| {
            let entries = rows
                .iter()
                .chain([&header])
                .filter_map(|row| row.get(column));
            let longest = entries
                .map(|entry| entry.chars().count())
                .max()
                .unwrap_or(0);
            match u16::try_from(longest) {
                Ok(longest) if column + 1 < header.len() => Constraint::Length(longest),
                _ => Constraint::Fill(1),
            }
        })
        .collect();
    let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
    // A page key may have moved past the end.
    let first = first.min(rows.len().saturating_sub(1));
    let rows = rows.into_iter().skip(first).map(Row::new);
    frame.render_widget(
        Table::new(rows, widths).header(Row::new(header).style(style)),
        area,
    );
}

fn finding(finding: &FindingItem, width: u16) -> Vec<Line<'static>> {
    let style = match finding.severity {
        Severity::Error => Style::new().add_modifier(Modifier::BOLD),
        Severity::Warning => Style::new(),
        Severity::Note => Style::new().add_modifier(Modifier::DIM),
    };
    let elements = [Element::Findings {
        findings: vec![finding.clone()],
    }];
    let lines = text(&elements, width);
    lines.into_iter().map(|line| line.style(style)).collect()
}

fn text(elements: &[Element], width: u16) -> Vec<Line<'static>> {
    let options = TerminalOptions {
        width,
        colour: false,
    };
    let text = terminal(elements, options);
    text.lines()
        .map(|line| Line::from(line.to_owned()))
        .collect()
}

fn help(frame: &mut Frame<'_>) {
    let whole = frame.area();
    let width = whole.width.min(66);
    let lines = text(&live_status_help(), width.saturating_sub(2));
    let height = u16::try_from(lines.len() + 2).map_or(whole.height, |high| high.min(whole.height));
    let area = Rect {
        x: whole.width.saturating_sub(width) / 2,
        y: whole.height.saturating_sub(height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" rampart status --watch ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
