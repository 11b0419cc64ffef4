// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names: which are allowed, and patterns that match them.

/// The word that stands for the housekeeping CPUs where a domain's name could stand.
pub(crate) const HOUSEKEEPING: &str = "housekeeping";

/// Whether `name` can be a domain's: a control group and a unit are named after it.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len())
        && name.chars().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name != HOUSEKEEPING
}

/// Whether `text` matches `pattern`, in which `*` stands for any text: names of threads and of
/// interrupts in a plan.
#[must_use]
pub fn matches(pattern: &str, text: &str) -> bool {
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
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
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
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn names_are_those_of_groups() {
        for name in ["press-control", "a", "v1.2_x"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "-a",
            "a/b",
            "a b",
            "housekeeping",
            "ü",
            "a\n",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }
}
