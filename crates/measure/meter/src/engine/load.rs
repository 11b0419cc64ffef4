// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loads the CPU or the memory of a cell that contains only the meter and no load program. The load
//! runs in short slices, so that a measurement on the same CPU is delayed by at most one slice.

use core::hint::black_box;
use core::sync::atomic::{AtomicU64, Ordering};

use super::work::arithmetic;

/// Turns of [`super::work`] in a slice.
const TURNS: u64 = 200;
/// Cache lines accessed in a slice.
const LINES: usize = 16;
/// Words of 64 bits in a cache line: 64 bytes, as on the Arm and x86 cores that current Linux runs
/// on.
const LINE: usize = 8;
/// Memory that `Cache` accesses where the size of the last-level cache is not known, in bytes.
pub const CACHE_BYTES: usize = 4 << 20;

/// The kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadForm {
    /// Arithmetic.
    Cpu = 1,
    /// Reads and writes every cache line of a large memory in order; uses memory bandwidth.
    Memory = 2,
    /// Reads and writes cache lines of a memory as large as a cache, in an order that a prefetcher
    /// cannot predict; evicts the lines of other programs.
    Cache = 3,
}

impl LoadForm {
    /// Returns the load with this number, or `None` if there is none.
    #[must_use]
    pub fn from_number(number: u64) -> Option<Self> {
        [Self::Cpu, Self::Memory, Self::Cache]
            .into_iter()
            .find(|form| *form as u64 == number)
    }
}

/// A running load.
#[derive(Debug)]
pub struct LoadLoop<'m> {
    form: LoadForm,
    memory: &'m [AtomicU64],
    location: usize,
}

impl<'m> LoadLoop<'m> {
    /// Creates a load of this form in this memory; `Cpu` uses none of it.
    #[must_use]
    pub fn new(form: LoadForm, memory: &'m [AtomicU64]) -> Self {
        let words = match form {
            LoadForm::Cpu => 0,
            LoadForm::Memory | LoadForm::Cache => memory.len(),
        };
        Self {
            form,
            memory: &memory[..words],
            location: 0,
        }
    }

    /// Runs one slice of the load: at most some microseconds.
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

/// Returns the successor of this line in an order that visits every line of the largest power of
/// two of them: a linear congruential generator with an odd increment and a multiplier that is 1
/// modulo 4 (Hull and Dobell, 1962).
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
    fn visits_every_line_once_per_round() {
        for form in [LoadForm::Memory, LoadForm::Cache] {
            let memory = memory(256);
            let mut load = LoadLoop::new(form, &memory);
            for _ in 0..256 / LINES {
                load.slice();
            }
            assert_eq!(touched(&memory), [1; 256], "{form:?}");
            assert_eq!(LoadForm::from_number(form as u64), Some(form));
        }
        assert_eq!(LoadForm::from_number(0), None);
    }

    #[test]
    fn cpu_load_accesses_no_memory_and_no_load_needs_any() {
        let memory = memory(8);
        LoadLoop::new(LoadForm::Cpu, &memory).slice();
        assert_eq!(touched(&memory), [0; 8]);
        for form in [LoadForm::Memory, LoadForm::Cache] {
            LoadLoop::new(form, &[]).slice();
        }
    }

    #[test]
    fn cache_load_is_not_sequential() {
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
