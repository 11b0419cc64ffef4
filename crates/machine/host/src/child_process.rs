// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that end with this one, even when it is killed with SIGKILL, and that are waited
//! for no longer than they are worth.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// How long a killed process may take to be gone. One that waits for a device that never answers,
/// or whose guest hangs in the kernel, is never gone; nobody waits for that.
const KILLED: Duration = Duration::from_secs(10);
/// Pause between two looks at a process.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

type Request = (Command, Sender<io::Result<Child>>);

/// What children get when this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnParentExit {
    /// SIGKILL: for a program that has nothing to put away.
    Kill,
    /// SIGTERM: for a program that ends its own children and removes its own files.
    Terminate,
}

/// Starts `command` in a process group of its own (so that Ctrl-C on the terminal reaches this
/// process alone) as a child that gets a signal when this process ends in whatever way.
///
/// The kernel ties that signal to the end of the *thread* that made the child
/// (prctl(2), `PR_SET_PDEATHSIG`), so all such children are made by one thread that lives as long
/// as the process.
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
    let gone = || io::Error::other("the thread that starts programs is gone");
    let spawner = spawner().ok_or_else(gone)?;
    spawner
        .lock()
        .map_err(|_| gone())?
        .send((command, reply))
        .map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

/// Starts `command` in a session of its own (setsid(2)), so that it goes on when this process and
/// its terminal are gone. What it reads and writes must not be tied to them either.
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

/// Waits until `child` has ended, for at most `limit`; none if it has not by then.
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
        thread::sleep(LOOK_AGAIN);
    }
}

/// Kills `child` and waits until it is gone; how it ended, none if it cannot be buried within ten
/// seconds. Nothing happens to one that has ended.
pub fn end_child(child: &mut Child) -> Option<ExitStatus> {
    // It may end in the same moment; then there is nothing to kill.
    let _ = child.kill();
    wait_within(child, KILLED).ok().flatten()
}

/// Kills `child` and all of its process group, which [`spawn_tied`] made, and waits until `child` is
/// gone; how it ended, none if it cannot be buried within ten seconds.
pub(crate) fn end_group(child: &mut Child) -> Option<ExitStatus> {
    // Gone already is as good.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    end_child(child)
}

/// Runs in the child: asks for the signal, and ends if the parent was gone before.
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
                        // A caller that no longer waits takes the child with it: dropping the
                        // pipes ends it.
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
    fn a_child_outlives_the_thread_that_asked_for_it() {
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
    fn a_child_is_ended_and_buried() {
        let mut child = shell("exec sleep 600").spawn().expect("started");
        let waited = wait_within(&mut child, Duration::from_millis(20)).expect("known");
        assert_eq!(waited, None);
        assert!(end_child(&mut child).is_some());
        assert!(end_child(&mut child).is_some(), "a second time");
    }

    #[test]
    fn a_missing_program_is_told() {
        let error = spawn_tied(Command::new("/nowhere/program"), OnParentExit::Terminate);
        assert_eq!(
            error.expect_err("must fail").kind(),
            io::ErrorKind::NotFound
        );
    }
}
