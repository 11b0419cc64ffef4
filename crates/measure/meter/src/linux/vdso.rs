// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds `clock_gettime` in the vDSO, which the kernel maps into every process (vdso(7)).
//!
//! The C library uses it too, but through layers that cost as much as the reading itself, and musl
//! before 1.2.6 does not find it if the vDSO only has a GNU hash table.

use std::ffi::CStr;

/// `clock_gettime` of the vDSO; returns 0 on success.
pub(crate) type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> i32;

#[cfg(target_arch = "aarch64")]
const NAME: &CStr = c"__kernel_clock_gettime";
#[cfg(not(target_arch = "aarch64"))]
const NAME: &CStr = c"__vdso_clock_gettime";

/// The parts of elf(5), 64 bits, that are used here.
mod elf {
    pub(super) const LOAD: u32 = 1;
    pub(super) const DYNAMIC: u32 = 2;
    pub(super) const HASH: u64 = 4;
    pub(super) const STRINGS: u64 = 5;
    pub(super) const SYMBOLS: u64 = 6;
    pub(super) const GNU_HASH: u64 = 0x6fff_fef5;
    pub(super) const SYMBOL_SIZE: usize = 24;
}

/// The image in memory. All reads are checked against its size.
struct Image {
    start: usize,
    size: usize,
}

impl Image {
    fn read<T: Copy>(&self, offset: usize) -> Option<T> {
        let end = offset.checked_add(size_of::<T>())?;
        // SAFETY: within the image, which stays mapped while the process lives; T is one of the
        // unsigned integers, for which all bits are valid.
        (end <= self.size).then(|| unsafe { ((self.start + offset) as *const T).read_unaligned() })
    }

    /// Returns the offset of a pointer of the dynamic section, which is relative to the image or
    /// already relocated.
    fn offset(&self, pointer: u64, load: u64) -> usize {
        let pointer = pointer as usize;
        if pointer >= self.start {
            pointer - self.start
        } else {
            pointer.wrapping_sub(load as usize)
        }
    }

    fn is_named(&self, offset: usize, name: &CStr) -> bool {
        name.to_bytes_with_nul()
            .iter()
            .enumerate()
            .all(|(index, byte)| self.read::<u8>(offset + index) == Some(*byte))
    }

    /// Returns the number of symbols from the hash table that exists.
    fn symbol_count(&self, hash: Option<usize>, gnu_hash: Option<usize>) -> Option<usize> {
        if let Some(hash) = hash {
            return Some(self.read::<u32>(hash + 4)? as usize);
        }
        let table = gnu_hash?;
        let buckets = self.read::<u32>(table)? as usize;
        let first = self.read::<u32>(table + 4)?;
        let filter = self.read::<u32>(table + 8)? as usize;
        let bucket = table + 16 + filter * 8;
        let last = (0..buckets)
            .filter_map(|index| self.read::<u32>(bucket + index * 4))
            .max()?;
        let mut symbol = last.max(first);
        // A chain ends with an odd hash.
        while self.read::<u32>(bucket + buckets * 4 + (symbol.checked_sub(first)? as usize) * 4)?
            & 1
            == 0
        {
            symbol += 1;
        }
        Some(symbol as usize + 1)
    }

    fn find(&self, name: &CStr) -> Option<usize> {
        let headers = self.read::<u64>(32)? as usize;
        let (header_size, header_count) = (self.read::<u16>(54)?, self.read::<u16>(56)?);
        let header = |wanted: u32| {
            (0..usize::from(header_count))
                .map(|index| headers + index * usize::from(header_size))
                .find(|header| self.read::<u32>(*header) == Some(wanted))
        };
        let load_header = header(elf::LOAD)?;
        // The difference between addresses of the image and offsets from its start.
        let load = self
            .read::<u64>(load_header + 16)?
            .wrapping_sub(self.read::<u64>(load_header + 8)?);
        let dynamic = self.read::<u64>(header(elf::DYNAMIC)? + 8)? as usize;
        let (mut hash, mut gnu_hash, mut strings, mut symbols) = (None, None, None, None);
        for index in 0.. {
            let entry = dynamic + index * 16;
            let (tag, value) = (self.read::<u64>(entry)?, self.read::<u64>(entry + 8)?);
            let offset = Some(self.offset(value, load));
            match tag {
                0 => break,
                elf::HASH => hash = offset,
                elf::GNU_HASH => gnu_hash = offset,
                elf::STRINGS => strings = offset,
                elf::SYMBOLS => symbols = offset,
                _ => {}
            }
        }
        let (strings, symbols) = (strings?, symbols?);
        (0..self.symbol_count(hash, gnu_hash)?)
            .map(|index| symbols + index * elf::SYMBOL_SIZE)
            .find_map(|symbol| {
                let name_offset = self.read::<u32>(symbol)? as usize;
                let (section, value) =
                    (self.read::<u16>(symbol + 6)?, self.read::<u64>(symbol + 8)?);
                (section != 0 && self.is_named(strings + name_offset, name))
                    .then(|| self.offset(value, load))
            })
            .filter(|offset| *offset < self.size)
    }
}

/// Returns `clock_gettime` of the vDSO, or `None` if the kernel maps no vDSO (for example under
/// valgrind).
#[cfg(target_pointer_width = "64")]
pub(crate) fn clock_gettime() -> Option<ClockGettime> {
    // SAFETY: no pointers.
    let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    if start == 0 {
        return None;
    }
    // The minimum size; the program header gives the actual size.
    let header = Image { start, size: 4096 };
    if header.read::<u32>(0)?.to_ne_bytes() != *b"\x7fELF" {
        return None;
    }
    let programs = header.read::<u64>(32)? as usize;
    let size = (0..usize::from(header.read::<u16>(56)?))
        .map(|index| programs + index * usize::from(header.read::<u16>(54).unwrap_or(56)))
        .filter(|program| header.read::<u32>(*program) == Some(elf::LOAD))
        .filter_map(|program| {
            Some(
                header
                    .read::<u64>(program + 8)?
                    .saturating_add(header.read::<u64>(program + 40)?),
            )
        })
        .max()?;
    let image = Image {
        start,
        size: size as usize,
    };
    let function = image.start + image.find(NAME)?;
    // SAFETY: by the kernel's ABI the symbol of this name has this type (vdso(7)).
    Some(unsafe { std::mem::transmute::<usize, ClockGettime>(function) })
}

/// Returns `None`: there is no 64-bit vDSO.
#[cfg(not(target_pointer_width = "64"))]
pub(crate) fn clock_gettime() -> Option<ClockGettime> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::print_stdout, reason = "a skipped test says why")]
    fn found_function_returns_the_time() {
        let Some(function) = clock_gettime() else {
            println!("skipped: this kernel maps no vDSO");
            return;
        };
        let read = || {
            let mut time = libc::timespec {
                tv_sec: -1,
                tv_nsec: -1,
            };
            // SAFETY: `time` is valid for writing.
            let result = unsafe { function(libc::CLOCK_MONOTONIC, &raw mut time) };
            assert_eq!(result, 0);
            (time.tv_sec, time.tv_nsec)
        };
        let (before, theirs, after) = (read(), std::time::Instant::now(), read());
        assert!(
            before < after && before.0 >= 0,
            "{before:?} {theirs:?} {after:?}"
        );
    }

    #[test]
    fn does_not_find_an_unknown_name() {
        // SAFETY: no pointers.
        let start = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
        if start != 0 {
            let image = Image { start, size: 4096 };
            assert_eq!(image.find(c"__vdso_nothing"), None);
        }
    }
}
