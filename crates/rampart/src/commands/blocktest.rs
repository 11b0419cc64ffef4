// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart blocktest`: blocks CPUs and measures which CPUs are affected.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use rampart_evaluate::{BlocktestLatencies, MeasureContext, measure};
use rampart_host::{MachineRoot, read_machine};
use rampart_load::{Blocks, BlocksError, BlocksProgress};
use rampart_model::{
    BLOCKTEST_SCHEMA_VERSION, Batch, BlockSettings, Blocktest, CpuList, CpuSet, DomainKind,
    DomainSelection, ExitCode, MeterKind, MeterSettings, Nanos, Phase, SchedulingPolicy,
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

/// Resolution of the latencies in time.
const SLOT: Nanos = Nanos::from_millis(1);
/// How long the measurement continues after the last block.
const TAIL: Nanos = Nanos::from_millis(200);

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BlocktestArguments {
    #[command(flatten)]
    pub(crate) blocks: BlockOptions,

    /// CPUs to measure [default: every usable CPU]
    #[arg(long, value_name = "CPUS", help_heading = "Meter")]
    pub(super) watch: Option<CpuList>,

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
    let settings = arguments.blocks.settings()?;
    let machine = read_machine(&MachineRoot::system());
    let topology = machine.topology;
    let usable = topology.usable();
    let watched = super::cpus_here(arguments.watch.as_ref())?.unwrap_or_else(|| usable.clone());
    let meter = meter_settings(arguments, &settings, &watched);
    let interrupted = signals::stop_flag()?;
    let blocks = block::prepare(&program, &settings)?;
    let prepared = blocks.findings().to_vec();

    let context = MeasureContext {
        meter: &program,
        housekeeping: &usable.difference(&watched),
        histogram_log: None,
        explain: false,
        tool_version: super::VERSION,
    };
    let mut test = BlocktestRun::new(blocks, &settings, arguments, &interrupted);
    let domain = rampart_domain::domain(DomainSelection::of(DomainKind::Host));
    let stop = AtomicBool::new(false);
    let measured = measure(
        domain.as_ref(),
        &meter,
        &context,
        &mut |batch| test.add(batch, &stop),
        &stop,
    );
    test.bar.finish_and_clear();
    let BlocktestRun {
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
        &settings.cpus,
        arguments.interval,
        machine.virtualisation.emulated,
        settings.seed,
    );
    let mut findings = [outcome.findings, measurement.findings].concat();
    findings.retain(|finding| !prepared.contains(finding));
    findings.extend(prepared);
    let document = Blocktest {
        schema_version: BLOCKTEST_SCHEMA_VERSION,
        tool_version: super::VERSION.to_owned(),
        settings,
        made: outcome.made,
        count: outcome.count,
        cpus,
        findings,
    };
    if arguments.json {
        output::print_json(&document)?;
    } else {
        output::print_text(&rampart_present::blocktest(&document))?;
        for finding in &document.findings {
            output::finding(finding);
        }
    }
    Ok(ExitCode::of_work(document.count >= document.settings.count))
}

fn meter_settings(
    arguments: &BlocktestArguments,
    blocks: &BlockSettings,
    watched: &CpuSet,
) -> MeterSettings {
    MeterSettings {
        policy: arguments.policy,
        interval: arguments.interval,
        timeline: Some(SLOT),
        // A limit: the measurement ends after the last block.
        duration: Nanos(blocks.duration().0.saturating_mul(2)) + Nanos::from_secs(5),
        ..MeterSettings::new(MeterKind::Wakeup, watched.clone())
    }
}

/// One run: the blocks start with the measurement, which ends after the last block.
struct BlocktestRun<'a> {
    blocks: Blocks,
    latencies: BlocktestLatencies,
    began: bool,
    /// End of the measurement; `None` until the last block is made.
    end: Option<Nanos>,
    failed: Option<BlocksError>,
    interrupted: &'a AtomicBool,
    bar: indicatif::ProgressBar,
}

impl<'a> BlocktestRun<'a> {
    fn new(
        blocks: Blocks,
        settings: &BlockSettings,
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
            bar: progress::bar(style, u64::from(settings.count)),
        }
    }

    /// Adds a batch of latencies, starts the blocks, and sets `stop` at the end.
    fn add(&mut self, batch: Option<&Batch>, stop: &AtomicBool) {
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
