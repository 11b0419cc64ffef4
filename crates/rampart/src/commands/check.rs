// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart check`: judges whether a machine is fit for real-time work.

use rampart_evaluate::check;
use rampart_model::ExitCode;

use crate::arguments::Check;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Check, colour: bool) -> Result<ExitCode, Failure> {
    let check = check(
        &arguments.recorded.root()?,
        arguments.cpus.as_ref(),
        VERSION,
    )?;
    if arguments.json {
        output::print_json(&check)?;
    } else {
        let elements = rampart_present::check(&check, arguments.verbose);
        output::print_elements(&elements, colour)?;
    }
    Ok(ExitCode::of_check(!check.is_unfit()))
}
