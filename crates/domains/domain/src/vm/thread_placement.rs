// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Places every thread of QEMU: each virtual CPU on its own CPU, all others on the housekeeping
//! CPUs.

use std::collections::BTreeSet;
use std::fs;

use rampart_model::{
    CpuSet, Finding, GuestThread, GuestThreadRole, Nanos, SchedulingPolicy, Severity,
};
use rampart_qemu::QmpMonitor;
use serde_json::{Value, json};

use super::description::Description;
use crate::process_settings::{self, Thread};
use crate::shielded_process::Environment;
use crate::{DomainError, meter_placement};

/// The threads of a guest's program.
#[derive(Debug)]
pub(super) struct GuestThreads {
    process: u32,
    /// The thread of each virtual CPU, by the CPU's number.
    virtual_cpus: Vec<u32>,
    /// Threads that are placed already.
    placed: BTreeSet<u32>,
}

/// The placement of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GuestThreadPlacement {
    pub(super) role: GuestThreadRole,
    pub(super) cpus: CpuSet,
    pub(super) policy: SchedulingPolicy,
    /// Whether its CPUs are isolated.
    pub(super) inside: bool,
}

/// Returns the placement of a thread. Pure.
pub(super) fn place(
    thread: u32,
    virtual_cpus: &[u32],
    guest: &Description,
) -> GuestThreadPlacement {
    let number = virtual_cpus.iter().position(|other| *other == thread);
    match number.and_then(|number| Some((u32::try_from(number).ok()?, guest.cpus.get(number)?))) {
        Some((number, cpu)) => GuestThreadPlacement {
            role: GuestThreadRole::VirtualCpu(number),
            cpus: cpu.cpus.clone(),
            policy: cpu.policy,
            inside: cpu.cpus.intersection(&guest.housekeeping).is_empty(),
        },
        None => GuestThreadPlacement {
            role: GuestThreadRole::Other,
            cpus: guest.emulator.clone(),
            policy: SchedulingPolicy::Other,
            inside: false,
        },
    }
}

impl GuestThreads {
    /// Asks QEMU for the threads of its virtual CPUs. With `-S` they exist before the guest runs.
    pub(super) fn ask(qmp: &QmpMonitor, process: u32) -> Result<Self, DomainError> {
        let answer = qmp.execute("query-cpus-fast", json!({}))?;
        Ok(Self {
            process,
            virtual_cpus: threads_in(&answer),
            placed: BTreeSet::new(),
        })
    }

    /// Returns the thread of the last virtual CPU, which is real-time if any is.
    pub(super) fn measuring(&self) -> u32 {
        self.virtual_cpus.last().copied().unwrap_or(self.process)
    }

    /// Returns the threads of all virtual CPUs.
    pub(super) fn virtual_cpus(&self) -> &[u32] {
        &self.virtual_cpus
    }

    /// Returns the CPU time of all virtual CPUs, as the host counts it.
    pub(super) fn cpu_time(&self) -> Nanos {
        self.virtual_cpus
            .iter()
            .filter_map(|thread| process_settings::cpu_time(self.process, *thread))
            .sum()
    }

    /// Returns the thread of the first virtual CPU, which boots.
    pub(super) fn first(&self) -> u32 {
        self.virtual_cpus.first().copied().unwrap_or(self.process)
    }

    /// Places every thread: the process into the shield, the threads for other CPUs out of it, then
    /// affinities and policies. Policies come after groups, because a group without a budget
    /// refuses a real-time thread.
    pub(super) fn put(
        &mut self,
        guest: &Description,
        environment: &mut Environment,
    ) -> Result<(), DomainError> {
        self.placed.clear();
        environment.admit(self.process)?;
        if guest.cpus.iter().any(|cpu| cpu.policy.is_real_time()) {
            environment.grant_budget(self.process)?;
        }
        let shares = self.put_new(guest, environment)?;
        if shares {
            environment.note(
                Finding::new(
                    Severity::Warning,
                    format!("process {}", self.process),
                    "the guest's emulator threads share the real-time CPUs, because cgroup v2 keeps all threads of this process together",
                )
                .values("the real-time CPUs", "the housekeeping CPUs"),
            );
        }
        for helper in kernel_helpers(self.process) {
            // They are in the kernel's own group; the report shows what it refuses.
            let _ = meter_placement::bind(self.process, &helper, &guest.emulator);
        }
        Ok(())
    }

    /// Removes real-time policies: the budget of a control group cannot be removed while it has a
    /// thread of such a policy (kernel/sched/rt.c).
    pub(super) fn rest(&self) -> Result<(), DomainError> {
        for thread in process_settings::threads(self.process) {
            if self.virtual_cpus.contains(&thread.id) {
                meter_placement::schedule(self.process, &thread, SchedulingPolicy::Other)?;
            }
        }
        Ok(())
    }

    /// Places threads that were created since the last call. Returns whether a thread that belongs
    /// outside had to stay inside.
    pub(super) fn put_new(
        &mut self,
        guest: &Description,
        environment: &Environment,
    ) -> Result<bool, DomainError> {
        let mut shares = false;
        for thread in process_settings::threads(self.process) {
            if self.placed.contains(&thread.id) {
                continue;
            }
            let location = place(thread.id, &self.virtual_cpus, guest);
            match self.put_one(&thread, &location, environment) {
                Ok(out) => shares |= !location.inside && !out,
                // A worker may end meanwhile.
                Err(_) if !exists(self.process, thread.id) => continue,
                Err(error) => return Err(error),
            }
            self.placed.insert(thread.id);
        }
        Ok(shares)
    }

    /// Returns whether the thread is outside the shield.
    fn put_one(
        &self,
        thread: &Thread,
        location: &GuestThreadPlacement,
        environment: &Environment,
    ) -> Result<bool, DomainError> {
        let out = if location.inside {
            meter_placement::bind(self.process, thread, &location.cpus)?;
            false
        } else {
            environment.move_outside(self.process, thread, &location.cpus)?
        };
        // A thread inherits the policy of a real-time thread that created it.
        if meter_placement::policy(thread.id) != Some(location.policy) {
            meter_placement::schedule(self.process, thread, location.policy)?;
        }
        Ok(out)
    }

    /// Returns every thread with its settings in the kernel.
    pub(super) fn report(&self) -> Vec<GuestThread> {
        process_settings::threads(self.process)
            .into_iter()
            .chain(kernel_helpers(self.process))
            .filter_map(|thread| {
                let number = self
                    .virtual_cpus
                    .iter()
                    .position(|other| *other == thread.id);
                Some(GuestThread {
                    cpus: meter_placement::affinity(thread.id)?,
                    policy: meter_placement::policy(thread.id)?,
                    role: match number.and_then(|number| u32::try_from(number).ok()) {
                        Some(number) => GuestThreadRole::VirtualCpu(number),
                        None => GuestThreadRole::Other,
                    },
                    thread: thread.id,
                    name: thread.name,
                })
            })
            .collect()
    }
}

pub(super) fn exists(process: u32, thread: u32) -> bool {
    fs::exists(format!("/proc/{process}/task/{thread}")).unwrap_or(false)
}

/// Returns `thread-id` of each CPU in the answer to `query-cpus-fast`, by `cpu-index`.
pub(super) fn threads_in(answer: &Value) -> Vec<u32> {
    let mut found: Vec<(u64, u32)> = answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|cpu| {
            let thread = u32::try_from(cpu.get("thread-id")?.as_u64()?).ok()?;
            Some((cpu.get("cpu-index")?.as_u64()?, thread))
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, thread)| thread).collect()
}

/// Returns the kernel threads that work for the guest of a process: `vhost-PID` (before Linux 6.4;
/// threads of the process since then) and `kvm-pit/PID`.
pub(super) fn kernel_helpers(process: u32) -> Vec<Thread> {
    let names = [format!("vhost-{process}"), format!("kvm-pit/{process}")];
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            let name = name.trim_end().to_owned();
            names.contains(&name).then_some(Thread { id, name })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use rampart_model::Accelerator;

    use super::super::description::Board;
    use super::super::description::tests::{example, set};
    use super::*;

    #[test]
    fn reads_threads_in_the_order_of_the_cpus() {
        let answer = json!([
            {"thread-id": 12, "cpu-index": 1, "target": "x86_64"},
            {"thread-id": 11, "cpu-index": 0},
            {"cpu-index": 7},
        ]);
        assert_eq!(threads_in(&answer), [11, 12]);
        assert!(threads_in(&json!({"error": 1})).is_empty());
    }

    #[test]
    fn places_threads_by_their_work() {
        let guest = example(Accelerator::Kvm, Board::Microvm);
        let virtual_cpus = [11, 12, 13];
        let first = place(11, &virtual_cpus, &guest);
        assert_eq!((first.cpus, first.inside), (set("0"), false));
        assert_eq!(first.policy, SchedulingPolicy::Other);
        let second = place(12, &virtual_cpus, &guest);
        assert_eq!((second.cpus, second.inside), (set("2"), true));
        assert_eq!(second.policy, SchedulingPolicy::Fifo(1));
        assert_eq!(second.role, GuestThreadRole::VirtualCpu(1));
        let born_later = place(99, &virtual_cpus, &guest);
        assert_eq!((born_later.cpus, born_later.inside), (set("1"), false));
        assert_eq!(born_later.policy, SchedulingPolicy::Other);
        assert_eq!(born_later.role, GuestThreadRole::Other);
    }
}
