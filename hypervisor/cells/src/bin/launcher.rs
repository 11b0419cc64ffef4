// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Acts as the kernel while instructions are counted. QEMU boots it at EL2. Without a hypervisor it switches to EL1 and
//! runs the program at [`PROGRAM`]. With one it launches it on two CPUs, as `kernel/rampart` does, creates a
//! cell with the second CPU and starts the program in it. Then it sleeps: with `-icount` all CPUs share one
//! counter. Header and configurations are already in memory.
#![no_std]
#![no_main]

use core::arch::{asm, global_asm};
use core::mem::offset_of;

use rampart_hypervisor_cells::{DISTRIBUTOR, load, smc3, store, wait};
use rampart_hypervisor_core::interface::{
    Header, Hypercall, LAUNCH_ENTER, LAUNCH_PREPARE, Outcome,
};

global_asm!(
    include_str!("launcher.s"),
    entry_offset = const offset_of!(Header, entry),
    enter = const LAUNCH_ENTER,
);

/// Physical addresses, as in `benchmarks/src/bin/hypervisor/machine.rs`.
const HYPERVISOR: u64 = 0x7000_0000;
const PROGRAM: u64 = 0x5800_0000;
const PROGRAM_BYTES: u64 = 0x4_0000;
const CONFIGURATION: u64 = 0x5900_0000;
/// Address of the size of the configuration, in bytes; 0 for no hypervisor.
const CONFIGURATION_BYTES: u64 = 0x5a00_0000;
const CELL_MEMORY: u64 = 0x6000_0000;
/// Address of the program without a hypervisor.
const NATIVE_START: u64 = 0x4000_0000;
const REDISTRIBUTORS: u64 = 0x080a_0000;
/// Attempts to create the cell until the second CPU has turned off.
const MAXIMUM_TRIES: u32 = 100_000;
/// PSCI CPU_ON (Arm DEN 0022, 5.6).
const CPU_ON: u64 = 0xc400_0003;

unsafe extern "C" {
    fn launcher_descend();
    fn launcher_second();
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    prepare_interrupts();
    // SAFETY: returns with the same stack and all callee-saved registers.
    unsafe { launcher_descend() }
    let bytes = u64::from(load(CONFIGURATION_BYTES));
    if bytes == 0 {
        copy(PROGRAM, NATIVE_START);
        // SAFETY: a program for this address, which uses no memory of this program.
        unsafe {
            asm!("ic iallu", "isb", "br {}", in(reg) NATIVE_START, in("x0") 0, options(noreturn))
        }
    }
    expect_success("prepare", enter(LAUNCH_PREPARE));
    let second = launcher_second as *const () as u64;
    expect_success("second CPU", smc3(CPU_ON, 1, second, HYPERVISOR) as i64);
    expect_success("enter", enter(LAUNCH_ENTER));
    // Until the second CPU has turned itself off.
    let mut tries = 0;
    let cell = loop {
        let (outcome, cell) = call(Hypercall::CellCreate, CONFIGURATION, bytes);
        tries += 1;
        let retried = [Outcome::CpuInUse, Outcome::Busy].map(|outcome| outcome as i64);
        if !retried.contains(&outcome) || tries == MAXIMUM_TRIES {
            expect_success("create", outcome);
            break cell;
        }
        // With `-icount` the other CPU runs when this one yields.
        // SAFETY: a hint.
        unsafe { asm!("yield", options(nostack)) }
    };
    expect_success("loadable", call(Hypercall::CellLoadable, cell, 0).0);
    copy(PROGRAM, CELL_MEMORY);
    expect_success("start", call(Hypercall::CellStart, cell, 0).0);
    loop {
        wait();
    }
}

/// Configures the controller like Linux: affinity routing, group 1 enabled (GICD_CTLR, Arm IHI 0069, 12.9.4),
/// all interrupts in group 1, redistributors awake.
fn prepare_interrupts() {
    store(DISTRIBUTOR, 0x12);
    for word in 1..8 {
        store(DISTRIBUTOR + 0x80 + 4 * word, u32::MAX);
    }
    for frame in [REDISTRIBUTORS, REDISTRIBUTORS + 0x2_0000] {
        store(frame + 0x14, 0);
        store(frame + 0x1_0080, u32::MAX);
    }
}

fn copy(from: u64, to: u64) {
    for offset in (0..PROGRAM_BYTES).step_by(4) {
        store(to + offset, load(from + offset));
    }
}

/// Calls the stub's HVC_SOFT_RESTART.
fn enter(step: u64) -> i64 {
    // SAFETY: the image's header has the offset of its entry.
    let entry = unsafe { (*(HYPERVISOR as *const Header)).entry } + HYPERVISOR;
    let mut outcome = 1_i64;
    // SAFETY: by interface.rs, x0 to x17 are lost.
    unsafe {
        asm!("hvc #0", inout("x0") outcome, inout("x1") entry => _, inout("x2") HYPERVISOR => _,
            inout("x3") 0_u64 => _, inout("x4") step => _, out("x5") _, out("x6") _, out("x7") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
            out("x14") _, out("x15") _, out("x16") _, out("x17") _);
    }
    outcome
}

/// Makes a hypercall and returns outcome and first result.
fn call(function: Hypercall, first: u64, second: u64) -> (i64, u64) {
    let mut x0 = i64::from(u32::from(function));
    let mut x1 = first;
    // SAFETY: only x0 to x3 change.
    unsafe {
        asm!("hvc #0", inout("x0") x0, inout("x1") x1, inout("x2") second => _, out("x3") _);
    }
    (x0, x1)
}

/// Prints the failed step and ends the machine unless the outcome is success: SYS_WRITEC and SYS_EXIT (Arm
/// semihosting specification, 6.22, 6.9).
fn expect_success(step: &str, outcome: i64) {
    if outcome == 0 {
        return;
    }
    let sign = [b' ', if outcome < 0 { b'-' } else { b'+' }];
    let number = outcome.unsigned_abs();
    let digits = [b'0' + (number / 10 % 10) as u8, b'0' + (number % 10) as u8, b'\n'];
    let text = b"failed ".iter().chain(step.as_bytes()).chain(&sign).chain(&digits);
    for byte in text {
        semihosting(3, core::ptr::from_ref(byte) as u64);
    }
    let block = [0x2_0026_u64, 1];
    semihosting(0x18, block.as_ptr() as u64);
}

fn semihosting(operation: u64, parameter: u64) {
    // SAFETY: the simulator reads what the parameter points to.
    unsafe { asm!("hlt #0xf000", inout("x0") operation => _, in("x1") parameter, options(nostack)) }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    expect_success("exception", 1);
}
