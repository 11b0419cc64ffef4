// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles an exit on the fast path, or leaves it to the monitor.

use core::cell::UnsafeCell;
use core::ops::Range;

use rampart_hypervisor_core::bus::{Access, Forbidden};
use rampart_hypervisor_core::configuration::Configuration;
use rampart_hypervisor_core::gic::{
    ControlRegister, DISTRIBUTOR_BYTES, PrivateMask, SpiSet, control_read, control_write,
    distributor, is_route, redistributor, redistributor_owner, route, send_sgi,
};
use rampart_hypervisor_core::interface::{CpuStatus, Exit, ROOT, Status, StopReason};
use rampart_hypervisor_core::psci::{Caller, constant_result};
use rampart_hypervisor_core::registers::access_shared;
use rampart_hypervisor_core::syndrome::{
    DATA_ABORT, SMC, SYSTEM, SystemRegister, Transfer, class, guest_address, is_transfer, system,
    transfer,
};

use crate::devices::{Devices, REGISTER_LOCKS, ROOT_REGISTERS};
use crate::registers::Registers;
use crate::{instruction, read_register, write_register};

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
    /// GICR of this CPU.
    pub redistributor: u64,
    /// The range of all GICR frames.
    pub all_redistributors: Range<u64>,
    /// GICR of each CPU, by its index.
    pub redistributors: &'static [u64],
    /// Size of the frames of one CPU, in bytes.
    pub redistributor_bytes: u64,
    /// The affinity of each CPU, by its index.
    pub affinities: &'static [u64],
    /// The affinity of this CPU.
    pub affinity: u64,
    /// The minimum of ICC_PMR_EL1.
    pub lowest_mask: u8,
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

/// Called by `vectors.s` for a synchronous exception from a guest. Returns [`HANDLED`],
/// [`HANDLED_CALLEE_SAVED`], [`NOT_HANDLED`], or the [`StopReason`] with which the cell fails.
#[unsafe(no_mangle)]
extern "C" fn handle_exit_fast(registers: &mut Registers, exit_state: &ExitState) -> u32 {
    // A CPU that is ordered to park does so when it takes the management interrupt, or with its next instruction.
    // SAFETY: only this CPU uses it.
    let Some(owner) = (unsafe { &*exit_state.owner.get() }) else { return NOT_HANDLED };
    let syndrome = read_register!("esr_el2");
    match class(syndrome) {
        DATA_ABORT if is_transfer(syndrome) => data_abort(owner, registers, syndrome),
        SYSTEM => system_register(owner, registers, syndrome as u32),
        SMC => match constant_result(registers.get(0) as u32) {
            Some(value) => {
                owner.counts.count(Exit::Psci);
                registers.set(0, value);
                advance()
            }
            None => NOT_HANDLED,
        },
        _ => NOT_HANDLED,
    }
}

/// Skips the instruction that trapped.
fn advance() -> u32 {
    write_register!("elr_el2", read_register!("elr_el2") + 4);
    HANDLED
}

// Below, each kind of access is a function of its own, entered by a tail call, so that it saves and
// restores only the registers that it needs.

fn data_abort(owner: &Owner, registers: &mut Registers, syndrome: u64) -> u32 {
    let address = guest_address(read_register!("hpfar_el2"), read_register!("far_el2"));
    let offset = address.wrapping_sub(owner.distributor);
    if offset < DISTRIBUTOR_BYTES {
        return if is_route(offset) {
            to_route(owner, registers, syndrome, address)
        } else {
            to_distributor(owner, registers, syndrome, address)
        };
    }
    let offset = address.wrapping_sub(owner.redistributor);
    if offset < owner.redistributor_bytes {
        to_redistributor(owner, registers, syndrome, address, offset, true)
    } else {
        other_access(owner, registers, syndrome, address)
    }
}

/// Handles an access to another CPU's redistributor or to a shared register.
#[inline(always)]
fn other_access(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    if owner.all_redistributors.contains(&address) {
        to_another_redistributor(owner, registers, syndrome, address)
    } else if owner.cell == ROOT {
        to_shared_of_root(owner, registers, syndrome, address)
    } else {
        to_shared(owner, registers, syndrome, address)
    }
}

#[inline(never)]
fn to_another_redistributor(
    owner: &Owner,
    registers: &mut Registers,
    syndrome: u64,
    address: u64,
) -> u32 {
    let frames = owner.redistributor_bytes;
    let Some((cpu, offset)) = redistributor_owner(address, owner.redistributors, frames) else {
        return NOT_HANDLED;
    };
    let own = owner.status.cpus[cpu].cell() == owner.cell;
    to_redistributor(owner, registers, syndrome, address, offset, own)
}

/// Decodes the access. Returns `None` if it is unaligned.
#[inline(always)]
fn decode(registers: &Registers, syndrome: u64, address: u64) -> Option<(Transfer, Access)> {
    let transfer = transfer(syndrome);
    let value = registers.get(transfer.register);
    Some((transfer, transfer.access(address, value)?))
}

/// Completes an access that read `value`.
#[inline(always)]
fn finish(registers: &mut Registers, transfer: Transfer, value: u64) -> u32 {
    if transfer.write {
        return advance();
    }
    load(registers, transfer.register, transfer.loaded(value))
}

/// Writes a register and skips the instruction.
#[inline(always)]
fn load(registers: &mut Registers, register: u8, value: u64) -> u32 {
    registers.set(register, value);
    let done = advance();
    // Callee-saved registers (AAPCS64, 6.1.1).
    if (19..30).contains(&register) { HANDLED_CALLEE_SAVED } else { done }
}

#[inline(never)]
fn to_distributor(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    owner.counts.count(Exit::Distributor);
    let offset = address - owner.distributor;
    let value = distributor(offset, &access, owner.interrupts, &Devices);
    finish(registers, transfer, value)
}

#[inline(never)]
fn to_route(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    owner.counts.count(Exit::Distributor);
    let offset = address - owner.distributor;
    // The target is usually this CPU.
    let caller = Caller { status: owner.status, cell: owner.cell };
    let is_own = |affinity| affinity == owner.affinity || caller.cpu(affinity).is_some();
    let value = route(offset, &access, owner.interrupts, is_own, &Devices);
    finish(registers, transfer, value)
}

#[inline(never)]
fn to_redistributor(
    owner: &Owner,
    registers: &mut Registers,
    syndrome: u64,
    address: u64,
    offset: u64,
    own: bool,
) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    owner.counts.count(Exit::Redistributor);
    let value = redistributor(offset, &access, own, owner.private, &Devices);
    finish(registers, transfer, value)
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
        Err(Forbidden) => StopReason::DeviceForbidden as u32,
    }
}

#[inline(never)]
fn to_shared_of_root(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    // The lock is held while cells are created or destroyed: the root retries.
    let Some(left) = ROOT_REGISTERS.try_lock() else { return HANDLED };
    let Some(result) = left.access_shared(&access, &REGISTER_LOCKS, &Devices) else {
        return NOT_HANDLED;
    };
    owner.counts.count(Exit::DeviceBits);
    // The monitor injects an external abort into the root for a forbidden access.
    result.map_or(NOT_HANDLED, |value| finish(registers, transfer, value))
}

#[inline(never)]
fn system_register(owner: &Owner, registers: &mut Registers, syndrome: u32) -> u32 {
    let access = system(syndrome);
    let value = registers.get(access.general);
    match access.register {
        SystemRegister::Control(register) => {
            owner.counts.count(Exit::InterruptControl);
            let real = read_control(register);
            let (interrupts, private) = (owner.interrupts, owner.private);
            if access.read {
                return load(registers, access.general, control_read(register, real));
            } else if let Some(value) =
                control_write(register, value, real, interrupts, private, owner.lowest_mask)
            {
                write_control(register, value);
            }
        }
        SystemRegister::SendGroup1 => {
            owner.counts.count(Exit::SoftwareInterrupt);
            if !access.read {
                return send_in_cell(owner, value);
            }
        }
        SystemRegister::SendOther => owner.counts.count(Exit::SoftwareInterrupt),
        SystemRegister::SetWay
        | SystemRegister::DebugLock
        | SystemRegister::Identification { .. }
        | SystemRegister::Unknown(_) => return NOT_HANDLED,
    }
    advance()
}

/// Sends an SGI (ICC_SGI1R_EL1) to the cell's own CPUs. Those of the root are the CPUs without a cell.
#[inline(never)]
fn send_in_cell(owner: &Owner, value: u64) -> u32 {
    let all = owner.affinities.iter().zip(&owner.status.cpus);
    let own = all.filter(|(_, cpu)| cpu.cell() == owner.cell);
    let own = own.map(|(affinity, _)| *affinity);
    send_sgi(value, owner.affinity, own, owner.private, |value| {
        // The receiver must see the sender's earlier writes (IHI 0069, 12.1.6).
        instruction!("dsb ish");
        write_register!("s3_0_c12_c11_5", value);
        instruction!("isb");
    });
    advance()
}

/// Reads ICC_PMR_EL1, ICC_CTLR_EL1 or ICC_RPR_EL1. ICC_DIR_EL1 is write-only, and the registers of group 0
/// belong to the firmware or the hypervisor.
fn read_control(register: ControlRegister) -> u64 {
    match register {
        ControlRegister::PriorityMask => read_register!("s3_0_c4_c6_0"),
        ControlRegister::Control => read_register!("s3_0_c12_c12_4"),
        ControlRegister::RunningPriority => read_register!("s3_0_c12_c11_3"),
        ControlRegister::Deactivate | ControlRegister::Group0Pending | ControlRegister::Group0 => 0,
    }
}

fn write_control(register: ControlRegister, value: u64) {
    match register {
        ControlRegister::PriorityMask => write_register!("s3_0_c4_c6_0", value),
        ControlRegister::Control => write_register!("s3_0_c12_c12_4", value),
        ControlRegister::Deactivate => write_register!("s3_0_c12_c11_1", value),
        ControlRegister::RunningPriority
        | ControlRegister::Group0Pending
        | ControlRegister::Group0 => {}
    }
    instruction!("isb");
}
