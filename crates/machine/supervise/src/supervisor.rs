// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The supervisor: the process that watches the program of one domain.

use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rampart_host::{StateDirectory, ThreadPlacement, boot_id, place_this_process, process_start};
use rampart_model::{
    Finding, LastExit, Nanos, ProcessIdentity, SUPERVISION_SCHEMA_VERSION, Severity,
    SupervisedDomain, SupervisedState,
};

use crate::active_plan::{HOUSEKEEPING, LoadedPlan};
use crate::control::Launcher;
use crate::program::{self, Program, ProgramExit, StartRequest};
use crate::record::Files;
use crate::restart::{Decision, MOST_RESTARTS, RunEnd, WINDOW, decide};
use crate::{SuperviseError, log};

/// Default time limit for the end of a program.
pub const END_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two checks for the program's end or a request to stop.
const POLL: Duration = Duration::from_millis(50);
/// Pause between two checks of the threads and the log.
const CHECK: Duration = Duration::from_secs(1);
/// Maximum number of findings in a record.
const FINDINGS_KEPT: usize = 20;

/// Starts the program of a domain and watches it until it has ended without a restart or `stop` is
/// set. Moves this process to the housekeeping CPUs. Calls `on_change` with each new state, and
/// `on_trouble` if the record cannot be written while the program runs; the program is still
/// watched then, and the write is retried each second.
///
/// # Errors
/// If no plan is active, the domain has no program, another supervisor runs, or the record of the
/// first start cannot be written.
pub fn supervise(
    state: &StateDirectory,
    name: &str,
    launcher: &Launcher,
    stop: &AtomicBool,
    mut on_change: impl FnMut(&SupervisedDomain),
    mut on_trouble: impl FnMut(&SuperviseError),
) -> Result<SupervisedState, SuperviseError> {
    let active = LoadedPlan::required(state)?;
    let domain = active.domain(name)?;
    let destination = active.destination(name)?;
    if !program::has_work(domain) {
        return Err(SuperviseError::Usage(nothing_to_run(&active, name)));
    }
    let files = Files::of(state, name)?;
    let _lock = lock(&files, name)?;
    // Left by a `down` whose supervisor had no program. It cannot be for this supervisor, which has no
    // record yet.
    let _ = std::fs::remove_file(files.limit());
    move_to_housekeeping(&active)?;
    let own = std::process::id();
    let mut watch = Watch {
        record: SupervisedDomain {
            schema_version: SUPERVISION_SCHEMA_VERSION,
            tool_version: launcher.version.clone(),
            name: name.to_owned(),
            kind: domain.kind,
            state: SupervisedState::Starting,
            boot: boot_id(),
            supervisor: ProcessIdentity {
                process: own,
                start: process_start(own).unwrap_or(0),
            },
            program: None,
            started_at: None,
            restarts: 0,
            last_exit: None,
            log: files.log().display().to_string(),
            container: None,
            findings: Vec::new(),
        },
        order: StartRequest {
            state,
            active: &active,
            domain,
            destination: &destination,
            files: &files,
            launcher,
            stop,
        },
        on_change: &mut on_change,
        on_trouble: &mut on_trouble,
        is_unwritten: false,
    };
    watch.run()
}

/// Returns the finding about a domain without a program.
pub(crate) fn nothing_to_run(active: &LoadedPlan, name: &str) -> Finding {
    Finding::new(
        Severity::Error,
        format!("domain {name}"),
        "the plan names no program for this domain",
    )
    .fix(format!(
        "write run = [\"PROGRAM\"] (for a guest: kernel or disk) into {} and apply it again\nrampart run {name} -- PROGRAM",
        active.plan.file
    ))
}

fn lock(files: &Files, name: &str) -> Result<File, SuperviseError> {
    let path = files.lock();
    let file = File::create(&path).map_err(SuperviseError::file("open the lock", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(SuperviseError::Missing(
            Finding::new(
                Severity::Error,
                path.display().to_string(),
                format!("another supervisor runs for the domain `{name}`"),
            )
            .fix(format!("rampart down {name}")),
        )),
    }
}

/// Moves this process to the housekeeping CPUs.
fn move_to_housekeeping(active: &LoadedPlan) -> Result<(), SuperviseError> {
    let own = std::process::id();
    let housekeeping = active.destination(HOUSEKEEPING)?;
    let location = ThreadPlacement {
        policy: None,
        ..active.placement(&housekeeping, own, None, None, None)?
    };
    Ok(place_this_process(&location)?)
}

struct Watch<'a> {
    record: SupervisedDomain,
    order: StartRequest<'a>,
    on_change: &'a mut dyn FnMut(&SupervisedDomain),
    on_trouble: &'a mut dyn FnMut(&SuperviseError),
    /// Whether the record on disk is outdated.
    is_unwritten: bool,
}

impl Watch<'_> {
    fn run(&mut self) -> Result<SupervisedState, SuperviseError> {
        let clock = Instant::now();
        let mut endings: Vec<RunEnd> = Vec::new();
        self.change(SupervisedState::Starting)?;
        loop {
            let begin = clock.elapsed();
            let ended = match program::start(&self.order) {
                Ok((program, findings)) => {
                    self.note(findings);
                    match self.attend(program)? {
                        Some(ended) => ended,
                        None => return Ok(SupervisedState::Stopped),
                    }
                }
                // A failure of the first start is returned to the waiting `up`.
                Err(error) if endings.is_empty() => {
                    self.note(vec![failure(self.order.domain.name.as_str(), &error)]);
                    self.keep(SupervisedState::Failed);
                    return Err(error);
                }
                Err(error) => ProgramExit {
                    status: format!("not started: {error}"),
                    success: false,
                },
            };
            endings.push(RunEnd {
                at: nanos(clock.elapsed()),
                ran: nanos(clock.elapsed().saturating_sub(begin)),
                success: ended.success,
            });
            if endings.len() > MOST_RESTARTS + 1 {
                endings.remove(0);
            }
            self.ended(ended);
            match decide(self.order.domain.restart, &endings) {
                Decision::Stay => {
                    self.keep(SupervisedState::Ended);
                    return Ok(SupervisedState::Ended);
                }
                Decision::GiveUp(restarts) => {
                    self.note(vec![gave_up(&self.record, restarts)]);
                    self.keep(SupervisedState::Failed);
                    return Ok(SupervisedState::Failed);
                }
                Decision::Restart(pause) => {
                    self.keep(SupervisedState::Waiting);
                    if self.sleep(pause) {
                        self.keep(SupervisedState::Stopped);
                        return Ok(SupervisedState::Stopped);
                    }
                    self.record.restarts += 1;
                    self.keep(SupervisedState::Starting);
                }
            }
        }
    }

    /// Watches a running program. Returns how it ended, or `None` if it was stopped.
    fn attend(
        &mut self,
        mut program: Box<dyn Program>,
    ) -> Result<Option<ProgramExit>, SuperviseError> {
        let identity =
            |process| process_start(process).map(|start| ProcessIdentity { process, start });
        self.record.program = program.process().and_then(identity);
        self.record.container = program.container();
        self.record.started_at = Some(now());
        if self.record.restarts > 0 {
            self.keep(SupervisedState::Running);
        } else if let Err(error) = self.change(SupervisedState::Running) {
            // A program without a record could not be ended by `down`.
            program.stop(END_LIMIT);
            return Err(error);
        }
        let mut checked = Instant::now();
        loop {
            if let Some(ended) = program.ended() {
                return Ok(Some(ended));
            }
            if self.order.stop.load(Ordering::Relaxed) {
                let ended = program.stop(self.end_limit());
                self.ended(ended);
                self.keep(SupervisedState::Stopped);
                return Ok(None);
            }
            if checked.elapsed() >= CHECK {
                checked = Instant::now();
                let findings = program.place_new_threads();
                if self.note(findings) {
                    self.keep(SupervisedState::Running);
                } else if self.is_unwritten {
                    self.write();
                }
                // A failed rotation is retried at the next check.
                let _ = log::rotate(&self.order.files.log(), log::LIMIT);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Takes the time limit that `down` has left, or returns the default.
    fn end_limit(&self) -> Duration {
        let path = self.order.files.limit();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let _ = std::fs::remove_file(&path);
        text.trim()
            .parse::<u64>()
            .map_or(END_LIMIT, Duration::from_millis)
    }

    /// Sleeps for `pause`. Returns whether a stop was requested meanwhile.
    fn sleep(&self, pause: Nanos) -> bool {
        let until = Instant::now() + Duration::from_nanos(pause.0);
        loop {
            if self.order.stop.load(Ordering::Relaxed) {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            std::thread::sleep(left.min(POLL));
        }
    }

    /// Records new findings. Returns whether there were any.
    fn note(&mut self, findings: Vec<Finding>) -> bool {
        let before = self.record.findings.len();
        for finding in findings {
            let known = self.record.findings.contains(&finding);
            if !known && self.record.findings.len() < FINDINGS_KEPT {
                self.record.findings.push(finding);
            }
        }
        self.record.findings.len() > before
    }

    fn ended(&mut self, ended: ProgramExit) {
        self.record.program = None;
        self.record.container = None;
        self.record.last_exit = Some(LastExit {
            at: now(),
            status: ended.status,
            success: ended.success,
        });
    }

    /// Writes a new state and fails if it cannot be written.
    fn change(&mut self, state: SupervisedState) -> Result<(), SuperviseError> {
        self.record.state = state;
        self.order.files.write(&self.record)?;
        (self.on_change)(&self.record);
        Ok(())
    }

    /// Writes a new state; a failed write is retried later.
    fn keep(&mut self, state: SupervisedState) {
        self.record.state = state;
        self.write();
        (self.on_change)(&self.record);
    }

    fn write(&mut self) {
        let written = self.order.files.write(&self.record);
        if let Err(error) = &written
            && !self.is_unwritten
        {
            (self.on_trouble)(error);
        }
        self.is_unwritten = written.is_err();
    }
}

pub(crate) fn failure(name: &str, error: &SuperviseError) -> Finding {
    match error {
        SuperviseError::Missing(finding) | SuperviseError::Usage(finding) => finding.clone(),
        other => Finding::new(Severity::Error, format!("domain {name}"), other.to_string()),
    }
}

fn gave_up(record: &SupervisedDomain, restarts: usize) -> Finding {
    Finding::new(
        Severity::Error,
        format!("domain {}", record.name),
        format!(
            "the program was restarted {restarts} times within {} minutes; no further restart",
            WINDOW.0 / 60_000_000_000
        ),
    )
    .fix(format!(
        "fix the cause in {}, then run: rampart up {}",
        record.log, record.name
    ))
}

fn now() -> Nanos {
    nanos(
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}
