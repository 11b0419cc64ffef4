// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What makes a CPU or memory busy, where there is no program for it: in a cell that holds the meter
//! and nothing else. In short slices, so that whoever measures beside it gets its turn.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::work::arithmetic;

/// Turns of the work of [`super::work`] in a slice.
const TURNS: u64 = 200;
/// Lines of the cache that are touched in a slice.
const LINES: usize = 16;
/// A line in words of 64 bits: 64 bytes, as in all cores of Arm and x86 that Linux runs on by now.
const LINE: usize = 8;
/// What `Cache` walks through in bytes: caches of the last level that are shared are about as large.
const CACHE_BYTES: usize = 4 << 20;

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadForm {
    /// Arithmetic.
    Cpu = 1,
    /// Reads and writes every line of a large memory, one after the other: its bandwidth.
    Memory = 2,
    /// Reads and writes lines of as much memory as a cache holds, in no order that a processor could
    /// guess: it throws out what others have there.
    Cache = 3,
}

impl LoadForm {
    /// The load with this number.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Cpu, Self::Memory, Self::Cache]
            .into_iter()
            .find(|form| *form as u64 == number)
    }
}

/// A load that is under way.
#[derive(Debug)]
pub struct Load<'m> {
    form: LoadForm,
    memory: &'m [AtomicU64],
    location: usize,
}

impl<'m> Load<'m> {
    /// One of this form, over this memory.
    #[must_use]
    pub fn new(form: LoadForm, memory: &'m [AtomicU64]) -> Self {
        let words = match form {
            LoadForm::Cpu => 0,
            LoadForm::Memory => memory.len(),
            LoadForm::Cache => memory.len().min(CACHE_BYTES / size_of::<u64>()),
        };
        Self {
            form,
            memory: &memory[..words],
            location: 0,
        }
    }

    /// Does a slice of it: some microseconds at the most.
    pub fn slice(&mut self) {
        let lines = self.memory.len() / LINE;
        if lines == 0 {
            arithmetic(TURNS);
            return;
        }
        for _ in 0..LINES {
            self.location = match self.form {
                LoadForm::Cache => scattered(self.location, lines),
                LoadForm::Cpu | LoadForm::Memory => (self.location + 1) % lines,
            };
            let word = &self.memory[self.location * LINE];
            let value = black_box(word.load(Ordering::Relaxed));
            word.store(value.wrapping_add(1), Ordering::Relaxed);
        }
    }
}

/// The line after this one in an order that comes to each line of the largest power of two of them: a
/// linear congruential generator whose increment is odd and whose multiplier is 1 modulo 4 (Hull and
/// Dobell, 1962).
fn scattered(line: usize, lines: usize) -> usize {
    let mask = (1 << lines.ilog2()) - 1;
    line.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) & mask
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(lines: usize) -> Vec<AtomicU64> {
        (0..lines * LINE).map(|_| AtomicU64::new(0)).collect()
    }

    fn touched(memory: &[AtomicU64]) -> Vec<u64> {
        let lines = memory.chunks_exact(LINE);
        lines.map(|line| line[0].load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn loads_come_to_every_line_once_a_round() {
        for form in [LoadForm::Memory, LoadForm::Cache] {
            let memory = memory(256);
            let mut load = Load::new(form, &memory);
            for _ in 0..256 / LINES {
                load.slice();
            }
            assert_eq!(touched(&memory), [1; 256], "{form:?}");
            assert_eq!(LoadForm::from_number(form as u64), Some(form));
        }
        assert_eq!(LoadForm::from_number(0), None);
    }

    #[test]
    fn a_load_of_the_cpu_touches_no_memory_and_none_needs_any() {
        let memory = memory(8);
        Load::new(LoadForm::Cpu, &memory).slice();
        assert_eq!(touched(&memory), [0; 8]);
        for form in [LoadForm::Memory, LoadForm::Cache] {
            Load::new(form, &[]).slice();
        }
    }

    #[test]
    fn the_cache_is_not_walked_through_in_order() {
        let lines: Vec<usize> =
            core::iter::successors(Some(0), |line| Some(scattered(*line, 4096)))
                .take(9)
                .collect();
        let steps: Vec<_> = lines
            .windows(2)
            .map(|pair| pair[1].wrapping_sub(pair[0]))
            .collect();
        assert!(steps.windows(2).all(|pair| pair[0] != pair[1]), "{lines:?}");
    }
}
