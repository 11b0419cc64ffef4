// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles an exit on the fast path, or leaves it to the monitor.

use core::cell::UnsafeCell;

use rampart_hypervisor_core::bus::{Access, Forbidden};
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::gic::{PrivateMask, SpiSet};
use rampart_hypervisor_core::interface::{CpuStatus, Exit, ROOT, Status};
use rampart_hypervisor_core::psci::constant_result;
use rampart_hypervisor_core::registers::access_shared;
use rampart_hypervisor_core::syndrome::{
    SMC, SYSTEM, Transfer, class, is_transfer, skip_of_aarch32, transfer,
};

use crate::controller::{Controller, data_abort, system_register};
use crate::devices::{Devices, REGISTER_LOCKS};
use crate::registers::Registers;
use crate::{read_register, write_register};

/// The cell that owns a CPU, and the data for handling its exits.
#[derive(Debug)]
pub struct Owner {
    /// The status pages.
    pub status: &'static Status,
    /// The status of this CPU, with its exit counters.
    pub counts: &'static CpuStatus,
    /// The number of the cell.
    pub cell: u32,
    /// The configuration of the cell.
    pub configuration: &'static Configuration<'static>,
    /// The shared interrupts of the cell.
    pub interrupts: &'static SpiSet,
    /// The private interrupts of the cell.
    pub private: PrivateMask,
    /// GICD.
    pub distributor: u64,
    /// The rest of the interrupt controller.
    pub controller: Controller,
}

/// The per-CPU state for exits.
#[derive(Debug)]
#[repr(C)]
pub struct ExitState {
    owner: UnsafeCell<Option<Owner>>,
}

// SAFETY: `owner` is used only by its own CPU.
unsafe impl Sync for ExitState {}

impl ExitState {
    /// Sets the owner of the CPU. With `None` the monitor handles all exits.
    ///
    /// # Safety
    /// Only the CPU that this state belongs to may call it, before it returns to a guest.
    pub unsafe fn set_owner(&self, owner: Option<Owner>) {
        // SAFETY: see above; no reference to the last owner exists between two exits.
        unsafe { *self.owner.get() = owner };
    }
}

/// The exit was handled and the guest continues. The callee-saved registers are unchanged.
pub const HANDLED: u32 = 0;
/// The exit was handled and a callee-saved register was changed.
pub const HANDLED_CALLEE_SAVED: u32 = u32::MAX - 1;
/// The exit was not handled; the monitor handles it.
pub const NOT_HANDLED: u32 = u32::MAX;

/// The access is to a device register of others: the cell fails.
pub const FORBIDDEN: u32 = 1;

/// Called by `vectors.s` for a synchronous exception from a guest. Returns [`HANDLED`],
/// [`HANDLED_CALLEE_SAVED`], [`NOT_HANDLED`] or [`FORBIDDEN`].
#[unsafe(no_mangle)]
extern "C" fn handle_exit_fast(exit_state: &ExitState, registers: &mut Registers) -> u32 {
    // A CPU that is ordered to park does so when it takes the management interrupt, or with its next instruction.
    // SAFETY: only this CPU uses it.
    let Some(owner) = (unsafe { &*exit_state.owner.get() }) else { return NOT_HANDLED };
    let syndrome = read_register!("esr_el2");
    // A match would compare the class of an abort a second time.
    if class(syndrome) == SYSTEM {
        return system_register(owner, registers, syndrome as u32);
    }
    if class(syndrome) == SMC {
        let Some(value) = constant_result(registers.get(0) as u32) else { return NOT_HANDLED };
        owner.counts.count(Exit::Psci);
        return load(registers, 0, value);
    }
    if !is_transfer(syndrome) {
        return NOT_HANDLED;
    }
    if read_register!("spsr_el2") & AARCH32 != 0 {
        return data_abort_of_aarch32(owner, registers, syndrome);
    }
    data_abort(owner, registers, syndrome)
}

/// SPSR_EL2.M: a program of AArch32, which has no SMC, and whose accesses to system registers are not emulated.
const AARCH32: u64 = 1 << 4;

#[cold]
#[inline(never)]
fn data_abort_of_aarch32(owner: &Owner, registers: &mut Registers, syndrome: u64) -> u32 {
    let address = read_register!("elr_el2");
    let done = data_abort(owner, registers, syndrome);
    correct_skip(address);
    done
}

/// After an exit at this address, where an instruction of AArch32 may have been skipped as one of A64.
#[inline(never)]
pub fn correct_skip(address: u64) {
    let state = read_register!("spsr_el2");
    if state & AARCH32 != 0 && read_register!("elr_el2") == address + 4 {
        let (bytes, state) = skip_of_aarch32(read_register!("esr_el2"), state);
        write_register!("elr_el2", address + bytes);
        write_register!("spsr_el2", state);
    }
}

/// Skips the instruction that trapped.
pub(crate) fn advance() -> u32 {
    write_register!("elr_el2", read_register!("elr_el2") + 4);
    HANDLED
}

// Below, each kind of access is a function of its own, entered by a tail call, so that it saves and
// restores only the registers that it needs.

/// Decodes the access. Returns `None` if it is unaligned.
#[inline(always)]
pub fn decode(registers: &Registers, syndrome: u64, address: u64) -> Option<(Transfer, Access)> {
    let transfer = transfer(syndrome);
    let value = registers.get(transfer.register);
    Some((transfer, transfer.access(address, value)?))
}

/// Completes an access that read `value`.
#[inline(always)]
pub fn finish(registers: &mut Registers, transfer: Transfer, value: u64) -> u32 {
    if transfer.write {
        return advance();
    }
    load(registers, transfer.register, transfer.loaded(value))
}

/// Writes a register and skips the instruction.
#[inline(always)]
pub(crate) fn load(registers: &mut Registers, register: u8, value: u64) -> u32 {
    registers.set(register, value);
    let done = advance();
    // Callee-saved registers (AAPCS64, 6.1.1).
    if (19..30).contains(&register) { HANDLED_CALLEE_SAVED } else { done }
}

/// Handles an access to a shared register.
#[inline(always)]
pub(crate) fn shared_access(
    owner: &Owner,
    registers: &mut Registers,
    syndrome: u64,
    address: u64,
) -> u32 {
    // Those of the root are other bits, under a lock: the monitor has them.
    if owner.cell == ROOT { NOT_HANDLED } else { to_shared(owner, registers, syndrome, address) }
}

#[inline(never)]
fn to_shared(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    let own = owner.configuration.registers;
    let Some(result) = access_shared(&access, own, &REGISTER_LOCKS, &Devices) else {
        return NOT_HANDLED;
    };
    owner.counts.count(Exit::DeviceBits);
    match result {
        Ok(value) => finish(registers, transfer, value),
        Err(Forbidden) => FORBIDDEN,
    }
}
