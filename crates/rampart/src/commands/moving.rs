// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart move`: moves running processes and threads into a domain of the active plan.

use clap::Args;
use rampart_host::{StateDirectory, descendants};
use rampart_model::{CpuList, ExitCode, PlacedThread, SchedulingPolicy};
use rampart_supervise::PlacementTarget;

use super::run::print_notes;
use crate::failure::Failure;
use crate::output;

const EXAMPLES: &str = "\
The state of each thread before and after is read from the kernel.

Exit codes:
  0  every thread was moved
  4  no thread was moved
  5  some threads were not moved

Examples:
  rampart move 4711 --to press-control           a process, all its threads
  rampart move 4711 --to vision --with-children  and its descendants
  rampart move 4715 --to press-control --thread --policy fifo:70
  rampart move 4711 --to housekeeping --policy other
  rampart move 4711 --cpus 3                     without an active plan";

/// Move running processes or threads into a domain of the active plan
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct MoveArguments {
    /// Process IDs; with --thread, thread IDs
    #[arg(required = true, value_name = "NUMBER")]
    numbers: Vec<u32>,

    /// Domain, or housekeeping
    #[arg(
        long,
        value_name = "DOMAIN",
        required_unless_present = "cpus",
        help_heading = "Placement"
    )]
    to: Option<String>,

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

    /// Move single threads
    #[arg(long, conflicts_with = "with_children")]
    thread: bool,

    /// Also move all descendants of the processes
    #[arg(long)]
    with_children: bool,

    /// Print the state of each thread before and after as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

pub(crate) fn run(arguments: &MoveArguments) -> Result<ExitCode, Failure> {
    let cpus = super::cpus_here(arguments.cpus.as_ref())?;
    let target = PlacementTarget::find(&StateDirectory::standard(), arguments.to.as_deref(), cpus)?;
    if let Some(warning) = target.warning() {
        output::finding(&warning);
    }
    let (policy, nice) = (arguments.policy, arguments.nice);
    // An invalid placement is an error before any thread is moved.
    target.placement(0, policy, nice)?;
    let mut placed = Vec::new();
    for number in numbers(arguments) {
        match target.move_there(number, arguments.thread, policy, nice) {
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
        output::print_text(&rampart_present::placed_threads(&placed))?;
        print_notes(&placed);
    }
    let refused = placed
        .iter()
        .filter(|thread| thread.refused.is_some())
        .count();
    Ok(ExitCode::of_parts(refused, placed.len()))
}

/// Returns the named processes or threads, then the descendants.
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
