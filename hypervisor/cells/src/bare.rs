// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part that needs the processor. Sections are of the GIC architecture specification (Arm
//! IHI 0069) and of the Arm Architecture Reference Manual (DDI 0487).
// The names are those by which `entry.s` knows them.
#![allow(non_upper_case_globals)]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use rampart_meter::engine::mmio::ACCESSES;
use rampart_ring::directory::{self, DIRECTORY_BYTES, Found};

use crate::{DIRECTORY, NEIGHBOUR, ORDERS, Order, SHARED, Word};

global_asm!(include_str!("entry.s"));

/// GICR of the first CPU, on QEMU's `virt`; the frames of the others follow.
const REDISTRIBUTORS: u64 = 0x080a_0000;
/// GICD there.
pub const DISTRIBUTOR: u64 = 0x0800_0000;
/// The virtual timer's interrupt (Arm BSA, B.2).
pub const TIMER: u64 = 27;

/// Reads a system register.
#[macro_export]
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading one of them changes nothing.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) }
        value
    }};
}

/// Writes one.
#[macro_export]
macro_rules! write_register {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: none of them takes memory away from the program, except where it means to.
        unsafe { core::arch::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) }
    }};
}

/// A word of memory or of a device. By an instruction that the hypervisor can decode: one that changes
/// its base register at the same time, as compilers like, it cannot (Arm ARM D24.2.37, ESR_EL2.ISV).
pub fn load(address: u64) -> u32 {
    let value;
    // SAFETY: what is not there is an exception, and what is there is the program's to read.
    unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) }
    value
}

/// Writes one.
pub fn store(address: u64, value: u32) {
    // SAFETY: as for `load`; nothing of the program itself is written to by address.
    unsafe { asm!("str {:w}, [{}]", in(reg) value, in(reg) address, options(nostack)) }
}

/// A shared region by its name. Only for a cell that was made with names: without any there is no
/// memory at [`DIRECTORY`], and to read there is the end of the cell.
#[must_use]
pub fn region(name: &str) -> Option<Found> {
    // SAFETY: the page is there, see above, only the root writes it, and its words are atomics.
    let directory =
        unsafe { core::slice::from_raw_parts(DIRECTORY as *const AtomicU64, DIRECTORY_BYTES / 8) };
    directory::find(directory, name)
}

/// Reads the 32-bit register at this address [`ACCESSES`] times with nothing between; without an
/// address nothing. Ticks of CNTVCT_EL0 between the readings before and after: the engine of the meter
/// `mmio`, which takes the empty one away from the others.
pub fn access_ticks(address: Option<u64>) -> u64 {
    let (before, after): (u64, u64);
    match address {
        // The barriers hold the counter's readings where they stand (Arm ARM D11.2.2): everything before
        // is done, and so are the reads.
        // SAFETY: as for `load`.
        Some(address) => unsafe {
            asm!("dsb sy", "isb", "mrs {before}, cntvct_el0",
                ".rept {accesses}", "ldr {value:w}, [{address}]", ".endr",
                "dsb sy", "isb", "mrs {after}, cntvct_el0",
                accesses = const ACCESSES, address = in(reg) address, value = out(reg) _,
                before = out(reg) before, after = out(reg) after, options(nostack));
        },
        // SAFETY: barriers, and two readings of a counter.
        None => unsafe {
            asm!("dsb sy", "isb", "mrs {before}, cntvct_el0", "dsb sy", "isb",
                "mrs {after}, cntvct_el0",
                before = out(reg) before, after = out(reg) after, options(nostack));
        },
    }
    after - before
}

/// A word of the shared page.
pub fn told(word: Word) -> u64 {
    // SAFETY: the page is there by the cell's configuration, and nobody else writes to it.
    unsafe { (SHARED as *const u64).add(word as usize).read_volatile() }
}

/// Tells the root.
pub fn tell(word: Word, value: u64) {
    // SAFETY: as for `told`.
    unsafe { (SHARED as *mut u64).add(word as usize).write_volatile(value) }
}

/// A word of the page that the root writes.
pub fn order(word: Order) -> u64 {
    // SAFETY: the page is there by the cell's configuration; one load.
    unsafe { (ORDERS as *const u64).add(word as usize).read_volatile() }
}

/// A word of the page that the neighbour writes.
pub fn neighbour(word: Word) -> u64 {
    // SAFETY: as for `order`.
    unsafe { (NEIGHBOUR as *const u64).add(word as usize).read_volatile() }
}

/// One more.
pub fn count(word: Word) {
    tell(word, told(word) + 1);
}

/// This CPU's redistributor: the one whose GICR_TYPER (12.10.26) has its affinity.
pub fn redistributor() -> u64 {
    let mpidr = read_register!("mpidr_el1");
    let own = (mpidr >> 32 & 0xff) << 24 | mpidr & 0xff_ffff;
    let mut at = REDISTRIBUTORS;
    while u64::from(load(at + 0xc)) != own {
        at += 0x2_0000;
    }
    at
}

/// Lets this private interrupt come.
pub fn enable(interrupt: u64) {
    let frame = redistributor() + 0x1_0000;
    store(frame + 0x400 + interrupt / 4 * 4, 0xa0a0_a0a0);
    store(frame + 0x100, 1 << interrupt);
    // ICC_PMR_EL1: everything may come; ICC_CTLR_EL1: ending deactivates; ICC_IGRPEN1_EL1.
    write_register!("s3_0_c4_c6_0", 0xf0);
    write_register!("s3_0_c12_c12_4", 0);
    write_register!("s3_0_c12_c12_7", 1);
}

/// Lets this shared interrupt come: GICD_IPRIORITYR, GICD_ICFGR, GICD_ISENABLER (12.9). Where it goes
/// to is left as it is: to the cell's first CPU.
pub fn enable_shared(interrupt: u64, edge: bool) {
    let configuration = DISTRIBUTOR + 0xc00 + interrupt / 16 * 4;
    let bit = 2 << (interrupt % 16 * 2);
    let kept = load(configuration) & !bit;
    store(configuration, if edge { kept | bit } else { kept });
    store(DISTRIBUTOR + 0x400 + interrupt / 4 * 4, 0xa0a0_a0a0);
    store(DISTRIBUTOR + 0x100 + interrupt / 32 * 4, 1 << (interrupt % 32));
}

/// Sends a software-generated interrupt to the CPUs of a mask of Aff0 (ICC_SGI1R_EL1, 12.2.22).
pub fn send(number: u64, targets: u64) {
    write_register!("s3_0_c12_c11_5", number << 24 | targets);
}

/// ICC_IAR1_EL1: the interrupt that is taken; 1020 and above for none.
pub fn acknowledge() -> u64 {
    read_register!("s3_0_c12_c12_0")
}

/// ICC_EOIR1_EL1: it is done.
pub fn end(interrupt: u64) {
    if interrupt < 1020 {
        write_register!("s3_0_c12_c12_1", interrupt);
    }
}

/// Which of the cell's CPUs this is, 0 for the first: TPIDR_EL1, as `entry.s` leaves it.
pub fn this_cpu() -> u64 {
    read_register!("tpidr_el1")
}

unsafe extern "C" {
    fn cell_second_entry();
}

/// What a further CPU runs; `entry.s` goes there.
#[unsafe(no_mangle)]
static cell_second: AtomicU64 = AtomicU64::new(0);

/// Where a further CPU begins. Its x0 is its number, 1 to 3.
pub fn second_entry() -> u64 {
    cell_second_entry as *const () as u64
}

/// PSCI CPU_ON (Arm DEN 0022, 5.6) of the CPU with this affinity, which runs `program` on a stack of
/// its own as the CPU of this number, 1 to 3.
pub fn start_cpu(affinity: u64, number: u64, program: extern "C" fn(u64)) -> u64 {
    cell_second.store(program as *const () as u64, Ordering::Relaxed);
    smc3(0xc400_0003, affinity, second_entry(), number)
}

/// Lets the timer interrupt after so many of its ticks (D24.10.25).
pub fn arm_timer(ticks: u64) {
    write_register!("cntv_tval_el0", ticks);
    write_register!("cntv_ctl_el0", 1);
}

/// Interrupts are taken.
pub fn unmask() {
    // SAFETY: the vectors are in place.
    unsafe { asm!("msr daifclr, #3", options(nostack)) }
}

/// Waits for one.
pub fn wait() {
    // SAFETY: changes nothing.
    unsafe { asm!("wfi", options(nostack)) }
}

/// `smc #0` (Arm DEN 0028).
pub fn smc(function: u64, first: u64, second: u64) -> u64 {
    smc3(function, first, second, 0)
}

/// The same with a third argument.
pub fn smc3(function: u64, first: u64, second: u64, third: u64) -> u64 {
    let mut x0 = function;
    // SAFETY: by the calling convention x0 to x17 change at most.
    unsafe {
        asm!("smc #0", inout("x0") x0, inout("x1") first => _, inout("x2") second => _,
            inout("x3") third => _, out("x4") _, out("x5") _, out("x6") _, out("x7") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
            out("x14") _, out("x15") _, out("x16") _, out("x17") _, options(nostack));
    }
    x0
}

/// `hvc #0`: a call of the hypervisor.
pub fn hvc(function: u64, first: u64) -> u64 {
    let mut x0 = function;
    // SAFETY: only x0 to x3 change.
    unsafe {
        asm!("hvc #0", inout("x0") x0, inout("x1") first => _, out("x2") _, out("x3") _,
            options(nostack));
    }
    x0
}

/// Serves the timer: to be called by `cell_exception`. `ticks` until it comes again.
pub fn serve_timer(ticks: u64) {
    // ICC_IAR1_EL1 and ICC_EOIR1_EL1 are the real ones, and cost no exit.
    let interrupt = acknowledge();
    if interrupt == TIMER {
        write_register!("cntv_tval_el0", ticks);
        count(Word::Interrupts);
    } else {
        count(Word::Unexpected);
    }
    end(interrupt);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        count(Word::Exceptions);
        wait();
    }
}
