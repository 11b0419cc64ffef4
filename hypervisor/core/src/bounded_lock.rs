// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks with a bounded wait.

use spin::{Mutex, MutexGuard};

/// Attempts to take a lock: some tenths of a second. Holders make a few accesses and are not
/// interrupted, so a holder that takes longer has faulted on a register that does not respond. The
/// margin is for simulated machines, whose CPUs can be descheduled.
const ATTEMPTS: u32 = 10_000_000;

/// Takes the lock. Returns `None` if its holder does not release it in time.
#[inline]
pub(crate) fn lock_bounded<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if let Some(held) = mutex.try_lock() {
        return Some(held);
    }
    for _ in 0..ATTEMPTS {
        if let Some(held) = mutex.try_lock() {
            return Some(held);
        }
        core::hint::spin_loop();
    }
    None
}
