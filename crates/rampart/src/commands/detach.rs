// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart detach`: CPUs that are taken from Linux for detached threads.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use clap::{Args, Subcommand};
use rampart_host::{
    MachineRoot, StateDirectory, give_cpu, load_module, read_detach_driver, read_detached_cpus,
    take_cpu,
};
use rampart_model::{CpuId, CpuList, CpuSet, DetachDriver, ExitCode};

use crate::failure::Failure;
use crate::output;

/// Names the CPUs and descriptors that a program gets: CPU:DESCRIPTOR, separated by commas. The library of detached
/// threads reads it.
const ENVIRONMENT: &str = "RAMPART_DETACHED";

const EXAMPLES: &str = "\
A taken CPU returns to Linux when the program that holds it ends. Kicks are the
interrupts by which the driver starts and stops threads; interrupts are all
others (expected: 0).

Examples:
  rampart detach                         taken CPUs, holders, counts
  rampart detach --json                  rampart schema detached-cpu
  rampart detach take 2 -- ./control     run a program that may detach to CPU 2
  rampart detach give 2                  its thread continues under Linux";

/// List, take and give CPUs on which threads run detached from Linux
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct DetachArguments {
    #[command(subcommand)]
    action: Option<Action>,

    /// Print the list as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Take CPUs and run a program that may detach its threads to them
    Take(Take),
    /// Give CPUs back to Linux, also from a running program
    #[command(after_help = "Example:\n  rampart detach give 2")]
    Give(Give),
}

#[derive(Debug, Args)]
#[command(after_help = "\
The program replaces `rampart`. It gets the open descriptors of its CPUs, and
needs no privilege to detach. `rampart release` gives the CPUs back before the
program ends.

Examples:
  rampart detach take 2 -- control_loop 2 10
  rampart detach take 2-3 -- setpriv --reuid control --clear-groups ./control")]
struct Take {
    /// CPUs to take from Linux
    #[arg(value_name = "CPUS")]
    cpus: CpuList,

    /// Program and its arguments, after `--`
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

#[derive(Debug, Args)]
struct Give {
    /// CPUs to give back
    #[arg(value_name = "CPUS")]
    cpus: CpuList,
}

pub(crate) fn run(arguments: &DetachArguments) -> Result<ExitCode, Failure> {
    match &arguments.action {
        None => list(arguments.json),
        Some(Action::Take(take)) => {
            let cpus = super::cpus_here(Some(&take.cpus))?.unwrap_or_default();
            become_program(&take.command, &pass(&StateDirectory::standard(), &cpus)?)
        }
        Some(Action::Give(give)) => {
            let cpus = super::cpus_here(Some(&give.cpus))?.unwrap_or_default();
            let mut failures = Vec::new();
            for cpu in cpus.iter() {
                match give_cpu(cpu) {
                    Ok(()) => output::print(&format!("CPU {cpu} is given back to Linux"))?,
                    Err(error) => failures.push(Failure::from(error)),
                }
            }
            Ok(Failure::report_each(failures, cpus.len()))
        }
    }
}

fn list(json: bool) -> Result<ExitCode, Failure> {
    let root = MachineRoot::system();
    let cpus = read_detached_cpus(&root);
    if json {
        output::print_json(&cpus)?;
    } else {
        let driver = read_detach_driver(&root);
        let missing = (driver != Some(DetachDriver::Loaded))
            .then(|| rampart_rules::detach_driver_problem(driver));
        output::print_text(&rampart_present::detached_cpus(&cpus, missing.as_ref()))?;
    }
    Ok(ExitCode::Success)
}

/// The CPUs that a program may detach to, with their descriptors.
#[derive(Debug, Default)]
pub(super) struct PassedCpus(Vec<(CpuId, OwnedFd)>);

/// Takes CPUs for a program: all or none. Loads the driver if that is needed.
pub(super) fn pass(state: &StateDirectory, cpus: &CpuSet) -> Result<PassedCpus, Failure> {
    if !cpus.is_empty() {
        match read_detach_driver(&MachineRoot::system()) {
            Some(DetachDriver::Loaded) => (),
            Some(DetachDriver::Installed) => load_module(state, "detach", None)?,
            driver => {
                let problem = rampart_rules::detach_driver_problem(driver);
                return Err(Failure::precondition(problem.to_string()));
            }
        }
    }
    let take = |cpu| -> Result<_, Failure> {
        let descriptor = take_cpu(state, cpu)?;
        // The program inherits it.
        rustix::io::fcntl_setfd(&descriptor, rustix::io::FdFlags::empty())
            .map_err(std::io::Error::from)?;
        Ok((cpu, descriptor))
    };
    cpus.iter()
        .map(take)
        .collect::<Result<_, _>>()
        .map(PassedCpus)
}

impl PassedCpus {
    /// Returns the environment variable by which the library of a program finds its CPUs.
    pub(super) fn variable(&self) -> Option<(&'static str, String)> {
        let entry = |(cpu, file): &(CpuId, OwnedFd)| format!("{cpu}:{}", file.as_raw_fd());
        let entries: Vec<String> = self.0.iter().map(entry).collect();
        (!entries.is_empty()).then(|| (ENVIRONMENT, entries.join(",")))
    }
}

/// Executes a program. Returns only on failure.
fn become_program(words: &[String], passed: &PassedCpus) -> Result<ExitCode, Failure> {
    let Some((program, rest)) = words.split_first() else {
        return Err(Failure::usage("no program is given"));
    };
    let mut command = Command::new(program);
    command.args(rest).envs(passed.variable());
    let cause = command.exec();
    Err(Failure::precondition(format!(
        "cannot start {program}: {cause}; fix: give the path of an executable file"
    )))
}
