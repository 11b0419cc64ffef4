// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which interrupts a caller owns: of each register with so many bits for an interrupt, the mask.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{FIRST_SPI, LAST_SPI};

/// A set of shared peripheral interrupts. It is read by each access of its cell's CPUs and changed
/// while cells come and go, so its words are atomic; a change of one bit needs no more.
#[derive(Debug)]
pub struct SpiSet([AtomicU32; 32]);

impl SpiSet {
    /// None.
    pub const fn none() -> Self {
        Self([const { AtomicU32::new(0) }; 32])
    }

    #[inline]
    fn word(&self, number: u32) -> Option<&AtomicU32> {
        let shared = (FIRST_SPI..=LAST_SPI).contains(&number);
        self.0.get(number as usize / 32).filter(|_| shared)
    }

    /// Adds one; what is no shared peripheral interrupt is left out.
    pub fn insert(&self, number: u32) {
        if let Some(word) = self.word(number) {
            word.fetch_or(1 << (number % 32), Ordering::Release);
        }
    }

    /// Takes one away.
    pub fn remove(&self, number: u32) {
        if let Some(word) = self.word(number) {
            word.fetch_and(!(1 << (number % 32)), Ordering::Release);
        }
    }

    /// Whether this one is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.word(number).is_some_and(|word| word.load(Ordering::Acquire) & 1 << (number % 32) != 0)
    }
}

/// The private interrupts, 0 to 31, that a cell has on its own CPUs; the rest is the hypervisor's:
/// the management interrupt, and the peripherals of EL2 that it uses itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateMask(pub u32);

/// Ownership by the number of a 32-bit word of one-bit registers.
pub trait Ownership {
    /// A bit for each of the interrupts `32 * word` to `32 * word + 31`.
    fn word(&self, word: u32) -> u32;

    /// Four bytes for the interrupts from `first`, a multiple of four.
    #[inline(always)]
    fn bytes(&self, first: u32) -> u32 {
        let bits = self.word(first / 32) >> (first % 32);
        // Copies of the four bits, each 7 places on, so that bit n of copy n is where byte n begins.
        (((bits & 0xf) * 0x0020_4081) & 0x0101_0101) * 0xff
    }

    /// Sixteen pairs of bits for the interrupts from `first`, a multiple of sixteen.
    #[inline(always)]
    fn pairs(&self, first: u32) -> u32 {
        let bits = self.word(first / 32) >> (first % 32);
        // Each bit to twice its place, by halves.
        let mut spread = bits & 0xffff;
        spread = (spread | spread << 8) & 0x00ff_00ff;
        spread = (spread | spread << 4) & 0x0f0f_0f0f;
        spread = (spread | spread << 2) & 0x3333_3333;
        spread = (spread | spread << 1) & 0x5555_5555;
        spread * 3
    }
}

impl Ownership for SpiSet {
    #[inline]
    fn word(&self, word: u32) -> u32 {
        self.0.get(word as usize).map_or(0, |word| word.load(Ordering::Acquire))
    }
}

impl Ownership for PrivateMask {
    #[inline]
    fn word(&self, word: u32) -> u32 {
        if word == 0 { self.0 } else { 0 }
    }
}
