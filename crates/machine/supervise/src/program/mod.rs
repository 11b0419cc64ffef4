// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a domain of a plan runs: one module a kind.

pub(crate) mod cell;
mod container;
mod guest;
mod task;

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rampart_host::{PlacedThread, StateDirectory};
use rampart_model::{DomainProgram, Finding, PlannedDomain, Severity, SupervisedContainer};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use crate::SuperviseError;
use crate::active_plan::{Destination, LoadedPlan};
use crate::control::Launcher;
use crate::record::Files;

/// Pause between two looks at something that ends.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// What a program is started with.
#[derive(Debug)]
pub(crate) struct StartRequest<'a> {
    pub(crate) state: &'a StateDirectory,
    pub(crate) standing: &'a LoadedPlan,
    pub(crate) domain: &'a PlannedDomain,
    pub(crate) destination: &'a Destination,
    pub(crate) files: &'a Files,
    pub(crate) launcher: &'a Launcher,
    /// Set when it is to end, even before it runs.
    pub(crate) stop: &'a std::sync::atomic::AtomicBool,
}

/// How a program ended.
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

/// A program that was started in its place.
pub(crate) trait Program {
    /// Its first process, as we see it; none where Linux runs nothing of it.
    fn process(&self) -> Option<u32>;

    /// How it ended; none as long as it runs.
    fn ended(&mut self) -> Option<ProgramExit>;

    /// Looks after it, once a second: threads that are new. Says what is amiss.
    fn tend(&mut self) -> Vec<Finding>;

    /// Asks it to end, ends it when `limit` is over, and leaves nothing of it.
    fn stop(&mut self, limit: Duration) -> ProgramExit;

    /// The container that it is.
    fn container(&self) -> Option<SupervisedContainer> {
        None
    }
}

/// Whether a domain has anything to run.
pub(crate) fn has_work(domain: &PlannedDomain) -> bool {
    match domain.kind.program() {
        DomainProgram::Guest => domain.kernel.is_some() || domain.disk.is_some(),
        DomainProgram::Image => domain.image.is_some(),
        DomainProgram::Container => domain.container.is_some() || !domain.run.is_empty(),
        DomainProgram::Process => !domain.run.is_empty(),
    }
}

/// Starts what a domain runs, in its place. The findings tell what was not granted as asked.
pub(crate) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let kind = order.domain.kind;
    match kind.program() {
        _ if !kind.properties().implemented => Err(SuperviseError::Missing(
            Finding::new(
                Severity::Error,
                format!("domain {}", order.domain.name),
                format!("Rampart cannot run a domain of kind {kind} yet"),
            )
            .fix("write kind = \"task\", \"container\", \"vm\" or \"cell\""),
        )),
        DomainProgram::Process => task::start(order),
        DomainProgram::Container => container::start(order),
        DomainProgram::Guest => guest::start(order),
        DomainProgram::Image => cell::start(order),
    }
}

/// A command whose output goes to the log, in a process group of its own.
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

/// Splits what became of threads into the first refusal and what is only to be told.
fn judge(placed: Vec<PlacedThread>) -> Result<Vec<Finding>, SuperviseError> {
    let mut notes: Vec<Finding> = Vec::new();
    for thread in placed {
        if let Some(finding) = thread.refused {
            return Err(SuperviseError::Missing(finding));
        }
        for note in thread.notes {
            // The same is said of each thread.
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

/// Waits until a child has ended, at most `limit`.
fn wait(child: &mut Child, limit: Duration) -> Option<ProgramExit> {
    rampart_host::wait_within(child, limit)
        .ok()
        .flatten()
        .map(ProgramExit::from)
}

/// Ends a child and its process group: SIGTERM, then SIGKILL when the limit is over.
fn end(child: &mut Child, limit: Duration) -> ProgramExit {
    let group = group_of(child.id());
    let signal = |signal| {
        if let Some(group) = group {
            // A group that is gone is what is wanted.
            let _ = kill_process_group(group, signal);
        }
    };
    signal(Signal::TERM);
    let ended = wait(child, limit).unwrap_or_else(|| {
        signal(Signal::KILL);
        rampart_host::end_child(child).map_or_else(
            || ProgramExit {
                status: format!(
                    "SIGTERM and SIGKILL, and it has not ended; it hangs in the kernel: cat /proc/{}/stack",
                    child.id()
                ),
                success: false,
            },
            |status| ProgramExit {
                status: format!("{status}, after SIGTERM had not ended it within {} s", limit.as_secs_f64()),
                success: false,
            },
        )
    });
    // Children of its own that stayed.
    signal(Signal::KILL);
    ended
}

/// Where a program has ended by itself: ends what it started and left, which would run on beside its
/// next start. Before it is reaped, so that its number is nobody else's yet.
fn end_what_stayed(child: &Child) {
    let Some(group) = group_of(child.id()) else {
        return;
    };
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    if matches!(waitid(WaitId::Pid(group), look), Ok(Some(_))) {
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Whether a process with this start is gone within `limit`.
pub(crate) fn gone_within(process: u32, start: u64, limit: Duration) -> bool {
    let begin = Instant::now();
    while rampart_host::process_start(process) == Some(start) {
        if begin.elapsed() >= limit {
            return false;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    true
}

/// The threads of a program that the plan's `threads` speak of.
#[derive(Debug)]
struct ThreadPlacer {
    domain: PlannedDomain,
    cpus: rampart_model::CpuSet,
    /// Threads that are in their place, with the names that they had then.
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

    /// Puts the threads of a process, and of those that it made, in their places, where they are
    /// new or have another name by now.
    fn tend(&mut self, process: u32) -> Vec<Finding> {
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
                    // One that ends meanwhile needs no place.
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
