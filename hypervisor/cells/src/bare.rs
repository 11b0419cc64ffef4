// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hardware access for programs of cells. Section numbers are those of the GIC architecture specification
//! (Arm IHI 0069) and of the Arm Architecture Reference Manual (DDI 0487).
// `entry.s` uses these names.
#![allow(non_upper_case_globals)]

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicU64, Ordering};

use rampart_meter::engine::mmio::ACCESSES;
use rampart_ring::directory::{self, DIRECTORY_BYTES, Found};
use rampart_ring::program_header;

use crate::gicv2::{self, is_gicv2};
use crate::{DIRECTORY, ORDERS, OTHER_CELL, Order, SHARED, Word};

global_asm!(
    include_str!("entry.s"),
    header_offset = const program_header::OFFSET,
    header_magic = const program_header::MAGIC,
);

unsafe extern "C" {
    /// `entry.s`: the header that the loader has filled in.
    static cell_header: [AtomicU64; program_header::WORDS];
}

fn header(word: usize) -> u64 {
    // SAFETY: `entry.s` defines it with this size, and it is in the program's own memory.
    unsafe { cell_header[word].load(Ordering::Relaxed) }
}

/// Returns the address of GICD.
pub fn distributor() -> u64 {
    header(program_header::DISTRIBUTOR)
}

/// Returns the address of GICR of the machine's first CPU; the frames of the others follow. With a GICv2 it is that
/// of GICC.
pub fn first_redistributor() -> u64 {
    header(program_header::CPU_FRAMES)
}

/// The virtual timer's interrupt (Arm BSA, B.2).
pub const TIMER: u64 = 27;

/// Reads a system register.
#[macro_export]
macro_rules! read_register {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading these registers has no side effect on memory.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) }
        value
    }};
}

/// Writes a system register.
#[macro_export]
macro_rules! write_register {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: no program writes a register that unmaps its memory, except as an attack.
        unsafe { core::arch::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack)) }
    }};
}

/// Reads a word of memory or of a device with an instruction that the hypervisor can decode: one that does not
/// update its base register (Arm ARM D24.2.37, ESR_EL2.ISV).
pub fn load(address: u64) -> u32 {
    let value;
    // SAFETY: an unmapped address is an exception, and the program may read all mapped ones.
    unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) }
    value
}

/// Writes a word of memory or of a device.
pub fn store(address: u64, value: u32) {
    // SAFETY: as for `load`; the addresses are not in the program itself.
    unsafe { asm!("str {:w}, [{}]", in(reg) value, in(reg) address, options(nostack)) }
}

/// Finds a shared region by its name. Only for a cell that was created with names: other cells have no memory
/// at [`DIRECTORY`], so they fail.
#[must_use]
pub fn region(name: &str) -> Option<Found> {
    // SAFETY: the page exists, see above, only the root writes it, and its words are atomics.
    let directory =
        unsafe { core::slice::from_raw_parts(DIRECTORY as *const AtomicU64, DIRECTORY_BYTES / 8) };
    directory::find(directory, name)
}

/// Reads the 32-bit register at this address [`ACCESSES`] times in a row, or nothing without an address.
/// Returns the ticks of CNTVCT_EL0 that this took. The meter `mmio` subtracts the empty measurement.
pub fn access_ticks(address: Option<u64>) -> u64 {
    let (before, after): (u64, u64);
    match address {
        // The barriers keep the reads of the counter in order (Arm ARM D11.2.2): earlier instructions and the
        // accesses are complete.
        // SAFETY: as for `load`.
        Some(address) => unsafe {
            asm!("dsb sy", "isb", "mrs {before}, cntvct_el0",
                ".rept {accesses}", "ldr {value:w}, [{address}]", ".endr",
                "dsb sy", "isb", "mrs {after}, cntvct_el0",
                accesses = const ACCESSES, address = in(reg) address, value = out(reg) _,
                before = out(reg) before, after = out(reg) after, options(nostack));
        },
        // SAFETY: barriers, and two reads of a counter.
        None => unsafe {
            asm!("dsb sy", "isb", "mrs {before}, cntvct_el0", "dsb sy", "isb",
                "mrs {after}, cntvct_el0",
                before = out(reg) before, after = out(reg) after, options(nostack));
        },
    }
    after - before
}

/// Reads a word of the page that the root reads.
pub fn shared_word(word: Word) -> u64 {
    // SAFETY: the cell's configuration has the page, and only this cell writes it.
    unsafe { (SHARED as *const u64).add(word as usize).read_volatile() }
}

/// Writes a word of the page that the root reads.
pub fn set_shared_word(word: Word, value: u64) {
    // SAFETY: as for `shared_word`.
    unsafe { (SHARED as *mut u64).add(word as usize).write_volatile(value) }
}

/// Reads a word of the page that the root writes.
pub fn order(word: Order) -> u64 {
    // SAFETY: the cell's configuration has the page; one load.
    unsafe { (ORDERS as *const u64).add(word as usize).read_volatile() }
}

/// Reads a word of the page that the other cell writes.
pub fn other_cell_word(word: Word) -> u64 {
    // SAFETY: as for `order`.
    unsafe { (OTHER_CELL as *const u64).add(word as usize).read_volatile() }
}

/// Increments a word of the page that the root reads.
pub fn count(word: Word) {
    set_shared_word(word, shared_word(word) + 1);
}

/// Returns this CPU's redistributor: GICR_TYPER (12.10.26) has its affinity.
///
/// # Panics
/// If none has: the search ends with the frames that are marked as the last ones (Last).
pub fn redistributor() -> u64 {
    let mpidr = read_register!("mpidr_el1");
    let own = (mpidr >> 32 & 0xff) << 24 | mpidr & 0xff_ffff;
    let mut at = first_redistributor();
    loop {
        let typer = load(at + 8);
        if u64::from(load(at + 0xc)) == own {
            return at;
        }
        assert!(typer & 1 << 4 == 0, "no redistributor is that of this CPU");
        // VLPIS: two frames more.
        at += if typer & 1 << 1 != 0 { 0x4_0000 } else { 0x2_0000 };
    }
}

/// Returns the frame with this CPU's private interrupts: the second of its redistributor, or with a GICv2 the
/// distributor.
pub fn private_frame() -> u64 {
    if is_gicv2() { distributor() } else { redistributor() + 0x1_0000 }
}

/// Enables a private interrupt.
pub fn enable(interrupt: u64) {
    let frame = private_frame();
    store(frame + 0x400 + interrupt / 4 * 4, 0xa0a0_a0a0);
    store(frame + 0x100, 1 << interrupt);
    // EOImode 0.
    if !is_gicv2() {
        write_register!("s3_0_c12_c12_4", 0);
    }
    mask_priority(0xf0);
    enable_interface(true);
}

/// Sets the priority mask: ICC_PMR_EL1 (12.2.19) or GICC_PMR.
pub fn mask_priority(mask: u8) {
    if is_gicv2() {
        gicv2::set(gicv2::PRIORITY_MASK, mask.into());
    } else {
        write_register!("s3_0_c4_c6_0", mask.into());
    }
}

/// Enables or disables the CPU interface: ICC_IGRPEN1_EL1 (12.2.16) or GICC_CTLR.
pub fn enable_interface(on: bool) {
    if is_gicv2() {
        gicv2::set(gicv2::CONTROL, on.into());
    } else {
        write_register!("s3_0_c12_c12_7", on.into());
    }
}

/// Sets which bits of priorities are compared: ICC_BPR1_EL1 (12.2.5) or GICC_BPR.
pub fn set_binary_point(value: u8) {
    if is_gicv2() {
        gicv2::set(gicv2::BINARY_POINT, value.into());
    } else {
        write_register!("s3_0_c12_c12_3", value.into());
    }
}

/// Enables a shared interrupt: GICD_IPRIORITYR, GICD_ICFGR, GICD_ISENABLER (12.9). Its route stays to the
/// cell's first CPU.
pub fn enable_shared(interrupt: u64, edge: bool) {
    let distributor = distributor();
    let configuration = distributor + 0xc00 + interrupt / 16 * 4;
    let bit = 2 << (interrupt % 16 * 2);
    let kept = load(configuration) & !bit;
    store(configuration, if edge { kept | bit } else { kept });
    store(distributor + 0x400 + interrupt / 4 * 4, 0xa0a0_a0a0);
    store(distributor + 0x100 + interrupt / 32 * 4, 1 << (interrupt % 32));
}

/// Sends a software-generated interrupt to the CPUs of a mask of Aff0 (ICC_SGI1R_EL1, 12.2.22).
pub fn send(number: u64, targets: u64) {
    if is_gicv2() {
        gicv2::send(number, targets);
    } else {
        write_register!("s3_0_c12_c11_5", number << 24 | targets);
    }
}

/// Sends a software-generated interrupt to all other CPUs.
pub fn send_to_others(number: u64) {
    if is_gicv2() {
        gicv2::send(number, u64::MAX);
    } else {
        write_register!("s3_0_c12_c11_5", 1 << 40 | number << 24);
    }
}

/// Acknowledges an interrupt (ICC_IAR1_EL1, GICC_IAR) and returns its number; 1020 and above for none.
pub fn acknowledge() -> u64 {
    if is_gicv2() { gicv2::acknowledge() } else { read_register!("s3_0_c12_c12_0") }
}

/// Ends an interrupt (ICC_EOIR1_EL1, GICC_EOIR).
pub fn end(interrupt: u64) {
    if interrupt >= 1020 {
    } else if is_gicv2() {
        gicv2::end(interrupt);
    } else {
        write_register!("s3_0_c12_c12_1", interrupt);
    }
}

/// Returns the number of this CPU in the cell, 0 for the first: TPIDR_EL1, set by `entry.s`.
pub fn this_cpu() -> u64 {
    read_register!("tpidr_el1")
}

unsafe extern "C" {
    fn cell_second_entry();
}

/// The program of a further CPU, called by `entry.s`.
#[unsafe(no_mangle)]
static cell_second: AtomicU64 = AtomicU64::new(0);

/// Returns the entry address of a further CPU. Its x0 is its number, 1 to 3.
pub fn second_entry() -> u64 {
    cell_second_entry as *const () as u64
}

/// Starts the CPU with this affinity by PSCI CPU_ON (Arm DEN 0022, 5.6). It runs `program` on a stack of its
/// own as the CPU with this number, 1 to 3.
pub fn start_cpu(affinity: u64, number: u64, program: extern "C" fn(u64)) -> u64 {
    cell_second.store(program as *const () as u64, Ordering::Relaxed);
    smc3(0xc400_0003, affinity, second_entry(), number)
}

/// Arms the timer to interrupt after this number of ticks (D24.10.25).
pub fn arm_timer(ticks: u64) {
    write_register!("cntv_tval_el0", ticks);
    write_register!("cntv_ctl_el0", 1);
}

/// Unmasks interrupts.
pub fn unmask() {
    // SAFETY: the vectors are set.
    unsafe { asm!("msr daifclr, #3", options(nostack)) }
}

/// Waits for an interrupt.
pub fn wait() {
    // SAFETY: WFI changes no memory.
    unsafe { asm!("wfi", options(nostack)) }
}

/// Executes `smc #0` (Arm DEN 0028).
pub fn smc(function: u64, first: u64, second: u64) -> u64 {
    smc3(function, first, second, 0)
}

/// Executes `smc #0` with a third argument.
pub fn smc3(function: u64, first: u64, second: u64, third: u64) -> u64 {
    let mut x0 = function;
    // SAFETY: by the calling convention at most x0 to x17 change.
    unsafe {
        asm!("smc #0", inout("x0") x0, inout("x1") first => _, inout("x2") second => _,
            inout("x3") third => _, out("x4") _, out("x5") _, out("x6") _, out("x7") _,
            out("x8") _, out("x9") _, out("x10") _, out("x11") _, out("x12") _, out("x13") _,
            out("x14") _, out("x15") _, out("x16") _, out("x17") _, options(nostack));
    }
    x0
}

/// Makes a hypercall, `hvc #0`.
pub fn hvc(function: u64, first: u64) -> u64 {
    let mut x0 = function;
    // SAFETY: only x0 to x3 change.
    unsafe {
        asm!("hvc #0", inout("x0") x0, inout("x1") first => _, out("x2") _, out("x3") _,
            options(nostack));
    }
    x0
}

/// Handles the timer's interrupt and arms it for `ticks`. Called by `cell_exception`.
pub fn handle_timer(ticks: u64) {
    // Both are registers of the physical CPU interface and cause no exit.
    let interrupt = acknowledge();
    if interrupt == TIMER {
        write_register!("cntv_tval_el0", ticks);
        count(Word::Interrupts);
    } else {
        set_shared_word(Word::UnexpectedNumber, interrupt);
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
