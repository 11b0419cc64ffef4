// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Relates the cell's clock to the clock of this program. Both read the same counter, but NTP
//! adjusts the clock of this program.

use rampart_model::Nanos;

use crate::linux::counter::CounterKind;
use crate::timescale::{Anchor, Timescale};

/// Anchors closer together would give a worse line than the present one.
const APART: Nanos = Nanos::from_millis(10);

/// The line through the last two moments at which both clocks were read.
#[derive(Debug)]
pub(super) struct CellClock {
    scale: Timescale,
    latest: Anchor,
    line: Timescale,
}

impl CellClock {
    /// Creates the relation at the present moment with equal rates.
    pub(super) fn new(scale: Timescale) -> Self {
        Self::from(scale, anchor(&scale))
    }

    fn from(scale: Timescale, latest: Anchor) -> Self {
        let later = Anchor {
            ticks: latest.ticks + Nanos::SECOND.0,
            at: latest.at + Nanos::SECOND,
        };
        // Any second point on the line will do: here one a second later.
        let line = Timescale::through(latest, later).unwrap_or(Timescale::IDENTITY);
        Self {
            scale,
            latest,
            line,
        }
    }

    /// Reads both clocks again. Call it after the samples that are converted next were taken.
    pub(super) fn update(&mut self) {
        self.add(anchor(&self.scale));
    }

    fn add(&mut self, anchor: Anchor) {
        if anchor.at.saturating_sub(self.latest.at) < APART {
            return;
        }
        if let Some(line) = Timescale::through(self.latest, anchor) {
            self.line = line;
        }
        self.latest = anchor;
    }

    /// Converts a moment of the cell's clock to this program's clock.
    pub(super) const fn host_time(&self, cell: Nanos) -> Nanos {
        self.line.moment(cell.0)
    }

    /// Converts a moment of this program's clock, close to the present, to the cell's clock.
    pub(super) fn cell_time(&self, host: Nanos) -> Nanos {
        let since = host.signed_since(self.latest.at).0;
        Nanos(self.latest.ticks.saturating_add_signed(since))
    }
}

/// Reads the cell's clock, in nanoseconds, and this program's clock together.
fn anchor(scale: &Timescale) -> Anchor {
    let read = CounterKind::Hardware.anchor();
    Anchor {
        ticks: scale.moment(read.ticks).0,
        at: read.at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_moments_both_ways_while_a_clock_is_slewed() {
        let at = |ticks, at| Anchor {
            ticks,
            at: Nanos(at),
        };
        let mut clock = CellClock::from(Timescale::IDENTITY, at(5_000_000, 1_000_000));
        assert_eq!(clock.host_time(Nanos(5_000_700)), Nanos(1_000_700));
        assert_eq!(clock.cell_time(Nanos(1_000_700)), Nanos(5_000_700));
        // Too close: the line does not change.
        clock.add(at(5_100_000, 1_000_000 + 50_000));
        assert_eq!(clock.host_time(Nanos(5_000_700)), Nanos(1_000_700));
        // From here on this program's clock runs at 99 %.
        clock.add(at(25_000_000, 1_000_000 + 19_800_000));
        assert_eq!(clock.host_time(Nanos(15_000_000)), Nanos(10_900_000));
        assert_eq!(clock.cell_time(Nanos(20_800_500)), Nanos(25_000_500));
    }
}
