// SPDX-License-Identifier: Apache-2.0 OR MIT
//! When two texts of a file mean the same.

use rampart_knobs::marked;
use rampart_model::CpuSet;
use serde::{Deserialize, Serialize};

/// How the value of a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Notation {
    /// CPUs as a list.
    List,
    /// CPUs as a mask, with any number of leading zeros.
    Mask,
    /// A text or number; space around it does not count.
    Text,
    /// One of several words, between brackets, as in `always [madvise] never`; it alone is written.
    Marked,
}

impl Notation {
    /// Whether two values mean the same.
    pub(crate) fn same(self, left: &str, right: &str) -> bool {
        let (left, right) = (left.trim(), right.trim());
        match self {
            Self::Text => left == right,
            Self::Marked => marked(left) == marked(right),
            Self::List | Self::Mask => match (self.cpus(left), self.cpus(right)) {
                (Some(left), Some(right)) => left == right,
                _ => left == right,
            },
        }
    }

    /// The CPUs that a value names.
    pub(crate) fn cpus(self, value: &str) -> Option<CpuSet> {
        match self {
            Self::List => value.trim().parse().ok(),
            Self::Mask => CpuSet::from_mask(value).ok(),
            Self::Text | Self::Marked => None,
        }
    }

    /// What is to be written so that a file reads as this text.
    pub(crate) fn to_write(self, text: &str) -> &str {
        match self {
            Self::Marked => marked(text),
            Self::List | Self::Mask | Self::Text => text.trim(),
        }
    }

    /// CPUs in this notation.
    pub(crate) fn write(self, cpus: &CpuSet) -> String {
        match self {
            Self::Mask => cpus.to_mask(),
            Self::List | Self::Text | Self::Marked => cpus.to_string(),
        }
    }
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
    }
}
