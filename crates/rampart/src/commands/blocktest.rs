// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart blocktest`: blocks here, latencies everywhere: who notices.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rampart_evaluate::{MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_load::{Blocks, BlocksError, BlocksProgress};
use rampart_model::{
    Block, BlockPlan, BlockSpan, CpuId, CpuSet, DomainKind, DomainSelection, ExitCode, MeterKind,
    MeterPlan, Nanos, Phase, SchedulingPolicy, VerdictOutcome,
};
use rampart_stats::{CROSSED, Resampling, Transfer, transfer};

use super::block::{self, BlockOptions};
use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
Examples:
  rampart blocktest --cpus 1                 stop CPU 1, watch every CPU
  rampart blocktest --cpus 1 --watch 1,2     watch these alone
  rampart blocktest --cpus 1 --length 20ms --count 100 --json

The worst latency of each stretch of time that holds a block is held against stretches that hold
none. The transfer is the median excess divided by the length of the blocks: 1 where all of it
arrives, 0 where nothing does.";

/// Length of the slots in which latencies are kept.
const SLOT: Nanos = Nanos::from_millis(1);
/// A latency that a block causes shows in a sample that ends this long after the block at most,
/// besides the meter's own period: waking up, and a timer that waited.
const AFTERMATH: Nanos = Nanos::from_millis(2);
/// How long to go on after the last block.
const TAIL: Nanos = Nanos::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlocktestArguments {
    #[command(flatten)]
    pub(crate) blocks: BlockOptions,

    /// Measure on these CPUs; without it on all that may be used
    #[arg(long, value_name = "CPUS")]
    watch: Option<CpuSet>,

    /// Period of the meter
    #[arg(long, value_name = "TIME", default_value = "1ms")]
    interval: Nanos,

    /// Policy of the measuring threads: other, fifo:N, rr:N
    #[arg(long, value_name = "POLICY", default_value = "fifo:80")]
    policy: SchedulingPolicy,

    /// Print the result as a JSON document
    #[arg(long)]
    json: bool,

    /// How to show progress
    #[arg(long, value_name = "HOW", default_value = "auto")]
    show_progress: ShowProgress,

    #[command(flatten)]
    pub(crate) on: super::on::On,
}

pub(crate) fn run(arguments: &BlocktestArguments) -> Result<ExitCode, Failure> {
    let program = super::meter_program()?;
    let plan = arguments.blocks.plan()?;
    let topology = read_machine(&MachineRoot::system()).topology;
    let usable = topology.online.intersection(&topology.allowed);
    let watched = arguments.watch.clone().unwrap_or_else(|| usable.clone());
    let meter = meter_plan(arguments, &plan, &watched);
    let interrupted = signals::stop_flag()?;
    let blocks = block::begin(&program, &plan)?;
    let mut weaknesses = blocks.findings().to_vec();

    let context = MeasureContext {
        meter: &program,
        housekeeping: &usable.difference(&watched),
        histogram_log: None,
        explain: false,
        tool_version: super::VERSION,
    };
    let mut test = Test::new(blocks, &plan, arguments, &interrupted);
    let domain = rampart_domain::domain(DomainSelection::of(DomainKind::Host));
    let stop = AtomicBool::new(false);
    let measured = measure(
        domain.as_ref(),
        &meter,
        &context,
        &mut |block| test.hear(block, &stop),
        &stop,
    );
    test.bar.finish_and_clear();
    let Test {
        blocks,
        latencies,
        failed,
        ..
    } = test;
    if let Some(error) = failed {
        return Err(block::failure(error));
    }
    let measurement = measured?;
    let outcome = blocks.finish().map_err(block::failure)?;
    let results = judge(&latencies, &outcome.made.spans, arguments.interval);
    weaknesses = [outcome.findings.as_slice(), measurement.findings.as_slice()]
        .concat()
        .into_iter()
        .filter(|finding| !weaknesses.contains(finding))
        .chain(weaknesses.iter().cloned())
        .collect();
    if arguments.json {
        let document = serde_json::json!({
            "plan": plan,
            "made": outcome.made,
            "count": outcome.count,
            "cpus": results.iter().map(CpuResult::document).collect::<Vec<_>>(),
            "findings": weaknesses,
        });
        output::print(&serde_json::to_string_pretty(&document)?)?;
    } else {
        output::print(&text(&results, &plan, outcome.count))?;
        for finding in &weaknesses {
            output::say(&format!("rampart: {finding}"));
        }
    }
    Ok(if outcome.count < plan.count {
        ExitCode::Partial
    } else {
        ExitCode::Success
    })
}

fn meter_plan(arguments: &BlocktestArguments, plan: &BlockPlan, watched: &CpuSet) -> MeterPlan {
    let usual = MeterPlan::new(MeterKind::Wakeup, watched.clone());
    MeterPlan {
        policy: arguments.policy,
        interval: arguments.interval,
        timeline: Some(SLOT),
        // Random pauses are half as long again at most; the last block ends it before.
        duration: Nanos(plan.duration().0.saturating_mul(2)) + Nanos::from_secs(5),
        ..usual
    }
}

/// One run: blocks begin when the measurement does, and it ends after the last of them.
struct Test<'a> {
    blocks: Blocks,
    latencies: BTreeMap<CpuId, Latencies>,
    began: bool,
    /// The moment after which nothing is of interest any more.
    end: Option<Nanos>,
    failed: Option<BlocksError>,
    interrupted: &'a AtomicBool,
    bar: indicatif::ProgressBar,
}

impl<'a> Test<'a> {
    fn new(
        blocks: Blocks,
        plan: &BlockPlan,
        arguments: &BlocktestArguments,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let style = progress::style(arguments.show_progress);
        Self {
            blocks,
            latencies: BTreeMap::new(),
            began: false,
            end: None,
            failed: None,
            interrupted,
            bar: progress::bar(style, u64::from(plan.count)),
        }
    }

    fn hear(&mut self, block: Option<&Block>, stop: &AtomicBool) {
        if let Some(block) = block.filter(|block| block.phase == Phase::Measured) {
            self.latencies.entry(block.cpu).or_default().add(block);
            if !self.began {
                self.began = true;
                self.failed = self.blocks.go().err();
            }
            if self.end.is_some_and(|end| block.at + block.length >= end) {
                stop.store(true, Ordering::Relaxed);
            }
        }
        while self.began && self.end.is_none() && self.failed.is_none() {
            match self.blocks.poll(Duration::ZERO) {
                Ok(Some(BlocksProgress::Made(spans))) => {
                    if let Some(last) = spans.last() {
                        self.bar.set_position(u64::from(last.sequence) + 1);
                        self.bar.set_message("blocks made");
                    }
                }
                Ok(Some(BlocksProgress::Finished)) => {
                    let heard = self.latencies.values().map(Latencies::end).max();
                    self.end = Some(heard.unwrap_or_default() + TAIL);
                }
                Ok(None) => break,
                Err(error) => self.failed = Some(error),
            }
        }
        if self.failed.is_some() || self.interrupted.load(Ordering::Relaxed) {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// The worst latency of a CPU in each slot of time.
#[derive(Debug, Default)]
struct Latencies(Vec<(Nanos, Option<Nanos>)>);

impl Latencies {
    fn add(&mut self, block: &Block) {
        let moments = (0u64..).map(|slot| block.at + Nanos(slot * SLOT.0));
        self.0.extend(moments.zip(block.timeline.iter().copied()));
    }

    fn end(&self) -> Nanos {
        self.0.last().map_or(Nanos::ZERO, |(at, _)| *at + SLOT)
    }

    fn start(&self) -> Nanos {
        self.0.first().map_or(Nanos::ZERO, |(at, _)| *at)
    }

    /// The worst in a stretch of time; none if no sample ended in it.
    fn worst(&self, from: Nanos, until: Nanos) -> Option<Nanos> {
        let first = self.0.partition_point(|(at, _)| *at + SLOT <= from);
        self.0
            .iter()
            .skip(first)
            .take_while(|(at, _)| *at < until)
            .filter_map(|(_, worst)| *worst)
            .max()
    }
}

/// What one CPU noticed.
struct CpuResult {
    cpu: CpuId,
    with: Vec<Nanos>,
    without: Vec<Nanos>,
    transfer: Option<Transfer>,
}

impl CpuResult {
    fn document(&self) -> serde_json::Value {
        serde_json::json!({
            "cpu": self.cpu,
            "with_block": self.with,
            "without_block": self.without,
            "transfer": self.transfer.as_ref().map(|found| serde_json::json!({
                "interval": found.transfer,
                "excess": found.excess,
                "p_value": found.p_value,
                "outcome": found.outcome,
            })),
        })
    }
}

/// From a moment until another.
type Stretch = (Nanos, Nanos);

/// Stretches of time with and without a block, of equal lengths and without overlap: after each
/// block one that holds it, and one from the middle of the pause that follows, where it is long
/// enough.
fn stretches(spans: &[BlockSpan], interval: Nanos) -> (Vec<Stretch>, Vec<Stretch>) {
    // Blocks of several CPUs at a moment are one stretch.
    let mut moments: BTreeMap<u32, Stretch> = BTreeMap::new();
    for span in spans {
        let moment = moments
            .entry(span.sequence)
            .or_insert((span.start, span.end));
        *moment = (moment.0.min(span.start), moment.1.max(span.end));
    }
    let moments: Vec<Stretch> = moments.into_values().collect();
    let whole = |end: Nanos| end + interval + AFTERMATH;
    let mut with = Vec::new();
    let mut without = Vec::new();
    for (index, (start, end)) in moments.iter().enumerate() {
        let end = whole(*end);
        let Some((next, _)) = moments.get(index + 1) else {
            with.push((*start, end));
            continue;
        };
        let pause = next.saturating_sub(end);
        if end > *next {
            // The next block came too soon to tell the two apart.
            continue;
        }
        with.push((*start, end));
        let length = end.saturating_sub(*start);
        let rest = pause.saturating_sub(length);
        // A slot on each side, so that no slot belongs to both.
        if rest.0 >= 2 * SLOT.0 {
            let from = end + Nanos(rest.0 / 2);
            without.push((from, from + length));
        }
    }
    (with, without)
}

fn judge(
    latencies: &BTreeMap<CpuId, Latencies>,
    spans: &[BlockSpan],
    interval: Nanos,
) -> Vec<CpuResult> {
    let (with, without) = stretches(spans, interval);
    let mut lengths: Vec<Nanos> = spans.iter().map(BlockSpan::length).collect();
    lengths.sort_unstable();
    let length = lengths.get(lengths.len() / 2).copied().unwrap_or_default();
    latencies
        .iter()
        .map(|(cpu, seen)| {
            let worst = |stretches: &[Stretch]| -> Vec<Nanos> {
                stretches
                    .iter()
                    .filter(|(from, until)| *from >= seen.start() && *until <= seen.end())
                    .filter_map(|(from, until)| seen.worst(*from, *until))
                    .collect()
            };
            let (with, without) = (worst(&with), worst(&without));
            CpuResult {
                cpu: *cpu,
                transfer: transfer(&with, &without, length, CROSSED, &Resampling::default()),
                with,
                without,
            }
        })
        .collect()
}

fn text(results: &[CpuResult], plan: &BlockPlan, count: u32) -> String {
    let mut text = format!(
        "CPU {} stopped {count} times for {}; worst wakeup latency of stretches with a block and without:\n",
        plan.cpus, plan.length
    );
    for result in results {
        let stopped = if plan.cpus.contains(result.cpu) {
            "stopped"
        } else {
            "       "
        };
        let _ = writeln!(
            text,
            "CPU {:<3} {stopped}  with {}  without {}  {}",
            result.cpu.0,
            extent(&result.with),
            extent(&result.without),
            told(result.transfer.as_ref())
        );
    }
    text
}

fn extent(worst: &[Nanos]) -> String {
    let mut sorted = worst.to_vec();
    sorted.sort_unstable();
    match (sorted.get(sorted.len() / 2), sorted.last()) {
        (Some(median), Some(max)) => {
            format!("median {median}, max {max} (n {})", sorted.len())
        }
        _ => "none (n 0)".to_owned(),
    }
}

fn told(transfer: Option<&Transfer>) -> String {
    let Some(found) = transfer else {
        return "nothing to compare".to_owned();
    };
    let word = match found.outcome {
        VerdictOutcome::Leaks if found.is_partial() => "some blocks arrive",
        VerdictOutcome::Leaks => "the blocks arrive",
        VerdictOutcome::Holds => "nothing arrives",
        _ => "inconclusive",
    };
    format!(
        "transfer {:.3} [{:.3}, {:.3}], p {:.4}: {word}",
        found.transfer.estimate, found.transfer.low, found.transfer.high, found.p_value
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    fn span(cpu: u32, sequence: u32, start: u64) -> BlockSpan {
        BlockSpan {
            cpu: CpuId(cpu),
            sequence,
            start: Nanos(start * MILLI),
            end: Nanos((start + 4) * MILLI),
        }
    }

    #[test]
    fn stretches_with_and_without_a_block_are_equally_long_and_apart() {
        let spans = [
            span(1, 0, 100),
            span(2, 0, 101),
            span(1, 1, 140),
            span(1, 2, 147),
        ];
        let (with, without) = stretches(&spans, Nanos::from_millis(1));
        let millis = |stretches: Vec<Stretch>| -> Vec<(u64, u64)> {
            stretches
                .into_iter()
                .map(|(from, until)| (from.0 / MILLI, until.0 / MILLI))
                .collect()
        };
        // The two blocks of the first moment are one; after the second comes the third at once.
        assert_eq!(millis(with), [(100, 108), (140, 147), (147, 154)]);
        assert_eq!(millis(without), [(120, 128)]);
    }

    #[test]
    fn who_was_stopped_notices_and_who_was_not_does_not() {
        let spans: Vec<BlockSpan> = (0..40)
            .map(|n| span(1, n, 100 + u64::from(n) * 40))
            .collect();
        let mut latencies: BTreeMap<CpuId, Latencies> = BTreeMap::new();
        for cpu in [1, 2] {
            let slots = (0..2000u64).map(|slot| {
                let at = Nanos(slot * MILLI);
                let late = spans.iter().any(|span| span.end == at) && cpu == 1;
                let quiet = 10_000 + slot * 7919 % 5_000;
                (at, Some(Nanos(if late { 3_900_000 } else { quiet })))
            });
            latencies.insert(CpuId(cpu), Latencies(slots.collect()));
        }
        let results = judge(&latencies, &spans, Nanos::from_millis(1));
        let outcome = |index: usize| {
            let found = results[index].transfer.as_ref().expect("compared");
            (found.outcome, (found.transfer.estimate * 10.0).round())
        };
        assert_eq!(outcome(0), (VerdictOutcome::Leaks, 10.0));
        assert_eq!(outcome(1), (VerdictOutcome::Holds, 0.0));
    }
}
