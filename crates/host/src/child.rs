// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes that end with this one, even when it is killed with SIGKILL, and that are waited
//! for no longer than they are worth.

use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

/// How long a killed process may take to be gone. One that waits for a device that never answers,
/// or whose guest hangs in the kernel, is never gone; nobody waits for that.
const KILLED: Duration = Duration::from_secs(10);
/// How long the last words of a process that has ended may take: a child of its own may hold its
/// output open for as long as it lives.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How much of an output is kept.
const OUTPUT_KEPT: u64 = 64 << 10;
/// Pause between two looks at a process.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

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

/// What a program that was run to its end said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// How it ended; none if it did not in time, and was killed.
    pub status: Option<ExitStatus>,
    /// The first 64 KiB of its standard output.
    pub output: String,
    /// The first 64 KiB of its standard error.
    pub errors: String,
}

/// Runs `command` to its end, with nothing to read, and kills it after `limit`.
///
/// # Errors
/// If it cannot be started.
pub fn run_within(mut command: Command, limit: Duration) -> io::Result<Said> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = child.stdout.take().map(collect);
    let errors = child.stderr.take().map(collect);
    let waited = wait_within(&mut child, limit);
    let status = match waited {
        Ok(Some(status)) => Some(status),
        Ok(None) | Err(_) => {
            end_child(&mut child);
            None
        }
    };
    let text = |said: Option<Receiver<Vec<u8>>>| {
        let until = Instant::now() + LAST_WORDS;
        let mut bytes = Vec::new();
        while let Some(said) = &said
            && let Ok(piece) = said.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            bytes.extend(piece);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    };
    Ok(Said {
        status,
        output: text(output),
        errors: text(errors),
    })
}

/// Reads an output to its end, and hands over as much of it as is kept.
fn collect(mut output: impl Read + Send + 'static) -> Receiver<Vec<u8>> {
    let (sender, said) = channel();
    thread::spawn(move || {
        let mut left = OUTPUT_KEPT;
        let mut piece = [0; 4096];
        // To the end in any case: a full pipe would hold the program up.
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let kept = piece.get(..length).unwrap_or_default();
            let kept = kept
                .get(..usize::try_from(left).unwrap_or(length).min(length))
                .unwrap_or_default();
            left -= kept.len() as u64;
            // Nobody listens any more once the program's last words were waited for.
            if !kept.is_empty() && sender.send(kept.to_vec()).is_err() {
                return;
            }
        }
    });
    said
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

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_is_run_to_its_end_with_all_it_said() {
        let script = "echo yes; echo no >&2; yes | head -c 300000; exit 3";
        let said = run_within(shell(script), Duration::from_secs(60)).expect("started");
        assert_eq!(said.status.and_then(|status| status.code()), Some(3));
        assert!(said.output.starts_with("yes\ny\n"));
        assert_eq!(said.output.len() as u64, OUTPUT_KEPT);
        assert_eq!(said.errors, "no\n");
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let begin = Instant::now();
        let said = run_within(
            shell("echo begun; exec sleep 600"),
            Duration::from_millis(300),
        );
        let said = said.expect("started");
        assert_eq!((said.status, said.output.as_str()), (None, "begun\n"));
        // Nor is what it left behind waited for, which holds its output open.
        let said = run_within(shell("sleep 600 & echo $!"), Duration::from_secs(60));
        let said = said.expect("started");
        assert!(said.status.is_some_and(|status| status.success()));
        let left = said.output.trim().parse().ok().and_then(Pid::from_raw);
        rustix::process::kill_process(left.expect("its number"), Signal::KILL).expect("ended");
        assert!(begin.elapsed() < Duration::from_secs(300));
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
        let error = spawn_tied(Command::new("/nowhere/program"), AtOurEnd::Terminate);
        assert_eq!(
            error.expect_err("must fail").kind(),
            io::ErrorKind::NotFound
        );
    }
}
