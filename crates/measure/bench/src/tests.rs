// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Waits for remote programs end although the machine responds.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError};

use crate::copy_programs::copy_programs_within;
use crate::{BenchError, BenchMachine, Ended, Programs, SilenceLimits, run};

/// Far longer than any step of these tests takes; only a failure waits for it.
const FOR_EVER: Duration = Duration::from_secs(300);

/// An agent on this machine in the role of another machine.
#[derive(Debug)]
struct Here {
    agent: Agent,
    child: Child,
    directory: String,
}

impl Here {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut Command)) -> Self {
        let here = std::env::current_exe().expect("this program");
        let target = here.ancestors().nth(2).expect("deps is in a directory");
        let (near, far) = UnixStream::pair().expect("sockets");
        let again = far.try_clone().expect("socket");
        let mut command = Command::new(target.join("examples/standalone_agent_of_bench"));
        command
            .stdin(Stdio::from(OwnedFd::from(far)))
            .stdout(Stdio::from(OwnedFd::from(again)));
        change(&mut command);
        let child = command
            .spawn()
            .expect("the far side: cargo builds it with these tests");
        let agent = Agent::connect(near, FOR_EVER).expect("an answer");
        Self {
            agent,
            child,
            directory: "/nowhere".to_owned(),
        }
    }

    fn run(&self, script: &str, limits: SilenceLimits) -> (Ended<String>, Vec<String>) {
        let lines = Mutex::new(Vec::new());
        // A shell cannot trap a signal that was ignored when it started, as in a background job.
        let argv = ["env", "--default-signal=INT", "sh", "-c", script].map(str::to_owned);
        let ended = run(
            self,
            &argv,
            limits,
            &AtomicBool::new(false),
            |mut stdout| {
                let mut text = String::new();
                let _ = stdout.read_to_string(&mut text);
                text
            },
            |line| lines.lock().expect("lines").push(line.to_owned()),
        );
        let ended = ended.expect("started");
        (ended, lines.into_inner().expect("lines"))
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl BenchMachine for Here {
    fn name(&self) -> String {
        "here".to_owned()
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn directory(&self) -> &str {
        &self.directory
    }

    fn explain(&self, source: AgentError) -> BenchError {
        BenchError::Agent {
            machine: self.name(),
            source,
            output: String::new(),
        }
    }
}

/// Limits in milliseconds.
fn limits(working: u64, ending: u64) -> SilenceLimits {
    SilenceLimits {
        working: Duration::from_millis(working),
        ending: Duration::from_millis(ending),
        after_end: FOR_EVER,
    }
}

#[test]
fn kills_a_silent_program_that_ignores_sigint() {
    let machine = Here::start();
    let begin = Instant::now();
    let script = "trap '' INT; echo before; while :; do sleep 1; done";
    let (ended, lines) = machine.run(script, limits(2000, 500));
    assert!(begin.elapsed() < FOR_EVER);
    assert_eq!(ended.output, "before\n", "what came before is kept");
    let error = ended.status.expect_err("it hung");
    assert!(matches!(error, BenchError::Hung { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("here") && text.contains("rampart release"),
        "{text}"
    );
    assert!(
        lines.iter().any(|line| line.contains("sending SIGINT")),
        "{lines:?}"
    );
}

#[test]
fn returns_the_status_of_a_silent_program_that_ends_on_sigint() {
    let machine = Here::start();
    let script = "trap 'echo kept; exit 5' INT; while :; do sleep 0.1; done";
    let (ended, _) = machine.run(script, limits(2000, 60_000));
    assert_eq!(ended.output, "kept\n");
    assert_eq!(ended.status.expect("its own").code(), Some(5));
}

#[test]
fn waits_for_a_program_with_output() {
    let machine = Here::start();
    let script = "for i in 1 2 3 4 5 6 7 8; do echo $i >&2; sleep 0.5; done";
    let (ended, lines) = machine.run(script, limits(2500, 60_000));
    assert!(ended.status.expect("ended").success());
    assert_eq!(lines.len(), 8, "{lines:?}");
}

#[test]
fn does_not_wait_for_processes_left_behind() {
    let machine = Here::start();
    let limits = SilenceLimits {
        after_end: Duration::from_millis(500),
        ..limits(60_000, 60_000)
    };
    let begin = Instant::now();
    let (ended, lines) = machine.run("echo out; sleep 1000 & exit 0", limits);
    assert!(begin.elapsed() < FOR_EVER);
    assert_eq!(ended.output, "out\n");
    assert!(ended.status.expect("ended").success());
    assert!(
        lines.iter().any(|line| line.contains("keeps its output")),
        "{lines:?}"
    );
}

#[test]
fn carrying_ends_if_tar_hangs() {
    let directory = tempfile::tempdir().expect("a directory");
    let tar = directory.path().join("tar");
    std::fs::write(&tar, "#!/bin/sh\nexec sleep 1000\n").expect("written");
    std::fs::set_permissions(&tar, std::fs::Permissions::from_mode(0o755)).expect("set");
    let mut machine = Here::start_with(|command| {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", directory.path().display()));
    });
    // More than fits into the pipes in between.
    let large = directory.path().join("rampart");
    std::fs::write(&large, vec![7; 4 << 20]).expect("written");
    let programs = Programs {
        rampart: large.clone(),
        meter: large,
    };
    machine.directory = directory.path().join("there").display().to_string();
    let error =
        copy_programs_within(&machine, &programs, Duration::from_millis(500)).expect_err("hung");
    assert!(matches!(error, BenchError::Hung { .. }), "{error}");
}
