// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps memory that a cell shares with the root into a process of the root.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use rampart_ring::mapping::SharedMapping;

use crate::lost::Watch;

/// Memory is mapped in pages of this size.
pub(crate) const PAGE_BYTES: usize = rampart_hypervisor_core::interface::PAGE_BYTES as usize;

/// A shared region, or whole pages of one, mapped until this is dropped. The cell may write it at
/// any moment: every access is atomic, and no value is trusted.
#[derive(Debug)]
pub struct SharedMemory {
    // Dropped before the watch, so that the pages are unmapped first.
    mapping: SharedMapping,
    writable: bool,
    watch: Watch,
}

impl SharedMemory {
    /// Maps `bytes` from a physical address on; both are multiples of 4 KiB.
    pub(crate) fn map(
        device: &File,
        physical: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Self> {
        // At 0 the driver maps its status pages.
        if physical == 0 || bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mapping = SharedMapping::new(device, physical, bytes, writable)?;
        let watch = Watch::begin(mapping.words().as_ptr() as usize, bytes)?;
        Ok(Self {
            mapping,
            writable,
            watch,
        })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Returns whether [`Self::store`] is possible.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether an access has found that the cell was destroyed. From then on the memory
    /// reads as zeros.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }

    /// Returns all words. A store faults if the memory is not writable.
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }

    /// Returns the word with this index, or `None` beyond the end.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<u64> {
        self.words()
            .get(index)
            .map(|word| word.load(Ordering::Acquire))
    }

    /// Writes the word with this index. Returns whether this was possible.
    #[must_use]
    pub fn store(&self, index: usize, value: u64) -> bool {
        match self.words().get(index) {
            Some(word) if self.writable => {
                word.store(value, Ordering::Release);
                true
            }
            _ => false,
        }
    }
}
