// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest useful program of a cell: takes the interrupt of its timer, and tells the root how often
//! it came and how many ticks of the counter the last one took from the timer to here.
//!
//! The argument of the cell is the period in microseconds, a thousand where it is 0.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{
    TIMER, Word, acknowledge, arm_timer, count, enable, end, read_register, tell, unmask, wait,
    write_register,
};

/// What a period is without an argument, in microseconds.
const USUAL: u64 = 1000;

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let microseconds = if argument == 0 { USUAL } else { argument };
    let ticks = read_register!("cntfrq_el0") * microseconds / 1_000_000;
    // No interrupt comes before `unmask`, so the handler finds the period where it is left.
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
        tell(Word::Result, now.wrapping_sub(due));
        // From the moment that was due, not from now: periods do not drift.
        write_register!("cntv_cval_el0", due + read_register!("tpidr_el0"));
        count(Word::Interrupts);
    } else {
        count(Word::Unexpected);
    }
    end(interrupt);
}
