// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart domains`: what this machine can host.

use rampart_host::{MachineRoot, read_machine};
use rampart_model::{Availability, ExitCode};

use crate::arguments::Domains;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Domains) -> Result<ExitCode, Failure> {
    let machine = read_machine(&MachineRoot::system());
    let domains = rampart_domain::availability(&machine);
    if arguments.json {
        output::print_json(&domains)?;
    } else {
        output::print(&text(&domains))?;
    }
    Ok(ExitCode::Success)
}

fn text(domains: &[Availability]) -> String {
    let width = domains
        .iter()
        .map(|domain| domain.domain.to_string().len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for domain in domains {
        let state = if domain.available { "yes" } else { "no " };
        text.push_str(&format!(
            "{:width$}  {state}  {}\n",
            domain.domain, domain.description
        ));
        for finding in &domain.findings {
            text.push_str(&format!("{:width$}       {finding}\n", ""));
        }
    }
    text
}
