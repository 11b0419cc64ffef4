// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's messages, in the status pages: rare, short, and never waited for.

use core::fmt::{self, Write};
use core::sync::atomic::Ordering::{Relaxed, Release};

use rampart_hypervisor_core::interface::LOG_BYTES;

use crate::machine::Machine;

struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some(machine) = Machine::get() else {
            return Ok(());
        };
        let status = machine.status();
        // Two CPUs that log at once may mix their lines; none waits for the other.
        let start = status.logged.fetch_add(text.len() as u64, Release);
        for (byte, at) in text.bytes().zip(start..) {
            if let Some(place) = status.log.get(at as usize % LOG_BYTES) {
                place.store(byte, Relaxed);
            }
        }
        Ok(())
    }
}

/// Writes a line. Used through [`log`].
pub(crate) fn line(text: fmt::Arguments<'_>) {
    // The writer does not fail.
    let _ = Log.write_fmt(text);
    let _ = Log.write_str("\n");
}

macro_rules! log {
    ($($text:tt)*) => { $crate::log::line(format_args!($($text)*)) };
}
pub(crate) use log;
