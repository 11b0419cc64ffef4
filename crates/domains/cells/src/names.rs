// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a cell's shared regions are called. The hypervisor knows no names: the driver keeps them with
//! the cell and gives them back to whoever asks, so they live as long as the cell does and outlive
//! every process.

use std::collections::BTreeMap;

use rampart_hypervisor_core::format::MemoryRegion;

/// The longest name, in bytes: what a cell's directory has room for.
pub const LONGEST_NAME: usize = rampart_ring::directory::NAME_BYTES;

/// Names of regions by their physical addresses: no two regions of a cell begin at the same one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionNames(BTreeMap<u64, String>);

/// Why a text cannot name a region; `None` where it can.
#[must_use]
pub fn wrong_name(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(allowed)
        // A number is a region without a name.
        && !name.chars().all(|c| c.is_ascii_digit());
    (!fits).then(|| {
        format!(
            "`{}` cannot be a region's name; needed are 1 to {LONGEST_NAME} letters, digits, `-`, `_` and `.`, not digits alone",
            name.escape_debug()
        )
    })
}

impl RegionNames {
    /// Calls a region so.
    pub fn insert(&mut self, region: &MemoryRegion, name: &str) {
        self.0.insert(region.physical, name.to_owned());
    }

    /// What a region is called.
    #[must_use]
    pub fn of(&self, region: &MemoryRegion) -> Option<&str> {
        self.0.get(&region.physical).map(String::as_str)
    }

    /// All names, in the order of the memory.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.0.values().map(String::as_str)
    }

    /// Whether nothing has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As the driver keeps them: a line for each, its address in hexadecimal digits and its name.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let lines = self.0.iter();
        let lines: Vec<String> = lines
            .map(|(address, name)| format!("{address:x} {name}\n"))
            .collect();
        lines.concat().into_bytes()
    }

    /// From what the driver kept. What is no such line is left out: another program made the cell.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let line = |line: &str| {
            let (address, name) = line.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            wrong_name(name)
                .is_none()
                .then(|| (address, name.to_owned()))
        };
        Self(text.lines().filter_map(line).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_as_they_were_given() {
        let region = |physical| MemoryRegion {
            physical,
            guest: 0,
            bytes: 4096,
            flags: 0,
            reserved: 0,
        };
        let mut names = RegionNames::default();
        assert!(names.is_empty() && names.bytes().is_empty());
        names.insert(&region(0x7000_0000), "records");
        names.insert(&region(0x7000_1000), "orders.2");
        let back = RegionNames::parse(&names.bytes());
        assert_eq!(back, names);
        assert_eq!(back.of(&region(0x7000_1000)), Some("orders.2"));
        assert_eq!(back.of(&region(0x7000_2000)), None);
    }

    #[test]
    fn what_is_no_name_is_left_out() {
        let text = b"70000000 a b\nx name\n70001000 7\n70002000 \n\xff\n70003000 good\n";
        let names = RegionNames::parse(text);
        assert_eq!(names.all().collect::<Vec<_>>(), ["good"]);
        for wrong in ["", "7", "a/b", "a:b", &"a".repeat(33)] {
            assert!(wrong_name(wrong).is_some(), "{wrong}");
        }
        assert_eq!(wrong_name("7a"), None);
    }
}
