// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile cell, or a root that is started again: executes the orders of a test in the area at its argument.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::remote::{Area, RESIDUE, start};

#[unsafe(no_mangle)]
extern "C" fn cell_main(area: u64, residue: u64) {
    // SAFETY: the cell's configuration has the area, for this CPU.
    unsafe {
        Area::at(area).set(RESIDUE, residue.wrapping_add(1));
        start(area)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {}
