// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts instructions of accesses that trap, of some that do not, and from an interrupt to its handler. Needs
//! a machine on which one instruction is one tick of CNTVCT_EL0 (QEMU's `-icount`). The argument is 0 if it runs
//! at EL1 without a hypervisor, otherwise the index of its CPU. Each line of its semihosting output is a name,
//! the minimum and the maximum count.
#![no_std]
#![no_main]

use core::arch::asm;
use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rampart_hypervisor_cells::{
    TIMER, access_ticks, acknowledge, distributor, enable, enable_shared, end, load, read_register,
    redistributor, store, unmask, write_register,
};
use rampart_hypervisor_core::interface::{DOORBELL_BY_SMC, Hypercall};
use rampart_meter::engine::mmio::each;
use rampart_ring::network::{FrameTransfer, HEADER_WORDS, Link, MOST_FRAME, SLOT_WORDS};

/// Repetitions of each access.
const REPETITIONS: u32 = 16;
/// Repetitions of each kind of interrupt.
const INTERRUPTS: u64 = 100;
/// A PL011 (Arm DDI 0183) and its interrupt on QEMU's `virt`: UARTFR, UARTIMSC, UARTICR.
const PORT: u64 = 0x0900_0000;
const PORT_INTERRUPT: u64 = 33;
const PORT_FLAGS: u64 = PORT + 0x18;
const PORT_MASK: u64 = PORT + 0x38;
const PORT_CLEAR: u64 = PORT + 0x44;
const TRANSMIT: u32 = 1 << 5;
/// GPIODIR of the PL061 (Arm DDI 0190), of which the cell has two bits.
const DIRECTION: u64 = 0x0903_0400;
/// A function of the vendor of a board (Arm DEN 0028, 2.5), which QEMU's firmware does not have.
const FIRMWARE_CALL: u64 = 0x8200_0010;
/// Time from arming the timer to its interrupt, in ticks.
const AHEAD: u64 = 2000;

/// CNTVCT_EL0 when the interrupt was taken, stored by the handler; 0 until then.
static TAKEN: AtomicU64 = AtomicU64::new(0);

struct Counts {
    minimum: u64,
    maximum: u64,
}

impl Counts {
    const NONE: Self = Self { minimum: u64::MAX, maximum: 0 };

    fn add(&mut self, count: u64) {
        self.minimum = self.minimum.min(count);
        self.maximum = self.maximum.max(count);
    }
}

/// Counts the instructions between two reads of the counter, and prints the counts with a name.
macro_rules! counted {
    ($name:literal, $empty:expr, $text:literal $(, inout($location:tt) $value:expr)*) => {{
        let mut counts = Counts::NONE;
        for _ in 0..REPETITIONS {
            let (before, after): (u64, u64);
            // SAFETY: the cell may make the access; by the calling convention of SMC and HVC (Arm DEN 0028)
            // at most x0 to x17 change.
            unsafe {
                asm!("mrs x20, cntvct_el0", $text, "mrs x21, cntvct_el0",
                    out("x20") before, out("x21") after,
                    $(inout($location) $value => _,)*
                    out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _,
                    out("x10") _, out("x11") _, out("x12") _, out("x13") _, out("x14") _,
                    out("x15") _, out("x16") _, out("x17") _, options(nostack));
            }
            counts.add(after - before - $empty);
        }
        print($name, &counts);
        counts.minimum
    }};
}

#[unsafe(no_mangle)]
extern "C" fn cell_main(argument: u64) {
    let in_cell = argument != 0;
    // The cost of the second read itself.
    let empty = counted!("nothing", 0, "");
    enable(TIMER);
    enable_shared(PORT_INTERRUPT, false);
    if in_cell {
        accesses(empty);
        let before = exits(argument);
        network();
        // The query itself is an exit, which is counted before it returns.
        print_one("exits_network", exits(argument) - before - 1);
    }
    unmask();
    let before = if in_cell { exits(argument) } else { 0 };
    timer();
    let between = if in_cell { exits(argument) } else { 0 };
    device();
    let after = if in_cell { exits(argument) } else { 0 };
    if in_cell {
        // Each query is an exit itself, which is counted before it returns.
        print_one("exits_timer", between - before - 1);
        print_one("exits_device", after - between - 1);
        print_one("interrupts", INTERRUPTS);
    }
    print_one("done", 1);
    finish();
}

fn accesses(empty: u64) {
    let distributor = distributor();
    count_like_meter("mmio_trapped", distributor + 4);
    count_like_meter("mmio_mapped", PORT_FLAGS);
    let frame = redistributor();
    let private = frame + 0x1_0000;
    let router = distributor + 0x6000 + 8 * PORT_INTERRUPT;
    let own = read_register!("mpidr_el1") & 0xff_00ff_ffff;
    let sets = 1_u64 << (PORT_INTERRUPT % 32);
    let priorities = distributor + 0x400 + PORT_INTERRUPT / 4 * 4;
    counted!("mapped_read", empty, "ldr w1, [x0]", inout("x0") PORT_FLAGS, inout("x1") 0_u64);
    counted!("mapped_write", empty, "str w1, [x0]", inout("x0") PORT_MASK, inout("x1") 0_u64);
    counted!("gicd_typer_read", empty, "ldr w1, [x0]", inout("x0") distributor + 4, inout("x1") 0_u64);
    counted!("gicd_irouter_read", empty, "ldr x1, [x0]", inout("x0") router, inout("x1") 0_u64);
    counted!("gicd_irouter_write", empty, "str x1, [x0]", inout("x0") router, inout("x1") own);
    counted!("gicd_isenabler_read", empty, "ldr w1, [x0]", inout("x0") distributor + 0x104, inout("x1") 0_u64);
    counted!("gicd_isenabler_write", empty, "str w1, [x0]", inout("x0") distributor + 0x104, inout("x1") sets);
    counted!("gicd_ipriorityr_read", empty, "ldr w1, [x0]", inout("x0") priorities, inout("x1") 0_u64);
    counted!("gicd_ipriorityr_write", empty, "str w1, [x0]", inout("x0") priorities, inout("x1") 0xa0a0_a0a0_u64);
    counted!("gicr_typer_read", empty, "ldr x1, [x0]", inout("x0") frame + 8, inout("x1") 0_u64);
    counted!("gicr_isenabler0_read", empty, "ldr w1, [x0]", inout("x0") private + 0x100, inout("x1") 0_u64);
    counted!("gicr_isenabler0_write", empty, "str w1, [x0]", inout("x0") private + 0x100, inout("x1") 1_u64 << TIMER);
    counted!("gicr_ipriorityr_read", empty, "ldr w1, [x0]", inout("x0") private + 0x418, inout("x1") 0_u64);
    counted!("gicr_ipriorityr_write", empty, "str w1, [x0]", inout("x0") private + 0x418, inout("x1") 0xa0a0_a0a0_u64);
    counted!("bits_read", empty, "ldr w1, [x0]", inout("x0") DIRECTION, inout("x1") 0_u64);
    counted!("bits_write", empty, "str w1, [x0]", inout("x0") DIRECTION, inout("x1") 0x40_u64);
    counted!("psci_version", empty, "smc #0", inout("x0") 0x8400_0000_u64, inout("x1") 0_u64, inout("x2") 0_u64, inout("x3") 0_u64);
    let interface = u64::from(u32::from(Hypercall::Interface));
    counted!("hypercall", empty, "hvc #0", inout("x0") interface, inout("x1") 0_u64, inout("x2") 0_u64, inout("x3") 0_u64);
    counted!("doorbell", empty, "smc #0", inout("x0") u64::from(DOORBELL_BY_SMC), inout("x1") 0_u64, inout("x2") 0_u64, inout("x3") 0_u64);
    counted!("firmware_call", empty, "smc #0", inout("x0") FIRMWARE_CALL, inout("x1") 0_u64, inout("x2") 0_u64, inout("x3") 0_u64);
    // SGI 1 to this CPU, which has disabled it: it stays pending and is cleared.
    let target = 1_u64 << 24 | 1 << (own & 0xf);
    counted!("icc_sgi1r_write", empty, "msr s3_0_c12_c11_5, x0", inout("x0") target);
    store(private + 0x280, 1 << 1);
    counted!("icc_pmr_read", empty, "mrs x0, s3_0_c4_c6_0", inout("x0") 0_u64);
    counted!("icc_pmr_write", empty, "msr s3_0_c4_c6_0, x0", inout("x0") 0xf0_u64);
}

/// Words of a section of a network with four slots.
const SECTION: usize = HEADER_WORDS + 4 * SLOT_WORDS;
static NEAR: [AtomicU64; SECTION] = [const { AtomicU64::new(0) }; SECTION];
static FAR: [AtomicU64; SECTION] = [const { AtomicU64::new(0) }; SECTION];

/// Counts the transfer of a frame of full length between two ends in this program.
fn network() {
    let number = NonZeroU64::MIN;
    let (near, far) = (&NEAR[..], &FAR[..]);
    let (Some(mut near), Some(mut far)) =
        (Link::open(near, far, number), Link::open(far, near, number))
    else {
        return;
    };
    near.update();
    far.update();
    near.update();
    let (frame, mut buffer) = ([7; 1514], [0; MOST_FRAME]);
    let (mut sent, mut received) = (Counts::NONE, Counts::NONE);
    for _ in 0..INTERRUPTS {
        let before = read_register!("cntvct_el0");
        let one = near.send(&frame);
        let between = read_register!("cntvct_el0");
        let other = far.receive(&mut buffer);
        let after = read_register!("cntvct_el0");
        let is_frame = |transfer| matches!(transfer, FrameTransfer::Frame { bytes: 1514, .. });
        if is_frame(one) && is_frame(other) {
            sent.add(between - before);
            received.add(after - between);
        }
    }
    print("network_send", &sent);
    print("network_receive", &received);
}

/// Counts an access as the meter `mmio` does: the mean of a batch.
fn count_like_meter(name: &str, register: u64) {
    let mut counts = Counts::NONE;
    for _ in 0..REPETITIONS {
        let empty = access_ticks(None);
        counts.add(each(access_ticks(Some(register)), empty));
    }
    print(name, &counts);
}

/// Counts from the expiry of the timer (CNTV_CVAL_EL0) to the handler.
fn timer() {
    let mut counts = Counts::NONE;
    for _ in 0..INTERRUPTS {
        TAKEN.store(0, Relaxed);
        let due = read_register!("cntvct_el0") + AHEAD;
        write_register!("cntv_cval_el0", due);
        write_register!("cntv_ctl_el0", 1);
        counts.add(taken() - due);
    }
    print("timer", &counts);
}

/// Counts from the store that raises a device's interrupt to the handler: the port has sent a character, and
/// its interrupt is unmasked.
fn device() {
    let mut counts = Counts::NONE;
    for _ in 0..INTERRUPTS {
        TAKEN.store(0, Relaxed);
        store(PORT, 0);
        let before: u64;
        // SAFETY: a register of a device of the cell.
        unsafe {
            asm!("mrs {}, cntvct_el0", "str {:w}, [{}]", out(reg) before, in(reg) TRANSMIT,
                in(reg) PORT_MASK, options(nostack));
        }
        counts.add(taken() - before);
    }
    print("device", &counts);
}

fn taken() -> u64 {
    loop {
        let taken = TAKEN.load(Relaxed);
        if taken != 0 {
            return taken;
        }
        core::hint::spin_loop();
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception(now: u64) {
    let interrupt = acknowledge();
    match interrupt {
        TIMER => write_register!("cntv_ctl_el0", 0),
        PORT_INTERRUPT => {
            store(PORT_MASK, 0);
            store(PORT_CLEAR, 0x7ff);
            // The device has cleared it before the interrupt is ended.
            load(PORT_FLAGS);
        }
        other => {
            print_one("unexpected_exception", other);
            print_one("syndrome", read_register!("esr_el1"));
            finish();
        }
    }
    end(interrupt);
    TAKEN.store(now, Relaxed);
}

/// Returns the number of exits of this CPU, by the hypervisor's counters.
fn exits(cpu: u64) -> u64 {
    let exits;
    // SAFETY: only x0 to x3 change.
    unsafe {
        asm!("hvc #0", inout("x0") u64::from(u32::from(Hypercall::CpuInfo)) => _,
            inout("x1") cpu => _, out("x2") _, out("x3") exits, options(nostack));
    }
    exits
}

fn print(name: &str, counts: &Counts) {
    name.bytes().for_each(print_byte);
    for count in [counts.minimum, counts.maximum] {
        print_byte(b' ');
        let mut digit = 10_u64.pow(19);
        while digit > 1 && count < digit {
            digit /= 10;
        }
        while digit > 0 {
            print_byte(b'0' + (count / digit % 10) as u8);
            digit /= 10;
        }
    }
    print_byte(b'\n');
}

fn print_one(name: &str, count: u64) {
    print(name, &Counts { minimum: count, maximum: count });
}

/// SYS_WRITEC (Arm semihosting specification, 6.22).
fn print_byte(byte: u8) {
    semihosting(3, (&raw const byte) as u64);
}

/// Ends the simulated machine: SYS_EXIT (6.9) with ADP_Stopped_ApplicationExit.
fn finish() -> ! {
    let block = [0x2_0026_u64, 0];
    loop {
        semihosting(0x18, block.as_ptr() as u64);
    }
}

fn semihosting(operation: u64, parameter: u64) {
    // SAFETY: the simulator reads what the parameter points to.
    unsafe { asm!("hlt #0xf000", inout("x0") operation => _, in("x1") parameter, options(nostack)) }
}
