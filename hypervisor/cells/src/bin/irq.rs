// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the interrupts of the timer. The argument is the time between two in microseconds.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    TIMER, Word, arm_timer, count, enable, read_register, serve_timer, unmask, wait,
};

static TICKS: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn cell_main(microseconds: u64) {
    TICKS.store(
        read_register!("cntfrq_el0") * microseconds / 1_000_000,
        Relaxed,
    );
    enable(TIMER);
    arm_timer(TICKS.load(Relaxed));
    unmask();
    count(Word::Begun);
    loop {
        wait();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    serve_timer(TICKS.load(Relaxed));
}
