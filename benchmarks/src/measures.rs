// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measures. Each runs pairs of rampart-meter (ours) and a peer (theirs) in alternating order, so
//! that neither always runs on the machine state that the other left.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rampart_model::{
    CpuId, CpuSet, MeterDetail, MeterKind, MeterSettings, Nanos, SchedulingPolicy,
};

use crate::callgrind::{Slope, counted};
use crate::ours::{self, Measured};
use crate::table::{Aim, Row};
use crate::theirs::{self, CYCLICTEST_RANGE, Cyclictest, Wakeups};

/// The measures, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Measure {
    /// CPU time per wakeup
    Cpu,
    /// User-space instructions per wakeup
    Instructions,
    /// Median and tail of the latency seen
    Quantiles,
    /// Highest rate without missed periods
    Rate,
    /// Loop period of `noise`
    Noise,
}

impl Measure {
    pub(crate) const ALL: [Self; 5] = [
        Self::Cpu,
        Self::Instructions,
        Self::Quantiles,
        Self::Rate,
        Self::Noise,
    ];

    /// Returns the programs that the measure runs, each with its Debian package.
    pub(crate) const fn needs(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Cpu | Self::Quantiles | Self::Rate => &[("cyclictest", "rt-tests")],
            Self::Instructions => &[("cyclictest", "rt-tests"), ("valgrind", "valgrind")],
            Self::Noise => &[("oslat", "rt-tests")],
        }
    }
}

/// FIFO priority of both programs.
const PRIORITY: u8 = 80;
const INTERVAL: Nanos = Nanos::from_micros(200);
/// Seconds of a run for CPU time: long compared with start-up, which the CPU time includes.
const LONG: u64 = 4;
/// Seconds of a run for quantiles: 15 000 wakeups, of which 15 are beyond p99.9.
const MIDDLE: u64 = 3;
const SHORT: u64 = 1;
/// Delay between attempts.
const PAUSE: Duration = Duration::from_secs(5);
/// The quantiles that are compared.
const QUANTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];
/// The periods for the highest rate, in µs; the last is the shortest that the meter accepts.
const PERIODS: [u64; 9] = [1000, 500, 200, 100, 50, 40, 30, 25, 20];

/// CPUs, programs and repetitions of a benchmark run.
#[derive(Debug)]
pub(crate) struct Bench {
    /// The program `rampart-meter`.
    pub(crate) meter: PathBuf,
    /// The measured CPU.
    pub(crate) cpu: CpuId,
    /// The CPU for everything else.
    pub(crate) housekeeping: CpuId,
    /// Pairs per measure.
    pub(crate) pairs: usize,
    /// Attempts per pair.
    pub(crate) attempts: u16,
    /// Prints a progress message.
    pub(crate) progress: fn(&str),
    /// Versions of the programs, as they report them.
    pub(crate) versions: std::collections::BTreeMap<String, String>,
    /// Remarks that belong to no row.
    pub(crate) remarks: Vec<String>,
}

impl Bench {
    /// Runs one measure and returns its rows.
    ///
    /// # Errors
    /// If a program cannot be run or ends early.
    pub(crate) fn run(&mut self, measure: Measure) -> Result<Vec<Row>> {
        match measure {
            Measure::Cpu => self.cpu_time(),
            Measure::Instructions => self.instructions(),
            Measure::Quantiles => self.quantiles(),
            Measure::Rate => self.rate(),
            Measure::Noise => self.noise(),
        }
    }

    fn plan(&self, meter: MeterKind, interval: Nanos, seconds: u64) -> MeterSettings {
        let mut plan = MeterSettings::new(meter, CpuSet::single(self.cpu));
        plan.housekeeping = CpuSet::single(self.housekeeping);
        plan.interval = interval;
        plan.duration = Nanos::from_secs(seconds);
        plan.warm_up = Nanos::from_millis(100);
        if meter == MeterKind::Wakeup {
            plan.policy = SchedulingPolicy::Fifo(PRIORITY);
        }
        plan
    }

    fn ours(&mut self, settings: &MeterSettings, wrapper: &[String]) -> Result<Measured> {
        let measured = ours::measure(&self.meter, wrapper, settings)?;
        self.versions
            .insert("rampart-meter".to_owned(), measured.version.clone());
        Ok(measured)
    }

    fn our_wakeups(&mut self, interval: Nanos, seconds: u64) -> Result<Measured> {
        let plan = self.plan(MeterKind::Wakeup, interval, seconds);
        self.ours(&plan, &[])
    }

    fn asked(&self, interval: Nanos, seconds: u64, fine: bool) -> Wakeups {
        Wakeups {
            cpu: self.cpu,
            housekeeping: self.housekeeping,
            priority: PRIORITY,
            interval,
            seconds,
            fine,
        }
    }

    fn theirs(&mut self, asked: &Wakeups, wrapper: &[String]) -> Result<Cyclictest> {
        let measured = theirs::cyclictest(wrapper, asked)?;
        self.versions.insert(
            "rt-tests (cyclictest, oslat)".to_owned(),
            measured.version.clone(),
        );
        Ok(measured)
    }

    /// Repeats `attempt`, both programs of the pair, until it succeeds or the attempts are used up. On a
    /// shared machine the CPU can be taken away for a moment, which would waste minutes of work.
    fn retry<T>(
        &mut self,
        what: &str,
        mut attempt: impl FnMut(&mut Self) -> Result<T>,
    ) -> Result<T> {
        for _ in 1..self.attempts {
            match attempt(self) {
                Ok(done) => return Ok(done),
                Err(error) => (self.progress)(&format!("{what}: retrying after {error:#}")),
            }
            std::thread::sleep(PAUSE);
        }
        let attempts = self.attempts;
        attempt(self).with_context(|| format!("{what}: failed {attempts} times"))
    }

    /// Runs all pairs in alternating order and returns each as (ours, theirs).
    fn pairs<A, B>(
        &mut self,
        what: &str,
        mut ours: impl FnMut(&mut Self) -> Result<A>,
        mut theirs: impl FnMut(&mut Self) -> Result<B>,
    ) -> Result<Vec<(A, B)>> {
        (0..self.pairs)
            .map(|pair| {
                (self.progress)(&format!("{what}: pair {} of {}", pair + 1, self.pairs));
                self.retry(what, |bench| run_pair(bench, pair, &mut ours, &mut theirs))
            })
            .collect()
    }

    fn cpu_time(&mut self) -> Result<Vec<Row>> {
        let asked = self.asked(INTERVAL, LONG, false);
        let pairs = self.pairs(
            "CPU time per wakeup",
            |bench| {
                let run = bench.our_wakeups(INTERVAL, LONG)?;
                per(run.cpu_time.0 as f64, run.wakeups())
            },
            |bench| {
                let run = bench.theirs(&asked, &[])?;
                per(run.cpu_time.0 as f64, run.cycles)
            },
        )?;
        Ok(Row::new(
            "CPU time per wakeup, ns",
            "cyclictest",
            &pairs,
            Aim::IntervalReaches(1.0),
            format!(
                "user and system time of the whole process (all threads, start-up and output included) ÷ its wakeups. FIFO {PRIORITY}, every {INTERVAL}, {LONG} s. cyclictest runs with its usual histogram of 400 µs"
            ),
        )
        .into_iter()
        .collect())
    }

    fn instructions(&mut self) -> Result<Vec<Row>> {
        let pairs = self.pairs(
            "user-space instructions per wakeup",
            |bench| {
                let mut run = |seconds| {
                    let plan = bench.plan(MeterKind::Wakeup, INTERVAL, seconds);
                    counted(|wrapper| Ok(bench.ours(&plan, wrapper)?.wakeups()))
                };
                Slope::between(run(SHORT)?, run(MIDDLE)?)
            },
            |bench| {
                let mut run = |seconds| {
                    let asked = bench.asked(INTERVAL, seconds, false);
                    counted(|wrapper| Ok(bench.theirs(&asked, wrapper)?.cycles))
                };
                Slope::between(run(SHORT)?, run(MIDDLE)?)
            },
        )?;
        let row = |measure: &str, figure: fn(&Slope) -> f64, note: String| {
            let pairs: Vec<(f64, f64)> = pairs
                .iter()
                .map(|(ours, theirs)| (figure(ours), figure(theirs)))
                .collect();
            Row::new(measure, "cyclictest", &pairs, Aim::MedianAtMost(0.5), note)
        };
        Ok([
            row(
                "user-space instructions per wakeup, on the measured CPU",
                |slope| slope.measuring,
                format!(
                    "instructions of the measuring thread, counted by callgrind: the difference between runs of {MIDDLE} s and {SHORT} s, so that start-up cancels, ÷ the difference of their wakeups. valgrind provides no vDSO, so both programs read the clock by a system call, whose instructions are not counted. It provides no restartable sequences either, with which rampart-meter otherwise reads its CPU number in one load"
                ),
            ),
            row(
                "user-space instructions per wakeup, all threads",
                |slope| slope.all,
                "the same for all threads. cyclictest's thread on the other CPU only waits; that of rampart-meter sorts the samples into histograms, keeps the worst and writes a batch each second".to_owned(),
            ),
        ]
        .into_iter()
        .flatten()
        .collect())
    }

    fn quantiles(&mut self) -> Result<Vec<Row>> {
        let asked = self.asked(INTERVAL, MIDDLE, true);
        let runs = self.pairs(
            "latency seen",
            |bench| bench.our_wakeups(INTERVAL, MIDDLE),
            |bench| bench.theirs(&asked, &[]),
        )?;
        let rows = QUANTILES.iter().filter_map(|(quantile, name)| {
            let mut beyond = 0;
            let pairs: Vec<(f64, f64)> = runs
                .iter()
                .filter_map(|(ours, theirs)| {
                    let range = CYCLICTEST_RANGE.0;
                    let ours = ours.seen.quantile(*quantile)?.0;
                    let theirs = theirs.quantile(*quantile)?;
                    beyond += usize::from(ours.max(theirs) >= range);
                    Some((ours.min(range) as f64, theirs.min(range).max(1) as f64))
                })
                .collect();
            let mut note = format!("every {INTERVAL}, {MIDDLE} s");
            if beyond > 0 {
                note = format!(
                    "{note}. In {beyond} pairs a figure exceeded {CYCLICTEST_RANGE}, the range of cyclictest's histogram, and counts as that value"
                );
            }
            let measure = format!("{name} of the latency seen, ns");
            Row::new(measure, "cyclictest", &pairs, Aim::IntervalReaches(1.0), note)
        });
        Ok(rows.collect())
    }

    /// Runs one-second pairs for each period until both programs had a run without a missed period.
    fn rate(&mut self) -> Result<Vec<Row>> {
        let (mut ours, mut theirs) = (None, None);
        let mut shortest = Vec::new();
        for micros in PERIODS {
            let interval = Nanos::from_micros(micros);
            let asked = self.asked(interval, SHORT, false);
            let last = PERIODS.last() == Some(&micros);
            let (mut our_clean, mut their_clean) = (false, false);
            for pair in 0..self.pairs {
                if our_clean && their_clean && !last {
                    break;
                }
                (self.progress)(&format!("highest rate: {interval}, pair {}", pair + 1));
                let ours = |bench: &mut Self| -> Result<(u64, u64)> {
                    let run = bench.our_wakeups(interval, SHORT)?;
                    Ok((run.outcome.missed, run.outcome.samples))
                };
                let theirs = |bench: &mut Self| -> Result<(u64, u64)> {
                    let run = bench.theirs(&asked, &[])?;
                    Ok((run.missed(&asked), run.cycles))
                };
                let what = format!("highest rate: {interval}");
                let (our, their) =
                    self.retry(&what, |bench| run_pair(bench, pair, ours, theirs))?;
                our_clean |= our.0 == 0;
                their_clean |= their.0 == 0;
                if last {
                    let share = |(missed, met): (u64, u64)| per(missed as f64 * 1e3, missed + met);
                    shortest.push((share(our)?, share(their)?));
                }
            }
            if our_clean {
                ours = Some(micros);
            }
            if their_clean {
                theirs = Some(micros);
            }
        }
        let kilohertz = |micros: u64| 1e3 / micros as f64;
        let mut rows = Vec::new();
        if let (Some(ours), Some(theirs)) = (ours, theirs) {
            rows.extend(Row::new(
                "highest rate without a missed period, kHz",
                "cyclictest",
                &[(kilohertz(ours), kilohertz(theirs))],
                Aim::MedianAtLeast(1.0),
                format!(
                    "from the shortest of the periods {} µs at which at least one of up to {} one-second runs missed none. A single figure, so there is no interval",
                    PERIODS.map(|period| period.to_string()).join(", "),
                    self.pairs
                ),
            ));
        } else {
            let found =
                |rate: Option<u64>| rate.map_or("none".to_owned(), |micros| format!("{micros} µs"));
            self.remarks.push(format!(
                "Highest rate without a missed period: shortest period of rampart-meter: {}; of cyclictest: {}.",
                found(ours),
                found(theirs)
            ));
        }
        // One is added on both sides so that 0 ÷ 0 is a ratio.
        let pairs: Vec<(f64, f64)> = shortest
            .iter()
            .map(|(ours, theirs)| (ours + 1.0, theirs + 1.0))
            .collect();
        rows.extend(Row::new(
            "missed periods in 1000 at 20 µs, plus one",
            "cyclictest",
            &pairs,
            Aim::IntervalReaches(1.0),
            "cyclictest does not count missed periods: expected minus measured cycles",
        ));
        Ok(rows)
    }

    fn noise(&mut self) -> Result<Vec<Row>> {
        let pairs = self.pairs(
            "loop period of noise",
            |bench| {
                let plan = bench.plan(MeterKind::Noise, INTERVAL, MIDDLE);
                let run = bench.ours(&plan, &[])?;
                let MeterDetail::Noise { turns, .. } = run.outcome.detail else {
                    bail!("the meter reported another result than `noise`");
                };
                per(run.outcome.duration.0 as f64, turns)
            },
            |bench| {
                let run = theirs::oslat(bench.cpu, bench.housekeeping, MIDDLE)?;
                per(run.duration.0 as f64, run.turns)
            },
        )?;
        Ok(Row::new(
            "loop period of noise, ns",
            "oslat",
            &pairs,
            Aim::MedianAtMost(0.6),
            format!(
                "length of the measurement ({MIDDLE} s) ÷ loop turns, gaps included for both. Time-sharing policy, the default of both"
            ),
        )
        .into_iter()
        .collect())
    }
}

/// Runs ours and theirs, in an order that alternates from pair to pair.
fn run_pair<A, B>(
    bench: &mut Bench,
    pair: usize,
    ours: impl FnOnce(&mut Bench) -> Result<A>,
    theirs: impl FnOnce(&mut Bench) -> Result<B>,
) -> Result<(A, B)> {
    if pair.is_multiple_of(2) {
        let first = ours(bench)?;
        Ok((first, theirs(bench)?))
    } else {
        let first = theirs(bench)?;
        Ok((ours(bench)?, first))
    }
}

/// Returns `sum` ÷ `count`.
fn per(sum: f64, count: u64) -> Result<f64> {
    if count == 0 {
        bail!("a run recorded no sample; the machine may be overloaded");
    }
    Ok(sum / count as f64)
}
