// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Records the worst sample in each slot of a batch.

use rampart_model::Nanos;

/// The slots of the present batch. The first slot begins with the batch, and the length of a batch
/// is a multiple of the slot, so that the slots of a phase continue from batch to batch.
#[derive(Debug)]
pub(super) struct Slots {
    length: Nanos,
    batch_start: Nanos,
    worst: Vec<Option<Nanos>>,
    /// Slot of the latest sample.
    latest: usize,
}

impl Slots {
    /// Creates slots of this length, at least 1 ns.
    pub(super) fn new(length: Nanos) -> Self {
        Self {
            length: length.max(Nanos(1)),
            batch_start: Nanos::ZERO,
            worst: Vec::new(),
            latest: 0,
        }
    }

    /// Begins a batch whose first slot begins at `batch_start`.
    pub(super) fn begin(&mut self, batch_start: Nanos) {
        self.batch_start = batch_start;
        self.worst.clear();
        self.latest = 0;
    }

    /// Takes a sample that ended `at`. A sample that ended before the batch, because its thread was
    /// delayed before it wrote the sample, goes into the first slot.
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

    /// Returns a moment and a value. A sample that ends before the moment and does not exceed the
    /// value changes no slot, provided that samples arrive in the order of their ends.
    pub(super) fn quick(&self) -> (u64, u64) {
        match self.worst.get(self.latest) {
            Some(Some(worst)) => {
                let slots = self.length.0.saturating_mul(self.latest as u64 + 1);
                (self.batch_start.0.saturating_add(slots), worst.0)
            }
            _ => (0, 0),
        }
    }

    /// Takes the slots of a batch of this `length`, or more if samples ended after it.
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
    fn counts_a_sample_in_the_slot_of_its_end() {
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
        // A delayed sample that ended in the batch before.
        slots.take(Nanos(1_050), Nanos(2));
        // A sample after the end of the last batch of its phase.
        slots.take(Nanos(1_078), Nanos(4));
        assert_eq!(slots.leave(Nanos(10)), worst(&[Some(2), None, Some(4)]));
    }

    #[test]
    fn quick_limit_is_the_end_of_the_slot() {
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
