// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places a cell's memory.

use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::MEMORY_ALIGNMENT;
use rampart_model::{ByteSize, Finding};

use super::{
    BARE_DIRECTORY, BARE_MEMORY, BARE_SHARED, CellRequest, InUse, Payload, RegionWriter,
    SharedRequest, colours, pages, problem,
};
use crate::describe::{AddressSpan, Description, spans};
use crate::names::{RegionNames, wrong_name};

/// The location of all regions.
#[derive(Debug, Default)]
pub(super) struct Placed {
    pub(super) own: Option<MemoryRegion>,
    pub(super) shared: Vec<MemoryRegion>,
    pub(super) names: RegionNames,
    pub(super) directory: Option<MemoryRegion>,
}

/// Places the cell's own memory and its shared regions.
pub(super) fn placed(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    found: &mut Vec<Finding>,
) -> Placed {
    let mut free = spans::without(&description.kept, &in_use.memory());
    let bytes = request
        .memory_bytes
        .max(1)
        .next_multiple_of(MEMORY_ALIGNMENT);
    let Some(colours) = colours::chosen(description, in_use, request, found) else {
        return Placed::default();
    };
    let (own, range) = if colours == 0 {
        let Some(own) = first_fit(&mut free, bytes) else {
            let largest = largest(&free);
            found.push(too_little(request, largest, bytes, description, "memory"));
            return Placed::default();
        };
        (own, bytes)
    } else {
        let pages = spans::without(&description.kept, &in_use.pages());
        match colours::place(&pages, colours, bytes) {
            Ok(place) => place,
            Err(largest) => {
                let what = "memory of its colours";
                found.push(too_little(request, largest, bytes, description, what));
                return Placed::default();
            }
        }
    };
    let all = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
    let own = MemoryRegion {
        physical: own,
        // Devices with DMA use physical addresses.
        guest: match request.payload {
            Payload::Bare => BARE_MEMORY,
            Payload::Linux => own,
        },
        bytes: range,
        flags: all.bits(),
        colours,
    };
    if colours != 0 {
        let span = AddressSpan {
            start: own.physical,
            bytes: range,
        };
        free = spans::without(&free, &[span]);
        found.push(colours::unused(request, &own));
    }
    let bytes = own.guest_bytes();
    let mut placed = Placed {
        own: Some(own),
        ..Placed::default()
    };
    let mut next = BARE_SHARED;
    for (index, requested) in request.shared.iter().enumerate() {
        let (region, name) = match requested {
            SharedRequest::Own {
                name,
                bytes,
                writer,
            } => {
                let bytes = pages((*bytes).max(1));
                let Some(physical) = last_fit(&mut free, bytes) else {
                    let what = "shared memory";
                    found.push(too_little(
                        request,
                        largest(&free),
                        bytes,
                        description,
                        what,
                    ));
                    continue;
                };
                (region(physical, bytes, *writer, colours), name.clone())
            }
            SharedRequest::OtherCell { name, cell, region } => {
                match region_of_other_cell(in_use, request, index, (cell, region)) {
                    Ok((theirs, called)) => (theirs, name.clone().or(called)),
                    Err(finding) => {
                        found.push(finding);
                        continue;
                    }
                }
            }
        };
        if let Some(name) = &name {
            call(request, index, &region, name, &mut placed.names, found);
        }
        let guest = match request.payload {
            Payload::Bare => next,
            Payload::Linux => region.physical,
        };
        next += region.bytes;
        placed.shared.push(MemoryRegion { guest, ..region });
    }
    super::network::sections(in_use, request, &mut free, next, &mut placed, found);
    super::scmi::page(description, request, &mut free, &mut placed, found);
    let mut end = BARE_SHARED;
    if request.payload == Payload::Bare && !placed.names.is_empty() {
        end = BARE_DIRECTORY;
        match last_fit(&mut free, pages(1)) {
            Some(physical) => {
                placed.directory = Some(MemoryRegion {
                    guest: BARE_DIRECTORY,
                    ..region(physical, pages(1), RegionWriter::Root, colours)
                });
            }
            None => {
                let what = "the directory of its regions";
                found.push(too_little(
                    request,
                    largest(&free),
                    pages(1),
                    description,
                    what,
                ));
            }
        }
    }
    if request.payload == Payload::Bare && BARE_MEMORY + bytes > end {
        found.push(
            problem(
                format!("cell {}, memory", request.name),
                "the memory is too large for a program without an operating system",
            )
            .values(
                ByteSize(bytes).to_string(),
                format!("{} at most", ByteSize(end - BARE_MEMORY)),
            )
            .fix("request less memory"),
        );
    }
    placed
}

/// Returns a region of an existing cell with read permission, and its name in that cell.
fn region_of_other_cell(
    in_use: &InUse,
    request: &CellRequest,
    index: usize,
    (cell, wanted): (&str, &str),
) -> Result<(MemoryRegion, Option<String>), Finding> {
    let known = in_use.cells.iter().find(|known| known.name == cell);
    if let Some(known) = known
        && let Some(theirs) = known.region(wanted)
    {
        let flags = (theirs.flags() - MemoryFlags::WRITE) | MemoryFlags::READ;
        let region = MemoryRegion {
            flags: flags.bits(),
            ..*theirs
        };
        return Ok((region, known.names.of(theirs).map(str::to_owned)));
    }
    let present = known.map_or_else(
        || "no such cell".to_owned(),
        |known| {
            let names: Vec<&str> = known.names.all().collect();
            format!(
                "{} shared regions, named {}",
                known.shared().count(),
                if names.is_empty() {
                    "none".to_owned()
                } else {
                    names.join(", ")
                }
            )
        },
    );
    let location = format!("cell {}, shared region {index}", request.name);
    let what = format!("cell {cell} has no region {wanted}");
    Err(problem(location, what)
        .values(present, "the name or the number of a shared region of a cell")
        .fix(format!(
            "create {cell} first, with this region: rampart cell create {cell} --shared {wanted}=64KiB"
        )))
}

/// Sets the name of a region if it is valid and not used by another region of the cell.
fn call(
    request: &CellRequest,
    index: usize,
    region: &MemoryRegion,
    name: &str,
    names: &mut RegionNames,
    found: &mut Vec<Finding>,
) {
    let location = format!("cell {}, shared region {index}", request.name);
    if let Some(wrong) = wrong_name(name) {
        found.push(problem(location, wrong).fix("choose another name"));
    } else if names.all().any(|other| other == name) {
        found.push(
            problem(
                location,
                format!("another region of this cell has the name {name}"),
            )
            .values("used twice", "a unique name")
            .fix("rename one of them, for example --shared-of OTHER=CELL:NAME"),
        );
    } else {
        names.insert(region, name);
    }
}

/// Returns a shared region. That of a cell with colours is contiguous memory of all colours, which no side caches.
fn region(physical: u64, bytes: u64, writer: RegionWriter, colours: u32) -> MemoryRegion {
    let mut flags = match writer {
        RegionWriter::Cell => MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::ROOT_READ,
        RegionWriter::Root => MemoryFlags::READ | MemoryFlags::ROOT_READ | MemoryFlags::ROOT_WRITE,
    };
    flags.set(MemoryFlags::UNCACHED, colours != 0);
    MemoryRegion {
        physical,
        guest: physical,
        bytes,
        flags: (flags | MemoryFlags::SHARED).bits(),
        colours: 0,
    }
}

/// Takes whole blocks out of the free memory, at the lowest address possible. Returns their start,
/// or `None` if there is not enough memory.
pub(crate) fn first_fit(free: &mut Vec<AddressSpan>, bytes: u64) -> Option<u64> {
    let start = free.iter().find_map(|span| {
        let start = span.start.checked_next_multiple_of(MEMORY_ALIGNMENT)?;
        let end = start.checked_add(bytes)?;
        (end <= span.end()).then_some(start)
    })?;
    *free = spans::without(free, &[AddressSpan { start, bytes }]);
    Some(start)
}

/// Takes pages out of the free memory, at the highest address possible, to keep blocks whole.
/// Returns their start, or `None` if there is not enough memory.
pub(super) fn last_fit(free: &mut Vec<AddressSpan>, bytes: u64) -> Option<u64> {
    let start = free.iter().rev().find_map(|span| {
        let end = span.end() & !(pages(1) - 1);
        let start = end.checked_sub(bytes)?;
        (start >= span.start).then_some(start)
    })?;
    *free = spans::without(free, &[AddressSpan { start, bytes }]);
    Some(start)
}

fn largest(free: &[AddressSpan]) -> u64 {
    free.iter().map(|span| span.bytes).max().unwrap_or(0)
}

pub(super) fn too_little(
    request: &CellRequest,
    largest: u64,
    bytes: u64,
    description: &Description,
    what: &str,
) -> Finding {
    let kept: u64 = description.kept.iter().map(|span| span.bytes).sum();
    problem(
        format!("cell {}, {what}", request.name),
        format!(
            "no contiguous part of this size is free in the {} that are reserved from Linux",
            ByteSize(kept)
        ),
    )
    .values(ByteSize(largest).to_string(), ByteSize(bytes).to_string())
    .fix("request less, destroy a cell (rampart cell destroy), or reserve more memory from Linux (mem=, a reserved-memory node)")
}
