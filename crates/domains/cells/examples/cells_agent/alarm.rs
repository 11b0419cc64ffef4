// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assigns a device to a cell, which handles its interrupt: a PL031 clock.

use std::fs;

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{InterruptGrant, MemoryFlags};

use crate::support::{
    DEVICE, Done, INTERRUPTS, Physical, SECOND, UNEXPECTED, described, device_of, region, report,
    without_exits,
};

/// GICD_ICFGR0: two bits for each interrupt, of which the upper one makes it edge-triggered.
const TRIGGERS: u64 = 0xc00;

/// Linux releases the device and gets it back, with the same trigger of its interrupt.
pub(crate) fn alarm(device: &Device, program: &[u8]) -> Done {
    let clock = device_of("arm,pl031")?;
    let registers = clock
        .ranges
        .first()
        .ok_or("a clock without registers")?
        .span();
    let interrupt = clock.shared_interrupts().next();
    let interrupt = interrupt.ok_or("a clock without an interrupt")?;
    let linux = clock.linux.ok_or("no device of Linux")?;
    let driver = linux.driver.ok_or("no driver of Linux")?;
    let driver = format!("/sys/bus/{}/drivers/{driver}", linux.bus);
    let controller = described()?.interrupt_controller;
    let distributor = controller.ok_or("no interrupt controller")?.distributor;
    fs::write(format!("{driver}/unbind"), &linux.device)
        .map_err(|error| format!("{driver}/unbind: {error}"))?;
    let distributor = Physical::map(distributor.start, 4096, true);
    let at = TRIGGERS + u64::from(interrupt / 16 * 4);
    let edge = 2 << (interrupt % 16 * 2);
    let triggers = distributor.register(at);
    // The cell makes it level-triggered.
    distributor.set_register(at, triggers | edge);
    let result = with_clock(device, program, (registers.start, interrupt));
    let after = distributor.register(at);
    report(
        after == triggers | edge && after != triggers,
        &format!("alarm: the root's trigger is restored: {triggers:#x}, {after:#x}"),
    );
    distributor.set_register(at, triggers);
    fs::write(format!("{driver}/bind"), &linux.device)
        .map_err(|error| format!("{driver}/bind: {error}"))?;
    result?;
    let clock = Physical::open(registers.start);
    // 2020-01-01 is 1,577,836,800 seconds after 1970-01-01.
    let seconds = clock.register(0);
    report(
        seconds > 1_577_836_800,
        &format!("alarm: the root's clock works again: {seconds}"),
    );
    Ok(())
}

fn with_clock(device: &Device, program: &[u8], (clock, interrupt): (u64, u32)) -> Done {
    let registers = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE;
    let mut blob = Blob {
        interrupts: vec![InterruptGrant {
            number: interrupt,
            flags: 0,
        }],
        ..SECOND.blob(clock | u64::from(interrupt) << 48)
    };
    blob.memory.push(region(clock, clock, 4096, registers));
    let page = SECOND.page();
    let cell = SECOND.begin(device, &blob, program)?;
    let unexpected = page.word(UNEXPECTED);
    without_exits(
        device,
        "a device of the cell",
        &SECOND,
        &[DEVICE, INTERRUPTS],
        300,
    );
    report(
        page.word(UNEXPECTED) == unexpected,
        "alarm: no foreign interrupt",
    );
    device.destroy(cell)?;
    Ok(())
}
