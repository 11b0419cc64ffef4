// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Prepares the boot line of this machine by hand, or takes it back:
//! `boot plan ARGUMENT…`, `boot prepare ARGUMENT…`, `boot release`. It changes the machine.
#![expect(clippy::print_stdout, reason = "it is here to show")]

use rampart_host::{HostError, MachineRoot, StateDirectory, plan_boot, prepare_boot, release};

fn main() -> Result<(), HostError> {
    let state = StateDirectory::standard();
    let mut words = std::env::args().skip(1);
    let action = words.next().unwrap_or_default();
    let wanted: Vec<String> = words.collect();
    match action.as_str() {
        "plan" => println!("{:#?}", plan_boot(&MachineRoot::system(), &wanted)?),
        "prepare" => println!("{:#?}", prepare_boot(&state, &wanted)?),
        "release" => println!("{:#?}", release(&state)?),
        _ => println!("usage: boot plan|prepare ARGUMENT…, or boot release"),
    }
    Ok(())
}
