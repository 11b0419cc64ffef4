// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst sample in each slot of a batch.

use rampart_model::Nanos;

/// The slots of the present batch. The first begins where the batch begins, and batches are
/// multiples of a slot long, so that the slots of one phase line up from batch to batch.
#[derive(Debug)]
pub(super) struct Slots {
    length: Nanos,
    batch_start: Nanos,
    worst: Vec<Option<Nanos>>,
    /// The slot of the latest sample.
    latest: usize,
}

impl Slots {
    /// Slots of this length; none is shorter than a nanosecond.
    pub(super) fn new(length: Nanos) -> Self {
        Self {
            length: length.max(Nanos(1)),
            batch_start: Nanos::ZERO,
            worst: Vec::new(),
            latest: 0,
        }
    }

    /// The first slot begins at `batch_start`.
    pub(super) fn begin(&mut self, batch_start: Nanos) {
        self.batch_start = batch_start;
        self.worst.clear();
        self.latest = 0;
    }

    /// Takes a sample that ended `at`. One that ended before the batch, as its thread was held
    /// up before it could hand it over, goes into the first slot.
    pub(super) fn take(&mut self, at: Nanos, value: Nanos) {
        let since = at.saturating_sub(self.batch_start);
        self.latest = (since.0 / self.length.0) as usize;
        if self.latest >= self.worst.len() {
            self.worst.resize(self.latest + 1, None);
        }
        if let Some(worst) = self.worst.get_mut(self.latest) {
            *worst = (*worst).max(Some(value));
        }
    }

    /// A sample that ends before the first number of nanoseconds, and is no greater than the
    /// second, changes no slot, given that samples come in the order of their ends.
    pub(super) fn quick(&self) -> (u64, u64) {
        match self.worst.get(self.latest) {
            Some(Some(worst)) => {
                let slots = self.length.0.saturating_mul(self.latest as u64 + 1);
                (self.batch_start.0.saturating_add(slots), worst.0)
            }
            _ => (0, 0),
        }
    }

    /// The slots of a batch of this `length`, or more if samples ended after it; none are left.
    pub(super) fn leave(&mut self, length: Nanos) -> Vec<Option<Nanos>> {
        let slots = length.0.div_ceil(self.length.0) as usize;
        if slots > self.worst.len() {
            self.worst.resize(slots, None);
        }
        self.latest = 0;
        std::mem::take(&mut self.worst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_where_it_ended() {
        let mut slots = Slots::new(Nanos(10));
        slots.begin(Nanos(1_000));
        for (at, value) in [(1_000, 3), (1_009, 5), (1_010, 1), (1_047, 35)] {
            slots.take(Nanos(at), Nanos(value));
        }
        let worst = |values: &[Option<u64>]| -> Vec<Option<Nanos>> {
            values.iter().map(|value| value.map(Nanos)).collect()
        };
        let expected = worst(&[Some(5), Some(1), None, None, Some(35), None]);
        assert_eq!(slots.leave(Nanos(55)), expected);
        slots.begin(Nanos(1_055));
        // Held up: it ended in the batch before.
        slots.take(Nanos(1_050), Nanos(2));
        // After the end of the last batch of its phase.
        slots.take(Nanos(1_078), Nanos(4));
        assert_eq!(slots.leave(Nanos(10)), worst(&[Some(2), None, Some(4)]));
    }

    #[test]
    fn quick_ends_with_the_slot() {
        let mut slots = Slots::new(Nanos(10));
        slots.begin(Nanos(1_000));
        assert_eq!(slots.quick(), (0, 0));
        slots.take(Nanos(1_012), Nanos(7));
        assert_eq!(slots.quick(), (1_020, 7));
        slots.leave(Nanos(20));
        slots.begin(Nanos(1_020));
        assert_eq!(slots.quick(), (0, 0));
    }
}
