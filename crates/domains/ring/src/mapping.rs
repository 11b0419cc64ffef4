// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps pages of a file or device that other programs, cells or kernels access at the same time.

use std::io;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// A shared mapping, as words of 64 bits. Dropping it unmaps the pages.
#[derive(Debug)]
pub struct SharedMapping {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: all access is through atomics, and a mapping is not bound to a thread.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `bytes` of `file` from `offset` on, both multiples of the page size. A `writable` mapping
    /// needs a file that is open for reading and writing.
    ///
    /// # Errors
    /// Returns the errors of mmap(2).
    pub fn new(file: impl AsFd, offset: u64, bytes: usize, writable: bool) -> io::Result<Self> {
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, writable);
        // SAFETY: a new mapping at an address that the kernel chooses; no reference points into it.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                protection,
                MapFlags::SHARED,
                file,
                offset,
            )?
        };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes })
    }

    /// Returns the size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the whole mapping as words. A store faults if the mapping is not writable.
    #[must_use]
    pub const fn words(&self) -> &[AtomicU64] {
        // SAFETY: mapped as long as `self` lives and page-aligned; atomics may change at any time.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }

    /// Keeps the mapping until the process ends.
    #[must_use]
    pub fn leak(self) -> &'static [AtomicU64] {
        let mapping = std::mem::ManuallyDrop::new(self);
        // SAFETY: as in `words`; the pages are never unmapped.
        unsafe { std::slice::from_raw_parts(mapping.start.as_ptr(), mapping.bytes / 8) }
    }
}

impl AsRef<[AtomicU64]> for SharedMapping {
    fn as_ref(&self) -> &[AtomicU64] {
        self.words()
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these pages, and no reference outlives `self`. The call fails only
        // for arguments that are not a mapping.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt as _;
    use std::sync::atomic::Ordering;

    #[test]
    fn two_mappings_and_the_file_share_their_words() {
        let path = std::env::temp_dir().join(format!("rampart-mapping-{}", std::process::id()));
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .expect("file");
        std::fs::remove_file(&path).expect("unlinked");
        file.set_len(2 * 4096).expect("size");
        let written = SharedMapping::new(&file, 4096, 4096, true).expect("mapped");
        let read = SharedMapping::new(&file, 0, 2 * 4096, false).expect("mapped");
        assert_eq!((written.bytes(), read.words().len()), (4096, 1024));
        written.words()[1].store(7, Ordering::Release);
        assert_eq!(read.leak()[512 + 1].load(Ordering::Acquire), 7);
        let mut word = [0; 8];
        file.read_exact_at(&mut word, 4096 + 8).expect("read");
        assert_eq!(u64::from_ne_bytes(word), 7);
        SharedMapping::new(&file, 1, 4096, false).expect_err("not a whole page");
    }
}
