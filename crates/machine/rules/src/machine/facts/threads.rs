// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Facts about threads of programs, and the scheduler that they run under.

use std::collections::BTreeSet;

use rampart_model::{CheckLocation, CpuId, Machine, SchedulingPolicy, plural};

use super::cpus::isolated;
use super::{Judgement, deviations, first_words};
use crate::{Isolation, ProgramThreadReading, Readings, Unread};

fn is_real_time(thread: &ProgramThreadReading) -> bool {
    thread
        .policy
        .is_some_and(|policy| policy != SchedulingPolicy::Other)
}

/// Judges programs that may use both real-time and other CPUs: under a real-time policy always, under the ordinary one
/// where the real-time CPUs are isolated, since otherwise it follows from `scheduler-isolation`. The first process has a
/// rule of its own.
pub(super) fn affinity(machine: &Machine, readings: &Readings, isolation: &Isolation) -> Judgement {
    let Some(threads) = &readings.program_threads else {
        return Judgement::Unread(Unread::KernelThreads);
    };
    let is_isolated = isolation.real_time.is_subset(&isolated(machine, readings));
    let mut reported = BTreeSet::new();
    let mut found = Vec::new();
    for thread in threads.iter().filter(|thread| thread.process != 1) {
        let reaches = !thread
            .affinity
            .intersection(&isolation.real_time)
            .is_empty()
            && !thread.affinity.is_subset(&isolation.real_time);
        if reaches && (is_isolated || is_real_time(thread)) && reported.insert(thread.process) {
            let of_process = threads
                .iter()
                .find(|one| one.thread == thread.process)
                .unwrap_or(thread);
            let policy = match thread.policy {
                Some(policy) if is_real_time(thread) => format!(", {policy}"),
                _ => String::new(),
            };
            found.push((
                format!("process {} ({})", thread.process, of_process.name),
                format!(
                    "{} may run on {}{policy}",
                    thread.name,
                    thread.affinity.named()
                ),
            ));
        }
    }
    deviations(
        found.into_iter(),
        "no program may run on real-time and on other CPUs",
        &format!("within {}", isolation.housekeeping),
    )
}

/// Judges real-time threads whose affinity is several real-time CPUs. The fix gives each the CPU that the fewest
/// threads are bound to.
pub(super) fn floating(readings: &Readings, isolation: &Isolation) -> Judgement {
    let Some(threads) = &readings.program_threads else {
        return Judgement::Unread(Unread::KernelThreads);
    };
    let on_real_time = || {
        threads
            .iter()
            .filter(|thread| is_real_time(thread))
            .filter(|thread| thread.affinity.is_subset(&isolation.real_time))
    };
    let mut bound: Vec<CpuId> = on_real_time()
        .filter(|thread| thread.affinity.len() == 1)
        .filter_map(|thread| thread.affinity.iter().next())
        .collect();
    let mut locations = Vec::new();
    for thread in on_real_time().filter(|thread| thread.affinity.len() > 1) {
        let count = |cpu: &CpuId| bound.iter().filter(|one| *one == cpu).count();
        let Some(cpu) = thread.affinity.iter().min_by_key(|cpu| (count(cpu), *cpu)) else {
            continue;
        };
        bound.push(cpu);
        locations.push(CheckLocation {
            location: format!("thread {} ({})", thread.thread, thread.name),
            found: thread.affinity.named().to_string(),
            expected: cpu.to_string(),
            satisfied: Some(false),
        });
    }
    if locations.is_empty() {
        return Judgement::is("none", true);
    }
    let names = locations
        .iter()
        .filter_map(|one| one.location.strip_prefix("thread "));
    Judgement::Is {
        found: format!(
            "{}: {}",
            plural(locations.len(), "thread"),
            first_words(names)
        ),
        satisfied: Some(false),
        locations,
    }
}

/// Judges whether a scheduler of sched_ext runs ordinary threads (Documentation/scheduler/sched-ext.rst).
pub(super) fn extensible_scheduler(readings: &Readings) -> Judgement {
    let Some(state) = readings.value("/sys/kernel/sched_ext/state") else {
        return Judgement::not_applicable("the kernel has no sched_ext");
    };
    if state == "disabled" {
        return Judgement::is("none", true);
    }
    const OPERATIONS: &str = "/sys/kernel/sched_ext/root/ops";
    let name = readings.value(OPERATIONS).unwrap_or("an unnamed scheduler");
    let programs = readings.programs.iter().flatten();
    let mut locations: Vec<CheckLocation> = programs
        .filter(|program| program.starts_with("scx_"))
        .map(|program| CheckLocation {
            location: format!("{OPERATIONS} ({program})"),
            found: name.to_owned(),
            expected: "disabled".to_owned(),
            satisfied: Some(false),
        })
        .collect();
    if locations.is_empty() {
        locations.push(CheckLocation {
            location: OPERATIONS.to_owned(),
            found: name.to_owned(),
            expected: "disabled".to_owned(),
            satisfied: Some(false),
        });
    }
    Judgement::Is {
        found: format!("{name} is {state}"),
        satisfied: Some(false),
        locations,
    }
}
