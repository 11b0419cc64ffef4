// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's log in the status pages, for rare and short messages.

use rampart_hypervisor_fast_path::holder;

use crate::machine::MACHINE;

/// Logs a text and numbers in hexadecimal. `core::fmt` would be a tenth of the code at EL2.
pub(crate) fn write_line(text: &str, numbers: &[u64]) {
    let Some(machine) = MACHINE.get() else { return };
    let status = machine.status();
    let holder = holder();
    status.log(holder, text.as_bytes());
    for number in numbers {
        // "0x" and 16 digits.
        let mut digits = *b" 0x0000000000000000";
        for (position, digit) in digits[3..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(*number >> (60 - 4 * position)) as usize & 0xf];
        }
        status.log(holder, &digits);
    }
    status.log(holder, b"\n");
}
