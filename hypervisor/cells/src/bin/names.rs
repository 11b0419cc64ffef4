// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds its regions by their names. With argument 0 it writes an increasing number and its bitwise inverse to
//! the region `greeting`; with 1 it reads `greeting`, which another cell writes, and copies the number to `echo`
//! if the two match. It does nothing if a region is missing or has the wrong writer.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{region, wait};

fn read(address: u64) -> u64 {
    // SAFETY: within a region of the directory.
    unsafe { (address as *const u64).read_volatile() }
}

fn write(address: u64, value: u64) {
    // SAFETY: within a region of the directory that only this cell writes.
    unsafe { (address as *mut u64).write_volatile(value) }
}

fn greet() {
    let Some(greeting) = region("greeting").filter(|region| region.writable) else {
        return;
    };
    for number in 1.. {
        write(greeting.start, number);
        write(greeting.start + 8, !number);
    }
}

fn echo() {
    let greeting = region("greeting").filter(|region| !region.writable);
    let echo = region("echo").filter(|region| region.writable);
    let (Some(greeting), Some(echo)) = (greeting, echo) else {
        return;
    };
    loop {
        let number = read(greeting.start);
        if read(greeting.start + 8) == !number {
            write(echo.start, number);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    if argument == 0 {
        greet();
    } else {
        echo();
    }
    loop {
        wait();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {}
