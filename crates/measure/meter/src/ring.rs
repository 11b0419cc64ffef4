// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lock-free ring of fixed size through which samples leave the measuring thread, with one
//! producer and one consumer. If the ring is full, the producer counts the sample as lost; it never
//! waits.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::engine::Sample;

/// A value on its own cache lines, to avoid false sharing between producer and consumer. Two lines,
/// because x86 prefetches the adjacent one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    slots: Box<[UnsafeCell<Sample>]>,
    /// Number of samples ever written; written by the producer.
    head: Apart<AtomicUsize>,
    /// Number of samples ever read; written by the consumer.
    tail: Apart<AtomicUsize>,
    /// Samples lost because the ring was full; written by the producer.
    lost: AtomicU64,
}

// SAFETY: only the one producer writes a slot, while the slot's number is outside [tail, head), and
// only the one consumer reads it, while the number is inside; head and tail transfer the slot with
// release-acquire. Producer and Consumer cannot be cloned and take &mut self.
unsafe impl Sync for Shared {}
// SAFETY: samples are plain data.
unsafe impl Send for Shared {}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("capacity", &self.slots.len())
            .field("head", &self.head.0)
            .field("tail", &self.tail.0)
            .field("lost", &self.lost)
            .finish()
    }
}

/// The writing side of the ring.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    head: usize,
    /// The value of the head at which the ring was full when the tail was last read. The consumer's
    /// cache line is read again only when the head reaches this value.
    full_at: usize,
    /// The slots of `shared`.
    slots: *const UnsafeCell<Sample>,
    mask: usize,
}

// SAFETY: the pointer is into `shared`, which lives as long and may itself be sent.
unsafe impl Send for Producer {}

/// The reading side of the ring.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    tail: usize,
}

/// Creates a ring for at least `capacity` samples. The capacity is rounded up to a power of two.
#[must_use]
pub fn ring(capacity: usize) -> (Producer, Consumer) {
    let capacity = capacity.clamp(2, 1 << 30).next_power_of_two();
    let shared = Arc::new(Shared {
        slots: (0..capacity)
            .map(|_| UnsafeCell::new(Sample::default()))
            .collect(),
        head: Apart::default(),
        tail: Apart::default(),
        lost: AtomicU64::new(0),
    });
    let producer = Producer {
        shared: Arc::clone(&shared),
        head: 0,
        full_at: capacity,
        slots: shared.slots.as_ptr(),
        mask: capacity - 1,
    };
    (producer, Consumer { shared, tail: 0 })
}

impl Producer {
    /// Writes `sample`, or counts it as lost.
    #[inline(always)]
    pub fn push(&mut self, sample: Sample) {
        if self.head == self.full_at && !self.update_full_at() {
            return;
        }
        // SAFETY: the capacity is a power of two, so the masked index is in bounds of the slots,
        // which live as long as `shared`; the ring is not full, so the consumer does not read this
        // slot before head is advanced.
        unsafe { *(*self.slots.add(self.head & self.mask)).get() = sample };
        self.head = self.head.wrapping_add(1);
        self.shared.head.0.store(self.head, Ordering::Release);
    }

    #[cold]
    fn update_full_at(&mut self) -> bool {
        let tail = self.shared.tail.0.load(Ordering::Acquire);
        self.full_at = tail.wrapping_add(self.shared.slots.len());
        let has_space = self.head != self.full_at;
        if !has_space {
            // The producer is the only writer, so no read-modify-write is needed.
            let lost = self.shared.lost.load(Ordering::Relaxed);
            self.shared.lost.store(lost + 1, Ordering::Release);
        }
        has_space
    }

    /// Counts samples that were lost before they reached the ring.
    pub fn count_lost(&mut self, samples: u64) {
        let lost = self.shared.lost.load(Ordering::Relaxed);
        self.shared.lost.store(lost + samples, Ordering::Release);
    }

    /// Returns the number of samples written so far.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.head as u64
    }

    /// Returns the number of samples lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Writes to every page, so that no later push causes a page fault. Call it while the ring is
    /// empty, on the CPU from whose NUMA node the memory should come.
    pub fn prefault(&mut self) {
        if self.head != 0 {
            return;
        }
        let step = (4096 / size_of::<Sample>()).max(1);
        for slot in self.shared.slots.iter().step_by(step) {
            // SAFETY: the ring is empty, so the consumer reads no slot. Volatile, so that the
            // compiler keeps a write whose value is never read.
            unsafe { slot.get().write_volatile(Sample::default()) };
        }
    }
}

impl Consumer {
    /// Passes the waiting samples to `take`, oldest first, in one slice or two.
    pub fn drain(&mut self, mut take: impl FnMut(&[Sample])) {
        let head = self.shared.head.0.load(Ordering::Acquire);
        let capacity = self.shared.slots.len();
        let (from, count) = (self.tail & (capacity - 1), head.wrapping_sub(self.tail));
        let until_end = count.min(capacity - from);
        let slots = &self.shared.slots;
        for part in [&slots[from..from + until_end], &slots[..count - until_end]] {
            // SAFETY: an UnsafeCell has the layout of its content; the numbers of these slots are
            // in [tail, head), so the producer does not write them before tail is advanced.
            take(unsafe { std::slice::from_raw_parts(part.as_ptr().cast::<Sample>(), part.len()) });
        }
        self.tail = head;
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }

    /// Returns the number of samples lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample(at: u64) -> Sample {
        Sample {
            at,
            value: at ^ 0xffff,
            ..Sample::default()
        }
    }

    proptest! {
        /// Any order of writes and reads gives the same result as a bounded queue.
        #[test]
        fn behaves_as_a_bounded_queue(capacity in 1usize..40, steps in proptest::collection::vec((any::<bool>(), 0usize..50), 1..60)) {
            let (mut producer, mut consumer) = ring(capacity);
            let slots = capacity.max(2).next_power_of_two();
            let mut model = std::collections::VecDeque::new();
            let (mut next, mut lost) = (0, 0);
            for (write, count) in steps {
                if write {
                    for _ in 0..count {
                        producer.push(sample(next));
                        if model.len() < slots { model.push_back(sample(next)); } else { lost += 1; }
                        next += 1;
                    }
                } else {
                    let mut read = Vec::new();
                    consumer.drain(|samples| read.extend_from_slice(samples));
                    prop_assert_eq!(read, model.drain(..).collect::<Vec<_>>());
                }
            }
            prop_assert_eq!((producer.lost(), consumer.lost()), (lost, lost));
        }
    }

    #[test]
    fn counts_every_lost_sample_between_two_threads() {
        const COUNT: u64 = 200_000;
        let (mut producer, mut consumer) = ring(256);
        producer.prefault();
        let writer = std::thread::spawn(move || {
            for at in 0..COUNT {
                producer.push(sample(at));
            }
            (producer.written(), producer.lost())
        });
        let (mut read, mut last) = (0, None);
        loop {
            let finished = writer.is_finished();
            consumer.drain(|samples| {
                for seen in samples {
                    assert_eq!(*seen, sample(seen.at));
                    assert!(last < Some(seen.at));
                    last = Some(seen.at);
                    read += 1;
                }
            });
            if finished {
                break;
            }
        }
        let (written, lost) = writer.join().expect("the writer ends");
        assert_eq!((written, written + lost), (read, COUNT));
    }
}
