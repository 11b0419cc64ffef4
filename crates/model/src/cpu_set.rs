// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets of CPUs, in the two notations of the kernel: lists (`0-3,8`) and masks (`f,00000003`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::CpuList;

/// The number that Linux gives a logical CPU.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs. Written and read as the kernel's list, for example `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuSet(BTreeSet<CpuId>);

/// The error of a text that is not a set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a set of CPUs: {reason}; write a list such as `1`, `2-3`, `1,4-7` or `0-7:1/2`"
)]
pub struct ParseCpuSetError {
    /// The text.
    pub text: String,
    /// The cause.
    pub reason: String,
}

impl CpuSet {
    /// Returns the empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the set with only `cpu`.
    #[must_use]
    pub fn single(cpu: CpuId) -> Self {
        Self(BTreeSet::from([cpu]))
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the set contains `cpu`.
    #[must_use]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds `cpu`.
    pub fn insert(&mut self, cpu: CpuId) {
        self.0.insert(cpu);
    }

    /// Returns the CPUs in rising order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// Returns the lowest CPU.
    #[must_use]
    pub fn first(&self) -> Option<CpuId> {
        self.0.first().copied()
    }

    /// Returns the CPUs in `self` but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Returns the CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// Returns the CPUs in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// Returns whether each CPU of `self` is in `other`.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Formats the CPUs for a sentence: `no CPU`, `CPU 3`, `CPUs 2-3`.
    pub fn named(&self) -> impl fmt::Display + use<'_> {
        Named(self)
    }

    /// Parses the kernel's mask notation: 32-bit groups in hexadecimal, highest first, with or
    /// without leading zeros (`3`, `f,00000000`), as in `/proc/irq/*/smp_affinity`.
    ///
    /// # Errors
    /// Returns an error if a group is not hexadecimal or has more than eight digits.
    pub fn from_mask(text: &str) -> Result<Self, ParseCpuSetError> {
        let mut set = Self::new();
        for (index, group) in text.trim().rsplit(',').enumerate() {
            let error = |reason: String| ParseCpuSetError {
                text: text.to_owned(),
                reason,
            };
            // Workqueue masks of small machines have one group of any width.
            let bits = u128::from_str_radix(group.trim_start_matches("0x"), 16)
                .map_err(|_| error(format!("the group `{group}` is not a hexadecimal mask")))?;
            for bit in 0..128 {
                if bits & (1 << bit) != 0 {
                    set.insert(CpuId(index as u32 * 32 + bit));
                }
            }
        }
        Ok(set)
    }

    /// Formats the set in the kernel's mask notation, in its shortest form.
    #[must_use]
    pub fn to_mask(&self) -> String {
        let groups = self.0.last().map_or(1, |last| last.0 / 32 + 1);
        let words: Vec<u32> = (0..groups)
            .rev()
            .map(|group| {
                self.iter()
                    .filter(|cpu| cpu.0 / 32 == group)
                    .fold(0, |word, cpu| word | 1 << (cpu.0 % 32))
            })
            .collect();
        let mut text = format!("{:x}", words[0]);
        for word in &words[1..] {
            text.push_str(&format!(",{word:08x}"));
        }
        text
    }
}

struct Named<'a>(&'a CpuSet);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.len() {
            0 => f.pad("no CPU"),
            1 => f.pad(&format!("CPU {}", self.0)),
            _ => f.pad(&format!("CPUs {}", self.0)),
        }
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Parses the kernel's list notation without `all` and `N`, for which [`CpuList`] needs the
    /// machine. The empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<CpuList>()?.resolve(&Self::new())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match ranges.last_mut() {
                Some((_, high)) if *high + 1 == cpu.0 => *high = cpu.0,
                _ => ranges.push((cpu.0, cpu.0)),
            }
        }
        let parts: Vec<String> = ranges
            .into_iter()
            .map(|(low, high)| {
                if low == high {
                    low.to_string()
                } else {
                    format!("{low}-{high}")
                }
            })
            .collect();
        f.pad(&parts.join(","))
    }
}

impl Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl schemars::JsonSchema for CpuSet {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "CpuSet".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "CPUs as the kernel's list, for example `0-3,8` or `0-7:1/2`; empty for none",
            "pattern": "^([0-9]+(-[0-9]+)?(:[0-9]+/[0-9]+)?(,[0-9]+(-[0-9]+)?(:[0-9]+/[0-9]+)?)*)?$"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn masks_compare_as_sets() {
        let padded = CpuSet::from_mask("00000c00,f000c00f").expect("mask");
        assert_eq!(CpuSet::from_mask("c00,f000c00f"), Ok(padded));
        assert!(CpuSet::from_mask("xyz").is_err());
    }

    #[test]
    fn refuses_an_invalid_list() {
        for text in ["a", "3-1", "1,,2", "70000", "all", "0-N"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text}");
        }
    }

    #[test]
    fn formats_singular_and_plural() {
        for (text, named) in [
            ("", "no CPU"),
            ("3", "CPU 3"),
            ("2-3", "CPUs 2-3"),
            ("1,4", "CPUs 1,4"),
        ] {
            let set: CpuSet = text.parse().expect("CPUs");
            assert_eq!(set.named().to_string(), named);
        }
    }

    proptest! {
        #[test]
        fn list_and_mask_round_trip(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let set: CpuSet = cpus.into_iter().map(CpuId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set.clone()));
            prop_assert_eq!(CpuSet::from_mask(&set.to_mask()), Ok(set));
        }

        #[test]
        fn accepts_any_text(text in ".{0,20}") {
            let _ = text.parse::<CpuSet>();
            let _ = CpuSet::from_mask(&text);
        }
    }
}
