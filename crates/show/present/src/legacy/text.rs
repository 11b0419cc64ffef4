// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wrapped paragraphs, headings and tables.

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, presets,
};
use rampart_model::{VerdictOutcome, clean, wrapped};

/// Colour, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ink {
    pub(crate) colour: bool,
}

impl Ink {
    fn paint(self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// The text so far.
#[derive(Debug)]
pub(crate) struct Page {
    width: u16,
    ink: Ink,
    lines: Vec<String>,
}

impl Page {
    pub(crate) fn new(width: u16, ink: Ink) -> Self {
        Self {
            width,
            ink,
            lines: Vec::new(),
        }
    }

    /// Columns of a line.
    pub(crate) fn room(&self) -> usize {
        usize::from(self.width)
    }

    pub(crate) fn finish(self) -> String {
        let mut text = self.lines.join("\n").replace('\u{a0}', " ");
        text.push('\n');
        text
    }

    /// An empty line and a heading.
    pub(crate) fn heading(&mut self, text: &str) {
        self.lines.push(String::new());
        for line in wrapped("", "", &clean(text), usize::from(self.width)) {
            self.lines.push(self.ink.paint("1", &line));
        }
    }

    pub(crate) fn blank(&mut self) {
        self.lines.push(String::new());
    }

    /// Text, every line indented by `indent`.
    pub(crate) fn paragraph(&mut self, text: &str, indent: usize) {
        self.hanging("", text, indent);
    }

    /// Text after a label; its further lines stand under its first.
    pub(crate) fn hanging(&mut self, label: &str, text: &str, indent: usize) {
        let label = clean(label);
        let before = indent + label.chars().count();
        let room = usize::from(self.width).saturating_sub(before).max(20);
        for (index, line) in wrapped("", "", &clean(text), room).iter().enumerate() {
            let lead = if index == 0 {
                format!("{}{}", " ".repeat(indent), self.ink.paint("1", &label))
            } else {
                " ".repeat(before)
            };
            let lead = if label.is_empty() {
                " ".repeat(indent)
            } else {
                lead
            };
            self.lines.push(format!("{lead}{line}"));
        }
    }

    /// What nobody may miss.
    pub(crate) fn alarm(&mut self, text: &str) {
        let room = usize::from(self.width).saturating_sub(3);
        for line in wrapped("", "", &clean(text), room) {
            self.lines
                .push(self.ink.paint("1;31", &format!("!! {line}")));
        }
    }

    /// A table without lines for figures, fitted to the width.
    pub(crate) fn figures(&mut self, header: &[&str], rows: Vec<Vec<Cell>>, text_columns: usize) {
        self.aligned(header, rows, text_columns..header.len());
    }

    /// The same, where text follows the columns `figures` too.
    pub(crate) fn aligned(
        &mut self,
        header: &[&str],
        rows: Vec<Vec<Cell>>,
        figures: std::ops::Range<usize>,
    ) {
        let mut table = self.table(presets::NOTHING, header, rows);
        let gap = if self.width >= 96 { 2 } else { 1 };
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, gap));
            if figures.contains(&index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self.push_table(&table);
    }

    /// A table with lines for text, fitted to the width.
    pub(crate) fn words(&mut self, header: &[&str], rows: Vec<Vec<Cell>>) {
        let table = self.table(presets::UTF8_FULL_CONDENSED, header, rows);
        self.push_table(&table);
    }

    /// The same with names in the first column, which are not broken.
    pub(crate) fn named(&mut self, header: &[&str], rows: Vec<Vec<Cell>>) {
        let mut table = self.table(presets::UTF8_FULL_CONDENSED, header, rows);
        if let Some(column) = table.column_mut(0) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
        self.push_table(&table);
    }

    fn table(
        &self,
        style: comfy_table::TableStyle,
        header: &[&str],
        rows: Vec<Vec<Cell>>,
    ) -> Table {
        let mut table = Table::new();
        table
            .load_style(style)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.width)
            .set_header(
                header
                    .iter()
                    .map(|name| self.cell(name).add_attribute(Attribute::Bold)),
            )
            .add_rows(rows);
        if self.ink.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    fn push_table(&mut self, table: &Table) {
        self.lines
            .extend(table.lines().map(|line| line.trim_end().to_owned()));
    }

    /// A cell with text from the document.
    pub(crate) fn cell(&self, text: &str) -> Cell {
        Cell::new(clean(text))
    }

    /// A cell that warns.
    pub(crate) fn warning_cell(&self, text: &str) -> Cell {
        self.cell(text)
            .fg(Color::Red)
            .add_attribute(Attribute::Bold)
    }

    /// A cell with a verdict's outcome, or with text that stands for it.
    pub(crate) fn outcome_cell(&self, outcome: Option<VerdictOutcome>, text: &str) -> Cell {
        let cell = self.cell(text);
        match outcome {
            Some(VerdictOutcome::Holds) => cell.fg(Color::Green),
            Some(VerdictOutcome::Leaks) => cell.fg(Color::Yellow),
            Some(VerdictOutcome::Fails) => cell.fg(Color::Red),
            Some(VerdictOutcome::Inconclusive) | None => cell,
        }
    }
}
