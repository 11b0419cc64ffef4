// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart domains`: the domains that this machine can host.

use rampart_host::{MachineRoot, read_machine};
use rampart_model::ExitCode;

use crate::arguments::Domains;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Domains) -> Result<ExitCode, Failure> {
    let machine = read_machine(&MachineRoot::system());
    let domains = rampart_domain::availability(&machine);
    if arguments.json {
        output::print_json(&domains)?;
    } else {
        output::print_text(&rampart_present::domains(&domains))?;
    }
    Ok(ExitCode::Success)
}
