// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupts that a cell owns, as masks of registers with 1, 2 or 8 bits per interrupt.

use core::sync::atomic::{AtomicU32, Ordering};

use super::{FIRST_SPI, LAST_SPI};

/// A set of shared peripheral interrupts (SPIs). Its words are atomic, because the cell's CPUs read it
/// while cells are created and destroyed.
#[derive(Debug)]
pub struct SpiSet([AtomicU32; 32]);

impl SpiSet {
    /// Creates an empty set.
    pub const fn none() -> Self {
        Self([const { AtomicU32::new(0) }; 32])
    }

    #[inline]
    fn word(&self, number: u32) -> Option<&AtomicU32> {
        let shared = (FIRST_SPI..=LAST_SPI).contains(&number);
        self.0.get(number as usize / 32).filter(|_| shared)
    }

    /// Adds an interrupt; ignores numbers that are not SPIs.
    pub fn insert(&self, number: u32) {
        if let Some(word) = self.word(number) {
            word.fetch_or(1 << (number % 32), Ordering::Release);
        }
    }

    /// Removes an interrupt.
    pub fn remove(&self, number: u32) {
        if let Some(word) = self.word(number) {
            word.fetch_and(!(1 << (number % 32)), Ordering::Release);
        }
    }

    /// Returns whether the interrupt is in the set.
    #[inline]
    pub fn contains(&self, number: u32) -> bool {
        self.word(number).is_some_and(|word| word.load(Ordering::Acquire) & 1 << (number % 32) != 0)
    }
}

/// The private interrupts, 0 to 31, that a cell owns on its CPUs. The others belong to the hypervisor:
/// the management interrupt and the peripherals of EL2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrivateMask(pub u32);

/// Masks of owned interrupts, for registers with different numbers of bits per interrupt.
pub trait Ownership {
    /// Returns one bit for each of the interrupts `32 * word` to `32 * word + 31`.
    fn word(&self, word: u32) -> u32;

    /// Returns one byte for each of four interrupts from `first`, a multiple of four.
    #[inline(always)]
    fn bytes(&self, first: u32) -> u32 {
        let bits = self.word(first / 32) >> (first % 32);
        // Copies the four bits, shifted by 7 each, so that bit n of copy n is at the start of byte n.
        (((bits & 0xf) * 0x0020_4081) & 0x0101_0101) * 0xff
    }

    /// Returns two bits for each of sixteen interrupts from `first`, a multiple of sixteen.
    #[inline(always)]
    fn pairs(&self, first: u32) -> u32 {
        let bits = self.word(first / 32) >> (first % 32);
        // Moves bit n to bit 2n, in four steps.
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
