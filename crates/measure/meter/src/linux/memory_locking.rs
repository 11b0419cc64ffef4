// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks the memory of the process.

use std::io;

use super::privilege::{self, Capability, Resource};
use super::{checked, files};

/// Locks all memory that the program has, and all that it will get where nothing limits that.
///
/// Under a limit the future is left out: the measuring threads have all their memory by now, and
/// the rest of the program would fail to allocate once the limit is reached.
pub(crate) fn lock() -> io::Result<()> {
    let unlimited = privilege::has(Capability::LockMemory)
        || privilege::limit(Resource::LockedMemory).is_ok_and(|limit| limit == u64::MAX);
    let flags = if unlimited {
        libc::MCL_CURRENT | libc::MCL_FUTURE
    } else {
        libc::MCL_CURRENT
    };
    // SAFETY: no pointers.
    checked(unsafe { libc::mlockall(flags) } as libc::c_long)?;
    Ok(())
}

/// The program's address space in bytes, which is what locking it needs.
pub(crate) fn size() -> Option<u64> {
    let field = files::field("/proc/self/status", "VmSize")?;
    Some(field.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

/// Touches the calling thread's stack, so that no later call is the first to.
#[inline(never)]
pub(crate) fn prefault_stack() {
    /// Far more than the measuring loops and what they call use.
    const BYTES: usize = 32 * 1024;
    let mut stack = [0u8; BYTES];
    for byte in stack.iter_mut().step_by(1024) {
        // SAFETY: in bounds; volatile, so that the writes happen although nobody reads them.
        unsafe { std::ptr::from_mut(byte).write_volatile(1) };
    }
    std::hint::black_box(&stack);
}
