// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `up` and `down`: start and end supervisors, and what supervisors that were killed left behind.

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
use crate::program::{LOOK_AGAIN, gone_within, has_work};
use crate::record::{Files, liveness, supervised};
use crate::supervisor::nothing_to_run;
use crate::{SuperviseError, log};

/// How long `up` waits for a program to be in its place: an engine may have to fetch an image.
const UP_LIMIT: Duration = Duration::from_secs(330);
/// How much longer than its program a supervisor may take to end.
const SUPERVISOR_LIMIT: Duration = Duration::from_secs(30);
/// How long a killed process may take to be gone.
const KILLED: Duration = Duration::from_secs(10);

/// The program that supervisors and programs are started with: `rampart` itself.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// Its path.
    pub program: PathBuf,
    /// Its version.
    pub version: String,
}

/// What `up` did about a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpOutcome {
    /// Its program runs in its place.
    Running(SupervisedDomain),
    /// It was up before.
    Already(SupervisedDomain),
    /// Its program has ended by now, and is not started again.
    Ended(SupervisedDomain),
    /// Its program has ended by now, and is started again after a pause.
    Restarting(SupervisedDomain),
    /// The plan gives it nothing to run.
    Nothing(Finding),
}

/// Starts what a domain of the active plan runs under a supervisor that goes on alone, and waits
/// until it is seen in its place.
///
/// # Errors
/// If it does not get there.
pub fn up(
    state: &StateDirectory,
    standing: &LoadedPlan,
    name: &str,
    launcher: &Launcher,
) -> Result<UpOutcome, SuperviseError> {
    let domain = standing.domain(name)?;
    if !has_work(domain) {
        return Ok(UpOutcome::Nothing(nothing_to_run(standing, name)));
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
            let said = log::tail(&files.log(), 3).join("; ");
            return Err(SuperviseError::Missing(
                Finding::new(
                    Severity::Error,
                    format!("domain {name}"),
                    format!("its supervisor ended before the program ran ({status}): {said}"),
                )
                .fix(format!("see {}", files.log().display())),
            ));
        }
        if begin.elapsed() >= UP_LIMIT {
            let _ = down(state, name, Duration::from_secs(1));
            return Err(SuperviseError::Missing(
                Finding::new(
                    Severity::Error,
                    format!("domain {name}"),
                    format!(
                        "its program was not in its place within {} s, and was ended",
                        UP_LIMIT.as_secs()
                    ),
                )
                .fix(format!("see {}", files.log().display())),
            ));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// What a record answers to who waits for its program; none as long as it is not known.
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
        // It holds no directory that somebody may want to unmount.
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors);
    spawn_detached(command).map_err(|cause| SuperviseError::NotStarted {
        program: launcher.program.display().to_string(),
        cause,
        fix: "install rampart again".to_owned(),
    })
}

fn last_finding(known: &SupervisedDomain) -> Finding {
    known.findings.last().cloned().unwrap_or_else(|| {
        Finding::new(
            Severity::Error,
            format!("domain {}", known.name),
            "its program could not be started",
        )
        .fix(format!("see {}", known.log))
    })
}

/// What to say of a program that nobody watches over.
fn orphaned(known: &SupervisedDomain) -> Finding {
    let program = known.program.map_or_else(
        || "what it started".to_owned(),
        |program| format!("its program (process {})", program.process),
    );
    Finding::new(
        Severity::Error,
        format!("domain {}", known.name),
        format!(
            "its supervisor (process {}) was killed, and {program} runs unsupervised",
            known.supervisor.process
        ),
    )
    .fix(format!("rampart down {0}, then rampart up {0}", known.name))
}

/// What `down` did about a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DownOutcome {
    /// Its program was ended; how, in words.
    Ended(String),
    /// Nothing of it ran.
    WasDown,
}

/// Ends what a domain runs, and its supervisor: asks, and kills when `limit` is over. What a killed
/// supervisor left behind is ended too.
///
/// # Errors
/// If something of it cannot be ended.
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
        // Where it cannot be written, on a full disk perhaps, the supervisor's own does.
        let _ = fs::write(&path, limit.as_millis().to_string());
        signal(record.supervisor, Signal::TERM);
        if gone(record.supervisor, limit + SUPERVISOR_LIMIT) {
            record = supervised(state, name)?.unwrap_or(record);
            // One that was killed at that moment leaves its program.
            if !liveness(&record).program {
                return Ok(DownOutcome::Ended(record.last_exit.map_or_else(
                    || "it had no program at that moment".to_owned(),
                    |last| last.status,
                )));
            }
        } else {
            signal(record.supervisor, Signal::KILL);
            gone(record.supervisor, KILLED);
        }
    }
    let how = end_orphan(&record, &files, limit)?;
    record.state = SupervisedState::Stopped;
    record.program = None;
    record.container = None;
    files.write(&record)?;
    Ok(DownOutcome::Ended(format!(
        "{how}; its supervisor was gone or did not answer"
    )))
}

/// Ends a program that nobody watches over.
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
        return Ok("it had no program".to_owned());
    };
    if let Some(container) = &known.container {
        let container = PlannedContainer::left(
            &known.name,
            container.engine,
            PathBuf::from(&container.program),
            PathBuf::from(&container.directory),
        );
        // Whatever that answers, what counts is whether it is gone.
        let _ = container.stop(limit);
        let stopped = gone(program, limit);
        container.remove()?;
        if !gone(program, KILLED) {
            return Err(stays(known, program));
        }
        let how = if stopped { "stopped" } else { "removed" };
        return Ok(format!(
            "the container was {how} by {}",
            word(container.engine())
        ));
    }
    signal_group(program, Signal::TERM);
    let how = if gone(program, limit) {
        "ended by SIGTERM"
    } else {
        signal_group(program, Signal::KILL);
        "ended by SIGKILL, after SIGTERM had not ended it"
    };
    if !gone(program, KILLED) {
        return Err(stays(known, program));
    }
    signal_group(program, Signal::KILL);
    let _ = fs::remove_dir_all(files.inside());
    Ok(how.to_owned())
}

fn stays(known: &SupervisedDomain, program: ProcessIdentity) -> SuperviseError {
    SuperviseError::Missing(
        Finding::new(
            Severity::Error,
            format!("domain {}", known.name),
            format!(
                "process {} does not end, not even by SIGKILL",
                program.process
            ),
        )
        .fix(format!(
            "see in /proc/{}/stack what it waits for in the kernel",
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

fn gone(identity: ProcessIdentity, limit: Duration) -> bool {
    gone_within(identity.process, identity.start, limit)
}

fn signal(identity: ProcessIdentity, signal: Signal) {
    // One that is gone is what is wanted.
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
    fn a_program_that_is_started_again_has_not_ended_for_good() {
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
