// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts unwanted activity on a domain's CPUs during a run: interrupts, softirqs and threads that
//! do not belong to the evaluation. Pure, except for the observation.

use std::collections::{BTreeMap, BTreeSet};

use rampart_host::{MachineRoot, Watch, observe};
use rampart_model::{
    CpuId, CpuSet, InterruptSort, Nanos, Observation, ObservedThread, UnwantedActivity,
    is_device_softirq,
};

/// The meter's name; in a container its parent is the container engine, not this process.
const METER: &str = "rampart-meter";

/// Observes the present state of the machine.
pub(crate) fn observe_now() -> Observation {
    observe(&MachineRoot::system(), &Watch::default())
}

/// Returns the activity on `cpus` between two observations; `own` is the process of the evaluation.
pub(crate) fn between(
    earlier: &Observation,
    later: &Observation,
    cpus: &CpuSet,
    own: u32,
) -> UnwantedActivity {
    let mut found = UnwantedActivity {
        watched: later.at.saturating_sub(earlier.at),
        ..UnwantedActivity::default()
    };
    for interrupt in &later.interrupts {
        let before = earlier
            .interrupts
            .iter()
            .find(|before| before.name == interrupt.name)
            .map(|before| &before.counts);
        let count = grown(before, &interrupt.counts, cpus);
        match InterruptSort::of(&interrupt.name, &interrupt.action) {
            InterruptSort::Device => found.device_interrupts += count,
            InterruptSort::Timer => found.timer_interrupts += count,
            InterruptSort::CrossCall => found.cross_calls += count,
            InterruptSort::Own => {}
        }
    }
    for softirq in later
        .softirqs
        .iter()
        .filter(|one| is_device_softirq(&one.name))
    {
        let before = earlier
            .softirqs
            .iter()
            .find(|before| before.name == softirq.name)
            .map(|before| &before.counts);
        found.device_softirqs += grown(before, &softirq.counts, cpus);
    }
    let ours = descendants(later, own);
    let before: BTreeMap<(u32, u64), Nanos> = earlier
        .threads
        .iter()
        .map(|thread| ((thread.thread, thread.start), thread.cpu_time))
        .collect();
    // All time of a thread counts for the CPU on which it ran last.
    let on_cpus = |thread: &&ObservedThread| cpus.contains(thread.cpu);
    for thread in later.threads.iter().filter(on_cpus) {
        let start = before.get(&(thread.thread, thread.start)).copied();
        let used = thread.cpu_time.saturating_sub(start.unwrap_or_default());
        if thread.kernel {
            found.kernel_threads += used;
        } else if !ours.contains(&thread.process) && thread.name != METER {
            found.programs += used;
        }
    }
    found
}

fn grown(before: Option<&BTreeMap<CpuId, u64>>, now: &BTreeMap<CpuId, u64>, cpus: &CpuSet) -> u64 {
    cpus.iter()
        .map(|cpu| {
            let count = |counts: &BTreeMap<CpuId, u64>| counts.get(&cpu).copied().unwrap_or(0);
            // A device that was added meanwhile begins at 0.
            count(now).saturating_sub(before.map_or(0, count))
        })
        .sum()
}

/// Returns a process and its descendants.
fn descendants(observation: &Observation, root: u32) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([root]);
    loop {
        let known = found.len();
        for thread in &observation.threads {
            if found.contains(&thread.parent) {
                found.insert(thread.process);
            }
        }
        if found.len() == known {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{ObservedCount, ObservedInterrupt};

    fn thread(process: u32, parent: u32, cpu: u32, used: u64) -> ObservedThread {
        ObservedThread {
            process,
            thread: process,
            parent,
            start: 1,
            name: format!("p{process}"),
            kernel: parent == 2,
            bound: false,
            state: 'S',
            policy: None,
            cpu: CpuId(cpu),
            cpu_time: Nanos::from_millis(used),
            affinity: None,
        }
    }

    fn counts(on_first: u64, on_second: u64) -> BTreeMap<CpuId, u64> {
        BTreeMap::from([(CpuId(0), on_first), (CpuId(1), on_second)])
    }

    fn observation(at: u64, factor: u64) -> Observation {
        let interrupt = |name: &str, action: &str, counts| ObservedInterrupt {
            name: name.to_owned(),
            action: action.to_owned(),
            counts,
            ..ObservedInterrupt::default()
        };
        let softirq = |name: &str, counts| ObservedCount {
            name: name.to_owned(),
            counts,
        };
        Observation {
            at: Nanos::from_secs(at),
            interrupts: vec![
                interrupt("24", "eth0", counts(1000 * factor, 3 * factor)),
                interrupt("LOC", "Local timer interrupts", counts(7, 250 * factor)),
                interrupt("CAL", "Function call interrupts", counts(9, 2 * factor)),
                interrupt("RES", "Rescheduling interrupts", counts(0, 99 * factor)),
            ],
            softirqs: vec![
                softirq("NET_RX", counts(5, 4 * factor)),
                softirq("TIMER", counts(5, 88 * factor)),
            ],
            threads: vec![
                thread(50, 2, 1, 10 * factor),
                thread(60, 1, 1, 20 * factor),
                thread(61, 1, 0, 900 * factor),
                // The evaluation, its meter, and a child of the meter.
                thread(70, 1, 1, 40 * factor),
                thread(71, 70, 1, 80 * factor),
                thread(72, 71, 1, 160 * factor),
            ],
            ..Observation::default()
        }
    }

    #[test]
    fn counts_activity_except_that_of_the_evaluation() {
        let (earlier, later) = (observation(10, 1), observation(14, 3));
        let found = between(&earlier, &later, &CpuSet::single(CpuId(1)), 70);
        let expected = UnwantedActivity {
            watched: Nanos::from_secs(4),
            device_interrupts: 6,
            device_softirqs: 8,
            cross_calls: 4,
            timer_interrupts: 500,
            kernel_threads: Nanos::from_millis(20),
            programs: Nanos::from_millis(40),
        };
        assert_eq!(found, expected);
        assert!((found.per_second(found.timer_interrupts) - 125.0).abs() < 1e-9);
        assert_eq!(found.and(found).programs, Nanos::from_millis(80));
    }

    #[test]
    fn ignores_a_meter_in_a_container() {
        let (earlier, mut later) = (observation(10, 1), observation(14, 3));
        later.threads[1].name = METER.to_owned();
        let found = between(&earlier, &later, &CpuSet::single(CpuId(1)), 70);
        assert_eq!(found.programs, Nanos::ZERO);
    }
}
