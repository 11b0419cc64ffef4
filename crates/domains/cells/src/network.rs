// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Networks of a cell: links to the root or to another cell. A link has a section of memory for each end, which
//! only that end writes (`rampart_ring::network`). Each cell with networks has one interrupt for all of them, and
//! so has the root.

use std::fmt::Write as _;

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, NAME_BYTES};
use rampart_hypervisor_core::interface::PAGE_BYTES;
use rampart_model::{ByteSize, CellNetwork};
use rampart_ring::network::{HEADER_WORDS, MOST_SLOTS, SLOT_WORDS};
use sha2::{Digest as _, Sha256};

use crate::names::{is_bell, is_name, shared};

/// The name of the root as the peer of a link.
pub const ROOT_PEER: &str = CellNetwork::ROOT;
/// The first word of a line that describes a link among the names of a cell.
const LINE: &str = "network";
/// Size in bytes of the frames of an end, if a request has none.
pub const DEFAULT_BYTES: u64 = CellNetwork::default_size().0;

/// A requested link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkRequest {
    /// Name of the other end: a cell, or [`ROOT_PEER`].
    pub peer: String,
    /// Size in bytes of the frames that each end can have on the way: [`wrong_bytes`].
    pub bytes: u64,
    /// Whether both ends run Linux, and so use caches. The MMU of other programs is off.
    pub cached: bool,
}

/// A link of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkLink {
    /// Name of the other end.
    pub peer: String,
    /// Physical start of the section that the cell writes.
    pub own: u64,
    /// Physical start of the section that the peer writes.
    pub other: u64,
    /// Size of each section in bytes.
    pub bytes: u64,
    /// The interrupt by which others ring the cell.
    pub own_bell: u32,
    /// The interrupt by which the cell rings the peer.
    pub peer_bell: u32,
    /// For the root as peer: the index of `own_bell` among the root's doorbells.
    pub root_doorbell: u32,
    /// Whether the sections are cached, see [`NetworkRequest::cached`].
    pub cached: bool,
}

/// Returns why the frames of an end cannot have this size, or `None` if they can.
#[must_use]
pub fn wrong_bytes(bytes: u64) -> Option<String> {
    let valid = CellNetwork::is_valid_size(ByteSize(bytes));
    (!valid).then(|| {
        let (least, most) = (CellNetwork::LEAST, CellNetwork::MOST);
        format!("{bytes} bytes are not a power of two from {least} to {most}")
    })
}

/// Returns the size of a section for frames of this size.
#[must_use]
pub const fn section_bytes(bytes: u64) -> u64 {
    bytes + HEADER_WORDS as u64 * 8
}

/// Returns the MAC address of an end of a link: locally administered (IEEE 802, 8.4), and the same whenever the
/// names are.
#[must_use]
pub fn mac_address(end: &str, peer: &str) -> [u8; 6] {
    let hash = Sha256::digest(format!("rampart network\0{end}\0{peer}"));
    let mut address = [0; 6];
    address.copy_from_slice(&hash[..6]);
    address[0] = address[0] & !1 | 2;
    address
}

impl NetworkLink {
    /// Writes the link as a line of the cell's text.
    pub(crate) fn write(&self, text: &mut String) {
        let Self {
            peer,
            own,
            other,
            bytes,
            own_bell,
            peer_bell,
            root_doorbell,
            cached,
        } = self;
        let cached = u8::from(*cached);
        let _ = writeln!(
            text,
            "{LINE} {peer} {own:x} {other:x} {bytes:x} {own_bell} {peer_bell} {root_doorbell} {cached}"
        );
    }

    /// Reads a line; returns `None` if it does not describe a link of the cell.
    pub(crate) fn read(line: &str, configuration: &Blob) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [
            LINE,
            peer,
            own,
            other,
            bytes,
            own_bell,
            peer_bell,
            root_doorbell,
            cached,
        ] = words[..]
        else {
            return None;
        };
        let address = |text| u64::from_str_radix(text, 16).ok();
        let link = Self {
            peer: peer.to_owned(),
            own: address(own)?,
            other: address(other)?,
            bytes: address(bytes)?,
            own_bell: own_bell.parse().ok()?,
            peer_bell: peer_bell.parse().ok()?,
            root_doorbell: root_doorbell.parse().ok()?,
            cached: cached == "1",
        };
        let section = |physical, writes| {
            shared(configuration, physical).is_some_and(|region| {
                region.bytes == link.bytes && region.flags().contains(MemoryFlags::WRITE) == writes
            })
        };
        let mut doorbells = configuration.doorbells.iter();
        // Of a cell, or [`ROOT_PEER`].
        let fits = is_name(&link.peer, NAME_BYTES)
            && section(link.own, true)
            && section(link.other, false)
            && is_bell(configuration, link.own_bell)
            && doorbells.any(|doorbell| doorbell.interrupt == link.peer_bell);
        fits.then_some(link)
    }
}

const _: () = {
    let slot = SLOT_WORDS as u64 * 8;
    assert!((HEADER_WORDS as u64 * 8).is_multiple_of(PAGE_BYTES));
    assert!(CellNetwork::LEAST.0 == 2 * slot && CellNetwork::MOST.0 == MOST_SLOTS * slot);
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_local_and_differ_by_end() {
        let near = mac_address("press", "root");
        assert_eq!(near, mac_address("press", "root"));
        assert_ne!(near, mac_address("root", "press"));
        assert_eq!(near[0] & 3, 2, "locally administered, one receiver");
    }

    #[test]
    fn only_powers_of_two_are_sizes() {
        for bytes in [4096, DEFAULT_BYTES, 16 << 20] {
            assert_eq!(wrong_bytes(bytes), None);
            let words = section_bytes(bytes) as usize / 8;
            let slots = rampart_ring::network::slots(words);
            assert_eq!(slots, Some(bytes / (SLOT_WORDS as u64 * 8)));
        }
        for bytes in [0, 2048, 5000, 32 << 20] {
            assert!(wrong_bytes(bytes).is_some(), "{bytes}");
        }
    }
}
