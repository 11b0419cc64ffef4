// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads, writes or executes at one address. The order has the kind of the access (`First`: 0, 1, 2), the address
//! (`Second`) and the exception level, EL0 or EL1 (`Third`). If the access does not fail the cell, the result is the
//! class of the exception that follows.
#![no_std]
#![no_main]

use core::arch::asm;

use rampart_hypervisor_cells::{Order, Word, count, order, read_register, set_shared_word, wait};

/// The written value, which cannot occur there otherwise.
const PATTERN: u64 = 0x5a5a_1234;
/// SPSR_EL1 for EL0 with everything masked, and for EL1 with SP_EL1.
const AT_EL0: u64 = 0x3c0;
const AT_EL1: u64 = 0x3c5;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    let (kind, address) = (order(Order::First), order(Order::Second));
    let state = if order(Order::Third) == 0 { AT_EL0 } else { AT_EL1 };
    set_shared_word(Word::Result, 0);
    count(Word::Begun);
    // Both levels are entered by an exception return. A permitted access ends with the `svc`, in
    // `cell_exception`.
    // SAFETY: meant to fail; a permitted access ends in an exception that does not return here.
    unsafe {
        asm!(
            "adr x9, 2f",
            "msr elr_el1, x9",
            "msr spsr_el1, {state}",
            "isb",
            "eret",
            "2: cmp {kind}, #1",
            "b.eq 3f",
            "b.hi 4f",
            "ldr {value:w}, [{address}]",
            "mov x0, {value}",
            "svc #0",
            "3: str {value:w}, [{address}]",
            "svc #0",
            "4: br {address}",
            state = in(reg) state,
            kind = in(reg) kind,
            value = in(reg) PATTERN,
            address = in(reg) address,
            in("x9") 0_u64,
            options(noreturn)
        )
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {
    // ESR_EL1 (Arm ARM D24.2.40): class 0x15 is the `svc`; others are the cell's own exceptions.
    let class = read_register!("esr_el1") >> 26 & 0x3f;
    set_shared_word(Word::Result, class);
    set_shared_word(Word::Done, order(Order::Number));
    loop {
        wait();
    }
}
