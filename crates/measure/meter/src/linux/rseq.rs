// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU that a thread is on, for the price of one load: the kernel keeps it in the thread's
//! restartable-sequences area (rseq(2), Linux 4.18). Where that cannot be had, one instruction
//! on x86, and at last getcpu(2).

use std::sync::atomic::{AtomicU32, Ordering};

use super::raw;

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
    /// Whether [`instruction::cpu`] may be used instead.
    by_instruction: bool,
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
            return Self {
                area: Some(area),
                by_instruction: false,
            };
        }
        // SAFETY: it came from a box a moment ago, and the kernel did not take it.
        drop(unsafe { Box::from_raw(area) });
        Self {
            area: None,
            by_instruction: instruction::usable(),
        }
    }

    /// The CPU.
    #[inline(always)]
    pub(crate) fn get(&self) -> u32 {
        match self.area {
            // SAFETY: registered areas live as long as this. The kernel writes while this
            // thread does not run, hence the atomic.
            Some(area) => unsafe { (*area).cpu_id.load(Ordering::Relaxed) },
            None if self.by_instruction => instruction::cpu(),
            None => ask(),
        }
    }
}

/// getcpu(2); `u32::MAX` if even that is refused.
fn ask() -> u32 {
    let mut cpu = 0u32;
    let arguments = [&raw mut cpu as usize, 0, 0];
    // SAFETY: valid for writing; the node and the unused cache may be null.
    if unsafe { raw::call(libc::SYS_getcpu, arguments) } == 0 {
        cpu
    } else {
        u32::MAX
    }
}

/// `rdtscp` reads, beside the counter, TSC_AUX, in which Linux keeps the CPU's number in the
/// lower 12 bits and its memory node above (arch/x86/include/asm/segment.h, VDSO_CPUNODE_BITS).
#[cfg(target_arch = "x86_64")]
mod instruction {
    use core::arch::x86_64::{__cpuid, __rdtscp};

    #[inline(always)]
    pub(super) fn cpu() -> u32 {
        let mut auxiliary = 0;
        // SAFETY: only called where the processor has the instruction.
        unsafe { __rdtscp(&raw mut auxiliary) };
        auxiliary & 0xfff
    }

    /// Whether the processor has it and it agrees with the kernel. The thread may be moved
    /// between the two questions, hence several.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_name_the_same_cpu() {
        let current = CurrentCpu::of_this_thread();
        // The thread may be moved between two questions, but hardly every time.
        assert!((0..100).any(|_| current.get() == ask()));
        if instruction::usable() {
            assert!((0..100).any(|_| instruction::cpu() == ask()));
        }
    }
}
