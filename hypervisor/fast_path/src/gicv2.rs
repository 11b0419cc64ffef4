// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exits of a GICv2: the distributor, and GICC_DIR.

use rampart_hypervisor_core::gicv2::{
    DISTRIBUTOR_BYTES, Interfaces, Owned, SEND, deactivate, distributor, send,
};
use rampart_hypervisor_core::interface::{Exit, PAGE_BYTES};
use rampart_hypervisor_core::syndrome::guest_address;

use rampart_hypervisor_core::bus::{Bus, Width};

use crate::devices::Devices;
use crate::exit::{NOT_HANDLED, Owner, decode, finish, shared_access};
use crate::registers::Registers;
use crate::{instruction, read_register};

/// The CPU interfaces.
pub static INTERFACES: Interfaces = Interfaces::none();

/// The data for exits of a CPU, besides those of [`Owner`].
#[derive(Debug)]
pub struct Controller {
    /// The page of GICC_DIR.
    pub deactivation: u64,
    /// The bit of this CPU's interface.
    pub interface: u8,
}

#[inline(always)]
pub(crate) fn data_abort(owner: &Owner, registers: &mut Registers, syndrome: u64) -> u32 {
    let address = guest_address(read_register!("hpfar_el2"), read_register!("far_el2"));
    let offset = address.wrapping_sub(owner.distributor);
    if offset < DISTRIBUTOR_BYTES {
        to_distributor(owner, registers, syndrome, address, offset)
    } else if address.wrapping_sub(owner.controller.deactivation) < PAGE_BYTES {
        to_deactivation(owner, registers, syndrome, address)
    } else {
        shared_access(owner, registers, syndrome, address)
    }
}

#[inline(never)]
fn to_distributor(
    owner: &Owner,
    registers: &mut Registers,
    syndrome: u64,
    address: u64,
    offset: u64,
) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    let cpus = || INTERFACES.of_cell(owner.status, owner.cell);
    if offset == SEND {
        owner.counts.count(Exit::SoftwareInterrupt);
        let value = access.write.filter(|_| access.width == Width::Word);
        let sender = owner.controller.interface;
        if let Some(value) = value.and_then(|value| send(value, sender, cpus(), owner.private)) {
            // The receiver must see the sender's earlier writes.
            instruction!("dsb ish");
            Devices.write(address, Width::Word, value);
        }
        return finish(registers, transfer, 0);
    }
    owner.counts.count(Exit::Distributor);
    let value = distributor(offset, &access, &owned(owner), cpus, &Devices);
    finish(registers, transfer, value)
}

#[inline(never)]
fn to_deactivation(owner: &Owner, registers: &mut Registers, syndrome: u64, address: u64) -> u32 {
    let Some((transfer, access)) = decode(registers, syndrome, address) else { return NOT_HANDLED };
    owner.counts.count(Exit::InterruptControl);
    let value = access.write.filter(|_| address == owner.controller.deactivation);
    if let Some(value) = value.and_then(|value| deactivate(value, &owned(owner))) {
        Devices.write(address, Width::Word, value);
    }
    finish(registers, transfer, 0)
}

fn owned(owner: &Owner) -> Owned<'_> {
    Owned { private: owner.private, shared: owner.interrupts }
}

/// No system register has an effect on the controller.
pub(crate) fn system_register(_: &Owner, _: &mut Registers, _: u32) -> u32 {
    NOT_HANDLED
}
