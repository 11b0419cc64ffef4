// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart domains`: the domains that this machine can host.

use clap::Args;
use rampart_host::{MachineRoot, read_machine};
use rampart_model::ExitCode;

use crate::failure::Failure;
use crate::output;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  rampart domains
  rampart domains --on sim:aarch64")]
pub(crate) struct Domains {
    /// Print the list as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

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
