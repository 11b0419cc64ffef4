// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Notations of values in files, and comparison of values in them.

use rampart_model::{CpuSet, Schemata};
use rampart_rules::marked;
use serde::{Deserialize, Serialize};

/// The notation of a file's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Notation {
    /// CPUs as a list.
    List,
    /// CPUs as a mask, with any number of leading zeros.
    Mask,
    /// A text or number; surrounding space is ignored.
    Text,
    /// One of several words in brackets, as in `always [madvise] never`; written without the others.
    Marked,
    /// Ways of caches and parts of memory bandwidth; only resources in both texts are compared.
    Schemata,
    /// A number of pages; the kernel may reserve fewer without an error.
    Pages,
}

impl Notation {
    /// Returns whether two values are equal.
    pub(crate) fn same(self, left: &str, right: &str) -> bool {
        let (left, right) = (left.trim(), right.trim());
        match self {
            Self::Text | Self::Pages => left == right,
            Self::Marked => marked(left) == marked(right),
            Self::Schemata => same_schemata(left, right),
            Self::List | Self::Mask => match (self.cpus(left), self.cpus(right)) {
                (Some(left), Some(right)) => left == right,
                _ => left == right,
            },
        }
    }

    /// Parses the CPUs of a value.
    pub(crate) fn cpus(self, value: &str) -> Option<CpuSet> {
        match self {
            Self::List => value.trim().parse().ok(),
            Self::Mask => CpuSet::from_mask(value).ok(),
            Self::Text | Self::Marked | Self::Schemata | Self::Pages => None,
        }
    }

    /// Returns the value to write so that the file has this text.
    pub(crate) fn to_write(self, text: &str) -> &str {
        match self {
            Self::Marked => marked(text),
            Self::List | Self::Mask | Self::Text | Self::Schemata | Self::Pages => text.trim(),
        }
    }

    /// Formats CPUs in this notation.
    pub(crate) fn write(self, cpus: &CpuSet) -> String {
        match self {
            Self::Mask => cpus.to_mask(),
            Self::List | Self::Text | Self::Marked | Self::Schemata | Self::Pages => {
                cpus.to_string()
            }
        }
    }

    /// Returns whether `present` can result from writing `new` over `old`. A process may end before it
    /// has recorded the value that the kernel stored.
    pub(crate) fn results_from(self, present: &str, old: &str, new: &str) -> bool {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        match (self, number(old), number(present), number(new)) {
            (Self::Pages, Some(old), Some(present), Some(new)) => {
                (old.min(new)..=old.max(new)).contains(&present)
            }
            _ => self.same(present, new),
        }
    }

    /// Returns the part of a file's text with the resources that `value` contains.
    pub(crate) fn relevant_part(self, text: &str, value: &str) -> String {
        match self {
            Self::Schemata => Schemata::parse(text)
                .about(&Schemata::parse(value))
                .to_string(),
            _ => text.trim().to_owned(),
        }
    }
}

/// Returns whether one is a part of the other, and their common resources are equal.
fn same_schemata(left: &str, right: &str) -> bool {
    let (left, right) = (Schemata::parse(left), Schemata::parse(right));
    let (of_left, of_right) = (left.about(&right), right.about(&left));
    of_left == of_right && (of_left == left || of_right == right) && !of_left.0.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_compare_as_sets_and_texts_as_texts() {
        assert!(Notation::Mask.same("00000c00,f000c00f\n", "c00,f000c00f"));
        assert!(Notation::List.same("0-2\n", "0,1,2"));
        assert!(!Notation::List.same("0-2", "0-3"));
        assert!(Notation::Text.same("950000\n", "950000"));
        assert!(!Notation::Text.same("0-2", "0,1,2"));
        assert!(Notation::Marked.same("always [madvise] never\n", "madvise"));
        assert!(!Notation::Marked.same("always [madvise] never", "never"));
        assert_eq!(Notation::Marked.to_write("a [b] c\n"), "b");
        assert!(Notation::Pages.results_from("30\n", "10", "50"));
        assert!(!Notation::Pages.results_from("51", "10", "50"));
        assert!(!Notation::Text.results_from("30", "10", "50"));
        let file = "    MB:0= 10;1=100\n    L3:0=00f;1=0ff\n";
        assert!(Notation::Schemata.same(file, "L3:1=ff"));
        assert!(!Notation::Schemata.same(file, "L3:1=f"));
        assert!(!Notation::Schemata.same(file, "L2:1=f"));
        assert!(!Notation::Schemata.same(file, "L3:1=ff;7=1"));
        assert_eq!(Notation::Schemata.relevant_part(file, "L3:1=1"), "L3:1=ff");
    }
}
