// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An attack on the root's service of clocks (SCMI, `kernel/rampart/scmi.c`). The argument is the number of its own
//! clocks; with bit 31 it then makes a forbidden access. Requests for anything else must be refused, which it checks:
//! `Result` is the number of its first request with another answer, `Done` is 1 at the end of the checks. Its clock 0
//! is enabled then. With a seed in the upper half of the argument it goes on with random requests, and changes
//! them while the root reads them.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::random::Random;
use rampart_hypervisor_cells::{
    SHARED, Word, count, load, read_register, set_shared_word, smc, store, wait,
};
use rampart_hypervisor_core::interface::DOORBELL_BY_SMC;

/// The page of messages: behind the first shared region, of 64 KiB.
const PAGE: u64 = SHARED + (64 << 10);
/// Words of the page (Arm DEN 0056, 5.1.2): status of the channel, length in bytes, header, content.
const STATUS: u64 = PAGE + 4;
const LENGTH: u64 = PAGE + 20;
const HEADER: u64 = PAGE + 24;
const CONTENT: u64 = PAGE + 28;

const BASE: u32 = 0x10;
const POWER: u32 = 0x11;
const CLOCK: u32 = 0x14;
const RESET: u32 = 0x16;

/// Status codes (4.1.4).
const SUCCESS: i32 = 0;
const NOT_SUPPORTED: i32 = -1;
const INVALID: i32 = -2;
const DENIED: i32 = -3;
const NOT_FOUND: i32 = -4;
const PROTOCOL_ERROR: i32 = -10;
/// No answer in time.
const SILENT: i32 = -100;

fn header(protocol: u32, message: u32) -> u32 {
    message | protocol << 10 | 5 << 18
}

fn send(header: u32, length: u32, words: &[u32]) {
    for (word, location) in words.iter().zip((CONTENT..).step_by(4)) {
        store(location, *word);
    }
    store(HEADER, header);
    store(LENGTH, length);
    store(STATUS, 0);
    smc(DOORBELL_BY_SMC.into(), 0, 0);
}

/// Sends a request and returns the status of the answer.
fn ask(header: u32, length: u32, words: &[u32]) -> i32 {
    send(header, length, words);
    let begin = read_register!("cntvct_el0");
    // Five seconds at most at 62.5 MHz; the root may be busy.
    while load(STATUS) & 1 == 0 {
        if read_register!("cntvct_el0") - begin > 312_500_000 {
            return SILENT;
        }
    }
    load(CONTENT) as i32
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let clocks = argument as u32 & 0xff;
    count(Word::Begun);
    let rate = header(CLOCK, 6);
    let enable = header(CLOCK, 7);
    let requests: &[(i32, u32, u32, &[u32])] = &[
        (SUCCESS, header(BASE, 0), 4, &[]),
        (SUCCESS, header(CLOCK, 1), 4, &[]),
        // Numbers that do not exist, among them those of other cells.
        (NOT_FOUND, enable, 12, &[clocks, 1]),
        (NOT_FOUND, enable, 12, &[63, 1]),
        (NOT_FOUND, enable, 12, &[u32::MAX, 1]),
        (NOT_FOUND, rate, 8, &[1 << 31]),
        (NOT_FOUND, header(CLOCK, 3), 8, &[clocks]),
        // The rate of a clock that others depend on.
        (DENIED, header(CLOCK, 5), 20, &[0, 0, 1, 0]),
        (DENIED, header(CLOCK, 5), 20, &[0, 0, u32::MAX, u32::MAX]),
        (NOT_FOUND, header(CLOCK, 5), 20, &[0, clocks, 1, 0]),
        (INVALID, enable, 12, &[0, 2]),
        // Lengths that are not those of the request.
        (PROTOCOL_ERROR, enable, 0, &[0, 1]),
        (PROTOCOL_ERROR, enable, 3, &[0, 1]),
        (PROTOCOL_ERROR, enable, 8, &[0, 1]),
        (PROTOCOL_ERROR, enable, 4096, &[0, 1]),
        (PROTOCOL_ERROR, enable, u32::MAX, &[0, 1]),
        // Protocols and messages that the cell does not have.
        (NOT_SUPPORTED, header(POWER, 4), 16, &[0, 0, 0]),
        (NOT_SUPPORTED, header(RESET, 4), 16, &[0, 2, 0]),
        (NOT_SUPPORTED, header(0x13, 0), 4, &[]),
        (NOT_SUPPORTED, header(CLOCK, 8), 4, &[]),
        (NOT_SUPPORTED, enable | 1 << 8, 12, &[0, 1]),
        (NOT_SUPPORTED, u32::MAX, 12, &[0, 1]),
        // Its own.
        (SUCCESS, enable, 12, &[0, 1]),
        (SUCCESS, enable, 12, &[0, 1]),
        (SUCCESS, rate, 8, &[0]),
    ];
    store(STATUS, 1);
    for (number, (expected, header, length, words)) in (1..).zip(requests) {
        if ask(*header, *length, words) != *expected {
            set_shared_word(Word::Result, number);
            break;
        }
    }
    set_shared_word(Word::Done, 1);
    if argument >> 31 & 1 != 0 {
        load(0);
    }
    if argument >> 32 == 0 {
        wait();
        return;
    }
    let mut random = Random::new(argument >> 32);
    for round in 2.. {
        let protocol = [BASE, POWER, CLOCK, CLOCK, CLOCK, RESET][random.number() as usize % 6];
        let message = header(protocol, random.number() as u32 % 10);
        let words = [(); 4].map(|()| match random.number() % 4 {
            0 => random.number() as u32,
            _ => random.number() as u32 % 4,
        });
        let length = match random.number() % 8 {
            0 => random.number() as u32,
            _ => 4 + 4 * (random.number() as u32 % 5),
        };
        send(
            if random.number().is_multiple_of(8) { random.number() as u32 } else { message },
            length,
            &words,
        );
        // While the root reads it.
        for _ in 0..random.number() % 64 {
            let word = random.number() % 40;
            store(PAGE + 4 * word, random.number() as u32);
        }
        set_shared_word(Word::Done, round);
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    count(Word::Exceptions);
}
