// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements as text for a terminal, a log or a mail.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement,
    Table as TextTable, TableStyle as LineStyle, Width, presets,
};
use rampart_model::{Severity, clean, wrapped};

use crate::charts::{Matrix, MatrixEntry};
use crate::element::{
    Column, ColumnKind, Element, Entry, FindingItem, ListItem, Outcome, Row, SpanStyle, Table,
    TableStyle, Text,
};

/// Narrower terminals get lines of this many columns.
const LEAST_WIDTH: u16 = 60;

/// Columns that an entry of a matrix takes, with its lines: `control 0.98`, then `(−0.02–0.01)`.
const MATRIX_COLUMN: usize = 15;

/// Width and colour of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Columns; nothing that can be broken is wider. Less than 60 counts as 60.
    pub width: u16,
    /// Whether to use ANSI colours, which only repeat what words state.
    pub colour: bool,
}

impl Default for TerminalOptions {
    /// 80 columns, no colour.
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
        }
    }
}

/// Renders elements as text. Details, drawings and charts are left out. Without elements the text
/// is empty.
#[must_use]
pub fn terminal(elements: &[Element], options: TerminalOptions) -> String {
    let mut page = Page {
        width: options.width.max(LEAST_WIDTH),
        colour: options.colour,
        lines: Vec::new(),
        heading_end: usize::MAX,
    };
    page.all(elements);
    if page.lines.is_empty() {
        return String::new();
    }
    let mut text = page.lines.join("\n").replace('\u{a0}', " ");
    text.push('\n');
    text
}

/// The text so far.
struct Page {
    width: u16,
    colour: bool,
    lines: Vec<String>,
    /// Number of lines after the last heading.
    heading_end: usize,
}

impl Page {
    fn all(&mut self, elements: &[Element]) {
        for (index, element) in elements.iter().enumerate() {
            self.element(element);
            let next = elements.get(index + 1);
            let ends_the_answers = matches!(
                element,
                Element::FirstAnswer { .. } | Element::Answers { .. }
            ) && matches!(
                next,
                Some(Element::Alarm { .. } | Element::Paragraph { .. })
            );
            if ends_the_answers {
                self.lines.push(String::new());
            }
        }
    }

    fn element(&mut self, element: &Element) {
        match element {
            Element::Heading { level: 1, text, .. } => self.hanging("", &text.plain(), 0),
            Element::Heading { text, .. } => self.heading(text),
            Element::Paragraph { text, .. } => self.hanging("", &text.plain(), 0),
            Element::Alarm { title, text, .. } => {
                self.alarm(format!("{title} {}", text.plain()).trim_end());
            }
            Element::FirstAnswer { answer, parts } => {
                self.lines.push(String::new());
                self.hanging("", &answer.plain(), 0);
                for part in parts {
                    self.hanging(&format!("{}: ", part.label), &part.text.plain(), 0);
                    if !part.command.is_empty() {
                        // Not broken, so that it can be copied.
                        let command = self.paint("1", &clean(&part.command));
                        self.lines.push(format!("    {command}"));
                    }
                }
            }
            Element::Answers { answers } => {
                self.lines.push(String::new());
                let names = answers.iter().map(|answer| answer.name.chars().count());
                // A longer name moves its own sentence alone.
                let width = names.max().unwrap_or(0).min(14);
                for answer in answers {
                    let label = format!("{:width$}  ", answer.name);
                    self.hanging(&label, &answer.sentence.plain(), 0);
                }
            }
            Element::Pairs { pairs } => {
                for pair in pairs {
                    let lines: Vec<String> = pair.value.iter().map(Text::plain).collect();
                    self.hanging(&format!("{}: ", pair.name), &lines.join(", "), 2);
                }
            }
            Element::List { items } => self.list(items, 0),
            Element::Table(table) => self.table(table),
            Element::Findings { findings } => {
                for finding in findings {
                    self.finding(finding);
                }
            }
            Element::Matrix(matrix) => self.matrix(matrix),
            Element::Columns { columns, .. } => {
                for column in columns {
                    self.all(column);
                }
            }
            Element::Switched {
                leading: true,
                elements,
                ..
            } => self.all(elements),
            Element::Badges { .. }
            | Element::Latency(_)
            | Element::Detail { .. }
            | Element::Switched { .. } => {}
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour && !text.is_empty() {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// An empty line and the heading; directly below another heading no empty line.
    fn heading(&mut self, text: &Text) {
        if !self.lines.is_empty() && self.heading_end != self.lines.len() {
            self.lines.push(String::new());
        }
        for line in wrapped("", "", &clean(&text.plain()), usize::from(self.width)) {
            self.lines.push(self.paint("1", &line));
        }
        self.heading_end = self.lines.len();
    }

    /// Text after a label; its further lines are below its first.
    fn hanging(&mut self, label: &str, text: &str, indent: usize) {
        let label = clean(label);
        let before = indent + label.chars().count();
        let width = usize::from(self.width).saturating_sub(before).max(20);
        for (index, line) in wrapped("", "", &clean(text), width).iter().enumerate() {
            let lead = if index == 0 {
                format!("{}{}", " ".repeat(indent), self.paint("1", &label))
            } else {
                " ".repeat(before)
            };
            self.lines
                .push(format!("{lead}{line}").trim_end().to_owned());
        }
    }

    fn alarm(&mut self, text: &str) {
        let width = usize::from(self.width).saturating_sub(3);
        for line in wrapped("", "", &clean(text), width) {
            self.lines.push(self.paint("1;31", &format!("!! {line}")));
        }
    }

    fn list(&mut self, items: &[ListItem], indent: usize) {
        for item in items {
            let label = if item.label.is_empty() {
                "- ".to_owned()
            } else {
                format!("{}: ", item.label)
            };
            self.hanging(&label, &item.text.plain(), indent);
            self.list(&item.items, indent + 2);
        }
    }

    fn finding(&mut self, finding: &FindingItem) {
        let text = format!("{}: {}", finding.word, finding_line(finding));
        let lines = wrapped("", "  ", &clean(&text), usize::from(self.width));
        for (index, line) in lines.iter().enumerate() {
            let code = match finding.severity {
                Severity::Error => "1;31",
                Severity::Warning => "33",
                Severity::Note => "1",
            };
            let painted = match line.strip_prefix(finding.word).filter(|_| index == 0) {
                Some(rest) => format!("{}{rest}", self.paint(code, finding.word)),
                None => line.clone(),
            };
            self.lines.push(painted);
        }
        for fix in &finding.fixes {
            self.hanging("fix: ", &fix.plain(), 2);
        }
    }

    /// A table, in parts where the terminal is too narrow for all columns. Each part begins with the first
    /// column.
    fn table(&mut self, table: &Table) {
        let shown: Vec<(usize, &Column)> = table
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.detail)
            .collect();
        // What lies between two columns, and left of the first.
        let (between, before) = match table.style {
            TableStyle::Lines => (3, 1),
            TableStyle::Figures | TableStyle::Drawings => (self.gap(), 0),
        };
        let widths: Vec<usize> = shown
            .iter()
            .map(|column| self.least_width(table, *column) + between)
            .collect();
        let Some((name, left)) = shown.first().zip(widths.first()) else {
            return;
        };
        let mut part = vec![*name];
        let mut used = before + left;
        for (column, width) in shown.iter().zip(&widths).skip(1) {
            if part.len() > 1 && used + width > usize::from(self.width) {
                self.table_part(table, &part);
                part.truncate(1);
                used = before + left;
            }
            part.push(*column);
            used += width;
        }
        self.table_part(table, &part);
    }

    /// Columns between two figures.
    fn gap(&self) -> usize {
        if self.width >= 96 { 2 } else { 1 }
    }

    /// Returns the least width of a column: of its longest word, so that no figure is separated from its unit, or
    /// of a whole name between lines.
    fn least_width(&self, table: &Table, (index, column): (usize, &Column)) -> usize {
        let is_name = table.style == TableStyle::Lines && column.kind == ColumnKind::Name;
        let longest = |breaks: &[char]| {
            let groups = table.groups.iter().filter(|group| !group.detail);
            let entries = groups.flat_map(|group| {
                let grouped = index == 0 && !group.name.is_empty();
                group.rows.iter().filter_map(move |row| {
                    let text = row.entries.get(index)?.text.plain();
                    // As `cells` begins the first column of a named group.
                    let indent = if grouped && !row.invalid { 2 } else { 0 };
                    Some(indent + longest_part(&text, breaks))
                })
            });
            let name = longest_part(&column.name.plain(), breaks);
            entries.max().unwrap_or(0).max(name)
        };
        let whole = longest(&[]);
        if is_name && whole <= usize::from(self.width) / 2 {
            whole
        } else {
            longest(&[' '])
        }
    }

    fn table_part(&mut self, table: &Table, shown: &[(usize, &Column)]) {
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for group in table.groups.iter().filter(|group| !group.detail) {
            if !group.name.is_empty() {
                rows.push(vec![
                    Cell::new(clean(&group.name)).add_attribute(Attribute::Bold),
                ]);
            }
            rows.extend(
                group
                    .rows
                    .iter()
                    .map(|row| cells(row, shown, !group.name.is_empty())),
            );
        }
        if rows.is_empty() {
            return;
        }
        let header: Vec<String> = shown
            .iter()
            .map(|(_, column)| column.name.plain())
            .collect();
        let style = match table.style {
            TableStyle::Lines => presets::UTF8_FULL_CONDENSED,
            TableStyle::Figures | TableStyle::Drawings => presets::NOTHING,
        };
        let mut text = self.text_table(style, &header, rows);
        let gap = u16::try_from(self.gap()).unwrap_or(1);
        for (column, (index, of)) in text.column_iter_mut().zip(shown) {
            if table.style != TableStyle::Lines {
                column.set_padding((0, gap));
                if of.kind == ColumnKind::Figure {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
            let least = self.least_width(table, (*index, of));
            let least = u16::try_from(least).unwrap_or(u16::MAX);
            let least = Width::Fixed(least.saturating_add(column.padding_width()));
            column.set_constraint(ColumnConstraint::LowerBoundary(least));
        }
        self.push(&text);
    }

    /// One table for each group, in parts where the terminal is too narrow for all columns.
    fn matrix(&mut self, matrix: &Matrix) {
        for group in &matrix.groups {
            self.heading(&group.title);
            let names = group.rows.iter().map(|row| row.name.chars().count());
            let left = usize::from(self.width).saturating_sub(names.max().unwrap_or(0) + 4);
            let columns = (left / MATRIX_COLUMN).max(1);
            for first in (0..matrix.columns.len()).step_by(columns) {
                let part = first..(first + columns).min(matrix.columns.len());
                let mut header = vec![matrix.corner.clone()];
                header.extend(matrix.columns[part.clone()].iter().map(Text::plain));
                let rows = group.rows.iter().map(|row| {
                    let mut cells = vec![Cell::new(clean(&row.name))];
                    cells.extend(row.entries[part.clone()].iter().map(matrix_cell));
                    cells
                });
                let rows = rows.collect();
                let mut table = self.text_table(presets::UTF8_FULL_CONDENSED, &header, rows);
                if let Some(column) = table.column_mut(0) {
                    column.set_constraint(ColumnConstraint::ContentWidth);
                }
                self.push(&table);
            }
            self.hanging("", &group.remark.plain(), 0);
        }
    }

    fn text_table(&self, style: LineStyle, header: &[String], rows: Vec<Vec<Cell>>) -> TextTable {
        let mut table = TextTable::new();
        table
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width)
            .set_header(
                header
                    .iter()
                    .map(|name| Cell::new(clean(name)).add_attribute(Attribute::Bold)),
            )
            .add_rows(rows);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    fn push(&mut self, table: &TextTable) {
        self.lines
            .extend(table.lines().map(|line| line.trim_end().to_owned()));
    }
}

/// Returns the length of the longest part of a text between these characters, in characters. A no-break space
/// is not one of them.
fn longest_part(text: &str, breaks: &[char]) -> usize {
    let text = clean(text);
    let lengths = text.split(breaks).map(|part| part.chars().count());
    lengths.max().unwrap_or(0)
}

/// `location: what (expected 2, found 1)`
pub(crate) fn finding_line(finding: &FindingItem) -> String {
    let mut text = String::new();
    if !finding.location.is_empty() {
        text = format!("{}: ", finding.location);
    }
    text.push_str(&finding.what.plain());
    if !finding.values.is_empty() {
        text.push_str(&format!(" ({})", finding.values));
    }
    text
}

fn cells(row: &Row, shown: &[(usize, &Column)], grouped: bool) -> Vec<Cell> {
    let cells = shown.iter().enumerate().map(|(at, (index, column))| {
        let Some(entry) = row.entries.get(*index) else {
            return Cell::new("");
        };
        let text = clean(&entry.text.plain());
        if at > 0 || !grouped {
            return cell(entry, column, text);
        }
        if row.invalid {
            return wrong(Cell::new(format!("!! {text}")));
        }
        cell(entry, column, format!("\u{a0}\u{a0}{text}"))
    });
    cells.collect()
}

fn cell(entry: &Entry, column: &Column, text: String) -> Cell {
    let cell = Cell::new(text);
    if entry
        .text
        .0
        .iter()
        .any(|span| span.style == SpanStyle::Wrong)
    {
        return wrong(cell);
    }
    if column.kind == ColumnKind::Outcome || entry.outcome.is_some() {
        return coloured(cell, entry.outcome);
    }
    cell
}

fn wrong(cell: Cell) -> Cell {
    cell.fg(Color::Red).add_attribute(Attribute::Bold)
}

fn coloured(cell: Cell, outcome: Option<Outcome>) -> Cell {
    match outcome {
        Some(Outcome::Holds) => cell.fg(Color::Green),
        Some(Outcome::Leaks) => cell.fg(Color::Yellow),
        Some(Outcome::Fails) => cell.fg(Color::Red),
        Some(Outcome::Inconclusive | Outcome::Own) | None => cell,
    }
}

/// Outcome and figure on the first line, interval on the second.
fn matrix_cell(entry: &MatrixEntry) -> Cell {
    if entry.outcome.is_none() {
        return Cell::new("–");
    }
    let text = if entry.figure.is_empty() {
        entry.word.clone()
    } else {
        let gap = if entry.word.chars().count() > 8 {
            ' '
        } else {
            '\u{a0}'
        };
        format!("{}{gap}{} ({})", entry.word, entry.figure, entry.ends)
    };
    coloured(Cell::new(clean(&text)), entry.outcome)
}
