// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One module a command.

pub(crate) mod apply;
pub(crate) mod block;
pub(crate) mod blocktest;
pub(crate) mod cell;
pub(crate) mod check;
pub(crate) mod detach;
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
mod plan_argument;
pub(crate) mod recorded;
pub(crate) mod release;
mod remote_arguments;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod shield;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod up;

use std::path::PathBuf;

use rampart_host::{MachineRoot, read_machine};
use rampart_model::{CpuList, CpuSet};

use crate::failure::Failure;

/// The version that documents name.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the CPUs of an option on this machine, where `all` and `N` are its online CPUs.
fn cpus_here(list: Option<&CpuList>) -> Result<Option<CpuSet>, Failure> {
    let Some(list) = list else {
        return Ok(None);
    };
    // Most lists need no machine.
    let found = list.resolve(&CpuSet::new()).or_else(|_| {
        let machine = read_machine(&MachineRoot::system());
        list.resolve(&machine.topology.online)
    });
    found.map(Some).map_err(Failure::usage)
}

/// Returns the path of the static meter program: `RAMPART_METER`, or among the files that belong to
/// this program.
///
/// # Errors
/// If the program does not exist; the message has every path where it was searched.
fn meter_program() -> Result<PathBuf, Failure> {
    let searched = match std::env::var_os("RAMPART_METER") {
        Some(named) => vec![std::path::absolute(&named)?],
        None => match rampart_host::find_program_file(&std::env::current_exe()?, "rampart-meter") {
            Ok(found) => return Ok(found),
            Err(searched) => searched,
        },
    };
    if let Some(named) = searched.iter().find(|path| path.is_file()) {
        return Ok(named.clone());
    }
    let searched: Vec<String> = searched
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    Err(Failure::precondition(format!(
        "{}: the program rampart-meter does not exist; fix: install it beside rampart; \
         fix: set RAMPART_METER to its path",
        searched.join(" and ")
    )))
}
