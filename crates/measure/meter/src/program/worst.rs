// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keeps the worst samples with their moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rampart_model::{Nanos, WorstEvent};

/// Keeps the greatest of any number of samples. Of equal samples it keeps the earlier one.
#[derive(Debug)]
pub(super) struct Worst {
    heap: BinaryHeap<Reverse<(Nanos, Reverse<u64>, Nanos)>>,
    capacity: usize,
    /// The limit that a value has to exceed; `None` while every value is kept.
    floor: Option<Nanos>,
}

impl Worst {
    pub(super) fn new(capacity: u32) -> Self {
        let capacity = capacity as usize;
        Self {
            heap: BinaryHeap::with_capacity(capacity + 1),
            capacity,
            floor: (capacity == 0).then_some(Nanos(u64::MAX)),
        }
    }

    /// Returns the limit that a value has to exceed to be kept, or `None` if every value is kept.
    pub(super) const fn floor(&self) -> Option<Nanos> {
        self.floor
    }

    pub(super) fn offer(&mut self, at: Nanos, value: Nanos, sequence: u64) {
        if self.floor.is_none_or(|floor| value > floor) {
            self.heap.push(Reverse((value, Reverse(sequence), at)));
            if self.heap.len() > self.capacity {
                self.heap.pop();
            }
            if self.heap.len() == self.capacity {
                self.floor = self.heap.peek().map(|Reverse((value, _, _))| *value);
            }
        }
    }

    /// Returns the samples, worst first.
    pub(super) fn into_events(self) -> Vec<WorstEvent> {
        self.heap
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((value, Reverse(sequence), at))| WorstEvent {
                at,
                value,
                sequence,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keeps_the_same_samples_as_sorting(values in proptest::collection::vec(0u64..50, 0..200), capacity in 0u32..20) {
            let mut worst = Worst::new(capacity);
            for (sequence, value) in values.iter().enumerate() {
                worst.offer(Nanos(1_000 + sequence as u64), Nanos(*value), sequence as u64);
            }
            let mut expected: Vec<_> = values.iter().enumerate().map(|(sequence, value)| WorstEvent {
                at: Nanos(1_000 + sequence as u64), value: Nanos(*value), sequence: sequence as u64,
            }).collect();
            expected.sort_by_key(|event| (Reverse(event.value), event.sequence));
            expected.truncate(capacity as usize);
            prop_assert_eq!(worst.into_events(), expected);
        }
    }
}
