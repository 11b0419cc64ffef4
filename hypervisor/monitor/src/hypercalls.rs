// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes hypercalls of the root and of cells.

use core::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_core::configuration::machine_checks::doorbell_target;
use rampart_hypervisor_core::hypercall::Call;
use rampart_hypervisor_core::interface::{Outcome, REVISION, ROOT};

use crate::cpu::Registers;
use crate::exits::Context;
use crate::manager::{MANAGER, Shared};
use crate::registers::now;
use crate::{cells, gic, root};

/// The results in x1 to x3.
pub(crate) type Values = [u64; 3];

/// Handles `hvc #0`.
pub(crate) fn handle(context: &Context<'_>, registers: &mut Registers) {
    let [x0, x1, x2, x3, ..] = *registers.all();
    let mut values = [x1, x2, x3];
    let status = context.machine.status();
    let result = Call::read(&[x0, x1, x2], context.cell, status)
        .and_then(|call| execute(context, call, &mut values, registers));
    registers.set(0, result.err().unwrap_or(Outcome::Success) as i64 as u64);
    for (number, value) in (1..).zip(values) {
        registers.set(number, value);
    }
}

fn execute(
    context: &Context<'_>,
    call: Call,
    values: &mut Values,
    registers: &mut Registers,
) -> Result<(), Outcome> {
    let machine = context.machine;
    let status = machine.status();
    match call {
        Call::CpuInfo(index) => {
            let cpu = &status.cpus[index];
            *values = [cpu.cell().into(), cpu.power() as u64, cpu.all_exits()];
            Ok(())
        }
        Call::CpuExits(index, exit) => {
            values[0] = status.cpus[index].exits[exit].load(Relaxed);
            Ok(())
        }
        Call::Doorbell(index) => doorbell(context, index),
        Call::WatchdogKick => {
            status.kick(context.cell, now());
            Ok(())
        }
        Call::Interface => {
            // The driver makes this call periodically, so the watchdogs are checked here.
            if context.cell == ROOT {
                cells::check_watchdogs(machine);
            }
            *values = [REVISION.into(), context.cell.into(), 0];
            Ok(())
        }
        Call::Disable => root::leave(context, registers),
        Call::Create { start, bytes } => cells::create(machine, start, bytes, values),
        Call::Loadable(cell) => cells::loadable(machine, cell),
        Call::Start(cell) => cells::start(machine, cell),
        Call::Stop(cell) => cells::stop(machine, cell),
        Call::Destroy(cell) => cells::destroy(machine, cell),
    }
}

/// Sets a doorbell's interrupt pending, if its current owner declares it as a doorbell.
fn doorbell(context: &Context<'_>, index: u64) -> Result<(), Outcome> {
    // The lock keeps the other cells' configurations from changing.
    let _held = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let configuration = context.shared.configuration().ok_or(Outcome::NotPermitted)?;
    let system = Shared::of(ROOT).configuration().ok_or(Outcome::WrongState)?;
    let number = doorbell_target(configuration, index, system, &cells::live())
        .ok_or(Outcome::NotPermitted)?;
    gic::set_pending(context.machine, number);
    Ok(())
}
