// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest useful program for a cell: takes interrupts of its timer, and reports their number to the root,
//! and the latency of the last one in ticks of the counter.
//!
//! The argument is the period in microseconds; 0 selects 1,000.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, enable, end, read_register, set_shared_word,
    unmask, wait, write_register,
};

/// Default period, in microseconds.
const DEFAULT_PERIOD: u64 = 1000;

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let microseconds = if argument == 0 { DEFAULT_PERIOD } else { argument };
    let ticks = read_register!("cntfrq_el0") * microseconds / 1_000_000;
    // Interrupts are masked until `unmask`, so the handler sees the period.
    write_register!("tpidr_el0", ticks);
    enable(TIMER);
    arm_timer(ticks);
    unmask();
    count(Word::Begun);
    loop {
        wait();
    }
}

/// `now` is the counter when the interrupt was taken.
#[unsafe(no_mangle)]
extern "C" fn cell_exception(now: u64) {
    let interrupt = acknowledge();
    if interrupt == TIMER {
        let due = read_register!("cntv_cval_el0");
        set_shared_word(Word::Result, now.wrapping_sub(due));
        // Relative to the due time, not to now, so that periods do not drift.
        write_register!("cntv_cval_el0", due + read_register!("tpidr_el0"));
        count(Word::Interrupts);
    } else {
        count(Word::Unexpected);
    }
    end(interrupt);
}
