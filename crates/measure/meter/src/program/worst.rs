// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The worst samples with their moments.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use rampart_model::{Nanos, WorstEvent};

/// Keeps the greatest of any number of samples. Of equals the earlier one stays.
#[derive(Debug)]
pub(super) struct Worst {
    heap: BinaryHeap<Reverse<(Nanos, Reverse<u64>, Nanos)>>,
    capacity: usize,
    /// A value has to be greater than this; none while any is kept.
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

    /// What a value has to exceed to be kept; none if any is.
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

    /// Worst first.
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
        fn keeps_what_sorting_would(values in proptest::collection::vec(0u64..50, 0..200), capacity in 0u32..20) {
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
