// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A program whose instructions are written by a test outside the machine, which reads and writes the machine's
//! memory: as a hostile root or a hostile cell, at EL1 with the MMU off.
//!
//! Each CPU has an area of [`AREA_BYTES`]: words for orders and results, a page of code, and the stack at its end.
//! The test writes the words of an order and [`NUMBER`] last; the program writes [`DONE`] last.

/// Size of the area of one CPU.
pub const AREA_BYTES: u64 = 0x1_0000;
/// Offset of the page with the code of the current order.
pub const CODE_PAGE: u64 = 0x1000;

/// Index of the word with the number of the order.
pub const NUMBER: usize = 0;
/// The number of the last completed order.
pub const DONE: usize = 1;
/// The kind of the order: [`ONCE`], [`REPEATED`] or [`RANDOM`].
pub const KIND: usize = 2;
/// Ends a repeated order if it is not 0.
pub const STOP: usize = 3;
/// x0 to x7 before the code.
pub const ARGUMENTS: usize = 4;
/// x0 to x7 after the code, if no exception ended it.
pub const RESULTS: usize = 12;
/// Number of exceptions that were not interrupts.
pub const EXCEPTIONS: usize = 20;
/// ESR_EL1 of the latest exception.
pub const SYNDROME: usize = 21;
/// FAR_EL1 of the latest exception.
pub const FAULT_ADDRESS: usize = 22;
/// ELR_EL1 of the latest exception.
pub const FAULT_LOCATION: usize = 23;
/// Number of runs of a repeated order.
pub const RUNS: usize = 24;
/// Number of those with the result -4 in x0 (`Outcome::Busy`).
pub const BUSY: usize = 25;
/// Period of the timer in ticks; 0 for one interrupt.
pub const TIMER_TICKS: usize = 26;
/// If it is not 0, interrupts are acknowledged and not ended.
pub const STAYS_ACTIVE: usize = 27;
/// Incremented when the CPU enters the program.
pub const BEGUN: usize = 28;
/// Address of the entry of a CPU for PSCI CPU_ON, with the address of its area as the argument.
pub const ENTRY: usize = 29;
/// The stack pointer while code runs.
pub const STACK: usize = 30;
/// The interrupt of the physical timer (Arm BSA, B.2), which wakes a program that has nothing to do.
pub const PHYSICAL_TIMER: u64 = 30;
/// GICC, if the machine has a GICv2. The program sets it.
pub const INTERFACE: usize = 387;
/// The outcome of the launch plus 100; 0 before.
pub const LAUNCHED: usize = 31;
/// The code of an order: instructions, or for [`RANDOM`] addresses.
pub const CODE: usize = 32;
/// Number of words of the code.
pub const CODE_WORDS: usize = 64;
/// Number of interrupts received by their number; the last word is for spurious ones.
pub const INTERRUPTS: usize = 96;
/// One more than the largest counted number.
pub const INTERRUPT_END: usize = 288;
/// If it is not 0, the CPU sleeps between orders, for a millisecond at a time. It uses the physical timer.
pub const SLEEPS: usize = 386;
/// The bitwise OR of all general registers except the argument at the start, plus one; 0 before.
pub const RESIDUE: usize = 388;
/// If it is not 0, an exception skips its instruction and does not end the code. x9 and x16 are lost.
pub const SKIPS: usize = 389;
/// The latest steps of a random order, in a ring of [`STEPS`] of two words.
pub const LATEST: usize = 400;
/// Number of entries of the ring.
pub const STEPS: usize = 48;

/// Runs the code once.
pub const ONCE: u64 = 0;
/// Runs the code until [`STOP`] is set.
pub const REPEATED: u64 = 1;
/// Makes random steps until [`STOP`] is set: `random.rs`.
pub const RANDOM: u64 = 2;
/// The kind of a random program that keeps itself alive: it does not turn itself off and keeps its translation.
pub const ROOT: u64 = 0;
/// The kind of a random program that does anything.
pub const CELL: u64 = 1;
/// The same, but its own translation does not fault before memory is read, by which it could keep its CPU where the
/// management interrupt can be masked (docs/hypervisor.md, "A cell that keeps its CPU").
pub const CELL_WITHOUT_TRANSLATION: u64 = 2;

#[cfg(target_os = "none")]
pub use bare::{Area, start};

#[cfg(target_os = "none")]
mod bare {
    use core::arch::{asm, global_asm};

    use super::*;
    use crate::gicv2::{self, is_gicv2};
    use crate::{enable, read_register, wait, write_register};

    /// Number of looks at the order before the CPU sleeps.
    const LOOKS: u64 = 20_000;

    global_asm!(
        include_str!("remote.s"),
        area_bytes = const AREA_BYTES,
        code_page = const CODE_PAGE,
        stack = const 8 * STACK,
        arguments = const 8 * ARGUMENTS,
        results = const 8 * RESULTS,
        exceptions = const 8 * EXCEPTIONS,
        syndrome = const 8 * SYNDROME,
        fault_address = const 8 * FAULT_ADDRESS,
        fault_location = const 8 * FAULT_LOCATION,
        skips = const 8 * SKIPS,
        interrupts = const 8 * INTERRUPTS,
        interrupt_end = const INTERRUPT_END,
        timer_ticks = const 8 * TIMER_TICKS,
        stays_active = const 8 * STAYS_ACTIVE,
        interface = const 8 * INTERFACE,
    );

    unsafe extern "C" {
        fn remote_entry(area: u64) -> !;
        fn remote_run(area: u64);
    }

    /// The area of one CPU.
    #[derive(Debug, Clone, Copy)]
    pub struct Area(u64);

    impl Area {
        /// # Safety
        /// The address must be that of an area of this CPU.
        #[must_use]
        pub const unsafe fn at(address: u64) -> Self {
            Self(address)
        }

        /// Reads a word.
        #[must_use]
        pub fn word(self, index: usize) -> u64 {
            // SAFETY: the area is memory of this CPU; one load.
            unsafe { (self.0 as *const u64).add(index).read_volatile() }
        }

        /// Writes a word.
        pub fn set(self, index: usize, value: u64) {
            // SAFETY: as for `word`.
            unsafe { (self.0 as *mut u64).add(index).write_volatile(value) }
        }

        /// Writes an instruction to the page of code.
        pub fn set_code(self, index: usize, instruction: u32) {
            // SAFETY: as for `word`; no code runs there now.
            unsafe {
                ((self.0 + CODE_PAGE) as *mut u32).add(index).write_volatile(instruction);
            }
        }

        /// Runs the page of code.
        pub fn run(self) {
            // SAFETY: exceptions end the code; what it may destroy is the purpose of the program.
            unsafe {
                asm!("dsb ish", "ic iallu", "dsb ish", "isb", options(nostack));
                remote_run(self.0);
            }
        }
    }

    /// Makes this CPU execute the orders in its area.
    ///
    /// # Safety
    /// The area must be memory of this CPU alone.
    pub unsafe fn start(area: u64) -> ! {
        // SAFETY: the caller's.
        unsafe { remote_entry(area) }
    }

    #[unsafe(no_mangle)]
    extern "C" fn remote_loop(area: u64) -> ! {
        let area = Area(area);
        let mut done = area.word(NUMBER);
        area.set(INTERFACE, if is_gicv2() { gicv2::interface() } else { 0 });
        area.set(ENTRY, remote_entry as *const () as u64);
        area.set(BEGUN, area.word(BEGUN) + 1);
        let mut looks = 0;
        loop {
            let number = area.word(NUMBER);
            if number == done {
                looks += 1;
                if looks > LOOKS && area.word(SLEEPS) != 0 {
                    sleep();
                }
                continue;
            }
            looks = 0;
            area.set(RUNS, 0);
            area.set(BUSY, 0);
            if area.word(KIND) == RANDOM {
                crate::random::run(area);
            } else {
                run(area);
            }
            done = number;
            area.set(DONE, done);
        }
    }

    /// Sleeps for a millisecond, whatever the last code did to the priority mask. The timer's interrupt is never taken:
    /// it would come again until the timer is off.
    fn sleep() {
        enable(PHYSICAL_TIMER);
        let masks = read_register!("daif");
        write_register!("daif", masks | 1 << 7);
        write_register!("cntp_tval_el0", read_register!("cntfrq_el0") / 1000);
        write_register!("cntp_ctl_el0", 1);
        wait();
        write_register!("cntp_ctl_el0", 0);
        write_register!("daif", masks);
    }

    fn run(area: Area) {
        for index in 0..CODE_WORDS {
            let pair = area.word(CODE + index);
            area.set_code(2 * index, pair as u32);
            area.set_code(2 * index + 1, (pair >> 32) as u32);
        }
        loop {
            area.run();
            area.set(RUNS, area.word(RUNS) + 1);
            if area.word(RESULTS) == -4_i64 as u64 {
                area.set(BUSY, area.word(BUSY) + 1);
            }
            if area.word(KIND) == ONCE || area.word(STOP) != 0 {
                return;
            }
        }
    }
}
