// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One started program with its streams.

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
use crate::frame::{Frame, Kind, LONGEST, OUTPUT_WINDOW, WINDOW};
use crate::words::{AgentCommand, TerminalSize};

/// What a terminal takes for the end of the input: control and D.
const END_OF_TRANSMISSION: u8 = 4;

/// A stream that comes from the program.
#[derive(Debug)]
pub(super) struct From {
    source: Option<OwnedFd>,
    /// How many more bytes the near side has room for.
    room: usize,
    kind: Kind,
}

impl From {
    fn new(source: Option<OwnedFd>, kind: Kind) -> Self {
        Self {
            source,
            room: OUTPUT_WINDOW,
            kind,
        }
    }

    /// What to poll, while there is room for what comes.
    pub(super) fn ready_to_read(&self) -> Option<BorrowedFd<'_>> {
        self.source
            .as_ref()
            .filter(|_| self.room > 0)
            .map(AsFd::as_fd)
    }

    pub(super) fn more_room(&mut self, bytes: u32) {
        self.room = self.room.saturating_add(bytes as usize);
    }

    pub(super) fn close(&mut self) {
        self.source = None;
    }

    /// Reads once; the frame to send. Its payload is empty at the end of the stream.
    pub(super) fn read(&mut self, process: u32) -> Option<Frame> {
        let source = self.source.as_ref()?;
        let mut buffer = vec![0; self.room.min(LONGEST)];
        let count = match rustix::io::read(source, &mut buffer) {
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return None,
            // A terminal that nobody holds open any more says EIO.
            Err(_) => 0,
        };
        buffer.truncate(count);
        self.room -= count;
        if count == 0 {
            self.source = None;
        }
        Some(Frame::new(self.kind, process, buffer))
    }
}

/// The stream that goes to the program.
#[derive(Debug)]
pub(super) struct To {
    sink: Option<OwnedFd>,
    waiting: VecDeque<u8>,
    ends: bool,
    terminal: bool,
}

impl To {
    pub(super) fn ready_to_write(&self) -> Option<BorrowedFd<'_>> {
        self.sink
            .as_ref()
            .filter(|_| !self.waiting.is_empty())
            .map(AsFd::as_fd)
    }

    /// Takes bytes from the near side; false if it sent more than it may.
    pub(super) fn push(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() {
            self.end();
        } else if !self.ends {
            self.waiting.extend(bytes);
        }
        self.waiting.len() <= WINDOW + 1
    }

    /// No more comes.
    pub(super) fn end(&mut self) {
        if self.terminal && !self.ends {
            self.waiting.push_back(END_OF_TRANSMISSION);
        }
        self.ends = true;
        if self.waiting.is_empty() {
            self.sink = None;
        }
    }

    /// Writes as much as goes; how much room that made.
    pub(super) fn write(&mut self) -> u32 {
        let mut gone = 0;
        while let Some(sink) = &self.sink {
            let (first, _) = self.waiting.as_slices();
            if first.is_empty() {
                break;
            }
            match rustix::io::write(sink, first) {
                Ok(count) => {
                    self.waiting.drain(..count);
                    gone += count;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // Nobody reads it any more: what is for it has a place to vanish.
                Err(_) => self.sink = None,
            }
        }
        if self.sink.is_none() {
            gone += self.waiting.len();
            self.waiting.clear();
        } else if self.ends && self.waiting.is_empty() {
            self.sink = None;
        }
        // At most a window and a byte.
        gone as u32
    }
}

/// CPUs past the size of the kernel's fixed set cannot be named in it.
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
    pub(super) input: To,
    pub(super) output: From,
    pub(super) errors: From,
    terminal: Option<OwnedFd>,
}

impl Program {
    /// Starts it, the first of a process group of its own.
    pub(super) fn start(wanted: &AgentCommand) -> io::Result<Self> {
        let Some((program, arguments)) = wanted.argv.split_first() else {
            return Err(io::Error::other("no program is named"));
        };
        let mut command = Command::new(program);
        command.args(arguments).envs(wanted.env.iter().cloned());
        if let Some(directory) = &wanted.directory {
            command.current_dir(directory);
        }
        let terminal = wanted.terminal.map(open_terminal).transpose()?;
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
        let affinity = wanted.cpus.as_ref().map(kernel_set);
        // SAFETY: between fork and exec only system calls that are safe there are made.
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
                // If we are killed, what we started is asked to end.
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
            input: To {
                sink: input,
                waiting: VecDeque::new(),
                ends: false,
                terminal: on_terminal,
            },
            output: From::new(output, Kind::Output),
            errors: From::new(errors, Kind::Errors),
            terminal,
        })
    }

    /// Whether it writes to a terminal, and so never to standard error.
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
            // A terminal that is gone needs no size.
            let _ = tcsetwinsize(terminal, size);
        }
    }

    /// A signal for the program alone.
    pub(super) fn signal(&self, number: i32) {
        if !self.exited
            && let Some(signal) = Signal::from_named_raw(number)
        {
            // It may have ended this moment.
            let _ = kill_process(self.id, signal);
        }
    }

    /// A signal for it and all that it started and did not set apart.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.id, signal);
    }

    /// Whether nothing more comes from it.
    pub(super) fn is_over(&self) -> bool {
        self.exited && self.output.source.is_none() && self.errors.source.is_none()
    }
}

/// A new terminal: our end and the program's.
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
