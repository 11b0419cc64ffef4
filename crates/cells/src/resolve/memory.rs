// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a cell's memory is.

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::MEMORY_ALIGNMENT;
use rampart_model::{ByteSize, Finding};

use super::{
    BARE_MEMORY, BARE_SHARED, InUse, Payload, Request, SharedWish, Writer, pages, problem,
};
use crate::describe::{Description, Span, spans};

/// The cell's own memory and its shared regions.
pub(super) fn placed(
    description: &Description,
    in_use: &InUse,
    request: &Request,
    found: &mut Vec<Finding>,
) -> (Option<MemoryRegion>, Vec<MemoryRegion>) {
    let mut free = spans::without(&description.kept, &in_use.memory());
    let bytes = request
        .memory_bytes
        .max(1)
        .next_multiple_of(MEMORY_ALIGNMENT);
    let Some(own) = first_fit(&mut free, bytes) else {
        found.push(too_little(request, &free, bytes, description, "memory"));
        return (None, Vec::new());
    };
    let all = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
    let own = MemoryRegion {
        physical: own,
        // Devices that write memory by themselves know no other address.
        guest: match request.payload {
            Payload::Bare => BARE_MEMORY,
            Payload::Linux => own,
        },
        bytes,
        flags: all.bits(),
        reserved: 0,
    };
    let mut shared = Vec::new();
    let mut next = BARE_SHARED;
    for (index, wish) in request.shared.iter().enumerate() {
        let region = match wish {
            SharedWish::Own { bytes, writer } => {
                let bytes = pages((*bytes).max(1));
                let Some(physical) = last_fit(&mut free, bytes) else {
                    found.push(too_little(
                        request,
                        &free,
                        bytes,
                        description,
                        "shared memory",
                    ));
                    continue;
                };
                region(physical, bytes, *writer)
            }
            SharedWish::Neighbour { cell, index: which } => {
                let neighbour = in_use.cells.iter().find(|known| known.name == *cell);
                let Some(theirs) = neighbour.and_then(|cell| cell.shared().nth(*which)) else {
                    let place = format!("cell {}, shared region {index}", request.name);
                    found.push(
                        problem(
                            place,
                            format!("the region {which} of cell {cell} is not there"),
                        )
                        .values(
                            neighbour.map_or_else(
                                || "no such cell".to_owned(),
                                |cell| format!("{} shared regions", cell.shared().count()),
                            ),
                            "a shared region of a cell",
                        )
                        .mend(format!("create {cell} first, with shared memory")),
                    );
                    continue;
                };
                let flags = (theirs.flags() - MemoryFlags::WRITE) | MemoryFlags::READ;
                MemoryRegion {
                    flags: flags.bits(),
                    ..*theirs
                }
            }
        };
        let guest = match request.payload {
            Payload::Bare => next,
            Payload::Linux => region.physical,
        };
        next += region.bytes;
        shared.push(MemoryRegion { guest, ..region });
    }
    if request.payload == Payload::Bare && BARE_MEMORY + bytes > BARE_SHARED {
        found.push(
            problem(
                format!("cell {}, memory", request.name),
                "a program without an operating system has no room for it",
            )
            .values(
                ByteSize(bytes).to_string(),
                format!("{} at most", ByteSize(BARE_SHARED - BARE_MEMORY)),
            )
            .mend("ask for less, or write kind linux"),
        );
    }
    (Some(own), shared)
}

fn region(physical: u64, bytes: u64, writer: Writer) -> MemoryRegion {
    let flags = match writer {
        Writer::Cell => MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::ROOT_READ,
        Writer::Root => MemoryFlags::READ | MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE,
    };
    MemoryRegion {
        physical,
        guest: physical,
        bytes,
        flags: (flags | MemoryFlags::SHARED).bits(),
        reserved: 0,
    }
}

/// The lowest place for whole blocks, taken out of what is free.
pub(crate) fn first_fit(free: &mut Vec<Span>, bytes: u64) -> Option<u64> {
    let start = free.iter().find_map(|span| {
        let start = span.start.checked_next_multiple_of(MEMORY_ALIGNMENT)?;
        let end = start.checked_add(bytes)?;
        (end <= span.end()).then_some(start)
    })?;
    *free = spans::without(free, &[Span { start, bytes }]);
    Some(start)
}

/// The highest place for pages, so that blocks stay whole.
fn last_fit(free: &mut Vec<Span>, bytes: u64) -> Option<u64> {
    let start = free.iter().rev().find_map(|span| {
        let end = span.end() & !(pages(1) - 1);
        let start = end.checked_sub(bytes)?;
        (start >= span.start).then_some(start)
    })?;
    *free = spans::without(free, &[Span { start, bytes }]);
    Some(start)
}

fn too_little(
    request: &Request,
    free: &[Span],
    bytes: u64,
    description: &Description,
    what: &str,
) -> Finding {
    let largest = free.iter().map(|span| span.bytes).max().unwrap_or(0);
    let kept: u64 = description.kept.iter().map(|span| span.bytes).sum();
    problem(
        format!("cell {}, {what}", request.name),
        format!(
            "of the {} that are kept from Linux not as much is free in one piece",
            ByteSize(kept)
        ),
    )
    .values(ByteSize(largest).to_string(), ByteSize(bytes).to_string())
    .mend("ask for less, `rampart cell destroy` a cell, or keep more from Linux (mem=, a reserved-memory node)")
}
