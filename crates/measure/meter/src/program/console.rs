// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard input, standard output and signals, from one call of poll(2).

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

/// A writable pipe has room for this much, so a write of it does not block (pipe(7)).
const CHUNK: usize = 4096;

/// With this much waiting to leave, nothing that can wait is added.
const CONGESTED: usize = 1 << 20;

/// The longest request that is read. A plan for the largest machine is far shorter.
const LONGEST_LINE: usize = 1 << 20;

/// Nobody reads the output any more; there is nobody to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputClosed;

/// One conversation.
#[derive(Debug)]
pub(super) struct Console {
    input: Vec<u8>,
    /// Complete lines that nobody asked for yet.
    lines: VecDeque<Vec<u8>>,
    ended: bool,
    output: Vec<u8>,
    written: usize,
    signals: Option<RawFd>,
    /// Requests to end that came as signals.
    interrupts: u32,
}

impl Console {
    /// Blocks the signals that end programs, for this thread and those it starts, so that they
    /// arrive here and break no measuring thread's sleep.
    pub(super) fn new() -> Self {
        // SAFETY: an all-zero set is valid, and sigemptyset and sigaddset write to it alone.
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

    /// One that talks with nobody and keeps what is sent.
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

    /// What was sent to nobody, as events.
    #[cfg(test)]
    pub(super) fn sent(&mut self) -> Vec<MeterEvent> {
        std::mem::take(&mut self.output)
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).expect("an event"))
            .collect()
    }

    /// Lets so much wait to leave that it is congested.
    #[cfg(test)]
    pub(super) fn congest(&mut self) {
        self.output.resize(CONGESTED, b'\n');
    }

    /// The next line of the input that has already come.
    pub(super) fn next_line(&mut self) -> Option<Vec<u8>> {
        self.lines.pop_front()
    }

    /// The next line of the input, waiting for it; none if it ended, or a signal asked to end.
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

    /// Whether the input is at its end, or a signal asked to end.
    pub(super) const fn end_wanted(&self) -> bool {
        self.ended || self.interrupts > 0
    }

    /// Whether so much waits to leave that nothing should be added without need.
    pub(super) const fn congested(&self) -> bool {
        self.output.len() - self.written >= CONGESTED
    }

    /// Adds an event to what waits to leave.
    pub(super) fn send(&mut self, event: &impl Serialize) {
        // Writing to memory cannot fail, and no event has a map with keys that are not text.
        if serde_json::to_writer(&mut self.output, event).is_ok() {
            self.output.push(b'\n');
        }
    }

    /// The same for a batch of distributions, of which there are many; empties its histograms.
    pub(super) fn send_batch<'a>(
        &mut self,
        batch: &Batch,
        series: impl Iterator<Item = &'a mut SeriesCounts>,
    ) {
        batch_line::write(&mut self.output, batch, series);
    }

    /// Waits until a request or a signal comes, output can leave, or `timeout` (in ms; negative:
    /// for ever) is over, and does what can be done.
    pub(super) fn wait(&mut self, timeout: i32) -> Result<(), OutputClosed> {
        let pending = self.written < self.output.len();
        let descriptor = |fd: RawFd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // A negative descriptor is passed over (poll(2)).
        let mut polled = [
            descriptor(if self.ended { -1 } else { INPUT }, libc::POLLIN),
            // Without POLLOUT it still tells when the other end is closed.
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

    /// Waits until everything has left. A second signal gives up.
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
            // A reader that is slow but never stops would else keep all that it has read here.
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
            // A last line without its end, or one without any end: whoever parses it says so.
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
