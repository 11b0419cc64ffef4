// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prints a machine as JSON: `machine [DIRECTORY]`, the running one without a directory.
#![expect(clippy::print_stdout, reason = "it is here to show")]

use rampart_host::{MachineRoot, read_machine};

fn main() -> Result<(), serde_json::Error> {
    let root = std::env::args()
        .nth(1)
        .map_or_else(MachineRoot::system, MachineRoot::at);
    println!("{}", serde_json::to_string_pretty(&read_machine(&root))?);
    Ok(())
}
