// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory that somebody else reads and writes at the same time: whole pages of a file.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Pages of a file, seen while this lives.
#[derive(Debug)]
pub(crate) struct Shared {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: all access is through atomics; the mapping belongs to no thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps `bytes` of the file from `offset` on, both in whole pages.
    pub(crate) fn map(path: &Path, offset: u64, bytes: usize, writable: bool) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let writes = if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: a new mapping; nobody has a reference into it.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | writes,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// All of it as words of 64 bits. A store faults where it was not mapped for that.
    pub(crate) const fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self` lives, page-aligned, and atomics may change under us.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: what `map` has mapped; no reference outlives `self`.
        unsafe {
            libc::munmap(self.start.as_ptr().cast(), self.bytes);
        }
    }
}
