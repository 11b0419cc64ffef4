// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A hostile cell: executes the orders of a test in the area at its argument.
#![no_std]
#![no_main]

use rampart_hypervisor_cells::remote;

#[unsafe(no_mangle)]
extern "C" fn cell_main(area: u64) {
    // SAFETY: the cell's configuration has the area, for this CPU.
    unsafe { remote::start(area) }
}

#[unsafe(no_mangle)]
extern "C" fn cell_exception() {}
