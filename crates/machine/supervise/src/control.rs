// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `up` and `down`: start and end supervisors, and end programs whose supervisor was killed.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rampart_cells::operate::Operator;
use rampart_domain::PlannedContainer;
use rampart_host::{StateDirectory, spawn_detached};
use rampart_model::{
    ContainerEngine, DomainProgram, Finding, ProcessIdentity, Severity, SupervisedDomain,
    SupervisedState,
};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::active_plan::LoadedPlan;
use crate::program::cell::refused;
use crate::program::{POLL, gone_within, has_work};
use crate::record::{Files, liveness, supervised};
use crate::supervisor::nothing_to_run;
use crate::{SuperviseError, log};

/// Time limit of `up` for the start of a program: an engine may have to fetch an image.
const UP_LIMIT: Duration = Duration::from_secs(330);
/// Time limit for the end of a supervisor after the end of its program.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);
/// Time limit for the end of a killed process.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The `rampart` program, with which supervisors and tasks are started.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Its path.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
}

/// The result of `up` for a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpOutcome {
    /// The program runs in its domain.
    Running(SupervisedDomain),
    /// The program was up before.
    Already(SupervisedDomain),
    /// The program has ended already and is not restarted.
    Ended(SupervisedDomain),
    /// The program has ended already and is restarted after a pause.
    Restarting(SupervisedDomain),
    /// The plan names no program for the domain.
    Nothing(Finding),
}

/// Starts the program of a domain under a detached supervisor and waits until the program runs.
///
/// # Errors
/// If the program does not start, or runs already without a supervisor.
pub fn up(
    state: &StateDirectory,
    active: &LoadedPlan,
    name: &str,
    launcher: &Launcher,
) -> Result<UpOutcome, SuperviseError> {
    let domain = active.domain(name)?;
    if !has_work(domain) {
        return Ok(UpOutcome::Nothing(nothing_to_run(active, name)));
    }
    if let Some(known) = supervised(state, name)? {
        let alive = liveness(&known);
        if alive.supervisor {
            return Ok(UpOutcome::Already(known));
        }
        if alive.is_orphaned() {
            return Err(SuperviseError::Missing(orphaned(&known)));
        }
    }
    let files = Files::of(state, name)?;
    let mut supervisor = start(state, &files, name, launcher)?;
    let begin = Instant::now();
    loop {
        let known = supervised(state, name)?.filter(|known| {
            known.supervisor.process == supervisor.id() && liveness(known).supervisor
                || !known.state.is_up() && known.supervisor.process == supervisor.id()
        });
        if let Some(answer) = known.and_then(reached) {
            return answer;
        }
        if let Ok(Some(status)) = supervisor.try_wait() {
            let output = log::tail(&files.log(), 4).join("; ");
            return Err(SuperviseError::Missing(
                Finding::new(
                    Severity::Error,
                    format!("domain {name}"),
                    format!("the supervisor ended before the program ran ({status}): {output}"),
                )
                .fix(format!("less {}", files.log().display())),
            ));
        }
        if begin.elapsed() >= UP_LIMIT {
            let _ = down(state, name, Duration::from_secs(1));
            return Err(SuperviseError::Missing(
                Finding::new(
                    Severity::Error,
                    format!("domain {name}"),
                    format!(
                        "the program did not start within {} s and was ended",
                        UP_LIMIT.as_secs()
                    ),
                )
                .fix(format!("less {}", files.log().display())),
            ));
        }
        std::thread::sleep(POLL);
    }
}

/// Returns the result of `up` from a record, or `None` while the program is starting.
fn reached(known: SupervisedDomain) -> Option<Result<UpOutcome, SuperviseError>> {
    match known.state {
        SupervisedState::Running => Some(Ok(UpOutcome::Running(known))),
        SupervisedState::Ended => Some(Ok(UpOutcome::Ended(known))),
        SupervisedState::Waiting => Some(Ok(UpOutcome::Restarting(known))),
        SupervisedState::Failed => Some(Err(SuperviseError::Missing(last_finding(&known)))),
        SupervisedState::Starting | SupervisedState::Stopped => None,
    }
}

fn start(
    state: &StateDirectory,
    files: &Files,
    name: &str,
    launcher: &Launcher,
) -> Result<Child, SuperviseError> {
    let path = files.log();
    let open = || -> std::io::Result<_> {
        let log = log::open(&path)?;
        Ok((log.try_clone()?, log))
    };
    let (out, errors) = open().map_err(SuperviseError::file("write the log", &path))?;
    let state =
        std::path::absolute(state.path()).map_err(SuperviseError::file("find", state.path()))?;
    let mut command = Command::new(&launcher.program);
    command
        .args(["up", "--foreground", name])
        .env("RAMPART_STATE_DIR", state)
        // So that it does not keep a file system busy.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors);
    spawn_detached(command).map_err(|cause| SuperviseError::NotStarted {
        program: launcher.program.display().to_string(),
        cause,
        fix: "reinstall rampart".to_owned(),
    })
}

fn last_finding(known: &SupervisedDomain) -> Finding {
    known.findings.last().cloned().unwrap_or_else(|| {
        Finding::new(
            Severity::Error,
            format!("domain {}", known.name),
            "the program could not be started",
        )
        .fix(format!("less {}", known.log))
    })
}

/// Returns the finding about a program without a supervisor.
fn orphaned(known: &SupervisedDomain) -> Finding {
    let program = known.program.map(|program| program.process);
    rampart_rules::supervisor_gone(&known.name, program).finding
}

/// The result of `down` for a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownOutcome {
    /// The program was ended, with a description of how.
    Ended(String),
    /// Neither program nor supervisor ran.
    WasDown,
}

/// Ends the program of a domain and its supervisor with SIGTERM, and with SIGKILL after `limit`. Ends
/// a program whose supervisor was killed too.
///
/// # Errors
/// If the program cannot be ended.
pub fn down(
    state: &StateDirectory,
    name: &str,
    limit: Duration,
) -> Result<DownOutcome, SuperviseError> {
    let Some(known) = supervised(state, name)? else {
        return Ok(DownOutcome::WasDown);
    };
    let alive = liveness(&known);
    if !alive.supervisor && !alive.program {
        return Ok(DownOutcome::WasDown);
    }
    let files = Files::of(state, name)?;
    let mut record = known;
    if alive.supervisor {
        let path = files.limit();
        // If the file cannot be written (full disk), the supervisor uses its default.
        let _ = fs::write(&path, limit.as_millis().to_string());
        signal(record.supervisor, Signal::TERM);
        if ends_within(record.supervisor, limit + SUPERVISOR_LIMIT) {
            record = supervised(state, name)?.unwrap_or(record);
            // A supervisor that was killed at that moment leaves its program.
            if !liveness(&record).program {
                return Ok(DownOutcome::Ended(record.last_exit.map_or_else(
                    || "no program ran at that moment".to_owned(),
                    |last| last.status,
                )));
            }
        } else {
            signal(record.supervisor, Signal::KILL);
            ends_within(record.supervisor, KILL_LIMIT);
        }
    }
    let how = end_orphan(&record, &files, limit)?;
    record.state = SupervisedState::Stopped;
    record.program = None;
    record.container = None;
    files.write(&record)?;
    Ok(DownOutcome::Ended(format!(
        "{how}; the supervisor had ended or did not answer"
    )))
}

/// Ends a program without a supervisor. Returns how.
fn end_orphan(
    known: &SupervisedDomain,
    files: &Files,
    limit: Duration,
) -> Result<String, SuperviseError> {
    if known.kind.program() == DomainProgram::Image {
        let operator = Operator::open().map_err(refused)?;
        operator.destroy(&known.name).map_err(refused)?;
        return Ok("the cell was destroyed".to_owned());
    }
    let Some(program) = known.program else {
        return Ok("no program ran".to_owned());
    };
    if let Some(container) = &known.container {
        let container = PlannedContainer::left(
            &known.name,
            container.engine,
            PathBuf::from(&container.program),
            PathBuf::from(&container.directory),
        );
        // The result does not matter if the process ends.
        let _ = container.stop(limit);
        let stopped = ends_within(program, limit);
        container.remove()?;
        if !ends_within(program, KILL_LIMIT) {
            return Err(still_running(known, program));
        }
        let how = if stopped { "stopped" } else { "removed" };
        return Ok(format!(
            "the container was {how} by {}",
            word(container.engine())
        ));
    }
    signal_group(program, Signal::TERM);
    let how = if ends_within(program, limit) {
        "ended by SIGTERM"
    } else {
        signal_group(program, Signal::KILL);
        "ended by SIGKILL, because it ignored SIGTERM"
    };
    if !ends_within(program, KILL_LIMIT) {
        return Err(still_running(known, program));
    }
    signal_group(program, Signal::KILL);
    let _ = fs::remove_dir_all(files.inside());
    Ok(how.to_owned())
}

fn still_running(known: &SupervisedDomain, program: ProcessIdentity) -> SuperviseError {
    SuperviseError::Missing(
        Finding::new(
            Severity::Error,
            format!("domain {}", known.name),
            format!("process {} did not end after SIGKILL", program.process),
        )
        .fix(format!(
            "see what it waits for: cat /proc/{}/stack",
            program.process
        )),
    )
}

const fn word(engine: ContainerEngine) -> &'static str {
    match engine {
        ContainerEngine::Embedded => "its runtime",
        ContainerEngine::Podman => "podman",
        ContainerEngine::Docker => "docker",
    }
}

fn pid(identity: ProcessIdentity) -> Option<Pid> {
    i32::try_from(identity.process).ok().and_then(Pid::from_raw)
}

fn ends_within(identity: ProcessIdentity, limit: Duration) -> bool {
    gone_within(identity.process, identity.start, limit)
}

fn signal(identity: ProcessIdentity, signal: Signal) {
    // The process may have ended already.
    if let Some(pid) = pid(identity) {
        let _ = kill_process(pid, signal);
    }
}

fn signal_group(identity: ProcessIdentity, signal: Signal) {
    if let Some(pid) = pid(identity) {
        let _ = kill_process_group(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use rampart_model::{LastExit, Nanos};

    use super::*;
    use crate::record::tests::example;

    #[test]
    fn reports_a_restart_as_restarting_and_not_as_ended() {
        let after_an_end = |state| {
            reached(SupervisedDomain {
                state,
                last_exit: Some(LastExit {
                    at: Nanos::ZERO,
                    status: "exit status: 3".to_owned(),
                    success: false,
                }),
                ..example()
            })
        };
        assert!(matches!(
            after_an_end(SupervisedState::Waiting),
            Some(Ok(UpOutcome::Restarting(_)))
        ));
        assert!(after_an_end(SupervisedState::Starting).is_none());
        assert!(matches!(
            after_an_end(SupervisedState::Running),
            Some(Ok(UpOutcome::Running(_)))
        ));
        assert!(matches!(
            after_an_end(SupervisedState::Ended),
            Some(Ok(UpOutcome::Ended(_)))
        ));
        assert!(matches!(
            after_an_end(SupervisedState::Failed),
            Some(Err(SuperviseError::Missing(_)))
        ));
    }
}
