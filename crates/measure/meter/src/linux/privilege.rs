// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The privileges and limits of the program.

use std::io;

use super::{checked, files};

/// A capability, numbered as in uapi/linux/capability.h (capabilities(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Capability {
    /// `CAP_IPC_LOCK`: lock any amount of memory.
    LockMemory = 14,
    /// `CAP_SYS_NICE`: set any scheduling policy and priority.
    Nice = 23,
}

/// Returns whether the capability is effective for the whole machine. In a user namespace the
/// program may have the capability, but the scheduler and the memory manager check the initial
/// namespace.
pub(crate) fn has(capability: Capability) -> bool {
    /// `_LINUX_CAPABILITY_VERSION_3`.
    const VERSION: u32 = 0x2008_0522;
    let header: [u32; 2] = [VERSION, 0];
    // Two sets of effective, permitted, inheritable.
    let mut data = [[0u32; 3]; 2];
    // SAFETY: both have the layout that this version of the call requires.
    let result =
        checked(unsafe { libc::syscall(libc::SYS_capget, header.as_ptr(), data.as_mut_ptr()) });
    let bit = capability as usize;
    result.is_ok() && data[bit / 32][0] & (1 << (bit % 32)) != 0 && !in_user_namespace()
}

/// Returns whether user ids are mapped, that is, whether this is not the initial user namespace.
pub(crate) fn in_user_namespace() -> bool {
    files::text("/proc/self/uid_map")
        .is_some_and(|map| !map.split_ascii_whitespace().eq(["0", "0", "4294967295"]))
}

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Resource {
    /// `RLIMIT_MEMLOCK`, bytes.
    LockedMemory,
    /// `RLIMIT_RTPRIO`, the highest real-time priority.
    RealTimePriority,
}

/// Returns the soft limit of the program; `u64::MAX` is unlimited.
pub(crate) fn limit(resource: Resource) -> io::Result<u64> {
    let number = match resource {
        Resource::LockedMemory => libc::RLIMIT_MEMLOCK as libc::c_long,
        Resource::RealTimePriority => libc::RLIMIT_RTPRIO as libc::c_long,
    };
    // Soft and hard limit, 64 bits each, independent of the C library's type.
    let mut limits = [0u64; 2];
    // SAFETY: no new limits are passed; `limits` is large enough for the old ones.
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
