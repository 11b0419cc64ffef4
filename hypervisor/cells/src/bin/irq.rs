// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts the interrupts of the timer, and writes a record each second. The argument is the period in
//! microseconds; with bit 32 the program kicks its watchdog at each interrupt until the root writes an order.
#![no_std]
#![no_main]

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicU64;

use rampart_hypervisor_cells::{
    Order, RECORD_SECOND, RECORDS, SHARED, TIMER, Word, arm_timer, count, enable, handle_timer,
    hvc, order, read_register, shared_word, unmask, wait,
};
use rampart_hypervisor_core::interface::Hypercall;
use rampart_ring::records::RecordWriter;

const KICK: u64 = 1 << 32;
const PAGE_WORDS: usize = 512;

/// The state of the handler. There is one CPU, and its handler is not interrupted.
struct State {
    ticks: u64,
    second: u64,
    kicks: bool,
    last: u64,
    worst: u64,
    second_ends: u64,
    records: Option<RecordWriter<'static>>,
}

struct Own(UnsafeCell<State>);

// SAFETY: written before interrupts are taken, afterwards only by the handler.
unsafe impl Sync for Own {}

static STATE: Own = Own(UnsafeCell::new(State {
    ticks: 0,
    second: 0,
    kicks: false,
    last: 0,
    worst: 0,
    second_ends: 0,
    records: None,
}));

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let second = read_register!("cntfrq_el0");
    let now = read_register!("cntvct_el0");
    // SAFETY: the cell's configuration has the page, all its words are plain numbers, and only the ring writes
    // this part of it.
    let memory = unsafe {
        core::slice::from_raw_parts((SHARED as *const AtomicU64).add(RECORDS), PAGE_WORDS - RECORDS)
    };
    let state = State {
        ticks: second * (argument & 0xffff_ffff) / 1_000_000,
        second,
        kicks: argument & KICK != 0,
        last: now,
        worst: 0,
        second_ends: now + second,
        records: RecordWriter::begin(memory),
    };
    let ticks = state.ticks;
    // SAFETY: interrupts are still masked.
    unsafe { *STATE.0.get() = state }
    // Software interrupts too, so that one from elsewhere is counted.
    (0..16).for_each(enable);
    enable(TIMER);
    arm_timer(ticks);
    unmask();
    count(Word::Begun);
    loop {
        wait();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    // SAFETY: only the handler uses it, and it is not interrupted.
    let state = unsafe { &mut *STATE.0.get() };
    handle_timer(state.ticks);
    let now = read_register!("cntvct_el0");
    state.worst = state.worst.max(now - state.last);
    state.last = now;
    if now >= state.second_ends {
        let mut record = [0; 24];
        let fields = [now, shared_word(Word::Interrupts), state.worst];
        for (bytes, field) in record.chunks_exact_mut(8).zip(fields) {
            bytes.copy_from_slice(&field.to_le_bytes());
        }
        if let Some(records) = &mut state.records {
            // Cannot fail: the record is short enough.
            let _ = records.write(RECORD_SECOND, &record);
        }
        state.worst = 0;
        state.second_ends = now + state.second;
    }
    if state.kicks && order(Order::Number) == 0 {
        hvc(u32::from(Hypercall::WatchdogKick).into(), 0);
    }
}
