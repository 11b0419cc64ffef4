// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The configuration space of PCI functions while a cell has one of them (PCI Express base specification, 7.2 and 7.5):
//! addresses stay as they are, and the cell's function is no one's.

use crate::bus::{Access, Bus, Width};
use crate::interface::PAGE_BYTES;

/// Offset of the command register of a function.
pub const COMMAND: u64 = 4;
/// Command: memory is decoded, and the function may send its own requests (DMA).
pub const MEMORY_AND_MASTER: u64 = 1 << 1 | 1 << 2;
/// See [`MEMORY_AND_MASTER`].
pub const MASTER: u64 = 1 << 2;

/// What becomes of an access of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Filtered {
    /// It is made.
    Made,
    /// Not made: a read returns all ones, as where no function is.
    Absent,
    /// Not made: a write has no effect.
    Ignored,
}

/// Returns what becomes of an access of the root to a page of the configuration space.
///
/// A write reaches no register that says which addresses a function or a bridge has: those from the first base
/// address register to the end of the header, which also have the bus numbers of a bridge; and the extended
/// capabilities, among them resizable registers and virtual functions. Other functions could otherwise answer at the
/// addresses of the cell's.
pub fn filter(access: &Access, is_of_a_cell: bool) -> Filtered {
    let first = access.address % PAGE_BYTES;
    let end = first + u64::from(access.width.bytes());
    match access.write {
        None if is_of_a_cell => Filtered::Absent,
        None => Filtered::Made,
        Some(_) if is_of_a_cell || end > 0x100 || first < 0x40 && end > 0x10 => Filtered::Ignored,
        Some(_) => Filtered::Made,
    }
}

/// Ends all requests of the function at this page, if there is one: DMA, and message-signalled interrupts. What it has
/// sent before is complete, because the answer to the read comes after it (PCI Express, 2.4.1).
pub fn quiet(page: u64, bus: &impl Bus) {
    let command = bus.read(page + COMMAND, Width::Half);
    // Not by the identity: that of a virtual function is all ones, too (9.3.4.1).
    if command == Width::Half.mask() {
        return;
    }
    disable_messages(page, bus);
    bus.write(page + COMMAND, Width::Half, command & !MASTER);
    bus.read(page + COMMAND, Width::Half);
}

/// Disables message-signalled interrupts of a function, in its list of capabilities (7.7.1, 7.7.2).
pub fn disable_messages(page: u64, bus: &impl Bus) {
    const STATUS: u64 = 6;
    const HAS_LIST: u64 = 1 << 4;
    const FIRST: u64 = 0x34;
    const MSI: u64 = 0x05;
    const MSI_X: u64 = 0x11;
    if bus.read(page + STATUS, Width::Half) & HAS_LIST == 0 {
        return;
    }
    let mut at = bus.read(page + FIRST, Width::Byte) & 0xfc;
    // At most one capability in each four bytes after the header, because the list of a device may be a loop.
    for _ in 0..48 {
        if at < 0x40 {
            return;
        }
        let enabled = match bus.read(page + at, Width::Byte) {
            MSI => 1 << 0,
            MSI_X => 1 << 15,
            _ => 0,
        };
        if enabled != 0 {
            let control = bus.read(page + at + 2, Width::Half);
            bus.write(page + at + 2, Width::Half, control & !enabled);
        }
        at = bus.read(page + at + 1, Width::Byte) & 0xfc;
    }
}
