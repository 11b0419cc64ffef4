// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cells as documents: state, reason of the last stop, exits to the hypervisor.

use std::sync::atomic::{AtomicU64, Ordering};

use rampart_hypervisor_core::interface::{
    CellState, CellStatus, CpuPower, DMA_FAULT_SLOTS, EXIT_SLOTS, Exit, FAILURE_SLOTS, Failure,
    Status, StopReason,
};
use rampart_model::{CpuReport, ExitCount, FailureReport, RefusedDma};

fn load(value: &AtomicU64) -> u64 {
    value.load(Ordering::Relaxed)
}

/// Returns the word for a state.
#[must_use]
pub fn state_word(state: CellState) -> &'static str {
    match state {
        CellState::Free => "free",
        CellState::Created => "created",
        CellState::Loadable => "loadable",
        CellState::Running => "running",
        CellState::Stopped => "stopped",
        CellState::Failed => "failed",
    }
}

/// Returns the words for the reason of a stop.
#[must_use]
pub fn stop_words(reason: StopReason) -> &'static str {
    match reason {
        StopReason::None => "running, or never started",
        StopReason::ByRoot => "stopped by the root",
        StopReason::SystemOff => "turned itself off",
        StopReason::SystemReset => "requested a reset",
        StopReason::MemoryRead => "read outside its memory",
        StopReason::MemoryWrite => "wrote outside its writable memory",
        StopReason::MemoryExecute => "executed outside its executable memory",
        StopReason::TranslationTable => "its translation tables are outside its memory",
        StopReason::DeviceForbidden => "accessed a device register that it does not own",
        StopReason::SystemRegister => "accessed a forbidden system register",
        StopReason::SetWay => "cache maintenance by set and way",
        StopReason::ExternalAbort => "an external abort",
        StopReason::Unexpected => "an exception without a handler",
        StopReason::Watchdog => "silent for longer than its watchdog allows",
        StopReason::Unreachable => "a CPU could not be taken back in time",
        StopReason::Hypervisor => "the hypervisor itself faulted on its CPU",
    }
}

fn exit_word(exit: Exit) -> &'static str {
    match exit {
        Exit::Interrupt => "interrupt",
        Exit::Management => "management",
        Exit::Zapped => "zapped",
        Exit::Wait => "wait",
        Exit::Hypercall => "hypercall",
        Exit::Psci => "psci",
        Exit::SmcForwarded => "smc-forwarded",
        Exit::SmcRefused => "smc-refused",
        Exit::SoftwareInterrupt => "software-interrupt",
        Exit::InterruptControl => "interrupt-control",
        Exit::SystemRegister => "system-register",
        Exit::SetWay => "set-way",
        Exit::Distributor => "distributor",
        Exit::Redistributor => "redistributor",
        Exit::DeviceBits => "device-bits",
        Exit::DataAbort => "data-abort",
        Exit::InstructionAbort => "instruction-abort",
        Exit::SError => "serror",
        Exit::Other => "other",
    }
}

/// Returns a cell's state and the reason of its last stop.
#[must_use]
pub fn state_of(cell: &CellStatus) -> (CellState, StopReason) {
    let condition = cell.condition();
    (condition.state, condition.stop_reason)
}

/// Returns the exits of the CPU with this index in the hypervisor's table.
pub(super) fn cpu(status: &Status, index: usize, number: Option<u32>) -> Option<CpuReport> {
    let cpu = status.cpus.get(index)?;
    let mut by_reason = Vec::new();
    let mut exits = 0;
    let mut interrupt_exits = 0;
    for slot in 0..EXIT_SLOTS {
        let count = load(&cpu.exits[slot]);
        let Some(exit) = Exit::try_from(slot as u32).ok().filter(|_| count != 0) else {
            continue;
        };
        exits += count;
        if exit == Exit::Interrupt {
            interrupt_exits += count;
        }
        by_reason.push(ExitCount {
            reason: exit_word(exit).to_owned(),
            count,
        });
    }
    let power = match cpu.cpu_state().power {
        CpuPower::On | CpuPower::Parking => "on",
        CpuPower::Off | CpuPower::Gone => "off",
        CpuPower::OnPending | CpuPower::Starting => "on-pending",
    };
    Some(CpuReport {
        number,
        mpidr: load(&cpu.mpidr),
        power: power.to_owned(),
        exits,
        interrupt_exits,
        by_reason,
    })
}

/// Returns the failure with this number, from 1 and modulo 2^32, or `None` if it was overwritten.
pub(super) fn failure(status: &Status, number: u32) -> Option<FailureReport> {
    let slot = number.checked_sub(1)? as usize % FAILURE_SLOTS;
    let record: &Failure = &status.failure[slot];
    let is_it = || record.sequence.load(Ordering::Acquire) as u32 == number;
    if !is_it() {
        return None;
    }
    let hexadecimal = |value: &AtomicU64| format!("{:#x}", load(value));
    let reason = StopReason::try_from(record.reason.load(Ordering::Relaxed));
    let report = FailureReport {
        reason: stop_words(reason.unwrap_or(StopReason::Unexpected)).to_owned(),
        cpu: record.cpu.load(Ordering::Relaxed),
        syndrome: hexadecimal(&record.syndrome),
        virtual_address: hexadecimal(&record.virtual_address),
        guest_address: hexadecimal(&record.guest_address),
        program_counter: hexadecimal(&record.program_counter),
        processor_state: hexadecimal(&record.processor_state),
        registers: record.registers.iter().map(hexadecimal).collect(),
    };
    // If the record was overwritten meanwhile, it belongs to another failure.
    std::sync::atomic::fence(Ordering::Acquire);
    is_it().then_some(report)
}

/// Returns the latest accesses by DMA that the SMMU refused, oldest first, each with the number of the cell.
pub(super) fn refused_dma(status: &Status) -> Vec<(u32, RefusedDma)> {
    let all = load(&status.dma_faults);
    let first = all.saturating_sub(DMA_FAULT_SLOTS as u64);
    let read = |number: u64| {
        let fault = &status.dma_fault[(number % DMA_FAULT_SLOTS as u64) as usize];
        let is_it = || fault.sequence.load(Ordering::Acquire) == number + 1;
        if !is_it() {
            return None;
        }
        let is_read = fault.read.load(Ordering::Relaxed) != 0;
        let refused = RefusedDma {
            stream: fault.stream.load(Ordering::Relaxed),
            access: if is_read { "read" } else { "write" }.to_owned(),
            address: format!("{:#x}", load(&fault.address)),
            event: format!("{:#x}", fault.event.load(Ordering::Relaxed)),
        };
        let cell = fault.cell.load(Ordering::Relaxed);
        // As for a failure.
        std::sync::atomic::fence(Ordering::Acquire);
        is_it().then_some((cell, refused))
    };
    (first..all).filter_map(read).collect()
}
