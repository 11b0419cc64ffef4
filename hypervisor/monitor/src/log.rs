// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor's messages, in the status pages: rare, short, and never waited for.

use core::fmt::{self, Write};

use crate::machine::Machine;

struct Log;

impl Write for Log {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let Some(machine) = Machine::get() else {
            return Ok(());
        };
        machine.status().log(text);
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
