// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates, starts, stops and destroys cells. One management call runs at a time; concurrent calls return
//! [`Outcome::Busy`].

use core::sync::atomic::Ordering::SeqCst;

use rampart_hypervisor_core::configuration::machine_checks::{
    Cells, MONITOR_ADDRESS_BITS, check_cell,
};
use rampart_hypervisor_core::configuration::{Configuration, Kind as BlobKind};
use rampart_hypervisor_core::format::{
    InterruptGrant, MAXIMUM_BLOB_BYTES, MemoryFlags, MemoryRegion, Refusal,
};
use rampart_hypervisor_core::gic::{SpiSet, is_edge_triggered};
use rampart_hypervisor_core::interface::{
    CellState, CpuPower, MAXIMUM_CELLS, NO_CELL, Outcome, PAGE_BYTES, ROOT, StopReason,
};
use rampart_hypervisor_core::launch::watchdog_ticks;
use rampart_hypervisor_core::memory_transfer;
use rampart_hypervisor_core::protocol::{
    CpuState, CpuStep, Kind, Management, Phase, Progress, Refusal as NotPossible, Work, World,
};
use rampart_hypervisor_core::stage2::{AccessKind, Stage2};
use rampart_hypervisor_core::state::{Event, Snapshot, is_wiped};

use rampart_hypervisor_fast_path::{Devices, ROOT_REGISTERS};

use crate::gic;
use crate::hypercalls::Values;
use crate::machine::Machine;
use crate::manager::{DOORBELLS, MANAGER, Manager, Shared, Source};
use crate::registers::{instruction, now, read_register, wait_until};
use crate::smmu;
use crate::stage2_memory::Tables;

/// The part of the memory of a cell that is wiped at a time, in bytes.
const WIPE_BYTES: u64 = 1 << 20;

/// Timeout for a CPU to park. It parks with its next instruction, but an access to a slow device can delay
/// it.
const PARK_MICROSECONDS: u64 = 500_000;

/// Timeout for another CPU's access to one register.
const ACCESS_MICROSECONDS: u64 = 10_000;

type Done = Result<(), Outcome>;

/// Whether a call is complete. Otherwise the root makes it again, with its interrupts open in between.
pub(crate) type IsComplete = Result<bool, Outcome>;

/// What the managers' lock guards, for the steps of the ownership protocol.
pub(crate) struct Held<'a> {
    pub(crate) machine: &'static Machine,
    pub(crate) manager: &'a mut Manager,
}

/// Makes the steps of a call for a cell that exists.
pub(crate) fn manage(machine: &'static Machine, kind: Kind, cell: u32) -> IsComplete {
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let manager = manager.as_mut().ok_or(Outcome::WrongState)?;
    let runs = machine.status().cells[cell as usize].condition().state == CellState::Running;
    // Also the first of several calls: what follows may wipe the memory. A start, and what is refused because the cell
    // runs, leave its devices as they are.
    if kind != Kind::Start && (!runs || matches!(kind, Kind::Stop | Kind::Destroy)) {
        smmu::block(cell)?;
    }
    run(&mut Held { machine, manager }, Management::new(kind, cell))
}

pub(crate) fn run(held: &mut Held<'_>, mut call: Management) -> IsComplete {
    let begin = now();
    let limit = read_register!("cntfrq_el0").saturating_mul(PARK_MICROSECONDS) / 1_000_000;
    loop {
        let late = now().wrapping_sub(begin) > limit;
        match call.step(held) {
            Progress::Done(result) => return result.map(|()| true),
            Progress::Later => return Ok(false),
            Progress::Wait(cpu) if late => {
                let (status, empty) = (held.machine.status(), Snapshot::default());
                // The root is to make the call again; its standby remains.
                if call.kind != Kind::Restart {
                    status.fail(call.cell, cpu, StopReason::Unreachable, &empty, now());
                }
                return Err(Outcome::TimedOut);
            }
            // Lets other CPUs run first, also on an emulated machine.
            Progress::Wait(_) => instruction!("yield"),
            // Another round of parking.
            Progress::Next if late && call.phase == Phase::Order(0) => {
                return Err(Outcome::TimedOut);
            }
            Progress::Next => {}
        }
    }
}

/// Returns the CPUs of a cell.
fn cpus(machine: &Machine, cell: u32) -> impl Iterator<Item = usize> {
    (0..machine.cpu_count()).filter(move |index| machine.status().cpus[*index].cell() == cell)
}

/// Creates a cell from a configuration in the root's memory.
pub(crate) fn create(machine: &'static Machine, from: Source, values: &mut Values) -> IsComplete {
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let manager = manager.as_mut().ok_or(Outcome::WrongState)?;
    let building = |cell: &usize| {
        matches!(manager.work[*cell], Work::Building(_)) && manager.sources[*cell] == from
    };
    let number = match (1..MAXIMUM_CELLS).find(building) {
        Some(number) => number as u32,
        None => prepare(manager, machine, from, values)?,
    };
    let complete = run(&mut Held { machine, manager }, Management::new(Kind::Create, number))?;
    if complete {
        *values = [number.into(), 0, NO_CELL.into()];
    }
    Ok(complete)
}

/// Copies and checks the configuration of a new cell. Returns the number of the cell, which is still free.
fn prepare(
    manager: &mut Manager,
    machine: &Machine,
    (start, bytes): Source,
    values: &mut Values,
) -> Result<u32, Outcome> {
    // What is wiped depends on the others, so one cell at a time is created or destroyed.
    if manager.work.iter().any(|work| *work != Work::Ready) {
        return Err(Outcome::Busy);
    }
    let status = machine.status();
    let free = |cell: &u32| status.cells[*cell as usize].condition().state == CellState::Free;
    let number = (1..MAXIMUM_CELLS as u32).find(free).ok_or(Outcome::Exhausted)?;
    root_can_read(manager, start, bytes).ok_or(Outcome::Invalid)?;
    // SAFETY: the root's own memory, which the monitor has mapped; the root may write it
    // concurrently, but only the copy is checked and used.
    let copy = |target: &mut [u8]| unsafe {
        core::ptr::copy_nonoverlapping(start as *const u8, target.as_mut_ptr(), target.len());
    };
    let system = configured(ROOT)?;
    let new = manager.read(number, BlobKind::Cell, bytes, copy);
    let fits = |new: &_| check_cell(new, system, &machine.facts(), &live());
    let new = new.and_then(|new| fits(&new).map(|()| new)).map_err(|refused| {
        let reason = refused.refusal as u64;
        *values = [reason, refused.index.into(), refused.other.into()];
        Outcome::Refused
    })?;
    let parked = CpuState { cell: ROOT, power: CpuPower::Off };
    let runs = |index: usize| status.cpus[index].cpu_state() != parked;
    if let Some(index) = indices(machine, &new).position(runs) {
        *values = [Refusal::CpuOwned as u64, index as u64, ROOT.into()];
        return Err(Outcome::CpuInUse);
    }
    manager.sources[number as usize] = (start, bytes);
    manager.set(number, Some(new));
    Ok(number)
}

/// Returns the existing cells.
pub(crate) fn live() -> Cells<'static> {
    core::array::from_fn(|cell| match cell as u32 {
        ROOT => None,
        cell => Shared::of(cell).configuration().copied(),
    })
}

/// Returns the configurations of the existing cells for whose numbers `kept` is true.
fn existing(kept: impl Fn(&u32) -> bool) -> impl Iterator<Item = &'static Configuration<'static>> {
    let cells = (1..MAXIMUM_CELLS as u32).filter(kept);
    cells.filter_map(|cell| Shared::of(cell).configuration())
}

/// Checks that the whole range is memory that the root may read.
fn root_can_read(manager: &mut Manager, start: u64, bytes: u64) -> Option<()> {
    let end = start.checked_add(bytes)?;
    let system = configured(ROOT).ok()?;
    let (stage_2, tables) = manager.root().ok()?;
    let within = |region: &MemoryRegion| {
        !region.flags().contains(MemoryFlags::DEVICE)
            && region.physical <= start
            && end <= region.physical + region.bytes
    };
    let readable = bytes <= MAXIMUM_BLOB_BYTES as u64
        && end <= 1 << MONITOR_ADDRESS_BITS
        && system.memory.iter().any(within)
        && (start / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
            .all(|page| stage_2.permits(page * PAGE_BYTES, AccessKind::Read, &tables));
    readable.then_some(())
}

fn configured(cell: u32) -> Result<&'static Configuration<'static>, Outcome> {
    Shared::of(cell).configuration().ok_or(Outcome::NoSuchCell)
}

/// Interrupts of cells that were edge-triggered in the root. Linux configures them only when it probes the
/// device, so they are restored when they return to it.
static EDGE: SpiSet = SpiSet::none();

impl World for Held<'_> {
    fn cpu_count(&self) -> usize {
        self.machine.cpu_count()
    }

    fn cpu(&self, cpu: usize) -> CpuState {
        self.machine.status().cpus[cpu].cpu_state()
    }

    fn step_cpu(&self, cpu: usize, step: &CpuStep<'_>) -> Result<CpuState, NotPossible> {
        self.machine.status().cpus[cpu].step(step)
    }

    fn state(&self, cell: u32) -> CellState {
        self.machine.status().cells[cell as usize].condition().state
    }

    fn advance(&mut self, cell: u32, event: Event) -> Result<CellState, Outcome> {
        let status = self.machine.status();
        if event == Event::Destroy {
            self.manager.set(cell, None);
        }
        let state = status.advance(cell, event, now())?;
        if let (Event::Create, Some(new)) = (event, Shared::of(cell).configuration()) {
            let timeout = watchdog_ticks(new, read_register!("cntfrq_el0"));
            status.describe(cell, &new.header.name, self.wanted(cell), timeout);
        }
        Ok(state)
    }

    fn wanted(&self, cell: u32) -> u64 {
        let configuration = Shared::of(cell).configuration();
        configuration.map_or(0, |of| indices(self.machine, of).fold(0, |mask, cpu| mask | 1 << cpu))
    }

    fn work(&self, cell: u32) -> Work {
        self.manager.work[cell as usize]
    }

    fn set_work(&mut self, cell: u32, work: Work) {
        self.manager.work[cell as usize] = work;
    }

    fn zap(&mut self, cell: u32, cpu: usize) {
        zap(self.manager, cell, cpu);
    }

    fn kick(&self, cpu: usize) {
        gic::kick(self.machine, cpu);
    }

    fn take(&mut self, cell: u32) -> Done {
        let machine = self.machine;
        let new = configured(cell)?;
        gic::isolate(machine, indices(machine, new))?;
        for grant in new.interrupts {
            Shared::of(cell).interrupts.insert(grant.number);
            Shared::of(ROOT).interrupts.remove(grant.number);
            if is_edge_triggered(machine.distributor, grant.number, &Devices) {
                EDGE.insert(grant.number);
            }
            reset_interrupt(machine, new, grant);
            if grant.is_doorbell() {
                DOORBELLS.insert(grant.number);
            }
        }
        let (root, mut tables) = self.manager.root()?;
        let taken = memory_transfer::take_from_root(new, root, &mut tables);
        taken.map_err(|_| Outcome::Exhausted)?;
        smmu::take(cell, self.manager)?;
        share_registers(ROOT)?;
        smmu::is_intact()
    }

    fn wipe(&mut self, cell: u32, position: u64) -> Option<u64> {
        let work = &self.manager.work;
        // Shared memory of a cell that is neither being created nor destroyed is in use.
        let keeps = |other: &u32| {
            *other != cell && matches!(work[*other as usize], Work::Ready | Work::Clearing(_))
        };
        let clears = matches!(work[cell as usize], Work::Clearing(_));
        let kept = |region: &MemoryRegion| clears && region.flags().contains(MemoryFlags::SHARED);
        let mut first = 0;
        for region in Shared::of(cell).configuration()?.memory {
            let offset = position - first;
            if offset < region.bytes && is_wiped(region, existing(keeps)) && !kept(region) {
                let bytes = WIPE_BYTES.min(region.bytes - offset);
                region
                    .parts(offset..offset + bytes)
                    .for_each(|part| zero(part.physical, part.bytes));
                return Some(position + bytes);
            }
            first += region.bytes;
            if position < first {
                return Some(first);
            }
        }
        None
    }

    fn grant(&mut self, cell: u32) -> Done {
        let (machine, exhausted) = (self.machine, |_| Outcome::Exhausted);
        let new = configured(cell)?;
        let mut tables = Tables { pool: &mut self.manager.pool, cell };
        let mut stage_2 = Stage2::new(machine.address_bits, &mut tables).map_err(exhausted)?;
        let result = memory_transfer::map_regions(&mut stage_2, new, &mut tables);
        let result = result.and_then(|()| {
            #[cfg(feature = "gicv2")]
            gic::map_for_guest(machine, &mut stage_2, &mut tables)?;
            indices(machine, new).try_for_each(|index| stage_2.add_cpu(index, &mut tables))
        });
        set_translations(machine, new, &stage_2);
        self.manager.stage_2[cell as usize] = Some(stage_2);
        result.map_err(exhausted)
    }

    fn withdraw(&mut self, cell: u32) {
        let _ = self.show(cell, false);
        let (manager, pool) = (&mut self.manager.stage_2, &mut self.manager.pool);
        if let Some(stage_2) = manager[cell as usize].take() {
            stage_2.release(&mut Tables { pool, cell });
        }
    }

    fn end_dma(&mut self) -> Done {
        smmu::end_dma_of_root()
    }

    fn give_back(&mut self, cell: u32) {
        let machine = self.machine;
        // If the lock is not available, the root has fewer bits than it could; no cell gets more.
        let _ = share_registers(cell);
        let (Ok(system), Ok(old)) = (configured(ROOT), configured(cell)) else { return };
        // Those of a cell whose creation failed early are still the root's, as it has set them.
        let own = &Shared::of(cell).interrupts;
        for grant in old.interrupts.iter().filter(|grant| own.contains(grant.number)) {
            DOORBELLS.remove(grant.number);
            // The first CPU of the machine may belong to another cell.
            let to = machine.root_cpu().unwrap_or(0);
            let edge = EDGE.contains(grant.number);
            EDGE.remove(grant.number);
            gic::change_owner(machine, grant.number, edge, to);
            Shared::of(ROOT).interrupts.insert(grant.number);
            own.remove(grant.number);
        }
        let mut others = live();
        others[cell as usize] = None;
        let Ok((root, mut tables)) = self.manager.root() else { return };
        // Memory that cannot be mapped stays unmapped: neither the root nor a cell can access it.
        let _ = memory_transfer::return_to_root(old, system, &others, root, &mut tables);
        set_translations(machine, old, root);
        smmu::give_back(machine, cell, self.manager);
    }

    fn show(&mut self, cell: u32, shown: bool) -> Done {
        let (root, mut tables) = self.manager.root()?;
        let done = memory_transfer::show_loadable(configured(cell)?, shown, root, &mut tables);
        done.map_err(|_| Outcome::Exhausted)?;
        smmu::is_intact()
    }

    fn prepare_start(&mut self, cell: u32) {
        let machine = self.machine;
        let Ok(configuration) = configured(cell) else { return };
        // Again: when the cell was created, another CPU of the root may have been about to write a route.
        let _ = gic::isolate(machine, indices(machine, configuration));
        for grant in configuration.interrupts {
            reset_interrupt(machine, configuration, grant);
        }
        if let Some((stage_2, mut tables)) = self.manager.translation(cell) {
            indices(machine, configuration).for_each(|index| stage_2.restore(index, &mut tables));
        }
        smmu::grant(cell, self.manager);
    }

    fn set_entry(&self, cell: u32, cpu: usize) {
        if let Ok(of) = configured(cell) {
            self.machine.set_entry(cpu, of.header.entry, of.header.argument);
        }
    }
}

/// Sets the root tables with which CPUs enter their guest.
fn set_translations(machine: &Machine, of: &Configuration<'_>, stage_2: &Stage2) {
    for index in indices(machine, of) {
        if let (Some(cpu), Some(root)) = (machine.cpu(index), stage_2.root_of(index)) {
            cpu.translation.store(root, SeqCst);
        }
    }
}

/// Resets an interrupt for the cell that owns it.
fn reset_interrupt(machine: &Machine, of: &Configuration<'_>, grant: &InterruptGrant) {
    let first = of.cpus.first().copied().unwrap_or(0);
    let edge = EDGE.contains(grant.number);
    gic::change_owner(machine, grant.number, edge, first);
}

fn indices(machine: &Machine, of: &Configuration<'_>) -> impl Iterator<Item = usize> {
    of.cpus.iter().filter_map(|mpidr| machine.status().cpu(*mpidr))
}

/// Computes the root's bits of shared registers, without those of this cell.
fn share_registers(without: u32) -> Done {
    let others = |cell: &u32| *cell != without;
    let mut set = || ROOT_REGISTERS.try_lock().map(|mut own| own.set(existing(others))).is_some();
    // Another CPU of the root can hold the lock for one access.
    if wait_until(ACCESS_MICROSECONDS, &mut set) { Ok(()) } else { Err(Outcome::TimedOut) }
}

/// Zeroes memory, to the point of coherency.
fn zero(start: u64, bytes: u64) {
    // SAFETY: memory of the configuration, mapped by the monitor. It is unmapped from the root and the
    // cell, so it is not in use; the monitor has no references to shared memory.
    unsafe { core::ptr::write_bytes(start as *mut u8, 0, bytes as usize) }
    // CTR_EL0.DminLine (Arm ARM D24.2.33): words of a line.
    let line = 4 << (read_register!("ctr_el0") >> 16 & 0xf);
    for at in (start..start + bytes).step_by(line) {
        // SAFETY: cleaning a line changes no value.
        unsafe { core::arch::asm!("dc civac, {}", in(reg) at, options(nostack)) }
    }
    instruction!("dsb sy");
}

/// Clears the root table of a CPU, so that its next instruction aborts, also one that it has fetched before.
fn zap(manager: &mut Manager, cell: u32, cpu: usize) {
    if let Some((stage_2, mut tables)) = manager.translation(cell) {
        stage_2.zap(cpu, &mut tables);
    }
    instruction!("ic ialluis", "dsb ish");
}

/// Orders the other CPUs of a cell to park, after this one failed or ended it. If the manager's lock is
/// available, their root tables are cleared too; otherwise [`check_cells`] does it.
pub(crate) fn park_others(machine: &Machine, cell: u32, this: usize) {
    let others = cpus(machine, cell).filter(|index| *index != this);
    let mut manager = MANAGER.try_lock();
    for index in others {
        let found = machine.status().cpus[index].step(&|state| state.order_to_park(cell));
        if !found.is_ok_and(CpuState::has_to_park) {
            continue;
        }
        if let Some(manager) = manager.as_mut().and_then(|manager| manager.as_mut()) {
            zap(manager, cell, index);
        }
        gic::kick(machine, index);
    }
}

/// Notifies the root of a change of a cell's state by the event interrupt of the system's configuration, if any.
pub(crate) fn notify_root(machine: &Machine) {
    let platform = Shared::of(ROOT).configuration().and_then(|root| root.platform);
    let event = platform.map_or(0, |platform| platform.event_interrupt);
    if event != 0 {
        // The change must be visible before the interrupt.
        instruction!("dsb ish");
        gic::set_pending(machine, event);
    }
}

/// Fails the cells whose watchdog has expired, and orders the CPUs of cells that have ended to park, because the one
/// that ended the cell may not have had the lock.
#[inline(never)]
pub(crate) fn check_cells(machine: &'static Machine) {
    let status = machine.status();
    for cell in 1..MAXIMUM_CELLS as u32 {
        if status.is_overdue(cell, now()) {
            let first = cpus(machine, cell).next().unwrap_or(0);
            status.fail(cell, first, StopReason::Watchdog, &Snapshot::default(), now());
            notify_root(machine);
        }
        let runs = status.cells[cell as usize].condition().state == CellState::Running;
        let has_to_park = |index: usize| status.cpus[index].cpu_state().has_to_park();
        if !runs && cpus(machine, cell).any(has_to_park) {
            // If the lock is held, the next call does it.
            let _ = manage(machine, Kind::Park, cell);
        }
    }
}
