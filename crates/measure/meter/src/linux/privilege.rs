// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program may do.

use std::io;

use super::{checked, files};

/// capabilities(7), uapi/linux/capability.h.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// Lock any amount of memory.
    LockMemory = 14,
    /// Any scheduling policy and priority.
    Nice = 23,
}

/// Whether the program has a capability in effect, over the whole machine: in a user namespace
/// of its own it may have it by name, but the scheduler and the memory manager ask the first one.
pub(crate) fn has(capability: Capability) -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    // Twice effective, permitted, inheritable.
    let mut data = [[0u32; 3]; 2];
    // SAFETY: both have the layout that this version of the call wants.
    let result =
        checked(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) });
    let bit = capability as usize;
    result.is_ok() && data[bit / 32][0] & (1 << (bit % 32)) != 0 && !in_user_namespace()
}

/// Whether user ids are mapped, that is, whether this is a user namespace below the first.
pub(crate) fn in_user_namespace() -> bool {
    files::text("/proc/self/uid_map")
        .is_some_and(|map| !map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// A limit of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_RTPRIO`, the highest real-time priority.
    RealTimePriority,
}

/// The soft limit that holds for the program; `u64::MAX` is unlimited.
pub(crate) fn limit(resource: Resource) -> io::Result<u64> {
    let number = match resource {
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK as libc::c_long,
        Resource::RealTimePriority => libc::RLIMIT_RTPRIO as libc::c_long,
    };
    // Soft and hard limit, 64 bits each whatever the C library's type is.
    let mut limits = [0u64; 2];
    // SAFETY: no new limits are given; the old ones have room.
    checked(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            number,
            std::ptr::null::<u64>(),
            limits.as_mut_ptr(),
        )
    })?;
    Ok(limits[0])
}
