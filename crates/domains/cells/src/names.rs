// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of a cell's shared regions. The hypervisor has no names: the driver stores them with
//! the cell and returns them to every program, so they exist as long as the cell does, independent
//! of processes. So it does with the cell's networks and its service of clocks.

use std::collections::BTreeMap;

use rampart_hypervisor_core::format::MemoryRegion;

use crate::network::NetworkLink;
use crate::scmi::Service;

/// Maximum length of a name in bytes: the limit of a cell's directory.
pub const LONGEST_NAME: usize = rampart_ring::directory::NAME_BYTES;

/// Names of regions by physical address, which is unique among the regions of a cell, and its networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegionNames {
    regions: BTreeMap<u64, String>,
    /// The cell's networks.
    pub networks: Vec<NetworkLink>,
    /// The service of clocks, resets and power domains, if it has one. Its resources are not kept by the driver.
    pub service: Option<Service>,
}

/// Returns why a text cannot be the name of a region, or `None` if it can.
#[must_use]
pub fn wrong_name(name: &str) -> Option<String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let fits = !name.is_empty()
        && name.len() <= LONGEST_NAME
        && name.chars().all(allowed)
        // A number identifies a region without a name.
        && !name.chars().all(|c| c.is_ascii_digit());
    (!fits).then(|| {
        format!(
            "`{}` cannot be a region's name; needed are 1 to {LONGEST_NAME} letters, digits, `-`, `_` and `.`, not digits alone",
            name.escape_debug()
        )
    })
}

impl RegionNames {
    /// Sets the name of a region.
    pub fn insert(&mut self, region: &MemoryRegion, name: &str) {
        self.regions.insert(region.physical, name.to_owned());
    }

    /// Returns the name of a region, or `None` if it has none.
    #[must_use]
    pub fn of(&self, region: &MemoryRegion) -> Option<&str> {
        self.regions.get(&region.physical).map(String::as_str)
    }

    /// Returns all names in the order of memory addresses.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.regions.values().map(String::as_str)
    }

    /// Returns whether no region has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Returns the names in the driver's format: a line per name, with the address in hexadecimal
    /// digits and the name, a line per network, and one for the service.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let lines = self.regions.iter();
        let mut text: String = lines
            .map(|(address, name)| format!("{address:x} {name}\n"))
            .collect();
        for network in &self.networks {
            network.write(&mut text);
        }
        if let Some(service) = &self.service {
            service.write(&mut text);
        }
        text.into_bytes()
    }

    /// Parses the names that the driver stored. Ignores invalid lines, because another program may
    /// have created the cell.
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
        Self {
            regions: text.lines().filter_map(line).collect(),
            networks: text.lines().filter_map(NetworkLink::read).collect(),
            service: text.lines().find_map(Service::read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        let region = |physical| MemoryRegion {
            physical,
            guest: 0,
            bytes: 4096,
            flags: 0,
            colours: 0,
        };
        let mut names = RegionNames::default();
        assert!(names.is_empty() && names.bytes().is_empty());
        names.insert(&region(0x7000_0000), "records");
        names.insert(&region(0x7000_1000), "orders.2");
        names.networks.push(NetworkLink {
            peer: "root".to_owned(),
            own: 0x7001_0000,
            other: 0x7002_0000,
            bytes: 0x1_1000,
            own_bell: 45,
            peer_bell: 46,
            root_doorbell: 3,
            cached: true,
        });
        names.service = Some(Service {
            page: 0x7003_0000,
            bell: 44,
            root_doorbell: 2,
            resources: Vec::new(),
        });
        let back = RegionNames::parse(&names.bytes());
        assert_eq!(back, names);
        assert_eq!(back.of(&region(0x7000_1000)), Some("orders.2"));
        assert_eq!(back.of(&region(0x7000_2000)), None);
    }

    #[test]
    fn ignores_invalid_names() {
        let text = b"70000000 a b\nx name\n70001000 7\n70002000 \n\xff\n70003000 good\n";
        let names = RegionNames::parse(text);
        assert_eq!(names.all().collect::<Vec<_>>(), ["good"]);
        for wrong in ["", "7", "a/b", "a:b", &"a".repeat(33)] {
            assert!(wrong_name(wrong).is_some(), "{wrong}");
        }
        assert_eq!(wrong_name("7a"), None);
    }
}
