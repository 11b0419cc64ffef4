// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables, commands and events of an SMMUv3. Section numbers are those of the System MMU architecture specification,
//! SMMUv3 (Arm IHI 0070).
//!
//! The hypervisor has the SMMU alone. Each stream is in one of three states:
//!
//! ```text
//!         create            start            stop, destroy, end of the cell's last start
//!  root ----------> no one ---------> cell ----------------------------------------------> no one
//! ```
//!
//! The root's and a cell's streams are translated by the stage 2 of their owner, with the owner's number as
//! VMID. The stream of a cell that has run stays without an owner until the hypervisor ends: the device may still do
//! what the cell has ordered.

use crate::format::StreamGrant;

/// Size of the registers: two pages of 64 KiB (6.1).
pub const REGISTER_BYTES: u64 = 0x2_0000;
/// Maximum number of bits of a StreamID, so that the table of streams has at most 8 MiB.
pub const MAXIMUM_STREAM_BITS: u32 = 17;
/// Number of words of a stream table entry (5.2).
pub const ENTRY_WORDS: usize = 8;
/// Number of commands in the queue, and of events, as a power of two: a page, and two.
pub const COMMAND_BITS: u32 = 8;
/// See [`COMMAND_BITS`].
pub const EVENT_BITS: u32 = 8;

/// Offsets of registers (6.3).
pub mod register {
    /// SMMU_IDR0.
    pub const IDR0: u64 = 0x0;
    /// SMMU_IDR1.
    pub const IDR1: u64 = 0x4;
    /// SMMU_IDR5.
    pub const IDR5: u64 = 0x14;
    /// SMMU_CR0.
    pub const CR0: u64 = 0x20;
    /// SMMU_CR0ACK.
    pub const CR0ACK: u64 = 0x24;
    /// SMMU_CR1.
    pub const CR1: u64 = 0x28;
    /// SMMU_CR2.
    pub const CR2: u64 = 0x2c;
    /// SMMU_IRQ_CTRL.
    pub const IRQ_CTRL: u64 = 0x50;
    /// SMMU_GERROR.
    pub const GERROR: u64 = 0x60;
    /// SMMU_GERRORN.
    pub const GERRORN: u64 = 0x64;
    /// SMMU_STRTAB_BASE, 64 bits.
    pub const STRTAB_BASE: u64 = 0x80;
    /// SMMU_STRTAB_BASE_CFG.
    pub const STRTAB_BASE_CFG: u64 = 0x88;
    /// SMMU_CMDQ_BASE, 64 bits.
    pub const CMDQ_BASE: u64 = 0x90;
    /// SMMU_CMDQ_PROD.
    pub const CMDQ_PROD: u64 = 0x98;
    /// SMMU_CMDQ_CONS.
    pub const CMDQ_CONS: u64 = 0x9c;
    /// SMMU_EVENTQ_BASE, 64 bits.
    pub const EVENTQ_BASE: u64 = 0xa0;
    /// SMMU_EVENTQ_PROD, in the second page.
    pub const EVENTQ_PROD: u64 = 0x1_00a8;
    /// SMMU_EVENTQ_CONS, in the second page.
    pub const EVENTQ_CONS: u64 = 0x1_00ac;
}

/// Values of registers.
pub mod value {
    use super::{COMMAND_BITS, EVENT_BITS};

    /// SMMU_CR0 (6.3.9).
    pub const SMMU_ENABLE: u32 = 1 << 0;
    /// See [`SMMU_ENABLE`].
    pub const EVENTS_ENABLE: u32 = 1 << 2;
    /// See [`SMMU_ENABLE`].
    pub const COMMANDS_ENABLE: u32 = 1 << 3;
    /// ATSCHK: a device that claims to have translated an address itself is checked against its stream.
    pub const CHECK_TRANSLATED: u32 = 1 << 4;
    /// SMMU_CR1 (6.3.11): tables and queues are in inner-shareable write-back memory.
    pub const CACHED: u32 = 0b11_01_01 << 6 | 0b11_01_01;
    /// SMMU_CR2 (6.3.12): RECINVSID, PTM. Streams beyond the table are reported; the hypervisor itself
    /// invalidates.
    pub const RECORD_INVALID: u32 = 1 << 1 | 1 << 2;
    /// SMMU_CMDQ_BASE and SMMU_EVENTQ_BASE (6.3.26): the hints to allocate, and the size.
    pub const COMMANDS: u64 = 1 << 62 | COMMAND_BITS as u64;
    /// See [`COMMANDS`].
    pub const EVENTS: u64 = 1 << 62 | EVENT_BITS as u64;
    /// SMMU_EVENTQ_PROD.OVFLG, SMMU_EVENTQ_CONS.OVACKFLG.
    pub const OVERFLOW: u32 = 1 << 31;
    /// SMMU_GERROR.CMDQ_ERR.
    pub const COMMAND_ERROR: u32 = 1;
}

/// What makes an SMMU unsuitable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Obstacle {
    /// Someone else has enabled it or its queues.
    InUse = 0,
    /// No stage 2 of AArch64 (SMMU_IDR0.S2P, .TTF).
    NoStage2 = 1,
    /// Its accesses to tables and queues are not coherent (SMMU_IDR0.COHACC).
    NotCoherent = 2,
    /// Big-endian tables only (SMMU_IDR0.TTENDIAN).
    BigEndian = 3,
    /// Tables or queues have fixed addresses (SMMU_IDR1).
    FixedAddresses = 4,
    /// Fewer streams than the configuration has, or queues that are too small (SMMU_IDR1).
    TooFewStreams = 5,
    /// No 4 KiB tables (SMMU_IDR5.GRAN4K).
    NoGranule = 6,
    /// Fewer address bits than the stage 2 of the CPUs (SMMU_IDR5.OAS).
    TooFewAddressBits = 7,
    /// It has not responded in time.
    NotResponding = 8,
}

/// The registers by which an SMMU is judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Identification {
    /// SMMU_IDR0.
    pub idr0: u32,
    /// SMMU_IDR1.
    pub idr1: u32,
    /// SMMU_IDR5.
    pub idr5: u32,
    /// SMMU_CR0.
    pub control: u32,
}

impl Identification {
    /// Returns the first obstacle to use the SMMU, for this number of bits of StreamIDs and of guest addresses.
    ///
    /// # Errors
    /// The obstacle.
    pub fn check(&self, stream_bits: u32, address_bits: u32) -> Result<(), Obstacle> {
        let Self { idr0, idr1, idr5, control } = *self;
        let queues = (idr1 >> 21 & 0x1f).min(idr1 >> 16 & 0x1f);
        for (holds, obstacle) in [
            (control & 0xf == 0, Obstacle::InUse),
            (idr0 & 1 != 0 && idr0 >> 2 & 2 != 0, Obstacle::NoStage2),
            (idr0 & 1 << 4 != 0, Obstacle::NotCoherent),
            (idr0 >> 21 & 3 != 3, Obstacle::BigEndian),
            (idr1 >> 29 & 3 == 0, Obstacle::FixedAddresses),
            (
                idr1 & 0x3f >= stream_bits && queues >= COMMAND_BITS.max(EVENT_BITS),
                Obstacle::TooFewStreams,
            ),
            (idr5 & 1 << 4 != 0, Obstacle::NoGranule),
            (self.address_bits() >= address_bits, Obstacle::TooFewAddressBits),
        ] {
            if !holds {
                return Err(obstacle);
            }
        }
        Ok(())
    }

    /// Returns SMMU_CR0 for the running SMMU; ATSCHK exists only with ATS (SMMU_IDR0).
    pub const fn control_when_enabled(&self) -> u32 {
        let checked = if self.idr0 & 1 << 10 != 0 { value::CHECK_TRANSLATED } else { 0 };
        value::SMMU_ENABLE | value::EVENTS_ENABLE | value::COMMANDS_ENABLE | checked
    }

    /// Returns the number of output address bits (SMMU_IDR5.OAS, 6.3.6), at most 48.
    const fn address_bits(&self) -> u32 {
        match self.idr5 & 7 {
            0 => 32,
            1 => 36,
            2 => 40,
            3 => 42,
            4 => 44,
            _ => 48,
        }
    }

    /// Returns S2PS for the output address bits (5.2).
    const fn physical_size(&self) -> u64 {
        let size = self.idr5 as u64 & 7;
        if size > 5 { 5 } else { size }
    }
}

/// Returns the number of bits of a table with all these streams.
pub fn stream_bits(streams: &[StreamGrant]) -> u32 {
    let end = streams.iter().map(|grant| grant.first + grant.count).max().unwrap_or(1);
    end.next_power_of_two().trailing_zeros()
}

/// Returns SMMU_STRTAB_BASE_CFG (6.3.25): a linear table.
pub const fn table_shape(stream_bits: u32) -> u32 {
    stream_bits
}

/// The entry of a stream without an owner (5.2): its DMA ends with an abort and the event C_BAD_STE.
pub const NO_OWNER: [u64; ENTRY_WORDS] = [0; ENTRY_WORDS];

/// Returns the entry of a stream that is translated by this stage 2 (5.2): 4 KiB tables in inner-shareable write-back
/// memory from level 1, as for the CPUs. Memory attributes and privilege are those of the device. Faults are
/// recorded and never stall; ATS is refused (EATS is 0).
pub fn translated(
    identification: &Identification,
    root_table: u64,
    cell: u32,
    address_bits: u32,
) -> [u64; ENTRY_WORDS] {
    const VALID: u64 = 1;
    /// Config: stage 1 bypassed, stage 2 translates.
    const STAGE_2: u64 = 0b110 << 1;
    /// SHCFG: the shareability of the device.
    const INCOMING: u64 = 1 << 44;
    const LEVEL_1: u64 = 1 << 38;
    const WRITE_BACK: u64 = 1 << 40 | 1 << 42 | 3 << 44;
    const AARCH64: u64 = 1 << 51;
    const ACCESS_FLAG_DISABLED: u64 = 1 << 53;
    const RECORDED: u64 = 1 << 58;
    let shape = u64::from(cell)
        | u64::from(64 - address_bits) << 32
        | LEVEL_1
        | WRITE_BACK
        | identification.physical_size() << 48
        | AARCH64
        | ACCESS_FLAG_DISABLED
        | RECORDED;
    [VALID | STAGE_2, INCOMING, shape, root_table & 0x000f_ffff_ffff_fff0, 0, 0, 0, 0]
}

/// A command (4.1).
pub type Command = [u64; 2];

/// CMD_CFGI_ALL: forgets all stream table entries (4.3.2).
pub const FORGET_ENTRIES: Command = [0x04, 31];
/// CMD_TLBI_NSNH_ALL: forgets all translations of EL1 and of stage 2 (4.4.3).
pub const FORGET_TRANSLATIONS: Command = [0x30, 0];
/// CMD_SYNC: completes when the earlier commands have, and the DMA that they affect (4.6.3). No signal.
pub const SYNCHRONISE: Command = [0x46, 0];

/// CMD_CFGI_STE (4.3.1): forgets the entry of a stream.
pub const fn forget_entry(stream: u32) -> Command {
    [0x03 | (stream as u64) << 32, 1]
}

/// CMD_TLBI_S12_VMALL (4.4.3): forgets the translations of a cell.
pub const fn forget_translations_of(cell: u32) -> Command {
    [0x28 | (cell as u64 & 0xffff) << 32, 0]
}

/// A position in a queue of `1 << bits` entries: an index and a bit that changes with each round (3.5).
pub const fn next(position: u32, bits: u32) -> u32 {
    (position + 1) & ((2 << bits) - 1)
}

/// Returns the index of a position.
pub const fn index(position: u32, bits: u32) -> usize {
    (position & ((1 << bits) - 1)) as usize
}

/// A record of the event queue (7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The number of the event.
    pub number: u32,
    /// The StreamID.
    pub stream: u32,
    /// The address of the device's access; 0 for events without one.
    pub address: u64,
    /// Whether it was a read; only for events with an address.
    pub read: bool,
}

impl Event {
    /// Reads the four words of a record.
    pub const fn read(words: &[u64; 4]) -> Self {
        let number = words[0] as u32 & 0xff;
        // F_TRANSLATION, F_ADDR_SIZE, F_ACCESS, F_PERMISSION (7.3.12 to 7.3.15).
        let has_address = matches!(number, 0x10..=0x13);
        Self {
            number,
            stream: (words[0] >> 32) as u32,
            address: if has_address { words[2] } else { 0 },
            read: has_address && words[1] >> 35 & 1 != 0,
        }
    }
}
