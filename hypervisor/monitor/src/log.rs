// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's messages, in the status pages: rare, short, and never waited for.

use crate::machine::Machine;

/// Writes a line: a text, then numbers in hexadecimal digits. The formatting of `core::fmt` would be a
/// tenth of all that runs at EL2.
pub(crate) fn write_line(text: &str, numbers: &[u64]) {
    let Some(machine) = Machine::get() else {
        return;
    };
    let status = machine.status();
    status.log(text.as_bytes());
    for number in numbers {
        // "0x" and as many digits as a number has at most.
        let mut digits = *b" 0x0000000000000000";
        for (location, digit) in digits[3..].iter_mut().enumerate() {
            *digit = b"0123456789abcdef"[(*number >> (60 - 4 * location)) as usize & 0xf];
        }
        status.log(&digits);
    }
    status.log(b"\n");
}
