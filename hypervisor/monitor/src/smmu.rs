// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drives an SMMUv3, and filters the configuration space of PCI functions while a cell has one. The contents of tables,
//! commands and filters are in core.
//!
//! Everything here runs under the managers' lock, except [`enable`] and [`disable`], which run at the ends of the
//! hypervisor's life, and [`root_access`], which changes nothing. A wait has a limit; after one that ends without a
//! result nothing more is given to another owner ([`is_intact`]).

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64, fence};

use rampart_hypervisor_core::bus::{Access, Bus, Width};
use rampart_hypervisor_core::configuration::machine_checks::live as existing;
use rampart_hypervisor_core::configuration::{Configuration, Refused};
use rampart_hypervisor_core::format::{Iommu, MemoryFlags, Refusal, StreamGrant};
use rampart_hypervisor_core::interface::{
    DMA_FAULT_SLOTS, MAXIMUM_CELLS, NO_CELL, Outcome, PAGE_BYTES, ROOT,
};
use rampart_hypervisor_core::pci::{self, Filtered};
use rampart_hypervisor_core::smmu::{
    self, COMMAND_BITS, Command, ENTRY_WORDS, EVENT_BITS, Event, Identification, Obstacle,
    register, value,
};
use rampart_hypervisor_core::stage2::{TableMemory, attributes};

use rampart_hypervisor_fast_path::Devices;
use spin::Once;

use crate::cells::live;
use crate::machine::Machine;
use crate::manager::{MANAGER, Manager, Shared};
use crate::registers::{instruction, now, wait_until};
use crate::root;
use crate::stage1::{Mapping, Usage};
use crate::stage2_memory::Tables;

type Done = Result<(), Outcome>;

/// Timeout for the SMMU to confirm a command or a change of its state. The DMA in progress ends before.
const SMMU_MICROSECONDS: u64 = 100_000;
/// Maximum number of events that are read in one call.
const MOST_EVENTS: usize = 64;

/// The SMMU of this machine, and the memory that it reads.
#[derive(Debug)]
struct Smmu {
    registers: u64,
    table: u64,
    stream_bits: u32,
    commands: u64,
    events: u64,
    identification: Identification,
    address_bits: u32,
}

static SMMU: Once<Smmu> = Once::new();
/// Whether commands reach it.
static ENABLED: AtomicBool = AtomicBool::new(false);
/// Whether it did not confirm a command.
static BROKEN: AtomicBool = AtomicBool::new(false);

/// By cell: whether its streams were the root's when they were taken.
static WAS_OF_ROOT: [AtomicBool; MAXIMUM_CELLS] = [const { AtomicBool::new(false) }; MAXIMUM_CELLS];

impl Smmu {
    fn read(&self, register: u64) -> u32 {
        Devices.read(self.registers + register, Width::Word) as u32
    }

    fn write(&self, register: u64, value: u32) {
        Devices.write(self.registers + register, Width::Word, value.into());
    }

    fn write_double(&self, register: u64, value: u64) {
        Devices.write(self.registers + register, Width::Double, value);
    }

    /// Sets SMMU_CR0 and waits until it is effective (6.3.9).
    fn control(&self, value: u32) -> bool {
        self.write(register::CR0, value);
        wait_until(SMMU_MICROSECONDS, &mut || self.read(register::CR0ACK) == value)
    }

    /// Executes commands, and waits until they and the DMA that they affect are complete.
    fn execute(&self, commands: &[Command]) -> bool {
        let errors = self.read(register::GERROR) ^ self.read(register::GERRORN);
        let mut position = self.read(register::CMDQ_PROD);
        if errors & value::COMMAND_ERROR != 0 || self.read(register::CMDQ_CONS) != position {
            return false;
        }
        for command in commands.iter().chain(&[smmu::SYNCHRONISE]) {
            let at = self.commands + 16 * smmu::index(position, COMMAND_BITS) as u64;
            for (offset, word) in [0, 8].into_iter().zip(command) {
                store(at + offset, *word);
            }
            position = smmu::next(position, COMMAND_BITS);
        }
        // The commands, and the tables that they are about, are visible before.
        instruction!("dsb sy");
        self.write(register::CMDQ_PROD, position);
        // With an error CMDQ_CONS has the reason in its upper bits (4.1.3).
        wait_until(SMMU_MICROSECONDS, &mut || self.read(register::CMDQ_CONS) == position)
    }

    /// Sets the entry of a stream that has none, or removes it. The first word makes it valid, so it is written last,
    /// in one store; without it the SMMU ignores the others (5.2).
    fn set_entry(&self, stream: u32, entry: &[u64; ENTRY_WORDS]) {
        let at = self.table + u64::from(stream) * 8 * ENTRY_WORDS as u64;
        for (index, word) in entry.iter().enumerate().skip(1) {
            store(at + 8 * index as u64, *word);
        }
        instruction!("dsb sy");
        store(at, entry[0]);
    }

    /// Sets the entries of streams, and makes the SMMU forget the old ones and the translations of `cell`.
    fn set(&self, streams: &[StreamGrant], cell: u32, entry: &[u64; ENTRY_WORDS]) -> bool {
        let mut done = true;
        for stream in streams.iter().flat_map(StreamGrant::ids) {
            let at = self.table + u64::from(stream) * 8 * ENTRY_WORDS as u64;
            // An entry that is valid becomes invalid first.
            store(at, 0);
            done &= self.execute(&[smmu::forget_entry(stream)]);
            self.set_entry(stream, entry);
            done &= self.execute(&[smmu::forget_entry(stream)]);
        }
        done && self.execute(&[smmu::forget_translations_of(cell)])
    }

    fn has_owner(&self, stream: u32) -> bool {
        let at = self.table + u64::from(stream) * 8 * ENTRY_WORDS as u64;
        // SAFETY: an entry of the table, which only this module writes.
        unsafe { (at as *const u64).read_volatile() != 0 }
    }

    fn entry(&self, cell: u32, manager: &mut Manager) -> [u64; ENTRY_WORDS] {
        let translation = manager.translation(cell);
        translation.map_or(smmu::NO_OWNER, |(stage_2, _)| {
            let root = stage_2.root_of_devices();
            smmu::translated(&self.identification, root, cell, self.address_bits)
        })
    }
}

/// Writes a word of a table or queue.
fn store(address: u64, word: u64) {
    // SAFETY: pages of the pool that only this module uses; one store, so that the SMMU sees the old word or the new.
    unsafe { (address as *mut u64).write_volatile(word) }
}

fn running() -> Option<&'static Smmu> {
    SMMU.get().filter(|_| ENABLED.load(Relaxed))
}

fn confirmed(done: bool) -> Done {
    if !done {
        BROKEN.store(true, Relaxed);
    }
    is_intact()
}

/// Maps the registers for the monitor.
pub(crate) fn map(system: &Configuration<'_>, mapping: &mut Mapping) -> Done {
    let Some(iommu) = system.iommu else { return Ok(()) };
    let (start, bytes) = iommu.register_range();
    mapping.add(start, bytes, Usage::DEVICE)
}

/// Checks that the SMMU is suitable, and writes its tables. Changes nothing of the SMMU.
pub(crate) fn prepare(
    machine: &Machine,
    system: &Configuration<'_>,
    manager: &mut Manager,
) -> Done {
    let Some(Iommu { registers, .. }) = system.iommu else { return Ok(()) };
    let read = |register| Devices.read(registers + register, Width::Word) as u32;
    let identification = Identification {
        idr0: read(register::IDR0),
        idr1: read(register::IDR1),
        idr5: read(register::IDR5),
        control: read(register::CR0),
    };
    let (stream_bits, address_bits) = (smmu::stream_bits(system.streams), machine.address_bits);
    identification
        .check(stream_bits, address_bits)
        .map_err(|obstacle| refuse(machine, obstacle))?;
    let mut tables = Tables { pool: &mut manager.pool, cell: ROOT };
    let mut allocate = |bytes: usize| {
        let pages = bytes.div_ceil(PAGE_BYTES as usize).next_power_of_two();
        tables.allocate(pages).ok_or(Outcome::Exhausted)
    };
    let new = Smmu {
        registers: *registers,
        // Zeroed: no stream has an owner. Aligned to its size (6.3.24).
        table: allocate((8 * ENTRY_WORDS) << stream_bits)?,
        stream_bits,
        commands: allocate(16 << COMMAND_BITS)?,
        events: allocate(32 << EVENT_BITS)?,
        identification,
        address_bits,
    };
    let entry = new.entry(ROOT, manager);
    for stream in system.streams.iter().flat_map(StreamGrant::ids) {
        new.set_entry(stream, &entry);
    }
    SMMU.call_once(|| new);
    Ok(())
}

/// Stores the reason for the driver.
fn refuse(machine: &Machine, obstacle: Obstacle) -> Outcome {
    let index = obstacle as u32;
    let refused = Refused { refusal: Refusal::SmmuUnsuitable, index, other: NO_CELL };
    root::refuse(&machine.layout, refused)
}

/// Enables the SMMU for the root, which has used it in bypass.
pub(crate) fn enable() -> Done {
    let Some(smmu) = SMMU.get() else { return Ok(()) };
    smmu.write(register::CR1, value::CACHED);
    smmu.write(register::CR2, value::RECORD_INVALID);
    smmu.write_double(register::STRTAB_BASE, smmu.table);
    smmu.write(register::STRTAB_BASE_CFG, smmu::table_shape(smmu.stream_bits));
    smmu.write_double(register::CMDQ_BASE, smmu.commands | value::COMMANDS);
    smmu.write_double(register::EVENTQ_BASE, smmu.events | value::EVENTS);
    for position in [
        register::CMDQ_PROD,
        register::CMDQ_CONS,
        register::EVENTQ_PROD,
        register::EVENTQ_CONS,
        register::IRQ_CTRL,
    ] {
        smmu.write(position, 0);
    }
    let enabled = smmu.identification.control_when_enabled();
    let queues = value::COMMANDS_ENABLE | value::EVENTS_ENABLE;
    let done = smmu.control(value::COMMANDS_ENABLE)
        && smmu.execute(&[smmu::FORGET_ENTRIES, smmu::FORGET_TRANSLATIONS])
        && smmu.control(queues)
        && smmu.control(enabled);
    if done {
        ENABLED.store(true, Relaxed);
        return Ok(());
    }
    smmu.control(0);
    Err(Outcome::TimedOut)
}

/// Leaves the SMMU as it was found: disabled. Returns whether it confirms that.
pub(crate) fn disable() -> bool {
    let Some(smmu) = running() else { return true };
    let done = smmu.control(0);
    ENABLED.store(!done, Relaxed);
    // The hypervisor stays, and whether DMA is confined is unknown.
    BROKEN.store(!done, Relaxed);
    done
}

/// Makes the SMMU forget the translations of a cell; if it does not confirm that, see [`is_intact`].
pub(crate) fn forget_translations(cell: u32) {
    if let Some(smmu) = running() {
        let _ = confirmed(smmu.execute(&[smmu::forget_translations_of(cell)]));
    }
}

/// Returns an error if the SMMU has not confirmed a command: memory then keeps its owner.
pub(crate) fn is_intact() -> Done {
    if BROKEN.load(Relaxed) { Err(Outcome::TimedOut) } else { Ok(()) }
}

/// Ends all DMA of the devices of a cell, before its memory changes its owner or its contents.
pub(crate) fn block(cell: u32) -> Done {
    let Some(smmu) = running() else { return Ok(()) };
    let streams = Shared::of(cell).configuration().map_or(&[][..], |of| of.streams);
    if streams.is_empty() {
        return Ok(());
    }
    functions(streams).for_each(|page| set_command(page, pci::MASTER, 0));
    confirmed(smmu.set(streams, cell, &smmu::NO_OWNER))
}

/// Withdraws DMA from the PCI functions of the root, none of whose CPUs but this one runs: what its last kernel has
/// ordered ends before the memory of the next one is the root's. The drivers of the next kernel permit it again.
pub(crate) fn end_dma_of_root() -> Done {
    let Some(smmu) = running() else { return Ok(()) };
    let (start, bytes) = space().unwrap_or_default();
    for page in (start..start + bytes).step_by(PAGE_BYTES as usize) {
        if !FUNCTIONS.iter().any(|function| function.load(Relaxed) == page) {
            pci::quiet(page, &Devices);
        }
    }
    confirmed(smmu.execute(&[smmu::forget_translations_of(ROOT)]))
}

/// Gives the devices of a cell access to its memory, before its start. Without a confirmation they have none.
pub(crate) fn grant(cell: u32, manager: &mut Manager) {
    let Some(smmu) = running() else { return };
    let streams = Shared::of(cell).configuration().map_or(&[][..], |of| of.streams);
    if streams.is_empty() {
        return;
    }
    // What the root has set would write to the cell's memory.
    functions(streams).for_each(|page| pci::disable_messages(page, &Devices));
    let entry = smmu.entry(cell, manager);
    if confirmed(smmu.set(streams, cell, &entry)).is_ok() {
        functions(streams).for_each(|page| set_command(page, 0, pci::MEMORY_AND_MASTER));
    }
}

/// Takes the configuration space of PCI functions from the root, as long as a cell has a function, and the streams of
/// the cell. The caller waits afterwards for accesses of the root that have begun ([`root_access`]).
pub(crate) fn take(cell: u32, manager: &mut Manager) -> Done {
    let configuration = Shared::of(cell).configuration().ok_or(Outcome::NoSuchCell)?;
    for page in functions(configuration.streams) {
        let free = FUNCTIONS.iter().find(|function| function.load(Relaxed) == 0);
        free.ok_or(Outcome::Exhausted)?.store(page, Relaxed);
    }
    if functions(configuration.streams).next().is_some() {
        let (root, mut tables) = manager.translation(ROOT).ok_or(Outcome::WrongState)?;
        let space = space().into_iter();
        root.unmap(space, &mut tables).map_err(|_| Outcome::Exhausted)?;
    }
    if let Some(smmu) = running() {
        let mut ids = configuration.streams.iter().flat_map(StreamGrant::ids);
        WAS_OF_ROOT[cell as usize].store(ids.all(|stream| smmu.has_owner(stream)), Relaxed);
    }
    block(cell)
}

/// Returns the configuration space to the root if no other cell has a function, and the streams of a cell that was
/// never started. The others have no owner from now on.
pub(crate) fn give_back(machine: &Machine, cell: u32, manager: &mut Manager) {
    let Some(configuration) = Shared::of(cell).configuration() else { return };
    let streams = configuration.streams;
    for page in functions(streams) {
        let held = FUNCTIONS.iter().filter(|function| function.load(Relaxed) == page);
        held.for_each(|function| function.store(0, Relaxed));
    }
    if functions(streams).next().is_some()
        && !has_functions()
        && let (Some((root, mut tables)), Some((start, bytes))) =
            (manager.translation(ROOT), space())
    {
        let device = attributes(MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE);
        // Without memory for tables it stays unmapped.
        let _ = root.map(start, start, bytes, device, &mut tables);
    }
    // Of the streams only those that were taken from the root, and were not used by the cell.
    let was_of_root = WAS_OF_ROOT[cell as usize].swap(false, Relaxed);
    let unused = machine.status().cells[cell as usize].starts.load(Relaxed) == 0;
    if let Some(smmu) = running().filter(|_| was_of_root && unused && !streams.is_empty()) {
        let entry = smmu.entry(ROOT, manager);
        let _ = confirmed(smmu.set(streams, cell, &entry));
    }
}

/// Copies new events to the status pages. Called from time to time by the root.
pub(crate) fn report(machine: &Machine) {
    let Some(smmu) = running() else { return };
    let Some(_manager) = MANAGER.try_lock() else { return };
    let status = machine.status();
    let (end, mut position) =
        (smmu.read(register::EVENTQ_PROD), smmu.read(register::EVENTQ_CONS) & !value::OVERFLOW);
    let overflow = end & value::OVERFLOW;
    // The records are read after their number.
    instruction!("dmb sy");
    let cells = live();
    for _ in 0..MOST_EVENTS {
        if position == end & !value::OVERFLOW {
            break;
        }
        let at = smmu.events + 32 * smmu::index(position, EVENT_BITS) as u64;
        // SAFETY: the queue is memory of the hypervisor that only the SMMU writes; EVENTQ_PROD says that this record is
        // complete (7.2).
        let words =
            [0, 8, 16, 24].map(|offset| unsafe { ((at + offset) as *const u64).read_volatile() });
        let event = Event::read(&words);
        let owner = existing(&cells)
            .find(|(_, of)| of.streams.iter().any(|grant| grant.ids().contains(&event.stream)));
        let number = status.dma_faults.load(Relaxed);
        let slot = &status.dma_fault[(number % DMA_FAULT_SLOTS as u64) as usize];
        slot.sequence.store(0, Relaxed);
        fence(Release);
        slot.time.store(now(), Relaxed);
        slot.address.store(event.address, Relaxed);
        slot.stream.store(event.stream, Relaxed);
        slot.cell.store(owner.map_or(ROOT, |(cell, _)| cell), Relaxed);
        slot.event.store(event.number, Relaxed);
        slot.read.store(event.read.into(), Relaxed);
        slot.sequence.store(number + 1, Release);
        status.dma_faults.store(number + 1, Release);
        position = smmu::next(position, EVENT_BITS);
    }
    smmu.write(register::EVENTQ_CONS, position | overflow);
}

/// The pages of the PCI functions that cells have, in the configuration space; 0 for none.
static FUNCTIONS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

fn functions(streams: &[StreamGrant]) -> impl Iterator<Item = u64> {
    streams.iter().map(|grant| grant.function).filter(|page| *page != 0)
}

fn has_functions() -> bool {
    FUNCTIONS.iter().any(|function| function.load(Relaxed) != 0)
}

/// Returns start and size of the configuration space, if the system has one.
fn space() -> Option<(u64, u64)> {
    let space = Shared::of(ROOT).configuration()?.iommu?.space_range();
    (space.1 != 0).then_some(space)
}

/// Clears and sets bits of the command register of a function.
fn set_command(page: u64, clear: u64, set: u64) {
    let command = Devices.read(page + pci::COMMAND, Width::Half);
    Devices.write(page + pci::COMMAND, Width::Half, command & !clear | set);
}

/// Makes or filters an access of the root to the configuration space. Returns the value read, 0 for a write, and
/// `None` if the access is to something else. The caller holds the lock of the root's registers.
pub(crate) fn root_access(access: &Access) -> Option<u64> {
    let (start, bytes) = space().filter(|_| has_functions())?;
    if access.address < start || access.address - start >= bytes {
        return None;
    }
    let page = access.address & !(PAGE_BYTES - 1);
    let owned = FUNCTIONS.iter().any(|function| function.load(Relaxed) == page);
    Some(match (pci::filter(access, owned), access.write) {
        (Filtered::Made, None) => Devices.read(access.address, access.width),
        (Filtered::Made, Some(value)) => {
            Devices.write(access.address, access.width, value);
            0
        }
        (Filtered::Absent, _) => access.width.mask(),
        (Filtered::Ignored, _) => 0,
    })
}
