// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Uses two CPUs, with the affinities 1 and 2: starts and stops the second CPU, and tries the same with CPUs of the
//! root (0) and of another cell (3). Both CPUs take interrupts of their timers. The result has a bit for each failed
//! check.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::{
    Order, TIMER, Word, acknowledge, arm_timer, count, enable, end, order, read_register,
    second_entry, send, send_to_others, set_shared_word, shared_word, smc, start_cpu, this_cpu,
    unmask, wait, write_register,
};

const CPU_OFF: u64 = 0x8400_0002;
const CPU_ON: u64 = 0xc400_0003;
const AFFINITY_INFO: u64 = 0xc400_0004;
const ON: u64 = 0;
const OFF: u64 = 1;
const INVALID_PARAMETERS: u64 = -2_i64 as u64;
const ALREADY_ON: u64 = -4_i64 as u64;
const ON_PENDING: u64 = -5_i64 as u64;
const INVALID_ADDRESS: u64 = -9_i64 as u64;

const ROOT_CPU: u64 = 0;
const FIRST: u64 = 1;
const SECOND: u64 = 2;
const OTHER_CELLS_CPU: u64 = 3;
/// An address outside the cell's memory.
const OUTSIDE: u64 = 0x7000_0000;
const TICKS: u64 = 62_500;
/// The software-generated interrupts for request and reply.
const REQUEST: u64 = 3;
const REPLY: u64 = 4;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    set_shared_word(Word::Result, 0);
    let mut wrong = 0;
    let mut check = |bit: u32, passed: bool| {
        if !passed {
            wrong |= 1_u64 << bit;
            set_shared_word(Word::Result, wrong);
        }
    };
    check(0, smc(AFFINITY_INFO, FIRST, 0) == ON);
    check(1, smc(AFFINITY_INFO, SECOND, 0) == OFF);
    check(2, smc(AFFINITY_INFO, ROOT_CPU, 0) == INVALID_PARAMETERS);
    check(3, smc(AFFINITY_INFO, OTHER_CELLS_CPU, 0) == INVALID_PARAMETERS);
    check(4, smc(CPU_ON, ROOT_CPU, second_entry()) == INVALID_PARAMETERS);
    check(5, smc(CPU_ON, OTHER_CELLS_CPU, second_entry()) == INVALID_PARAMETERS);
    check(6, smc(CPU_ON, SECOND, OUTSIDE) == INVALID_ADDRESS);
    check(7, smc(CPU_ON, FIRST, second_entry()) == ALREADY_ON);
    let begun = shared_word(Word::SecondBegun);
    check(8, start_second() == 0);
    let again = start_second();
    check(9, again == ALREADY_ON || again == ON_PENDING);
    check(10, wait_until(|| shared_word(Word::SecondBegun) == begun + 1));
    check(11, smc(AFFINITY_INFO, SECOND, 0) == ON);

    start_timer();
    count(Word::Begun);
    // The root observes both for a while; then it orders the next step.
    wait_for_order(1);
    let (requests, replies) = (shared_word(Word::SecondSoftware), shared_word(Word::Software));
    // To the second by affinity; to all four; to all others.
    send(REQUEST, 1 << SECOND);
    check(12, wait_until(|| shared_word(Word::Software) > replies));
    let replies = shared_word(Word::Software);
    send(REQUEST, 0xf & !(1 << FIRST));
    check(13, wait_until(|| shared_word(Word::Software) > replies));
    let replies = shared_word(Word::Software);
    send_to_others(REQUEST);
    check(14, wait_until(|| shared_word(Word::Software) > replies));
    check(15, shared_word(Word::SecondSoftware) == requests + 3);
    set_shared_word(Word::Done, 1);

    wait_for_order(2);
    check(16, wait_until(|| smc(AFFINITY_INFO, SECOND, 0) == OFF));
    let stopped = shared_word(Word::SecondInterrupts);
    let from = shared_word(Word::Interrupts);
    check(17, wait_until(|| shared_word(Word::Interrupts) > from + 20));
    check(18, shared_word(Word::SecondInterrupts) == stopped);
    let begun = shared_word(Word::SecondBegun);
    check(19, start_second() == 0);
    check(20, wait_until(|| shared_word(Word::SecondBegun) == begun + 1));
    check(21, wait_until(|| shared_word(Word::SecondInterrupts) > stopped + 20));
    set_shared_word(Word::Done, 2);
    loop {
        wait();
    }
}

fn start_second() -> u64 {
    start_cpu(SECOND, 1, second)
}

extern "C" fn second(_number: u64) {
    start_timer();
    set_shared_word(Word::SecondBegun, shared_word(Word::SecondBegun) + 1);
    let first_time = order(Order::Number) < 2;
    while !(first_time && order(Order::Number) == 2) {
        wait();
    }
    smc(CPU_OFF, 0, 0);
    // The call does not return.
    set_shared_word(Word::Result, 1 << 63);
}

fn start_timer() {
    enable(TIMER);
    enable(REQUEST);
    enable(REPLY);
    arm_timer(TICKS);
    unmask();
}

fn wait_for_order(number: u64) {
    while order(Order::Number) < number {
        wait();
    }
}

/// Waits for the condition, at most ten seconds by the cell's clock. Returns whether it became true.
fn wait_until(condition: impl Fn() -> bool) -> bool {
    let end = read_register!("cntvct_el0") + 10 * read_register!("cntfrq_el0");
    while !condition() {
        if read_register!("cntvct_el0") > end {
            return false;
        }
        core::hint::spin_loop();
    }
    true
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    let first = this_cpu() == 0;
    let interrupt = acknowledge();
    match (interrupt, first) {
        (TIMER, true) => count(Word::Interrupts),
        (TIMER, false) => count(Word::SecondInterrupts),
        (REQUEST, false) => {
            count(Word::SecondSoftware);
            send(REPLY, 1 << FIRST);
        }
        (REPLY, true) => count(Word::Software),
        _ => count(Word::Unexpected),
    }
    if interrupt == TIMER {
        write_register!("cntv_tval_el0", TICKS);
    }
    end(interrupt);
}
