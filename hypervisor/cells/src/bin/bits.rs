// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares a PL061 GPIO (Arm DDI 0190), whose address is the argument: the cell has the two highest lines, the root the
//! others. The result has a bit for each failed check. Orders:
//!
//! 1. tests registers one by one; 2. makes `First` read-modify-writes, concurrently with the root; 3. latches an
//!    interrupt of the cell's line; 4. checks that the root could not clear it.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{Order, Word, count, load, order, set_shared_word, store};

const DIRECTION: u64 = 0x400;
const SENSE: u64 = 0x404;
const EVENT: u64 = 0x40c;
const RAW_STATUS: u64 = 0x414;
const CLEAR: u64 = 0x41c;
/// GPIODATA has 256 addresses: the address selects the lines.
const ALL_DATA: u64 = 0x3fc;
const OWN: u32 = 0xc0;

/// The registers.
#[derive(Clone, Copy)]
struct Gpio(u64);

impl Gpio {
    fn load(self, register: u64) -> u32 {
        load(self.0 + register)
    }

    fn store(self, register: u64, value: u32) {
        store(self.0 + register, value);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let gpio = Gpio(argument);
    set_shared_word(Word::Result, 0);
    count(Word::Begun);
    let mut wrong = 0_u64;
    for number in 1_u64.. {
        while order(Order::Number) < number {
            core::hint::spin_loop();
        }
        wrong |= match number {
            1 => test_registers(gpio),
            2 => write_concurrently(gpio, order(Order::First) as u32),
            3 => latch_interrupt(gpio),
            4 => check_latched_interrupt(gpio),
            _ => return,
        };
        set_shared_word(Word::Result, wrong);
        set_shared_word(Word::Done, number);
    }
}

/// Returns the bit of a check: set if the check failed.
fn bit(number: u32, passed: bool) -> u64 {
    if passed { 0 } else { 1 << number }
}

/// Tests each register. The root has already set all its lines to outputs that are high.
fn test_registers(gpio: Gpio) -> u64 {
    let mut wrong = bit(0, gpio.load(DIRECTION) & !OWN == 0);
    gpio.store(DIRECTION, 0xff);
    wrong |= bit(1, gpio.load(DIRECTION) == OWN);
    gpio.store(ALL_DATA, 0);
    wrong |= bit(2, gpio.load(ALL_DATA) == 0);
    gpio.store(ALL_DATA, 0xff);
    wrong |= bit(3, gpio.load(ALL_DATA) == OWN);
    // Writing one line by its own address does not change the other.
    gpio.store(0x40 << 2, 0);
    wrong |= bit(4, gpio.load(ALL_DATA) == 0x80);
    gpio.store(ALL_DATA, 0);
    wrong
}

/// Makes read-modify-writes concurrently with the root. Neither side may lose an update: each checks its own
/// bits after each write.
fn write_concurrently(gpio: Gpio, rounds: u32) -> u64 {
    let mut wrong = 0;
    for round in 0..rounds {
        let wanted = (round & 3) << 6;
        let mut value = gpio.load(SENSE) & !OWN;
        value |= wanted;
        gpio.store(SENSE, value);
        wrong |= bit(8, gpio.load(SENSE) == wanted);
        // By an address that selects these two lines and lines of the root.
        let at = u64::from(OWN | round & 0x3f) * 4;
        gpio.store(at, wanted);
        wrong |= bit(9, gpio.load(ALL_DATA) == wanted);
    }
    gpio.store(SENSE, 0);
    gpio.store(ALL_DATA, 0);
    gpio.store(CLEAR, OWN);
    wrong
}

/// Latches an interrupt by the low level of line 7, then removes the level.
fn latch_interrupt(gpio: Gpio) -> u64 {
    gpio.store(EVENT, 0);
    gpio.store(SENSE, 0x80);
    gpio.store(SENSE, 0);
    bit(16, gpio.load(RAW_STATUS) & OWN == 0x80)
}

/// Checks the latched interrupt after the root has cleared every bit that it can, and has raised an interrupt
/// of its own.
fn check_latched_interrupt(gpio: Gpio) -> u64 {
    let wrong = bit(24, gpio.load(RAW_STATUS) == 0x80);
    gpio.store(CLEAR, 0xff);
    wrong | bit(25, gpio.load(RAW_STATUS) == 0)
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
    loop {
        rampart_hypervisor_cells::wait();
    }
}
