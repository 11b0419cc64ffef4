// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Owns a device, a PL031 clock (Arm DDI 0224), and takes its interrupts: at each interrupt of the timer the
//! alarm is set to the current second, which raises the interrupt at once. The argument is the address of its registers,
//! and above 48 bits its interrupt.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, enable, enable_shared, end, load, store, unmask,
    wait, write_register,
};

/// Registers.
const DATA: u64 = 0;
const MATCH: u64 = 0x4;
const MASK: u64 = 0x10;
const STATUS: u64 = 0x18;
const CLEAR: u64 = 0x1c;
const TICKS: u64 = 62_500;

/// The argument, for the handler.
static DEVICE: AtomicU64 = AtomicU64::new(0);

/// Returns the address of a register.
fn register(offset: u64) -> u64 {
    (DEVICE.load(Relaxed) & 0xffff_ffff_ffff) + offset
}

fn interrupt_of_device() -> u64 {
    DEVICE.load(Relaxed) >> 48
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    DEVICE.store(argument, Relaxed);
    store(register(CLEAR), 1);
    store(register(MASK), 1);
    enable(TIMER);
    enable_shared(interrupt_of_device(), false);
    arm_timer(TICKS);
    unmask();
    count(Word::Begun);
    loop {
        wait();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    let interrupt = acknowledge();
    match interrupt {
        TIMER => {
            write_register!("cntv_tval_el0", TICKS);
            count(Word::Interrupts);
            store(register(MATCH), load(register(DATA)));
        }
        device if device == interrupt_of_device() => {
            if load(register(STATUS)) & 1 == 1 {
                count(Word::Device);
            } else {
                count(Word::Unexpected);
            }
            store(register(CLEAR), 1);
        }
        _ => count(Word::Unexpected),
    }
    end(interrupt);
}
