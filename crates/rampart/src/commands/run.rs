// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart run`: runs a program in a domain of the active plan, or on CPUs.

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use clap::Args;
use rampart_host::{PlacementGroup, StateDirectory, ThreadPlacement, place_process};
use rampart_model::{CpuList, CpuSet, ExitCode, Finding, PlacedThread, SchedulingPolicy, Severity};
use rampart_present::ProgramDestination;
use rampart_supervise::{Destination, LoadedPlan};

use super::detach::{self, PassedCpus};
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
    let (location, taken) = placement(state, arguments)?;
    let passed = detach::pass(state, &taken)?;
    enter(&location, &arguments.command, arguments.launched, &passed)
}

/// Moves this process and executes the program. Returns only on failure.
pub(super) fn enter(
    location: &ThreadPlacement,
    words: &[String],
    launched: bool,
    passed: &PassedCpus,
) -> Result<ExitCode, Failure> {
    let Some((program, rest)) = words.split_first() else {
        return Err(Failure::usage("no program is given"));
    };
    let placed = place_process(std::process::id(), location)?;
    for thread in placed {
        if let Some(finding) = thread.refused {
            return Err(Failure::precondition(finding));
        }
    }
    let mut command = Command::new(program);
    command.args(rest);
    if launched {
        command.stdin(Stdio::null());
    }
    passed.to(&mut command);
    let cause = command.exec();
    Err(Failure::precondition(format!(
        "cannot start {program}: {cause}; fix: give the path of an executable file"
    )))
}

/// Returns the placement of this process, and the CPUs to take from Linux for it.
fn placement(
    state: &StateDirectory,
    arguments: &RunArguments,
) -> Result<(ThreadPlacement, CpuSet), Failure> {
    let (policy, nice) = (arguments.policy, arguments.nice);
    let asked = super::cpus_here(arguments.cpus.as_ref())?;
    let cpus = asked.as_ref();
    let plan = match (&arguments.domain, cpus) {
        (None, Some(cpus)) => match LoadedPlan::load(state)? {
            Some(plan) => plan,
            None => {
                output::finding(&no_plan(cpus));
                return Ok((on_cpus(cpus, policy, nice), CpuSet::new()));
            }
        },
        _ => LoadedPlan::required(state)?,
    };
    let destination = choose(&plan, arguments.domain.as_deref(), cpus)?;
    let own = std::process::id();
    if let Some(detaching) = plan.detaching(&destination, own, cpus, policy, nice)? {
        return Ok(detaching);
    }
    let location = plan.placement(&destination, own, cpus, policy, nice)?;
    Ok((location, CpuSet::new()))
}

/// Returns the destination of this name, or the one with these CPUs, or the only domain.
pub(super) fn choose(
    plan: &LoadedPlan,
    name: Option<&str>,
    cpus: Option<&CpuSet>,
) -> Result<Destination, Failure> {
    if let Some(name) = name {
        return Ok(plan.destination(name)?);
    }
    let all = plan.destinations();
    let found = match cpus {
        Some(cpus) => all
            .iter()
            .find(|destination| !cpus.is_empty() && cpus.is_subset(&destination.cpus)),
        // The last destination is housekeeping.
        None if all.len() == 2 => all.first(),
        None => None,
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = all
            .iter()
            .map(|destination| destination.name.as_str())
            .collect();
        let what = match cpus {
            Some(cpus) => format!("no domain of the plan has all of {}", cpus.named()),
            None => "the plan has several domains".to_owned(),
        };
        Failure::usage(format!("{what}; fix: name one of {}", names.join(", ")))
    })
}

/// Returns a placement on CPUs, without a domain.
pub(super) fn on_cpus(
    cpus: &CpuSet,
    policy: Option<SchedulingPolicy>,
    nice: Option<i32>,
) -> ThreadPlacement {
    ThreadPlacement {
        group: PlacementGroup::AsIs,
        cpus: Some(cpus.clone()),
        policy,
        nice,
    }
}

/// Returns the warning that no plan isolates the CPUs.
pub(super) fn no_plan(cpus: &CpuSet) -> Finding {
    Finding::new(
        Severity::Warning,
        cpus.named().to_string(),
        "no plan is active: other programs, interrupts and kernel threads also run on these CPUs",
    )
    .fix("rampart apply PLAN")
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
