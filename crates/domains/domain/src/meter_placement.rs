// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Gives the threads of a meter their CPU and policy from outside, so that the meter itself
//! needs no privilege.

use std::io;

use rampart_model::{CpuId, CpuSet, Finding, SchedulingPolicy, Severity};
use rustix::process::Pid;
use rustix::thread::CpuSet as KernelCpuSet;

use crate::DomainError;
use crate::process_settings::{self, Thread};

/// The threads of a meter that waits for its start, told apart by their names.
#[derive(Debug)]
pub(crate) struct MeterThreads {
    /// The measuring threads.
    pub(crate) measuring: Vec<(CpuId, Thread)>,
    /// All others.
    pub(crate) others: Vec<Thread>,
}

/// The name of the measuring thread of `cpu`; the meter gives it, [`rampart_model::ThreadReady`].
pub(crate) fn thread_name(cpu: CpuId) -> String {
    format!("meter/{cpu}")
}

/// Finds the threads of the meter `process`, which has said that it is ready.
pub(crate) fn find_threads(process: u32, cpus: &CpuSet) -> Result<MeterThreads, DomainError> {
    let (mut measuring, mut others) = (Vec::new(), Vec::new());
    for thread in process_settings::threads(process) {
        match cpus.iter().find(|cpu| thread_name(*cpu) == thread.name) {
            Some(cpu) => measuring.push((cpu, thread)),
            None => others.push(thread),
        }
    }
    for cpu in cpus.iter() {
        let found = measuring.iter().filter(|(other, _)| *other == cpu).count();
        if found != 1 {
            return Err(not_placed(
                process,
                Finding::new(
                    Severity::Error,
                    format!("process {process}"),
                    format!("the measuring thread of CPU {cpu} is not to be found"),
                )
                .values(
                    format!("{found} threads named `{}`", thread_name(cpu)),
                    "exactly one",
                ),
            ));
        }
    }
    Ok(MeterThreads { measuring, others })
}

/// Binds a thread to CPUs.
pub(crate) fn bind(process: u32, thread: &Thread, cpus: &CpuSet) -> Result<(), DomainError> {
    let mut set = KernelCpuSet::new();
    for cpu in cpus.iter() {
        // CPUs past the size of the kernel's fixed set cannot be named in it; what is left out
        // is found when the meter verifies its placement.
        if (cpu.0 as usize) < KernelCpuSet::MAX_CPU {
            set.set(cpu.0 as usize);
        }
    }
    let result = match pid(thread.id) {
        Some(id) => rustix::thread::sched_setaffinity(Some(id), &set).map_err(io::Error::from),
        None => Err(io::ErrorKind::InvalidInput.into()),
    };
    result.map_err(|cause| {
        let present = affinity(thread.id).map_or_else(|| "unknown CPUs".to_owned(), |set| set.named().to_string());
        not_placed(
            process,
            Finding::new(
                Severity::Error,
                format!("thread {} (`{}`)", thread.id, thread.name),
                format!("cannot be bound to {}: {cause}", cpus.named()),
            )
            .values(present, cpus.named().to_string())
            .fix("choose CPUs that are online and inside the cpuset of this shell, `cat /proc/self/status | grep Cpus_allowed_list`"),
        )
    })
}

/// The affinity of a thread; none where it is gone.
pub(crate) fn affinity(thread: u32) -> Option<CpuSet> {
    let set = rustix::thread::sched_getaffinity(Some(pid(thread)?)).ok()?;
    Some(
        (0..KernelCpuSet::MAX_CPU as u32)
            .filter(|cpu| set.is_set(*cpu as usize))
            .map(CpuId)
            .collect(),
    )
}

/// Gives a thread its policy.
pub(crate) fn schedule(
    process: u32,
    thread: &Thread,
    policy: SchedulingPolicy,
) -> Result<(), DomainError> {
    rampart_host::set_thread_policy(thread.id, policy).map_err(|cause| {
        let location = format!("thread {} (`{}`)", thread.id, thread.name);
        let diagnosis = (cause.raw_os_error() == Some(libc::EPERM) && policy.is_real_time())
            .then(|| rampart_host::diagnose_real_time_policy(thread.id))
            .flatten();
        let finding = diagnosis.unwrap_or_else(|| {
            let finding = Finding::new(
                Severity::Error,
                location,
                format!("cannot be given the policy {policy}: {cause}"),
            );
            match policy {
                // kernel/sched/syscalls.c: a deadline task's affinity must cover its whole root
                // domain, so that it cannot be bound within a larger one.
                SchedulingPolicy::Deadline { .. } => finding.fix(
                    "measure one CPU, shielded by a cpuset or partition of its own, or take fifo:80; as root, or with CAP_SYS_NICE",
                ),
                _ => finding.fix("run `rampart` as root, or with CAP_SYS_NICE"),
            }
        });
        not_placed(process, finding)
    })
}

/// The policy of a thread; none where it is gone.
pub(crate) fn policy(thread: u32) -> Option<SchedulingPolicy> {
    rampart_host::thread_policy(thread).ok()
}

pub(crate) fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}

fn not_placed(process: u32, finding: Finding) -> DomainError {
    DomainError::NotPlaced {
        process,
        finding: Box::new(finding),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_thread_is_found_by_name_and_bound() {
        let (go, wait) = channel::<()>();
        let (named, name_set) = channel();
        let thread = std::thread::Builder::new()
            .name(thread_name(CpuId(0)))
            .spawn(move || {
                named.send(()).expect("send");
                let _ = wait.recv();
            })
            .expect("thread");
        name_set.recv().expect("receive");
        let this = std::process::id();
        let cpu = CpuSet::single(CpuId(0));
        let found = find_threads(this, &cpu).expect("threads");
        assert!(!found.others.is_empty());
        let (_, measuring) = &found.measuring[0];
        bind(this, measuring, &cpu).expect("bind");
        assert_eq!(affinity(measuring.id), Some(cpu));
        schedule(this, measuring, SchedulingPolicy::Other).expect("policy");
        assert_eq!(policy(measuring.id), Some(SchedulingPolicy::Other));
        assert_eq!(policy(u32::MAX), None);
        drop(go);
        thread.join().expect("join");
    }

    #[test]
    fn a_missing_thread_is_named() {
        let error = find_threads(std::process::id(), &CpuSet::single(CpuId(4001)));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("meter/4001"), "{message}");
    }

    #[test]
    fn an_offline_cpu_is_refused_with_its_mend() {
        let this = Thread {
            id: std::process::id(),
            name: "test".to_owned(),
        };
        let error = bind(this.id, &this, &CpuSet::single(CpuId(1000)));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("fix"), "{message}");
    }
}
