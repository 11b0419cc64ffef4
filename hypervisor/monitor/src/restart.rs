// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the root again from a standby: a kernel in memory that the root could not write since it was kept.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use rampart_hypervisor_core::gic::LAST_SPI;
use rampart_hypervisor_core::interface::{CONFIGURATION_COPY, Outcome, ROOT, StopReason};
use rampart_hypervisor_core::protocol::{CpuState, Management};

use crate::cells::{Held, run};
use crate::cpu::Cpu;
use crate::exits::Context;
use crate::hypercalls::Values;
use crate::machine::Machine;
use crate::manager::{MANAGER, Shared};
use crate::registers::now;
use crate::{gic, log};

/// Starts the root again from a standby, after this CPU of it has turned off or reset the machine while cells exist. The
/// caller parks the CPU next, which then starts it.
///
/// # Errors
/// [`Outcome::Busy`] or [`Outcome::TimedOut`] if another CPU of the root has the managers' lock or does not park: the
/// root is to repeat the call.
pub(crate) fn begin(
    context: &Context<'_>,
    standby: u32,
    reason: StopReason,
) -> Result<(), Outcome> {
    let (machine, cpu) = (context.machine, context.cpu);
    let mut manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let manager = manager.as_mut().ok_or(Outcome::Busy)?;
    let call = Management::restart(standby, context.index);
    let result = run(&mut Held { machine, manager }, call);
    // The order to park has cleared the root tables.
    if let Ok((stage_2, mut tables)) = manager.root() {
        (0..machine.cpu_count()).for_each(|index| stage_2.restore(index, &mut tables));
    }
    result?;
    // No other CPU of the root runs. If LPIs cannot be turned off, the new kernel ignores them.
    let own = machine.header.cpus().get(context.index).copied().unwrap_or(0);
    let is_root = |index: &usize| machine.status().cpus[*index].cell() == ROOT;
    let _ = gic::isolate(machine, (0..machine.cpu_count()).filter(is_root));
    let interrupts = &Shared::of(ROOT).interrupts;
    for number in 32..machine.controller.interrupt_end.min(LAST_SPI + 1) {
        if interrupts.contains(number) {
            gic::change_owner(machine, number, false, own);
        }
    }
    machine.status().restart(reason, now());
    log::write_line(
        "the root is started again: standby, CPU",
        &[standby.into(), context.index as u64],
    );
    cpu.restarts.store(1, SeqCst);
    Ok(())
}

/// Turns on this CPU, which is off, if it starts the root again: no other CPU of the root could do it.
pub(crate) fn turn_on(machine: &Machine, cpu: &Cpu) {
    if cpu.restarts.swap(0, SeqCst) != 0 {
        let index = cpu.index.load(Relaxed) as usize;
        let status = &machine.status().cpus[index];
        let _ = status.step(&|state| state.turn_on(ROOT));
        let _ = status.step(&CpuState::ready);
        gic::kick(machine, index);
    }
}

/// Copies the configuration of the root or of a cell to the status pages.
pub(crate) fn describe(machine: &Machine, cell: u32) -> Result<Values, Outcome> {
    let manager = MANAGER.try_lock().ok_or(Outcome::Busy)?;
    let manager = manager.as_ref().ok_or(Outcome::WrongState)?;
    let blob = manager.blob(cell).ok_or(Outcome::NoSuchCell)?;
    let (memory, status) = (&machine.layout.memory, machine.layout.status.start);
    let copy = (status as usize + CONFIGURATION_COPY) as *mut u8;
    // SAFETY: this part of the status pages is not in `Status`, and only the holder of the lock writes it; it has space
    // for the longest configuration. The root can only read it.
    unsafe { core::ptr::copy_nonoverlapping(blob.as_ptr(), copy, blob.len()) }
    Ok([blob.len() as u64, memory.start, memory.end - memory.start])
}
