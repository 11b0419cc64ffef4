// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where every CPU ends that leaves what it ran, whatever the reason, and from where it is started.

use core::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};
use core::sync::atomic::fence;

use rampart_hypervisor_core::interface::{CellState, CpuPower, ROOT};

use crate::cpu::{Activity, Cpu, Registers, order};
use crate::machine::Machine;
use crate::registers::{hypervisor_control as hcr, instruction, write_register};
use crate::{gic, guest, smc};

/// Waits until the CPU is started, and makes `registers` what it starts with.
pub(crate) fn park(machine: &'static Machine, cpu: &Cpu, registers: &mut Registers) {
    let status = &machine.status().cpus[cpu.index.load(Relaxed) as usize];
    loop {
        gic::reset_cpu(machine, cpu);
        guest::wipe();
        // The interrupts that end a WFI here are those that come to EL2 (Arm ARM D1.6.2). They are
        // masked, so none is taken.
        write_register!("hcr_el2", hcr::AARCH64 | hcr::IRQ | hcr::FIQ | hcr::SERROR);
        // No walk of tables that may be another's soon.
        write_register!("vttbr_el2", 0);
        instruction!("isb");
        cpu.activity.store(Activity::Parked as u32, SeqCst);
        // Last: whoever sees it off may start it.
        status.set_power(CpuPower::Off);
        gic::enable_wakeup(machine, true);
        wait(machine, cpu);
        gic::enable_wakeup(machine, false);
        if is_wanted(machine, status.cell()) {
            guest::configure_traps(machine, cpu, status.cell());
            guest::set_start_state(registers, cpu.entry.load(Relaxed), cpu.argument.load(Relaxed));
            status.set_power(CpuPower::On);
            cpu.activity.store(Activity::Running as u32, SeqCst);
            // Whoever stops the cell changes its state and then looks who is not parked: one of the
            // two sees the other.
            fence(SeqCst);
            if is_wanted(machine, status.cell()) {
                return;
            }
        }
    }
}

/// Returns with an order to start.
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

/// Whether the cell is one that runs; the root always does.
fn is_wanted(machine: &Machine, cell: u32) -> bool {
    let state = machine.status().cells.get(cell as usize);
    cell == ROOT
        || state.is_some_and(|cell| cell.state.load(SeqCst) == u32::from(CellState::Running))
}
