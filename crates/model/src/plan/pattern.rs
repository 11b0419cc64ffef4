// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Patterns of names in a plan: of threads, and of interrupts.

use super::domain::{InterruptMatch, ThreadRule};
use crate::Interrupt;

impl ThreadRule {
    /// Returns whether the rule applies to a thread of this name.
    #[must_use]
    pub fn is_match(&self, name: &str) -> bool {
        is_match(&self.r#match, name)
    }
}

impl InterruptMatch {
    /// Returns whether an interrupt matches. Several drivers can share an interrupt; one that matches
    /// is enough.
    #[must_use]
    pub fn is_match(&self, interrupt: &Interrupt) -> bool {
        let fits = |pattern: &Option<String>, text: &str| {
            pattern
                .as_ref()
                .is_none_or(|pattern| is_match(pattern, text))
        };
        let mut actions = interrupt.action.split(',');
        actions.any(|action| fits(&self.action, action.trim()))
            && fits(&self.chip, &interrupt.chip)
            && fits(&self.name, &interrupt.name)
    }
}

/// Returns whether `text` matches `pattern`, in which `*` matches any text.
#[must_use]
fn is_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = rest.get(at + part.len()..).unwrap_or_default(),
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::is_match;

    #[test]
    fn a_star_matches_any_text() {
        for (pattern, text, expected) in [
            ("eth0", "eth0", true),
            ("eth0", "eth01", false),
            ("eth0-*", "eth0-rx-3", true),
            ("*-rx-*", "eth0-rx-3", true),
            ("*-rx-*", "eth0-tx-3", false),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("*", "", true),
            ("", "x", false),
            ("*ü*", "xüy", true),
        ] {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }
}
