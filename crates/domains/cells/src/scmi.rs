// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clocks, resets and power domains of a cell's devices, which the driver in the root serves by SCMI (Arm DEN 0056,
//! `kernel/rampart/scmi.c`): through a page of messages that the cell and the root write, with a doorbell for each.

use std::fmt::Write as _;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::MemoryFlags;

use crate::names::{is_bell, shared};

/// The first word of the line that describes the service among the names of a cell.
const LINE: &str = "scmi";
/// Resources of a kind that a cell can have (`kernel/rampart/scmi.h`).
pub const MOST_OF_A_KIND: usize = 64;

/// A kind of resource, with the driver's number (`kernel/rampart/rampart.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ResourceKind {
    /// A clock.
    Clock = 0,
    /// A reset.
    Reset = 1,
    /// A power domain.
    PowerDomain = 2,
}

impl ResourceKind {
    /// All kinds, by the driver's numbers.
    pub const ALL: [Self; 3] = [Self::Clock, Self::Reset, Self::PowerDomain];

    /// Returns the property of a device's node, the property of a provider with the number of argument words, and the
    /// protocol (DEN 0056, table 4).
    #[must_use]
    pub const fn binding(self) -> (&'static str, &'static str, u32) {
        match self {
            Self::Clock => ("clocks", "#clock-cells", 0x14),
            Self::Reset => ("resets", "#reset-cells", 0x16),
            Self::PowerDomain => ("power-domains", "#power-domain-cells", 0x11),
        }
    }
}

/// A resource that a node of the machine's tree names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// Its kind.
    pub kind: ResourceKind,
    /// Path of the node that names it.
    pub path: String,
    /// Its index in the property of that node.
    pub index: u32,
    /// Whether other enabled devices name it too, which are not the cell's.
    pub shared: bool,
}

/// The service for a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Service {
    /// Physical start of the page of messages.
    pub page: u64,
    /// The interrupt by which the root rings the cell.
    pub bell: u32,
    /// The index of `bell` among the root's doorbells.
    pub root_doorbell: u32,
    /// The resources; those of each kind have the numbers from 0 on, in this order. Not in the cell's text.
    pub resources: Vec<Resource>,
}

impl Service {
    /// Returns the number of a resource by which the cell calls it.
    #[must_use]
    pub fn number(&self, kind: ResourceKind, path: &str, index: u32) -> Option<u32> {
        let mut of_kind = self.resources.iter().filter(|one| one.kind == kind);
        let found = of_kind.position(|one| one.path == path && one.index == index)?;
        Some(found as u32)
    }

    /// Writes the service as a line of the cell's text.
    pub(crate) fn write(&self, text: &mut String) {
        let Self {
            page,
            bell,
            root_doorbell,
            ..
        } = self;
        let _ = writeln!(text, "{LINE} {page:x} {bell} {root_doorbell}");
    }

    /// Reads a line, without the resources; returns `None` if it does not describe a service of the cell.
    pub(crate) fn read(line: &str, configuration: &Blob) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [LINE, page, bell, root_doorbell] = words[..] else {
            return None;
        };
        let service = Self {
            page: u64::from_str_radix(page, 16).ok()?,
            bell: bell.parse().ok()?,
            root_doorbell: root_doorbell.parse().ok()?,
            resources: Vec::new(),
        };
        let both = MemoryFlags::WRITE | MemoryFlags::ROOT_WRITE;
        let fits = is_bell(configuration, service.bell)
            && shared(configuration, service.page)
                .is_some_and(|region| region.flags().contains(both));
        fits.then_some(service)
    }
}
