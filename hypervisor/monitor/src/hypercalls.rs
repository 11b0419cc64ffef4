// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HVC: what the root asks for, and the little that a cell may.

use rampart_hypervisor_core::interface::{Exit, Hypercall, Outcome, REVISION, ROOT};
use rampart_hypervisor_core::format::InterruptFlags;
use rampart_hypervisor_core::interface::MAXIMUM_CELLS;

use crate::cpu::Registers;
use crate::exits::Context;
use crate::registers::now;
use crate::system::{MANAGER, Shared};
use crate::{cells, gic, root};

/// x1 to x3.
pub(crate) type Values = [u64; 3];

/// Serves `hvc #0`.
pub(crate) fn handle(context: &Context<'_>, registers: &mut Registers) {
    let [x0, x1, x2, x3, ..] = registers.x;
    let mut values = [x1, x2, x3];
    let result = u32::try_from(x0)
        .ok()
        .and_then(|number| Hypercall::try_from(number).ok())
        .ok_or(Outcome::NotSupported)
        .and_then(|call| serve(context, call, &mut values, registers));
    registers.set(0, result.err().unwrap_or(Outcome::Success) as i64 as u64);
    for (number, value) in (1..).zip(values) {
        registers.set(number, value);
    }
}

fn serve(
    context: &Context<'_>,
    call: Hypercall,
    values: &mut Values,
    registers: &mut Registers,
) -> Result<(), Outcome> {
    let machine = context.machine;
    let [first, second, _] = *values;
    let cell = u32::try_from(first).unwrap_or(u32::MAX);
    match call {
        Hypercall::CpuInfo => {
            let cpu = &machine.status().cpus[visible_cpu(context, first)?];
            let power: u32 = cpu.power().into();
            *values = [cpu.cell().into(), power.into(), cpu.all_exits()];
            Ok(())
        }
        Hypercall::CpuExits => {
            let cpu = &machine.status().cpus[visible_cpu(context, first)?];
            let exit = u32::try_from(second).ok().and_then(|exit| Exit::try_from(exit).ok());
            let counter = &cpu.exits[exit.ok_or(Outcome::Invalid)? as usize];
            values[0] = counter.load(core::sync::atomic::Ordering::Relaxed);
            Ok(())
        }
        Hypercall::Doorbell => doorbell(context, first),
        Hypercall::WatchdogKick => {
            machine.status().kick(context.cell, now());
            Ok(())
        }
        Hypercall::Interface => {
            if context.cell == ROOT {
                cells::watch(machine);
            }
            *values = [REVISION.into(), context.cell.into(), 0];
            Ok(())
        }
        _ if context.cell != ROOT => Err(Outcome::NotPermitted),
        Hypercall::Disable => root::leave(context, registers),
        Hypercall::CellCreate => cells::create(machine, values),
        Hypercall::CellLoadable => cells::loadable(machine, cell),
        Hypercall::CellStart => cells::start(machine, cell),
        Hypercall::CellStop => cells::stop(machine, cell),
        Hypercall::CellDestroy => cells::destroy(machine, cell),
    }
}

/// The root sees all CPUs, a cell its own.
fn visible_cpu(context: &Context<'_>, index: u64) -> Result<usize, Outcome> {
    let index = usize::try_from(index).map_err(|_| Outcome::Invalid)?;
    if index >= context.machine.cpu_count() {
        return Err(Outcome::Invalid);
    }
    let own = context.machine.status().cpus[index].cell() == context.cell;
    if own || context.cell == ROOT {
        Ok(index)
    } else {
        Err(Outcome::NotPermitted)
    }
}

/// Makes an interrupt pending that its present owner has as a doorbell.
fn doorbell(context: &Context<'_>, index: u64) -> Result<(), Outcome> {
    // Others' configurations are looked at: none comes or goes meanwhile.
    let _held = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let configuration = context.shared.configuration().ok_or(Outcome::NotPermitted)?;
    let index = usize::try_from(index).map_err(|_| Outcome::Invalid)?;
    let number = configuration.doorbells.get(index).ok_or(Outcome::Invalid)?.interrupt;
    let is_bell = |cell: u32| {
        Shared::of(cell).interrupts.contains(number)
            && Shared::of(cell).configuration().is_some_and(|configuration| {
                configuration.interrupts.iter().any(|grant| {
                    let flags = InterruptFlags::from_bits_truncate(grant.flags);
                    grant.number == number && flags.contains(InterruptFlags::DOORBELL)
                })
            })
    };
    if !(0..MAXIMUM_CELLS as u32).any(is_bell) {
        return Err(Outcome::NotPermitted);
    }
    gic::ring(context.machine, number);
    Ok(())
}
