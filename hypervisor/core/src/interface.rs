// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface between Linux driver, monitor and programs of the root: the header at the start of the
//! hypervisor's memory, the hypercalls, and the status pages that the root may read.
//!
//! `kernel/rampart/interface.h` is the C version; `tests/interface.rs` compares every constant and
//! offset. Everything is little-endian. Every change here needs a new [`REVISION`].
//!
//! Layout of the hypervisor's memory, from its physical base, which is aligned to [`MEMORY_ALIGNMENT`]:
//!
//! ```text
//! 0                      the image, which starts with the Header; then its zeroed data (core_bytes)
//! core_bytes             cpu_count times per_cpu_bytes
//! configuration          the system's configuration (format.rs), copied by the driver
//! status                 STATUS_BYTES, readable by the root after the launch; page-aligned
//! status + STATUS_BYTES  pages for translation tables, up to memory_bytes
//! ```
//!
//! **Launch.** The driver fills in the header, cleans the memory to the point of coherency and calls
//! Linux's stub with `HVC_SOFT_RESTART`. The arguments are the physical address of the entry, the
//! header's physical address, the CPU's index in `mpidrs`, and the step: [`LAUNCH_PREPARE`] on one CPU,
//! which checks and prepares everything, and if that succeeds [`LAUNCH_ENTER`] on all CPUs at the same
//! time. The entry runs at EL2 with the MMU off; ELR_EL2 and SPSR_EL2 are those of the `hvc`, and
//! VBAR_EL2 is Linux's stub. It returns to the instruction after the `hvc` with an [`Outcome`] in x0
//! (registers x0 to x17 are lost). The second step returns the same outcome on all CPUs. After the first
//! step, and after a failed second step, Linux's stub is restored on all CPUs.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use num_enum::{IntoPrimitive, TryFromPrimitive};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use crate::dma::DmaFault;

/// Revision of this module and of [`crate::format`].
pub const REVISION: u32 = 7;
/// The first eight bytes of the image.
pub const MAGIC: u64 = u64::from_le_bytes(*b"RAMPART\0");
/// The first eight bytes of the status pages.
pub const STATUS_MAGIC: u64 = u64::from_le_bytes(*b"RMPSTAT\0");

/// Alignment of the hypervisor's memory, in bytes: one block of the second level of translation tables.
pub const MEMORY_ALIGNMENT: u64 = 2 << 20;
/// The translation granule, in bytes.
pub const PAGE_BYTES: u64 = 4096;
/// Maximum number of CPUs of a machine.
pub const MAXIMUM_CPUS: usize = 32;
/// Maximum number of cells, including the root.
pub const MAXIMUM_CELLS: usize = 16;
/// The number of the root, the cell that runs Linux and manages the others.
pub const ROOT: u32 = 0;
/// No cell, instead of a cell's number.
pub const NO_CELL: u32 = u32::MAX;
/// Number of failure records in the status pages.
pub const FAILURE_SLOTS: usize = 16;
/// Number of records of refused DMA in the status pages.
pub const DMA_FAULT_SLOTS: usize = 16;
/// Number of exit counters; not all are in use.
pub const EXIT_SLOTS: usize = 30;
/// Size of the hypervisor's log, in bytes.
pub const LOG_BYTES: usize = 8192;
/// Offset in the status pages of the configuration that [`Hypercall::Configuration`] has copied, in bytes.
pub const CONFIGURATION_COPY: usize = 0x6000;
/// Size of the status pages with that copy, in bytes.
pub const STATUS_BYTES: usize = 0xe000;

/// The second step of the launch, on all CPUs at the same time.
pub const LAUNCH_ENTER: u64 = 0;
/// The first step of the launch, on one CPU.
pub const LAUNCH_PREPARE: u64 = 1;
/// The first function of `smc #0` that rings a doorbell, as [`Hypercall::Doorbell`] does, if the configuration permits
/// the function: the index of the doorbell is added, for clients that pass no arguments (SCMI: Linux,
/// devicetree/bindings/firmware/arm,scmi.yaml, `arm,smc-id`).
pub const DOORBELL_BY_SMC: u32 = 0xC600_5280;

/// The start of the image and of the hypervisor's memory. All offsets are in bytes from there.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    // Set by the image.
    /// [`MAGIC`].
    pub magic: u64,
    /// [`REVISION`] of the build.
    pub revision: u32,
    /// Size of this structure.
    pub header_bytes: u32,
    /// Size of the image file, which the driver copies.
    pub image_bytes: u64,
    /// Size of the image and its zeroed data; a multiple of the page size.
    pub core_bytes: u64,
    /// Size of each CPU's memory after that; a multiple of the page size.
    pub per_cpu_bytes: u64,
    /// Offset of the entry from Linux's stub.
    pub entry: u64,

    // Set by the driver.
    /// Physical start of the hypervisor's memory.
    pub physical_base: u64,
    /// Size of the hypervisor's memory, a multiple of [`MEMORY_ALIGNMENT`].
    pub memory_bytes: u64,
    /// Offset of the system's configuration.
    pub configuration: u64,
    /// Size of the system's configuration.
    pub configuration_bytes: u64,
    /// Offset of [`Status`].
    pub status: u64,
    /// Number of CPUs that enter, and of valid entries in `mpidrs`.
    pub cpu_count: u32,
    /// Timeout of the rendezvous of all CPUs, in microseconds.
    pub rendezvous_microseconds: u32,
    /// Affinity fields of MPIDR_EL1 of each CPU.
    pub mpidrs: [u64; MAXIMUM_CPUS],
}

/// The function in x0 of `hvc #0`, by the SMC calling convention (Arm DEN 0028): fast 64-bit calls of
/// the vendor-specific hypervisor service, arguments from x1. Returns an [`Outcome`] in x0 and the
/// documented results in x1 to x3; other registers keep their values. Cells other than the root may make
/// only the calls from [`Hypercall::CpuInfo`] on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Hypercall {
    /// Returns EL2 to Linux on the calling CPU. Every CPU of the root must call it. No cell may exist.
    Disable = 0xC600_5200,
    /// Creates a cell. x1: physical address of its configuration, x2: size. Result: x1 its number.
    /// After [`Outcome::Refused`] x1 is a [`crate::format::Refusal`], x2 the index of the refused
    /// entry, x3 the conflicting cell or [`NO_CELL`].
    /// Its CPUs must have left Linux (PSCI CPU_OFF). Its memory is unmapped from the root.
    CellCreate = 0xC600_5201,
    /// x1: cell. Parks its CPUs and maps its loadable memory for the root, to be written.
    CellLoadable = 0xC600_5202,
    /// x1: cell. Unmaps the loadable memory from the root and starts the first CPU at the entry.
    CellStart = 0xC600_5203,
    /// x1: cell. Parks its CPUs. Its memory keeps its contents.
    CellStop = 0xC600_5204,
    /// x1: cell. Wipes the cell and returns its resources to the root.
    CellDestroy = 0xC600_5205,
    /// x1: cell, also [`ROOT`]. Copies its configuration to [`CONFIGURATION_COPY`], for a kernel that did not create it.
    /// Results: x1 its size, x2 and x3 start and size of the hypervisor's memory.
    Configuration = 0xC600_5206,
    /// x1: index of a CPU in the header; for a cell only its own CPUs. Results: x1 the owner, x2 the
    /// [`CpuPower`], x3 the number of all exits.
    CpuInfo = 0xC600_5210,
    /// x1: index in the caller's list of doorbells. Sets the doorbell's interrupt pending.
    Doorbell = 0xC600_5212,
    /// Kicks the caller's watchdog.
    WatchdogKick = 0xC600_5213,
    /// Results: x1 [`REVISION`], x2 the caller's cell, x3 for the root the physical address of [`Status`].
    Interface = 0xC600_5214,
}

/// The outcome of a hypercall or of the launch in x0, as a signed 64-bit number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoPrimitive, TryFromPrimitive)]
#[repr(i64)]
pub enum Outcome {
    /// Success.
    Success = 0,
    /// Unknown function; the number is that of the SMC calling convention.
    NotSupported = -1,
    /// The caller may not make this call.
    NotPermitted = -2,
    /// An argument is out of range.
    Invalid = -3,
    /// Another CPU holds the lock; try again.
    Busy = -4,
    /// No page for tables, or no cell number, is left.
    Exhausted = -5,
    /// The call is invalid in the current [`CellState`].
    WrongState = -6,
    /// No cell has this number.
    NoSuchCell = -7,
    /// A CPU did not respond in time.
    TimedOut = -8,
    /// The configuration is refused; x1 has the reason.
    Refused = -9,
    /// Image, header or configuration has another [`REVISION`].
    WrongRevision = -10,
    /// A CPU of the cell still runs in the root.
    CpuInUse = -11,
    /// The machine lacks a requirement: the image's GIC, a translation granule, an address size.
    Unsuitable = -12,
    /// The hypervisor itself faulted during the call; its log has the registers.
    Faulted = -13,
}

/// The state of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum CellState {
    /// No cell has this number.
    Free = 0,
    /// The cell has its resources, which were wiped, and has not been started.
    Created = 1,
    /// The root can access its loadable memory.
    Loadable = 2,
    /// The cell's CPUs run, or were turned off by the cell itself.
    Running = 3,
    /// The cell was stopped by the root, or stopped itself.
    Stopped = 4,
    /// The cell made a forbidden access, or its watchdog expired; a [`Failure`] has the reason.
    Failed = 5,
}

/// The reason why a cell does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum StopReason {
    /// The cell runs, or has never been started.
    None = 0,
    /// Stopped by the root.
    ByRoot = 1,
    /// PSCI SYSTEM_OFF.
    SystemOff = 2,
    /// PSCI SYSTEM_RESET.
    SystemReset = 3,
    /// A read outside the cell's memory.
    MemoryRead = 16,
    /// A write outside the cell's memory, or to memory that is not writable.
    MemoryWrite = 17,
    /// Execution outside the cell's memory, or in memory that is not executable.
    MemoryExecute = 18,
    /// The cell's own translation tables are outside its memory.
    TranslationTable = 19,
    /// Access to a shared device register of which the cell owns no bits.
    DeviceForbidden = 21,
    /// Access to a forbidden system register.
    SystemRegister = 22,
    /// Cache maintenance by set and way, which would affect other cells' lines.
    SetWay = 23,
    /// An external abort or SError.
    ExternalAbort = 24,
    /// An exception of a class without a handler.
    Unexpected = 25,
    /// The cell's watchdog was not kicked in time.
    Watchdog = 26,
    /// A CPU of the cell could not be parked in time.
    Unreachable = 27,
    /// The hypervisor itself faulted on a CPU of the cell.
    Hypervisor = 28,
}

/// What a CPU does. The first three have the numbers of PSCI AFFINITY_INFO.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum CpuPower {
    /// The CPU runs its cell.
    On = 0,
    /// The CPU is parked in the hypervisor until it is turned on.
    Off = 1,
    /// Another CPU is turning the CPU on and sets its entry.
    OnPending = 2,
    /// The CPU is being turned on and does not run yet.
    Starting = 3,
    /// The CPU runs its cell and is ordered to park.
    Parking = 4,
    /// The CPU has left the hypervisor.
    Gone = 5,
}

/// The reason for an exit from a cell to the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoPrimitive, TryFromPrimitive)]
#[repr(u32)]
pub enum Exit {
    /// An interrupt taken at EL2 (IRQ).
    Interrupt = 0,
    /// The management interrupt taken at EL2 (FIQ).
    Management = 1,
    /// An abort because the cell's memory was unmapped to take the CPU.
    Zapped = 2,
    /// WFI or WFE.
    Wait = 3,
    /// A hypercall.
    Hypercall = 4,
    /// A PSCI call.
    Psci = 5,
    /// Another SMC, forwarded to the firmware or to a doorbell.
    SmcForwarded = 6,
    /// Another SMC, returned with NOT_SUPPORTED.
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

/// The status pages, readable by the root. Each field has one writer and is written by single stores.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Status {
    /// [`STATUS_MAGIC`], written last at the launch.
    pub magic: AtomicU64,
    /// [`REVISION`].
    pub revision: AtomicU32,
    /// Number of valid entries in `cpus`.
    pub cpu_count: AtomicU32,
    /// Increases with each change of a cell's state.
    pub changes: AtomicU64,
    /// Number of all failures; failure n is in slot n % FAILURE_SLOTS, from 0.
    pub failures: AtomicU64,
    /// Number of all logged bytes; byte n is at n % LOG_BYTES.
    pub logged: AtomicU64,
    /// The reason why the launch refused the system's configuration ([`crate::format::Refusal`]).
    pub refusal: AtomicU64,
    /// The refused entry of its table, from 0.
    pub refused_entry: AtomicU64,
    /// 0.
    pub reserved: AtomicU64,
    /// By the cell's number.
    pub cells: [CellStatus; MAXIMUM_CELLS],
    /// By the index in the header.
    pub cpus: [CpuStatus; MAXIMUM_CPUS],
    /// The latest failures.
    pub failure: [Failure; FAILURE_SLOTS],
    /// The hypervisor's log, in lines.
    pub log: [AtomicU8; LOG_BYTES],
    /// Number of all recorded DMA faults; fault n is in slot n % DMA_FAULT_SLOTS, from 0.
    pub dma_faults: AtomicU64,
    /// The latest refused accesses of devices.
    pub dma_fault: [DmaFault; DMA_FAULT_SLOTS],
}

/// Status of one cell. For the root (number 0) `starts` is the number of times that it was started again, `changed` the
/// time of the latest one, and the stop reason in `condition` what its last kernel called then.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct CellStatus {
    /// [`Condition`], in one word, so that no reader sees a state without its reason.
    pub condition: AtomicU64,
    /// Name, padded with zeros.
    pub name: [AtomicU64; 4],
    /// CPUs, one bit per index in the header.
    pub cpus: AtomicU64,
    /// Number of starts since it was created.
    pub starts: AtomicU64,
    /// CNTPCT_EL0 of the latest change of its state.
    pub changed: AtomicU64,
    /// CNTPCT_EL0 of the latest kick of its watchdog.
    pub kicked: AtomicU64,
    /// Watchdog timeout, in ticks of CNTPCT_EL0; 0 for no watchdog.
    pub watchdog_ticks: AtomicU64,
    /// 0.
    pub reserved: [AtomicU64; 6],
}

impl CellStatus {
    /// Returns the condition. Everything that was written before it was reached is visible. Sequentially
    /// consistent: a CPU that announces itself and then reads it is seen by one that changes it and then looks.
    #[must_use]
    pub fn condition(&self) -> Condition {
        Condition::from_word(self.condition.load(Ordering::SeqCst))
    }
}

/// What a cell does, why it does not run, and where its latest failure is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Bits 0 to 15; an unknown value is read as [`CellState::Free`].
    pub state: CellState,
    /// Bits 16 to 31; an unknown value is read as [`StopReason::None`].
    pub stop_reason: StopReason,
    /// Bits 32 to 63: one more than the number of the latest failure, modulo 2^32; 0 for none.
    pub failure: u32,
}

impl Condition {
    /// Reads the word of [`CellStatus::condition`].
    #[must_use]
    pub fn from_word(word: u64) -> Self {
        Self {
            state: CellState::try_from((word & 0xffff) as u32).unwrap_or(CellState::Free),
            stop_reason: StopReason::try_from((word >> 16 & 0xffff) as u32)
                .unwrap_or(StopReason::None),
            failure: (word >> 32) as u32,
        }
    }

    /// Returns the word of [`CellStatus::condition`].
    #[must_use]
    pub fn word(self) -> u64 {
        u64::from(u32::from(self.state))
            | u64::from(u32::from(self.stop_reason)) << 16
            | u64::from(self.failure) << 32
    }
}

/// Status of one CPU.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct CpuStatus {
    /// Affinity, as in the header.
    pub mpidr: AtomicU64,
    /// The cell that owns the CPU (bits 0 to 31) and its [`CpuPower`] (bits 32 to 63):
    /// [`crate::protocol::CpuState`].
    pub state: AtomicU64,
    /// Exits by [`Exit`]; reset when the CPU changes its owner.
    pub exits: [AtomicU64; EXIT_SLOTS],
}

/// State of a failing CPU. Read `sequence`, the rest, and `sequence` again: the record is consistent only
/// if both are the number of the failure plus one.
#[derive(Debug, FromBytes, IntoBytes, KnownLayout)]
#[repr(C)]
pub struct Failure {
    /// Number of the failure plus one; 0 while the record is written.
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
    /// The accessed guest address, from HPFAR_EL2.
    pub guest_address: AtomicU64,
    /// ELR_EL2.
    pub program_counter: AtomicU64,
    /// SPSR_EL2.
    pub processor_state: AtomicU64,
    /// x0 to x30.
    pub registers: [AtomicU64; 31],
}

const _: () = assert!(size_of::<Status>() <= CONFIGURATION_COPY);
const _: () = assert!(CONFIGURATION_COPY + crate::format::MAXIMUM_BLOB_BYTES <= STATUS_BYTES);
const _: () = assert!(STATUS_BYTES.is_multiple_of(PAGE_BYTES as usize));
const _: () = assert!((Exit::Other as usize) < EXIT_SLOTS);
