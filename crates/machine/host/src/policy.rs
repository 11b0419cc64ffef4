// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scheduling policies of threads (sched_setattr(2)).

use std::io;

use rampart_model::{Nanos, SchedulingPolicy};
use serde::{Deserialize, Serialize};

/// Scheduling attributes of a thread: `struct sched_attr` in its first version
/// (`SCHED_ATTR_SIZE_VER0` of include/uapi/linux/sched/types.h), which every kernel accepts.
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
    /// Returns the attributes of a policy.
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

    /// Returns the policy. All time-sharing policies are [`SchedulingPolicy::Other`].
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

/// Returns the scheduling policy of a thread.
///
/// # Errors
/// If the thread has ended.
pub fn thread_policy(thread: u32) -> io::Result<SchedulingPolicy> {
    Ok(attributes(thread)?.policy())
}

/// Sets the scheduling policy of a thread. Keeps its nice value, which sched_setattr(2) sets with a
/// time-sharing policy; a lower one would need a privilege.
///
/// # Errors
/// If the thread has ended, or the kernel refuses; [`crate::diagnose_real_time_policy`] returns the
/// reason.
pub fn set_thread_policy(thread: u32, policy: SchedulingPolicy) -> io::Result<()> {
    let mut wanted = Attributes::of(policy);
    if policy == SchedulingPolicy::Other {
        // sched_getattr(2) does not return the nice value of a real-time thread.
        let thread = rustix::process::Pid::from_raw(number(thread)?);
        wanted.nice = rustix::process::getpriority_process(thread)?;
    }
    set_attributes(thread, &wanted)
}

/// Returns the scheduling attributes of a thread.
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

/// Sets the scheduling attributes of a thread.
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
    fn a_time_sharing_policy_keeps_the_nice_value() {
        // In its own thread, and upwards, which needs no privilege.
        let own = std::thread::spawn(|| {
            let thread = rustix::thread::gettid();
            rustix::process::setpriority_process(Some(thread), 7).expect("a higher nice value");
            let thread = thread.as_raw_nonzero().get().unsigned_abs();
            let nice = || attributes(thread).expect("attributes").nice;
            set_thread_policy(thread, SchedulingPolicy::Other).expect("unchanged");
            assert_eq!(nice(), 7);
            // If real-time policies are allowed, also after a real-time policy.
            if set_thread_policy(thread, SchedulingPolicy::Fifo(1)).is_ok() {
                set_thread_policy(thread, SchedulingPolicy::Other).expect("back");
                assert_eq!(nice(), 7);
            }
        });
        own.join().expect("no panic");
    }
}
