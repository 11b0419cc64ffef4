// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A refusal in words, for the programs of the root: the hypervisor itself says numbers.

use core::fmt;

use super::Refused;
use crate::format::Refusal;
use crate::interface::NO_CELL;

impl Refusal {
    /// What has to be otherwise, after "entry N of its table" or the like.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "the configuration is shorter than it says",
            Self::TooLong => "the configuration is longer than it says or than 32 KiB",
            Self::WrongMagic => "this is no configuration of this kind",
            Self::WrongRevision => "the configuration is of another revision",
            Self::TooManyEntries => "a table has more entries than it may have",
            Self::ReservedNotZero => "a reserved field or flag is not 0",
            Self::BadName => {
                "the name is empty, has other than letters, digits, - _ . or is in use"
            }
            Self::NoCpu => "there is no CPU",
            Self::CpuTwice => "the CPU is named twice",
            Self::CpuUnknown => "the machine has no such CPU",
            Self::CpuOwned => "the CPU is another cell's, or the last one of the root",
            Self::MemoryUnaligned => "the region is not in whole pages of 4 KiB",
            Self::MemoryRange => "the region is empty or beyond the address space",
            Self::MemoryFlags => "the region's flags contradict each other or those of the root's",
            Self::MemoryOverlapsGuest => "the region overlaps another one where the cell sees them",
            Self::MemoryOverlapsPhysical => "the region shows memory that another one shows",
            Self::MemoryNotRoot => "the region is not, or not in whole, memory of the root",
            Self::MemoryOwned => "the region is another cell's",
            Self::MemoryReserved => "the region is the hypervisor's or the interrupt controller's",
            Self::MemoryTwoWriters => "two may write the shared region",
            Self::EntryOutside => "the entry is not in an executable, loadable region",
            Self::InterruptRange => "the interrupt is no shared one that this machine has",
            Self::InterruptTwice => "the interrupt is named twice",
            Self::InterruptOwned => "the interrupt is another cell's or the hypervisor's",
            Self::RegisterShape => "the register's width, alignment or bits are impossible",
            Self::RegisterOrder => "the registers are not in ascending order or overlap",
            Self::RegisterBitsOwned => "bits of the register are another cell's",
            Self::RegisterDiffers => "another cell has the register with other width or behaviour",
            Self::RegisterLocation => "the register is in no device page that the root can share",
            Self::SmcRange => "the range of functions is empty or touches PSCI",
            Self::DoorbellRange => "the doorbell is no shared interrupt",
            Self::TooManyShared => "more registers are shared than the hypervisor has room for",
            Self::PlatformShape => "the interrupt controller's frames are unaligned or overlap",
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} (entry {}", self.refusal.text(), self.index)?;
        if self.other != NO_CELL {
            write!(formatter, ", cell {}", self.other)?;
        }
        formatter.write_str(")")
    }
}
