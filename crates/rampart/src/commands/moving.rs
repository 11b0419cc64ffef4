// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart move`: running processes and threads into a domain of the active plan.

use std::fmt::Write as _;

use clap::Args;
use rampart_host::{
    PlacedThread, StateDirectory, ThreadPlacement, ThreadState, descendants, is_leader,
    place_process, place_thread,
};
use rampart_model::{CpuSet, ExitCode, Finding, SchedulingPolicy, Severity};
use rampart_supervise::{Destination, LoadedPlan};

use super::run::{alone, choose, on_cpus, say_notes};
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
Examples:
  rampart move 4711 --to press-control              a process with all its threads
  rampart move 4711 --to vision --with-children     and all processes that it made
  rampart move 4715 --to press-control --thread --policy fifo:70
  rampart move 4711 --to housekeeping --policy other
  rampart move 4711 --cpus 3                        CPUs alone, where no plan is active

What each thread was and is, is read from the kernel. Exit codes: 0 all are in their place; 5 some are
not; 4 none is.";

/// Move running processes or threads into a domain of the active plan
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MoveArguments {
    /// Processes; with --thread, threads
    #[arg(required = true, value_name = "NUMBER")]
    numbers: Vec<u32>,

    /// A domain, or `housekeeping`
    #[arg(long, value_name = "DOMAIN", required_unless_present = "cpus")]
    to: Option<String>,

    /// other, fifo:N, rr:N, deadline:RUNTIME/DEADLINE/PERIOD; without it what the plan says
    #[arg(long, value_name = "POLICY")]
    policy: Option<SchedulingPolicy>,

    /// Nice value, -20 to 19, under the policy `other`
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: Option<i32>,

    /// Only these CPUs of the domain
    #[arg(long, value_name = "CPUS")]
    cpus: Option<CpuSet>,

    /// The numbers are those of single threads
    #[arg(long, conflicts_with = "with_children")]
    thread: bool,

    /// All processes too that these have made
    #[arg(long)]
    with_children: bool,

    /// Print what each thread was and is as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: &MoveArguments) -> Result<ExitCode, Failure> {
    let target = Target::of(arguments)?;
    let mut placed = Vec::new();
    for number in numbers(arguments) {
        match target.placement(number, arguments) {
            Ok(threads) => placed.extend(threads),
            Err(finding) => placed.push(PlacedThread {
                thread: number,
                was: None,
                is: None,
                refused: Some(finding),
                notes: Vec::new(),
            }),
        }
    }
    if arguments.json {
        output::print_json(&placed)?;
    } else {
        output::print(&text(&placed))?;
        say_notes(&placed);
    }
    let refused = placed
        .iter()
        .filter(|thread| thread.refused.is_some())
        .count();
    Ok(ExitCode::of_parts(refused, placed.len()))
}

/// The processes or threads that are meant, those first that are named.
fn numbers(arguments: &MoveArguments) -> Vec<u32> {
    let mut all = arguments.numbers.clone();
    if arguments.with_children {
        for number in &arguments.numbers {
            for child in descendants(*number) {
                if !all.contains(&child) {
                    all.push(child);
                }
            }
        }
    }
    all
}

/// Where to.
enum Target {
    Domain(Box<(LoadedPlan, Destination)>),
    /// No plan stands.
    Cpus(CpuSet),
}

impl Target {
    fn of(arguments: &MoveArguments) -> Result<Self, Failure> {
        let state = StateDirectory::standard();
        let cpus = arguments.cpus.as_ref();
        let standing = match (&arguments.to, cpus) {
            (None, Some(cpus)) => match LoadedPlan::load(&state)? {
                Some(standing) => standing,
                None => {
                    output::say(&format!("rampart: {}", alone(cpus)));
                    return Ok(Self::Cpus(cpus.clone()));
                }
            },
            (None, None) => return Err(Failure::usage("move: name where to, with --to DOMAIN")),
            (Some(_), _) => LoadedPlan::required(&state)?,
        };
        let destination = choose(&standing, arguments.to.as_deref(), cpus)?;
        // Before anything is moved.
        standing.placement(&destination, 0, cpus, None, None)?;
        Ok(Self::Domain(Box::new((standing, destination))))
    }

    fn placement(
        &self,
        number: u32,
        arguments: &MoveArguments,
    ) -> Result<Vec<PlacedThread>, Finding> {
        let refused =
            |what: String| Finding::new(Severity::Error, format!("process {number}"), what);
        if !arguments.thread && is_leader(number) == Some(false) {
            return Err(
                refused("this is the number of a thread within a process".to_owned())
                    .fix("add --thread, or name its process"),
            );
        }
        let location: ThreadPlacement = match self {
            Self::Cpus(cpus) => on_cpus(cpus, arguments.policy, arguments.nice),
            Self::Domain(target) => {
                let (standing, destination) = target.as_ref();
                standing
                    .placement(
                        destination,
                        number,
                        arguments.cpus.as_ref(),
                        arguments.policy,
                        arguments.nice,
                    )
                    .map_err(|error| refused(error.to_string()))?
            }
        };
        let placed = if arguments.thread {
            place_thread(number, &location).map(|thread| vec![thread])
        } else {
            place_process(number, &location)
        };
        placed.map_err(|error| refused(error.to_string()))
    }
}

fn text(placed: &[PlacedThread]) -> String {
    let mut text = String::new();
    for thread in placed {
        let name = thread
            .is
            .as_ref()
            .or(thread.was.as_ref())
            .map_or("", |state| state.name.as_str());
        let word = if thread.refused.is_some() {
            "refused"
        } else {
            "moved"
        };
        let _ = write!(text, "{word:8}{:>8}  {name:16}", thread.thread);
        let _ = match (&thread.was, &thread.is) {
            (Some(was), Some(is)) => writeln!(text, "  {} -> {}", state(was), state(is)),
            (None, Some(is)) => writeln!(text, "  made meanwhile -> {}", state(is)),
            (Some(_), None) => writeln!(text, "  has ended"),
            (None, None) => writeln!(text),
        };
        if let Some(finding) = &thread.refused {
            let _ = writeln!(text, "        {finding}");
        }
    }
    text
}

fn state(state: &ThreadState) -> String {
    let nice = match state.nice {
        0 => String::new(),
        nice => format!(", nice {nice}"),
    };
    format!(
        "group {}, {}, {}{nice}",
        state.group.as_deref().unwrap_or("-"),
        state.cpus.named(),
        state.policy
    )
}
