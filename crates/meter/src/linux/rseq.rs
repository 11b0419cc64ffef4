// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU that a thread is on, for the price of one load: the kernel keeps it in the thread's
//! restartable-sequences area (rseq(2), Linux 4.18). Where that cannot be had, getcpu(2).

use std::sync::atomic::{AtomicU32, Ordering};

/// The length of the area's first version, which every kernel takes.
const LENGTH: usize = 32;

/// The signature before abort handlers, of which there are none here; the usual one is used.
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;
#[cfg(not(target_arch = "aarch64"))]
const SIGNATURE: u32 = 0x5305_3053;

const UNREGISTER: u32 = 1;

/// `struct rseq` (uapi/linux/rseq.h), first version.
#[derive(Debug)]
#[repr(C, align(32))]
struct Area {
    cpu_id_start: AtomicU32,
    cpu_id: AtomicU32,
    critical_section: u64,
    flags: u32,
    reserved: [u32; 3],
}

/// Tells the calling thread's CPU. Belongs to the thread that made it, so it can neither be sent
/// nor shared.
#[derive(Debug)]
pub(crate) struct CurrentCpu {
    /// Registered with the kernel, hence on the heap, where it does not move; none where the
    /// kernel or the C library (glibc registers one of its own) leaves no room.
    area: Option<*mut Area>,
}

impl CurrentCpu {
    /// Registers the calling thread if that is possible.
    pub(crate) fn of_this_thread() -> Self {
        let area = Box::into_raw(Box::new(Area {
            cpu_id_start: AtomicU32::new(0),
            cpu_id: AtomicU32::new(u32::MAX), // RSEQ_CPU_ID_UNINITIALIZED
            critical_section: 0,
            flags: 0,
            reserved: [0; 3],
        }));
        // SAFETY: the area is aligned, of the length given, and lives until it is unregistered.
        let result = unsafe { libc::syscall(libc::SYS_rseq, area, LENGTH, 0, SIGNATURE) };
        if result == 0 {
            return Self { area: Some(area) };
        }
        // SAFETY: it came from a box a moment ago, and the kernel did not take it.
        drop(unsafe { Box::from_raw(area) });
        Self { area: None }
    }

    /// The CPU.
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        match self.area {
            // SAFETY: registered areas live as long as this. The kernel writes while this
            // thread does not run, hence the atomic.
            Some(area) => unsafe { (*area).cpu_id.load(Ordering::Relaxed) },
            None => Self::ask(),
        }
    }

    #[cold]
    fn ask() -> u32 {
        // SAFETY: no arguments.
        u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(u32::MAX)
    }
}

impl Drop for CurrentCpu {
    fn drop(&mut self) {
        if let Some(area) = self.area {
            // SAFETY: the same area, length and signature as registered.
            let result =
                unsafe { libc::syscall(libc::SYS_rseq, area, LENGTH, UNREGISTER, SIGNATURE) };
            if result == 0 {
                // SAFETY: it came from a box, and the kernel no longer writes to it. If it
                // would not let go, the area leaks.
                drop(unsafe { Box::from_raw(area) });
            }
        }
    }
}
