// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places the calling process from outside.
//!
//! A process that writes its own number to `cgroup.procs` is moved to the new CPUs in the middle of the call, while it
//! holds the kernel's locks of control groups. If a real-time thread keeps these CPUs, it never runs again, and no
//! process of the machine can start or end. So a child that stays on the other CPUs does it, while this process sleeps.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use rampart_model::{CpuSet, Finding, SchedulingPolicy, Severity};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions};

use super::{ThreadPlacement, place_process};
use crate::HostError;
use crate::kernel::{Kernel, RunningKernel};
use crate::policy::set_thread_policy;
use crate::tasks;

/// Time limit for the child. It waits only for locks of the kernel.
const LIMIT: Duration = Duration::from_secs(30);

/// Time in which the calling process falls asleep, on a busy machine.
const ASLEEP_LIMIT: Duration = Duration::from_secs(10);

/// Places the calling process with all its threads, as [`place_process`] does with others. No step needs the new CPUs,
/// so threads that keep them can stop only this process.
///
/// # Errors
/// If the kernel refuses a setting, or the placement takes longer than half a minute.
pub fn place_this_process(location: &ThreadPlacement) -> Result<(), HostError> {
    let process = std::process::id();
    let refused = |what: String| refusal(process, what);
    let system = |cause: std::io::Error| refused(format!("cannot be placed: {cause}"));
    let (mut answer, report) = std::io::pipe().map_err(system)?;
    let parent = rustix::process::getpid();
    let child = fork(move || {
        // If the parent has ended already, there is nothing to place.
        let tied = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if tied.is_err() || rustix::process::getppid() != Some(parent) {
            return;
        }
        if let Some(cpus) = &location.cpus {
            avoid(&RunningKernel, std::process::id(), cpus);
        }
        let placed = wait_until_asleep(&RunningKernel, process, ASLEEP_LIMIT)
            .and_then(|()| place_process(process, location));
        let placed = match placed {
            Ok(placed) => placed.into_iter().find_map(|thread| thread.refused),
            Err(error) => Some(Finding::new(
                Severity::Error,
                format!("process {process}"),
                error.to_string(),
            )),
        };
        if let Ok(text) = serde_json::to_vec(&placed) {
            // If the parent has ended, nobody reads the answer.
            let _ = (&report).write_all(&text);
        }
    })
    .map_err(system)?;
    let mut ready = [PollFd::from_borrowed_fd(answer.as_fd(), PollFlags::IN)];
    let limit = Timespec {
        tv_sec: LIMIT.as_secs().cast_signed(),
        tv_nsec: 0,
    };
    let is_ready = loop {
        match poll(&mut ready, Some(&limit)) {
            Err(rustix::io::Errno::INTR) => (),
            count => break count.is_ok_and(|count| count > 0),
        }
    };
    if !is_ready {
        // A child that waits for a lock of the kernel may not end, so it is not waited for.
        let _ = rustix::process::kill_process(child, Signal::KILL);
        return Err(refused(format!(
            "it could not be placed within {} s, because the kernel's locks of control groups are held",
            LIMIT.as_secs()
        )));
    }
    let mut text = Vec::new();
    let read = answer.read_to_end(&mut text);
    // Its end is certain: the pipe is closed.
    let _ = rustix::process::waitpid(Some(child), WaitOptions::empty());
    read.map_err(system)?;
    match serde_json::from_slice::<Option<Finding>>(&text) {
        Ok(None) => Ok(()),
        Ok(Some(finding)) => Err(HostError::Refused(Box::new(finding))),
        Err(_) => Err(refused("the child that places it has ended".to_owned())),
    }
}

fn refusal(process: u32, what: String) -> HostError {
    let finding = Finding::new(Severity::Error, format!("process {process}"), what);
    HostError::Refused(Box::new(
        finding.fix("see what keeps the CPUs busy: top -H"),
    ))
}

/// Waits until all threads of a process sleep. A thread that runs could be inside a system call, with locks that it keeps
/// if its new CPU never runs it.
fn wait_until_asleep(kernel: &dyn Kernel, process: u32, limit: Duration) -> Result<(), HostError> {
    let begin = Instant::now();
    let sleeps = |thread: &u32| {
        tasks::stat_of(kernel, *thread).is_none_or(|stat| stat.state == 'S' || stat.is_gone())
    };
    while !tasks::threads_of(kernel, process).iter().all(sleeps) {
        if begin.elapsed() >= limit {
            let what = format!(
                "it could not be placed, because a thread of it did not sleep within {} s",
                limit.as_secs()
            );
            return Err(refusal(process, what));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Moves a thread to CPUs that programs share, and away from those that another thread may keep. If it may use no
/// others, because the caller is inside, nothing that runs there interrupts it.
fn avoid(kernel: &dyn Kernel, thread: u32, cpus: &CpuSet) {
    let of = |thread| kernel.affinity(thread).unwrap_or_default();
    // Process 1 stays outside of every isolation.
    let shared = of(1);
    let outside = match shared.difference(cpus) {
        none if none.is_empty() => shared,
        outside => outside,
    };
    let is_outside = [outside, of(thread).difference(cpus)]
        .iter()
        .any(|others| !others.is_empty() && kernel.set_affinity(thread, others).is_ok());
    if !is_outside {
        // Without the privilege, the placement is refused too.
        let _ = set_thread_policy(thread, SchedulingPolicy::Fifo(99));
    }
}

/// Runs `work` in a child with a copy of this process's memory. Returns the child.
#[expect(
    unsafe_code,
    reason = "the standard library starts no child without a program"
)]
fn fork(work: impl FnOnce()) -> std::io::Result<Pid> {
    // SAFETY: the child has the calling thread alone. `work` takes no lock that another thread may have held: it uses
    // system calls and the allocator, which glibc and musl keep usable in the child, but neither the environment nor a
    // standard stream. It ends by _exit, so no destructor or exit handler of the parent runs twice.
    match unsafe { libc::fork() } {
        0 => {
            let _ = catch_unwind(AssertUnwindSafe(work));
            // SAFETY: the call ends the process and does not return.
            unsafe { libc::_exit(0) }
        }
        child => Pid::from_raw(child)
            .filter(|_| child > 0)
            .ok_or_else(std::io::Error::last_os_error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, Machine};

    #[test]
    fn the_child_stays_on_cpus_that_programs_share() {
        for (first, own, target, expected) in [
            ("0-3", "0-3", "3", "0-2"),
            // CPUs 2 and 3 are isolated; the target is housekeeping.
            ("0-1", "0-3", "0-1", "0-1"),
            ("0-1", "0-3", "2", "0-1"),
        ] {
            let mut machine = Machine::new(4, Layout::V2);
            let set = |cpus: &str| Some(cpus.parse().expect("CPUs"));
            machine.add_thread(1, false, set(first));
            machine.add_thread(10, false, set(own));
            let kernel = FakeKernel::new(machine);
            avoid(&kernel, 10, &target.parse().expect("CPUs"));
            let after = kernel.affinity(10).expect("affinity").to_string();
            assert_eq!(after, expected, "{first} {own} {target}");
        }
    }

    #[test]
    fn a_process_is_placed_when_all_its_threads_sleep() {
        let mut busy = std::process::Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .expect("sh");
        let kernel = &RunningKernel;
        let refused = wait_until_asleep(kernel, busy.id(), Duration::from_millis(50));
        rustix::process::kill_process(Pid::from_child(&busy), Signal::KILL).expect("killed");
        assert!(refused.is_err(), "it never sleeps");
        // It is a zombie now.
        wait_until_asleep(kernel, busy.id(), ASLEEP_LIMIT).expect("it has ended");
        busy.wait().expect("ended");
        let mut sleeping = std::process::Command::new("sleep")
            .arg("600")
            .spawn()
            .expect("sleep");
        let slept = wait_until_asleep(kernel, sleeping.id(), ASLEEP_LIMIT);
        sleeping
            .kill()
            .and_then(|()| sleeping.wait())
            .expect("ended");
        slept.expect("it sleeps");
    }
}
