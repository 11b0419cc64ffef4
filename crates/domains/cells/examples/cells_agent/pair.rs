// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests a cell with two CPUs.

use rampart_cells::device::Device;
use rampart_hypervisor_core::interface::{CellState, CpuPower};

use crate::support::{
    BEGUN, DONE, Done, INTERRUPTS, NUMBER, PAIR, RESULT, SECOND_INTERRUPTS, TIMEOUT, UNEXPECTED,
    report, state, wait_until, without_exits,
};

const BOTH: [usize; 2] = [INTERRUPTS, SECOND_INTERRUPTS];

/// Starts the cell, stops it while both CPUs run, and starts it again.
pub(crate) fn pair(device: &Device, program: &[u8]) -> Done {
    let (orders, page) = (PAIR.order_page(), PAIR.page());
    let cell = PAIR.begin(device, &PAIR.blob(0), program)?;
    let unexpected = page.word(UNEXPECTED);
    without_exits(device, "two CPUs", &PAIR, &BOTH, 200);
    for (number, what) in [
        (1, "software interrupts inside the cell"),
        (2, "a CPU turned off and on"),
    ] {
        orders.set(NUMBER, number);
        let done = wait_until(3 * TIMEOUT, || page.word(DONE) == number);
        let (found, state) = (page.word(RESULT), state(device, cell));
        report(
            done && found == 0 && state.0 == CellState::Running,
            &format!("two CPUs: {what}: done {done}, wrong {found:#x}, {state:?}"),
        );
    }
    without_exits(device, "two CPUs, the second restarted", &PAIR, &BOTH, 100);
    report(
        page.word(UNEXPECTED) == unexpected,
        "two CPUs: no foreign interrupt",
    );
    device.stop(cell)?;
    let status = device.status()?;
    let parked = PAIR
        .cpus
        .iter()
        .all(|cpu| status.get().cpus[*cpu as usize].cpu_state().power == CpuPower::Off);
    let stopped = (page.word(INTERRUPTS), page.word(SECOND_INTERRUPTS));
    std::thread::sleep(std::time::Duration::from_millis(30));
    let still = stopped == (page.word(INTERRUPTS), page.word(SECOND_INTERRUPTS));
    report(parked && still, "two CPUs: both are stopped");
    orders.set(NUMBER, 0);
    let begun = page.word(BEGUN);
    device.start(cell)?;
    wait_until(TIMEOUT, || page.word(BEGUN) != begun);
    without_exits(device, "two CPUs, started again", &PAIR, &BOTH, 100);
    report(
        page.word(RESULT) == 0,
        &format!(
            "two CPUs: no error after the restart: {:#x}",
            page.word(RESULT)
        ),
    );
    device.destroy(cell)?;
    Ok(())
}
