// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of the memory of a Linux cell: kernel, initramfs, device tree, and the purpose of its
//! shared regions.

use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{MemoryFlags, MemoryRegion};
use rampart_model::AddressSpan;

use super::image::KernelImage;
use super::kernel_log::READER_BYTES;
use super::{ALIGNMENT, LinuxError};
use crate::pci::SPACE_BYTES;

/// Size in bytes of the shared region for a Linux cell's console. This and the regions of the
/// agent's connection are a power of two plus a page for the header. The region to the root can
/// hold the records of a minute or more, for the case that the root has crashed.
pub const CONSOLE_BYTES: u64 = (256 << 10) + 4096;
/// Size in bytes of the region that the agent writes. See [`CONSOLE_BYTES`].
pub const TO_ROOT_BYTES: u64 = (2 << 20) + 4096;
/// Size in bytes of the region that the agent reads. See [`CONSOLE_BYTES`].
pub const FROM_ROOT_BYTES: u64 = (256 << 10) + 4096;

/// Maximum size of a device tree (booting.rst, "Setup the device tree"), in bytes.
const TREE_BYTES: u64 = 2 << 20;
/// Memory that Linux needs besides its image and its initramfs before it runs programs, in bytes.
const LEAST_FREE: u64 = 32 << 20;

/// The regions of a Linux cell, which it sees at their physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinuxRegions {
    /// Own memory of the cell.
    pub memory: AddressSpan,
    /// Shared: the kernel log, as records.
    pub console: AddressSpan,
    /// Shared: data from the agent.
    pub to_root: AddressSpan,
    /// Shared: data to the agent.
    pub from_root: AddressSpan,
}

impl LinuxRegions {
    /// Finds the regions in a cell's configuration: its own memory is the first region that is
    /// loadable and executable. Of the shared regions, the first that the cell writes is its
    /// console, the second carries data from the agent, and the first that the root writes carries
    /// data to the agent.
    ///
    /// # Errors
    /// Returns an error if a region is missing, or its memory is not mapped at its physical
    /// address.
    pub fn of(configuration: &Blob) -> Result<Self, LinuxError> {
        let loadable = MemoryFlags::LOADABLE | MemoryFlags::EXECUTE | MemoryFlags::WRITE;
        let written = MemoryFlags::SHARED | MemoryFlags::ROOT_READ | MemoryFlags::WRITE;
        let from_root_flags = MemoryFlags::SHARED | MemoryFlags::ROOT_WRITE;
        let find = |what: &'static str, flags: MemoryFlags, index: usize| {
            configuration
                .memory
                .iter()
                .filter(|region| MemoryFlags::from_bits_retain(region.flags).contains(flags))
                .nth(index)
                .ok_or(LinuxError::NoRegion { what })
                .map(|region| (region.physical, region.guest, region.guest_bytes()))
        };
        let same = |(physical, guest, bytes)| {
            if physical != guest {
                return Err(LinuxError::Moved { physical, guest });
            }
            Ok(AddressSpan {
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
            to_root: same(find("a shared region for output of its agent", written, 1)?)?,
            from_root: same(find(
                "a shared region for input of its agent",
                from_root_flags,
                0,
            )?)?,
        })
    }

    /// Places the regions in a span: shared memory in its last 2 MiB, the rest for Linux.
    ///
    /// # Errors
    /// Returns an error if the span is not aligned to 2 MiB, or is too small.
    pub fn within(span: AddressSpan) -> Result<Self, LinuxError> {
        let aligned = span.start.is_multiple_of(ALIGNMENT) && span.bytes.is_multiple_of(ALIGNMENT);
        let shared = (CONSOLE_BYTES + TO_ROOT_BYTES + FROM_ROOT_BYTES).next_multiple_of(ALIGNMENT);
        if !aligned || span.bytes <= shared {
            return Err(LinuxError::Unaligned { start: span.start });
        }
        let memory = AddressSpan {
            start: span.start,
            bytes: span.bytes - shared,
        };
        let mut start = memory.end();
        let mut next = |bytes| {
            let span = AddressSpan { start, bytes };
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

    /// Returns the configuration of a cell with only these regions and CPUs (by affinity).
    #[must_use]
    pub fn configuration(&self, name: &str, cpus: &[u64]) -> Blob {
        let region = |span: AddressSpan, flags: MemoryFlags| MemoryRegion {
            physical: span.start,
            guest: span.start,
            bytes: span.bytes,
            flags: flags.bits(),
            colours: 0,
        };
        let data = MemoryFlags::READ | MemoryFlags::WRITE;
        let own = data | MemoryFlags::EXECUTE | MemoryFlags::LOADABLE;
        let written = data | MemoryFlags::SHARED | MemoryFlags::ROOT_READ;
        let from_root_flags = MemoryFlags::READ
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
                region(self.from_root, from_root_flags),
            ],
            ..Blob::default()
        }
    }

    /// Returns the arguments that describe the regions to the agent, Linux's first program.
    #[must_use]
    pub fn agent_arguments(&self) -> String {
        let Self {
            console,
            to_root,
            from_root,
            ..
        } = self;
        let [reads, writes, console] = [from_root, to_root, console]
            .map(|span| format!("{:#x}+{:#x}", span.start, span.bytes));
        format!("agent --init --stay --reads {reads} --writes {writes} --console {console}")
    }
}

/// Returns the address of the configuration space in a memory with this end.
pub(crate) const fn configuration_space(memory_end: u64) -> u64 {
    memory_end - READER_BYTES - SPACE_BYTES
}

/// Addresses in the cell's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// The part for Linux: all before the configuration space, or before the last page.
    pub memory: AddressSpan,
    /// The configuration space of its PCI functions, before the last page.
    pub space: u64,
    /// The last page, with the first code of the cell.
    pub reader: u64,
    /// Start of the kernel, which is also its entry.
    pub kernel: u64,
    /// Location of the initramfs.
    pub initramfs: AddressSpan,
    /// Start of the device tree.
    pub tree: u64,
}

impl Layout {
    /// Places the kernel at the start, the initramfs behind it, the device tree, the configuration space if the cell has
    /// PCI functions, and the first code at the end.
    ///
    /// # Errors
    /// Returns an error if the remaining memory is too small for Linux.
    pub fn of(
        memory: AddressSpan,
        image: &KernelImage,
        initramfs_bytes: u64,
        has_functions: bool,
    ) -> Result<Self, LinuxError> {
        let kernel = memory.start + image.text_offset;
        let initramfs = AddressSpan {
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
        let reader = memory.end() - READER_BYTES;
        let space = configuration_space(memory.end());
        let end = if has_functions { space } else { reader };
        Ok(Self {
            memory: AddressSpan {
                start: memory.start,
                bytes: end - memory.start,
            },
            space,
            reader,
            kernel,
            initramfs,
            // A multiple of 8, in its own block of 2 MiB.
            tree: (memory.end() - TREE_BYTES) / ALIGNMENT * ALIGNMENT,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use rampart_agent::{MemoryRange, ServeOptions};

    use super::*;

    /// More than any cell's device tree.
    const LEAST_TREE: u64 = 512 << 10;
    const SPAN: AddressSpan = AddressSpan {
        start: 0x7400_0000,
        bytes: 0x800_0000,
    };

    #[test]
    fn finds_regions_in_their_own_configuration() {
        let regions = LinuxRegions::within(SPAN).expect("enough memory");
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
        assert!(missing.contains("input of its agent"), "{missing}");
    }

    #[test]
    fn the_agent_understands_its_arguments() {
        let regions = LinuxRegions::within(SPAN).expect("enough memory");
        let text = regions.agent_arguments();
        let mut words = text.split(' ');
        assert_eq!(words.next(), Some("agent"));
        let parsed = ServeOptions::parse(words.map(OsString::from)).expect("the agent's arguments");
        let range = |span: AddressSpan| MemoryRange {
            start: span.start,
            bytes: span.bytes,
        };
        assert!(parsed.init && parsed.stay);
        let memory = (range(regions.from_root), range(regions.to_root));
        assert_eq!(parsed.memory, Some(memory));
        assert_eq!(parsed.console, Some(range(regions.console)));
    }

    #[test]
    fn refuses_a_span_that_is_too_small() {
        for (start, bytes) in [(0x7410_0000, 0x800_0000), (0x7400_0000, ALIGNMENT)] {
            assert!(LinuxRegions::within(AddressSpan { start, bytes }).is_err());
        }
    }

    #[test]
    fn layout_does_not_overlap_and_refuses_too_little_memory() {
        let image = KernelImage {
            bytes: vec![0; 8],
            text_offset: 0x8_0000,
            memory_bytes: 0x1f0_0001,
        };
        let layout = Layout::of(SPAN, &image, 0x12_3456, false).expect("enough memory");
        assert_eq!(layout.kernel, 0x7408_0000);
        assert!(layout.initramfs.start >= layout.kernel + image.memory_bytes);
        assert!(layout.initramfs.start.is_multiple_of(ALIGNMENT));
        assert!(layout.tree >= layout.initramfs.end());
        assert!(layout.tree + TREE_BYTES <= SPAN.end());
        assert_eq!(layout.memory.end(), layout.reader);
        assert_eq!(layout.reader + READER_BYTES, SPAN.end());
        let with = Layout::of(SPAN, &image, 0x12_3456, true).expect("enough memory");
        assert_eq!(with.memory.end(), with.space);
        assert_eq!(with.space + SPACE_BYTES, with.reader);
        assert!(with.tree + LEAST_TREE <= with.space);
        let small = AddressSpan {
            bytes: 0x400_0000,
            ..SPAN
        };
        let error = Layout::of(small, &image, 0x12_3456, false).expect_err("too small");
        let text = error.to_string();
        assert!(text.contains("64 MiB") && text.contains("68 MiB"), "{text}");
    }
}
