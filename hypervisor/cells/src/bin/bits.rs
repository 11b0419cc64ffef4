// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A PL061 GPIO (Arm DDI 0190) of which the cell has the two highest lines and the root the rest. The
//! result has a bit for each check that was not as it must be. Orders:
//!
//! 1. registers one by one; 2. as many read-modify-writes (`First`) as the root does at the same time;
//! 3. and 4. an interrupt of the cell's own line is made and must outlive what the root does to it.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{Order, Word, count, load, order, store, tell};

const GPIO: u64 = 0x0903_0000;
const DIRECTION: u64 = GPIO + 0x400;
const SENSE: u64 = GPIO + 0x404;
const EVENT: u64 = GPIO + 0x40c;
const RAW_STATUS: u64 = GPIO + 0x414;
const CLEAR: u64 = GPIO + 0x41c;
/// GPIODATA is there 256 times: the address says which lines are meant.
const ALL_DATA: u64 = GPIO + 0x3fc;
const OWN: u32 = 0xc0;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    tell(Word::Result, 0);
    count(Word::Begun);
    let mut wrong = 0_u64;
    for number in 1_u64.. {
        while order(Order::Number) < number {
            core::hint::spin_loop();
        }
        wrong |= match number {
            1 => registers(),
            2 => together(order(Order::First) as u32),
            3 => raise(),
            4 => lower(),
            _ => return,
        };
        tell(Word::Result, wrong);
        tell(Word::Done, number);
    }
}

fn bit(number: u32, right: bool) -> u64 {
    if right { 0 } else { 1 << number }
}

/// The root has set all its lines to outputs that are high before this.
fn registers() -> u64 {
    let mut wrong = bit(0, load(DIRECTION) & !OWN == 0);
    store(DIRECTION, 0xff);
    wrong |= bit(1, load(DIRECTION) == OWN);
    store(ALL_DATA, 0);
    wrong |= bit(2, load(ALL_DATA) == 0);
    store(ALL_DATA, 0xff);
    wrong |= bit(3, load(ALL_DATA) == OWN);
    // One line by its own address: the other stays.
    store(GPIO + (0x40 << 2), 0);
    wrong |= bit(4, load(ALL_DATA) == 0x80);
    store(ALL_DATA, 0);
    // Lines that are all the root's: nothing there.
    wrong
}

/// Others' read-modify-writes of the same registers must lose nothing of this one's, nor the other way
/// round: each looks at its own bits after each write.
fn together(rounds: u32) -> u64 {
    let mut wrong = 0;
    for round in 0..rounds {
        let wanted = (round & 3) << 6;
        let mut value = load(SENSE) & !OWN;
        value |= wanted;
        store(SENSE, value);
        wrong |= bit(8, load(SENSE) == wanted);
        // Through an address of these two lines and of others of the root's.
        let at = GPIO + u64::from(OWN | round & 0x3f) * 4;
        store(at, wanted);
        wrong |= bit(9, load(ALL_DATA) == wanted);
    }
    store(SENSE, 0);
    store(ALL_DATA, 0);
    store(CLEAR, OWN);
    wrong
}

/// Line 7 is sensitive to its low level, which latches an interrupt; the level is then taken away.
fn raise() -> u64 {
    store(EVENT, 0);
    store(SENSE, 0x80);
    store(SENSE, 0);
    bit(16, load(RAW_STATUS) & OWN == 0x80)
}

/// The root has cleared all that it could meanwhile, and has one of its own.
fn lower() -> u64 {
    let wrong = bit(24, load(RAW_STATUS) == 0x80);
    store(CLEAR, 0xff);
    wrong | bit(25, load(RAW_STATUS) == 0)
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
    loop {
        rampart_hypervisor_cells::wait();
    }
}
