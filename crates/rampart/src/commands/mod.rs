// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One module a command.

pub(crate) mod apply;
pub(crate) mod block;
pub(crate) mod blocktest;
pub(crate) mod cell;
pub(crate) mod check;
pub(crate) mod documents;
pub(crate) mod domains;
pub(crate) mod evaluate;
mod evaluate_on;
pub(crate) mod evaluate_plan;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod knobs;
pub(crate) mod measure;
pub(crate) mod moving;
pub(crate) mod on;
pub(crate) mod plan;
pub(crate) mod recorded;
pub(crate) mod release;
mod remote_arguments;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod shield;
pub(crate) mod sim;
mod sim_program;
pub(crate) mod status;
pub(crate) mod up;

use std::path::PathBuf;

use crate::failure::Failure;

/// The version that documents name.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the path of the static meter program: `RAMPART_METER`, or beside this program.
///
/// # Errors
/// If the program does not exist.
fn meter_program() -> Result<PathBuf, Failure> {
    let candidate = match std::env::var_os("RAMPART_METER") {
        Some(named) => PathBuf::from(named),
        None => std::env::current_exe().map(|program| program.with_file_name("rampart-meter"))?,
    };
    let absolute = std::path::absolute(&candidate)?;
    if absolute.is_file() {
        return Ok(absolute);
    }
    Err(Failure::precondition(format!(
        "{}: the program rampart-meter does not exist; fix: install it beside rampart; \
         fix: set RAMPART_METER to its path",
        absolute.display()
    )))
}
