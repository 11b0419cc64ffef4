// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs of domains: one module for each kind.

pub(crate) mod cell;
mod container;
mod guest;
mod task;

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rampart_host::StateDirectory;
use rampart_model::{
    DomainProgram, Finding, PlacedThread, PlannedDomain, SchedulingPolicy, SupervisedContainer,
};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::SuperviseError;
use crate::active_plan::{Destination, LoadedPlan};
use crate::control::Launcher;
use crate::program_placement::check_and_warn;
use crate::record::Files;

/// Pause between two checks of a process that is ending.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// The input for starting a program.
#[derive(Debug)]
pub(crate) struct StartRequest<'a> {
    pub(crate) state: &'a StateDirectory,
    pub(crate) active: &'a LoadedPlan,
    pub(crate) domain: &'a PlannedDomain,
    pub(crate) destination: &'a Destination,
    pub(crate) files: &'a Files,
    pub(crate) launcher: &'a Launcher,
    /// Set to request a stop, even before the program runs.
    pub(crate) stop: &'a std::sync::atomic::AtomicBool,
}

/// The exit of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProgramExit {
    pub(crate) status: String,
    pub(crate) success: bool,
}

impl From<ExitStatus> for ProgramExit {
    fn from(status: ExitStatus) -> Self {
        Self {
            status: status.to_string(),
            success: status.success(),
        }
    }
}

/// A program that was started in its domain.
pub(crate) trait Program {
    /// Returns its first process, or `None` if it has no process of this Linux.
    fn process(&self) -> Option<u32>;

    /// Returns how the program ended, or `None` while it runs.
    fn ended(&mut self) -> Option<ProgramExit>;

    /// Places new threads; called once a second. Returns findings about refusals.
    fn place_new_threads(&mut self) -> Vec<Finding>;

    /// Asks the program to end, kills it after `limit`, and removes its files.
    fn stop(&mut self, limit: Duration) -> ProgramExit;

    /// Returns the container, if the program is one.
    fn container(&self) -> Option<SupervisedContainer> {
        None
    }
}

/// Returns whether the plan contains a program for a domain.
pub(crate) fn has_work(domain: &PlannedDomain) -> bool {
    match domain.kind.program() {
        DomainProgram::Guest => domain.kernel.is_some() || domain.disk.is_some(),
        DomainProgram::Image => domain.image.is_some(),
        DomainProgram::Container => domain.container.is_some() || !domain.run.is_empty(),
        DomainProgram::Process => !domain.run.is_empty(),
    }
}

/// Starts the program of a domain. The findings report settings that differ from the plan.
pub(crate) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let (program, destination) = (order.domain.kind.program(), order.destination);
    let mut warnings = Vec::new();
    // `rampart run` checks before it becomes a process of its domain.
    if matches!(program, DomainProgram::Container | DomainProgram::Guest) {
        let policy = destination.policy.or(Some(SchedulingPolicy::Other));
        check_and_warn(
            std::process::id(),
            Some(&destination.cpus),
            policy,
            |finding| {
                warnings.push(finding.clone());
            },
        )?;
    }
    let (program, findings) = match program {
        DomainProgram::Process => task::start(order),
        DomainProgram::Container => container::start(order),
        DomainProgram::Guest => guest::start(order),
        DomainProgram::Image => cell::start(order),
    }?;
    warnings.extend(findings);
    Ok((program, warnings))
}

/// Redirects the output of a command to the log and gives it a process group of its own.
fn logged(mut command: Command, files: &Files) -> Result<Command, SuperviseError> {
    use std::os::unix::process::CommandExt as _;
    let path = files.log();
    let open = || -> std::io::Result<(File, File)> {
        let log = crate::log::open(&path)?;
        Ok((log.try_clone()?, log))
    };
    let (out, errors) = open().map_err(SuperviseError::file("write the log", &path))?;
    command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        .process_group(0);
    Ok(command)
}

/// Returns the notes about placed threads, each once.
///
/// # Errors
/// The first refusal.
fn judge(placed: Vec<PlacedThread>) -> Result<Vec<Finding>, SuperviseError> {
    let mut notes: Vec<Finding> = Vec::new();
    for thread in placed {
        if let Some(finding) = thread.refused {
            return Err(SuperviseError::Missing(finding));
        }
        for note in thread.notes {
            // Each thread has the same note.
            if !notes.iter().any(|known| known.what == note.what) {
                notes.push(note);
            }
        }
    }
    Ok(notes)
}

fn group_of(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

/// Waits at most `limit` for the end of a child. Returns `None` if it still runs.
fn wait(child: &mut Child, limit: Duration) -> Option<ProgramExit> {
    rampart_host::wait_within(child, limit)
        .ok()
        .flatten()
        .map(ProgramExit::from)
}

/// Ends a child and its process group: SIGTERM, then SIGKILL after `limit`.
fn end(child: &mut Child, limit: Duration) -> ProgramExit {
    let group = group_of(child.id());
    let signal = |signal| {
        if let Some(group) = group {
            // The group may have ended already.
            let _ = kill_process_group(group, signal);
        }
    };
    signal(Signal::TERM);
    let ended = wait(child, limit).unwrap_or_else(|| {
        signal(Signal::KILL);
        rampart_host::end_child(child).map_or_else(
            || ProgramExit {
                status: format!(
                    "not ended after SIGTERM and SIGKILL; it waits in the kernel: cat /proc/{}/stack",
                    child.id()
                ),
                success: false,
            },
            |status| ProgramExit {
                status: format!("{status}, because it did not end within {} s of SIGTERM", limit.as_secs_f64()),
                success: false,
            },
        )
    });
    // Its own children may still run.
    signal(Signal::KILL);
    ended
}

/// Kills the rest of the process group of a child that has ended by itself, which would otherwise run
/// at the same time as the restarted program. Call it before the child is reaped, while its number is
/// not reused.
fn end_rest_of_group(child: &Child) {
    let Some(group) = group_of(child.id()) else {
        return;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(waitid(WaitId::Pid(group), options), Ok(Some(_))) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Returns whether the process with this start time ends within `limit`.
pub(crate) fn gone_within(process: u32, start: u64, limit: Duration) -> bool {
    let begin = Instant::now();
    while rampart_host::process_start(process) == Some(start) {
        if begin.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(POLL);
    }
    true
}

/// Places the threads of a program by the plan's `threads`.
#[derive(Debug)]
struct ThreadPlacer {
    domain: PlannedDomain,
    cpus: rampart_model::CpuSet,
    /// Threads that are placed, with their names at that time.
    seen: std::collections::BTreeMap<u32, String>,
}

impl ThreadPlacer {
    fn new(order: &StartRequest<'_>) -> Self {
        Self {
            domain: order.domain.clone(),
            cpus: order.destination.cpus.clone(),
            seen: std::collections::BTreeMap::new(),
        }
    }

    /// Places the threads of a process and its descendants that are new or have another name.
    fn place_new_threads(&mut self, process: u32) -> Vec<Finding> {
        let mut findings = Vec::new();
        if self.domain.threads.is_empty() {
            return findings;
        }
        let mut alive = std::collections::BTreeMap::new();
        let mut processes = rampart_host::descendants(process);
        processes.insert(0, process);
        for process in processes {
            for (thread, name) in rampart_host::process_threads(process) {
                if self.seen.get(&thread) != Some(&name)
                    && let Some(location) = crate::thread_rules::placement_of_thread(&self.domain, &self.cpus, &name)
                    // A thread that has ended meanwhile needs no placement.
                    && let Ok(placed) = rampart_host::place_thread(thread, &location)
                {
                    findings.extend(placed.refused);
                }
                alive.insert(thread, name);
            }
        }
        self.seen = alive;
        findings
    }
}
