// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses that stage 2 does not let through and that are not served (`rampart-hypervisor-served`): a
//! cell's failure and the root's external abort.

use rampart_hypervisor_core::interface::{Exit, ROOT, StopReason};
use rampart_hypervisor_core::stage2::AccessKind;
use rampart_hypervisor_core::syndrome::{Abort, DataAbort, guest_address};

use crate::cpu::Registers;
use crate::exits::{Context, fail};
use crate::guest;
use crate::registers::read_register;
use crate::system::MANAGER;

/// The address that was meant.
fn address() -> u64 {
    guest_address(read_register!("hpfar_el2"), read_register!("far_el2"))
}

/// Serves a data abort that is no access to a register, or one that is forbidden.
pub(crate) fn data(context: &Context<'_>, registers: &mut Registers, abort: &DataAbort) {
    context.count(Exit::DataAbort);
    let (kind, reason) = if abort.write {
        (AccessKind::Write, StopReason::MemoryWrite)
    } else {
        (AccessKind::Read, StopReason::MemoryRead)
    };
    // Cache maintenance by address is allowed where reading is (Arm ARM D7.5.9), and moves nothing.
    let kind = if abort.maintenance { AccessKind::Read } else { kind };
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
    let kind = if abort == Abort::TableWalk { AccessKind::Read } else { kind };
    let Some(mut manager) = MANAGER.try_lock() else {
        return true;
    };
    let translation = manager.as_mut().and_then(|manager| manager.translation(context.cell));
    translation.is_some_and(|(stage_2, tables)| {
        // A CPU whose memory was taken away is about to be told to park.
        stage_2.is_zapped(context.index) || stage_2.permits(address(), kind, &tables)
    })
}
