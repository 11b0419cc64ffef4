// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of each refusal, for programs of the root. The hypervisor itself returns numbers.

use core::fmt;

use super::Refused;
use crate::format::Refusal;
use crate::interface::NO_CELL;

impl Refusal {
    /// Returns the reason as a clause, to be printed after "entry N of its table" or similar.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Truncated => "the configuration is shorter than its header states",
            Self::TooLong => "the configuration is longer than its header states or than 32 KiB",
            Self::WrongMagic => "the magic number is not that of a configuration of this kind",
            Self::WrongRevision => "the configuration's revision is not the hypervisor's",
            Self::TooManyEntries => "a table has too many entries",
            Self::ReservedNotZero => "a reserved field or flag is not 0",
            Self::BadName => {
                "the name is empty, in use, or has characters other than letters, digits, - _ ."
            }
            Self::NoCpu => "the configuration has no CPU, and is not that of a standby",
            Self::CpuTwice => "the CPU is listed twice",
            Self::CpuUnknown => "the machine has no such CPU",
            Self::CpuOwned => "the CPU belongs to another cell, or is the last CPU of the root",
            Self::MemoryUnaligned => {
                "the region is not a whole number of 4 KiB pages, or with colours of 128 KiB"
            }
            Self::MemoryRange => "the region is empty or exceeds the address space",
            Self::MemoryFlags => {
                "the region's flags contradict each other or those of the root's region"
            }
            Self::MemoryOverlapsGuest => "the region overlaps another region at its guest address",
            Self::MemoryOverlapsPhysical => {
                "the region overlaps another region at its physical address"
            }
            Self::MemoryNotRoot => "the region is not entirely memory of the root",
            Self::MemoryOwned => "the region belongs to another cell",
            Self::MemoryReserved => {
                "the region belongs to the hypervisor or the interrupt controller"
            }
            Self::MemoryTwoWriters => "the shared region has two writers",
            Self::EntryOutside => "the entry point is not in an executable, loadable region",
            Self::InterruptRange => "the machine has no such shared peripheral interrupt",
            Self::InterruptTwice => "the interrupt is listed twice",
            Self::InterruptOwned => "the interrupt belongs to another cell or to the hypervisor",
            Self::RegisterShape => "the register's width, alignment or bits are invalid",
            Self::RegisterOrder => "the registers overlap or are not in ascending order",
            Self::RegisterBitsOwned => "bits of the register belong to another cell",
            Self::RegisterDiffers => {
                "another cell has the register with a different width or behaviour"
            }
            Self::RegisterLocation => {
                "the register is not in a device page that the root can share"
            }
            Self::SmcRange => {
                "the range of SMC functions is empty, or has standard services or functions of the root"
            }
            Self::DoorbellRange => "the doorbell is not a shared peripheral interrupt",
            Self::TooManyShared => "the hypervisor has no space for more shared registers",
            Self::PlatformShape => "the interrupt controller's frames are unaligned or overlap",
            Self::StreamRange => "the root has no such stream of an SMMU or PCI function",
            Self::StreamOwned => "the stream or the PCI function belongs to another cell",
            Self::SmmuUnsuitable => {
                "the SMMU is in use, or lacks stage 2, coherent tables, streams or address bits"
            }
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
