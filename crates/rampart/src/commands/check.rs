// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart check`: judges whether a machine is fit for real-time work.

use rampart_evaluate::ProposedCpus;
use rampart_host::{read_knob_values, read_machine};
use rampart_model::ExitCode;
use rampart_rules::{Isolation, Subject};

use crate::arguments::Check;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Check, colour: bool) -> Result<ExitCode, Failure> {
    let root = arguments.recorded.root()?;
    let machine = read_machine(&root);
    let ProposedCpus {
        cpus: real_time,
        chosen_by,
    } = rampart_evaluate::propose_cpus(&machine, arguments.cpus.as_ref())?;
    let readings = read_knob_values(&root, &real_time);
    let isolation = Isolation {
        housekeeping: machine.topology.online.difference(&real_time),
        has_guests: readings.hosts_guests,
        real_time,
        ..Isolation::default()
    };
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    let check = rampart_rules::check(subject, &isolation, chosen_by, VERSION);
    if arguments.json {
        output::print_json(&check)?;
    } else {
        let elements = rampart_present::check(&check, arguments.verbose);
        output::print_elements(&elements, colour)?;
    }
    Ok(ExitCode::of_check(!check.is_unfit()))
}
