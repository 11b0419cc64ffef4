// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The live view of a status: its content and its keys. Pure; the caller reads keys and owns the
//! terminal.

mod draw;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use rampart_model::{CpuStatus, Nanos, Status};
use rampart_present::{CpuColumn, CpuWithLatency};

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

/// Returns the column that is this many columns further to the right.
fn step(from: CpuColumn, by: isize) -> CpuColumn {
    let all = CpuColumn::ALL;
    let location = all.iter().position(|column| *column == from);
    let moved = location.unwrap_or_default() as isize + by;
    let next = moved.rem_euclid(all.len() as isize) as usize;
    all.get(next).copied().unwrap_or(CpuColumn::Cpu)
}

/// The state of the view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    pub(crate) paused: bool,
    pub(crate) help: bool,
    pub(crate) sorted_by: CpuColumn,
    pub(crate) descending: bool,
    pub(crate) first: usize,
}

impl Default for View {
    fn default() -> Self {
        Self {
            paused: false,
            help: false,
            sorted_by: CpuColumn::Cpu,
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
            Key::Left => self.sorted_by = step(self.sorted_by, -1),
            Key::Right => self.sorted_by = step(self.sorted_by, 1),
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
    pub(crate) fn order<'a>(&self, shown: &Shown<'a>) -> Vec<CpuWithLatency<'a>> {
        let latency = |cpu: &CpuStatus| {
            let latency = shown.latencies.of(cpu.cpu);
            latency.and_then(crate::CpuLatency::recent)
        };
        let cpus = shown.status.cpus.iter();
        let mut cpus: Vec<CpuWithLatency<'a>> = cpus.map(|cpu| (cpu, latency(cpu))).collect();
        cpus.sort_by(|(a, a_latency), (b, b_latency)| {
            let median = |latency: &Option<(Nanos, Nanos)>| latency.unwrap_or_default().0;
            let maximum = |latency: &Option<(Nanos, Nanos)>| latency.unwrap_or_default().1;
            let by = match self.sorted_by {
                CpuColumn::Cpu => Ordering::Equal,
                CpuColumn::Owner => a.owner.cmp(&b.owner),
                CpuColumn::Busy => a.busy.total_cmp(&b.busy),
                CpuColumn::Interrupts => {
                    a.interrupts_per_second.total_cmp(&b.interrupts_per_second)
                }
                CpuColumn::Softirqs => a.softirqs_per_second.total_cmp(&b.softirqs_per_second),
                CpuColumn::Median => median(a_latency).cmp(&median(b_latency)),
                CpuColumn::Maximum => maximum(a_latency).cmp(&maximum(b_latency)),
                CpuColumn::NoiseSources => a.noise_sources.len().cmp(&b.noise_sources.len()),
            };
            let by = by.then(a.cpu.cmp(&b.cpu));
            if self.descending { by.reverse() } else { by }
        });
        cpus
    }
}
