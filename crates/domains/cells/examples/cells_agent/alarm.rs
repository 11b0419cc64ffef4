// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Assigns a device to a cell, which handles its interrupt: the PL031 clock of QEMU's `virt`.

use std::fs;

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::{InterruptGrant, MemoryFlags};

use crate::support::{
    DEVICE, Done, INTERRUPTS, Physical, SECOND, UNEXPECTED, region, report, without_exits,
};

const DISTRIBUTOR: u64 = 0x0800_0000;
const CLOCK: u64 = 0x0901_0000;
const INTERRUPT: u32 = 34;
const DRIVER: &str = "/sys/bus/amba/drivers/rtc-pl031";
const NAME: &str = "9010000.pl031";

/// GICD_ICFGR2, and the bit that makes the interrupt edge-triggered.
const TRIGGERS: u64 = 0xc08;
const EDGE: u32 = 1 << 5;

/// Linux releases the device and gets it back, with the same trigger of its interrupt.
pub(crate) fn alarm(device: &Device, program: &[u8]) -> Done {
    fs::write(format!("{DRIVER}/unbind"), NAME)
        .map_err(|error| format!("{DRIVER}/unbind: {error}"))?;
    let distributor = Physical::map(DISTRIBUTOR, 4096, true);
    let triggers = distributor.register(TRIGGERS);
    // The cell makes it level-triggered.
    distributor.set_register(TRIGGERS, triggers | EDGE);
    let result = with_clock(device, program);
    let after = distributor.register(TRIGGERS);
    report(
        after == triggers | EDGE && after != triggers,
        &format!("alarm: the root's trigger is restored: {triggers:#x}, {after:#x}"),
    );
    distributor.set_register(TRIGGERS, triggers);
    fs::write(format!("{DRIVER}/bind"), NAME).map_err(|error| format!("{DRIVER}/bind: {error}"))?;
    result?;
    let clock = Physical::open(CLOCK);
    // 2020-01-01 is 1,577,836,800 seconds after 1970-01-01.
    let seconds = clock.register(0);
    report(
        seconds > 1_577_836_800,
        &format!("alarm: the root's clock works again: {seconds}"),
    );
    Ok(())
}

fn with_clock(device: &Device, program: &[u8]) -> Done {
    let registers = MemoryFlags::READ | MemoryFlags::WRITE | MemoryFlags::DEVICE;
    let mut blob = Blob {
        interrupts: vec![InterruptGrant {
            number: INTERRUPT,
            flags: 0,
        }],
        ..SECOND.blob(0)
    };
    blob.memory.push(region(CLOCK, CLOCK, 4096, registers));
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
