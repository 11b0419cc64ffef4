// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of EL1 and EL0 of a CPU: wiped after one owner, set up for the next.

use core::sync::atomic::Ordering::Relaxed;

use rampart_hypervisor_core::interface::ROOT;

use rampart_hypervisor_fast_path::Owner;

use crate::cpu::{Cpu, Registers};
use crate::features;
use crate::machine::Machine;
use crate::manager::Shared;
use crate::registers::{
    hypervisor_control as hcr, instruction, read_register, synchronise, write_register,
};
use crate::{gic, stage2_memory};

/// SPSR_EL2 (Arm ARM C5.2.19): EL1 with SP_EL1, all exceptions masked.
const AT_START: u64 = 0x3c5;
/// PSTATE.PAN in SPSR_EL2, if SCTLR_EL1.SPAN can be 0 at all.
const PAN: u64 = 1 << 22;
/// SCTLR_EL1 (D24.2.148): bits that are 1 without their feature; MMU and caches off.
const SYSTEM_CONTROL_AT_START: u64 = 0x30d0_0800;

/// HCR_EL2 for the root and for cells.
const FOR_ALL: u64 = hcr::STAGE_2
    | hcr::AARCH64
    | hcr::TRAP_SMC
    | hcr::TRAP_IMPLEMENTATION
    | hcr::TRAP_AUXILIARY
    | hcr::TRAP_SET_WAY;

/// Sets the owner for this CPU's exits.
fn set_owner(machine: &'static Machine, cpu: &Cpu, cell: u32) {
    let index = cpu.index.load(Relaxed) as usize;
    let shared = Shared::of(cell);
    let status = machine.status();
    let owner = shared.configuration().map(|configuration| Owner {
        status,
        counts: &status.cpus[index],
        cell,
        configuration,
        interrupts: &shared.interrupts,
        private: machine.private(),
        distributor: machine.distributor,
        controller: gic::of_owner(machine, index),
    });
    // SAFETY: this is the CPU's own code at EL2, on its way to a guest.
    unsafe { cpu.exit_state.set_owner(owner) }
}

/// Configures the traps and stage 2 for this cell on the CPU.
pub(crate) fn configure_traps(machine: &'static Machine, cpu: &Cpu, cell: u32) {
    set_owner(machine, cpu, cell);
    let unmaskable = if machine.controller.unmaskable { hcr::FIQ } else { 0 };
    let control = if cell == ROOT {
        features::show(cpu);
        // Linux's value plus stage 2. Linux takes its SErrors itself.
        let taken = hcr::GENERAL_EXCEPTIONS | hcr::HOST | hcr::IRQ | hcr::FIQ | hcr::SERROR;
        let linux = cpu.linux_hypervisor_control.load(Relaxed) & !taken;
        linux | FOR_ALL | unmaskable
    } else {
        features::hide();
        FOR_ALL
            | hcr::SET_WAY_CLEANS
            | hcr::SERROR
            | hcr::TRAP_IDENTIFICATION
            | hcr::TRAP_ERRORS
            | hcr::POINTER_AUTHENTICATION
            // If the management interrupt can be masked, a sleeping CPU could not be woken.
            | if machine.controller.unmaskable { hcr::FIQ } else { hcr::TRAP_WAIT }
    };
    write_register!("hcr_el2", control);
    gic::configure_traps();
    write_register!("vtcr_el2", translation_control(machine));
    let root = cpu.translation.load(Relaxed);
    write_register!("vttbr_el2", stage2_memory::base(root, cell));
    synchronise();
    instruction!("tlbi vmalls12e1", "ic iallu", "dsb nsh", "isb");
}

/// VTCR_EL2 (D24.2.185): tables in normal write-back memory, inner shareable, of 4 KiB, from level 1; all
/// physical address bits of the CPU.
fn translation_control(machine: &Machine) -> u64 {
    const TABLES: u64 = 1 << 31 | 3 << 12 | 1 << 10 | 1 << 8 | 1 << 6;
    let physical = read_register!("id_aa64mmfr0_el1") & 7;
    TABLES | physical << 16 | u64::from(64 - machine.address_bits)
}

/// Clears the registers of the last owner, and disables its timers, debug and counters.
pub(crate) fn wipe() {
    features::end();
    features::hide();
    // CNTP_CTL_EL0 and CNTV_CTL_EL0 (D24.10.14, D24.10.25); CNTVOFF_EL2 is 0 for all cells.
    write_register!("cntp_ctl_el0", 0);
    write_register!("cntv_ctl_el0", 0);
    write_register!("sctlr_el1", SYSTEM_CONTROL_AT_START);
    // SAFETY: these registers affect only EL1 and EL0.
    unsafe {
        core::arch::asm!(
            concat!(
                ".irp name, ttbr0_el1, ttbr1_el1, tcr_el1, mair_el1, amair_el1, vbar_el1, ",
                "contextidr_el1, cpacr_el1, csselr_el1, esr_el1, far_el1, afsr0_el1, afsr1_el1, ",
                "par_el1, elr_el1, spsr_el1, sp_el0, sp_el1, tpidr_el0, tpidrro_el0, tpidr_el1, ",
                "cntp_cval_el0, cntv_cval_el0, cntkctl_el1, mdccint_el1, osdlr_el1"
            ),
            "msr \\name, xzr",
            ".endr",
            options(nomem, nostack)
        );
    }
    wipe_debug();
    // ID_AA64DFR0_EL1.PMUVer: PMCR_EL0.P, .C and .D reset the counters; none counts or interrupts.
    if features::has_counters() {
        write_register!("pmcntenclr_el0", 0xffff_ffff);
        write_register!("pmintenclr_el1", 0xffff_ffff);
        write_register!("pmovsclr_el0", 0xffff_ffff);
        write_register!("pmuserenr_el0", 0);
        write_register!("pmcr_el0", 0b110);
        write_register!("pmccfiltr_el0", 0);
        // PMCR_EL0.N counters, one after the other by PMSELR_EL0 (D24.5.10).
        for counter in 0..read_register!("pmcr_el0") >> 11 & 0x1f {
            write_register!("pmselr_el0", counter);
            synchronise();
            write_register!("pmxevtyper_el0", 0);
            write_register!("pmxevcntr_el0", 0);
        }
        write_register!("pmselr_el0", 0);
    }
    wipe_vectors();
    synchronise();
}

/// Clears halting debug, single step, breakpoints and watchpoints (D24.3). The numbers of the latter are
/// ID_AA64DFR0_EL1.BRPs and .WRPs plus one.
fn wipe_debug() {
    // MDSCR_EL1.HDE, with which HLT stops the CPU for ever, is writable only while the OS lock is closed.
    write_register!("oslar_el1", 1);
    instruction!("isb", "msr mdscr_el1, xzr", "isb", "msr oslar_el1, xzr");
    let features = read_register!("id_aa64dfr0_el1");
    macro_rules! clear {
        ($kind:literal, $last:expr) => {
            // SAFETY: the monitor does not use these registers; unimplemented ones are skipped.
            unsafe {
                core::arch::asm!(
                    // Two instructions per number, the highest number first.
                    "adr {at}, 2f",
                    "add {at}, {at}, {missing}, lsl #3",
                    "br {at}",
                    "2:",
                    ".irp number, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0",
                    concat!("msr dbg", $kind, "cr\\number\\()_el1, xzr"),
                    concat!("msr dbg", $kind, "vr\\number\\()_el1, xzr"),
                    ".endr",
                    at = out(reg) _, missing = in(reg) 15 - ($last),
                    options(nomem, nostack)
                );
            }
        };
    }
    clear!("b", features >> 12 & 0xf);
    clear!("w", features >> 20 & 0xf);
}

/// Clears V0 to V31, FPCR and FPSR.
fn wipe_vectors() {
    // SAFETY: the monitor never uses these registers: its target is soft-float.
    unsafe {
        core::arch::asm!(
            ".arch_extension simd",
            ".irp number, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15",
            "movi v\\number\\().2d, #0",
            ".endr",
            ".irp number, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "movi v\\number\\().2d, #0",
            ".endr",
            "msr fpcr, xzr",
            "msr fpsr, xzr",
            ".arch_extension nosimd",
            options(nomem, nostack)
        );
    }
}

/// Sets the registers with which the CPU enters the guest.
pub(crate) fn set_start_state(registers: &mut Registers, entry: u64, argument: u64) {
    *registers = Registers::ZERO;
    registers.set(0, argument);
    write_register!("elr_el2", entry);
    write_register!("spsr_el2", AT_START);
}

/// Skips the instruction that trapped.
pub(crate) fn advance() {
    write_register!("elr_el2", read_register!("elr_el2") + 4);
}

/// Injects an external abort into the root for an access to memory that is not its own, as on a machine
/// without memory at that address (Arm ARM D1.3.5, "Synchronous exception entry").
pub(crate) fn inject_abort(instruction: bool) {
    let state = read_register!("spsr_el2");
    let from_el1 = state & 0xc == 4;
    // Exception class: abort from the same level or a lower one (ESR_EL1, D24.2.40); IL; DFSC or
    // IFSC 0x10, a synchronous external abort.
    let class = 0x20 | u64::from(!instruction) << 2 | u64::from(from_el1);
    inject(class << 26 | 1 << 25 | 0x10, state);
}

/// Injects an undefined-instruction exception (exception class 0) into the root.
pub(crate) fn inject_undefined() {
    inject(1 << 25, read_register!("spsr_el2"));
}

fn inject(syndrome: u64, state: u64) {
    let offset = match state & 0x1f {
        // EL1 with SP_EL0, EL1 with its own, EL0, AArch32 EL0.
        0x4 => 0,
        0x5 => 0x200,
        0x0 => 0x400,
        _ => 0x600,
    };
    write_register!("esr_el1", syndrome);
    write_register!("far_el1", read_register!("far_el2"));
    write_register!("elr_el1", read_register!("elr_el2"));
    write_register!("spsr_el1", state);
    write_register!("elr_el2", read_register!("vbar_el1") + offset);
    // PSTATE.PAN is set unless SCTLR_EL1.SPAN is 1, the other fields are those of an exception entry.
    write_register!("spsr_el2", AT_START | (state | !read_register!("sctlr_el1") >> 1) & PAN);
}
