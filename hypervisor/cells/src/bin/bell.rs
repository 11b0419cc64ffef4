// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings doorbells and receives rings. Runs in two cells, each of which writes a page that the other reads. The
//! argument is the number of the cell's own doorbell interrupt. At each interrupt of its timer the program writes
//! a number and rings: doorbell 0 of its configuration (the other cell's) if the order is `First`, doorbell 1 (the
//! root's) if it is `Second`. When it receives a ring it checks the number that the other cell, or the root
//! (`Third`), has written. The result counts rings without a new number.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    Order, TIMER, Word, acknowledge, arm_timer, count, enable, enable_shared, end, hvc, order,
    other_cell_word, set_shared_word, shared_word, unmask, wait, write_register,
};
use rampart_hypervisor_core::interface::Hypercall;

const TICKS: u64 = 62_500;

static BELL: AtomicU64 = AtomicU64::new(0);
static WRITTEN_BEFORE: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn cell_main(bell: u64) {
    BELL.store(bell, Relaxed);
    set_shared_word(Word::Result, 0);
    set_shared_word(Word::Device, 0);
    set_shared_word(Word::Exceptions, 0);
    WRITTEN_BEFORE.store(written(), Relaxed);
    enable(TIMER);
    enable_shared(bell, true);
    arm_timer(TICKS);
    unmask();
    count(Word::Begun);
    loop {
        wait();
    }
}

/// Returns the sum of the numbers of the other cell and the root; each adds one before each ring.
fn written() -> u64 {
    other_cell_word(Word::Message) + order(Order::Third)
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    let interrupt = acknowledge();
    if interrupt == TIMER {
        write_register!("cntv_tval_el0", TICKS);
        count(Word::Interrupts);
        // The receiver sees the earlier write: the hypercall is a barrier, and memory is ordered without the
        // MMU.
        let bell = if order(Order::First) != 0 {
            Some(0)
        } else if order(Order::Second) > shared_word(Word::Done) {
            Some(1)
        } else {
            None
        };
        if let Some(bell) = bell {
            set_shared_word(Word::Message, shared_word(Word::Message) + 1);
            let outcome = hvc(u32::from(Hypercall::Doorbell).into(), bell);
            if outcome != 0 {
                count(Word::Exceptions);
            } else if bell == 1 {
                count(Word::Done);
            }
        }
    } else if interrupt == BELL.load(Relaxed) {
        count(Word::Device);
        // Two rings may merge into one interrupt, but there is no interrupt without a ring.
        if shared_word(Word::Device) > written() - WRITTEN_BEFORE.load(Relaxed) {
            count(Word::Result);
        }
    } else {
        count(Word::Unexpected);
    }
    end(interrupt);
}
