// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GPIO of which a cell and the root have some lines each: a PL061 (Arm DDI 0190), as QEMU's `virt`
//! has it. Linux uses its line 3 for the power key; that one stays as it is.

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{RegisterFlags, RegisterGrant};

use crate::memory::is_refused;
use crate::support::{
    DONE, Done, NUMBER, ORDER_FIRST, PATIENCE, Physical, RESULT, SECOND, say, state, wait_until,
};

const GPIO: u64 = 0x0903_0000;
/// GPIODATA is there at 256 addresses, whose bits 9 to 2 say which lines are meant (3.3.2).
const ADDRESSES: u64 = 256;
const ALL_DATA: u64 = 0x3fc;
const DIRECTION: u64 = 0x400;
const SENSE: u64 = 0x404;
const EVENT: u64 = 0x40c;
const RAW_STATUS: u64 = 0x414;
const CLEAR: u64 = 0x41c;
/// The cell's lines, and the root's that this test uses.
const CELLS: u32 = 0xc0;
const ROOTS: u32 = 0x37;
/// Of each side, at the same time.
const ROUNDS: u64 = 20_000;

/// The registers of these lines.
fn grants(lines: u32) -> Vec<RegisterGrant> {
    let lines = u64::from(lines);
    let grant = |offset: u64, readable: u64, writable: u64, flags: RegisterFlags| RegisterGrant {
        address: GPIO + offset,
        readable,
        writable,
        width: 4,
        flags: flags.bits(),
    };
    let plain = RegisterFlags::empty();
    let data = (0..ADDRESSES)
        .filter(|address| address & lines != 0)
        .map(|address| grant(address << 2, address & lines, address & lines, plain));
    // GPIODIR, GPIOIS, GPIOIBE, GPIOIEV, GPIOIE.
    let own = (DIRECTION..=0x410)
        .step_by(4)
        .map(|at| grant(at, lines, lines, plain));
    let status = [RAW_STATUS, 0x418].map(|at| grant(at, lines, 0, plain));
    let clear = grant(CLEAR, 0, lines, RegisterFlags::WRITE_ACTS);
    let alternate = grant(0x420, lines, lines, plain);
    data.chain(own)
        .chain(status)
        .chain([clear, alternate])
        .collect()
}

/// What the root does with its lines while the cell does the same: how often it did not find what it
/// had written.
fn together(gpio: &Physical) -> u64 {
    let mut lost = 0;
    for round in 0..ROUNDS as u32 {
        let wanted = round & ROOTS;
        gpio.set_register(SENSE, gpio.register(SENSE) & !ROOTS | wanted);
        lost += u64::from(gpio.register(SENSE) & ROOTS != wanted);
        // Through an address that means the cell's lines too.
        gpio.set_register(u64::from(CELLS | ROOTS) << 2, wanted);
        lost += u64::from(gpio.register(ALL_DATA) & (ROOTS | CELLS) != wanted);
    }
    gpio.set_register(SENSE, gpio.register(SENSE) & !ROOTS);
    gpio.set_register(u64::from(ROOTS) << 2, 0);
    lost
}

/// Registers of one device, lines of two.
pub(crate) fn bits(device: &Device, program: &[u8]) -> Done {
    let gpio = Physical::map(GPIO, 4096, true);
    let before = [DIRECTION, SENSE, EVENT].map(|at| gpio.register(at));
    let blob = Blob {
        registers: grants(CELLS),
        ..SECOND.blob(0)
    };
    let (orders, page) = (SECOND.order_page(), SECOND.page());
    let cell = SECOND.begin(device, &blob, program)?;
    let done = |number: u64, what: &str| {
        let done = wait_until(3 * PATIENCE, || page.word(DONE) == number);
        let wrong = page.word(RESULT);
        say(
            done && wrong == 0,
            &format!(
                "bits: {what}: done {done}, wrong {wrong:#x}, {:?}",
                state(device, cell)
            ),
        );
    };

    // All of the root's lines are outputs, and high; it does not reach the cell's.
    gpio.set_register(DIRECTION, gpio.register(DIRECTION) | ROOTS | CELLS);
    gpio.set_register(ALL_DATA, ROOTS | CELLS);
    let seen = (gpio.register(DIRECTION), gpio.register(ALL_DATA) & ROOTS);
    say(
        seen.0 & (ROOTS | CELLS) == ROOTS && seen.1 == ROOTS,
        &format!("bits: the root has its own: {seen:x?}"),
    );
    orders.set(NUMBER, 1);
    done(1, "each register");
    let seen = (gpio.register(DIRECTION), gpio.register(ALL_DATA));
    say(
        seen.0 & (ROOTS | CELLS) == ROOTS && seen.1 & (ROOTS | CELLS) == ROOTS,
        &format!("bits: the root's are as they were: {seen:x?}"),
    );
    say(
        is_refused(&gpio, DIRECTION, false) && is_refused(&gpio, DIRECTION, true),
        "bits: a part of a shared register is refused",
    );

    orders.set(ORDER_FIRST, ROUNDS);
    orders.set(NUMBER, 2);
    let lost = together(&gpio);
    say(
        lost == 0,
        &format!("bits: the root has lost {lost} of {ROUNDS} writes"),
    );
    done(2, "read-modify-write at the same time");

    orders.set(NUMBER, 3);
    done(3, "an interrupt is latched");
    // The root clears all that it can, and has one of its own then.
    gpio.set_register(CLEAR, ROOTS | CELLS);
    gpio.set_register(EVENT, gpio.register(EVENT) & !0x20);
    gpio.set_register(SENSE, gpio.register(SENSE) | 0x20);
    gpio.set_register(SENSE, gpio.register(SENSE) & !0x20);
    let status = gpio.register(RAW_STATUS) & (ROOTS | CELLS);
    say(
        status == 0x20,
        &format!("bits: the root sees its own status: {status:#x}"),
    );
    orders.set(NUMBER, 4);
    done(4, "it outlives what the root clears");
    let status = gpio.register(RAW_STATUS) & ROOTS;
    say(
        status == 0x20,
        &format!("bits: the root's outlives what the cell clears: {status:#x}"),
    );

    device.destroy(cell)?;
    // As the device has it: what both have set.
    let all = gpio.register(DIRECTION);
    say(
        all & (ROOTS | CELLS) == ROOTS | CELLS,
        &format!("bits: the root has all again, and nothing was lost: {all:#x}"),
    );
    gpio.set_register(CLEAR, ROOTS | CELLS);
    for (at, value) in [DIRECTION, SENSE, EVENT].into_iter().zip(before) {
        gpio.set_register(at, value);
    }
    Ok(())
}
