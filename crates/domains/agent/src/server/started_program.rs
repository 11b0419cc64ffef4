// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A started program with its streams.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rampart_model::CpuSet;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use super::port::not_blocking;
use crate::frame::{Frame, Kind, MAXIMUM_PAYLOAD, OUTPUT_WINDOW, WINDOW};
use crate::payloads::{AgentCommand, TerminalSize};

/// The end of input on a terminal: Ctrl+D.
const END_OF_TRANSMISSION: u8 = 4;

/// A stream from the program.
#[derive(Debug)]
pub(super) struct OutputStream {
    source: Option<OwnedFd>,
    /// Remaining window of the client, in bytes.
    window: usize,
    kind: Kind,
}

impl OutputStream {
    fn new(source: Option<OwnedFd>, kind: Kind) -> Self {
        Self {
            source,
            window: OUTPUT_WINDOW,
            kind,
        }
    }

    /// Returns the descriptor to poll, if the window is not full.
    pub(super) fn ready_to_read(&self) -> Option<BorrowedFd<'_>> {
        self.source
            .as_ref()
            .filter(|_| self.window > 0)
            .map(AsFd::as_fd)
    }

    pub(super) fn extend_window(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes as usize);
    }

    pub(super) fn close(&mut self) {
        self.source = None;
    }

    /// Reads once and returns the frame to send, if any. Its payload is empty at the end of the stream.
    pub(super) fn read(&mut self, process: u32) -> Option<Frame> {
        let source = self.source.as_ref()?;
        let mut buffer = vec![0; self.window.min(MAXIMUM_PAYLOAD)];
        let count = match rustix::io::read(source, &mut buffer) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // A terminal that no process has open returns EIO.
            Err(_) => 0,
        };
        buffer.truncate(count);
        self.window -= count;
        if count == 0 {
            self.source = None;
        }
        Some(Frame::new(self.kind, process, buffer))
    }
}

/// The stream to the program.
#[derive(Debug)]
pub(super) struct InputStream {
    sink: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    ends: bool,
    terminal: bool,
}

impl InputStream {
    pub(super) fn ready_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.sink
            .as_ref()
            .filter(|_| !self.waiting.is_empty())
            .map(AsFd::as_fd)
    }

    /// Takes bytes from the client. Returns `false` if they exceed the window.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            self.end();
        } else if !self.ends {
            self.waiting.extend(bytes);
        }
        self.waiting.len() <= WINDOW + 1
    }

    /// Marks the end of the input.
    pub(super) fn end(&mut self) {
        if self.terminal && !self.ends {
            self.waiting.push_back(END_OF_TRANSMISSION);
        }
        self.ends = true;
        if self.waiting.is_empty() {
            self.sink = None;
        }
    }

    /// Writes as much as possible and returns the number of bytes released in the window.
    pub(super) fn write(&mut self) -> u32 {
        let mut released = 0;
        while let Some(sink) = &self.sink {
            let (first, _) = self.waiting.as_slices();
            if first.is_empty() {
                break;
            }
            match rustix::io::write(sink, first) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    released += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The stream is no longer read: discard its data.
                Err(_) => self.sink = None,
            }
        }
        if self.sink.is_none() {
            released += self.waiting.len();
            self.waiting.clear();
        } else if self.ends && self.waiting.is_empty() {
            self.sink = None;
        }
        // At most a window and a byte.
        released as u32
    }
}

/// Returns the CPUs as the kernel's set of fixed size, without CPUs beyond it.
fn kernel_set(cpus: &CpuSet) -> rustix::thread::CpuSet {
    let mut set = rustix::thread::CpuSet::new();
    for cpu in cpus.iter() {
        if (cpu.0 as usize) < rustix::thread::CpuSet::MAX_CPU {
            set.set(cpu.0 as usize);
        }
    }
    set
}

/// A program and its streams.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) id: Pid,
    pub(super) exited: bool,
    pub(super) input: InputStream,
    pub(super) output: OutputStream,
    pub(super) errors: OutputStream,
    terminal: Option<OwnedFd>,
}

impl Program {
    /// Starts the program as the leader of a new process group.
    pub(super) fn start(request: &AgentCommand) -> io::Result<Self> {
        let Some((program, arguments)) = request.argv.split_first() else {
            return Err(io::Error::other("the command has no program"));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(request.env.iter().cloned());
        if let Some(directory) = &request.directory {
            command.current_dir(directory);
        }
        let terminal = request.terminal.map(open_terminal).transpose()?;
        match &terminal {
            None => {
                command
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .process_group(0);
            }
            Some((_, far_end)) => {
                command
                    .stdin(far_end.try_clone()?)
                    .stdout(far_end.try_clone()?)
                    .stderr(far_end.try_clone()?);
            }
        }
        let on_terminal = terminal.is_some();
        let affinity = request.cpus.as_ref().map(kernel_set);
        // SAFETY: between fork and exec, only async-signal-safe calls are made.
        unsafe {
            command.pre_exec(move || {
                super::signals::reset()?;
                if on_terminal {
                    rustix::process::setsid()?;
                    rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                }
                if let Some(cpus) = &affinity {
                    rustix::thread::sched_setaffinity(None, cpus)?;
                }
                // If the agent is killed, the program is asked to end.
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let id = Pid::from_child(&child);
        let (input, output, errors, terminal) = match terminal {
            Some((near_end, _)) => (
                Some(near_end.try_clone()?),
                Some(near_end.try_clone()?),
                None,
                Some(near_end),
            ),
            None => (
                child.stdin.take().map(OwnedFd::from),
                child.stdout.take().map(OwnedFd::from),
                child.stderr.take().map(OwnedFd::from),
                None,
            ),
        };
        for descriptor in [&input, &output, &errors].into_iter().flatten() {
            not_blocking(descriptor)?;
        }
        Ok(Self {
            id,
            exited: false,
            input: InputStream {
                sink: input,
                waiting: VecDeque::new(),
                ends: false,
                terminal: on_terminal,
            },
            output: OutputStream::new(output, Kind::Output),
            errors: OutputStream::new(errors, Kind::Errors),
            terminal,
        })
    }

    /// Returns whether the program writes to a terminal, and therefore never to standard error.
    pub(super) fn has_terminal(&self) -> bool {
        self.terminal.is_some()
    }

    pub(super) fn resize(&self, size: TerminalSize) {
        if let Some(terminal) = &self.terminal {
            let size = Winsize {
                ws_row: size.rows,
                ws_col: size.columns,
                ws_xpixel: 0,
                ws_ypixel: 0,
            };
            // A closed terminal needs no size.
            let _ = tcsetwinsize(terminal, size);
        }
    }

    /// Sends a signal only to the program.
    pub(super) fn signal(&self, number: i32) {
        if !self.exited
            && let Some(signal) = Signal::from_named_raw(number)
        {
            // The program may just have ended.
            let _ = kill_process(self.id, signal);
        }
    }

    /// Sends a signal to the program's process group.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    /// Returns whether no more output follows.
    pub(super) fn is_over(&self) -> bool {
        self.exited && self.output.source.is_none() && self.errors.source.is_none()
    }
}

/// Opens a new terminal and returns the end of the agent and that of the program.
fn open_terminal(size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let near = openpt(flags)?;
    grantpt(&near)?;
    unlockpt(&near)?;
    let far = ioctl_tiocgptpeer(&near, flags)?;
    tcsetwinsize(
        &near,
        Winsize {
            ws_row: size.rows,
            ws_col: size.columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        },
    )?;
    Ok((near, far))
}
