// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings and is rung: one of two neighbours, each of which writes a page that the other reads. The
//! argument is the number of its own bell. At each interrupt of its timer it writes a number and
//! rings: bell 0 of its configuration, the neighbour's, while the order is `First`; bell 1, the
//! root's, while it is `Second`. Where it is rung it looks at what was written: by the neighbour, or by
//! the root (`Third`). The result counts what had not been written by then.
#![no_std]
#![no_main]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    NEIGHBOUR, Order, TIMER, Word, acknowledge, arm_timer, count, enable, enable_shared, end, hvc,
    neighbour, order, tell, told, unmask, wait, write_register,
};
use rampart_hypervisor_core::interface::Hypercall;

const TICKS: u64 = 62_500;
const _: () = assert!(NEIGHBOUR != 0);

static BELL: AtomicU64 = AtomicU64::new(0);
static WRITTEN_BEFORE: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
extern "C" fn cell_main(bell: u64) {
    BELL.store(bell, Relaxed);
    tell(Word::Result, 0);
    tell(Word::Device, 0);
    tell(Word::Exceptions, 0);
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

/// How much the neighbour and the root have written: one more before each ring.
fn written() -> u64 {
    neighbour(Word::Message) + order(Order::Third)
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    let interrupt = acknowledge();
    if interrupt == TIMER {
        write_register!("cntv_tval_el0", TICKS);
        count(Word::Interrupts);
        // What was said before is seen by who is rung: the hypercall is a barrier, and memory is in
        // order without the MMU.
        let bell = if order(Order::First) != 0 {
            Some(0)
        } else if order(Order::Second) > told(Word::Done) {
            Some(1)
        } else {
            None
        };
        if let Some(bell) = bell {
            tell(Word::Message, told(Word::Message) + 1);
            let outcome = hvc(u32::from(Hypercall::Doorbell).into(), bell);
            if outcome != 0 {
                count(Word::Exceptions);
            } else if bell == 1 {
                count(Word::Done);
            }
        }
    } else if interrupt == BELL.load(Relaxed) {
        count(Word::Device);
        // One ring may stand for two, but none for nothing.
        if told(Word::Device) > written() - WRITTEN_BEFORE.load(Relaxed) {
            count(Word::Result);
        }
    } else {
        count(Word::Unexpected);
    }
    end(interrupt);
}
