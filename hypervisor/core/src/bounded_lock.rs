// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks that nobody waits for without end.

use spin::{Mutex, MutexGuard};

/// Looks at a held lock before it is given up. Holders need a few accesses and are not interrupted;
/// one that is still there after this, some tenths of a second, has faulted in the middle, on a register
/// that does not answer. A CPU of a simulated machine may be away for long too.
const LOOKS: u32 = 10_000_000;

/// The lock; `None` where its holder does not let go.
#[inline]
pub(crate) fn lock_bounded<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    if let Some(held) = mutex.try_lock() {
        return Some(held);
    }
    for _ in 0..LOOKS {
        if let Some(held) = mutex.try_lock() {
            return Some(held);
        }
        core::hint::spin_loop();
    }
    None
}
