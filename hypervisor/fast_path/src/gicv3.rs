// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exits of a GICv3: the distributor, the redistributors, and the registers of the CPU interface that trap.

use core::ops::Range;

use rampart_hypervisor_core::gic::{
    ControlRegister, DISTRIBUTOR_BYTES, control_write, distributor, is_route, redistributor,
    redistributor_owner, route, send_sgi,
};
use rampart_hypervisor_core::interface::Exit;
use rampart_hypervisor_core::psci::Caller;
use rampart_hypervisor_core::syndrome::{SystemRegister, guest_address, system};

use crate::devices::Devices;
use crate::exit::{NOT_HANDLED, Owner, advance, decode, finish, load, shared_access};
use crate::registers::Registers;
use crate::{instruction, read_register, write_register};

/// The data for exits of a CPU, besides those of [`Owner`].
#[derive(Debug)]
pub struct Controller {
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

#[inline(always)]
pub(crate) fn data_abort(owner: &Owner, registers: &mut Registers, syndrome: u64) -> u32 {
    let address = guest_address(read_register!("hpfar_el2"), read_register!("far_el2"));
    let offset = address.wrapping_sub(owner.distributor);
    if offset < DISTRIBUTOR_BYTES {
        return if is_route(offset) {
            to_route(owner, registers, syndrome, address)
        } else {
            to_distributor(owner, registers, syndrome, address)
        };
    }
    let offset = address.wrapping_sub(owner.controller.redistributor);
    if offset < owner.controller.redistributor_bytes {
        to_redistributor(owner, registers, syndrome, address, offset, true)
    } else if owner.controller.all_redistributors.contains(&address) {
        to_another_redistributor(owner, registers, syndrome, address)
    } else {
        shared_access(owner, registers, syndrome, address)
    }
}

#[inline(never)]
fn to_another_redistributor(
    owner: &Owner,
    registers: &mut Registers,
    syndrome: u64,
    address: u64,
) -> u32 {
    let frames = owner.controller.redistributor_bytes;
    let Some((cpu, offset)) = redistributor_owner(address, owner.controller.redistributors, frames)
    else {
        return NOT_HANDLED;
    };
    let own = owner.status.cpus[cpu].cell() == owner.cell;
    to_redistributor(owner, registers, syndrome, address, offset, own)
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
    let is_own = |affinity| affinity == owner.controller.affinity || caller.cpu(affinity).is_some();
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
pub(crate) fn system_register(owner: &Owner, registers: &mut Registers, syndrome: u32) -> u32 {
    let access = system(syndrome);
    let value = registers.get(access.general);
    match access.register {
        SystemRegister::Control(register) => {
            owner.counts.count(Exit::InterruptControl);
            let real = read_control(register);
            let (own, private) = (owner.interrupts, owner.private);
            let lowest = owner.controller.lowest_mask;
            if access.read {
                return load(registers, access.general, real);
            }
            if let Some(value) = control_write(register, value, real, own, private, lowest) {
                write_control(register, value);
            }
        }
        // Both are write-only: a read is undefined and does not trap.
        SystemRegister::SendGroup1 => {
            owner.counts.count(Exit::SoftwareInterrupt);
            return send_in_cell(owner, value);
        }
        SystemRegister::SendOther => owner.counts.count(Exit::SoftwareInterrupt),
        // The monitor has the others, and fails the cell for unknown ones.
        _ => return NOT_HANDLED,
    }
    advance()
}

/// Sends an SGI (ICC_SGI1R_EL1) to the cell's own CPUs. Those of the root are the CPUs without a cell.
#[inline(never)]
fn send_in_cell(owner: &Owner, value: u64) -> u32 {
    let all = owner.controller.affinities.iter().zip(&owner.status.cpus);
    let own = all.filter(|(_, cpu)| cpu.cell() == owner.cell);
    let own = own.map(|(affinity, _)| *affinity);
    send_sgi(value, owner.controller.affinity, own, owner.private, |value| {
        // The receiver must see the sender's earlier writes (IHI 0069, 12.1.6).
        instruction!("dsb ish");
        write_register!("s3_0_c12_c11_5", value);
        instruction!("isb");
    });
    advance()
}

/// Reads ICC_PMR_EL1, ICC_CTLR_EL1 or ICC_RPR_EL1. ICC_DIR_EL1 is write-only.
fn read_control(register: ControlRegister) -> u64 {
    match register {
        ControlRegister::PriorityMask => read_register!("s3_0_c4_c6_0"),
        ControlRegister::Control => read_register!("s3_0_c12_c12_4"),
        ControlRegister::RunningPriority => read_register!("s3_0_c12_c11_3"),
        ControlRegister::Deactivate => 0,
    }
}

fn write_control(register: ControlRegister, value: u64) {
    match register {
        ControlRegister::PriorityMask => write_register!("s3_0_c4_c6_0", value),
        ControlRegister::Control => write_register!("s3_0_c12_c12_4", value),
        ControlRegister::Deactivate => write_register!("s3_0_c12_c11_1", value),
        ControlRegister::RunningPriority => {}
    }
    instruction!("isb");
}
