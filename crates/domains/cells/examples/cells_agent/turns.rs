// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates and destroys cells repeatedly: data of one cell or of the root is never visible to the
//! next cell.

use std::path::Path;

use rampart_cells::device::Device;
use rampart_hypervisor_core::configuration::build::Blob;
use rampart_hypervisor_core::format::MemoryFlags;
use rampart_hypervisor_core::interface::CellState;

use crate::support::{
    BEGUN, CODE_BYTES, Done, PRIVATE, PRIVATE_BYTES, Physical, Plan, RESULT, SECOND, TIMEOUT,
    disable, enable, region, report, state, wait_until,
};

/// The value that the root writes to the memory of a future cell.
const ROOTS: u64 = 0x600d_cafe_600d_cafe;

/// Start of memory of its own that is not loaded, after its pages.
fn private(plan: &Plan) -> u64 {
    plan.memory + CODE_BYTES + PRIVATE_BYTES
}

fn blob(plan: &Plan) -> Blob {
    let mut blob = plan.blob(0);
    let flags = MemoryFlags::READ | MemoryFlags::WRITE;
    blob.memory
        .push(region(private(plan), PRIVATE, PRIVATE_BYTES, flags));
    blob
}

/// Each turn uses the memory and the CPU of the previous one, which wrote to all of it.
pub(crate) fn turns(device: &Device, turns: usize, directory: &Path) -> Done {
    let program = std::fs::read(directory.join("rampart-cell-residue"))?;
    enable(device)?;
    all(device, turns, &program)?;
    disable(device)?;
    report(
        true,
        &format!("created, started, stopped and destroyed {turns} times"),
    );
    Ok(())
}

fn all(device: &Device, turns: usize, program: &[u8]) -> Done {
    let code = Physical::map(SECOND.memory, CODE_BYTES, true);
    let private = Physical::map(private(&SECOND), PRIVATE_BYTES, true);
    let page = SECOND.page();
    for turn in 0..turns {
        code.fill(ROOTS);
        private.fill(ROOTS);
        let begun = page.word(BEGUN);
        let cell = device.create(&blob(&SECOND).bytes())?;
        device.load(cell, crate::support::CODE, program)?;
        device.start(cell)?;
        if !wait_until(TIMEOUT, || page.word(BEGUN) != begun) {
            return Err(format!(
                "turn {turn}: the program did not start: {:?}",
                state(device, cell)
            )
            .into());
        }
        let found = page.word(RESULT);
        if found != 0 {
            return Err(
                format!("turn {turn}: the cell sees data of its predecessor: {found:#x}").into(),
            );
        }
        device.stop(cell)?;
        if state(device, cell).0 != CellState::Stopped {
            return Err(format!("turn {turn}: {:?}", state(device, cell)).into());
        }
        device.destroy(cell)?;
        if !code.is_zero() || !private.is_zero() {
            return Err(format!("turn {turn}: the root sees data of the cell").into());
        }
    }
    Ok(())
}
