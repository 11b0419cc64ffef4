// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Another machine by the system's own OpenSSH: its configuration, keys and jump hosts are the
//! user's.
//!
//! One connection does it all. A small shell script over there says what the machine is, makes a
//! temporary directory, takes `rampart-meter` from its standard input and becomes its agent on
//! the same streams; the rest goes by that agent. When the connection ends, in whatever way, the
//! agent ends what it started and the script removes the directory.

mod greeting;

use std::collections::VecDeque;
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
use crate::carry::Programs;
use crate::{BenchError, Machine, SshHost};

/// How long the first words may stay out, once nobody is asked for a password any more: several
/// addresses and jump hosts may be tried (`ConnectTimeout`), and start files of a shell run.
const NEWS_LIMIT: Duration = Duration::from_secs(120);

/// How long a second connection may take to tell whether a machine lives.
const DEATH_LIMIT: Duration = Duration::from_secs(60);

/// Silence after which the agent takes us for gone: several of our signs of life.
const SILENCE: Duration = Duration::from_secs(30);

/// How long what was started there may take to end: the agent gives it somewhat less.
const FAREWELL: Duration = Duration::from_secs(25);

/// Lines of what `ssh` says that are kept for a message.
const KEPT: usize = 8;

/// How often it is looked whether the user wants to end.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A connection to another machine. Dropping it ends everything there and removes its directory.
#[derive(Debug)]
pub struct Ssh {
    // In this order: the end of its input ends the agent, that the script, that the connection.
    agent: Agent,
    connection: Connection,
    directory: String,
}

/// A running `ssh`.
#[derive(Debug)]
struct Connection {
    child: Child,
    hearing: Option<JoinHandle<()>>,
    said: Said,
    host: SshHost,
    /// Whether there is somebody over there who needs time to end.
    used: bool,
}

/// The last lines of `ssh`.
type Said = Arc<Mutex<VecDeque<String>>>;

impl Ssh {
    /// Connects, carries the agent over, and greets it. As long as `ssh` asks for a password, a
    /// passphrase or whether it knows the host, this waits; without a terminal nothing is asked.
    /// To be called on a thread that lives as long as the connection.
    ///
    /// # Errors
    /// With what `ssh` says, if there is no connection; if nothing comes over it for a while; if the
    /// machine is not Linux, or of an architecture whose programs are not here; if `stop` is set
    /// meanwhile.
    pub fn connect(
        host: &SshHost,
        programs: &Programs,
        stop: &AtomicBool,
    ) -> Result<Self, BenchError> {
        let mut child = spawn(&mut command(host)).map_err(|source| BenchError::NoSsh {
            host: host.to_string(),
            source,
        })?;
        let said = Said::default();
        let hearing = child
            .stderr
            .take()
            .map(|stderr| hear(stderr, Arc::clone(&said)));
        let mut connection = Connection {
            hearing,
            said,
            host: host.clone(),
            child,
            used: false,
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
            // Nobody hears it if the user has ended meanwhile.
            let news = || drop(sender.send(None));
            let greeted = greet(stdin, stdout, &programs, &name, &news);
            let _ = sender.send(Some(greeted));
        });
        // A person may take any time to answer; without one the time runs from the start.
        let mut since = (!io::stdin().is_terminal()).then(Instant::now);
        let greeted = loop {
            match receiver.recv_timeout(LOOK_AGAIN) {
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
                connection.used = true;
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
    /// Who knows that the machine, last heard of so long ago, is dead: it does not answer a new
    /// connection, or has booted since. None if it lives, or that cannot be found out.
    #[must_use]
    pub fn death(&self, silent: Duration) -> Option<String> {
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
                "the machine has booted since: it is up for {up:.0} s, and was last heard of {:.0} s ago",
                silent.as_secs_f64()
            )),
            Some(_) => None,
            // 255 is ssh's own word for no connection.
            None if answer.status.code() == Some(255) => {
                let said = String::from_utf8_lossy(&answer.stderr);
                Some(format!(
                    "the machine fell silent and answers no new connection: {}",
                    said.lines().last().unwrap_or_default().trim()
                ))
            }
            None => None,
        }
    }
}

impl Connection {
    /// What `ssh` said, after it ended or a moment without news.
    fn words(&self) -> String {
        let until = Instant::now() + Duration::from_secs(2);
        while self
            .hearing
            .as_ref()
            .is_some_and(|hearing| !hearing.is_finished())
            && Instant::now() < until
        {
            thread::sleep(Duration::from_millis(10));
        }
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        said.iter().cloned().collect::<Vec<_>>().join("; ")
    }

    fn no_news(&self) -> BenchError {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let last = said.back().map(|line| format!(", ssh reports: {line}"));
        BenchError::NotConnected {
            host: self.host.to_string(),
            said: format!(
                "no output from there for {} s{}",
                NEWS_LIMIT.as_secs(),
                last.unwrap_or_default()
            ),
        }
    }

    fn not_established(&self) -> BenchError {
        let said = self.words();
        BenchError::NotConnected {
            host: self.host.to_string(),
            said: if said.is_empty() {
                "ssh ended without a word".to_owned()
            } else {
                said
            },
        }
    }
}

impl Machine for Ssh {
    fn name(&self) -> String {
        format!("ssh:{}", self.connection.host)
    }

    fn agent(&self) -> &Agent {
        &self.agent
    }

    fn directory(&self) -> &str {
        &self.directory
    }

    fn bench(&self) -> Bench {
        Bench::Ssh {
            host: self.connection.host.to_string(),
        }
    }

    fn explain(&self, error: AgentError) -> BenchError {
        let lost = matches!(error, AgentError::Lost(_));
        BenchError::Agent {
            machine: self.name(),
            source: error,
            said: if lost {
                self.connection.words()
            } else {
                String::new()
            },
        }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        // Over a connection that is lost nothing needs to be said.
        let _ = self.agent.power_off();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let until = Instant::now() + FAREWELL;
        while self.used && Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(10));
        }
        end_child(&mut self.child);
    }
}

/// What every call of `ssh` has.
fn base_command(host: &SshHost) -> Command {
    let mut command = Command::new("ssh");
    command.args(["-T", "-e", "none"]);
    for option in [
        // A machine that is switched off says no farewell.
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        // Only the connection itself, whatever the configuration adds for people.
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

/// The command line of the connection.
fn command(host: &SshHost) -> Command {
    let mut command = base_command(host);
    command.args(["-o", "ConnectTimeout=20"]);
    // With a terminal ssh asks on it, whatever its own streams are; without one a question would
    // never be answered.
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

/// Starts `ssh` in our own process group, so that it may ask for a password on the terminal. Ctrl-C
/// there is for us to pass on: `ssh` leaves a signal ignored that was ignored when it started.
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

fn hear(stderr: ChildStderr, said: Said) -> JoinHandle<()> {
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
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() == KEPT {
                said.pop_front();
            }
            said.push_back(text);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_names_port_and_host_last() {
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
}
