// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart blocktest`: blocks here, latencies everywhere: who notices.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rampart_evaluate::{BlocktestLatencies, MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_load::{Blocks, BlocksError, BlocksProgress};
use rampart_model::{
    BLOCKTEST_SCHEMA_VERSION, Batch, BlockSettings, Blocktest, BlocktestCpu, BlocktestTransfer,
    CpuSet, DomainKind, DomainSelection, ExitCode, MeterKind, MeterSettings, Nanos, Phase,
    SchedulingPolicy, plural,
};

use super::block::{self, BlockOptions};
use crate::arguments::ShowProgress;
use crate::failure::Failure;
use crate::{output, progress, signals};

const EXAMPLES: &str = "\
The test compares the worst latency in each window that contains a block with
windows that contain none. The transfer τ is the median excess divided by the
length of a block: 1 if a CPU is stopped for the whole block, 0 if it is not
affected. Watch a stopped CPU too, to prove that the blocks happened.

Examples:
  rampart blocktest --cpus 1               stop CPU 1, measure every CPU
  rampart blocktest --cpus 1 --watch 1,2   measure these CPUs only
  rampart blocktest --cpus 1 --length 20ms --count 100 --json";

/// Length of the slots in which latencies are kept.
const SLOT: Nanos = Nanos::from_millis(1);
/// How long to go on after the last block.
const TAIL: Nanos = Nanos::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlocktestArguments {
    #[command(flatten)]
    pub(crate) blocks: BlockOptions,

    /// CPUs to measure [default: every usable CPU]
    #[arg(long, value_name = "CPUS", help_heading = "Meter")]
    pub(super) watch: Option<CpuSet>,

    /// Period of the meter
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1ms",
        help_heading = "Meter"
    )]
    pub(super) interval: Nanos,

    /// Scheduling policy of the measuring threads: other, fifo:N or rr:N
    #[arg(
        long,
        value_name = "POLICY",
        default_value = "fifo:80",
        help_heading = "Meter"
    )]
    pub(super) policy: SchedulingPolicy,

    #[command(flatten)]
    pub(crate) on: super::on::On,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    /// How to show progress
    #[arg(
        long,
        value_name = "HOW",
        default_value = "auto",
        help_heading = "Output"
    )]
    pub(super) show_progress: ShowProgress,
}

pub(crate) fn run(arguments: &BlocktestArguments) -> Result<ExitCode, Failure> {
    let program = super::meter_program()?;
    let plan = arguments.blocks.plan()?;
    let machine = read_machine(&MachineRoot::system());
    let topology = machine.topology;
    let usable = topology.usable();
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
        return Err(error.into());
    }
    let measurement = measured?;
    let outcome = blocks.finish()?;
    let cpus = latencies.judge(
        &outcome.made,
        &plan.cpus,
        arguments.interval,
        machine.virtualisation.emulated,
        plan.seed,
    );
    weaknesses = [outcome.findings.as_slice(), measurement.findings.as_slice()]
        .concat()
        .into_iter()
        .filter(|finding| !weaknesses.contains(finding))
        .chain(weaknesses.iter().cloned())
        .collect();
    if arguments.json {
        let document = Blocktest {
            schema_version: BLOCKTEST_SCHEMA_VERSION,
            tool_version: super::VERSION.to_owned(),
            plan: plan.clone(),
            made: outcome.made,
            count: outcome.count,
            cpus,
            findings: weaknesses,
        };
        output::print_json(&document)?;
    } else {
        output::print(&text(&cpus, &plan, outcome.count))?;
        for finding in &weaknesses {
            output::finding(finding);
        }
    }
    Ok(ExitCode::of_work(outcome.count >= plan.count))
}

fn meter_plan(
    arguments: &BlocktestArguments,
    plan: &BlockSettings,
    watched: &CpuSet,
) -> MeterSettings {
    let usual = MeterSettings::new(MeterKind::Wakeup, watched.clone());
    MeterSettings {
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
    latencies: BlocktestLatencies,
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
        plan: &BlockSettings,
        arguments: &BlocktestArguments,
        interrupted: &'a AtomicBool,
    ) -> Self {
        let style = progress::style(arguments.show_progress);
        Self {
            blocks,
            latencies: BlocktestLatencies::new(SLOT),
            began: false,
            end: None,
            failed: None,
            interrupted,
            bar: progress::bar(style, u64::from(plan.count)),
        }
    }

    fn hear(&mut self, batch: Option<&Batch>, stop: &AtomicBool) {
        if let Some(batch) = batch.filter(|batch| batch.phase == Phase::Measured) {
            self.latencies.hear(batch);
            if !self.began {
                self.began = true;
                self.failed = self.blocks.go().err();
            }
            if self.end.is_some_and(|end| batch.at + batch.length >= end) {
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
                    self.end = Some(self.latencies.end().unwrap_or_default() + TAIL);
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

fn text(cpus: &[BlocktestCpu], plan: &BlockSettings, count: u32) -> String {
    let mut text = format!(
        "{} stopped {} for {}; worst wakeup latency of windows with a block and without:\n",
        plan.cpus.named(),
        plural(count, "time"),
        plan.length
    );
    for seen in cpus {
        let stopped = if seen.stopped { "stopped" } else { "       " };
        let _ = writeln!(
            text,
            "CPU {:<3} {stopped}  with {}  without {}  {}",
            seen.cpu.0,
            extent(&seen.with_block),
            extent(&seen.without_block),
            told(seen.transfer.as_ref())
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

fn told(transfer: Option<&BlocktestTransfer>) -> String {
    transfer.map_or_else(
        || "nothing to compare".to_owned(),
        |found| format!("{}: {}", found.outcome, found.statement),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_without_windows_says_so() {
        assert_eq!(extent(&[]), "none (n 0)");
        assert_eq!(
            extent(&[Nanos(3), Nanos(1), Nanos(2)]),
            "median 2 ns, max 3 ns (n 3)"
        );
        assert_eq!(told(None), "nothing to compare");
    }
}
