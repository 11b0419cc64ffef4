// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that end with this one, even when it is killed with SIGKILL.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;

use rustix::process::{Pid, Signal};

type Request = (Command, Sender<io::Result<Child>>);

/// What children get when this process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtOurEnd {
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
pub fn spawn_tied(mut command: Command, at_our_end: AtOurEnd) -> io::Result<Child> {
    let signal = match at_our_end {
        AtOurEnd::Kill => Signal::KILL,
        AtOurEnd::Terminate => Signal::TERM,
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
            spawn_tied(command, AtOurEnd::Kill)
        })
        .join()
        .expect("thread")
        .expect("child");
        thread::sleep(std::time::Duration::from_millis(100));
        assert!(child.try_wait().expect("wait").is_none());
        child.kill().expect("kill");
        child.wait().expect("wait");
    }

    #[test]
    fn a_missing_program_is_told() {
        let error = spawn_tied(Command::new("/nowhere/program"), AtOurEnd::Terminate);
        assert_eq!(
            error.expect_err("must fail").kind(),
            io::ErrorKind::NotFound
        );
    }
}
