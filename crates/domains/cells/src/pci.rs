// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions in a cell. The root's configuration space stays out of reach: a Linux cell has one in its own memory,
//! which is prepared here. Nothing that it writes there reaches the function, and no access is an exit.
//!
//! Memory answers no request for the size of a base address register: Linux writes ones and reads them back, which
//! it takes for a register that does not exist. The addresses are in the capability for fixed ones instead, Enhanced
//! Allocation (PCI Express base specification 5.0, 7.8.5).

use rampart_host::{HostError, MachineRoot, quiet_pci_function};
use rampart_hypervisor_core::interface::PAGE_BYTES;

use crate::describe::{FunctionRange, PciFunction};

/// Bytes of the configuration space: one bus (PCI Express base specification 5.0, 7.2.2).
pub const SPACE_BYTES: u64 = 1 << 20;
/// Number of functions that a cell has at most: devices of one bus, each with one function.
pub const MOST_FUNCTIONS: usize = 16;

/// Registers of the header (7.5.1).
const COMMAND: usize = 0x04;
const MEMORY_AND_MASTER: u16 = 1 << 1 | 1 << 2;
const STATUS: usize = 0x06;
const HAS_LIST: u16 = 1 << 4;
const FIRST_CAPABILITY: usize = 0x34;
/// First byte after the header, and the end of the capabilities.
const HEADER_END: usize = 0x40;
const END: usize = 0x100;
/// Parts of the header that are copied: identity; revision and class; subsystem; interrupt.
const COPIED: [std::ops::Range<usize>; 4] = [0x00..0x04, 0x08..0x0c, 0x2c..0x30, 0x3d..0x3e];
const VENDOR_SPECIFIC: u8 = 0x09;
const ENHANCED_ALLOCATION: u8 = 0x14;

/// A function of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellFunction {
    /// Its address in the root's Linux.
    pub address: String,
    /// Its configuration space in a Linux cell.
    pub image: Vec<u8>,
    /// Whether Linux resets it before. It cannot restore the addresses of a function, which a reset clears, while another
    /// cell has one.
    pub with_reset: bool,
}

impl CellFunction {
    /// Prepares the configuration space of a function.
    ///
    /// # Errors
    /// Returns the reason if its capabilities leave no room for the addresses.
    pub fn new(function: &PciFunction, with_reset: bool) -> Result<Self, String> {
        Ok(Self {
            address: function.address.clone(),
            image: image(function)?,
            with_reset,
        })
    }

    /// Ends what the root has the function do, before it becomes a cell's ([`quiet_pci_function`]).
    ///
    /// # Errors
    /// Returns an error if Linux refuses the reset or the write.
    pub fn prepare(&self) -> Result<(), HostError> {
        quiet_pci_function(&MachineRoot::system(), &self.address, self.with_reset)
    }
}

/// Returns a whole configuration space with these functions: the n-th is device n, function 0.
#[must_use]
pub(crate) fn space(functions: &[CellFunction]) -> Vec<u8> {
    let mut space = vec![0xff; SPACE_BYTES as usize];
    for (function, device) in functions
        .iter()
        .zip(space.chunks_mut(8 * PAGE_BYTES as usize))
    {
        device[..PAGE_BYTES as usize].fill(0);
        device[..function.image.len()].copy_from_slice(&function.image);
    }
    space
}

/// Returns the first 256 bytes of a configuration space, with these capabilities only: those of the vendor, which
/// drivers of virtio need, and the addresses.
fn image(function: &PciFunction) -> Result<Vec<u8>, String> {
    let original = &function.configuration;
    if original.len() < END {
        return Err("its configuration space cannot be read".to_owned());
    }
    let mut image = vec![0; END];
    for part in COPIED {
        image[part.clone()].copy_from_slice(&original[part]);
    }
    if function.interrupt.is_none() {
        image[0x3d] = 0;
    }
    let mut put = |at: usize, value: u16| image[at..at + 2].copy_from_slice(&value.to_le_bytes());
    put(COMMAND, MEMORY_AND_MASTER);
    put(STATUS, HAS_LIST);
    let bases: Vec<_> = function.bases().copied().collect();
    let addresses = addresses(&bases);
    let kept = vendor_specific(original);
    // Where a driver expects the vendor's, and the addresses in the first gap.
    let meets = |at: usize| {
        let mut kept = kept.iter();
        kept.any(|part| part.start < at + addresses.len() && at < part.end)
    };
    let gap = (HEADER_END..=END - addresses.len().min(END))
        .step_by(4)
        .find(|at| !meets(*at));
    let Some(gap) = gap else {
        return Err("its capabilities leave no room for its addresses".to_owned());
    };
    image[gap..gap + addresses.len()].copy_from_slice(&addresses);
    let mut next = 0;
    for part in kept.iter().rev() {
        image[part.clone()].copy_from_slice(&original[part.clone()]);
        image[part.start + 1] = next;
        next = part.start as u8;
    }
    image[gap + 1] = next;
    image[FIRST_CAPABILITY] = gap as u8;
    Ok(image)
}

/// Returns where the capabilities of the vendor are, in the order of the list (7.9.4). A device's list may be a loop,
/// and its lengths may be wrong.
fn vendor_specific(original: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found: Vec<std::ops::Range<usize>> = Vec::new();
    let has_list = u16::from(original[STATUS]) & HAS_LIST != 0;
    let mut at = usize::from(original[FIRST_CAPABILITY] & 0xfc);
    for _ in 0..(END - HEADER_END) / 4 {
        if !has_list || at < HEADER_END {
            break;
        }
        let bytes = usize::from(original[at + 2]);
        let part = at..at + bytes;
        let meets =
            |other: &std::ops::Range<usize>| other.start < part.end && part.start < other.end;
        let fits = bytes >= 3 && part.end <= END && !found.iter().any(meets);
        if original[at] == VENDOR_SPECIFIC && fits {
            found.push(part);
        }
        at = usize::from(original[at + 1] & 0xfc);
    }
    found
}

/// Returns the capability with the addresses of base address registers. Memory answers a request for the size of the ROM
/// with a number, for which Linux would look for a place before it considers these addresses. So the ROM has one, too: 0,
/// which no window has.
fn addresses(bases: &[FunctionRange]) -> Vec<u8> {
    /// Number of the ROM in an entry.
    const ROM: u32 = 8;
    /// The entry is enabled; memory that is not prefetched; no other use of it.
    const ENTRY: u32 = 1 << 31 | 0xff << 16;
    const HAS_UPPER_HALF: u64 = 1 << 1;
    let mut words = vec![u32::from(ENHANCED_ALLOCATION) | (bases.len() as u32 + 1) << 16];
    for base in bases {
        // The lowest two bits of both are not stored.
        let last = (base.span.bytes - 1) & !3;
        let (start, upper) = (base.span.start & !3, [base.span.start >> 32, last >> 32]);
        let flag = |upper: u64| if upper == 0 { 0 } else { HAS_UPPER_HALF };
        let uppers = upper.into_iter().filter(|upper| *upper != 0);
        let after_first = 2 + uppers.clone().count() as u32;
        words.extend([
            ENTRY | base.number << 4 | after_first,
            (start | flag(upper[0])) as u32,
            (last | flag(upper[1])) as u32,
        ]);
        words.extend(uppers.map(|upper| upper as u32));
    }
    words.extend([ENTRY | ROM << 4 | 2, 0, 0]);
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

#[cfg(test)]
mod tests {
    use rampart_model::AddressSpan;
    use rampart_model::device_tree::{DeviceInterrupt, Driver, InterruptKind};

    use super::*;

    /// A function with a capability for message-signalled interrupts, one of the vendor, and a register at 0xe0.
    fn function(bases: &[(u32, u64, u64)]) -> PciFunction {
        let mut configuration = vec![0; END];
        configuration[..4].copy_from_slice(&[0xf4, 0x1a, 0x41, 0x10]);
        configuration[STATUS] = HAS_LIST as u8;
        configuration[0x0e] = 0x80;
        configuration[0x10] = 0x04;
        configuration[0x3d] = 1;
        configuration[FIRST_CAPABILITY] = 0x50;
        configuration[0xe0] = 0x77;
        configuration[0x50..0x5a].copy_from_slice(&[0x05, 0x60, 0x80, 0, 1, 2, 3, 4, 5, 6]);
        configuration[0x60..0x70]
            .copy_from_slice(&[9, 0x80, 16, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0]);
        // A loop, and a length beyond the end.
        configuration[0x80..0x83].copy_from_slice(&[9, 0xf8, 3]);
        configuration[0xf8..0xfb].copy_from_slice(&[9, 0x50, 200]);
        PciFunction {
            address: "0000:00:04.0".to_owned(),
            vendor: 0x1af4,
            device: 0x1041,
            class: 0x02_0000,
            bridge: None,
            behind: None,
            page: None,
            stream: None,
            pin: 1,
            interrupt: Some(DeviceInterrupt {
                kind: InterruptKind::Shared,
                number: 35,
                edge: false,
                controller: None,
            }),
            ranges: bases
                .iter()
                .map(|&(number, start, bytes)| FunctionRange {
                    number,
                    span: AddressSpan { start, bytes },
                })
                .collect(),
            linux: Driver::default(),
            obstacles: Vec::new(),
            configuration,
        }
    }

    fn word(image: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*image[at..].first_chunk().expect("a word"))
    }

    #[test]
    fn a_cell_sees_identity_addresses_and_what_is_the_vendors() {
        let of = function(&[
            (1, 0x1000_0000, 0x1000),
            (4, 0x80_0000_0000, 0x4000),
            (6, 0x1, 0x2),
        ]);
        let image = image(&of).expect("room");
        assert_eq!(image[..4], [0xf4, 0x1a, 0x41, 0x10]);
        assert_eq!((image[0x0e], image[0x3d], image[0xe0]), (0, 1, 0));
        assert_eq!(word(&image, 0x10), 0);
        // The list: the addresses in the first gap, then the vendor's, without messages.
        let first = usize::from(image[FIRST_CAPABILITY]);
        assert_eq!((first, image[first], image[first + 1]), (0x84, 0x14, 0x60));
        assert_eq!(image[0x60..0x62], [9, 0x80]);
        assert_eq!(image[0x62..0x70], of.configuration[0x62..0x70]);
        assert_eq!(image[0x80..0x83], [9, 0, 3]);
        // Three entries: 32 bits in three words, 64 bits in four, and the ROM, which has no place.
        assert_eq!(image[first + 2], 3);
        let words: Vec<u32> = (0..10).map(|at| word(&image, first + 4 + 4 * at)).collect();
        assert_eq!(
            words,
            [
                0x80ff_0012,
                0x1000_0000,
                0xffc,
                0x80ff_0043,
                0x0000_0002,
                0x3ffc,
                0x80,
                0x80ff_0082,
                0,
                0
            ]
        );
    }

    #[test]
    fn a_function_without_room_or_interrupt() {
        let mut full = function(&[(0, 0x1000_0000, 0x1000)]);
        full.configuration[0x60 + 2] = 0x20;
        for at in (0x40..0xf8).step_by(8) {
            full.configuration[at..at + 3].copy_from_slice(&[9, at as u8 + 8, 8]);
        }
        full.configuration[FIRST_CAPABILITY] = 0x40;
        full.configuration[0xf0 + 1] = 0;
        assert!(image(&full).expect_err("no room").contains("no room"));
        full.configuration.truncate(64);
        assert!(image(&full).is_err());
        let mut silent = function(&[(0, 0x1000_0000, 0x1000)]);
        silent.interrupt = None;
        assert_eq!(image(&silent).expect("room")[0x3d], 0);
    }

    #[test]
    fn each_function_is_a_device_of_the_bus_and_all_else_is_absent() {
        let functions = [
            CellFunction::new(&function(&[(0, 0x1000_0000, 0x1000)]), true).expect("room"),
            CellFunction::new(&function(&[(0, 0x1000_1000, 0x1000)]), true).expect("room"),
        ];
        let space = space(&functions);
        assert_eq!(space.len() as u64, SPACE_BYTES);
        for (at, expected) in [
            (0, 0x1041_1af4),
            (0x8000, 0x1041_1af4),
            (0x1000, !0),
            (0x1_0000, !0),
        ] {
            assert_eq!(word(&space, at), expected, "{at:#x}");
        }
    }
}
