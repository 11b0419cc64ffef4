// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How caches and memory bandwidth can be divided, and how they are
//! (Documentation/filesystems/resctrl.rst; Arm's MPAM has the same files).

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CpuSet;

/// Ways of a cache, one bit each, as schemata write them: hexadecimal.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(try_from = "String", into = "String")]
pub struct WayMask(pub u64);

impl WayMask {
    /// `count` ways from number `first` on; none where they are more than a mask holds.
    #[must_use]
    pub fn run(first: u32, count: u32) -> Option<Self> {
        if first.checked_add(count)? > u64::BITS {
            return None;
        }
        let ones = u64::MAX.checked_shr(u64::BITS - count).unwrap_or(0);
        Some(Self(ones.checked_shl(first).unwrap_or(0)))
    }

    /// Reads what a schemata or an `info` file says.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.trim();
        let digits = digits.strip_prefix("0x").unwrap_or(digits);
        u64::from_str_radix(digits, 16).ok().map(Self)
    }

    /// How many ways.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// The number after the highest way.
    #[must_use]
    pub const fn end(self) -> u32 {
        u64::BITS - self.0.leading_zeros()
    }

    /// Whether the ways lie side by side, and there is one.
    #[must_use]
    pub const fn is_contiguous(self) -> bool {
        self.0 != 0
            && (self.0 >> self.0.trailing_zeros())
                .wrapping_add(1)
                .is_power_of_two()
            || self.0 == u64::MAX
    }

    /// The ways of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The ways that are not the other's.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether some ways are in both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The longest run of ways side by side, the lowest of those that are as long.
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

/// Whether caches can be divided here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheControl {
    /// The kernel has no resctrl: it was built without, or the processor cannot divide.
    Absent,
    /// It has, and nobody mounted it: what can be divided is not shown before.
    NotMounted,
    /// What can be divided, and how it is.
    Mounted(Allocation),
}

/// What can be divided, and how it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocation {
    /// Where resctrl is mounted.
    pub point: String,
    /// Caches; one whose code and data are divided apart is here twice (CDP).
    pub caches: Vec<CacheResource>,
    /// Memory bandwidth; none where it cannot be divided.
    pub bandwidth: Option<BandwidthResource>,
    /// How many groups there can be, the default one among them (`num_closids`).
    pub most_groups: u32,
    /// The groups that there are. The default one has no name.
    pub groups: Vec<AllocationGroup>,
}

/// One cache, or one of the same in each package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceInstance {
    /// Its number in schemata: the `id` of the cache.
    pub id: u32,
    /// The online CPUs that use it.
    pub cpus: CpuSet,
    /// Bytes; 0 where the firmware does not say.
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
    /// The fewest ways that a group may have (`min_cbm_bits`).
    pub fewest: u32,
    /// Ways that devices write into as well (`shareable_bits`).
    pub shareable: WayMask,
    /// Whether a group's ways need not lie side by side (`sparse_masks`, from 6.7 on).
    pub sparse: bool,
    /// Each of them.
    pub instances: Vec<ResourceInstance>,
}

/// Memory bandwidth that can be divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthResource {
    /// The least that a group may have (`min_bandwidth`).
    pub least: u32,
    /// Values are rounded up to a multiple of this (`bandwidth_gran`).
    pub step: u32,
    /// Whether values are parts of a hundred. They are not where resctrl was mounted with
    /// `mba_MBps`, and on AMD's processors.
    pub percent: bool,
    /// Each of them, by the last-level cache before it.
    pub instances: Vec<ResourceInstance>,
}

/// A group of tasks and CPUs with a part of what is divided.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AllocationGroup {
    /// Its name; the default one has none.
    pub name: String,
    /// Its CPUs. The default group has all that are in no other.
    pub cpus: CpuSet,
    /// `shareable`, `exclusive`, or one of the pseudo-locked modes.
    pub mode: String,
    /// What it may use.
    pub schemata: Schemata,
}

impl AllocationGroup {
    /// Name of the group of a plan's domain.
    #[must_use]
    pub fn name_of(domain: &str) -> String {
        format!("rampart-{domain}")
    }

    /// Its ways of one cache.
    #[must_use]
    pub fn ways(&self, resource: &str, id: u32) -> Option<WayMask> {
        WayMask::parse(self.schemata.0.get(resource)?.get(&id)?)
    }
}

/// What a schemata file says: resource, instance, value. Two texts that mean the same are equal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schemata(pub BTreeMap<String, BTreeMap<u32, String>>);

impl Schemata {
    /// Reads lines such as `L3:0=ff;1=0f`; what is no such line is left out.
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

    /// Gives an instance of a resource a value.
    pub fn set(&mut self, resource: &str, id: u32, value: &str) {
        // Masks are read back with zeros in front, and bandwidth with space.
        let plain = value.trim_start_matches('0');
        let plain = if plain.is_empty() { "0" } else { plain };
        let values = self.0.entry(resource.to_owned()).or_default();
        values.insert(id, plain.to_ascii_lowercase());
    }

    /// The same without what `other` does not name.
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
    /// One line a resource, as the kernel takes them.
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

/// Ways of one cache that a domain of a plan gets.
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
    /// Bytes of these ways; 0 where the size of the cache is not known.
    pub size: u64,
    /// Whether nobody else may fill them.
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
    fn runs_and_masks() {
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
    fn schemata_are_what_they_mean() {
        let read = Schemata::parse("    MB:0= 50;1=100\n    L3:0=00f;1=7ff\nnonsense\n");
        assert_eq!(read.to_string(), "L3:0=f;1=7ff\nMB:0=50;1=100");
        let ours = Schemata::parse("L3:1=7f0");
        assert_eq!(read.about(&ours).to_string(), "L3:1=7ff");
        assert_eq!(Schemata::parse("L3:0=000").to_string(), "L3:0=0");
    }

    proptest! {
        #[test]
        fn schemata_are_read_as_written(values in proptest::collection::btree_map(0..9_u32, 1..0xfff_u64, 1..5)) {
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
