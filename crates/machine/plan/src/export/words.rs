// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats texts for other tools: comments, names, words of a shell.

use std::collections::BTreeSet;

use rampart_model::{clean, wrapped};

const WIDTH: usize = 96;

/// Returns an entry of a list, wrapped into lines.
pub(super) fn listed(text: &str) -> Vec<String> {
    wrapped("- ", "  ", &clean(text), WIDTH + 2)
}

/// Wraps a text into lines for a comment, with control characters replaced.
pub(super) fn broken(text: &str) -> Vec<String> {
    wrapped("", "", &clean(text), WIDTH)
}

/// Formats lines as comments that begin with `#`.
pub(super) fn hash(lines: &[String]) -> String {
    lines
        .iter()
        // systemd joins a line that ends with a backslash and the next one.
        .map(|line| format!("# {}\n", line.trim_end_matches('\\')))
        .collect()
}

/// Quotes words for a shell; `None` if a word contains a NUL character.
pub(super) fn shell(words: &[String]) -> Option<String> {
    shlex::try_join(words.iter().map(String::as_str)).ok()
}

/// Returns a name as an RFC 1123 label: at most 63 lower-case letters, digits and hyphens (Kubernetes,
/// "Object Names and IDs"). Adds it to `taken`, the labels in use.
pub(super) fn label(name: &str, taken: &mut BTreeSet<String>) -> String {
    let mut label: String = name
        .to_ascii_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(55)
        .collect();
    label = label.trim_matches('-').to_owned();
    let mut unique = label.clone();
    let mut number = 2;
    while !taken.insert(unique.clone()) {
        unique = format!("{label}-{number}");
        number += 1;
    }
    unique
}

/// Escapes a name for a unit's name: a hyphen would put the slice below another one (systemd.slice(5),
/// systemd-escape(1)).
pub(super) fn unit_part(name: &str) -> String {
    name.replace('-', "\\x2d")
}

/// Returns the slice of a domain, below `rampart.slice`.
pub(super) fn slice(name: &str) -> String {
    format!("rampart-{}.slice", unit_part(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_valid_and_unique() {
        let mut taken = BTreeSet::new();
        let names = ["press-control", "V1.2_x", "v1-2-x", "v1_2_x", "a_"];
        let labels: Vec<String> = names.iter().map(|name| label(name, &mut taken)).collect();
        assert_eq!(
            labels,
            ["press-control", "v1-2-x", "v1-2-x-2", "v1-2-x-3", "a"]
        );
        let long = label(&"x".repeat(64), &mut taken);
        assert!(long.len() <= 63, "{long}");
    }

    #[test]
    fn wraps_and_escapes_comments() {
        let lines = broken(&format!("a\nb\u{1b}c {}", "word ".repeat(40)));
        assert!(
            lines.len() > 1 && lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{lines:?}"
        );
        assert!(lines[0].starts_with("a b\u{fffd}c word"), "{lines:?}");
        assert_eq!(hash(&["x\\".to_owned()]), "# x\n");
        assert_eq!(listed("a")[0], "- a");
    }

    #[test]
    fn escapes_hyphens_in_names_of_slices() {
        assert_eq!(slice("press-control"), "rampart-press\\x2dcontrol.slice");
    }
}
