// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One QEMU process: started so that it cannot outlive us, spoken with over QMP, its console kept
//! as a log.
//!
//! The client of QMP is our own: the protocol is one JSON object a line, and what is needed of it
//! (a command, its answer, a queue of events, time limits on everything) is shorter than the use
//! of a generated binding for all of QEMU's several hundred commands.
#![forbid(unsafe_code)]

mod console;
mod error;
mod process;
mod qmp;

pub use console::last_lines;
pub use error::{QemuError, QmpError};
pub use process::{Qemu, escaped, socket_option};
pub use qmp::{QmpEvent, QmpMonitor};
