// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the CPU of a thread with one load: the kernel stores it in the thread's
//! restartable-sequences area (rseq(2), Linux 4.18). If this is not available, one instruction on
//! x86, otherwise getcpu(2).

use std::sync::atomic::{AtomicU32, Ordering};

use super::raw;

/// Length of the first version of the area, which every kernel accepts.
const LENGTH: usize = 32;

/// The signature before abort handlers. There are none here; the usual value is used.
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

/// Returns the calling thread's CPU. Belongs to the thread that created it, so it is neither `Send`
/// nor `Sync`.
#[derive(Debug)]
pub(crate) struct CurrentCpu {
    /// Registered with the kernel, therefore on the heap, where it does not move. `None` if the
    /// kernel lacks rseq or the C library has registered an area (glibc does).
    area: Option<*mut Area>,
    /// Whether to use [`instruction::cpu`] instead.
    by_instruction: bool,
}

impl CurrentCpu {
    /// Registers the calling thread if possible.
    pub(crate) fn of_this_thread() -> Self {
        let area = Box::into_raw(Box::new(Area {
            cpu_id_start: AtomicU32::new(0),
            cpu_id: AtomicU32::new(u32::MAX), // RSEQ_CPU_ID_UNINITIALIZED
            critical_section: 0,
            flags: 0,
            reserved: [0; 3],
        }));
        // SAFETY: the area is aligned, has the given length, and lives until it is unregistered.
        let result = unsafe { libc::syscall(libc::SYS_rseq, area, LENGTH, 0, SIGNATURE) };
        if result == 0 {
            return Self {
                area: Some(area),
                by_instruction: false,
            };
        }
        // SAFETY: it comes from the box above, and the kernel did not register it.
        drop(unsafe { Box::from_raw(area) });
        Self {
            area: None,
            by_instruction: instruction::usable(),
        }
    }

    /// Returns the CPU.
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        match self.area {
            // SAFETY: registered areas live as long as `self`. The kernel writes while this thread
            // does not run, therefore the atomic.
            Some(area) => unsafe { (*area).cpu_id.load(Ordering::Relaxed) },
            None if self.by_instruction => instruction::cpu(),
            None => ask(),
        }
    }
}

/// Calls getcpu(2). Returns `u32::MAX` if the call fails.
fn ask() -> u32 {
    let mut cpu = 0u32;
    let arguments = [&raw mut cpu as usize, 0, 0];
    // SAFETY: `cpu` is valid for writing; the node and the unused cache may be null.
    if unsafe { raw::call(libc::SYS_getcpu, arguments) } == 0 {
        cpu
    } else {
        u32::MAX
    }
}

/// Besides the counter, `rdtscp` reads TSC_AUX, in which Linux stores the CPU's number in the lower
/// 12 bits and its NUMA node above (arch/x86/include/asm/segment.h, VDSO_CPUNODE_BITS).
#[cfg(target_arch = "x86_64")]
mod instruction {
    use core::arch::x86_64::{__cpuid, __rdtscp};

    #[inline(always)]
    pub(super) fn cpu() -> u32 {
        let mut auxiliary = 0;
        // SAFETY: only called if the processor has the instruction.
        unsafe { __rdtscp(&raw mut auxiliary) };
        auxiliary & 0xfff
    }

    /// Returns whether the processor has the instruction and it agrees with the kernel. Tries
    /// several times, because the thread may migrate between the two reads.
    pub(super) fn usable() -> bool {
        const EXTENDED: u32 = 0x8000_0001;
        __cpuid(0x8000_0000).eax >= EXTENDED
            && __cpuid(EXTENDED).edx & (1 << 27) != 0
            && (0..4).any(|_| cpu() == super::ask())
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod instruction {
    pub(super) fn cpu() -> u32 {
        super::ask()
    }

    pub(super) const fn usable() -> bool {
        false
    }
}

impl Drop for CurrentCpu {
    fn drop(&mut self) {
        if let Some(area) = self.area {
            // SAFETY: the same area, length and signature as at the registration.
            let result =
                unsafe { libc::syscall(libc::SYS_rseq, area, LENGTH, UNREGISTER, SIGNATURE) };
            if result == 0 {
                // SAFETY: it comes from a box, and the kernel no longer writes to it. If
                // unregistering failed, the area is leaked.
                drop(unsafe { Box::from_raw(area) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_methods_return_the_same_cpu() {
        let current = CurrentCpu::of_this_thread();
        // The thread may migrate between two reads, but hardly every time.
        assert!((0..100).any(|_| current.get() == ask()));
        if instruction::usable() {
            assert!((0..100).any(|_| instruction::cpu() == ask()));
        }
    }
}
