// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart run`: runs a program in a domain of the active plan, or on CPUs.

use std::io::Write as _;
use std::os::fd::AsFd as _;

use clap::Args;
use rampart_host::StateDirectory;
use rampart_model::{CpuList, CpuSet, ExitCode, PlacedThread, SchedulingPolicy};
use rampart_present::ProgramDestination;
use rampart_supervise::{LoadedPlan, PlacementTarget, execute_there};

use super::detach;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The program replaces `rampart`: it has its terminal, signals and exit code.
exec(2) removes memory locks, so the program must lock its memory itself.
In a domain of kind `detached` it gets the CPUs to detach to.

Examples:
  rampart run press-control -- /opt/press/control
  rampart run press-control --policy fifo:70 --cpus 2 -- cyclictest -m
  rampart run housekeeping -- make    outside every domain
  rampart run --cpus 3 -- ./program   on a CPU, without an active plan
  rampart run --list                  domains, CPUs, isolation, policies";

/// Run a program in a domain of the active plan
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// Domain, or housekeeping [default: the domain of --cpus, or the only one]
    domain: Option<String>,

    /// Scheduling policy: other, fifo:N, rr:N or
    /// deadline:RUNTIME/DEADLINE/PERIOD [default: from the plan]
    #[arg(long, value_name = "POLICY", help_heading = "Placement")]
    policy: Option<SchedulingPolicy>,

    /// Nice value of policy other, -20 to 19
    #[arg(long, value_name = "NUMBER", help_heading = "Placement", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,

    /// Use only these CPUs of the domain
    #[arg(long, value_name = "CPUS", help_heading = "Placement")]
    cpus: Option<CpuList>,

    /// List the domains that can run programs
    #[arg(long, conflicts_with_all = ["domain", "policy", "nice", "cpus", "command"])]
    list: bool,

    /// Print the list as JSON
    #[arg(long, requires = "list", help_heading = "Output")]
    json: bool,

    /// Report errors to the supervisor on standard input
    #[arg(long, hide = true)]
    launched: bool,

    /// Program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &RunArguments) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    if arguments.list {
        return list(&LoadedPlan::required(&state)?, arguments.json);
    }
    if !arguments.launched {
        return become_program(&state, arguments);
    }
    // exec(2) closes it.
    let report = std::io::stdin().as_fd().try_clone_to_owned()?;
    become_program(&state, arguments).inspect_err(|failure| {
        let mut report = std::fs::File::from(report);
        // If the supervisor has ended, the error is in the log.
        let _ = writeln!(report, "{failure}");
    })
}

/// Moves this process into its domain and executes the program. Returns only on failure.
fn become_program(state: &StateDirectory, arguments: &RunArguments) -> Result<ExitCode, Failure> {
    if arguments.command.is_empty() {
        return Err(Failure::usage(
            "run: no program is given; fix: rampart run DOMAIN -- PROGRAM",
        ));
    }
    let cpus = super::cpus_here(arguments.cpus.as_ref())?;
    let target = PlacementTarget::find(state, arguments.domain.as_deref(), cpus)?;
    if let Some(warning) = target.warning() {
        output::finding(&warning);
    }
    let (own, policy, nice) = (std::process::id(), arguments.policy, arguments.nice);
    let (placement, taken) = match target.detaching(own, policy, nice)? {
        Some(detaching) => detaching,
        None => (target.placement(own, policy, nice)?, CpuSet::new()),
    };
    // The program inherits the descriptors of its CPUs.
    let passed = detach::pass(state, &taken)?;
    let (words, with_input) = (&arguments.command, !arguments.launched);
    Err(execute_there(
        &placement,
        words,
        with_input,
        passed.variable(),
        output::finding,
    )
    .into())
}

/// Prints the notes about placements that differ from the request, each once.
pub(super) fn print_notes(placed: &[PlacedThread]) {
    let mut printed: Vec<&str> = Vec::new();
    for note in placed.iter().flat_map(|thread| &thread.notes) {
        if !printed.contains(&note.what.as_str()) {
            output::finding(note);
            printed.push(&note.what);
        }
    }
}

fn list(plan: &LoadedPlan, json: bool) -> Result<ExitCode, Failure> {
    let destinations = plan.destinations();
    let destinations: Vec<ProgramDestination> = destinations
        .into_iter()
        .map(|destination| ProgramDestination {
            group: destination
                .group
                .path()
                .map(|path| path.display().to_string()),
            name: destination.name,
            kind: destination.kind,
            cpus: destination.cpus,
            isolation: destination.isolation,
            policy: destination.policy,
        })
        .collect();
    if json {
        output::print_json(&destinations)?;
    } else {
        output::print_text(&rampart_present::program_destinations(&destinations))?;
    }
    Ok(ExitCode::Success)
}
