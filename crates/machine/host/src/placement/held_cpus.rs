// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that keep a CPU for themselves.

use std::time::{Duration, Instant};

use rampart_model::{CpuId, CpuSet, Finding, SchedulingPolicy, Severity};

use crate::MachineRoot;
use crate::facts::runs_time_sharing_threads;
use crate::kernel::RunningKernel;
use crate::tasks::{self, TaskStat};

/// Time in which the CPU time of candidates is measured. `/proc` counts in ticks of 10 ms.
const OBSERVED: Duration = Duration::from_millis(200);
/// Share of a CPU, in percent, from which on a thread is reported.
const REPORTED: u64 = 50;
/// Share of a CPU, in percent, from which on a thread never sleeps.
const WHOLE: u64 = 90;

/// A real-time thread that used most of a CPU while it was observed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    cpu: CpuId,
    thread: u32,
    name: String,
    policy: SchedulingPolicy,
    percent: u64,
}

/// Returns warnings about the real-time threads that keep some of these CPUs. Observes them for a fifth of a second if
/// there are any.
///
/// # Errors
/// If a thread with this policy would never run, because such threads keep all of the CPUs.
pub fn check_that_cpus_are_free(
    cpus: &CpuSet,
    policy: SchedulingPolicy,
) -> Result<Vec<Finding>, Finding> {
    let holders = holders(cpus);
    if holders.is_empty() {
        return Ok(Vec::new());
    }
    let time_is_shared = runs_time_sharing_threads(&MachineRoot::system()) || stalld_runs();
    judge(cpus, policy, &holders, time_is_shared)
}

fn judge(
    cpus: &CpuSet,
    policy: SchedulingPolicy,
    holders: &[Holder],
    time_is_shared: bool,
) -> Result<Vec<Finding>, Finding> {
    let finding = |holder: &Holder, severity, what: &str| {
        let Holder {
            cpu,
            thread,
            name,
            policy,
            percent,
        } = holder;
        Finding::new(
            severity,
            format!("CPU {cpu}"),
            format!("{what}CPU {cpu} belongs to {name} ({thread}), {policy}, {percent} %"),
        )
    };
    let never = |holder: &&Holder| {
        holder.percent >= WHOLE && is_never_run(policy, holder.policy, time_is_shared)
    };
    let closed: CpuSet = holders
        .iter()
        .filter(never)
        .map(|holder| holder.cpu)
        .collect();
    if let Some(holder) = holders
        .iter()
        .find(never)
        .filter(|_| cpus.is_subset(&closed))
    {
        let above = match holder.policy.precedence() {
            99.. => String::new(),
            priority => format!("--policy fifo:{}\n", priority.saturating_add(1)),
        };
        let what = format!("a thread with policy {policy} would never run there: ");
        return Err(finding(holder, Severity::Error, &what).fix(format!(
            "{above}end thread {}, or let it sleep",
            holder.thread
        )));
    }
    Ok(holders
        .iter()
        .filter(|holder| policy.precedence() <= holder.policy.precedence())
        .map(|holder| finding(holder, Severity::Warning, ""))
        .collect())
}

/// Returns whether a thread never runs beside one that never sleeps (sched(7)). Throttling and the fair server let
/// only time-sharing threads run.
fn is_never_run(policy: SchedulingPolicy, holder: SchedulingPolicy, time_is_shared: bool) -> bool {
    match policy {
        SchedulingPolicy::Other => !time_is_shared,
        // A thread of the policy `rr` lets others of its priority run.
        _ if policy.precedence() == holder.precedence() => {
            matches!(holder, SchedulingPolicy::Fifo(_))
        }
        _ => policy.precedence() < holder.precedence(),
    }
}

fn stalld_runs() -> bool {
    let kernel = &RunningKernel;
    let named = |process| tasks::stat_of(kernel, process).is_some_and(|stat| stat.name == "stalld");
    tasks::processes(kernel).into_iter().any(named)
}

fn holders(cpus: &CpuSet) -> Vec<Holder> {
    let kernel = &RunningKernel;
    let candidates: Vec<(u32, CpuId, TaskStat, Instant)> = tasks::processes(kernel)
        .into_iter()
        .flat_map(|process| tasks::threads_of(kernel, process))
        .filter_map(|thread| {
            let stat = tasks::stat_of(kernel, thread)?;
            let cpu = stat.cpu.filter(|cpu| cpus.contains(*cpu))?;
            let is_candidate = stat.state == 'R'
                && !stat.is_kernel_thread()
                // A deadline thread has a share that the kernel limits.
                && matches!(stat.policy?, SchedulingPolicy::Fifo(_) | SchedulingPolicy::RoundRobin(_));
            is_candidate.then(|| (thread, cpu, stat, Instant::now()))
        })
        .collect();
    if candidates.is_empty() {
        return Vec::new();
    }
    std::thread::sleep(OBSERVED);
    let per_second = rustix::param::clock_ticks_per_second();
    candidates
        .into_iter()
        .filter_map(|(thread, cpu, before, begin)| {
            let after = tasks::stat_of(kernel, thread)?;
            let is_same = after.start == before.start && after.cpu == Some(cpu);
            let used = after.ticks.saturating_sub(before.ticks);
            let milliseconds = u64::try_from(begin.elapsed().as_millis()).ok()?;
            let whole = milliseconds.saturating_mul(per_second).max(1);
            let percent = (used.saturating_mul(100_000) / whole).min(100);
            (is_same && percent >= REPORTED).then_some(Holder {
                cpu,
                thread,
                name: after.name,
                policy: before.policy?,
                percent,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(cpu: u32, policy: SchedulingPolicy, percent: u64) -> Holder {
        Holder {
            cpu: CpuId(cpu),
            thread: 4711,
            name: "sh".to_owned(),
            policy,
            percent,
        }
    }

    #[test]
    fn refuses_a_thread_that_would_never_run() {
        use SchedulingPolicy::{Fifo, Other, RoundRobin};
        let deadline = SchedulingPolicy::Deadline {
            runtime: rampart_model::Nanos(1),
            deadline: rampart_model::Nanos(2),
            period: rampart_model::Nanos(2),
        };
        let cpu = CpuSet::single(CpuId(3));
        for (policy, holds, percent, time_is_shared, is_refused, warnings) in [
            (Other, Fifo(10), 100, false, true, 0),
            (Other, Fifo(10), 100, true, false, 1),
            // It sleeps at times.
            (Other, Fifo(10), 60, false, false, 1),
            (Fifo(9), Fifo(10), 100, true, true, 0),
            (Fifo(10), Fifo(10), 100, true, true, 0),
            (RoundRobin(10), Fifo(10), 100, true, true, 0),
            (Fifo(10), RoundRobin(10), 100, false, false, 1),
            (Fifo(11), Fifo(10), 100, false, false, 0),
            (deadline, Fifo(99), 100, false, false, 0),
        ] {
            let answer = judge(&cpu, policy, &[holder(3, holds, percent)], time_is_shared);
            let case = format!("{policy} beside {holds}, {percent} %: {answer:?}");
            assert_eq!(answer.is_err(), is_refused, "{case}");
            assert_eq!(answer.map_or(0, |found| found.len()), warnings, "{case}");
        }
        let refused = judge(&cpu, Other, &[holder(3, Fifo(10), 100)], false);
        let refused = refused.expect_err("refused").to_string();
        assert!(
            refused.contains("CPU 3 belongs to sh (4711), fifo:10, 100 %"),
            "{refused}"
        );
        assert!(refused.contains("--policy fifo:11"), "{refused}");
    }

    #[test]
    fn a_free_cpu_is_enough() {
        let two: CpuSet = "2-3".parse().expect("CPUs");
        let held = [holder(3, SchedulingPolicy::Fifo(99), 100)];
        let found = judge(&two, SchedulingPolicy::Other, &held, false).expect("CPU 2 is free");
        assert_eq!(found.len(), 1, "{found:?}");
        let held = [held[0].clone(), holder(2, SchedulingPolicy::Fifo(99), 100)];
        let refused = judge(&two, SchedulingPolicy::Other, &held, false).expect_err("all are kept");
        assert!(!refused.to_string().contains("--policy"), "{refused}");
    }
}
