// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that know their holder, with a bounded wait.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Attempts to take a lock: some tenths of a second. Holders make a few accesses and are not interrupted. The
/// margin is for simulated machines, whose CPUs can be descheduled.
const ATTEMPTS: u32 = 10_000_000;

/// A lock with the number of its holder, not 0. If EL2 faults on a CPU, the handler releases the CPU's locks.
#[derive(Debug, Default)]
pub struct HolderLock(AtomicU32);

/// The lock is held until this is dropped.
#[derive(Debug)]
pub struct Held<'a>(&'a AtomicU32);

impl HolderLock {
    /// Creates the lock, which is free.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_take(&self, holder: u32) -> Option<Held<'_>> {
        self.0.compare_exchange(0, holder, Acquire, Relaxed).ok().map(|_| Held(&self.0))
    }

    /// Takes the lock. Returns `None` if its holder does not release it in time.
    #[inline]
    pub fn take(&self, holder: u32) -> Option<Held<'_>> {
        self.try_take(holder).or_else(|| self.wait(holder))
    }

    #[cold]
    fn wait(&self, holder: u32) -> Option<Held<'_>> {
        (0..ATTEMPTS).find_map(|_| {
            core::hint::spin_loop();
            self.try_take(holder)
        })
    }

    /// Releases the lock if this is its holder, which has abandoned its work after a fault.
    pub fn release(&self, holder: u32) {
        let _ = self.0.compare_exchange(holder, 0, Release, Relaxed);
    }
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}
