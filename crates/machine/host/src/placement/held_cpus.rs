// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Threads that keep a CPU for themselves.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{CpuId, CpuSet, Finding, SchedulingPolicy, Severity};

use crate::MachineRoot;
use crate::facts::runs_time_sharing_threads;
use crate::kernel::{Kernel, RunningKernel};
use crate::tasks;

/// Time in which a thread that keeps its CPU does not sleep. A control loop sleeps in each cycle.
const OBSERVED: Duration = Duration::from_secs(1);
/// Interval of the observations: threads that have slept need not be observed on.
const INTERVAL: Duration = Duration::from_millis(50);

/// A real-time thread that did not sleep while it was observed. Whatever it uses of the CPU, no thread of lower priority
/// gets any: throttling and threads above it take their parts from both.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder {
    cpu: CpuId,
    thread: u32,
    name: String,
    policy: SchedulingPolicy,
}

/// A thread that may keep its CPU, as it was first observed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    holder: Holder,
    /// Start time in clock ticks since boot.
    start: u64,
    /// Number of times that it gave up its CPU.
    sleeps: u64,
}

/// Returns warnings about the real-time threads of processes other than `process` that keep some of these CPUs. Observes
/// them for a second, or until each has slept.
///
/// # Errors
/// If a thread with this policy would never run, because such threads keep all of the CPUs.
pub fn check_that_cpus_are_free(
    process: u32,
    cpus: &CpuSet,
    policy: SchedulingPolicy,
) -> Result<Vec<Finding>, Finding> {
    let holders = holders(&RunningKernel, process, cpus);
    if holders.is_empty() {
        return Ok(Vec::new());
    }
    let time_is_shared = runs_time_sharing_threads(&MachineRoot::system()) || stalld_runs();
    judge(cpus, policy, &holders, time_is_shared)
}

/// CPUs that a real-time thread keeps: which, and the command that lets others run there.
#[derive(Debug)]
pub(crate) struct KeptCpus {
    pub(crate) what: String,
    pub(crate) fix: String,
}

/// Returns the first of these CPUs that a real-time thread keeps.
pub(crate) fn kept_cpus(kernel: &dyn Kernel, cpus: &CpuSet) -> Option<KeptCpus> {
    let holders = holders(kernel, 0, cpus);
    let first = holders.first()?;
    Some(KeptCpus {
        what: first.to_string(),
        fix: let_others_run(&holders, first.cpu),
    })
}

/// Returns the finding that a thread starves on a CPU that another keeps: it can hold a lock, or be within a section of
/// RCU, for which a move into another control group waits, and with it each start and end of a process.
pub(crate) fn starving_thread(kernel: &dyn Kernel) -> Option<Finding> {
    let everywhere = kernel
        .read(Path::new("/sys/devices/system/cpu/online"))
        .ok()?;
    let holders = holders(kernel, 0, &everywhere.trim().parse().ok()?);
    if holders.is_empty() || runs_time_sharing_threads(&MachineRoot::system()) || stalld_runs() {
        return None;
    }
    let runnable = |thread: u32| {
        let stat = tasks::stat_of(kernel, thread)?;
        let holder = holders.iter().find(|holder| Some(holder.cpu) == stat.cpu)?;
        let waits = stat.state == 'R'
            && !stat.is_kernel_thread()
            && stat.policy?.precedence() < holder.policy.precedence();
        waits.then_some((stat, holder))
    };
    let before: Vec<(u32, u64)> = tasks::processes(kernel)
        .into_iter()
        .flat_map(|process| tasks::threads_of(kernel, process))
        .filter_map(|thread| Some((thread, runnable(thread)?.0.ticks)))
        .collect();
    std::thread::sleep(INTERVAL);
    let (thread, stat, holder) = before.into_iter().find_map(|(thread, ticks)| {
        let (stat, holder) = runnable(thread)?;
        (stat.ticks == ticks).then_some((thread, stat, holder))
    })?;
    Some(
        Finding::new(
            Severity::Error,
            format!("CPU {}", holder.cpu),
            format!(
                "{} ({thread}) starves, because {holder}: a move into a control group could stop the machine",
                stat.name
            ),
        )
        .fix(let_others_run(&holders, holder.cpu)),
    )
}

/// Returns the command that lets other threads run on a CPU.
fn let_others_run(holders: &[Holder], cpu: CpuId) -> String {
    let on_cpu = holders.iter().filter(|holder| holder.cpu == cpu);
    let commands: Vec<String> = on_cpu
        .map(|holder| format!("chrt --other --pid 0 {}", holder.thread))
        .collect();
    commands.join(" && ")
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cpu,
            thread,
            name,
            policy,
        } = self;
        write!(
            f,
            "CPU {cpu} belongs to {name} ({thread}), {policy}, which does not sleep"
        )
    }
}

fn judge(
    cpus: &CpuSet,
    policy: SchedulingPolicy,
    holders: &[Holder],
    time_is_shared: bool,
) -> Result<Vec<Finding>, Finding> {
    let finding = |holder: &Holder, severity, what: &str| {
        Finding::new(
            severity,
            format!("CPU {}", holder.cpu),
            format!("{what}{holder}"),
        )
    };
    let never = |holder: &&Holder| is_never_run(policy, holder.policy, time_is_shared);
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
        let mut fix = let_others_run(holders, holder.cpu);
        let on_cpu = holders.iter().filter(|other| other.cpu == holder.cpu);
        let highest = on_cpu.map(|other| other.policy.precedence()).max();
        if let Some(above) = highest.filter(|highest| *highest < 99) {
            fix.push_str(&format!("\nchoose a policy above it: fifo:{}", above + 1));
        }
        let what = format!("a thread with policy {policy} would never run there: ");
        return Err(finding(holder, Severity::Error, &what).fix(fix));
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

/// Returns a thread that may keep one of these CPUs.
fn candidate(kernel: &dyn Kernel, thread: u32, cpus: &CpuSet) -> Option<Candidate> {
    let stat = tasks::stat_of(kernel, thread)?;
    let cpu = stat.cpu.filter(|cpu| cpus.contains(*cpu))?;
    // A deadline thread has a share that the kernel limits.
    let has_priority = matches!(
        stat.policy?,
        SchedulingPolicy::Fifo(_) | SchedulingPolicy::RoundRobin(_)
    );
    if stat.state != 'R' || stat.is_kernel_thread() || !has_priority {
        return None;
    }
    // proc_pid_status(5)
    let status = kernel.read(&PathBuf::from(format!("/proc/{thread}/status")));
    let sleeps = status
        .ok()?
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?
        .trim()
        .parse()
        .ok()?;
    Some(Candidate {
        holder: Holder {
            cpu,
            thread,
            policy: stat.policy?,
            name: stat.name,
        },
        start: stat.start,
        sleeps,
    })
}

fn holders(kernel: &dyn Kernel, process: u32, cpus: &CpuSet) -> Vec<Holder> {
    let mut kept: Vec<Candidate> = tasks::processes(kernel)
        .into_iter()
        .filter(|other| *other != process)
        .flat_map(|other| tasks::threads_of(kernel, other))
        .filter_map(|thread| candidate(kernel, thread, cpus))
        .collect();
    let begin = Instant::now();
    while !kept.is_empty() && begin.elapsed() < OBSERVED {
        std::thread::sleep(INTERVAL);
        kept.retain(|before| {
            candidate(kernel, before.holder.thread, cpus).as_ref() == Some(before)
        });
    }
    kept.into_iter().map(|kept| kept.holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{FakeKernel, Layout, ordinary};

    fn holder(cpu: u32, policy: SchedulingPolicy) -> Holder {
        Holder {
            cpu: CpuId(cpu),
            thread: 4711,
            name: "sh".to_owned(),
            policy,
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
        for (policy, holds, time_is_shared, is_refused, warnings) in [
            (Other, Fifo(10), false, true, 0),
            (Other, Fifo(10), true, false, 1),
            (Fifo(9), Fifo(10), true, true, 0),
            (Fifo(10), Fifo(10), true, true, 0),
            (RoundRobin(10), Fifo(10), true, true, 0),
            (Fifo(10), RoundRobin(10), false, false, 1),
            (Fifo(11), Fifo(10), false, false, 0),
            (deadline, Fifo(99), false, false, 0),
        ] {
            let answer = judge(&cpu, policy, &[holder(3, holds)], time_is_shared);
            let case = format!("{policy} beside {holds}: {answer:?}");
            assert_eq!(answer.is_err(), is_refused, "{case}");
            assert_eq!(answer.map_or(0, |found| found.len()), warnings, "{case}");
        }
        let refused = judge(&cpu, Other, &[holder(3, Fifo(10))], false);
        let refused = refused.expect_err("refused").to_string();
        assert!(
            refused.contains("CPU 3 belongs to sh (4711), fifo:10, which does not sleep"),
            "{refused}"
        );
        assert!(refused.contains("above it: fifo:11"), "{refused}");
        assert!(refused.contains("chrt --other --pid 0 4711"), "{refused}");
        // Each thread that keeps the CPU is named in the command, and the policy is above all of them.
        let second = Holder {
            thread: 4712,
            ..holder(3, Fifo(20))
        };
        let refused = judge(&cpu, Other, &[holder(3, Fifo(10)), second], false);
        let refused = refused.expect_err("refused").to_string();
        let command = "chrt --other --pid 0 4711 && chrt --other --pid 0 4712";
        assert!(refused.contains(command), "{refused}");
        assert!(refused.contains("above it: fifo:21"), "{refused}");
    }

    #[test]
    fn a_free_cpu_is_enough() {
        let two: CpuSet = "2-3".parse().expect("CPUs");
        let held = [holder(3, SchedulingPolicy::Fifo(99))];
        let found = judge(&two, SchedulingPolicy::Other, &held, false).expect("CPU 2 is free");
        assert_eq!(found.len(), 1, "{found:?}");
        let held = [held[0].clone(), holder(2, SchedulingPolicy::Fifo(99))];
        let refused = judge(&two, SchedulingPolicy::Other, &held, false).expect_err("all are kept");
        assert!(
            !refused.to_string().contains("choose a policy"),
            "{refused}"
        );
    }

    /// A control loop that uses most of its CPU sleeps in each cycle, and two threads that share a CPU keep it together.
    #[test]
    fn only_threads_that_do_not_sleep_keep_a_cpu() {
        let cpus: CpuSet = "2-3".parse().expect("CPUs");
        let observe = |number: u32, stat: &str, sleeps: u64| {
            let mut machine = ordinary(Layout::V2);
            let file = |name: &str| PathBuf::from(format!("/proc/{number}/{name}"));
            machine.files.insert(file("stat"), stat.to_owned());
            let status = format!("voluntary_ctxt_switches:\t{sleeps}\n");
            machine.files.insert(file("status"), status);
            candidate(&FakeKernel::new(machine), number, &cpus)
        };
        // Fields 3, 9, 22, 39, 40 and 41 of proc_pid_stat(5).
        let stat = |state: char, flags: u64, start: u64, cpu: u32, priority: u32, policy: u32| {
            format!(
                "77 (a b) {state} 1 77 77 0 -1 {flags} 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 {cpu} {priority} {policy} 0 0"
            )
        };
        let spinning = observe(77, &stat('R', 0, 5, 3, 10, 1), 9).expect("a candidate");
        assert_eq!(spinning.holder.policy, SchedulingPolicy::Fifo(10));
        assert!(observe(77, &stat('R', 0, 5, 3, 10, 2), 9).is_some(), "rr");
        for (other, text) in [
            (observe(77, &stat('S', 0, 5, 3, 10, 1), 9), "sleeps"),
            (observe(77, &stat('R', 0, 5, 1, 10, 1), 9), "another CPU"),
            (observe(77, &stat('R', 0, 5, 3, 0, 0), 9), "shares time"),
            (observe(77, &stat('R', 0, 5, 3, 0, 6), 9), "has a deadline"),
            (
                observe(77, &stat('R', 0x20_0000, 5, 3, 10, 1), 9),
                "is of the kernel",
            ),
        ] {
            assert_eq!(other, None, "{text}");
        }
        for (later, text) in [
            (observe(77, &stat('R', 0, 5, 3, 10, 1), 10), "it has slept"),
            (observe(77, &stat('R', 0, 6, 3, 10, 1), 9), "another thread"),
            (observe(77, &stat('R', 0, 5, 2, 10, 1), 9), "it has moved"),
        ] {
            assert_ne!(later.as_ref(), Some(&spinning), "{text}");
        }
    }
}
