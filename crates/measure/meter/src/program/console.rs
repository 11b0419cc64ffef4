// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multiplexes standard input, standard output and signals with poll(2).

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

use rampart_model::Batch;
#[cfg(test)]
use rampart_model::MeterEvent;
use serde::Serialize;

use super::batch_line::{self, SeriesCounts};

use crate::linux::checked;

const INPUT: RawFd = 0;
const OUTPUT: RawFd = 1;

/// A writable pipe accepts this many bytes without blocking (pipe(7)).
const CHUNK: usize = 4096;

/// With this many bytes pending, optional output is not added.
const CONGESTED: usize = 1 << 20;

/// Maximum length of a request. The plan for the largest machine is far shorter.
const LONGEST_LINE: usize = 1 << 20;

/// The reader of the output has closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputClosed;

/// The streams and signals of one conversation.
#[derive(Debug)]
pub(super) struct Console {
    input: Vec<u8>,
    /// Complete lines that were not requested yet.
    lines: VecDeque<Vec<u8>>,
    ended: bool,
    output: Vec<u8>,
    written: usize,
    signals: Option<RawFd>,
    /// Number of received signals that request the end.
    interrupts: u32,
}

impl Console {
    /// Blocks the terminating signals for this thread and the threads that it starts, so that the
    /// console receives them and no sleep of a measuring thread is interrupted.
    pub(super) fn new() -> Self {
        // SAFETY: an all-zero set is valid; sigemptyset and sigaddset write only to it.
        let descriptor = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        Self {
            input: Vec::with_capacity(CHUNK),
            lines: VecDeque::new(),
            ended: false,
            output: Vec::with_capacity(CONGESTED / 4),
            written: 0,
            signals: (descriptor >= 0).then_some(descriptor),
            interrupts: 0,
        }
    }

    /// Creates a console without streams that keeps its output.
    #[cfg(test)]
    pub(super) fn detached() -> Self {
        Self {
            input: Vec::new(),
            lines: VecDeque::new(),
            ended: false,
            output: Vec::new(),
            written: 0,
            signals: None,
            interrupts: 0,
        }
    }

    /// Returns the kept output as events.
    #[cfg(test)]
    pub(super) fn sent(&mut self) -> Vec<MeterEvent> {
        std::mem::take(&mut self.output)
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).expect("an event"))
            .collect()
    }

    /// Adds so much output that the console is congested.
    #[cfg(test)]
    pub(super) fn congest(&mut self) {
        self.output.resize(CONGESTED, b'\n');
    }

    /// Returns the next line of the input that has already arrived.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front()
    }

    /// Waits for the next line of the input. Returns `None` at the end of the input or after a
    /// signal.
    pub(super) fn wait_for_line(&mut self) -> Result<Option<Vec<u8>>, OutputClosed> {
        loop {
            if let Some(line) = self.next_line() {
                return Ok(Some(line));
            }
            if self.end_wanted() {
                return Ok(None);
            }
            self.wait(-1)?;
        }
    }

    /// Returns whether the input has ended or a signal requested the end.
    pub(super) const fn end_wanted(&self) -> bool {
        self.ended || self.interrupts > 0
    }

    /// Returns whether so much output is pending that optional output should not be added.
    pub(super) const fn congested(&self) -> bool {
        self.output.len() - self.written >= CONGESTED
    }

    /// Appends an event to the pending output.
    pub(super) fn send(&mut self, event: &impl Serialize) {
        // Writing to memory cannot fail, and no event has a map with keys that are not strings.
        if serde_json::to_writer(&mut self.output, event).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// Appends a batch of distributions with the faster writer, and clears its histograms.
    pub(super) fn send_batch<'a>(
        &mut self,
        batch: &Batch,
        series: impl Iterator<Item = &'a mut SeriesCounts>,
    ) {
        batch_line::write(&mut self.output, batch, series);
    }

    /// Waits until a request or a signal arrives, output can be written, or `timeout` (in ms;
    /// negative: no limit) is over, and handles it.
    pub(super) fn wait(&mut self, timeout: i32) -> Result<(), OutputClosed> {
        let pending = self.written < self.output.len();
        let descriptor = |fd: RawFd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // poll(2) ignores a negative descriptor.
        let mut polled = [
            descriptor(if self.ended { -1 } else { INPUT }, libc::POLLIN),
            // Without POLLOUT, poll still reports that the other end is closed.
            descriptor(OUTPUT, if pending { libc::POLLOUT } else { 0 }),
            descriptor(self.signals.unwrap_or(-1), libc::POLLIN),
        ];
        // SAFETY: the array is valid for reading and writing of its length.
        let ready =
            unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout) };
        if ready <= 0 {
            return Ok(());
        }
        let [input, output, signals] = polled.map(|polled| polled.revents);
        if signals & libc::POLLIN != 0 {
            self.take_signals();
        }
        if input != 0 {
            self.take_input();
        }
        if output & libc::POLLOUT != 0 {
            self.write_chunk()?;
        } else if output & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) != 0 {
            return Err(OutputClosed);
        }
        Ok(())
    }

    /// Waits until all output is written. A second signal ends the wait.
    pub(super) fn flush(&mut self) -> Result<(), OutputClosed> {
        while self.written < self.output.len() {
            self.wait(-1)?;
            if self.interrupts > 1 {
                return Err(OutputClosed);
            }
        }
        Ok(())
    }

    fn write_chunk(&mut self) -> Result<(), OutputClosed> {
        let waiting = &self.output[self.written..];
        let chunk = &waiting[..waiting.len().min(CHUNK)];
        // SAFETY: the chunk is valid for reading of its length.
        let written = checked(unsafe {
            libc::write(OUTPUT, chunk.as_ptr().cast(), chunk.len()) as libc::c_long
        });
        match written {
            Ok(written) => self.written += written as usize,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            Err(_) => return Err(OutputClosed),
        }
        if self.written == self.output.len() {
            self.output.clear();
            self.written = 0;
        } else if self.written >= CONGESTED {
            // Without this, a slow reader that never catches up would keep all written text in
            // memory.
            self.output.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }

    fn take_input(&mut self) {
        let mut chunk = [0u8; CHUNK];
        // SAFETY: the chunk is valid for writing of its length.
        let read = checked(unsafe {
            libc::read(INPUT, chunk.as_mut_ptr().cast(), chunk.len()) as libc::c_long
        });
        match read {
            Ok(0) => self.ended = true,
            Ok(read) => self.input.extend_from_slice(&chunk[..read as usize]),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                ) => {}
            Err(_) => self.ended = true,
        }
        while let Some(end) = self.input.iter().position(|byte| *byte == b'\n') {
            let rest = self.input.split_off(end + 1);
            let mut line = std::mem::replace(&mut self.input, rest);
            line.pop();
            self.lines.push_back(line);
        }
        if self.ended && !self.input.is_empty() || self.input.len() > LONGEST_LINE {
            // A last line without line feed, or a line that is too long: the parser reports the
            // error.
            self.lines.push_back(std::mem::take(&mut self.input));
        }
    }

    fn take_signals(&mut self) {
        let Some(signals) = self.signals else { return };
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        // SAFETY: valid for writing of its length.
        while unsafe { libc::read(signals, (&raw mut info).cast(), size_of_val(&info)) } > 0 {
            self.interrupts += 1;
        }
    }
}
