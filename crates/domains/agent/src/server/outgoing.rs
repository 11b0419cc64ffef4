// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queue of frames to send.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::frame::{Frame, MAXIMUM_PAYLOAD, WINDOW};

/// Frames to send. The caller limits the amount: see [`Outgoing::is_full`].
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    frames: VecDeque<Vec<u8>>,
    waiting: usize,
    /// The whole frames that are being written, and the number of bytes already written.
    current: Vec<u8>,
    written: usize,
}

impl Outgoing {
    pub(super) fn push(&mut self, frame: &Frame) {
        self.push_bytes(frame.to_bytes());
    }

    pub(super) fn push_bytes(&mut self, bytes: Vec<u8>) {
        self.waiting += bytes.len();
        self.frames.push_back(bytes);
    }

    /// Adds a frame before all others.
    pub(super) fn push_urgent(&mut self, frame: &Frame) {
        let bytes = frame.to_bytes();
        self.waiting += bytes.len();
        self.frames.push_front(bytes);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting == 0 && self.written == self.current.len()
    }

    /// Returns whether the output of programs should wait in their pipes.
    pub(super) fn is_full(&self) -> bool {
        self.waiting >= WINDOW
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes as much as possible without blocking.
    pub(super) fn write(&mut self, to: impl AsFd) -> Result<(), Errno> {
        loop {
            if self.written == self.current.len() {
                self.current.clear();
                self.written = 0;
                while self.current.len() < MAXIMUM_PAYLOAD
                    && let Some(frame) = self.frames.pop_front()
                {
                    self.waiting -= frame.len();
                    self.current.extend_from_slice(&frame);
                }
                if self.current.is_empty() {
                    return Ok(());
                }
            }
            match rustix::io::write(&to, &self.current[self.written..]) {
                Ok(count) => self.written += count,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
