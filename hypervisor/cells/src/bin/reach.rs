// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads, writes or executes at one address, at EL1 or EL0, as the page of orders says: the kind
//! (`First`: 0, 1, 2), the address (`Second`), the exception level (`Third`). Where it is let, it says
//! so and what it read.
#![no_std]
#![no_main]

use core::arch::asm;

use rampart_hypervisor_cells::{Order, Word, count, order, read_register, tell, wait};

/// What is written: nothing that could be there by itself.
const PATTERN: u64 = 0x5a5a_1234;
/// SPSR_EL1 for EL0 with everything masked, and for EL1 with its own stack.
const AT_EL0: u64 = 0x3c0;
const AT_EL1: u64 = 0x3c5;

#[unsafe(no_mangle)]
extern "C" fn cell_main(_argument: u64) {
    let (kind, address) = (order(Order::First), order(Order::Second));
    let state = if order(Order::Third) == 0 { AT_EL0 } else { AT_EL1 };
    tell(Word::Result, 0);
    count(Word::Begun);
    // By an exception return at either level, so that both go the same way. What comes back comes by
    // the `svc`, into `cell_exception`.
    // SAFETY: meant to fail; what is let through ends in an exception that does not come back here.
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
    // ESR_EL1 (Arm ARM D24.2.40): class 0x15 is the `svc`, anything else its own affair.
    let class = read_register!("esr_el1") >> 26 & 0x3f;
    tell(Word::Result, class);
    tell(Word::Done, order(Order::Number));
    loop {
        wait();
    }
}
