// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Executes hypercalls of the root and of cells.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use rampart_hypervisor_core::hypercall::Call;
use rampart_hypervisor_core::interface::{Outcome, REVISION, ROOT};

use crate::cells::IsComplete;
use crate::cpu::Registers;
use crate::exits::Context;
use crate::manager::DOORBELLS;
use crate::registers::{now, read_register, write_register};
use crate::{cells, gic, restart, root, smmu};

/// The calls of Linux's KVM, without their lowest byte, and its result `ARM_EXCEPTION_HYP_GONE` (asm/kvm_asm.h).
const KVM_CALLS: u64 = 0xc6_0000;
const HYPERVISOR_GONE: u64 = 0xbad_ca11;

/// The results in x1 to x3.
pub(crate) type Values = [u64; 3];

/// Handles `hvc #0`.
pub(crate) fn handle(context: &Context<'_>, registers: &mut Registers) {
    let [x0, x1, x2, x3, ..] = *registers.all();
    // KVM calls the hypervisor in its place: a guest is not run, because EL2 is gone (HVC_STUB_ERR).
    let mut values = [if x0 >> 8 == KVM_CALLS { HYPERVISOR_GONE } else { x1 }, x2, x3];
    let status = context.machine.status();
    let address = read_register!("elr_el2");
    if context.cell == ROOT {
        let [to, state] = &context.cpu.caller;
        state.store(read_register!("spsr_el2"), Relaxed);
        to.store(address, SeqCst);
    }
    let result = Call::read(&[x0, x1, x2], context.cell, status)
        .and_then(|call| execute(context, call, &mut values, registers));
    context.cpu.caller[0].store(0, SeqCst);
    if result == Ok(false) {
        // The root takes its interrupts, and makes the call again.
        write_register!("elr_el2", address - 4);
        return;
    }
    let outcome = result.err().unwrap_or(Outcome::Success);
    registers.set(0, outcome as i64 as u64);
    for (number, value) in (1..).zip(values) {
        registers.set(number, value);
    }
}

fn execute(
    context: &Context<'_>,
    call: Call,
    values: &mut Values,
    registers: &mut Registers,
) -> IsComplete {
    let machine = context.machine;
    let status = machine.status();
    match call {
        Call::CpuInfo(index) => {
            let cpu = &status.cpus[index];
            let state = cpu.cpu_state();
            *values = [state.cell.into(), state.power as u64, cpu.all_exits()];
        }
        Call::Doorbell(index) => doorbell(context, index).ok_or(Outcome::NotPermitted)?,
        Call::WatchdogKick => status.kick(context.cell, now()),
        Call::Interface => {
            // The driver makes this call periodically.
            if context.cell == ROOT {
                cells::check_cells(machine);
                smmu::report(machine);
            }
            let status = if context.cell == ROOT { machine.layout.status.start } else { 0 };
            *values = [REVISION.into(), context.cell.into(), status];
        }
        Call::Disable => root::leave(context, registers)?,
        Call::Create { start, bytes } => return cells::create(machine, (start, bytes), values),
        Call::Configuration(cell) => *values = restart::describe(machine, cell)?,
        Call::Manage(kind, cell) => return cells::manage(machine, kind, cell),
    }
    Ok(true)
}

/// Sets a doorbell's interrupt pending, if its current owner declares it as a doorbell. Does not wait.
pub(crate) fn doorbell(context: &Context<'_>, index: u64) -> Option<()> {
    let number = context.shared.configuration()?.doorbell(index, &DOORBELLS)?;
    gic::set_pending(context.machine, number);
    Some(())
}
