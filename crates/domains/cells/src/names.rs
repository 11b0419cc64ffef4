// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The names of a cell's shared regions: text after the tables of its configuration, which the hypervisor keeps and does
//! not read. So they exist as long as the cell does, independent of processes and of the kernel that created it. So do the
//! cell's networks and its service of clocks.

use std::collections::BTreeMap;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};

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
    /// The service of clocks, resets and power domains, if it has one. Its resources are not in the text.
    pub service: Option<Service>,
}

/// Returns whether a text has the characters of a name, of a cell or a region, and at most this length in bytes.
pub(crate) fn is_name(text: &str, longest: usize) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !text.is_empty() && text.len() <= longest && text.chars().all(allowed)
}

/// Returns why a text cannot be the name of a region, or `None` if it can.
#[must_use]
pub fn wrong_name(name: &str) -> Option<String> {
    let fits = is_name(name, LONGEST_NAME)
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

    /// Returns the text of the cell: a line per name, with the address in hexadecimal digits and the name, a line per
    /// network, and one for the service.
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

    /// Parses the text of a cell. Ignores what does not fit the cell's configuration: another program may have created
    /// the cell, and after a restart of the root its last kernel, which nobody trusts.
    #[must_use]
    pub fn parse(text: &[u8], configuration: &Blob) -> Self {
        let text = String::from_utf8_lossy(text);
        let mut names = Self::default();
        for line in text.lines() {
            if let Some((physical, name)) = region(line, configuration)
                && !names.regions.contains_key(&physical)
                && names.all().all(|other| other != name)
            {
                names.regions.insert(physical, name.to_owned());
            }
            if let Some(link) = NetworkLink::read(line, configuration)
                && names.networks.iter().all(|other| other.peer != link.peer)
            {
                names.networks.push(link);
            }
        }
        let mut services = text.lines();
        names.service = services.find_map(|line| Service::read(line, configuration));
        names
    }
}

/// Reads the name of a shared region.
fn region<'a>(line: &'a str, configuration: &Blob) -> Option<(u64, &'a str)> {
    let (address, name) = line.split_once(' ')?;
    let physical = u64::from_str_radix(address, 16).ok()?;
    let found = shared(configuration, physical).is_some() && wrong_name(name).is_none();
    found.then_some((physical, name))
}

/// Returns the shared region of a cell with this physical start.
pub(crate) fn shared(configuration: &Blob, physical: u64) -> Option<&MemoryRegion> {
    let mut memory = configuration.memory.iter();
    memory
        .find(|region| region.physical == physical && region.flags().contains(MemoryFlags::SHARED))
}

/// Returns whether the interrupt is one by which others ring the cell.
pub(crate) fn is_bell(configuration: &Blob, number: u32) -> bool {
    let mut interrupts = configuration.interrupts.iter();
    interrupts.any(|grant| grant.number == number && grant.is_doorbell())
}

#[cfg(test)]
mod tests {
    use rampart_hypervisor_core::format::{Doorbell, InterruptFlags, InterruptGrant};
    use rand::{RngExt as _, SeedableRng as _};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    const SECTION: u64 = 0x1_1000;

    fn a_region(physical: u64, bytes: u64, flags: MemoryFlags) -> MemoryRegion {
        MemoryRegion {
            physical,
            guest: physical,
            bytes,
            flags: flags.bits(),
            colours: 0,
        }
    }

    /// A cell with two regions, a network with the root, and clocks.
    fn a_cell() -> (Blob, RegionNames) {
        let cell = MemoryFlags::SHARED | MemoryFlags::READ | MemoryFlags::WRITE;
        let root = MemoryFlags::SHARED | MemoryFlags::READ | MemoryFlags::ROOT_WRITE;
        let own = MemoryFlags::READ | MemoryFlags::WRITE;
        let configuration = Blob {
            memory: vec![
                a_region(0x6000_0000, 1 << 20, own),
                a_region(0x7000_0000, 4096, cell),
                a_region(0x7000_1000, 4096, root),
                a_region(0x7001_0000, SECTION, cell),
                a_region(0x7003_0000, SECTION, root),
                a_region(0x7005_0000, 4096, cell | root),
            ],
            interrupts: [44, 45]
                .map(|number| InterruptGrant {
                    number,
                    flags: InterruptFlags::DOORBELL.bits(),
                })
                .to_vec(),
            doorbells: vec![Doorbell {
                interrupt: 46,
                reserved: 0,
            }],
            ..Blob::default()
        };
        let mut names = RegionNames::default();
        names.insert(&configuration.memory[1], "records");
        names.insert(&configuration.memory[2], "orders.2");
        names.networks.push(NetworkLink {
            peer: "root".to_owned(),
            own: 0x7001_0000,
            other: 0x7003_0000,
            bytes: SECTION,
            own_bell: 45,
            peer_bell: 46,
            root_doorbell: 3,
            cached: true,
        });
        names.service = Some(Service {
            page: 0x7005_0000,
            bell: 44,
            root_doorbell: 2,
            resources: Vec::new(),
        });
        (configuration, names)
    }

    #[test]
    fn parses_its_own_text() {
        let (configuration, names) = a_cell();
        let back = RegionNames::parse(&names.bytes(), &configuration);
        assert_eq!(back, names);
        assert_eq!(back.of(&configuration.memory[2]), Some("orders.2"));
        assert_eq!(back.of(&configuration.memory[3]), None);
        assert!(RegionNames::parse(b"", &configuration).is_empty());
    }

    #[test]
    fn ignores_what_does_not_fit_the_cell() {
        let (configuration, names) = a_cell();
        let text = b"70000000 a b\nx name\n70001000 7\n70002000 \n\xff\n70001000 good\n\
            70001000 again\n70000000 good\n60000000 own\n70000008 inside\n7000000 short\n";
        let parsed = RegionNames::parse(text, &configuration);
        assert_eq!(parsed.all().collect::<Vec<_>>(), ["good"]);
        for wrong in ["", "7", "a/b", "a:b", &"a".repeat(33)] {
            assert!(wrong_name(wrong).is_some(), "{wrong}");
        }
        assert_eq!(wrong_name("7a"), None);

        let text = String::from_utf8(names.bytes()).expect("text");
        // Each changes one value of a link or of a service.
        for (right, wrong) in [
            ("network root ", "network r\u{1b}t "),
            ("network root ", "network / "),
            (" 70010000 70030000 ", " 70010000 70010000 "),
            (" 70010000 70030000 ", " 70030000 70010000 "),
            (" 70010000 70030000 ", " 60000000 70030000 "),
            (" 11000 ", " 12000 "),
            (" 45 46 ", " 47 46 "),
            (" 45 46 ", " 45 47 "),
            ("scmi 70050000 ", "scmi 70051000 "),
            ("scmi 70050000 44 ", "scmi 70050000 46 "),
        ] {
            assert!(text.contains(right), "{right}");
            let parsed = RegionNames::parse(text.replace(right, wrong).as_bytes(), &configuration);
            let lost = (parsed.networks.is_empty(), parsed.service.is_none());
            let is_service = right.starts_with("scmi");
            assert_eq!(lost, (!is_service, is_service), "{wrong}");
            assert_eq!(parsed.all().count(), 2, "{wrong}");
        }
        let twice = text.replace(
            "scmi",
            "network root 70010000 70030000 11000 45 46 3 0\nscmi",
        );
        assert_eq!(RegionNames::parse(twice.as_bytes(), &configuration), names);
    }

    /// Changed texts: whatever is read fits the cell.
    #[test]
    fn no_text_makes_parsing_fail() {
        let (configuration, names) = a_cell();
        let good = names.bytes();
        let mut generator = Pcg64Mcg::seed_from_u64(7);
        let mut read = 0;
        for _ in 0..20_000 {
            let mut text = good.clone();
            for _ in 0..generator.random_range(1..6) {
                let at = generator.random_range(0..text.len());
                let bytes = generator.random_range(0..(text.len() - at).min(40));
                match generator.random_range(0..4) {
                    0 => text[at] = generator.random(),
                    1 => text[at] ^= 1 << generator.random_range(0..8),
                    2 => text.extend_from_within(at..at + bytes),
                    _ => text.truncate(at + 1),
                }
            }
            let parsed = RegionNames::parse(&text, &configuration);
            let mut seen = Vec::new();
            for (physical, name) in &parsed.regions {
                let addresses = [
                    0x7000_0000,
                    0x7000_1000,
                    0x7001_0000,
                    0x7003_0000,
                    0x7005_0000,
                ];
                assert!(addresses.contains(physical), "{physical:#x}");
                assert!(
                    wrong_name(name).is_none() && !seen.contains(&name),
                    "{name}"
                );
                seen.push(name);
            }
            for link in &parsed.networks {
                let fixed = (link.own, link.other, link.bytes, link.peer_bell);
                assert_eq!(fixed, (0x7001_0000, 0x7003_0000, SECTION, 46));
                assert!(matches!(link.own_bell, 44 | 45));
                assert!(wrong_name(&link.peer).is_none() || link.peer.parse::<u64>().is_ok());
            }
            let service = parsed.service.iter();
            service.for_each(|service| assert_eq!(service.page, 0x7005_0000));
            read += parsed.networks.len() + parsed.regions.len();
        }
        assert!(read > 10_000, "{read} names and links");
    }
}
