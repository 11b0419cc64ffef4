// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The share of a CPU that the workers of a load used. A load that a limit of its control group or a
//! program of others keeps from running is smaller than its name.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rampart_model::{CpuId, Nanos};

use crate::proc::{self, Process};

/// Part of the time that the workers of a load must run. They never sleep, except those of `io`. On a
/// busy machine other programs take a part of the housekeeping CPUs, and load them too.
pub const SHARE_NEEDED: f64 = 1.0 / 3.0;
/// Shortest time over which that part is judged: some scheduler ticks.
const JUDGED: Duration = Duration::from_millis(200);

/// The threads for which a load may wait, because the experiment runs them on the load's CPU. Of other
/// waiting nothing counts as running.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Beside {
    /// None: the CPU is for the load alone.
    Nothing,
    /// The threads that measure there.
    Measuring(Vec<u32>),
    /// The threads that measure there, and which are not known: all waiting counts.
    Unknown,
}

/// What was used of a CPU since the load began.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// The time that passed.
    passed: Duration,
    /// The CPU time of the workers.
    ran: Nanos,
    /// The time that they waited for the CPU.
    waited: Nanos,
    /// The time of the measuring threads and of interrupts.
    beside: Nanos,
    /// The time that the hypervisor gave to other machines.
    steal: Nanos,
}

impl Used {
    /// Returns the part of the time that counts as running, 0 to 1; `None` while it is too short to
    /// judge.
    fn share(&self) -> Option<f64> {
        let available = self.passed.saturating_sub(self.steal.into());
        (available >= JUDGED).then(|| {
            let counted = self.ran + self.waited.min(self.beside);
            counted.as_secs_f64() / available.as_secs_f64()
        })
    }
}

/// Counts what the workers of one CPU use.
#[derive(Debug)]
pub(crate) struct Share {
    cpu: CpuId,
    beside: Beside,
    begin: Instant,
    /// The CPU time of the workers at the beginning.
    ran: Nanos,
    /// The interrupts and the stolen time of the CPU at the beginning.
    cpu_times: (Nanos, Nanos),
    /// The last waiting of each worker, by its ID.
    waits: BTreeMap<u32, Nanos>,
    /// The first and the last CPU time of each measuring thread.
    measuring: BTreeMap<u32, (Nanos, Nanos)>,
    used: Used,
}

impl Share {
    /// Begins to count; `ran` is the CPU time of the workers so far.
    pub(crate) fn begin(cpu: CpuId, beside: Beside, ran: Nanos, workers: &[Process]) -> Self {
        let mut share = Self {
            cpu,
            beside,
            begin: Instant::now(),
            ran,
            cpu_times: proc::interrupts_and_steal(cpu).unwrap_or_default(),
            waits: BTreeMap::new(),
            measuring: BTreeMap::new(),
            used: Used::default(),
        };
        share.add_waits(workers, Duration::ZERO);
        share.used.waited = Nanos::ZERO;
        share.read_measuring();
        share
    }

    /// Returns whether the CPU is for the load alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.beside == Beside::Nothing
    }

    /// Returns for what the load may wait.
    pub(crate) fn beside(&self) -> Beside {
        self.beside.clone()
    }

    /// Counts up to now; `ran` is the CPU time of the workers so far.
    pub(crate) fn add(&mut self, ran: Nanos, workers: &[Process]) {
        let passed = self.begin.elapsed();
        let since_the_last = passed.saturating_sub(self.used.passed);
        self.used.passed = passed;
        self.used.ran = ran.saturating_sub(self.ran);
        self.add_waits(workers, since_the_last);
        self.read_measuring();
        let (interrupts, steal) = proc::interrupts_and_steal(self.cpu).unwrap_or(self.cpu_times);
        self.used.steal = steal.saturating_sub(self.cpu_times.1);
        let interrupts = interrupts.saturating_sub(self.cpu_times.0);
        self.used.beside = match self.beside {
            Beside::Nothing => Nanos::ZERO,
            Beside::Measuring(_) => {
                let used = |(first, last): &(Nanos, Nanos)| last.saturating_sub(*first);
                interrupts + self.measuring.values().map(used).sum()
            }
            Beside::Unknown => Nanos(u64::MAX),
        };
    }

    fn add_waits(&mut self, workers: &[Process], passed: Duration) {
        let mut grown = Nanos::ZERO;
        for worker in workers {
            let Some(waited) = worker.waited else {
                // Without a count of the kernel all time may have been waiting.
                self.used.waited += passed.into();
                return;
            };
            let before = self.waits.insert(worker.id, waited).unwrap_or_default();
            grown += waited.saturating_sub(before);
        }
        // The kernel counts a wait when it ends: a worker that waits all the time has none.
        let waits = grown == Nanos::ZERO && workers.iter().any(|worker| worker.state == 'R');
        self.used.waited += if waits { passed.into() } else { grown };
    }

    fn read_measuring(&mut self) {
        let Beside::Measuring(threads) = &self.beside else {
            return;
        };
        for thread in threads {
            // A thread that has ended keeps its last time.
            if let Some(now) = proc::thread_cpu_time(*thread) {
                self.measuring.entry(*thread).or_insert((now, now)).1 = now;
            }
        }
    }

    /// Returns the problem if the workers ran too little.
    pub(crate) fn problem(&self) -> Option<String> {
        let share = self.used.share().filter(|share| *share < SHARE_NEEDED)?;
        let waiting = match self.beside {
            Beside::Nothing => "",
            Beside::Measuring(_) => " or waited for the measurement on it",
            Beside::Unknown => " or waited for it",
        };
        Some(format!(
            "its workers used CPU {}{waiting} for {:.0} % of the time ({} in {:.0} ms), needed {:.0} %; \
             fix: end other programs on CPU {}, and lift limits of the control group (cpu.max, \
             cpu.cfs_quota_us)",
            self.cpu,
            share * 100.0,
            self.used.ran,
            self.used.passed.as_secs_f64() * 1e3,
            SHARE_NEEDED * 100.0,
            self.cpu,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(ran: u64, waited: u64, beside: u64, steal: u64) -> Used {
        Used {
            passed: Duration::from_millis(1100),
            ran: Nanos::from_millis(ran),
            waited: Nanos::from_millis(waited),
            beside: Nanos::from_millis(beside),
            steal: Nanos::from_millis(steal),
        }
    }

    fn counts(used: Used) -> bool {
        used.share().expect("long enough") >= SHARE_NEEDED
    }

    #[test]
    fn waiting_counts_only_for_the_measurement() {
        assert!(counts(used(1080, 10, 0, 0)));
        // Throttled to 5 %, or behind another program: it waits nearly all the time.
        assert!(!counts(used(56, 1040, 0, 0)));
        assert!(!counts(used(56, 1040, 20, 0)));
        // A meter that spins, at a higher priority.
        assert!(counts(used(56, 1040, 1040, 0)));
        // The same, and the load is stopped.
        assert!(!counts(used(56, 0, 1040, 0)));
        // The hypervisor takes most of the time.
        assert!(counts(used(300, 10, 0, 700)));
        let short = Used {
            passed: Duration::from_millis(150),
            ..used(0, 0, 0, 0)
        };
        assert_eq!(short.share(), None);
    }

    fn worker(waited: Option<u64>, state: char) -> Process {
        Process {
            id: 7,
            state,
            cpu_time: Nanos::ZERO,
            waited: waited.map(Nanos::from_millis),
        }
    }

    /// A CPU that does not exist, so that only the invented times count.
    const NO_CPU: CpuId = CpuId(u32::MAX);

    #[test]
    fn counts_from_the_beginning() {
        let before = Nanos::from_millis(900);
        let workers = [worker(Some(50), 'R')];
        let mut share = Share::begin(NO_CPU, Beside::Nothing, before, &workers);
        share.begin -= Duration::from_secs(1);
        share.add(before + Nanos::from_millis(100), &[worker(Some(90), 'R')]);
        assert_eq!(share.used.ran, Nanos::from_millis(100));
        assert_eq!(share.used.waited, Nanos::from_millis(40));
        let problem = share.problem().expect("a problem");
        assert!(
            problem.contains("for 10 % of the time (100 ms in 1000 ms)"),
            "{problem}"
        );
        share.begin -= Duration::from_secs(1);
        share.add(before + Nanos::from_millis(1100), &[worker(Some(90), 'R')]);
        assert_eq!(share.problem(), None, "it caught up");
        // A wait that has not ended, and a kernel that does not count.
        assert!(share.used.waited >= Nanos::from_millis(1040));
        share.begin -= Duration::from_secs(1);
        share.add(before, &[worker(None, 'S')]);
        assert!(share.used.waited >= Nanos::from_millis(2040));
    }

    #[test]
    fn reads_the_time_of_the_measuring_threads() {
        let own = std::process::id();
        let beside = Beside::Measuring(vec![own, u32::MAX]);
        let mut share = Share::begin(NO_CPU, beside, Nanos::ZERO, &[]);
        assert!(share.measuring.contains_key(&own) && share.measuring.len() == 1);
        let first = share.measuring[&own].0;
        share.add(Nanos::ZERO, &[]);
        assert_eq!(share.measuring[&own].0, first);
        assert!(share.measuring[&own].1 >= first);
    }
}
