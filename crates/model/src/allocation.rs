// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Division of caches and memory bandwidth (Documentation/filesystems/resctrl.rst; Arm's MPAM has the
//! same files).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// Ways of a cache, one bit each, in hexadecimal as in schemata.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct WayMask(pub u64);

impl WayMask {
    /// Returns `count` ways from number `first` on; `None` if they do not fit into a mask.
    #[must_use]
    pub fn run(first: u32, count: u32) -> Option<Self> {
        if first.checked_add(count)? > u64::BITS {
            return None;
        }
        let ones = u64::MAX.checked_shr(u64::BITS - count).unwrap_or(0);
        Some(Self(ones.checked_shl(first).unwrap_or(0)))
    }

    /// Parses a mask of a schemata or `info` file.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    /// Returns the number of ways.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the number after the highest way.
    #[must_use]
    pub const fn end(self) -> u32 {
        u64::BITS - self.0.leading_zeros()
    }

    /// Returns whether there are ways, and all are adjacent.
    #[must_use]
    pub const fn is_contiguous(self) -> bool {
        self.0 != 0
            && (self.0 >> self.0.trailing_zeros())
                .wrapping_add(1)
                .is_power_of_two()
            || self.0 == u64::MAX
    }

    /// Returns the ways of either mask.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the ways that are not in the other mask.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether some ways are in both masks.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the longest run of adjacent ways; the lowest of several.
    #[must_use]
    pub fn longest_run(self) -> Self {
        let mut longest = Self(0);
        let mut run = Self(0);
        for bit in 0..u64::BITS {
            let way = Self(1 << bit);
            run = if self.overlaps(way) {
                run.union(way)
            } else {
                Self(0)
            };
            if run.count() > longest.count() {
                longest = run;
            }
        }
        longest
    }
}

impl fmt::Display for WayMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:x}", self.0))
    }
}

impl From<WayMask> for String {
    fn from(mask: WayMask) -> Self {
        mask.to_string()
    }
}

impl TryFrom<String> for WayMask {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| {
            format!("`{text}` are no ways of a cache; write a hexadecimal mask such as `ff0`")
        })
    }
}

impl schemars::JsonSchema for WayMask {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WayMask".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "description": "Ways of a cache as a hexadecimal mask, for example `ff0`",
            "pattern": "^(0x)?[0-9a-fA-F]{1,16}$"
        })
    }
}

/// Support for dividing caches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheControl {
    /// The kernel has no resctrl, or the processor does not support it.
    Absent,
    /// resctrl is supported and not mounted, so its resources are unknown.
    NotMounted,
    /// Resources that can be divided, and their groups.
    Mounted(Allocation),
}

/// Resources that can be divided, and their groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Mount point of resctrl.
    pub point: String,
    /// Caches; twice for a cache whose code and data are divided separately (CDP).
    pub caches: Vec<CacheResource>,
    /// Memory bandwidth; `None` if it cannot be divided.
    pub bandwidth: Option<BandwidthResource>,
    /// Maximum number of groups, including the default group (`num_closids`).
    pub most_groups: u32,
    /// The groups. The default group has an empty name.
    pub groups: Vec<AllocationGroup>,
}

/// One instance of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceInstance {
    /// Its number in schemata: the `id` of the cache.
    pub id: u32,
    /// The online CPUs that use it.
    pub cpus: CpuSet,
    /// Size in bytes; 0 if the firmware does not report it.
    pub size: u64,
}

/// Caches of one level that can be divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheResource {
    /// Its name in schemata: `L3`, `L2`, or `L3CODE` and `L3DATA`.
    pub name: String,
    /// Its level.
    pub level: u32,
    /// All of its ways (`cbm_mask`).
    pub all: WayMask,
    /// Minimum number of ways of a group (`min_cbm_bits`).
    pub fewest: u32,
    /// Ways that devices write to as well (`shareable_bits`).
    pub shareable: WayMask,
    /// Whether a group's ways need not be adjacent (`sparse_masks`, from 6.7 on).
    pub sparse: bool,
    /// Its instances.
    pub instances: Vec<ResourceInstance>,
}

/// Memory bandwidth that can be divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthResource {
    /// Minimum of a group (`min_bandwidth`).
    pub least: u32,
    /// Values are rounded up to a multiple of this (`bandwidth_gran`).
    pub step: u32,
    /// Whether values are percentages. They are not if resctrl is mounted with `mba_MBps`, and on AMD
    /// processors.
    pub percent: bool,
    /// Its instances, by last-level cache.
    pub instances: Vec<ResourceInstance>,
}

/// A group of tasks and CPUs with a share of the resources.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocationGroup {
    /// Its name; empty for the default group.
    pub name: String,
    /// Its CPUs. The default group has all CPUs without another group.
    pub cpus: CpuSet,
    /// `shareable`, `exclusive`, or one of the pseudo-locked modes.
    pub mode: String,
    /// Its share.
    pub schemata: Schemata,
}

impl AllocationGroup {
    /// Returns the name of the group of a plan's domain.
    #[must_use]
    pub fn name_of(domain: &str) -> String {
        format!("rampart-{domain}")
    }

    /// Returns its ways of one cache.
    #[must_use]
    pub fn ways(&self, resource: &str, id: u32) -> Option<WayMask> {
        WayMask::parse(self.schemata.0.get(resource)?.get(&id)?)
    }
}

/// Contents of a schemata file: resource, instance, value. Texts with the same meaning are equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schemata(pub BTreeMap<String, BTreeMap<u32, String>>);

impl Schemata {
    /// Parses lines such as `L3:0=ff;1=0f`; ignores other lines.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all = Self::default();
        for line in text.lines() {
            let Some((resource, values)) = line.split_once(':') else {
                continue;
            };
            for value in values.split(';') {
                let Some((id, value)) = value.split_once('=') else {
                    continue;
                };
                if let Ok(id) = id.trim().parse() {
                    all.set(resource.trim(), id, value.trim());
                }
            }
        }
        all
    }

    /// Sets the value of an instance of a resource.
    pub fn set(&mut self, resource: &str, id: u32, value: &str) {
        // The kernel shows masks with leading zeros, and bandwidth with spaces.
        let plain = value.trim_start_matches('0');
        let plain = if plain.is_empty() { "0" } else { plain };
        let values = self.0.entry(resource.to_owned()).or_default();
        values.insert(id, plain.to_ascii_lowercase());
    }

    /// Returns only the entries that `other` has too.
    #[must_use]
    pub fn about(&self, other: &Self) -> Self {
        let mut named = Self::default();
        for (resource, values) in &self.0 {
            let Some(known) = other.0.get(resource) else {
                continue;
            };
            for (id, value) in values.iter().filter(|(id, _)| known.contains_key(id)) {
                named.set(resource, *id, value);
            }
        }
        named
    }
}

impl fmt::Display for Schemata {
    /// Formats one line for each resource, as the kernel accepts them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (resource, values)) in self.0.iter().enumerate() {
            if number > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{resource}:")?;
            for (number, (id, value)) in values.iter().enumerate() {
                let before = if number > 0 { ";" } else { "" };
                write!(f, "{before}{id}={value}")?;
            }
        }
        Ok(())
    }
}

/// Ways of one cache that belong to a domain of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CacheWays {
    /// Its level.
    pub level: u32,
    /// Its number.
    pub id: u32,
    /// The ways.
    pub ways: WayMask,
    /// All ways of the cache.
    pub all: WayMask,
    /// Size of these ways in bytes; 0 if the size of the cache is not known.
    pub size: u64,
    /// Whether no other group may fill them.
    pub exclusive: bool,
}

impl fmt::Display for CacheWays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ways, all) = (self.ways.count(), self.all.count());
        let (level, id, mask) = (self.level, self.id, self.ways);
        write!(
            f,
            "{ways} of {all} ways of L{level} cache {id} (mask {mask})"
        )?;
        if self.exclusive {
            f.write_str(", its own")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn finds_runs_of_masks() {
        assert_eq!(WayMask::run(4, 4), Some(WayMask(0xf0)));
        assert_eq!(WayMask::run(0, 64), Some(WayMask(u64::MAX)));
        assert_eq!(WayMask::run(60, 5), None);
        assert_eq!(WayMask::run(3, 0), Some(WayMask(0)));
        assert_eq!(WayMask::parse("0x7FF\n"), Some(WayMask(0x7ff)));
        assert_eq!(WayMask::parse("-1"), None);
        for (mask, expected) in [
            (0b0110, true),
            (0b0101, false),
            (0, false),
            (u64::MAX, true),
            (1 << 63, true),
            (u64::MAX << 3, true),
        ] {
            assert_eq!(WayMask(mask).is_contiguous(), expected, "{mask:b}");
        }
        assert_eq!(WayMask(0b1101_1100).longest_run(), WayMask(0b0001_1100));
        assert_eq!(WayMask(0xff0).end(), 12);
    }

    #[test]
    fn schemata_compare_by_meaning() {
        let read = Schemata::parse("    MB:0= 50;1=100\n    L3:0=00f;1=7ff\nnonsense\n");
        assert_eq!(read.to_string(), "L3:0=f;1=7ff\nMB:0=50;1=100");
        let own = Schemata::parse("L3:1=7f0");
        assert_eq!(read.about(&own).to_string(), "L3:1=7ff");
        assert_eq!(Schemata::parse("L3:0=000").to_string(), "L3:0=0");
    }

    proptest! {
        #[test]
        fn schemata_round_trip(values in proptest::collection::btree_map(0..9_u32, 1..0xfff_u64, 1..5)) {
            let mut schemata = Schemata::default();
            for (id, value) in values {
                schemata.set("L2", id, &WayMask(value).to_string());
            }
            prop_assert_eq!(Schemata::parse(&schemata.to_string()), schemata);
        }

        #[test]
        fn the_longest_run_is_part_of_a_mask(mask in any::<u64>()) {
            let run = WayMask(mask).longest_run();
            prop_assert_eq!(run.without(WayMask(mask)), WayMask(0));
            prop_assert_eq!(run.is_contiguous(), mask != 0);
        }
    }
}
