// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The QEMU process.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::{OnParentExit, end_child, spawn_tied};
use serde_json::json;

use crate::console::last_lines;
use crate::error::{QemuError, QmpError};
use crate::qmp::QmpMonitor;

/// How long QEMU may take from its start to the first answer. In an emulated machine its dynamic
/// linker alone takes seconds.
const START_LIMIT: Duration = Duration::from_secs(60);

/// How long QEMU may take to end after `quit`.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Interval between two checks of QEMU's state.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Maximum length of a socket's path: `sun_path` without its final zero, unix(7).
const SOCKET_PATH_BYTES: usize = 107;

const QMP_SOCKET: &str = "qmp";
const ERRORS: &str = "qemu.stderr";
const CONSOLE: &str = "console.log";

/// The command that starts QEMU: the program itself, or a dynamic loader that starts it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QemuCommand {
    /// The program to start.
    pub program: PathBuf,
    /// Arguments before those of QEMU.
    pub arguments: Vec<OsString>,
    /// Environment variables to set.
    pub environment: Vec<(OsString, OsString)>,
}

/// A running QEMU. It is killed when this is dropped, and when this process ends in any way.
#[derive(Debug)]
pub struct Qemu {
    child: Mutex<Child>,
    process: u32,
    program: PathBuf,
    command: Vec<OsString>,
    directory: PathBuf,
    qmp: QmpMonitor,
}

impl Qemu {
    /// Starts `program` with `arguments` and additional options: a QMP monitor, named threads (`CPU
    /// 0/TCG`), no default configuration file, no window, and a character device `console` with a
    /// log in `directory`. The caller connects the device, for example with `-serial
    /// chardev:console`.
    ///
    /// `directory` must belong to this machine alone; it is kept when the machine ends. The machine
    /// runs at once unless `-S` is among the arguments.
    ///
    /// # Errors
    /// Returns an error if the program cannot be started, ends at once (with its standard error),
    /// or does not answer.
    pub fn start(
        program: impl AsRef<OsStr>,
        arguments: Vec<OsString>,
        directory: &Path,
    ) -> Result<Self, QemuError> {
        Self::start_by(
            &QemuCommand {
                program: PathBuf::from(program.as_ref()),
                ..QemuCommand::default()
            },
            arguments,
            directory,
        )
    }

    /// Starts as [`Qemu::start`], by a command of several words.
    ///
    /// # Errors
    /// Returns the errors of [`Qemu::start`].
    pub fn start_by(
        by: &QemuCommand,
        arguments: Vec<OsString>,
        directory: &Path,
    ) -> Result<Self, QemuError> {
        let program = by.program.clone();
        let directory = std::path::absolute(directory).map_err(|source| QemuError::File {
            action: "find",
            path: directory.to_owned(),
            source,
        })?;
        let socket = directory.join(QMP_SOCKET);
        check_length(&socket)?;
        let mut complete = by.arguments.clone();
        complete.extend(own_arguments(&socket, &directory.join(CONSOLE)));
        complete.extend(arguments);
        let errors_path = directory.join(ERRORS);
        let errors = File::create(&errors_path).map_err(|source| QemuError::File {
            action: "create",
            path: errors_path.clone(),
            source,
        })?;
        let output = errors.try_clone().map_err(|source| QemuError::File {
            action: "open again",
            path: errors_path.clone(),
            source,
        })?;
        let mut command = Command::new(&program);
        command
            .args(&complete)
            .envs(by.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let child =
            spawn_tied(command, OnParentExit::Kill).map_err(|source| QemuError::NotStarted {
                program: program.clone(),
                source,
            })?;
        let mut started = KillUnlessKept(Some(child));
        let qmp = started.speak(&program, &socket, &errors_path)?;
        let child = started.0.take().ok_or_else(|| QemuError::NotStarted {
            program: program.clone(),
            source: io::Error::other("the process is gone"),
        })?;
        Ok(Self {
            process: child.id(),
            child: Mutex::new(child),
            program: program.clone(),
            command: std::iter::once(program.into_os_string())
                .chain(complete)
                .collect(),
            directory,
            qmp,
        })
    }

    /// Returns the QMP monitor.
    #[must_use]
    pub fn qmp(&self) -> &QmpMonitor {
        &self.qmp
    }

    /// Returns the process id.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Returns the path of the program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns the complete command line, the program first.
    #[must_use]
    pub fn command(&self) -> &[OsString] {
        &self.command
    }

    /// Connects to the character device with the socket `name` in the machine's directory, created
    /// by `-chardev` with [`socket_option`].
    ///
    /// # Errors
    /// Returns an error if there is no such socket.
    pub fn socket(&self, name: &str) -> Result<UnixStream, QemuError> {
        let path = self.directory.join(name);
        UnixStream::connect(&path).map_err(|source| QemuError::File {
            action: "connect to",
            path,
            source,
        })
    }

    /// Returns the path of the console's log.
    #[must_use]
    pub fn console(&self) -> PathBuf {
        self.directory.join(CONSOLE)
    }

    /// Returns the last lines of the console, or none if the log cannot be read.
    #[must_use]
    pub fn console_tail(&self, lines: usize) -> Vec<String> {
        last_lines(&self.console(), lines).unwrap_or_default()
    }

    /// Returns the last lines of QEMU's standard error.
    #[must_use]
    pub fn stderr_tail(&self) -> String {
        stderr_tail(&self.directory.join(ERRORS))
    }

    /// Returns the exit status if QEMU has ended.
    #[must_use]
    pub fn ended(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// Waits for QEMU's end, at most `timeout`. Returns its exit status, or `None` if it still runs.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.ended() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// Kills QEMU and waits up to ten seconds for its end; a process in uninterruptible sleep may
    /// remain. Has no effect if QEMU has ended.
    pub fn kill(&self) {
        end_child(&mut self.child.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends QEMU: sends `quit` over QMP, and kills it if it does not end in three seconds.
    pub fn end(self) {
        // QEMU may end before it answers; only its end matters.
        let _ = self.qmp.execute_within("quit", json!({}), END_LIMIT);
        let _ = self.wait(END_LIMIT);
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        end_child(child);
    }
}

/// Returns the option of `-chardev` for a socket `name` in `directory` on which QEMU listens:
/// `socket,id=NAME,path=…,server=on,wait=off`.
#[must_use]
pub fn socket_option(directory: &Path, name: &str) -> OsString {
    let mut option = OsString::from(format!("socket,id={name},path="));
    option.push(escaped(&directory.join(name)));
    option.push(",server=on,wait=off");
    option
}

/// Returns a path as a value in QEMU's comma-separated options: commas are doubled.
#[must_use]
pub fn escaped(path: &Path) -> OsString {
    let mut bytes = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        bytes.push(byte);
        if byte == b',' {
            bytes.push(byte);
        }
    }
    OsStr::from_bytes(&bytes).to_owned()
}

fn own_arguments(socket: &Path, console: &Path) -> Vec<OsString> {
    let mut monitor = OsString::from("socket,id=qmp,path=");
    monitor.push(escaped(socket));
    monitor.push(",server=on,wait=off");
    let mut log = OsString::from("file,id=console,path=");
    log.push(escaped(console));
    [
        OsString::from("-no-user-config"),
        "-display".into(),
        "none".into(),
        "-name".into(),
        "debug-threads=on".into(),
        "-chardev".into(),
        monitor,
        "-mon".into(),
        "chardev=qmp,mode=control".into(),
        "-chardev".into(),
        log,
    ]
    .into()
}

fn check_length(socket: &Path) -> Result<(), QemuError> {
    let length = socket.as_os_str().len();
    if length > SOCKET_PATH_BYTES {
        return Err(QemuError::PathTooLong {
            path: socket.to_owned(),
            length,
        });
    }
    Ok(())
}

fn stderr_tail(errors: &Path) -> String {
    match last_lines(errors, 10) {
        Ok(lines) if lines.is_empty() => "nothing".to_owned(),
        Ok(lines) => lines.join("; "),
        Err(error) => format!("({}: {error})", errors.display()),
    }
}

/// A child between its start and its first answer, killed on drop.
struct KillUnlessKept(Option<Child>);

impl KillUnlessKept {
    /// Waits for the monitor's socket and for its greeting.
    fn speak(
        &mut self,
        program: &Path,
        socket: &Path,
        errors: &Path,
    ) -> Result<QmpMonitor, QemuError> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let status = self
                .0
                .as_mut()
                .and_then(|child| child.try_wait().ok())
                .flatten();
            if let Some(status) = status {
                return Err(QemuError::EndedAtOnce {
                    program: program.to_owned(),
                    status: status.to_string(),
                    stderr: stderr_tail(errors),
                });
            }
            let failure = match UnixStream::connect(socket) {
                Ok(stream) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match QmpMonitor::new(stream, left.max(LOOK_AGAIN)) {
                        Ok(qmp) => return Ok(qmp),
                        // QEMU may be ending: the next check of the process finds out.
                        Err(source @ (QmpError::Closed { .. } | QmpError::Connection(_))) => source,
                        Err(source) => {
                            return Err(QemuError::Silent {
                                program: program.to_owned(),
                                source,
                                stderr: stderr_tail(errors),
                            });
                        }
                    }
                }
                Err(source) => QmpError::Connection(source),
            };
            if Instant::now() >= deadline {
                return Err(QemuError::Silent {
                    program: program.to_owned(),
                    source: failure,
                    stderr: stderr_tail(errors),
                });
            }
            thread::sleep(LOOK_AGAIN);
        }
    }
}

impl Drop for KillUnlessKept {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            end_child(child);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_commas_in_paths() {
        let option = socket_option(Path::new("/a,b"), "agent");
        assert_eq!(
            option,
            "socket,id=agent,path=/a,,b/agent,server=on,wait=off"
        );
    }

    #[test]
    fn refuses_a_socket_path_that_is_too_long() {
        let directory = tempfile::tempdir().expect("a directory");
        let long = directory.path().join("d".repeat(120));
        std::fs::create_dir(&long).expect("made");
        let error = Qemu::start("true", Vec::new(), &long).expect_err("too long");
        assert!(matches!(error, QemuError::PathTooLong { .. }), "{error}");
    }
}
