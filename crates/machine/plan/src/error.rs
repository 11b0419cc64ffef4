// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a text is no plan, with the place and the offending line.

use std::ops::Range;

use rampart_model::clean;

/// Why a text is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}; {fix}\n{excerpt}")]
pub struct PlanError {
    /// The file's name as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub fix: String,
    /// The line, with a mark under the place.
    pub excerpt: String,
}

impl PlanError {
    /// An error at bytes `span` of `text`.
    pub(crate) fn new(
        text: &str,
        file: &str,
        span: Range<usize>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        let start = boundary(text, span.start);
        let (line, column) = position(text, start);
        let content = text.lines().nth(line - 1).unwrap_or_default();
        // A value over several lines is marked to the end of its first one.
        let marked = text
            .get(start..boundary(text, span.end))
            .and_then(|part| part.lines().next())
            .map_or(1, |part| part.chars().count())
            .clamp(1, 120);
        let lead = " ".repeat(line.to_string().len());
        let indent: String = content
            .chars()
            .take(column - 1)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        Self {
            file: file.to_owned(),
            line,
            column,
            what: what.into(),
            fix: fix.into(),
            excerpt: format!(
                "{lead} |\n{line} | {}\n{lead} | {indent}{}",
                printable(content),
                "^".repeat(marked)
            ),
        }
    }
}

/// Line and column, both from 1, of a byte of `text`.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..boundary(text, at)).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before
        .rsplit('\n')
        .next()
        .map_or(0, |rest| rest.chars().count())
        + 1;
    (line, column)
}

/// The nearest beginning of a character at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The line as it may be shown; a mark stands under it, so that tabs stay.
fn printable(text: &str) -> String {
    let parts: Vec<String> = text.split('\t').map(clean).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_place_is_marked() {
        let text = "a = 1\nb = \"é\" # x\n";
        let error = PlanError::new(text, "f", 10..14, "wrong", "right");
        assert_eq!((error.line, error.column), (2, 5));
        assert_eq!(error.excerpt, "  |\n2 | b = \"é\" # x\n  |     ^^^");
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_has_a_place(text in any::<String>(), start in 0usize..90, end in 0usize..90) {
            let error = PlanError::new(&text, "f", start..end, "w", "m");
            prop_assert!(error.line >= 1 && error.column >= 1);
        }
    }
}
