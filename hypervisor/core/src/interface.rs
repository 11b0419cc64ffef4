// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the Linux driver, the monitor and the root's programs share: the header at the start of the
//! hypervisor's memory, the hypercalls, and the status pages that the root may read.
//!
//! `kernel/rampart/interface.h` says the same in C; `tests/interface.rs` compares every constant and
//! offset. Everything is little-endian. A change of anything here is a new [`REVISION`].
//!
//! The hypervisor's memory, from its physical base, which is aligned to [`MEMORY_ALIGNMENT`]:
//!
//! ```text
//! 0                      the image, which begins with the Header; then its zeroed data (core_bytes)
//! core_bytes             cpu_count times per_cpu_bytes
//! configuration          the system's configuration (format.rs), copied there by the driver
//! status                 STATUS_BYTES, which the root may read after the launch; page-aligned
//! status + STATUS_BYTES  pages for translation tables, up to memory_bytes
//! ```
//!
//! **Launch.** The driver fills the header, cleans the memory to the point of coherency and makes
//! CPUs execute Linux's stub call `HVC_SOFT_RESTART` with the physical address of the entry, and as
//! its three arguments: the header's physical address, the CPU's index in `mpidrs`, the step:
//! [`LAUNCH_PREPARE`] on one CPU, which checks and makes everything, and after its success
//! [`LAUNCH_ENTER`] on all of them at the same time. The entry runs at EL2 with the MMU off; ELR_EL2
//! and SPSR_EL2 are those of the `hvc`, and VBAR_EL2 is Linux's stub. It returns to the instruction
//! after the `hvc` with an [`Outcome`] in x0 (registers x0 to x17 are lost). All CPUs get the same one
//! from the second step; where it is not 0, and always after the first step, all have their stub back.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};

use num_enum::{IntoPrimitive, TryFromPrimitive};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Of everything in this module and in [`crate::format`].
pub const REVISION: u32 = 1;
/// The first eight bytes of the image.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAMPART\0");
/// The first eight bytes of the status pages.
pub const STATUS_MAGIC: u64 = u64::from_le_bytes(*b"RMPSTAT\0");

/// Of the hypervisor's memory, in bytes: one block of the translation tables' second level.
pub const MEMORY_ALIGNMENT: u64 = 2 << 20;
/// The granule of all translation, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// The most CPUs of a machine.
pub const MAXIMUM_CPUS: usize = 32;
/// The most cells at once, the root among them as number 0.
pub const MAXIMUM_CELLS: usize = 16;
/// The cell that Linux is in.
pub const ROOT: u32 = 0;
/// In place of a cell's number: none.
pub const NO_CELL: u32 = u32::MAX;
/// The failures that the status pages keep.
pub const FAILURE_SLOTS: usize = 16;
/// The exits that are counted apart; not all are in use.
pub const EXIT_SLOTS: usize = 30;
/// Of the hypervisor's own log.
pub const LOG_BYTES: usize = 8192;
/// Of the status pages.
pub const STATUS_BYTES: usize = 0x6000;

/// The step of the launch that all CPUs do at the same time.
pub const LAUNCH_ENTER: u64 = 0;
/// The step before it, on one CPU alone.
pub const LAUNCH_PREPARE: u64 = 1;

/// The start of the image and of the hypervisor's memory. All places are bytes from there.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    // What the image says.
    /// [`MAGIC`].
    pub magic: u64,
    /// [`REVISION`] that the image was built with.
    pub revision: u32,
    /// Size of this structure.
    pub header_bytes: u32,
    /// What the driver copies: the whole file.
    pub image_bytes: u64,
    /// What the image needs, its zeroed data included; a multiple of the page.
    pub core_bytes: u64,
    /// What each CPU needs after that; a multiple of the page.
    pub per_cpu_bytes: u64,
    /// The entry from Linux's stub.
    pub entry: u64,

    // What the driver says.
    /// Where the hypervisor's memory begins, physically.
    pub physical_base: u64,
    /// Its size, a multiple of [`MEMORY_ALIGNMENT`].
    pub memory_bytes: u64,
    /// Where the system's configuration lies.
    pub configuration: u64,
    /// Its size.
    pub configuration_bytes: u64,
    /// Where [`Status`] lies.
    pub status: u64,
    /// How many CPUs will enter, and how many of `mpidrs` are meant.
    pub cpu_count: u32,
    /// How long the CPUs wait for each other, in microseconds.
    pub rendezvous_microseconds: u32,
    /// MPIDR_EL1 of each CPU, only its affinity fields.
    pub mpidrs: [u64; MAXIMUM_CPUS],
}

/// The function in x0 of `hvc #0`, by the SMC calling convention (Arm DEN 0028): fast 64-bit calls of
/// the vendor-specific hypervisor service, arguments from x1. x0 becomes 0 or an [`Outcome`], x1 to
/// x3 the results that are named, the rest is kept. All but the last four are the root's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Hypercall {
    /// Gives EL2 back: every CPU of the root calls it, each returns when all have. No cell may exist.
    Disable = 0xC600_5200,
    /// x1: physical address of a cell's configuration, x2: its size. Results: x1 the cell's number.
    /// After [`Outcome::Refused`] x1 is a [`crate::format::Refusal`], x2 the index of the entry that
    /// is meant, x3 the cell that it clashes with, or [`NO_CELL`].
    /// Its CPUs must have left Linux (PSCI CPU_OFF), its memory is the root's no more.
    CellCreate = 0xC600_5201,
    /// x1: cell. Its loadable memory is shown to the root, which fills it; its CPUs are stopped.
    CellLoadable = 0xC600_5202,
    /// x1: cell. The loadable memory is its own again, and its first CPU starts at its entry.
    CellStart = 0xC600_5203,
    /// x1: cell. Its CPUs are parked. Its memory stays as it is, for another look or start.
    CellStop = 0xC600_5204,
    /// x1: cell. Wiped, and all that it had is the root's again.
    CellDestroy = 0xC600_5205,
    /// x1: index of a CPU in the header, for a cell only its own. Results: x1 the cell that has it,
    /// x2 its [`CpuPower`], x3 all its exits.
    CpuInfo = 0xC600_5210,
    /// x1: index of a CPU, for a cell only its own; x2: an [`Exit`]. Results: x1 how many.
    CpuExits = 0xC600_5211,
    /// x1: index in the caller's list of doorbells. Makes the interrupt pending that it names.
    Doorbell = 0xC600_5212,
    /// The caller is alive: its watchdog begins anew.
    WatchdogKick = 0xC600_5213,
    /// Results: x1 [`REVISION`], x2 the caller's cell.
    Interface = 0xC600_5214,
}

/// What x0 is after a hypercall or the launch, as a signed 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(i64)]
pub enum Outcome {
    /// Done.
    Success = 0,
    /// No such function: the SMC calling convention's own number.
    NotSupported = -1,
    /// Not this caller's to do.
    NotPermitted = -2,
    /// An argument is out of its range.
    Invalid = -3,
    /// Another CPU is at work on it; to be tried again.
    Busy = -4,
    /// No page for tables, or no number for a cell, is left.
    Exhausted = -5,
    /// Not in the cell's present [`CellState`].
    WrongState = -6,
    /// No cell has this number.
    NoSuchCell = -7,
    /// A CPU did not come in time.
    TimedOut = -8,
    /// The configuration is refused, for the reason in x1.
    Refused = -9,
    /// The image, the header or the configuration is of another [`REVISION`].
    WrongRevision = -10,
    /// A CPU of the cell is still running in the root.
    CpuInUse = -11,
    /// This machine lacks something: GICv3, a translation regime, an address size.
    Unsuitable = -12,
}

/// What a cell is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum CellState {
    /// No cell has this number.
    Free = 0,
    /// It has its parts, which were wiped, and runs nothing.
    Created = 1,
    /// The root sees its loadable memory.
    Loadable = 2,
    /// Its CPUs run, or were turned off by the cell itself.
    Running = 3,
    /// It was stopped by the root, or stopped itself.
    Stopped = 4,
    /// It did what it may not, or fell silent; a [`Failure`] says what.
    Failed = 5,
}

/// Why a cell no longer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum StopReason {
    /// It runs, or never did.
    None = 0,
    /// The root stopped it.
    ByRoot = 1,
    /// PSCI SYSTEM_OFF.
    SystemOff = 2,
    /// PSCI SYSTEM_RESET.
    SystemReset = 3,
    /// Reading where it has no memory.
    MemoryRead = 16,
    /// Writing where it has no memory, or none to write.
    MemoryWrite = 17,
    /// Executing where it has no memory, or none to execute.
    MemoryExecute = 18,
    /// Its own translation tables lie where it has no memory.
    TranslationTable = 19,
    /// A register of a device, or bits of it, of which it owns none.
    DeviceForbidden = 21,
    /// A system register that it may not use.
    SystemRegister = 22,
    /// Cache maintenance by set and way, which would reach other cells' lines.
    SetWay = 23,
    /// An external abort or SError.
    ExternalAbort = 24,
    /// An exception of a class that has no handler.
    Unexpected = 25,
    /// Its watchdog was not kicked in time.
    Watchdog = 26,
    /// A CPU of it could not be taken back in time.
    Unreachable = 27,
    /// The hypervisor itself faulted on a CPU of it.
    Hypervisor = 28,
}

/// What a CPU is in, as PSCI AFFINITY_INFO counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum CpuPower {
    /// It runs its cell.
    On = 0,
    /// It is parked in the hypervisor until it is turned on.
    Off = 1,
    /// It was told to turn on and has not begun yet.
    OnPending = 2,
}

/// Why a CPU came from its cell into the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Exit {
    /// An interrupt taken at EL2 (IRQ).
    Interrupt = 0,
    /// The management interrupt taken at EL2 (FIQ).
    Management = 1,
    /// An abort because the cell's memory was taken away to get the CPU.
    Zapped = 2,
    /// WFI or WFE.
    Wait = 3,
    /// A hypercall.
    Hypercall = 4,
    /// A PSCI call.
    Psci = 5,
    /// Another SMC that was allowed and forwarded.
    SmcForwarded = 6,
    /// Another SMC, answered with NOT_SUPPORTED.
    SmcRefused = 7,
    /// A write that sends software-generated interrupts.
    SoftwareInterrupt = 8,
    /// The interrupt priority mask, control, deactivation or running priority.
    InterruptControl = 9,
    /// Another system register.
    SystemRegister = 10,
    /// Cache maintenance by set and way.
    SetWay = 11,
    /// A register of the interrupt distributor.
    Distributor = 12,
    /// A register of a redistributor.
    Redistributor = 13,
    /// A device register shared by bits.
    DeviceBits = 14,
    /// Another data abort.
    DataAbort = 15,
    /// Another instruction abort.
    InstructionAbort = 16,
    /// An SError.
    SError = 17,
    /// Anything else.
    Other = 18,
}

/// What the root may read of the hypervisor. Each field has one writer; all are single stores.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Status {
    /// [`STATUS_MAGIC`], written last at the launch.
    pub magic: AtomicU64,
    /// [`REVISION`].
    pub revision: AtomicU32,
    /// How many of `cpus` are meant.
    pub cpu_count: AtomicU32,
    /// Grows with each change of a cell's state: who waits for one looks here.
    pub changes: AtomicU64,
    /// Failures ever recorded; number n lies in slot n % FAILURE_SLOTS, from 0.
    pub failures: AtomicU64,
    /// Bytes ever logged; number n lies at n % LOG_BYTES.
    pub logged: AtomicU64,
    /// Why the launch refused the system's configuration ([`crate::format::Refusal`]).
    pub refusal: AtomicU64,
    /// Which entry of its table that means, from 0.
    pub refused_entry: AtomicU64,
    /// 0.
    pub reserved: AtomicU64,
    /// By the cell's number.
    pub cells: [CellStatus; MAXIMUM_CELLS],
    /// By the index in the header.
    pub cpus: [CpuStatus; MAXIMUM_CPUS],
    /// The latest.
    pub failure: [Failure; FAILURE_SLOTS],
    /// The hypervisor's messages, in lines.
    pub log: [AtomicU8; LOG_BYTES],
}

/// One cell.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct CellStatus {
    /// [`CellState`].
    pub state: AtomicU32,
    /// [`StopReason`].
    pub stop_reason: AtomicU32,
    /// Its name, filled up with zeros.
    pub name: [AtomicU64; 4],
    /// Its CPUs, a bit for each index in the header.
    pub cpus: AtomicU64,
    /// How often it was started since it was created.
    pub starts: AtomicU64,
    /// One more than the number of its latest failure, 0 for none.
    pub failure: AtomicU64,
    /// CNTPCT_EL0 of the latest change of its state.
    pub changed: AtomicU64,
    /// CNTPCT_EL0 of the latest sign of life that its watchdog asks for.
    pub kicked: AtomicU64,
    /// The longest silence that its watchdog allows, in ticks of CNTPCT_EL0; 0 for no watchdog.
    pub silence: AtomicU64,
    /// 0.
    pub reserved: [AtomicU64; 5],
}

/// One CPU.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct CpuStatus {
    /// Its affinity, as in the header.
    pub mpidr: AtomicU64,
    /// The cell that has it.
    pub cell: AtomicU32,
    /// [`CpuPower`].
    pub power: AtomicU32,
    /// By [`Exit`]; from 0 each time another cell gets the CPU.
    pub exits: [AtomicU64; EXIT_SLOTS],
}

/// What a failing CPU was doing. Read `sequence`, the rest, and `sequence` again: only where both are
/// the number that is looked for, plus one, is the record whole.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Failure {
    /// Its number plus one; 0 while it is written.
    pub sequence: AtomicU64,
    /// CNTPCT_EL0.
    pub time: AtomicU64,
    /// The cell.
    pub cell: AtomicU32,
    /// Index of the CPU.
    pub cpu: AtomicU32,
    /// [`StopReason`].
    pub reason: AtomicU32,
    /// 0.
    pub reserved: AtomicU32,
    /// ESR_EL2.
    pub syndrome: AtomicU64,
    /// FAR_EL2.
    pub virtual_address: AtomicU64,
    /// The address that the cell meant, from HPFAR_EL2.
    pub guest_address: AtomicU64,
    /// ELR_EL2.
    pub program_counter: AtomicU64,
    /// SPSR_EL2.
    pub processor_state: AtomicU64,
    /// x0 to x30.
    pub registers: [AtomicU64; 31],
}

const _: () = assert!(size_of::<Status>() <= STATUS_BYTES);
const _: () = assert!(STATUS_BYTES.is_multiple_of(PAGE_BYTES as usize));
const _: () = assert!((Exit::Other as usize) < EXIT_SLOTS);
