// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies of threads, as sched_setattr(2) takes and gives them.

use std::io;

use rampart_model::{Nanos, SchedulingPolicy};
use serde::{Deserialize, Serialize};

/// What the scheduler knows of a thread: `struct sched_attr` in its first version
/// (`SCHED_ATTR_SIZE_VER0` of include/uapi/linux/sched/types.h), which every kernel takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[repr(C)]
pub(crate) struct Attributes {
    pub(crate) size: u32,
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    pub(crate) priority: u32,
    pub(crate) runtime: u64,
    pub(crate) deadline: u64,
    pub(crate) period: u64,
}

impl Attributes {
    /// Those of a policy.
    pub(crate) fn of(policy: SchedulingPolicy) -> Self {
        let own = Self {
            size: size_of::<Self>() as u32,
            ..Self::default()
        };
        let libc_number = |number: i32| u32::try_from(number).unwrap_or_default();
        match policy {
            SchedulingPolicy::Other => own,
            SchedulingPolicy::Fifo(priority) => Self {
                policy: libc_number(libc::SCHED_FIFO),
                priority: priority.into(),
                ..own
            },
            SchedulingPolicy::RoundRobin(priority) => Self {
                policy: libc_number(libc::SCHED_RR),
                priority: priority.into(),
                ..own
            },
            SchedulingPolicy::Deadline {
                runtime,
                deadline,
                period,
            } => Self {
                policy: libc_number(libc::SCHED_DEADLINE),
                runtime: runtime.0,
                deadline: deadline.0,
                period: period.0,
                ..own
            },
        }
    }

    /// The policy that they are; the ones that share time are one.
    pub(crate) fn policy(&self) -> SchedulingPolicy {
        let priority = u8::try_from(self.priority).unwrap_or(u8::MAX);
        match i32::try_from(self.policy) {
            Ok(libc::SCHED_FIFO) => SchedulingPolicy::Fifo(priority),
            Ok(libc::SCHED_RR) => SchedulingPolicy::RoundRobin(priority),
            Ok(libc::SCHED_DEADLINE) => SchedulingPolicy::Deadline {
                runtime: Nanos(self.runtime),
                deadline: Nanos(self.deadline),
                period: Nanos(self.period),
            },
            _ => SchedulingPolicy::Other,
        }
    }
}

/// The policy of a thread.
///
/// # Errors
/// If it is gone.
pub fn thread_policy(thread: u32) -> io::Result<SchedulingPolicy> {
    Ok(attributes(thread)?.policy())
}

/// Gives a thread a policy. It keeps its nice value, which sched_setattr(2) sets with a time-sharing
/// policy: nobody asked for another, and a lower one needs a privilege.
///
/// # Errors
/// If it is gone, or the kernel refuses: [`crate::diagnose_real_time_policy`] says why.
pub fn set_thread_policy(thread: u32, policy: SchedulingPolicy) -> io::Result<()> {
    let mut wanted = Attributes::of(policy);
    if policy == SchedulingPolicy::Other {
        // Not from sched_getattr(2), which gives none of a real-time thread.
        let thread = rustix::process::Pid::from_raw(number(thread)?);
        wanted.nice = rustix::process::getpriority_process(thread)?;
    }
    set_attributes(thread, &wanted)
}

/// What the scheduler knows of a thread.
#[expect(unsafe_code, reason = "no library wraps sched_getattr(2)")]
pub(crate) fn attributes(thread: u32) -> io::Result<Attributes> {
    let mut attributes = Attributes::default();
    // SAFETY: the call writes at most the size that is passed into the structure, which lives
    // through it, and keeps no pointer to it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            number(thread)?,
            &raw mut attributes,
            size_of::<Attributes>(),
            0,
        )
    };
    if answer == 0 {
        Ok(attributes)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Tells the scheduler of a thread.
#[expect(unsafe_code, reason = "no library wraps sched_setattr(2)")]
pub(crate) fn set_attributes(thread: u32, attributes: &Attributes) -> io::Result<()> {
    // SAFETY: the call reads the structure, which lives through it and carries its size, and
    // keeps no pointer to it.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            number(thread)?,
            std::ptr::from_ref(attributes),
            0,
        )
    };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn number(thread: u32) -> io::Result<libc::pid_t> {
    libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_sharing_policy_leaves_the_nice_value() {
        // Of this thread alone, and upwards, which everybody may.
        let own = std::thread::spawn(|| {
            let thread = rustix::thread::gettid();
            rustix::process::setpriority_process(Some(thread), 7).expect("a higher nice value");
            let thread = thread.as_raw_nonzero().get().unsigned_abs();
            let nice = || attributes(thread).expect("attributes").nice;
            set_thread_policy(thread, SchedulingPolicy::Other).expect("it has it already");
            assert_eq!(nice(), 7);
            // Where real-time policies are granted, also of one that comes back from there.
            if set_thread_policy(thread, SchedulingPolicy::Fifo(1)).is_ok() {
                set_thread_policy(thread, SchedulingPolicy::Other).expect("back");
                assert_eq!(nice(), 7);
            }
        });
        own.join().expect("no panic");
    }
}
