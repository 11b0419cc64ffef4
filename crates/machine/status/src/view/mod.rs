// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view of a status: its content and its keys. Pure; the caller reads keys and owns the
//! terminal.

mod draw;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use rampart_model::{CpuStatus, Nanos, Status};

use crate::Latencies;

pub use draw::draw;

/// The content of the view.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a> {
    /// The last status.
    pub status: &'a Status,
    /// Latencies of the meter, if one runs.
    pub latencies: &'a Latencies,
    /// Remarks about the meter: that it is off, or on which CPUs it does not run and why.
    pub remarks: &'a [String],
}

/// A key of the view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `q`, Escape or Ctrl-C.
    Quit,
    /// `p`: pause or continue.
    Pause,
    /// `?`
    Help,
    /// Sort by the next column to the left.
    Left,
    /// Sort by the next column to the right.
    Right,
    /// Sort ascending.
    Up,
    /// Sort descending.
    Down,
    /// Next page of CPUs.
    NextPage,
    /// Previous page of CPUs.
    PreviousPage,
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Column {
    Cpu,
    Owner,
    Busy,
    Interrupts,
    Softirqs,
    Median,
    Maximum,
    NoiseSources,
}

impl Column {
    pub(crate) const ALL: [Self; 8] = [
        Self::Cpu,
        Self::Owner,
        Self::Busy,
        Self::Interrupts,
        Self::Softirqs,
        Self::Median,
        Self::Maximum,
        Self::NoiseSources,
    ];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Cpu => "CPU",
            Self::Owner => "owner",
            Self::Busy => "busy",
            Self::Interrupts => "irq/s",
            Self::Softirqs => "soft/s",
            Self::Median => "p50",
            Self::Maximum => "max",
            Self::NoiseSources => "noise",
        }
    }

    fn step(self, by: isize) -> Self {
        let count = Self::ALL.len() as isize;
        let location = Self::ALL
            .iter()
            .position(|column| *column == self)
            .unwrap_or_default() as isize;
        let next = (location + by).rem_euclid(count) as usize;
        Self::ALL.get(next).copied().unwrap_or(Self::Cpu)
    }
}

/// The state of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub(crate) paused: bool,
    pub(crate) help: bool,
    pub(crate) sorted_by: Column,
    pub(crate) descending: bool,
    pub(crate) first: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            paused: false,
            help: false,
            sorted_by: Column::Cpu,
            descending: false,
            first: 0,
        }
    }
}

/// Number of CPUs that a page key moves by, fewer than a terminal shows.
const PAGE: usize = 8;

impl View {
    /// Handles a key. Returns `false` if the view should end.
    pub fn press(&mut self, key: Key) -> bool {
        match key {
            Key::Quit if self.help => self.help = false,
            Key::Quit => return false,
            Key::Pause => self.paused = !self.paused,
            Key::Help => self.help = !self.help,
            Key::Left => self.sorted_by = self.sorted_by.step(-1),
            Key::Right => self.sorted_by = self.sorted_by.step(1),
            Key::Up => self.descending = false,
            Key::Down => self.descending = true,
            Key::NextPage => self.first = self.first.saturating_add(PAGE),
            Key::PreviousPage => self.first = self.first.saturating_sub(PAGE),
        }
        true
    }

    /// Returns whether the view is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns the CPUs in the order of the view.
    pub(crate) fn order<'a>(&self, shown: &Shown<'a>) -> Vec<&'a CpuStatus> {
        let mut cpus: Vec<&CpuStatus> = shown.status.cpus.iter().collect();
        let latency = |cpu: &CpuStatus| -> (Nanos, Nanos) {
            shown
                .latencies
                .of(cpu.cpu)
                .and_then(crate::CpuLatency::recent)
                .unwrap_or_default()
        };
        cpus.sort_by(|a, b| {
            let by = match self.sorted_by {
                Column::Cpu => Ordering::Equal,
                Column::Owner => a.owner.cmp(&b.owner),
                Column::Busy => a.busy.total_cmp(&b.busy),
                Column::Interrupts => a.interrupts_per_second.total_cmp(&b.interrupts_per_second),
                Column::Softirqs => a.softirqs_per_second.total_cmp(&b.softirqs_per_second),
                Column::Median => latency(a).0.cmp(&latency(b).0),
                Column::Maximum => latency(a).1.cmp(&latency(b).1),
                Column::NoiseSources => a.noise_sources.len().cmp(&b.noise_sources.len()),
            };
            let by = by.then(a.cpu.cmp(&b.cpu));
            if self.descending { by.reverse() } else { by }
        });
        cpus
    }
}
