// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another machine over the system's OpenSSH, with the user's configuration, keys and jump hosts, or over the
//! command in `RAMPART_SSH`.
//!
//! One connection is enough. A small remote shell script reports the system and architecture,
//! creates a temporary directory, reads `rampart-meter` from its standard input and starts it as
//! the agent on the same streams. When the connection ends for any reason, the agent ends the
//! programs it started and the script removes the directory.

mod greeting;

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError};
use rampart_host::{end_child, output_within};
use rampart_model::Bench;

use self::greeting::{Failed, Greeted, SCRIPT, greet};
use crate::copy_programs::Programs;
use crate::{BenchError, BenchMachine, CrashEvidence, EvaluationBench, SshHost};

/// How long the script's first line may take after the last password prompt: `ssh` may try several
/// addresses and jump hosts (`ConnectTimeout`), and the shell reads its start files.
const NEWS_LIMIT: Duration = Duration::from_secs(120);

/// How long a second connection may take to show whether a machine is alive.
const DEATH_LIMIT: Duration = Duration::from_secs(60);

/// Silence after which the agent takes the connection for lost: several keep-alive intervals.
const SILENCE: Duration = Duration::from_secs(30);

/// How long the programs started there may take to end. The agent's own limit is a little shorter.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(25);

/// Number of last lines of `ssh` that are kept for a message.
const KEPT_LINES: usize = 8;

/// Interval at which the request to stop is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A connection to another machine. Dropping it ends all its programs and removes its directory.
#[derive(Debug)]
pub struct Ssh {
    // Drop order: the end of its input ends the agent, which ends the script and the connection.
    agent: Agent,
    connection: Connection,
    directory: String,
}

/// A running `ssh`.
#[derive(Debug)]
struct Connection {
    child: Child,
    reading: Option<JoinHandle<()>>,
    last_lines: LastLines,
    host: SshHost,
    /// Whether an agent runs there, which needs time to end.
    has_agent: bool,
}

/// The last lines that `ssh` printed.
type LastLines = Arc<Mutex<VecDeque<String>>>;

impl Ssh {
    /// Connects, copies the agent and starts it. Waits while `ssh` prompts for a password, a
    /// passphrase or the host key; without a terminal, `ssh` does not prompt. The calling thread must
    /// live as long as the connection.
    ///
    /// # Errors
    /// Returns an error with the output of `ssh` if it cannot connect, and an error if nothing
    /// arrives for two minutes, if the machine is not Linux, if the programs for its architecture
    /// do not exist, or if `stop` is set meanwhile.
    pub fn connect(
        host: &SshHost,
        programs: &Programs,
        stop: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let mut child = spawn(&mut command(host)).map_err(|source| BenchError::NoSsh {
            host: host.to_string(),
            source,
        })?;
        let last_lines = LastLines::default();
        let reading = child
            .stderr
            .take()
            .map(|stderr| keep_last_lines(stderr, Arc::clone(&last_lines)));
        let mut connection = Connection {
            reading,
            last_lines,
            host: host.clone(),
            child,
            has_agent: false,
        };
        let pipes = (
            connection.child.stdin.take(),
            connection.child.stdout.take(),
        );
        let (Some(stdin), Some(stdout)) = pipes else {
            return Err(connection.not_established());
        };
        let (sender, receiver) = channel();
        let (name, programs) = (format!("ssh:{host}"), programs.clone());
        thread::spawn(move || {
            // The receiver is gone if the user has interrupted the connection.
            let news = || drop(sender.send(None));
            let greeted = greet(stdin, stdout, &programs, &name, &news);
            let _ = sender.send(Some(greeted));
        });
        // With a terminal, prompts may take any time. Without one, the limit applies from the start.
        let mut since = (!io::stdin().is_terminal()).then(Instant::now);
        let greeted = loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(Some(greeted)) => break greeted,
                Ok(None) => since = Some(Instant::now()),
                Err(RecvTimeoutError::Disconnected) => break Err(Failed::Ended),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    let what = format!("connecting to ssh:{host}");
                    return Err(BenchError::Interrupted(what));
                }
                Err(RecvTimeoutError::Timeout)
                    if since.is_some_and(|since| since.elapsed() >= NEWS_LIMIT) =>
                {
                    return Err(connection.no_news());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        match greeted {
            Ok(Greeted { agent, directory }) => {
                connection.has_agent = true;
                let ssh = Self {
                    agent,
                    connection,
                    directory,
                };
                ssh.agent.keep_alive().map_err(|error| ssh.explain(error))?;
                Ok(ssh)
            }
            Err(Failed::Ended) => Err(connection.not_established()),
            Err(Failed::Other(error)) => Err(error),
        }
    }
}

impl Ssh {
    /// Returns the evidence that a machine silent for this long has crashed: it accepts no new
    /// connection, or has booted since. Returns `None` if it is alive or the check fails.
    fn death(&self, silent: Duration) -> Option<String> {
        let host = &self.connection.host;
        let mut ssh = base_command(host);
        ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
        ssh.args(["--", host.destination(), "cat /proc/uptime"]);
        let asked = Instant::now();
        let answer = output_within(ssh, DEATH_LIMIT, &mut || 0).ok()??;
        let silent = silent + asked.elapsed();
        let text = String::from_utf8_lossy(&answer.stdout);
        let up: Option<f64> = text
            .split_whitespace()
            .next()
            .and_then(|seconds| seconds.parse().ok());
        match up {
            Some(up) if up < silent.as_secs_f64() => Some(format!(
                "the machine has booted since: it is up for {up:.0} s, and last answered {:.0} s ago",
                silent.as_secs_f64()
            )),
            Some(_) => None,
            // ssh exits with 255 if it cannot connect (ssh(1)).
            None if answer.status.code() == Some(255) => {
                let errors = String::from_utf8_lossy(&answer.stderr);
                Some(format!(
                    "the machine has stopped responding and accepts no new connection: {}",
                    errors.lines().last().unwrap_or_default().trim()
                ))
            }
            None => None,
        }
    }
}

impl Connection {
    /// Returns the last lines of `ssh`. Waits up to 2 s for the end of its output.
    fn output(&self) -> String {
        let until = Instant::now() + Duration::from_secs(2);
        while self
            .reading
            .as_ref()
            .is_some_and(|reading| !reading.is_finished())
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(10));
        }
        let last_lines = self
            .last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        last_lines.iter().cloned().collect::<Vec<_>>().join("; ")
    }

    fn no_news(&self) -> BenchError {
        let last_lines = self
            .last_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let last = last_lines
            .back()
            .map(|line| format!(", ssh reports: {line}"));
        BenchError::NotConnected {
            host: self.host.to_string(),
            command: trial(named().as_deref(), &self.host),
            output: format!(
                "no output from there for {} s{}",
                NEWS_LIMIT.as_secs(),
                last.unwrap_or_default()
            ),
        }
    }

    fn not_established(&self) -> BenchError {
        let output = self.output();
        BenchError::NotConnected {
            host: self.host.to_string(),
            command: trial(named().as_deref(), &self.host),
            output: if output.is_empty() {
                "ssh ended without output".to_owned()
            } else {
                output
            },
        }
    }
}

impl BenchMachine for Ssh {
    fn name(&self) -> String {
        format!("ssh:{}", self.connection.host)
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn directory(&self) -> &str {
        &self.directory
    }

    fn explain(&self, error: AgentError) -> BenchError {
        let lost = matches!(error, AgentError::Lost(_));
        BenchError::Agent {
            machine: self.name(),
            source: error,
            output: if lost {
                self.connection.output()
            } else {
                String::new()
            },
        }
    }
}

impl EvaluationBench for Ssh {
    fn bench(&self) -> Bench {
        Bench::Ssh {
            host: self.connection.host.to_string(),
        }
    }

    // Its memory cannot be read from here.
    fn read_at_end(&self, _spans: Vec<(u64, u64)>) {}

    fn wait_for_crash(&self, last_output: Instant, limit: Duration) -> CrashEvidence {
        thread::sleep(limit.saturating_sub(last_output.elapsed()));
        let confirmed = self.death(last_output.elapsed());
        CrashEvidence {
            observed: last_output.elapsed(),
            confirmed,
            memory: Vec::new(),
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // This fails if the connection is lost; the agent ends then as well.
        let _ = self.agent.power_off();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let until = Instant::now() + SHUTDOWN_LIMIT;
        while self.has_agent && Instant::now() < until && matches!(self.child.try_wait(), Ok(None))
        {
            thread::sleep(Duration::from_millis(10));
        }
        end_child(&mut self.child);
    }
}

/// Environment variable with the command instead of `ssh`. The shell runs it, followed by options and host of
/// `ssh`, as `GIT_SSH_COMMAND` of git(1): `ssh -i KEY -F CONFIGURATION -J JUMPHOST`.
const SSH_VARIABLE: &str = "RAMPART_SSH";

/// Returns the command that the user named.
fn named() -> Option<OsString> {
    std::env::var_os(SSH_VARIABLE).filter(|named| !named.is_empty())
}

/// Returns a line for the shell that only connects.
fn trial(named: Option<&OsStr>, host: &SshHost) -> String {
    let ssh = named.map_or("ssh".into(), OsStr::to_string_lossy);
    let port = host
        .port()
        .map_or_else(String::new, |port| format!("-p {port} "));
    format!("{ssh} {port}{} true", host.destination())
}

/// Returns an `ssh` command with the options of every call.
fn base_command(host: &SshHost) -> Command {
    with_options(named().as_deref(), host)
}

/// Returns `ssh`, or the `named` command, with the options of every call.
fn with_options(named: Option<&OsStr>, host: &SshHost) -> Command {
    let mut command = match named {
        None => Command::new("ssh"),
        Some(named) => {
            let mut shell = Command::new("sh");
            let mut script = named.to_owned();
            script.push(" \"$@\"");
            shell.arg("-c").arg(script).arg(SSH_VARIABLE);
            shell
        }
    };
    command.args(["-T", "-e", "none"]);
    for option in [
        // Detects a machine that was switched off.
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        // Only the connection itself, without what the configuration adds for interactive use.
        "ClearAllForwardings=yes",
        "RemoteCommand=none",
        "LogLevel=ERROR",
    ] {
        command.args(["-o", option]);
    }
    if let Some(port) = host.port() {
        command.args(["-p", &port.to_string()]);
    }
    command
}

/// Returns the command line of the connection.
fn command(host: &SshHost) -> Command {
    let mut command = base_command(host);
    command.args(["-o", "ConnectTimeout=20"]);
    // ssh prompts on the terminal, whatever its own streams are. Without a terminal it must not
    // prompt.
    if !io::stdin().is_terminal() {
        command.args(["-o", "BatchMode=yes"]);
    }
    command.args(["--", host.destination()]);
    command.arg(format!("exec sh -c '{SCRIPT}{}'", SILENCE.as_secs()));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Starts `ssh` in the process group of this program, so that it can prompt for a password on the
/// terminal. `ssh` ignores Ctrl-C there, because a signal ignored at its start stays ignored; this
/// program passes it on.
#[expect(
    unsafe_code,
    reason = "the standard library has no safe way to run code between fork and exec"
)]
fn spawn(command: &mut Command) -> io::Result<Child> {
    // SAFETY: between fork and exec only the system calls signal and prctl are made, which are
    // async-signal-safe; nothing is allocated or locked.
    unsafe {
        command.pre_exec(|| {
            if libc::signal(libc::SIGINT, libc::SIG_IGN) == libc::SIG_ERR
                || libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
            {
                return Err(io::Error::last_os_error());
            }
            Ok(())
        });
    }
    command.spawn()
}

fn keep_last_lines(stderr: ChildStderr, last_lines: LastLines) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stderr);
        let mut line = Vec::new();
        while reader
            .read_until(b'\n', &mut line)
            .is_ok_and(|count| count > 0)
        {
            let text = String::from_utf8_lossy(&line).trim().to_owned();
            line.clear();
            if text.is_empty() {
                continue;
            }
            let mut last_lines = last_lines.lock().unwrap_or_else(PoisonError::into_inner);
            if last_lines.len() == KEPT_LINES {
                last_lines.pop_front();
            }
            last_lines.push_back(text);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn puts_port_and_host_last_on_the_command_line() {
        let host: SshHost = "root@board:2222".parse().expect("a host");
        let words: Vec<_> = command(&host)
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let dashes = words.iter().position(|word| word == "--").expect("an end");
        assert!(
            words[..dashes]
                .windows(2)
                .any(|pair| pair == ["-p", "2222"])
        );
        assert_eq!(words[dashes + 1], "root@board");
        assert_eq!(words.len(), dashes + 3);
    }

    /// The shell of the user's command adds what Rampart adds to `ssh`, each word as one.
    #[test]
    fn a_named_command_gets_the_same_words() {
        let host: SshHost = "board:2222".parse().expect("a host");
        let words = |command: &Command| -> Vec<String> {
            let words = command.get_args();
            words
                .map(|word| word.to_string_lossy().into_owned())
                .collect()
        };
        let added = words(&with_options(None, &host));
        let named = "printf '%s\\n' -J 'a jump' -i \"$HOME/key\"";
        let mut command = with_options(Some(OsStr::new(named)), &host);
        let output = command.env("HOME", "/h").output().expect("sh");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let expected = ["-J", "a jump", "-i", "/h/key"].map(str::to_owned);
        let expected: Vec<String> = expected.into_iter().chain(added).collect();
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);

        assert_eq!(trial(None, &host), "ssh -p 2222 board true");
        let named = OsStr::new("ssh -J gate");
        let host: SshHost = "root@board".parse().expect("a host");
        assert_eq!(trial(Some(named), &host), "ssh -J gate root@board true");
    }
}
