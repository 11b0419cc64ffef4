// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sets CPU and policy of a meter's threads from outside, so that the meter needs no privilege.

use std::io;

use rampart_model::{CpuId, CpuSet, Finding, SchedulingPolicy, Severity};
use rustix::process::Pid;
use rustix::thread::CpuSet as KernelCpuSet;

use crate::DomainError;
use crate::process_settings::{self, Thread};

/// The threads of a prepared meter, identified by their names.
#[derive(Debug)]
pub(crate) struct MeterThreads {
    /// The measuring threads.
    pub(crate) measuring: Vec<(CpuId, Thread)>,
    /// All others.
    pub(crate) others: Vec<Thread>,
}

/// Start of the names of measuring threads.
pub(crate) const THREAD_NAME: &str = "meter/";

/// Returns the name of the measuring thread of `cpu` ([`rampart_model::ThreadReady`]).
pub(crate) fn thread_name(cpu: CpuId) -> String {
    format!("{THREAD_NAME}{cpu}")
}

/// Finds the threads of the prepared meter `process`.
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
                    format!("the measuring thread of CPU {cpu} does not exist"),
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
        // The kernel's fixed set cannot name CPUs beyond its size; the meter finds such a
        // difference when it verifies its placement.
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
                format!("cannot bind it to {}: {cause}", cpus.named()),
            )
            .values(present, cpus.named().to_string())
            .fix("choose online CPUs in the cpuset of this shell: grep Cpus_allowed_list /proc/self/status"),
        )
    })
}

/// Returns the affinity of a thread, or `None` if it has ended.
pub(crate) fn affinity(thread: u32) -> Option<CpuSet> {
    let set = rustix::thread::sched_getaffinity(Some(pid(thread)?)).ok()?;
    Some(
        (0..KernelCpuSet::MAX_CPU as u32)
            .filter(|cpu| set.is_set(*cpu as usize))
            .map(CpuId)
            .collect(),
    )
}

/// Sets the policy of a thread.
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
                format!("cannot set the policy {policy}: {cause}"),
            );
            match policy {
                // kernel/sched/syscalls.c: a deadline task's affinity must cover its root domain,
                // so it cannot be bound within a larger one.
                SchedulingPolicy::Deadline { .. } => finding.fix(
                    "measure one CPU, in a cpuset or partition of its own, as root or with CAP_SYS_NICE\nuse fifo:80",
                ),
                _ => finding.fix("run `rampart` as root, or with CAP_SYS_NICE"),
            }
        });
        not_placed(process, finding)
    })
}

/// Returns the policy of a thread, or `None` if it has ended.
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
    fn finds_a_thread_by_name_and_binds_it() {
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
    fn names_a_missing_thread() {
        let error = find_threads(std::process::id(), &CpuSet::single(CpuId(4001)));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("meter/4001"), "{message}");
    }

    #[test]
    fn refuses_an_offline_cpu_with_a_fix() {
        let this = Thread {
            id: std::process::id(),
            name: "test".to_owned(),
        };
        let error = bind(this.id, &this, &CpuSet::single(CpuId(1000)));
        let message = error.expect_err("must fail").to_string();
        assert!(message.contains("fix"), "{message}");
    }
}
