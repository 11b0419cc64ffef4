// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Acts as the kernel while instructions are counted. QEMU boots it at EL2. Without a hypervisor it switches to EL1 and
//! runs the program at [`PROGRAM`]. With one it launches it on two CPUs, as `kernel/rampart` does, creates a
//! cell with the second CPU and starts the program in it. Then it sleeps: with `-icount` all CPUs share one
//! counter. Header and configurations are already in memory.
#![no_std]
#![no_main]

use core::arch::asm;

use rampart_hypervisor_cells::launch::{
    CPU_ON, HYPERVISOR, descend, enter, launcher_second, prepare_interrupts,
};
use rampart_hypervisor_cells::{load, smc3, store, wait};
use rampart_hypervisor_core::interface::{Hypercall, LAUNCH_ENTER, LAUNCH_PREPARE, Outcome};

/// Physical addresses, as in `benchmarks/src/bin/hypervisor/machine.rs`.
const PROGRAM: u64 = 0x5800_0000;
const PROGRAM_BYTES: u64 = 0x4_0000;
const CONFIGURATION: u64 = 0x5900_0000;
/// Address of the size of the configuration, in bytes; 0 for no hypervisor.
const CONFIGURATION_BYTES: u64 = 0x5a00_0000;
const CELL_MEMORY: u64 = 0x6000_0000;
/// Address of the program without a hypervisor.
const NATIVE_START: u64 = 0x4000_0000;
/// Attempts to create the cell until the second CPU has turned off.
const MAXIMUM_TRIES: u32 = 100_000;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    prepare_interrupts(2);
    descend();
    let bytes = u64::from(load(CONFIGURATION_BYTES));
    if bytes == 0 {
        copy(PROGRAM, NATIVE_START);
        // SAFETY: a program for this address, which uses no memory of this program.
        unsafe {
            asm!("ic iallu", "isb", "br {}", in(reg) NATIVE_START, in("x0") 0, options(noreturn))
        }
    }
    expect_success("prepare", enter(0, LAUNCH_PREPARE));
    let second = launcher_second as *const () as u64;
    expect_success("second CPU", smc3(CPU_ON, 1, second, HYPERVISOR) as i64);
    expect_success("enter", enter(0, LAUNCH_ENTER));
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

fn copy(from: u64, to: u64) {
    for offset in (0..PROGRAM_BYTES).step_by(4) {
        store(to + offset, load(from + offset));
    }
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
