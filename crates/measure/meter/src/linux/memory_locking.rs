// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Locks the memory of the process.

use std::io;

use super::privilege::{self, Capability, Resource};
use super::{checked, files};

/// Locks all present memory of the program, and all future memory if no limit applies.
///
/// Under a limit it does not lock future memory: the measuring threads already have all of theirs,
/// and the rest of the program could not allocate once the limit is reached.
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

/// Returns the size of the program's address space in bytes, which is the amount to lock.
pub(crate) fn size() -> Option<u64> {
    let field = files::field("/proc/self/status", "VmSize")?;
    Some(field.split(' ').next()?.parse::<u64>().ok()? * 1024)
}

/// Writes to the calling thread's stack, so that no later call causes a page fault.
#[inline(never)]
pub(crate) fn prefault_stack() {
    /// More than the measuring loops and their callees use.
    const BYTES: usize = 32 * 1024;
    let mut stack = [0u8; BYTES];
    for byte in stack.iter_mut().step_by(1024) {
        // SAFETY: in bounds; volatile, so that the compiler keeps writes whose values are never
        // read.
        unsafe { std::ptr::from_mut(byte).write_volatile(1) };
    }
    std::hint::black_box(&stack);
}
