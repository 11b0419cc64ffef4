// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Data under a lock that knows its holder.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use rampart_hypervisor_core::bounded_lock::{Held, HolderLock};

use crate::read_register;

/// Returns the number of this CPU as the holder of locks, not 0: the page of its data in TPIDR_EL2. The pages of
/// two CPUs are not adjacent.
#[inline]
pub fn holder() -> u32 {
    (read_register!("tpidr_el2") >> 12) as u32 | 1
}

/// Data that one CPU at a time uses.
#[derive(Debug)]
pub struct Guarded<T> {
    lock: HolderLock,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a `Guard`, of which the lock permits one at a time.
unsafe impl<T: Send> Sync for Guarded<T> {}

/// The data, until this is dropped.
#[derive(Debug)]
pub struct Guard<'a, T> {
    guarded: &'a Guarded<T>,
    _held: Held<'a>,
}

impl<T> Guarded<T> {
    /// Creates the data, not locked.
    pub const fn new(value: T) -> Self {
        Self { lock: HolderLock::new(), value: UnsafeCell::new(value) }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        self.lock.try_take(holder()).map(|held| Guard { guarded: self, _held: held })
    }

    /// Releases the lock of a CPU that has abandoned its work, and its stack with the guard, after a fault.
    pub fn release(&self, holder: u32) {
        self.lock.release(holder);
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard is the only one.
        unsafe { &*self.guarded.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.guarded.value.get() }
    }
}
