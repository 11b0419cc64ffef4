// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Owns a device, a PL031 clock (Arm DDI 0224), and takes its interrupts: at each interrupt of the timer the
//! alarm is set to the current second, which raises the interrupt at once.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, enable, enable_shared, end, load, store, unmask,
    wait, write_register,
};

/// On QEMU's `virt`.
const CLOCK: u64 = 0x0901_0000;
const INTERRUPT: u64 = 34;
const DATA: u64 = CLOCK;
const MATCH: u64 = CLOCK + 0x4;
const MASK: u64 = CLOCK + 0x10;
const STATUS: u64 = CLOCK + 0x18;
const CLEAR: u64 = CLOCK + 0x1c;
const TICKS: u64 = 62_500;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    store(CLEAR, 1);
    store(MASK, 1);
    enable(TIMER);
    enable_shared(INTERRUPT, false);
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
            store(MATCH, load(DATA));
        }
        INTERRUPT => {
            if load(STATUS) & 1 == 1 {
                count(Word::Device);
            } else {
                count(Word::Unexpected);
            }
            store(CLEAR, 1);
        }
        _ => count(Word::Unexpected),
    }
    end(interrupt);
}
