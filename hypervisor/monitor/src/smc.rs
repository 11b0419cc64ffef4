// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles SMCs: emulates PSCI and forwards the functions that the configuration permits.

use core::arch::asm;

use rampart_hypervisor_core::interface::{CpuPower, DOORBELL_BY_SMC, Exit, ROOT, StopReason};
use rampart_hypervisor_core::protocol::CpuState;
use rampart_hypervisor_core::psci::{PsciAction, handle_call, is_psci};
use rampart_hypervisor_core::state::Event;

use crate::cpu::{Cpu, Registers};
use crate::exits::Context;
use crate::machine::Machine;
use crate::park::park;
use crate::registers::{now, read_register, write_register};
use crate::{cells, gic, guest, hypercalls, restart};

/// PSCI CPU_OFF (Arm DEN 0022, 5.5).
const CPU_OFF: u64 = 0x8400_0002;
/// PSCI AFFINITY_INFO (5.7), with the numbers of [`CpuPower`].
const AFFINITY_INFO: u64 = 0xc400_0004;

/// Handles `smc #0`.
pub(crate) fn handle(context: &Context<'_>, registers: &mut Registers) {
    guest::advance();
    let Some(configuration) = context.shared.configuration() else { return };
    let [x0, x1, x2, x3, ..] = *registers.all();
    let action = handle_call(
        &[x0, x1, x2, x3],
        &context.caller(),
        |address| configuration.executes(address),
        |function| configuration.forwards(function),
    );
    context.count(match action {
        PsciAction::Forward(_) => Exit::SmcForwarded,
        _ if is_psci(x0 as u32) => Exit::Psci,
        _ => Exit::SmcRefused,
    });
    match action {
        PsciAction::Value(value) => registers.set(0, value),
        PsciAction::TurnOn { cpu, entry, context: argument } => {
            let machine = context.machine;
            machine.set_entry(cpu, entry, argument);
            // Refused if the cell has been ended since.
            if machine.status().cpus[cpu].step(&CpuState::ready).is_ok() {
                gic::kick(machine, cpu);
            }
            registers.set(0, 0);
        }
        PsciAction::TurnOff => park(context.machine, context.cpu, registers),
        PsciAction::Wait => {
            gic::sleep(context.machine, context.cpu);
            registers.set(0, 0);
        }
        PsciAction::Stop(reason) => stop(context, registers, reason),
        PsciAction::Forward(function) => {
            registers.set(0, function.into());
            match hypercalls::doorbell(context, x0.wrapping_sub(DOORBELL_BY_SMC.into())) {
                Some(()) => registers.set(0, 0),
                None => forward(registers),
            }
        }
    }
}

/// Handles SYSTEM_OFF and SYSTEM_RESET, which stop only the calling cell. For the root they are forwarded to
/// the firmware if there are no cells; otherwise only the root stops, or is started again from a standby, and the cells
/// continue.
fn stop(context: &Context<'_>, registers: &mut Registers, reason: StopReason) {
    let machine = context.machine;
    if context.cell != ROOT {
        // The cell may have been stopped at the same time, which has the same result.
        let _ = machine.status().advance(context.cell, Event::End(reason), now());
        cells::park_others(machine, context.cell, context.index);
        cells::notify_root(machine);
    } else {
        let (standby, has_cells) = machine.status().standby();
        if !has_cells {
            forward(registers);
            return;
        }
        if standby.is_some_and(|standby| restart::begin(context, standby, reason).is_err()) {
            // The root makes the call again.
            write_register!("elr_el2", read_register!("elr_el2") - 4);
            return;
        }
    }
    park(machine, context.cpu, registers);
}

fn forward(registers: &mut Registers) {
    let [x0, x1, x2, x3, x4, x5, x6, x7, ..] = registers.all();
    // SAFETY: the configuration permits the call. By the calling convention (Arm DEN 0028, 2.6) it
    // changes at most x0 to x17.
    unsafe {
        asm!(
            "smc #0",
            inout("x0") *x0, inout("x1") *x1, inout("x2") *x2, inout("x3") *x3,
            inout("x4") *x4, inout("x5") *x5, inout("x6") *x6, inout("x7") *x7,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _,
            out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _,
            options(nostack)
        );
    }
}

/// Turns off this CPU by the firmware, because the hypervisor ends and Linux had turned the CPU off. Returns only
/// if the firmware refuses.
pub(crate) fn turn_off(machine: &Machine, cpu: &Cpu) {
    gic::restore_management(machine, cpu);
    call_firmware(CPU_OFF, 0);
    gic::set_up_management(machine, cpu);
}

/// Returns whether the firmware has turned off the CPU with this affinity.
pub(crate) fn is_turned_off(affinity: u64) -> bool {
    call_firmware(AFFINITY_INFO, affinity) == CpuPower::Off as u64
}

fn call_firmware(function: u64, argument: u64) -> u64 {
    let mut registers = Registers::ZERO;
    registers.set(0, function);
    registers.set(1, argument);
    forward(&mut registers);
    registers.get(0)
}
