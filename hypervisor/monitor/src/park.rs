// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parks CPUs: every CPU that leaves its cell ends here and is started from here.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use core::sync::atomic::fence;

use rampart_hypervisor_core::interface::{CellState, CpuPower, ROOT};

use crate::cpu::{Activity, Cpu, Registers, order};
use crate::machine::Machine;
use crate::registers::{hypervisor_control as hcr, instruction, write_register};
use crate::{gic, guest, smc};

/// Waits until the CPU is started, and sets `registers` for the start.
pub(crate) fn park(machine: &'static Machine, cpu: &Cpu, registers: &mut Registers) {
    let status = &machine.status().cpus[cpu.index.load(Relaxed) as usize];
    loop {
        gic::reset_cpu(machine, cpu);
        guest::wipe();
        // Only interrupts routed to EL2 end a WFI here (Arm ARM D1.6.2). They are masked, so none is taken.
        write_register!("hcr_el2", hcr::AARCH64 | hcr::IRQ | hcr::FIQ | hcr::SERROR);
        // No walks of tables that may soon be reused.
        write_register!("vttbr_el2", 0);
        instruction!("isb");
        cpu.activity.store(Activity::Parked as u32, SeqCst);
        // Last: a CPU that is off may be started at once.
        status.set_power(CpuPower::Off);
        gic::enable_wakeup(machine, true);
        wait(machine, cpu);
        gic::enable_wakeup(machine, false);
        if is_running(machine, status.cell()) {
            guest::configure_traps(machine, cpu, status.cell());
            guest::set_start_state(registers, cpu.entry.load(Relaxed), cpu.argument.load(Relaxed));
            status.set_power(CpuPower::On);
            cpu.activity.store(Activity::Running as u32, SeqCst);
            // A CPU that stops the cell changes the state and then checks which CPUs are not parked, so at
            // least one of the two sees the other.
            fence(SeqCst);
            if is_running(machine, status.cell()) {
                return;
            }
        }
    }
}

/// Waits for the order to start.
fn wait(machine: &Machine, cpu: &Cpu) {
    loop {
        match cpu.exit_state.order.swap(order::NONE, AcqRel) {
            order::START => return gic::acknowledge_kick(machine, cpu),
            order::POWER_OFF => smc::power_off(machine, cpu),
            _ => {
                instruction!("dsb sy", "wfi");
                gic::acknowledge_kick(machine, cpu);
            }
        }
    }
}

/// Returns whether the cell is running; the root always is.
fn is_running(machine: &Machine, cell: u32) -> bool {
    let state = machine.status().cells.get(cell as usize);
    cell == ROOT || state.is_some_and(|cell| cell.condition().state == CellState::Running)
}
