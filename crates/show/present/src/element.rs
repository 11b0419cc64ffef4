// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Elements of presentation as plain data. They have all words, figures and outcomes; a renderer only
//! lays them out.

use rampart_model::{Severity, VerdictOutcome};
use serde::Serialize;

/// One part of a report, in reading order.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Element {
    /// Starts a section (level 2) or a part of one (levels 3 and 4). Level 1 is the title.
    Heading {
        /// 1 to 4.
        level: u8,
        /// Anchor of the section; empty below level 2.
        id: String,
        /// The heading.
        text: Text,
        /// Short name for a navigation bar.
        name: String,
    },
    /// Running text.
    Paragraph {
        /// The text.
        text: Text,
        /// Whether it explains the element after it instead of stating a result.
        remark: bool,
    },
    /// A fact that limits every figure.
    Alarm {
        /// Its severity.
        severity: Severity,
        /// The fact.
        title: String,
        /// The consequences.
        text: Text,
    },
    /// What to use, and what to do next.
    FirstAnswer {
        /// Which domain is best, and how good it is.
        answer: Text,
        /// What follows from it.
        parts: Vec<AnswerPart>,
    },
    /// One sentence for each domain.
    Answers {
        /// In the order of the plan.
        answers: Vec<Answer>,
    },
    /// Names and values.
    Pairs {
        /// In reading order.
        pairs: Vec<Pair>,
    },
    /// Items without an order, for example steps or reasons.
    List {
        /// The items.
        items: Vec<ListItem>,
    },
    /// Rows and columns.
    Table(Table),
    /// Errors, warnings and notes.
    Findings {
        /// In the order of their severity.
        findings: Vec<FindingItem>,
    },
    /// Verdicts, each with a link to its evidence.
    Badges {
        /// The verdicts.
        badges: Vec<Badge>,
        /// Summary of the folded verdicts; empty without any.
        summary: String,
        /// Verdicts that are shown only on request.
        folded: Vec<Badge>,
    },
    /// The transfer matrix.
    Matrix(crate::charts::Matrix),
    /// Distributions of latencies, with switches. Drawn by the page alone.
    Latency(crate::charts::LatencyChart),
    /// Elements that a narrow medium leaves out: only the page shows them.
    Detail {
        /// The line that opens them; `None` if they are always open.
        summary: Option<String>,
        /// The elements.
        elements: Vec<Element>,
    },
    /// Elements side by side where there is space.
    Columns {
        /// The columns.
        columns: Vec<Vec<Element>>,
        /// Whether each has a frame of its own.
        framed: bool,
    },
    /// Elements that belong to one state of the switches of [`Element::Latency`].
    Switched {
        /// Keys of the views of the chart.
        views: Vec<String>,
        /// Condition; empty for all conditions together, `None` for any.
        condition: Option<String>,
        /// Whether a medium without switches shows them.
        leading: bool,
        /// The elements.
        elements: Vec<Element>,
    },
}

/// A text in styles.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct Text(pub Vec<Span>);

/// A part of a text in one style.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct Span {
    /// The characters.
    pub text: String,
    /// Their style.
    #[serde(skip_serializing_if = "SpanStyle::is_plain")]
    pub style: SpanStyle,
}

/// Style of a part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpanStyle {
    /// As the text around it.
    #[default]
    Plain,
    /// An emphasised figure or word.
    Strong,
    /// A command, a file, a value of a file.
    Code,
    /// An addition that only the page has.
    Faint,
    /// A value that is wrong.
    Wrong,
}

impl SpanStyle {
    fn is_plain(&self) -> bool {
        *self == Self::Plain
    }
}

impl Text {
    /// Returns a text of one part.
    pub fn of(style: SpanStyle, text: impl Into<String>) -> Self {
        Self(vec![Span {
            text: text.into(),
            style,
        }])
    }

    /// Returns a text whose parts in backticks are code.
    #[must_use]
    pub fn prose(text: &str) -> Self {
        let parts: Vec<&str> = text.split('`').collect();
        // An odd number of backticks leaves one open: the text is plain then.
        if parts.len().is_multiple_of(2) {
            return text.into();
        }
        let spans = parts.into_iter().enumerate().map(|(index, part)| Span {
            text: part.to_owned(),
            style: if index % 2 == 1 {
                SpanStyle::Code
            } else {
                SpanStyle::Plain
            },
        });
        Self(spans.filter(|span| !span.text.is_empty()).collect())
    }

    /// Adds a part.
    #[must_use]
    pub fn and(mut self, style: SpanStyle, text: impl Into<String>) -> Self {
        self.0.push(Span {
            text: text.into(),
            style,
        });
        self
    }

    /// Returns the characters, without faint parts; code is in backticks where other text is
    /// around it.
    #[must_use]
    pub fn plain(&self) -> String {
        let alone = self.0.len() == 1;
        self.0
            .iter()
            .filter(|span| span.style != SpanStyle::Faint)
            .map(|span| match span.style {
                SpanStyle::Code if !alone => format!("`{}`", span.text),
                _ => span.text.clone(),
            })
            .collect()
    }

    /// Returns whether the text has no characters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|span| span.text.is_empty())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::of(SpanStyle::Plain, text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::of(SpanStyle::Plain, text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Self::of(SpanStyle::Plain, text.as_str())
    }
}

/// An outcome, shown by colour and sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Good: isolated, met, better.
    Holds,
    /// A leak.
    Leaks,
    /// Bad.
    Fails,
    /// Not decided.
    Inconclusive,
    /// No verdict: a disturbance of the domain itself, or a miss of a deadline that the user did not
    /// set.
    Own,
}

impl Outcome {
    /// Returns the outcome's sign, for readers who do not see the colour.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Holds => "✓",
            Self::Leaks => "≈",
            Self::Fails => "✗",
            Self::Inconclusive => "?",
            Self::Own => "●",
        }
    }
}

impl From<VerdictOutcome> for Outcome {
    fn from(outcome: VerdictOutcome) -> Self {
        match outcome {
            VerdictOutcome::Holds => Self::Holds,
            VerdictOutcome::Leaks => Self::Leaks,
            VerdictOutcome::Fails => Self::Fails,
            VerdictOutcome::Inconclusive => Self::Inconclusive,
        }
    }
}

/// A word with an outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Badge {
    /// Its colour.
    pub outcome: Outcome,
    /// Its sign.
    pub sign: &'static str,
    /// Its subject.
    pub about: String,
    /// The outcome as a word, for readers who do not see the sign.
    pub word: String,
    /// Whether the word is visible.
    pub word_seen: bool,
    /// Anchor of its evidence.
    pub link: Option<String>,
    /// The whole statement, for a hint.
    pub hint: String,
}

/// A part of the first answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct AnswerPart {
    /// Its subject.
    pub label: &'static str,
    /// One or two sentences.
    pub text: Text,
    /// A command that can be pasted as it is; may be empty.
    pub command: String,
}

/// One domain's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Answer {
    /// The domain.
    pub name: String,
    /// Its CPUs.
    pub place: String,
    /// The answer.
    pub sentence: Text,
    /// The most severe verdict on each question.
    pub badges: Vec<Badge>,
    /// Description of the domain.
    pub description: String,
}

/// A name and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Pair {
    /// The name.
    pub name: String,
    /// The value, one line each.
    pub value: Vec<Text>,
    /// The rest of the value, folded; only the page has it.
    pub more: Option<String>,
}

impl Pair {
    /// Returns a pair of one line.
    pub fn new(name: impl Into<String>, value: impl Into<Text>) -> Self {
        Self::lines(name, vec![value.into()])
    }

    /// Returns a pair of several lines.
    pub fn lines(name: impl Into<String>, value: Vec<Text>) -> Self {
        Self {
            name: name.into(),
            value,
            more: None,
        }
    }
}

/// An item of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, schemars::JsonSchema)]
pub struct ListItem {
    /// The name of the item; may be empty.
    pub label: String,
    /// Its text.
    pub text: Text,
    /// Items below it.
    pub items: Vec<ListItem>,
}

/// Style of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TableStyle {
    /// Without lines, for figures.
    Figures,
    /// With lines, for words.
    Lines,
    /// Drawings, one a row.
    Drawings,
}

/// Rows and columns.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Table {
    /// Its title for screen readers.
    pub caption: String,
    /// A name for the style sheet.
    pub class: String,
    /// Its style.
    pub style: TableStyle,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub groups: Vec<RowGroup>,
}

/// Contents of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ColumnKind {
    /// Words.
    Text,
    /// Names, which are not broken.
    Name,
    /// Numbers, aligned at the right.
    Figure,
    /// Outcomes.
    Outcome,
}

/// A column.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Column {
    /// Its name.
    pub name: Text,
    /// Its contents.
    pub kind: ColumnKind,
    /// Whether only the page has it.
    pub detail: bool,
    /// The axis of its drawings.
    pub axis: Option<Axis>,
}

impl Column {
    /// Returns a column of this kind.
    pub fn new(kind: ColumnKind, name: impl Into<Text>) -> Self {
        Self {
            name: name.into(),
            kind,
            detail: false,
            axis: None,
        }
    }

    /// Shows the column only on the page.
    #[must_use]
    pub fn detail(mut self) -> Self {
        self.detail = true;
        self
    }
}

/// Rows that belong together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct RowGroup {
    /// Their common name; may be empty.
    pub name: String,
    /// Description, on the page.
    pub about: Text,
    /// The condition that they belong to, for [`Element::Latency`]'s switch.
    pub condition: Option<String>,
    /// Whether only the page has them.
    pub detail: bool,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct Row {
    /// Its anchor.
    pub id: Option<String>,
    /// The whole statement, for a hint.
    pub hint: String,
    /// Whether its figures are invalid.
    pub invalid: bool,
    /// One for each column.
    pub entries: Vec<Entry>,
    /// The data behind the row; the page opens it on request.
    pub detail: Vec<Element>,
}

/// The entry at one row and column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct Entry {
    /// The text.
    pub text: Text,
    /// Its outcome.
    pub outcome: Option<Outcome>,
    /// The sign of the outcome.
    pub sign: Option<&'static str>,
    /// The drawing of the figure.
    pub drawing: Option<Drawing>,
    /// Details, on the page.
    pub detail: Vec<Element>,
}

impl Entry {
    /// Returns an entry with an outcome.
    pub fn outcome(outcome: Option<Outcome>, text: impl Into<Text>) -> Self {
        Self {
            text: text.into(),
            outcome,
            sign: outcome.map(Outcome::sign),
            ..Self::default()
        }
    }
}

impl<T: Into<Text>> From<T> for Entry {
    fn from(text: T) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }
}

/// A finding as it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct FindingItem {
    /// Its severity.
    pub severity: Severity,
    /// The severity as a word.
    pub word: &'static str,
    /// Its location; may be empty.
    pub location: String,
    /// The deviation.
    pub what: Text,
    /// The values expected and found; may be empty.
    pub values: String,
    /// The fixes; each suffices.
    pub fixes: Vec<Text>,
}

/// Names along a horizontal axis: position in percent, and text.
#[derive(Debug, Clone, PartialEq, Default, Serialize, schemars::JsonSchema)]
pub struct Axis(pub Vec<(f64, String)>);

/// A small drawing in an entry. All positions and widths are in percent of its width.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Drawing {
    /// An estimate with the ends of its interval, over the tolerance.
    Interval {
        /// Description for screen readers.
        label: String,
        /// The estimate.
        estimate: f64,
        /// The interval.
        ends: (f64, f64),
        /// The shaded tolerance.
        tolerance: (f64, f64),
        /// The value that means no effect.
        no_effect: f64,
        /// Its colour.
        outcome: Outcome,
    },
    /// Parts of a whole, one after the other, with their hints as a legend, which replaces the text
    /// of the entry.
    Shares {
        /// Description for screen readers.
        label: String,
        /// The parts.
        parts: Vec<Share>,
    },
    /// The survival of a domain after an event.
    Life {
        /// Description for screen readers.
        label: String,
        /// Certain until, last sign, possible until; `None` without a sign.
        until: Option<(f64, f64, f64)>,
        /// The event.
        event: f64,
        /// Its colour.
        outcome: Outcome,
    },
    /// Values as dots, with their median.
    Dots {
        /// Description for screen readers.
        label: String,
        /// The values.
        values: Vec<f64>,
        /// Their median.
        median: Option<f64>,
        /// Name of the shade.
        shade: &'static str,
    },
    /// Events in the time of a run.
    Events {
        /// Description for screen readers.
        label: String,
        /// Number of the curve that has the colour of the events.
        curve: usize,
        /// The end of the warm-up.
        warm_up: f64,
        /// The end of the run.
        end: f64,
        /// Position, height in percent, and hint of each.
        events: Vec<(f64, f64, String)>,
    },
}

/// A part of [`Drawing::Shares`].
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Share {
    /// Its start.
    pub from: f64,
    /// Its width.
    pub width: f64,
    /// Name of its colour.
    pub class: &'static str,
    /// Its meaning.
    pub hint: String,
}

impl Element {
    /// Returns a heading that starts a section.
    pub fn section(id: &str, text: impl Into<Text>, name: &str) -> Self {
        Self::Heading {
            level: 2,
            id: id.to_owned(),
            text: text.into(),
            name: name.to_owned(),
        }
    }

    /// Returns a heading within a section.
    pub fn heading(level: u8, text: impl Into<Text>) -> Self {
        Self::Heading {
            level,
            id: String::new(),
            text: text.into(),
            name: String::new(),
        }
    }

    /// Returns running text.
    pub fn paragraph(text: impl Into<Text>) -> Self {
        Self::Paragraph {
            text: text.into(),
            remark: false,
        }
    }

    /// Returns running text that explains an element.
    pub fn remark(text: impl Into<Text>) -> Self {
        Self::Paragraph {
            text: text.into(),
            remark: true,
        }
    }

    /// Returns elements that only the page shows.
    #[must_use]
    pub fn detail(elements: Vec<Element>) -> Self {
        Self::Detail {
            summary: None,
            elements,
        }
    }

    /// Returns elements that only the page shows, on request.
    pub fn folded(summary: impl Into<String>, elements: Vec<Element>) -> Self {
        Self::Detail {
            summary: Some(summary.into()),
            elements,
        }
    }
}

impl Table {
    /// Returns a table of ungrouped rows.
    pub fn new(
        style: TableStyle,
        caption: impl Into<String>,
        columns: Vec<Column>,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            caption: caption.into(),
            class: String::new(),
            style,
            columns,
            groups: vec![RowGroup {
                rows,
                ..RowGroup::default()
            }],
        }
    }

    /// Sets the name for the style sheet.
    #[must_use]
    pub fn class(mut self, class: &str) -> Self {
        class.clone_into(&mut self.class);
        self
    }
}

impl Row {
    /// Returns a row of these entries.
    #[must_use]
    pub fn new(entries: Vec<Entry>) -> Self {
        Self {
            entries,
            ..Self::default()
        }
    }
}
