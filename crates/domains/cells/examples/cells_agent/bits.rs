// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A GPIO controller whose lines are divided between a cell and the root: a PL061 (Arm DDI 0190).
//! Linux may use its line 3 for the power key; this test does not change it.

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{RegisterFlags, RegisterGrant};

use crate::memory::is_refused;
use crate::support::{
    DONE, Done, NUMBER, ORDER_FIRST, Physical, RESULT, SECOND, TIMEOUT, device_of, report, state,
    wait_until,
};

/// GPIODATA has 256 addresses, whose bits 9 to 2 select the lines (3.3.2).
const ADDRESSES: u64 = 256;
const ALL_DATA: u64 = 0x3fc;
const DIRECTION: u64 = 0x400;
const SENSE: u64 = 0x404;
const EVENT: u64 = 0x40c;
const RAW_STATUS: u64 = 0x414;
const CLEAR: u64 = 0x41c;
/// The cell's lines, and the root's lines in this test.
const CELLS: u32 = 0xc0;
const ROOTS: u32 = 0x37;
/// Rounds of each side, at the same time.
const ROUNDS: u64 = 20_000;

/// Returns the register grants for these lines of the controller at this address.
fn grants(gpio: u64, lines: u32) -> Vec<RegisterGrant> {
    let lines = u64::from(lines);
    let grant = |offset: u64, readable: u64, writable: u64, flags: RegisterFlags| RegisterGrant {
        address: gpio + offset,
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

/// Writes the root's lines while the cell writes its own. Returns how often the root read back
/// another value than it wrote.
fn together(gpio: &Physical) -> u64 {
    let mut lost = 0;
    for round in 0..ROUNDS as u32 {
        let wanted = round & ROOTS;
        gpio.set_register(SENSE, gpio.register(SENSE) & !ROOTS | wanted);
        lost += u64::from(gpio.register(SENSE) & ROOTS != wanted);
        // Through an address that also selects the cell's lines.
        gpio.set_register(u64::from(CELLS | ROOTS) << 2, wanted);
        lost += u64::from(gpio.register(ALL_DATA) & (ROOTS | CELLS) != wanted);
    }
    gpio.set_register(SENSE, gpio.register(SENSE) & !ROOTS);
    gpio.set_register(u64::from(ROOTS) << 2, 0);
    lost
}

/// Assigns registers of one device by line.
pub(crate) fn bits(device: &Device, program: &[u8]) -> Done {
    let described = device_of("arm,pl061")?;
    let start = described.ranges.first().ok_or("no registers")?.start;
    let gpio = Physical::map(start, 4096, true);
    let before = [DIRECTION, SENSE, EVENT].map(|at| gpio.register(at));
    let blob = Blob {
        registers: grants(start, CELLS),
        ..SECOND.blob(start)
    };
    let (orders, page) = (SECOND.order_page(), SECOND.page());
    let cell = SECOND.begin(device, &blob, program)?;
    let done = |number: u64, what: &str| {
        let done = wait_until(3 * TIMEOUT, || page.word(DONE) == number);
        let wrong = page.word(RESULT);
        report(
            done && wrong == 0,
            &format!(
                "bits: {what}: done {done}, wrong {wrong:#x}, {:?}",
                state(device, cell)
            ),
        );
    };

    // All lines of the root become outputs with a high level; it cannot access the cell's.
    gpio.set_register(DIRECTION, gpio.register(DIRECTION) | ROOTS | CELLS);
    gpio.set_register(ALL_DATA, ROOTS | CELLS);
    let seen = (gpio.register(DIRECTION), gpio.register(ALL_DATA) & ROOTS);
    report(
        seen.0 & (ROOTS | CELLS) == ROOTS && seen.1 == ROOTS,
        &format!("bits: the root writes its own lines: {seen:x?}"),
    );
    orders.set(NUMBER, 1);
    done(1, "each register");
    let seen = (gpio.register(DIRECTION), gpio.register(ALL_DATA));
    report(
        seen.0 & (ROOTS | CELLS) == ROOTS && seen.1 & (ROOTS | CELLS) == ROOTS,
        &format!("bits: the root's lines are unchanged: {seen:x?}"),
    );
    report(
        is_refused(&gpio, DIRECTION, false) && is_refused(&gpio, DIRECTION, true),
        "bits: a part of a shared register is refused",
    );

    orders.set(ORDER_FIRST, ROUNDS);
    orders.set(NUMBER, 2);
    let lost = together(&gpio);
    report(
        lost == 0,
        &format!("bits: the root has lost {lost} of {ROUNDS} writes"),
    );
    done(2, "read-modify-write at the same time");

    orders.set(NUMBER, 3);
    done(3, "an interrupt is latched");
    // The root clears all lines that it can, then latches an interrupt of its own line.
    gpio.set_register(CLEAR, ROOTS | CELLS);
    gpio.set_register(EVENT, gpio.register(EVENT) & !0x20);
    gpio.set_register(SENSE, gpio.register(SENSE) | 0x20);
    gpio.set_register(SENSE, gpio.register(SENSE) & !0x20);
    let status = gpio.register(RAW_STATUS) & (ROOTS | CELLS);
    report(
        status == 0x20,
        &format!("bits: the root sees its own status: {status:#x}"),
    );
    orders.set(NUMBER, 4);
    done(4, "the interrupt survives the root's clear");
    let status = gpio.register(RAW_STATUS) & ROOTS;
    report(
        status == 0x20,
        &format!("bits: the root's interrupt survives the cell's clear: {status:#x}"),
    );

    device.destroy(cell)?;
    // The state of the device combines the settings of both.
    let all = gpio.register(DIRECTION);
    report(
        all & (ROOTS | CELLS) == ROOTS | CELLS,
        &format!("bits: the root has all lines again, no write was lost: {all:#x}"),
    );
    gpio.set_register(CLEAR, ROOTS | CELLS);
    for (at, value) in [DIRECTION, SENSE, EVENT].into_iter().zip(before) {
        gpio.set_register(at, value);
    }
    Ok(())
}
