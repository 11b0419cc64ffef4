// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that end with this process, even if it is killed with SIGKILL, and waits with a
//! time limit.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// Longest wait for a killed process to end. A process in an uninterruptible wait for a device may
/// never end.
const KILL_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

type Request = (Command, Sender<io::Result<Child>>);

/// The signal that a child gets when this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnParentExit {
    /// SIGKILL: for a program without anything to clean up.
    Kill,
    /// SIGTERM: for a program that ends its own children and removes its own files.
    Terminate,
}

/// Starts `command` in its own process group (so that Ctrl-C on the terminal reaches only this
/// process) as a child that gets a signal however this process ends.
///
/// The kernel sends that signal when the *thread* that created the child ends (prctl(2),
/// `PR_SET_PDEATHSIG`), so one thread that lives as long as the process creates all such children.
///
/// # Errors
/// If the program cannot be started.
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to run code between fork and exec"
)]
pub fn spawn_tied(mut command: Command, on_parent_exit: OnParentExit) -> io::Result<Child> {
    let signal = match on_parent_exit {
        OnParentExit::Kill => Signal::KILL,
        OnParentExit::Terminate => Signal::TERM,
    };
    let parent = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: between fork and exec only the system calls prctl and getppid are made, which are
    // async-signal-safe; nothing is allocated or locked.
    unsafe {
        command.pre_exec(move || tie(signal, parent));
    }
    let (reply, answer) = channel();
    let gone = || io::Error::other("the thread that starts programs has ended");
    let spawner = spawner().ok_or_else(gone)?;
    spawner
        .lock()
        .map_err(|_| gone())?
        .send((command, reply))
        .map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Starts `command` in its own session (setsid(2)), so that it continues after this process and its
/// terminal. Its standard input and outputs must not depend on them either.
///
/// # Errors
/// If the program cannot be started.
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to run code between fork and exec"
)]
pub fn spawn_detached(mut command: Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only the system call setsid is made, which is
    // async-signal-safe; nothing is allocated or locked.
    unsafe {
        command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
    }
    command.spawn()
}

/// Waits until `child` has ended. Returns `None` if it has not ended after `limit`.
///
/// # Errors
/// If the kernel does not know the process.
pub fn wait_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if begin.elapsed() >= limit {
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Kills `child` and waits until it has ended. Returns its exit status, or `None` if it has not
/// ended after ten seconds.
pub fn end_child(child: &mut Child) -> Option<ExitStatus> {
    // The error is that the child has ended already.
    let _ = child.kill();
    wait_within(child, KILL_LIMIT).ok().flatten()
}

/// Kills `child` and its process group, which [`spawn_tied`] created. Returns as [`end_child`].
pub(crate) fn end_group(child: &mut Child) -> Option<ExitStatus> {
    // The error is that the group has ended already.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    end_child(child)
}

/// Runs in the child: requests the signal, and fails if the parent ended before that.
fn tie(signal: Signal, parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(
            rustix::io::Errno::SRCH.raw_os_error(),
        ))
    }
}

fn spawner() -> Option<&'static Mutex<Sender<Request>>> {
    static SPAWNER: OnceLock<Option<Mutex<Sender<Request>>>> = OnceLock::new();
    SPAWNER
        .get_or_init(|| {
            let (sender, requests) = channel::<Request>();
            thread::Builder::new()
                .name("spawner".to_owned())
                .spawn(move || {
                    for (mut command, reply) in requests {
                        // A caller that no longer waits drops the pipes, which ends the child.
                        let _ = reply.send(command.spawn());
                    }
                })
                .ok()?;
            Some(Mutex::new(sender))
        })
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_outlives_the_thread_that_requested_it() {
        let mut child = thread::spawn(|| {
            let mut command = Command::new("sleep");
            command.arg("60");
            spawn_tied(command, OnParentExit::Kill)
        })
        .join()
        .expect("thread")
        .expect("child");
        thread::sleep(std::time::Duration::from_millis(100));
        assert!(child.try_wait().expect("wait").is_none());
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn ends_a_child_and_waits_for_it() {
        let mut child = shell("exec sleep 600").spawn().expect("started");
        let waited = wait_within(&mut child, Duration::from_millis(20)).expect("known");
        assert_eq!(waited, None);
        assert!(end_child(&mut child).is_some());
        assert!(end_child(&mut child).is_some(), "a second time");
    }

    #[test]
    fn a_missing_program_is_an_error() {
        let error = spawn_tied(Command::new("/nowhere/program"), OnParentExit::Terminate);
        assert_eq!(
            error.expect_err("must fail").kind(),
            io::ErrorKind::NotFound
        );
    }
}
