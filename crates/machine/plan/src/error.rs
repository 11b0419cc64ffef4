// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The error of an invalid plan, with its location and the invalid line.

use std::ops::Range;

use rampart_model::clean;

/// An invalid plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {what}; {fix}\n{excerpt}")]
pub struct PlanError {
    /// Name of the file, as passed by the caller.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong.
    pub what: String,
    /// The correction.
    pub fix: String,
    /// The line, with a mark under the location.
    pub excerpt: String,
}

impl PlanError {
    /// Creates an error at the bytes `span` of `text`.
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
        // The mark of a value over several lines ends with its first line.
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

/// Returns line and column, both from 1, of a byte of `text`.
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

/// Returns the nearest start of a character at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Returns a line without control characters except tabs, so that the mark is under its location.
fn printable(text: &str) -> String {
    let parts: Vec<String> = text.split('\t').map(clean).collect();
    parts.join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_the_location() {
        let text = "a = 1\nb = \"é\" # x\n";
        let error = PlanError::new(text, "f", 10..14, "wrong", "right");
        assert_eq!((error.line, error.column), (2, 5));
        assert_eq!(error.excerpt, "  |\n2 | b = \"é\" # x\n  |     ^^^");
    }

    proptest! {
        #[test]
        fn any_span_of_any_text_has_a_location(text in any::<String>(), start in 0usize..90, end in 0usize..90) {
            let error = PlanError::new(&text, "f", start..end, "w", "m");
            prop_assert!(error.line >= 1 && error.column >= 1);
        }
    }
}
