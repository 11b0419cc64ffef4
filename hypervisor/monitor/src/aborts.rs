// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stage-2 aborts that the fast path does not handle: a cell fails, the root takes an external abort.

use core::arch::asm;

use rampart_hypervisor_core::interface::{Exit, ROOT, StopReason};
use rampart_hypervisor_core::stage2::AccessKind;
use rampart_hypervisor_core::syndrome::{
    Abort, INSTRUCTION_ABORT, abort, class, guest_address, is_maintenance, is_permission_fault,
    is_transfer, is_write,
};
use rampart_hypervisor_fast_path::{Devices, REGISTER_LOCKS, ROOT_REGISTERS, decode, finish};

use crate::cpu::Registers;
use crate::exits::{Context, fail};
use crate::manager::MANAGER;
use crate::registers::{read_register, write_register};
use crate::{guest, smmu};

/// Returns the guest address of the latest abort. After a permission fault it is FAR_EL2 translated by the
/// cell's own tables; the page is 0 if they do not permit EL1 to read it.
pub(crate) fn address() -> u64 {
    let far = read_register!("far_el2");
    if !is_permission_fault(read_register!("esr_el2")) {
        return guest_address(read_register!("hpfar_el2"), far);
    }
    let saved = read_register!("par_el1");
    // SAFETY: translates by the tables of EL1 into PAR_EL1, which is restored (Arm ARM C5.5, D24.2.131).
    unsafe { asm!("at s1e1r, {}", "isb", in(reg) far, options(nostack)) };
    let result = read_register!("par_el1");
    write_register!("par_el1", saved);
    let page = if result & 1 == 0 { result >> 12 << 4 } else { 0 };
    guest_address(page, far)
}

/// Handles an abort that is not an emulated register access, or a forbidden one.
pub(crate) fn handle(context: &Context<'_>, registers: &mut Registers, syndrome: u64) {
    let (executes, cause) = (class(syndrome) == INSTRUCTION_ABORT, abort(syndrome));
    if !executes && context.cell == ROOT && to_shared_of_root(context, registers) {
        return;
    }
    let (exit, kind, reason) = if executes {
        (Exit::InstructionAbort, AccessKind::Execute, StopReason::MemoryExecute)
    } else if is_write(syndrome) {
        (Exit::DataAbort, AccessKind::Write, StopReason::MemoryWrite)
    } else {
        (Exit::DataAbort, AccessKind::Read, StopReason::MemoryRead)
    };
    context.count(exit);
    let (reason, needed) = match cause {
        // Cache maintenance by address needs the permission to read (Arm ARM D7.5.9) and transfers no data.
        Abort::Translation if !executes && is_maintenance(syndrome) => (reason, AccessKind::Read),
        Abort::Translation => (reason, kind),
        Abort::TableWalk => (StopReason::TranslationTable, AccessKind::Read),
        Abort::External => (StopReason::ExternalAbort, kind),
    };
    if context.cell != ROOT {
        fail(context, registers, reason);
    } else if cause == Abort::External || !is_interim(needed) {
        guest::inject_abort(executes);
    }
}

/// Makes an access of the root to a shared register. Returns `false` if it is none, or forbidden.
fn to_shared_of_root(context: &Context<'_>, registers: &mut Registers) -> bool {
    let syndrome = read_register!("esr_el2");
    let address = guest_address(read_register!("hpfar_el2"), read_register!("far_el2"));
    let decoded = decode(registers, syndrome, address).filter(|_| is_transfer(syndrome));
    let Some((transfer, access)) = decoded else { return false };
    // The lock is held while cells are created or destroyed: the root retries.
    let Some(left) = ROOT_REGISTERS.try_lock() else { return true };
    let result = smmu::root_access(&access).map(Ok);
    let result = result.or_else(|| left.access_shared(&access, &REGISTER_LOCKS, &Devices));
    let Some(Ok(value)) = result else { return false };
    context.count(Exit::DeviceBits);
    finish(registers, transfer, value);
    true
}

/// Returns whether the root should retry the access, because it only hit a table update (break before
/// make, Arm ARM D8.17.1). The root retries until the update is complete; EL2 does not wait. The tables of a cell
/// change only while none of its CPUs runs.
fn is_interim(kind: AccessKind) -> bool {
    // No update refuses what it permitted: also a walk that writes a table, and may only read it, does not succeed later.
    if read_register!("esr_el2") & 0x3c == 0x0c {
        return false;
    }
    let Some(mut manager) = MANAGER.try_lock() else { return true };
    let translation = manager.as_mut().and_then(|manager| manager.root().ok());
    translation.is_some_and(|(stage_2, tables)| stage_2.permits(address(), kind, &tables))
}
