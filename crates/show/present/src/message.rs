// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Messages: an error or a finding on several lines.

/// Returns a message with the cause first, then the expected and the found value and each fix on
/// lines of their own.
///
/// Errors arrive as one line, `cause (expected A, found B); fix: C; fix: D`, because they are also
/// values of documents.
#[must_use]
pub fn message(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join("\n")
}

fn line(text: &str) -> String {
    let mut parts = text.split("; fix: ");
    let cause = parts.next().unwrap_or_default();
    let mut lines = vec![];
    match values(cause) {
        Some((cause, expected, found)) => {
            lines.push(cause.to_owned());
            lines.extend(expected.map(|value| format!("expected: {value}")));
            lines.extend(found.map(|value| format!("found: {value}")));
        }
        None => lines.push(cause.to_owned()),
    }
    lines.extend(parts.map(|fix| format!("fix: {fix}")));
    lines.join("\n")
}

/// Splits off the values in parentheses at the end of a cause.
fn values(text: &str) -> Option<(&str, Option<&str>, Option<&str>)> {
    let text = text.strip_suffix(')')?;
    if let Some((cause, values)) = text.rsplit_once(" (expected ") {
        return Some(match values.split_once(", found ") {
            Some((expected, found)) => (cause, Some(expected), Some(found)),
            None => (cause, Some(values), None),
        });
    }
    let (cause, found) = text.rsplit_once(" (found ")?;
    Some((cause, None, Some(found)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{Finding, Severity};

    #[test]
    fn puts_values_and_fixes_on_lines_of_their_own() {
        let finding = Finding::new(Severity::Error, "--cpus", "not usable")
            .values("CPU 7 (offline)", "some of 0-3")
            .fix("rampart check\nrampart plan");
        assert_eq!(
            message(&finding.to_string()),
            "--cpus: not usable\nexpected: some of 0-3\nfound: CPU 7 (offline)\n\
             fix: rampart check\nfix: rampart plan"
        );
        assert_eq!(message("a (found b)"), "a\nfound: b");
        assert_eq!(
            message("a (b)\nc; fix: d; fix: e"),
            "a (b)\nc\nfix: d\nfix: e"
        );
    }
}
