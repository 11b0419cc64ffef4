// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What lies where in the memory of a Linux cell: kernel, initramfs, device tree; and which of its
//! shared regions is for what.

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};

use super::image::KernelImage;
use super::{ALIGNMENT, LinuxError};

/// What a Linux cell shares with the root, in bytes: its console, what it says and what it hears.
/// Each is a power of two and a page for its header. What it says has room for the records of a
/// minute or more, for the case that the root is not there to take them.
pub const CONSOLE_BYTES: u64 = (256 << 10) + 4096;
/// See [`CONSOLE_BYTES`].
pub const TO_ROOT_BYTES: u64 = (2 << 20) + 4096;
/// See [`CONSOLE_BYTES`].
pub const FROM_ROOT_BYTES: u64 = (256 << 10) + 4096;

/// A device tree is no longer than this (booting.rst, "Setup the device tree"), in bytes.
const TREE_BYTES: u64 = 2 << 20;
/// What Linux needs beside itself and its initramfs before it runs anything, in bytes.
const LEAST_FREE: u64 = 32 << 20;

/// A part of physical memory, which a Linux cell sees where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

impl Span {
    /// The first byte after it.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl std::fmt::Display for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.bytes)
    }
}

/// The regions of a Linux cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinuxRegions {
    /// Its own memory.
    pub memory: Span,
    /// Shared: its kernel's log, as records.
    pub console: Span,
    /// Shared: what its agent says.
    pub to_root: Span,
    /// Shared: what its agent hears.
    pub from_root: Span,
}

impl LinuxRegions {
    /// Finds them in a cell's configuration: its own memory is the first region that can be loaded and
    /// executed; of the shared ones the first that the cell writes is its console, the second what
    /// it says, the first that the root writes what it hears.
    ///
    /// # Errors
    /// If one is not there, or its memory is not where the kernel needs it.
    pub fn of(configuration: &Blob) -> Result<Self, LinuxError> {
        let loadable = MemoryFlags::LOADABLE | MemoryFlags::EXECUTE | MemoryFlags::WRITE;
        let written = MemoryFlags::SHARED | MemoryFlags::ROOT_READ | MemoryFlags::WRITE;
        let heard = MemoryFlags::SHARED | MemoryFlags::ROOT_WRITE;
        let find = |what: &'static str, flags: MemoryFlags, index: usize| {
            configuration
                .memory
                .iter()
                .filter(|region| MemoryFlags::from_bits_retain(region.flags).contains(flags))
                .nth(index)
                .ok_or(LinuxError::NoRegion { what })
                .map(|region| (region.physical, region.guest, region.bytes))
        };
        let same = |(physical, guest, bytes)| {
            if physical != guest {
                return Err(LinuxError::Moved { physical, guest });
            }
            Ok(Span {
                start: guest,
                bytes,
            })
        };
        let memory = same(find("memory of its own", loadable, 0)?)?;
        if !memory.start.is_multiple_of(ALIGNMENT) {
            return Err(LinuxError::Unaligned {
                start: memory.start,
            });
        }
        Ok(Self {
            memory,
            console: same(find("a shared region for its console", written, 0)?)?,
            to_root: same(find("a shared region for what it says", written, 1)?)?,
            from_root: same(find("a shared region for what it hears", heard, 0)?)?,
        })
    }

    /// The regions within a span: shared memory in its last 2 MiB, the rest is Linux's.
    ///
    /// # Errors
    /// If the span is not aligned to 2 MiB, or has no room.
    pub fn within(span: Span) -> Result<Self, LinuxError> {
        let aligned = span.start.is_multiple_of(ALIGNMENT) && span.bytes.is_multiple_of(ALIGNMENT);
        let shared = (CONSOLE_BYTES + TO_ROOT_BYTES + FROM_ROOT_BYTES).next_multiple_of(ALIGNMENT);
        if !aligned || span.bytes <= shared {
            return Err(LinuxError::Unaligned { start: span.start });
        }
        let memory = Span {
            start: span.start,
            bytes: span.bytes - shared,
        };
        let mut start = memory.end();
        let mut next = |bytes| {
            let span = Span { start, bytes };
            start += bytes;
            span
        };
        Ok(Self {
            memory,
            console: next(CONSOLE_BYTES),
            to_root: next(TO_ROOT_BYTES),
            from_root: next(FROM_ROOT_BYTES),
        })
    }

    /// The configuration of a cell with these regions and CPUs, by their affinities, and nothing else.
    #[must_use]
    pub fn configuration(&self, name: &str, cpus: &[u64]) -> Blob {
        let region = |span: Span, flags: MemoryFlags| MemoryRegion {
            physical: span.start,
            guest: span.start,
            bytes: span.bytes,
            flags: flags.bits(),
            reserved: 0,
        };
        let data = MemoryFlags::READ | MemoryFlags::WRITE;
        let own = data | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
        let written = data | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        let heard = MemoryFlags::READ
            | MemoryFlags::SHARED
            | MemoryFlags::ROOT_READ
            | MemoryFlags::ROOT_WRITE;
        Blob {
            name: name.to_owned(),
            cpus: cpus.to_vec(),
            memory: vec![
                region(self.memory, own),
                region(self.console, written),
                region(self.to_root, written),
                region(self.from_root, heard),
            ],
            ..Blob::default()
        }
    }

    /// What the agent, as Linux's first program, is told of them.
    #[must_use]
    pub fn agent_arguments(&self) -> String {
        let Self {
            console,
            to_root,
            from_root,
            ..
        } = self;
        format!("agent --init --stay --reads {from_root} --writes {to_root} --console {console}")
    }
}

/// Where things lie in the cell's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The kernel's first byte, which is also its entry.
    pub kernel: u64,
    /// The initramfs.
    pub initramfs: Span,
    /// The device tree's first byte.
    pub tree: u64,
}

impl Layout {
    /// The kernel at the start, the initramfs behind it, the tree at the end.
    ///
    /// # Errors
    /// If that leaves Linux too little to run.
    pub fn of(memory: Span, image: &KernelImage, initramfs_bytes: u64) -> Result<Self, LinuxError> {
        let kernel = memory.start + image.text_offset;
        let initramfs = Span {
            start: (kernel + image.memory_bytes).next_multiple_of(ALIGNMENT),
            bytes: initramfs_bytes,
        };
        let needed = initramfs.end() - memory.start + LEAST_FREE + TREE_BYTES;
        if needed > memory.bytes {
            return Err(LinuxError::TooSmall {
                present: memory.bytes,
                needed,
            });
        }
        Ok(Self {
            kernel,
            initramfs,
            // A multiple of 8, in a block of 2 MiB that has nothing else.
            tree: (memory.end() - TREE_BYTES) / ALIGNMENT * ALIGNMENT,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span {
        start: 0x7400_0000,
        bytes: 0x800_0000,
    };

    #[test]
    fn regions_are_found_again_in_the_configuration_that_they_make() {
        let regions = LinuxRegions::within(SPAN).expect("room");
        let mut blob = regions.configuration("rt", &[2, 3]);
        blob.entry = regions.memory.start;
        blob.checked().expect("the hypervisor would read it");
        assert_eq!(LinuxRegions::of(&blob).expect("all there"), regions);
        assert!(regions.from_root.end() <= SPAN.end());
        blob.memory[0].guest += 0x1000;
        let moved = LinuxRegions::of(&blob).expect_err("moved").to_string();
        assert!(moved.contains("0x74001000"), "{moved}");
        let mut without = regions.configuration("rt", &[2]);
        without.memory.truncate(3);
        let missing = LinuxRegions::of(&without).expect_err("missing").to_string();
        assert!(missing.contains("hears"), "{missing}");
    }

    #[test]
    fn a_span_without_room_is_refused() {
        for (start, bytes) in [(0x7410_0000, 0x800_0000), (0x7400_0000, ALIGNMENT)] {
            assert!(LinuxRegions::within(Span { start, bytes }).is_err());
        }
    }

    #[test]
    fn nothing_overlaps_and_too_little_is_told() {
        let image = KernelImage {
            bytes: vec![0; 8],
            text_offset: 0x8_0000,
            memory_bytes: 0x1f0_0001,
        };
        let layout = Layout::of(SPAN, &image, 0x12_3456).expect("room");
        assert_eq!(layout.kernel, 0x7408_0000);
        assert!(layout.initramfs.start >= layout.kernel + image.memory_bytes);
        assert!(layout.initramfs.start.is_multiple_of(ALIGNMENT));
        assert!(layout.tree >= layout.initramfs.end());
        assert!(layout.tree + TREE_BYTES <= SPAN.end());
        let small = Span {
            bytes: 0x400_0000,
            ..SPAN
        };
        let error = Layout::of(small, &image, 0x12_3456).expect_err("too small");
        let text = error.to_string();
        assert!(text.contains("64 MiB") && text.contains("68 MiB"), "{text}");
    }
}
