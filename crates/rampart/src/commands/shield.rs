// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart shield`: isolates CPUs without a plan file.

use clap::Args;
use rampart_host::StateDirectory;
use rampart_model::{CpuList, ExitCode, SchedulingPolicy};
use rampart_supervise::{LoadedPlan, SHIELD_DOMAIN, execute_there, shield, unshield};

use super::{VERSION, apply, release};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The shield stays in effect until `rampart shield --off` or `rampart release`,
also after the program has ended.

Examples:
  rampart shield 2-3                      isolate CPUs 2 and 3
  rampart shield --cpus 1-N               every CPU but the first
  rampart shield 3 --policy fifo:80 -- ./control
  rampart run shield -- ./program         run another program there
  rampart shield --off                    remove the shield";

/// Isolate CPUs without a plan file and run a program on them
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShieldArguments {
    /// CPUs to isolate
    #[arg(value_name = "CPUS", required_unless_present_any = ["off", "cpus"])]
    listed: Option<CpuList>,

    /// CPUs to isolate: another way to write the argument
    #[arg(long, value_name = "CPUS", conflicts_with = "listed")]
    cpus: Option<CpuList>,

    /// Scheduling policy of programs that `run` starts there: other, fifo:N, rr:N or
    /// deadline:RUNTIME/DEADLINE/PERIOD
    #[arg(long, value_name = "POLICY")]
    policy: Option<SchedulingPolicy>,

    /// Remove the shield
    #[arg(long, conflicts_with_all = ["listed", "cpus", "policy", "command"])]
    off: bool,

    /// Program to run on the isolated CPUs, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &ShieldArguments) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    let asked = arguments.listed.as_ref().or(arguments.cpus.as_ref());
    let Some(cpus) = super::cpus_here(asked)? else {
        return release::show(&unshield(&state)?, false);
    };
    let policy = arguments.policy;
    let active = shield(&state, &cpus, policy, VERSION, &mut apply::print_step)?;
    for finding in &active.findings {
        output::finding(finding);
    }
    if arguments.command.is_empty() {
        output::eprint("The CPUs are isolated; `rampart shield --off` removes the shield.");
        return Ok(ExitCode::Success);
    }
    let loaded = LoadedPlan::required(&state)?;
    let destination = loaded.destination(SHIELD_DOMAIN)?;
    let location = loaded.placement(&destination, std::process::id(), None, None, None)?;
    Err(execute_there(&location, &arguments.command, true, None, output::finding).into())
}
