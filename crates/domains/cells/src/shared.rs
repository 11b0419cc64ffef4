// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that a cell shares with the root, as a program of the root sees it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lost::Watch;

/// What memory is mapped in, in bytes.
pub(crate) const PAGE_BYTES: usize = rampart_hypervisor_core::interface::PAGE_BYTES as usize;

/// A shared region, or whole pages of one, seen while this lives. The cell may write it at any
/// moment: every access is atomic, and nothing that is read is to be believed.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<AtomicU64>,
    bytes: usize,
    writable: bool,
    watch: Watch,
}

// SAFETY: all access is through atomics; the mapping belongs to no thread.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps what the driver shows at a physical address; both in whole pages of 4 KiB.
    pub(crate) fn map(
        device: &File,
        physical: u64,
        bytes: usize,
        writable: bool,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(physical).map_err(|_| io::ErrorKind::InvalidInput)?;
        // The driver shows its status pages at 0.
        if physical == 0 || bytes == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let writes = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping; nobody has a reference into it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | writes,
                libc::MAP_SHARED,
                device.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start: NonNull<AtomicU64> =
            NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let watch = match Watch::begin(start.as_ptr() as usize, bytes) {
            Ok(watch) => watch,
            Err(error) => {
                // SAFETY: mapped above; nobody refers to it.
                unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
                return Err(error);
            }
        };
        Ok(Self {
            start,
            bytes,
            writable,
            watch,
        })
    }

    /// Its size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether [`Self::store`] is possible.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// Whether its cell was destroyed, as far as an access has found out: it reads as zeros since.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.watch.is_lost()
    }

    /// All of it as words of 64 bits. A store faults where it is not writable.
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self` lives, page-aligned, and atomics may change under us.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    /// The word with this index; `None` beyond the end.
    #[must_use]
    pub fn load(&self, index: usize) -> Option<u64> {
        self.words()
            .get(index)
            .map(|word| word.load(Ordering::Acquire))
    }

    /// Writes the word with this index; whether that was possible.
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

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: what `map` has mapped; no reference outlives `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}
