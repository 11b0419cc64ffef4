// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the busy time of isolated CPUs with the time of all threads that were observed there: what is
//! left is that of programs that began and ended between two observations. Pure.

use std::collections::{BTreeMap, BTreeSet};

use rampart_host::{InfluenceSnapshot, ProgramThread};
use rampart_model::{CpuId, Finding, Nanos, Severity};

use super::judge::{MeasuredDomain, TICKS_UNCERTAINTY, difference, time_used};

/// Share of the time of an isolated CPU that may be unexplained. Interrupts, the way out of an idle state
/// and the clock ticks of `/proc/stat` explain some of it.
const UNEXPLAINED_SHARE: f64 = 0.2;
/// The same as a multiple of the time of the measuring threads: where each wakeup is expensive, as on an
/// emulated machine, so are the interrupt and the idle state before it.
const UNEXPLAINED_PER_WAKEUP: u64 = 3;
/// Shortest time that is judged: the times of a CPU are in ticks of 10 ms.
const JUDGED: Nanos = Nanos::from_millis(200);

/// The time of an isolated CPU.
#[derive(Debug, Clone, Copy, Default)]
struct Balance {
    watched: Nanos,
    /// In ns. Below zero where the kernel counts a thread later than its CPU, or earlier.
    unexplained: i128,
    measuring: Nanos,
}

/// The times of isolated CPUs, by domain and CPU.
#[derive(Debug, Default)]
pub(super) struct UnexplainedTime(BTreeMap<(usize, CpuId), Balance>);

impl UnexplainedTime {
    /// Adds the time between two snapshots for the domain with this index; `own` are the processes of the
    /// experiment.
    pub(super) fn add(
        &mut self,
        (index, domain): (usize, &MeasuredDomain),
        own: &BTreeSet<u32>,
        earlier: &InfluenceSnapshot,
        later: &InfluenceSnapshot,
    ) {
        // Programs of the active plan may start others there.
        let is_watched = domain.isolated && domain.group_of_plan.is_none();
        if !is_watched || !later.idle_is_exact {
            return;
        }
        for cpu in domain.cpus.iter() {
            if let Some(balance) = balance(cpu, domain, own, earlier, later) {
                let sum = self.0.entry((index, cpu)).or_default();
                sum.watched += balance.watched;
                sum.unexplained += balance.unexplained;
                sum.measuring += balance.measuring;
            }
        }
    }

    /// Returns a finding for each CPU with too much unexplained time, and the index of its domain.
    pub(super) fn findings(&self) -> Vec<(usize, Finding)> {
        let found = self.0.iter().filter_map(|((index, cpu), balance)| {
            let unexplained = Nanos(u64::try_from(balance.unexplained).ok()?);
            let share = unexplained.as_secs_f64() / balance.watched.as_secs_f64().max(1e-9);
            let is_too_much = balance.watched >= JUDGED
                && share > UNEXPLAINED_SHARE
                && unexplained.0 > balance.measuring.0.saturating_mul(UNEXPLAINED_PER_WAKEUP);
            is_too_much.then(|| (*index, finding(*cpu, unexplained, share)))
        });
        found.collect()
    }
}

/// Returns the time of a CPU between two snapshots. Returns `None` if it is not known, or if a thread of the
/// experiment ended there, whose last time is unknown.
fn balance(
    cpu: CpuId,
    domain: &MeasuredDomain,
    own: &BTreeSet<u32>,
    earlier: &InfluenceSnapshot,
    later: &InfluenceSnapshot,
) -> Option<Balance> {
    let (before, now) = (earlier.cpu_times.get(&cpu)?, later.cpu_times.get(&cpu)?);
    let identity = |thread: &ProgramThread| (thread.thread, thread.start);
    let present: BTreeMap<_, _> = later
        .programs
        .iter()
        .map(|one| (identity(one), one))
        .collect();
    let old: BTreeMap<_, _> = earlier
        .programs
        .iter()
        .map(|one| (identity(one), one))
        .collect();
    let was_here = || earlier.programs.iter().filter(|thread| thread.cpu == cpu);
    let ended = |thread: &ProgramThread| {
        own.contains(&thread.process) && !present.contains_key(&identity(thread))
    };
    if was_here().any(ended) {
        return None;
    }
    let (mut known, mut measuring) = (Nanos::ZERO, Nanos::ZERO);
    for thread in later.programs.iter().filter(|thread| thread.cpu == cpu) {
        // Without the kernel's exact times too little is known.
        thread.exact?;
        let before = old.get(&identity(thread)).copied();
        // While a thread runs alone on a CPU without a tick, its exact time is old (kernel/sched/core.c,
        // sched_tick_remote).
        let ticks = before.map_or(Nanos::ZERO, |before| {
            thread.ticks.saturating_sub(before.ticks)
        });
        let used = time_used(before, thread).max(ticks);
        known += used;
        if domain.measuring.contains(&thread.thread) {
            measuring += used;
        }
    }
    for thread in was_here() {
        let moved = present.get(&identity(thread)).filter(|now| now.cpu != cpu);
        known += moved.map_or(Nanos::ZERO, |now| {
            now.ticks.saturating_sub(thread.ticks) + TICKS_UNCERTAINTY
        });
    }
    for (thread, (_, used)) in later
        .kernel_threads
        .iter()
        .filter(|(_, (on, _))| *on == cpu)
    {
        // One that came from another CPU has all its time from there.
        if let Some((_, before)) = earlier.kernel_threads.get(thread) {
            known += used.saturating_sub(*before);
        }
    }
    let watched = later
        .clocks
        .monotonic
        .saturating_sub(earlier.clocks.monotonic);
    let grown = |now: Nanos, before: Nanos| difference(now, before).max(0);
    let busy = i128::from(watched.0)
        - grown(now.idle, before.idle)
        - grown(now.interrupts, before.interrupts)
        - grown(now.steal, before.steal);
    Some(Balance {
        watched,
        unexplained: busy - i128::from(known.0),
        measuring,
    })
}

fn finding(cpu: CpuId, unexplained: Nanos, share: f64) -> Finding {
    Finding::new(
        Severity::Error,
        format!("CPU {cpu}"),
        "an unknown program ran on this CPU during the measurement: the CPU was busy for longer than all \
         observed threads ran on it",
    )
    .values(
        format!("{unexplained}, {:.0} % of the time", share.min(1.0) * 100.0),
        format!("at most {:.0} %", UNEXPLAINED_SHARE * 100.0),
    )
    .fix(format!(
        "keep programs that start often off CPU {cpu}; perf record -e sched:sched_switch -C {cpu} shows them"
    ))
}
