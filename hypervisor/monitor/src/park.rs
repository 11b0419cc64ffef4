// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parks CPUs: every CPU that leaves its cell ends here and is started from here.

use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use rampart_hypervisor_core::interface::{CellState, CpuPower, ROOT};
use rampart_hypervisor_core::protocol::CpuState;

use crate::cpu::{Cpu, Registers};
use crate::machine::Machine;
use crate::registers::{hypervisor_control as hcr, instruction, wait_until, write_register};
use crate::{gic, guest, restart, root, smc, stage2_memory};

/// Timeout for the management interrupt of a CPU that has just started this one.
const KICK_MICROSECONDS: u64 = 10_000;
/// No cell has this number.
const UNUSED_VMID: u32 = 0xff;

/// Waits until the CPU is started, and sets `registers` for the start.
pub(crate) fn park(machine: &'static Machine, cpu: &Cpu, registers: &mut Registers) {
    let status = &machine.status().cpus[cpu.index.load(Relaxed) as usize];
    loop {
        gic::reset_cpu(machine, cpu);
        guest::wipe();
        cpu.faulting.store(0, SeqCst);
        // Only interrupts routed to EL2 end a WFI here (Arm ARM D1.6.2). They are masked, so none is taken.
        write_register!("hcr_el2", hcr::STAGE_2 | hcr::AARCH64 | hcr::IRQ | hcr::FIQ | hcr::SERROR);
        // No walks of tables that may soon be reused.
        write_register!("vttbr_el2", stage2_memory::base(stage2_memory::no_tables(), UNUSED_VMID));
        // An error that the last owner caused is taken here, and not with the next one (`handle_fault`).
        instruction!("isb", "dsb sy", "msr daifclr, #4", "isb", "msr daifset, #4");
        // Last: a CPU that is off may get another owner, or be started, at once.
        let _ = status.step(&CpuState::park);
        restart::turn_on(machine, cpu);
        gic::enable_wakeup(machine, cpu, true);
        wait(machine, cpu);
        gic::enable_wakeup(machine, cpu, false);
        let cell = status.cell();
        if !is_running(machine, cell) {
            continue;
        }
        // While it was off, another CPU of its owner may have changed its interrupts.
        gic::reset_cpu(machine, cpu);
        guest::configure_traps(machine, cpu, cell);
        guest::set_start_state(registers, cpu.entry.load(Relaxed), cpu.argument.load(Relaxed));
        gic::acknowledge_kick(machine, cpu);
        // The order to park may have come before the interrupt that is acknowledged.
        if status.cpu_state().power == CpuPower::On {
            return;
        }
    }
}

/// Waits until another CPU starts this one.
fn wait(machine: &Machine, cpu: &Cpu) {
    let status = &machine.status().cpus[cpu.index.load(Relaxed) as usize];
    let mut kicked = false;
    while status.step(&CpuState::begin).is_err() {
        if root::is_closing() && status.step(&CpuState::turn_off).is_ok() {
            smc::turn_off(machine, cpu);
            // The firmware refused.
            let _ = status.step(&CpuState::park);
        }
        instruction!("dsb sy", "wfi");
        kicked = gic::acknowledge_kick(machine, cpu);
    }
    // The CPU that started this one, which was awake, has yet to interrupt it: the guest must not take that.
    let mut arrives = || kicked || gic::acknowledge_kick(machine, cpu);
    wait_until(KICK_MICROSECONDS, &mut arrives);
}

/// Returns whether the cell is running; the root always is.
fn is_running(machine: &Machine, cell: u32) -> bool {
    let state = machine.status().cells.get(cell as usize);
    cell == ROOT || state.is_some_and(|cell| cell.condition().state == CellState::Running)
}
