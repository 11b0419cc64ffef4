// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses that stage 2 does not let through: to the interrupt controller and to shared registers
//! they are served, everything else is a cell's failure and the root's external abort.

use rampart_hypervisor_core::bus::{Access, Forbidden};
use rampart_hypervisor_core::gic::{
    DISTRIBUTOR_BYTES, distributor, redistributor, redistributor_owner,
};
use rampart_hypervisor_core::interface::{Exit, MAXIMUM_CPUS, ROOT, StopReason};
use rampart_hypervisor_core::registers::dispatch;
use rampart_hypervisor_core::stage2::AccessKind;
use rampart_hypervisor_core::syndrome::{Abort, DataAbort, guest_address};

use crate::cpu::Registers;
use crate::exits::{Context, fail};
use crate::gic::Devices;
use crate::guest;
use crate::registers::read_register;
use crate::system::{MANAGER, REGISTER_LOCKS, ROOT_REGISTERS};

/// The address that was meant.
fn address() -> u64 {
    guest_address(read_register!("hpfar_el2"), read_register!("far_el2"))
}

/// What became of an access.
enum Served {
    /// Done; a load gets this value.
    Done(u64),
    /// To be tried again by the guest: what it needs is being changed.
    Again,
    /// No device that is served.
    No,
    /// A device that is served, but not so.
    Forbidden(StopReason),
}

/// Serves a data abort.
pub(crate) fn data(context: &Context<'_>, registers: &mut Registers, abort: &DataAbort) {
    let address = address();
    if abort.abort == Abort::Translation && !abort.maintenance {
        let access = abort.transfer.and_then(|transfer| {
            let value = registers.get(transfer.register);
            let access = transfer.access(address, abort.write, value)?;
            Some((transfer, access))
        });
        if let Some((transfer, access)) = access {
            match serve(context, &access) {
                Served::Done(value) => {
                    if !abort.write {
                        registers.set(transfer.register, transfer.loaded(value));
                    }
                    guest::advance();
                    return;
                }
                Served::Again => return,
                Served::Forbidden(reason) if context.cell != ROOT => {
                    fail(context, registers, reason);
                    return;
                }
                Served::Forbidden(_) | Served::No => {}
            }
        }
    }
    context.count(Exit::DataAbort);
    let (kind, reason) = if abort.write {
        (AccessKind::Write, StopReason::MemoryWrite)
    } else {
        (AccessKind::Read, StopReason::MemoryRead)
    };
    // Cache maintenance by address is allowed where reading is (Arm ARM D7.5.9), and moves nothing.
    let kind = if abort.maintenance {
        AccessKind::Read
    } else {
        kind
    };
    refuse(context, registers, abort.abort, kind, reason);
}

/// Serves an instruction abort.
pub(crate) fn instruction(context: &Context<'_>, registers: &mut Registers, abort: Abort) {
    context.count(Exit::InstructionAbort);
    let (kind, reason) = (AccessKind::Execute, StopReason::MemoryExecute);
    refuse(context, registers, abort, kind, reason);
}

fn refuse(
    context: &Context<'_>,
    registers: &mut Registers,
    abort: Abort,
    kind: AccessKind,
    reason: StopReason,
) {
    let reason = match abort {
        Abort::Translation => reason,
        Abort::TableWalk => StopReason::TranslationTable,
        Abort::External => StopReason::ExternalAbort,
    };
    if abort != Abort::External && may_try_again(context, abort, kind) {
        return;
    }
    if context.cell == ROOT {
        guest::inject_abort(kind == AccessKind::Execute);
    } else {
        fail(context, registers, reason);
    }
}

/// Whether the access is allowed after all: tables that change are broken before they are made anew
/// (Arm ARM D8.17.1). While somebody changes them the guest tries again and again, which is not our
/// waiting.
fn may_try_again(context: &Context<'_>, abort: Abort, kind: AccessKind) -> bool {
    let kind = if abort == Abort::TableWalk {
        AccessKind::Read
    } else {
        kind
    };
    let Some(mut manager) = MANAGER.try_lock() else {
        return true;
    };
    let translation = manager
        .as_mut()
        .and_then(|manager| manager.translation(context.cell));
    translation.is_some_and(|(stage_2, tables)| {
        // A CPU whose memory was taken away is about to be told to park.
        stage_2.is_zapped(context.index) || stage_2.permits(address(), kind, &tables)
    })
}

#[inline]
fn serve(context: &Context<'_>, access: &Access) -> Served {
    let machine = context.machine;
    if access.address.wrapping_sub(machine.distributor) < DISTRIBUTOR_BYTES {
        context.count(Exit::Distributor);
        let interrupts = &context.shared.interrupts;
        let base = machine.distributor;
        return done(
            distributor(base, access, interrupts, &context.caller(), &Devices),
            StopReason::DeviceAccess,
        );
    }
    let frames = &machine.redistributors[..machine.cpu_count()];
    let owner = redistributor_owner(access.address, frames, machine.redistributor_bytes);
    if let Some((cpu, offset)) = owner {
        context.count(Exit::Redistributor);
        let own = machine.status().cpus[cpu].cell() == context.cell;
        return done(
            redistributor(offset, access, own, machine.private(), &Devices),
            StopReason::DeviceAccess,
        );
    }
    shared_register(context, access)
}

fn shared_register(context: &Context<'_>, access: &Access) -> Served {
    if context.cell == ROOT {
        let Some(registers) = ROOT_REGISTERS.try_lock() else {
            return Served::Again;
        };
        if !registers.traps(access.address & !0xfff) {
            return Served::No;
        }
        context.count(Exit::DeviceBits);
        let result = registers.dispatch(access, &REGISTER_LOCKS, &Devices);
        return done(result, StopReason::DeviceForbidden);
    }
    let Some(configuration) = context.shared.configuration() else {
        return Served::No;
    };
    let page = access.address >> 12;
    let registers = configuration.registers;
    if !registers
        .iter()
        .any(|register| register.address >> 12 == page)
    {
        return Served::No;
    }
    context.count(Exit::DeviceBits);
    let result = dispatch(access, registers, &REGISTER_LOCKS, &Devices);
    done(result, StopReason::DeviceForbidden)
}

fn done(result: Result<u64, Forbidden>, reason: StopReason) -> Served {
    match result {
        Ok(value) => Served::Done(value),
        Err(Forbidden) => Served::Forbidden(reason),
    }
}

/// The affinities of the caller's CPUs: an interrupt goes to them alone.
pub(crate) fn own_cpus(context: &Context<'_>) -> ([u64; MAXIMUM_CPUS], usize) {
    let mut own = [0; MAXIMUM_CPUS];
    let mut count = 0;
    let machine = context.machine;
    for (mpidr, cpu) in machine.header.cpus().iter().zip(&machine.status().cpus) {
        if cpu.cell() == context.cell
            && let Some(place) = own.get_mut(count)
        {
            *place = *mpidr;
            count += 1;
        }
    }
    (own, count)
}
