// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Handles the exits that the fast path does not handle, and faults of the hypervisor itself.

use core::panic::PanicInfo;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};

use rampart_hypervisor_core::interface::{CpuPower, Exit, Outcome, ROOT, StopReason};
use rampart_hypervisor_core::psci::Caller;
use rampart_hypervisor_core::state::{Snapshot, WRITING};
use rampart_hypervisor_core::syndrome::{
    DATA_ABORT, HYPERCALL, INSTRUCTION_ABORT, SMC, SYSTEM, SystemAccess, SystemRegister, WAIT,
    class, system,
};

use rampart_hypervisor_core::gic::LOCK;
use rampart_hypervisor_core::identification::carried;
use rampart_hypervisor_fast_path::{
    FORBIDDEN, REGISTER_LOCKS, ROOT_REGISTERS, correct_skip, holder,
};

use crate::cpu::{Cpu, Registers};
use crate::machine::{MACHINE, Machine};
use crate::manager::{MANAGER, Shared};
use crate::park::park;
use crate::registers::{instruction, now, read_register, write_register};
use crate::{aborts, cells, features, gic, guest, hypercalls, launch, log, root, smc};

/// The CPU and cell of an exit.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) machine: &'static Machine,
    pub(crate) cpu: &'a Cpu,
    /// The index of the CPU.
    pub(crate) index: usize,
    /// The number of its cell.
    pub(crate) cell: u32,
    /// The data of the cell.
    pub(crate) shared: &'static Shared,
}

impl<'a> Context<'a> {
    /// Returns `None` before the launch.
    fn of(cpu: &'a Cpu) -> Option<Self> {
        let machine = MACHINE.get()?;
        let index = cpu.index.load(Relaxed) as usize;
        let cell = machine.status().cpus[index].cell();
        Some(Self { machine, cpu, index, cell, shared: Shared::of(cell) })
    }

    /// Returns the caller for checks of ownership.
    pub(crate) fn caller(&self) -> Caller<'static> {
        Caller { status: self.machine.status(), cell: self.cell }
    }

    /// Counts an exit.
    pub(crate) fn count(&self, exit: Exit) {
        self.machine.status().cpus[self.index].count(exit);
    }
}

/// The kinds of exception, with the numbers of `vectors.s`.
const SYNCHRONOUS: u64 = 0;
const IRQ: u64 = 1;
const FIQ: u64 = 2;

/// Called by `vectors.s`. `result` is that of `handle_exit_fast`, for a synchronous exception.
#[unsafe(no_mangle)]
extern "C" fn handle_exit(registers: &mut Registers, cpu: &Cpu, kind: u64, result: u32) {
    let Some(context) = Context::of(cpu) else { return };
    if context.machine.status().cpus[context.index].cpu_state().power == CpuPower::Parking {
        context.count(if kind == SYNCHRONOUS { Exit::Zapped } else { Exit::Management });
        gic::acknowledge_kick(context.machine, cpu);
        return park(context.machine, cpu, registers);
    }
    match kind {
        SYNCHRONOUS if result == FORBIDDEN => {
            fail(&context, registers, StopReason::DeviceForbidden);
        }
        SYNCHRONOUS => synchronous(&context, registers),
        FIQ => {
            context.count(Exit::Management);
            gic::acknowledge_kick(context.machine, cpu);
        }
        // Not routed to EL2 while a guest runs; a pending interrupt belongs to the guest.
        IRQ => context.count(Exit::Interrupt),
        _ => {
            context.count(Exit::SError);
            fail(&context, registers, StopReason::ExternalAbort);
        }
    }
}

/// Returns whether an undefined instruction is the guest's own concern: of the root, or of a program at EL0.
fn is_injected(context: &Context<'_>) -> bool {
    context.cell == ROOT || read_register!("spsr_el2") & 0xf == 0
}

fn synchronous(context: &Context<'_>, registers: &mut Registers) {
    let syndrome = read_register!("esr_el2");
    match class(syndrome) {
        SYSTEM => system_register(context, registers, &system(syndrome as u32)),
        DATA_ABORT | INSTRUCTION_ABORT => aborts::handle(context, registers, syndrome),
        SMC => smc::handle(context, registers),
        HYPERCALL => {
            context.count(Exit::Hypercall);
            hypercalls::handle(context, registers);
        }
        WAIT => {
            context.count(Exit::Wait);
            // ESR_EL2.TI (Arm ARM D24.2.40) is 0 for WFI alone. The others may end at once.
            if syndrome & 3 == 0 {
                gic::sleep(context.machine, context.cpu);
            }
            guest::advance();
            correct_skip(read_register!("elr_el2") - 4);
        }
        _ => {
            context.count(Exit::Other);
            if is_injected(context) {
                guest::inject_undefined();
            } else {
                fail(context, registers, StopReason::Unexpected);
            }
        }
    }
}

fn system_register(context: &Context<'_>, registers: &mut Registers, access: &SystemAccess) {
    let is_root = context.cell == ROOT;
    let (exit, reason) = match access.register {
        SystemRegister::SetWay => (Exit::SetWay, StopReason::SetWay),
        _ => (Exit::SystemRegister, StopReason::SystemRegister),
    };
    context.count(exit);
    let value = match access.register {
        SystemRegister::Identification { crm, op2 } if access.read => {
            carried(crm, op2, features::read(crm, op2))
        }
        SystemRegister::Group0(value) => value.into(),
        // The OS lock stays open: while it is closed, MDSCR_EL1 can turn on halting debug. Linux opens it on each
        // CPU that it turns on.
        SystemRegister::DebugLock => 0,
        // Skipped, because it would affect other cells' lines. A running kernel does not need it: it is for
        // turning caches off.
        SystemRegister::SetWay if is_root => 0,
        // Linux reads ACTLR_EL1 for each virtual CPU of KVM, and does not expect an exception.
        _ if is_root && access.read => 0,
        _ if is_injected(context) => return guest::inject_undefined(),
        _ => return fail(context, registers, reason),
    };
    if access.read {
        registers.set(access.general, value);
    }
    guest::advance();
}

/// Fails the cell: records the failure, parks this CPU and orders the others to park.
pub(crate) fn fail(context: &Context<'_>, registers: &mut Registers, reason: StopReason) {
    let machine = context.machine;
    let snapshot = Snapshot {
        syndrome: read_register!("esr_el2"),
        virtual_address: read_register!("far_el2"),
        guest_address: aborts::address(),
        program_counter: read_register!("elr_el2"),
        processor_state: read_register!("spsr_el2"),
        registers: *registers.all(),
    };
    let first = machine.status().fail(context.cell, context.index, reason, &snapshot, now());
    if first {
        cells::park_others(machine, context.cell, context.index);
        cells::notify_root(machine);
    }
    park(machine, context.cpu, registers);
}

/// Called by `vectors.s` when the hypervisor itself faults. During the launch, the launch fails. A call of the root
/// returns an error. Otherwise the cell of this CPU fails. The locks that the CPU holds are released; what its call
/// has left undone, `destroy` completes.
#[unsafe(no_mangle)]
extern "C" fn handle_fault(registers: &mut Registers, cpu: &Cpu) {
    let nested = cpu.faulting.swap(1, SeqCst) != 0;
    let holder = holder();
    MANAGER.release(holder);
    ROOT_REGISTERS.release(holder);
    REGISTER_LOCKS.release(holder);
    LOCK.release(holder);
    WRITING.release(holder);
    WRITING.release(cpu.index.load(Relaxed) + 1);
    let context = Context::of(cpu);
    if nested {
        // This CPU cannot be reset for another owner: it gets none any more.
        if let Some(context) = context {
            context.machine.status().cpus[context.index].set_state(context.cell, CpuPower::Gone);
        }
        loop {
            instruction!("wfi");
        }
    }
    log::write_line(
        "fault in the hypervisor: ESR_EL2, FAR_EL2, ELR_EL2",
        &[read_register!("esr_el2"), read_register!("far_el2"), read_register!("elr_el2")],
    );
    launch::abandon_if_launching(cpu);
    root::abandon_leaving(cpu);
    let Some(context) = context else { return };
    let [address, state] = &cpu.caller;
    let address = address.swap(0, SeqCst);
    if address != 0 {
        write_register!("elr_el2", address);
        write_register!("spsr_el2", state.load(SeqCst));
        registers.set(0, Outcome::Faulted as i64 as u64);
        cpu.faulting.store(0, SeqCst);
        return;
    }
    *registers = Registers::ZERO;
    fail(&context, registers, StopReason::Hypervisor);
    cpu.faulting.store(0, SeqCst);
}

/// Turns a panic into an exception of this level, so that both are handled in the same way. Logs the source
/// file and the line, in hexadecimal.
pub(crate) fn panicked(information: &PanicInfo<'_>) -> ! {
    if let Some(location) = information.location() {
        log::write_line(location.file(), &[location.line().into()]);
    }
    loop {
        instruction!("brk #0");
    }
}
