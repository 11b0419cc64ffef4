// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names that domains may have.

/// The name of the housekeeping CPUs where a plan refers to a domain.
pub(crate) const HOUSEKEEPING: &str = "housekeeping";

/// Returns whether a domain may have this name: a control group and a unit are named after it.
pub(crate) fn is_name(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (1..=64).contains(&name.len())
        && name.chars().all(allowed)
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name != HOUSEKEEPING
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_of_control_groups_and_units() {
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
