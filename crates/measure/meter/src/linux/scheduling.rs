// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets and reads policy and affinity of the calling thread.
//!
//! Uses raw system calls: musl's `sched_setscheduler` always fails, and neither C library of the
//! targets wraps `sched_setattr(2)` everywhere.

use std::io;

use rampart_model::{CpuId, CpuSet, Nanos, SchedulingPolicy};

use super::checked;

/// `SCHED_FLAG_RESET_ON_FORK` (uapi/linux/sched.h).
const RESET_ON_FORK: u64 = 1;

/// `struct sched_attr`, first version (`SCHED_ATTR_SIZE_VER0`), which every kernel accepts.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// A thread's policy as read back from the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EffectivePolicy {
    /// A policy that a plan can request.
    Known(SchedulingPolicy),
    /// Another policy, by number: `SCHED_BATCH` is 3, `SCHED_IDLE` 5, `SCHED_EXT` 7.
    Other(u32),
}

impl std::fmt::Display for EffectivePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(policy) => policy.fmt(f),
            Self::Other(number) => write!(f, "policy {number} of sched(7)"),
        }
    }
}

/// Sets the policy of the calling thread. A thread that already has the time-sharing policy keeps
/// its nice value, because lowering it requires a privilege.
pub(crate) fn set_policy(policy: SchedulingPolicy) -> io::Result<()> {
    if policy == SchedulingPolicy::Other
        && self::policy()? == EffectivePolicy::Known(SchedulingPolicy::Other)
    {
        return Ok(());
    }
    let mut attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        ..Attributes::default()
    };
    match policy {
        SchedulingPolicy::Other => attributes.policy = libc::SCHED_OTHER as u32,
        SchedulingPolicy::Fifo(priority) => {
            attributes.policy = libc::SCHED_FIFO as u32;
            attributes.priority = priority.into();
        }
        SchedulingPolicy::RoundRobin(priority) => {
            attributes.policy = libc::SCHED_RR as u32;
            attributes.priority = priority.into();
        }
        SchedulingPolicy::Deadline {
            runtime,
            deadline,
            period,
        } => {
            attributes.policy = 6; // SCHED_DEADLINE
            // Without this flag, a deadline thread cannot create threads or processes.
            attributes.flags = RESET_ON_FORK;
            (attributes.runtime, attributes.deadline, attributes.period) =
                (runtime.0, deadline.0, period.0);
        }
    }
    // SAFETY: the structure is valid for reading and carries its size.
    checked(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) })?;
    Ok(())
}

/// Gives the calling thread, which does not measure, the lowest nice value, if the user may: a load beside
/// it would delay what is done between two measurements. Threads and programs that it starts have 0
/// (sched(7), the reset-on-fork flag). Changes nothing if it has a real-time policy.
pub fn run_before_loads() {
    if !matches!(
        policy(),
        Ok(EffectivePolicy::Known(SchedulingPolicy::Other))
    ) {
        return;
    }
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: libc::SCHED_OTHER as u32,
        flags: RESET_ON_FORK,
        nice: -20,
        ..Attributes::default()
    };
    // SAFETY: the structure is valid for reading and carries its size. Without the privilege the thread
    // only waits longer.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
}

/// Returns the calling thread's policy.
pub(crate) fn policy() -> io::Result<EffectivePolicy> {
    let mut attributes = Attributes::default();
    // SAFETY: the structure is valid for writing of the passed size.
    checked(unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            0,
            &raw mut attributes,
            size_of::<Attributes>(),
            0,
        )
    })?;
    let priority = attributes.priority as u8;
    Ok(EffectivePolicy::Known(match attributes.policy {
        0 => SchedulingPolicy::Other,
        1 => SchedulingPolicy::Fifo(priority),
        2 => SchedulingPolicy::RoundRobin(priority),
        6 => SchedulingPolicy::Deadline {
            runtime: Nanos(attributes.runtime),
            deadline: Nanos(attributes.deadline),
            period: Nanos(attributes.period),
        },
        other => return Ok(EffectivePolicy::Other(other)),
    }))
}

/// Words of a CPU mask that can hold every CPU of a [`CpuSet`].
const MASK_WORDS: usize = 1024;

/// Binds the calling thread to these CPUs. The kernel silently removes CPUs that are not in the
/// cpuset; read the result back.
pub(crate) fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let mut mask = vec![0u64; MASK_WORDS];
    for cpu in cpus.iter() {
        if let Some(word) = mask.get_mut(cpu.0 as usize / 64) {
            *word |= 1 << (cpu.0 % 64);
        }
    }
    // SAFETY: the mask is valid for reading of its whole length; the kernel ignores the part beyond
    // its own number of CPUs.
    checked(unsafe {
        libc::syscall(
            libc::SYS_sched_setaffinity,
            0,
            size_of_val(mask.as_slice()),
            mask.as_ptr(),
        )
    })?;
    Ok(())
}

/// Returns the CPUs that the calling thread may run on.
pub(crate) fn affinity() -> io::Result<CpuSet> {
    let mut mask = vec![0u64; MASK_WORDS];
    // SAFETY: the mask is valid for writing of its whole length.
    let bytes = checked(unsafe {
        libc::syscall(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(mask.as_slice()),
            mask.as_mut_ptr(),
        )
    })?;
    Ok((0..bytes as u32 * 8)
        .filter(|cpu| mask[*cpu as usize / 64] & (1 << (cpu % 64)) != 0)
        .map(CpuId)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the nice value of the calling thread.
    fn nice() -> i32 {
        let mut attributes = Attributes::default();
        let size = size_of::<Attributes>();
        // SAFETY: the structure is valid for writing of the passed size.
        checked(unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) })
            .expect("attributes");
        attributes.nice
    }

    #[test]
    fn what_a_preferred_thread_starts_is_ordinary() {
        let values = std::thread::spawn(|| {
            let before = nice();
            run_before_loads();
            let child = std::thread::spawn(nice).join().expect("a nice value");
            (before, nice(), child)
        });
        let (before, preferred, child) = values.join().expect("nice values");
        // Without the privilege nothing changes.
        assert!(preferred == -20 || preferred == before, "{preferred}");
        assert_eq!(child, if preferred < 0 { 0 } else { before });
    }
}
