// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cell's clock and ours: both read the same counter, of which ours makes a time that NTP may
//! push and slow.

use rampart_model::Nanos;

use crate::linux::counter::CounterKind;
use crate::timescale::{Anchor, Timescale};

/// Anchors closer together than this would make a worse line than the one before.
const APART: Nanos = Nanos::from_millis(10);

/// The line through the last two moments at which both were read.
#[derive(Debug)]
pub(super) struct CellClock {
    scale: Timescale,
    latest: Anchor,
    line: Timescale,
}

impl CellClock {
    /// Starts with the present moment and equal rates.
    pub(super) fn new(scale: Timescale) -> Self {
        Self::from(scale, anchor(&scale))
    }

    fn from(scale: Timescale, latest: Anchor) -> Self {
        let later = Anchor {
            ticks: latest.ticks + Nanos::SECOND.0,
            at: latest.at + Nanos::SECOND,
        };
        // A second here and there: it is a line.
        let line = Timescale::through(latest, later).unwrap_or(Timescale::IDENTITY);
        Self {
            scale,
            latest,
            line,
        }
    }

    /// Reads both once more. To be called after the samples that are turned next were taken.
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

    /// A moment of the cell's clock on ours.
    pub(super) const fn ours(&self, cells: Nanos) -> Nanos {
        self.line.moment(cells.0)
    }

    /// A moment of our clock, not far from now, on the cell's.
    pub(super) fn cells(&self, ours: Nanos) -> Nanos {
        let since = ours.signed_since(self.latest.at).0;
        Nanos(self.latest.ticks.saturating_add_signed(since))
    }
}

/// The cell's clock, in nanoseconds, and ours, read together.
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
    fn moments_go_over_and_back_while_ours_is_slowed() {
        let at = |ticks, at| Anchor {
            ticks,
            at: Nanos(at),
        };
        let mut clock = CellClock::from(Timescale::IDENTITY, at(5_000_000, 1_000_000));
        assert_eq!(clock.ours(Nanos(5_000_700)), Nanos(1_000_700));
        assert_eq!(clock.cells(Nanos(1_000_700)), Nanos(5_000_700));
        // Too close: nothing changes.
        clock.add(at(5_100_000, 1_000_000 + 50_000));
        assert_eq!(clock.ours(Nanos(5_000_700)), Nanos(1_000_700));
        // Ours goes at 99 % from then on.
        clock.add(at(25_000_000, 1_000_000 + 19_800_000));
        assert_eq!(clock.ours(Nanos(15_000_000)), Nanos(10_900_000));
        assert_eq!(clock.cells(Nanos(20_800_500)), Nanos(25_000_500));
    }
}
