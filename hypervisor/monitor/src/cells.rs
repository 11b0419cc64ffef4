// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates, starts, stops and destroys cells. One management call runs at a time; concurrent calls return
//! [`Outcome::Busy`].

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::fence;

use rampart_hypervisor_core::configuration::machine_checks::{Cells, check_cell};
use rampart_hypervisor_core::configuration::{Configuration, Kind};
use rampart_hypervisor_core::format::{MAXIMUM_BLOB_BYTES, MemoryFlags, MemoryRegion, Refusal};
use rampart_hypervisor_core::gic::{SpiSet, change_owner, is_edge_triggered};
use rampart_hypervisor_core::interface::{
    CellState, CpuPower, MAXIMUM_CELLS, MAXIMUM_CPUS, NO_CELL, Outcome, PAGE_BYTES, ROOT,
    StopReason,
};
use rampart_hypervisor_core::launch::watchdog_ticks;
use rampart_hypervisor_core::memory_transfer;
use rampart_hypervisor_core::stage2::{AccessKind, Stage2};
use rampart_hypervisor_core::state::{Event, Snapshot, is_wiped};

use rampart_hypervisor_fast_path::{Devices, ROOT_REGISTERS};

use crate::cpu::{Cpu, order};
use crate::gic;
use crate::hypercalls::Values;
use crate::machine::Machine;
use crate::manager::{MANAGER, Manager, Shared};
use crate::registers::{instruction, now, read_register, wait_until};
use crate::smc;
use crate::stage2_memory::Tables;

/// Timeout for a CPU to park. It parks with its next instruction, but an access to a slow device can delay
/// it.
const PARK_MICROSECONDS: u64 = 100_000;

/// Timeout for another CPU's access to one register.
const ACCESS_MICROSECONDS: u64 = 10_000;

type Done = Result<(), Outcome>;

fn with_manager(work: impl FnOnce(&mut Manager) -> Done) -> Done {
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    work(manager.as_mut().ok_or(Outcome::WrongState)?)
}

fn state(machine: &Machine, cell: u32) -> Result<CellState, Outcome> {
    let cells = &machine.status().cells;
    let found = cells.get(cell as usize).filter(|_| cell != ROOT);
    match found.ok_or(Outcome::NoSuchCell)?.condition().state {
        CellState::Free => Err(Outcome::NoSuchCell),
        state => Ok(state),
    }
}

/// Returns the CPUs of a cell with their indices.
fn cpus(machine: &Machine, cell: u32) -> impl Iterator<Item = (usize, &'static Cpu)> {
    (0..machine.cpu_count())
        .filter(move |index| machine.status().cpus[*index].cell() == cell)
        .filter_map(|index| Some((index, machine.cpu(index)?)))
}

/// Creates a cell from a configuration in the root's memory.
pub(crate) fn create(machine: &Machine, start: u64, bytes: u64, values: &mut Values) -> Done {
    with_manager(|manager| {
        let free = |cell: &u32| state(machine, *cell) == Err(Outcome::NoSuchCell);
        let number = (1..MAXIMUM_CELLS as u32).find(free).ok_or(Outcome::Exhausted)?;
        root_can_read(manager, start, bytes).ok_or(Outcome::Invalid)?;
        // SAFETY: the root's own memory, which the monitor has mapped; the root may write it
        // concurrently, but only the copy is checked and used.
        let copy = |target: &mut [u8]| unsafe {
            core::ptr::copy_nonoverlapping(start as *const u8, target.as_mut_ptr(), target.len());
        };
        let system = Shared::of(ROOT).configuration().ok_or(Outcome::WrongState)?;
        let new = manager.read(number, Kind::Cell, bytes, copy);
        let fits = |new: &_| check_cell(new, system, &machine.facts(), &live());
        let new = new.and_then(|new| fits(&new).map(|()| new)).map_err(|refused| {
            let reason = refused.refusal as u64;
            *values = [reason, refused.index.into(), refused.other.into()];
            Outcome::Refused
        })?;
        if let Some(index) = new.cpus.iter().position(|mpidr| !has_left_linux(machine, *mpidr)) {
            *values = [Refusal::CpuOwned as u64, index as u64, ROOT.into()];
            return Err(Outcome::CpuInUse);
        }
        manager.set(number, Some(new));
        if let Err(outcome) = build(manager, machine, number, &new) {
            release(manager, machine, number, &new);
            return Err(outcome);
        }
        machine.status().advance(number, Event::Create, now())?;
        let mask = cpus(machine, number).fold(0, |mask, (index, _)| mask | 1 << index);
        let timeout = watchdog_ticks(&new, read_register!("cntfrq_el0"));
        machine.status().describe(number, &new.header.name, mask, timeout)?;
        *values = [number.into(), 0, NO_CELL.into()];
        Ok(())
    })
}

/// Returns the existing cells.
pub(crate) fn live() -> Cells<'static> {
    core::array::from_fn(|cell| match cell as u32 {
        ROOT => None,
        cell => Shared::of(cell).configuration().copied(),
    })
}

/// Checks that the whole range is memory that the root may read.
fn root_can_read(manager: &mut Manager, start: u64, bytes: u64) -> Option<()> {
    let end = start.checked_add(bytes)?;
    let system = Shared::of(ROOT).configuration()?;
    let (stage_2, tables) = manager.translation(ROOT)?;
    let within = |region: &MemoryRegion| {
        !region.flags().contains(MemoryFlags::DEVICE)
            && region.physical <= start
            && end <= region.physical + region.bytes
    };
    let readable = bytes <= MAXIMUM_BLOB_BYTES as u64
        && system.memory.iter().any(within)
        && (start / PAGE_BYTES..end.div_ceil(PAGE_BYTES))
            .all(|page| stage_2.permits(page * PAGE_BYTES, AccessKind::Read, &tables));
    readable.then_some(())
}

/// Returns whether a CPU has left Linux.
fn has_left_linux(machine: &Machine, mpidr: u64) -> bool {
    let status = machine.status();
    status.cpu(mpidr).is_some_and(|cpu| {
        status.cpus[cpu].power() == CpuPower::Off && machine.cpu(cpu).is_some_and(Cpu::is_parked)
    })
}

/// Interrupts of cells that were edge-triggered in the root. Linux configures them only when it probes the
/// device, so they are restored when they return to it.
static EDGE: SpiSet = SpiSet::none();

/// Moves all resources of the configuration from the root to the cell.
fn build(manager: &mut Manager, machine: &Machine, number: u32, new: &Configuration<'_>) -> Done {
    let first = new.cpus.first().copied().unwrap_or(0);
    for grant in new.interrupts {
        Shared::of(ROOT).interrupts.remove(grant.number);
        let edge = is_edge_triggered(machine.distributor, grant.number, &Devices);
        if edge {
            EDGE.insert(grant.number);
        }
        change_owner(machine.distributor, grant.number, edge, first, &Devices);
        Shared::of(number).interrupts.insert(grant.number);
    }
    let exhausted = |_| Outcome::Exhausted;
    let (root, mut tables) = manager.translation(ROOT).ok_or(Outcome::WrongState)?;
    memory_transfer::take_from_root(new, root, &mut tables).map_err(exhausted)?;
    wipe(number, new.memory);

    let mut tables = Tables { pool: &mut manager.pool, cell: number };
    let mut stage_2 = Stage2::new(machine.address_bits, &mut tables).map_err(exhausted)?;
    let result = memory_transfer::map_regions(&mut stage_2, new, &mut tables);
    let result = result.and_then(|()| {
        indices(machine, new).try_for_each(|index| stage_2.add_cpu(index, &mut tables))
    });
    if result.is_err() {
        stage_2.release(&mut tables);
        return Err(Outcome::Exhausted);
    }
    for index in indices(machine, new) {
        if let (Some(cpu), Some(root)) = (machine.cpu(index), stage_2.root_of(index)) {
            cpu.translation.store(root, SeqCst);
            machine.status().cpus[index].assign(number);
        }
    }
    manager.stage_2[number as usize] = Some(stage_2);
    share_registers()
}

fn indices(machine: &Machine, of: &Configuration<'_>) -> impl Iterator<Item = usize> {
    of.cpus.iter().filter_map(|mpidr| machine.status().cpu(*mpidr))
}

/// Computes the root's bits of shared registers.
fn share_registers() -> Done {
    let mut set = || ROOT_REGISTERS.try_lock().map(|mut own| own.set(others(ROOT))).is_some();
    // Another CPU of the root can hold the lock for one access.
    if wait_until(ACCESS_MICROSECONDS, &mut set) { Ok(()) } else { Err(Outcome::TimedOut) }
}

/// Zeroes the regions that no other cell has, to the point of coherency.
fn wipe(number: u32, memory: &[MemoryRegion]) {
    memory.iter().filter(|region| is_wiped(region, others(number))).for_each(zero);
}

/// Returns the configurations of all other cells.
fn others(number: u32) -> impl Iterator<Item = &'static Configuration<'static>> {
    let others = (1..MAXIMUM_CELLS as u32).filter(move |cell| *cell != number);
    others.filter_map(|cell| Shared::of(cell).configuration())
}

fn zero(region: &MemoryRegion) {
    // SAFETY: memory of the configuration, mapped by the monitor. It is unmapped from the root and the
    // cell, so it is not in use; the monitor has no references to shared memory.
    unsafe { core::ptr::write_bytes(region.physical as *mut u8, 0, region.bytes as usize) }
    // CTR_EL0.DminLine (Arm ARM D24.2.33): words of a line.
    let line = 4 << (read_register!("ctr_el0") >> 16 & 0xf);
    for at in (region.physical..region.physical + region.bytes).step_by(line) {
        // SAFETY: cleaning a line changes no value.
        unsafe { core::arch::asm!("dc civac, {}", in(reg) at, options(nostack)) }
    }
    instruction!("dsb sy");
}

/// Returns all resources of a destroyed cell to the root.
fn release(manager: &mut Manager, machine: &Machine, number: u32, old: &Configuration<'_>) {
    if let Some(stage_2) = manager.stage_2[number as usize].take() {
        let pool = &mut manager.pool;
        stage_2.release(&mut Tables { pool, cell: number });
    }
    wipe(number, old.memory);
    manager.set(number, None);
    // If the lock is not available, the root has fewer bits than it could; no cell gets more.
    let _ = share_registers();
    for grant in old.interrupts {
        Shared::of(number).interrupts.remove(grant.number);
        let first = machine.header.cpus().first().copied().unwrap_or(0);
        let edge = EDGE.contains(grant.number);
        EDGE.remove(grant.number);
        change_owner(machine.distributor, grant.number, edge, first, &Devices);
        Shared::of(ROOT).interrupts.insert(grant.number);
    }
    let system = Shared::of(ROOT).configuration();
    let (Some(system), Some((root, mut tables))) = (system, manager.translation(ROOT)) else {
        return;
    };
    // Memory that cannot be mapped stays unmapped: neither the root nor a cell can access it.
    let _ = memory_transfer::return_to_root(old, system, &live(), root, &mut tables);
    for index in indices(machine, old) {
        if let (Some(cpu), Some(root)) = (machine.cpu(index), root.root_of(index)) {
            cpu.translation.store(root, SeqCst);
            machine.status().cpus[index].assign(ROOT);
        }
    }
}

/// Maps a cell's loadable memory for the root.
pub(crate) fn loadable(machine: &Machine, cell: u32) -> Done {
    with_manager(|manager| {
        state(machine, cell)?;
        // Refuses a running cell. The other CPUs of a failed cell may not be parked yet.
        machine.status().advance(cell, Event::Loadable, now())?;
        park_all(manager, machine, cell)?;
        show(manager, cell, true)
    })
}

/// Maps the loadable memory for the root, or unmaps it.
fn show(manager: &mut Manager, cell: u32, shown: bool) -> Done {
    let configuration = Shared::of(cell).configuration().ok_or(Outcome::NoSuchCell)?;
    let (root, mut tables) = manager.translation(ROOT).ok_or(Outcome::WrongState)?;
    memory_transfer::show_loadable(configuration, shown, root, &mut tables)
        .map_err(|_| Outcome::Exhausted)
}

/// Starts a cell at its entry, on its first CPU.
pub(crate) fn start(machine: &Machine, cell: u32) -> Done {
    with_manager(|manager| {
        if state(machine, cell)? == CellState::Running {
            return Err(Outcome::WrongState);
        }
        park_all(manager, machine, cell)?;
        show(manager, cell, false)?;
        let configuration = Shared::of(cell).configuration().ok_or(Outcome::NoSuchCell)?;
        let (stage_2, mut tables) = manager.translation(cell).ok_or(Outcome::NoSuchCell)?;
        for (index, _) in cpus(machine, cell) {
            stage_2.restore(index, &mut tables);
        }
        let first = indices(machine, configuration).next().ok_or(Outcome::Invalid)?;
        let cpu = machine.cpu(first).ok_or(Outcome::Invalid)?;
        machine.status().advance(cell, Event::Start, now())?;
        // Only this CPU can turn it on before the cell runs.
        let _ = machine.status().cpus[first].begin_to_turn_on();
        smc::start(machine, cpu, configuration.header.entry, configuration.header.argument);
        Ok(())
    })
}

/// Stops a cell: parks its CPUs and keeps its memory.
pub(crate) fn stop(machine: &Machine, cell: u32) -> Done {
    with_manager(|manager| {
        state(machine, cell)?;
        machine.status().advance(cell, Event::Stop, now())?;
        park_all(manager, machine, cell)?;
        show(manager, cell, false)
    })
}

/// Destroys a cell: wipes it and returns its resources to the root.
pub(crate) fn destroy(machine: &Machine, cell: u32) -> Done {
    with_manager(|manager| {
        if state(machine, cell)? == CellState::Running {
            machine.status().advance(cell, Event::Stop, now())?;
        }
        park_all(manager, machine, cell)?;
        show(manager, cell, false)?;
        let configuration = *Shared::of(cell).configuration().ok_or(Outcome::NoSuchCell)?;
        release(manager, machine, cell, &configuration);
        machine.status().advance(cell, Event::Destroy, now())?;
        Ok(())
    })
}

/// Parks all CPUs of a cell whose state is no longer [`CellState::Running`].
fn park_all(manager: &mut Manager, machine: &Machine, cell: u32) -> Done {
    // A CPU that is being started reads the state after it has stored that it runs.
    fence(SeqCst);
    let mut busy = [false; MAXIMUM_CPUS];
    for (index, cpu) in cpus(machine, cell).filter(|(_, cpu)| !cpu.is_parked()) {
        busy[index] = true;
        cpu.exit_state.order.store(order::PARK, SeqCst);
    }
    let (stage_2, mut tables) = manager.translation(cell).ok_or(Outcome::NoSuchCell)?;
    for (index, cpu) in cpus(machine, cell).filter(|(index, _)| busy[*index]) {
        stage_2.zap(index, &mut tables);
        smc::kick(machine, cpu);
    }
    for (index, cpu) in cpus(machine, cell).filter(|(index, _)| busy[*index]) {
        if !wait_until(PARK_MICROSECONDS, &mut || cpu.is_parked()) {
            let empty = Snapshot::default();
            machine.status().fail(cell, index, StopReason::Unreachable, &empty, now());
            return Err(Outcome::TimedOut);
        }
    }
    Ok(())
}

/// Orders the other CPUs of a cell to park, after this one failed or ended it. If the manager's lock is
/// available, their root tables are cleared too; otherwise the root's next call for this cell does it.
pub(crate) fn park_others(machine: &Machine, cell: u32, this: &Cpu) {
    let others = || cpus(machine, cell).filter(|(_, cpu)| !core::ptr::eq(*cpu, this));
    let mut manager = MANAGER.try_lock();
    let manager = manager.as_mut().and_then(|manager| manager.as_mut());
    for (_, cpu) in others() {
        cpu.exit_state.order.store(order::PARK, SeqCst);
    }
    if let Some((stage_2, mut tables)) = manager.and_then(|manager| manager.translation(cell)) {
        for (index, _) in others() {
            stage_2.zap(index, &mut tables);
        }
    }
    for (_, cpu) in others() {
        smc::kick(machine, cpu);
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

/// Fails the cells whose watchdog has expired.
pub(crate) fn check_watchdogs(machine: &Machine) {
    for cell in 1..MAXIMUM_CELLS as u32 {
        if !machine.status().is_overdue(cell, now()) {
            continue;
        }
        let first = cpus(machine, cell).next().map_or(0, |(index, _)| index);
        machine.status().fail(cell, first, StopReason::Watchdog, &Snapshot::default(), now());
        notify_root(machine);
        // If this does not park them, the next call for this cell does.
        let _ = with_manager(|manager| park_all(manager, machine, cell));
    }
}
