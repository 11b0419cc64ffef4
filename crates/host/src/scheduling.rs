// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policies of threads, by sched_setattr(2) and sched_getattr(2).

use std::io;

use rampart_model::{Nanos, SchedulingPolicy};

/// Gives a thread its policy; a time-sharing one gets nice value 0 with it.
///
/// # Errors
/// The kernel's answer, sched_setattr(2).
#[expect(
    unsafe_code,
    reason = "neither rustix nor libc has a function for sched_setattr(2)"
)]
pub fn set_thread_policy(thread: u32, policy: SchedulingPolicy) -> io::Result<()> {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    match policy {
        SchedulingPolicy::Other => {}
        SchedulingPolicy::Fifo(priority) => {
            attributes.sched_policy = libc::SCHED_FIFO as u32;
            attributes.sched_priority = u32::from(priority);
        }
        SchedulingPolicy::RoundRobin(priority) => {
            attributes.sched_policy = libc::SCHED_RR as u32;
            attributes.sched_priority = u32::from(priority);
        }
        SchedulingPolicy::Deadline {
            runtime,
            deadline,
            period,
        } => {
            attributes.sched_policy = libc::SCHED_DEADLINE as u32;
            attributes.sched_runtime = runtime.0;
            attributes.sched_deadline = deadline.0;
            attributes.sched_period = period.0;
        }
    }
    // SAFETY: sched_setattr(2) reads `size` bytes of the structure, which lives through the
    // call, and keeps no pointer to it; glibc and musl have no wrapper for it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            libc::pid_t::try_from(thread).map_err(|_| io::ErrorKind::InvalidInput)?,
            &raw const attributes,
            0u32,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The policy of a thread; none where it is gone.
#[must_use]
#[expect(
    unsafe_code,
    reason = "neither rustix nor libc has a function for sched_getattr(2)"
)]
pub fn thread_policy(thread: u32) -> Option<SchedulingPolicy> {
    let thread = libc::pid_t::try_from(thread).ok()?;
    let mut attributes = libc::sched_attr {
        size: 0,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = size_of::<libc::sched_attr>();
    // SAFETY: sched_getattr(2) writes at most `size` bytes to the structure, which lives through
    // the call, and keeps no pointer to it; glibc and musl have no wrapper for it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            thread,
            &raw mut attributes,
            u32::try_from(size).ok()?,
            0u32,
        )
    };
    if result != 0 {
        return None;
    }
    let priority = u8::try_from(attributes.sched_priority).ok()?;
    Some(match i32::try_from(attributes.sched_policy).ok()? {
        libc::SCHED_FIFO => SchedulingPolicy::Fifo(priority),
        libc::SCHED_RR => SchedulingPolicy::RoundRobin(priority),
        libc::SCHED_DEADLINE => SchedulingPolicy::Deadline {
            runtime: Nanos(attributes.sched_runtime),
            deadline: Nanos(attributes.sched_deadline),
            period: Nanos(attributes.sched_period),
        },
        // Batch and idle are time-sharing policies too.
        _ => SchedulingPolicy::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_set_and_read_back() {
        let own = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).expect("number");
        set_thread_policy(own, SchedulingPolicy::Other).expect("policy");
        assert_eq!(thread_policy(own), Some(SchedulingPolicy::Other));
        assert_eq!(thread_policy(u32::MAX), None);
        assert!(set_thread_policy(u32::MAX, SchedulingPolicy::Other).is_err());
    }
}
