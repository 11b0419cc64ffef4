// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chooses the colours of a cell's memory, and places memory of these colours.

use rampart_hypervisor_core::format::{COLOUR_BLOCK_BYTES, COLOURS, MemoryFlags, MemoryRegion};
use rampart_hypervisor_core::interface::{MEMORY_ALIGNMENT, PAGE_BYTES};
use rampart_model::{ByteSize, Finding, Severity};

use super::{CellInUse, CellRequest, InUse, Payload, problem};
use crate::describe::{AddressSpan, Description, LastCache};

/// Returns the colours of a cell's cached memory, one bit each, and whether it has a share of the cache.
fn colours_of(cell: &CellInUse) -> (u32, bool) {
    let cached = cell.configuration.memory.iter().filter(|region| {
        let uncached = MemoryFlags::DEVICE | MemoryFlags::UNCACHED;
        !region.flags().intersects(uncached)
    });
    cached.fold((0, false), |(colours, shares), region| {
        match region.colours {
            0 => (u32::MAX, shares),
            own => (colours | own, true),
        }
    })
}

/// Returns the colours for the requested share, one bit each, repeated where the cache has fewer; 0 for a request
/// without a share, `None` after a finding.
pub(super) fn chosen(
    description: &Description,
    in_use: &InUse,
    request: &CellRequest,
    found: &mut Vec<Finding>,
) -> Option<u32> {
    let Some(percent) = request.cache_percent else {
        return Some(0);
    };
    let location = format!("cell {}, share of the cache", request.name);
    let count = description
        .last_cache
        .as_ref()
        .map_or(0, LastCache::colours);
    if count < 2 {
        let what = "the last-level cache cannot be divided by colours";
        let shape =
            "a last-level cache with 2 colours or more (a way of 8 KiB or more, in a power of two)";
        found.push(match &description.last_cache {
            None => problem(location, what)
                .values("nothing describes the cache", shape)
                .fix("load the driver of the hypervisor, which reads it from the processor (rampart cell enable), or add cache-sets and cache-line-size to the device tree"),
            Some(cache) => problem(location, what)
                .values(format!("{} sets of {} bytes", cache.sets, cache.line_bytes), shape)
                .fix("create the cell without --cache-percent"),
        });
        return None;
    }
    let divided = in_use
        .cells
        .iter()
        .map(colours_of)
        .filter(|(_, shares)| *shares);
    let taken = divided.fold(0, |taken, (colours, _)| taken | colours);
    let free: Vec<u32> = (0..count)
        .filter(|colour| taken >> colour & 1 == 0)
        .collect();
    let wanted = (u64::from(percent) * u64::from(count)).div_ceil(100).max(1) as usize;
    if percent > 100 || wanted > free.len() {
        let left = free.len() * 100 / count as usize;
        found.push(
            problem(location, "too few colours of the last-level cache are free")
                .values(
                    format!("{} of {count} free", free.len()),
                    format!("{wanted} for {percent} %"),
                )
                .fix(if left == 0 {
                    "destroy a cell that has a share (rampart cell destroy)".to_owned()
                } else {
                    format!("request {left} % or less (--cache-percent {left})")
                }),
        );
        return None;
    }
    // Adjacent colours are contiguous memory: fewer parts.
    let adjacent = free
        .windows(wanted)
        .find(|colours| colours.iter().is_sorted_by(|one, next| **one + 1 == **next));
    let chosen = adjacent.unwrap_or(&free[..wanted]);
    let once = chosen.iter().fold(0, |mask, colour| mask | 1_u64 << colour);
    let repeated = (0..COLOURS).step_by(count as usize);
    Some(repeated.fold(0, |mask, at| mask | (once << at) as u32))
}

/// Adds warnings about cells that use the same colours, and a note about the root.
pub(super) fn cells_without_share(in_use: &InUse, request: &CellRequest, found: &mut Vec<Finding>) {
    let location = format!("cell {}, share of the cache", request.name);
    let warning = |what: String, fix: &str| {
        Finding::new(Severity::Warning, location.clone(), what)
            .values("memory of all colours", "a share for each cell")
            .fix(fix)
    };
    for cell in &in_use.cells {
        let (_, shares) = colours_of(cell);
        if request.cache_percent.is_some() && !shares {
            let what = format!("cell {} takes lines of the cache from this cell", cell.name);
            found.push(warning(what, "create that cell with --cache-percent too"));
        }
        if request.cache_percent.is_none() && shares {
            let what = format!("this cell takes lines of the cache from cell {}", cell.name);
            found.push(warning(what, "create this cell with --cache-percent too"));
        }
    }
    if request.cache_percent.is_some()
        && request.payload == Payload::Linux
        && !request.devices.is_empty()
    {
        found.push(
            Finding::new(
                Severity::Warning,
                format!("cell {}, devices", request.name),
                "its memory is not at its physical addresses: a device with DMA would access memory of others",
            )
            .values("memory by colours", "devices without DMA")
            .fix("give a device with DMA to a cell without a share of the cache"),
        );
    }
    if request.cache_percent.is_some() {
        found.push(
            Finding::new(
                Severity::Note,
                location,
                "the root takes lines of the cache from this cell: its own memory, like the hypervisor's, has all colours",
            )
            .fix("run ordinary work that must not take them in a cell with a share"),
        );
    }
}

/// Takes memory of these colours out of the free pages, at the lowest address possible. Returns the region's start
/// and size, or the largest size that is free.
pub(super) fn place(free: &[AddressSpan], colours: u32, bytes: u64) -> Result<(u64, u64), u64> {
    let own_bytes = u64::from(colours.count_ones()) * PAGE_BYTES;
    let wanted = bytes.div_ceil(own_bytes);
    let mut largest = 0;
    let (first, end) = match (free.first(), free.last()) {
        (Some(first), Some(last)) => (first.start, last.end()),
        _ => return Err(0),
    };
    // The first page may be of another colour.
    let mut start = first & !(MEMORY_ALIGNMENT - 1);
    while start < end {
        let is_free = |block: &u64| {
            block_parts(start + block * COLOUR_BLOCK_BYTES, colours)
                .all(|part| is_within(free, &part))
        };
        let blocks = (0..wanted).take_while(is_free).count() as u64;
        if blocks == wanted {
            return Ok((start, blocks * COLOUR_BLOCK_BYTES));
        }
        largest = largest.max(blocks * own_bytes);
        // The block after those that are free is not.
        start = (start + (blocks + 1) * COLOUR_BLOCK_BYTES).next_multiple_of(MEMORY_ALIGNMENT);
    }
    Err(largest)
}

/// Returns the parts of a block of one page of each colour.
fn block_parts(physical: u64, colours: u32) -> impl Iterator<Item = AddressSpan> {
    parts(&MemoryRegion {
        physical,
        guest: 0,
        bytes: COLOUR_BLOCK_BYTES,
        flags: 0,
        colours,
    })
}

/// Returns the physical pages of a region.
pub(super) fn parts(region: &MemoryRegion) -> impl Iterator<Item = AddressSpan> + use<> {
    let parts: Vec<AddressSpan> = region
        .all_parts()
        .map(|part| AddressSpan {
            start: part.physical,
            bytes: part.bytes,
        })
        .collect();
    parts.into_iter()
}

/// Returns whether a span is in one of the free ones, which are in ascending order.
fn is_within(free: &[AddressSpan], part: &AddressSpan) -> bool {
    let after = free.partition_point(|span| span.start <= part.start);
    after > 0 && free[after - 1].holds(part)
}

/// Returns a note about the pages of other colours in the range of a region.
pub(super) fn unused(request: &CellRequest, region: &MemoryRegion) -> Finding {
    let own = region.guest_bytes();
    Finding::new(
        Severity::Note,
        format!("cell {}, memory", request.name),
        format!(
            "{} of its range of {} are pages of other colours, which only cells with a share can use",
            ByteSize(region.bytes - own),
            ByteSize(region.bytes)
        ),
    )
    .values(
        format!("{} colours of {COLOURS}", region.colours.count_ones()),
        "other cells with shares in the same range",
    )
}
