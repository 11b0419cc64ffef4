// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs one QEMU process that cannot outlive this process, controls it over QMP, and keeps its
//! console as a log.
//!
//! The crate has its own QMP client: the protocol is one JSON object per line, and the required
//! part (a command, its answer, a queue of events, time limits) is shorter than the use of
//! generated bindings for QEMU's several hundred commands.
#![forbid(unsafe_code)]

mod console;
mod error;
mod process;
mod qmp;

pub use console::last_lines;
pub use error::{QemuError, QmpError};
pub use process::{Qemu, QemuCommand, escaped, socket_option};
pub use qmp::{QmpEvent, QmpMonitor};
