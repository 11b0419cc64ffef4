// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A range of physical memory, given on a command line and accessed through `/dev/mem`.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::atomic::AtomicU64;

use rampart_ring::mapping::SharedMapping;
use rustix::fs::{Mode, OFlags, open};

/// A range of physical memory. Both fields are in bytes and multiples of 4 KiB. Written as
/// `0x7fc00000+0x40000`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Start address.
    pub start: u64,
    /// Size.
    pub bytes: u64,
}

impl fmt::Display for MemoryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.start, self.bytes)
    }
}

impl FromStr for MemoryRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            let digits = text.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        };
        text.split_once('+')
            .and_then(|(start, bytes)| {
                let (start, bytes) = (number(start)?, number(bytes)?);
                start.checked_add(bytes)?;
                (start % 4096 == 0 && bytes % 4096 == 0 && bytes > 0)
                    .then_some(Self { start, bytes })
            })
            .ok_or_else(|| {
                format!("`{text}` is not a range of whole pages such as 0x7fc00000+0x40000")
            })
    }
}

impl MemoryRange {
    /// Maps the range until the process ends.
    pub(crate) fn map(&self, writable: bool) -> io::Result<&'static [AtomicU64]> {
        let bytes = usize::try_from(self.bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = if writable {
            OFlags::RDWR
        } else {
            OFlags::RDONLY
        };
        let memory = open(
            "/dev/mem",
            access | OFlags::SYNC | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        SharedMapping::new(memory, self.start, bytes, writable).map(SharedMapping::leak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_its_own_text() {
        let range = MemoryRange {
            start: 0x7fc0_0000,
            bytes: 0x4_0000,
        };
        assert_eq!(range.to_string().parse(), Ok(range));
        for invalid in [
            "",
            "0x1000",
            "0x1000+0",
            "0x1000+0x10",
            "0x10+0x1000",
            "1000+0x1000",
            "0xfffffffffffff000+0x2000",
        ] {
            let refused = invalid.parse::<MemoryRange>().expect_err(invalid);
            assert!(refused.contains(invalid), "{refused}");
        }
    }
}
