// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ctrl-C and SIGTERM: the first requests an early end, the second ends the process.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rampart_model::ExitCode;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Returns a flag that the first Ctrl-C or SIGTERM sets.
///
/// # Errors
/// If the handlers cannot be installed.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: a signal that finds the flag set ends the program, else it sets the flag.
        flag::register_conditional_shutdown(
            signal,
            ExitCode::Interrupted as i32,
            Arc::clone(&stop),
        )?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// Returns a flag that each Ctrl-C, SIGTERM and SIGHUP sets. No signal ends the process, since its
/// terminal must be restored.
///
/// # Errors
/// If the handlers cannot be installed.
pub(crate) fn lasting_stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
