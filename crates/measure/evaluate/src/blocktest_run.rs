// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a test of blocks: the blocks start with a measurement, which ends after the last block.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rampart_load::{Blocks, BlocksError, BlocksProgress};
use rampart_model::{
    BLOCKTEST_SCHEMA_VERSION, Batch, BlockSettings, Blocktest, CpuSet, DomainKind, DomainSelection,
    Machine, MeterKind, MeterSettings, Nanos, Phase, SchedulingPolicy,
};

use crate::blocktest::BlocktestLatencies;
use crate::{EvaluateError, MeasureContext, measure};

/// Resolution of the latencies in time.
const SLOT: Nanos = Nanos::from_millis(1);
/// How long the measurement continues after the last block.
const TAIL: Nanos = Nanos::from_millis(200);

/// The requested measurement.
#[derive(Debug, Clone, Copy)]
pub struct BlocktestRequest<'a> {
    /// The meter program.
    pub meter: &'a Path,
    /// The CPUs to measure.
    pub watched: &'a CpuSet,
    /// The period of the meter.
    pub interval: Nanos,
    /// The policy of the measuring threads.
    pub policy: SchedulingPolicy,
    /// The version that the document names.
    pub tool_version: &'a str,
}

/// Makes prepared blocks, measures meanwhile, and judges which CPUs the blocks affect. `made` gets
/// the number of blocks so far.
///
/// # Errors
/// If the blocks or the measurement fail.
pub fn blocktest(
    request: &BlocktestRequest<'_>,
    machine: &Machine,
    blocks: Blocks,
    settings: BlockSettings,
    made: &dyn Fn(u32),
    interrupted: &AtomicBool,
) -> Result<Blocktest, EvaluateError> {
    let prepared = blocks.findings().to_vec();
    let context = MeasureContext {
        meter: request.meter,
        housekeeping: &machine.topology.usable().difference(request.watched),
        histogram_log: None,
        explain: false,
        tool_version: request.tool_version,
    };
    let meter = MeterSettings {
        policy: request.policy,
        interval: request.interval,
        timeline: Some(SLOT),
        // A limit: the measurement ends after the last block.
        duration: Nanos(settings.duration().0.saturating_mul(2)) + Nanos::from_secs(5),
        ..MeterSettings::new(MeterKind::Wakeup, request.watched.clone())
    };
    let mut test = BlocktestRun {
        blocks,
        latencies: BlocktestLatencies::new(SLOT),
        began: false,
        end: None,
        failed: None,
        interrupted,
        made,
    };
    let domain = rampart_domain::domain(DomainSelection::of(DomainKind::Host));
    let stop = AtomicBool::new(false);
    let measured = measure(
        domain.as_ref(),
        &meter,
        &context,
        &mut |batch| test.add(batch, &stop),
        &stop,
    );
    if let Some(error) = test.failed {
        return Err(error.into());
    }
    let measurement = measured?;
    let outcome = test.blocks.finish()?;
    let cpus = test.latencies.judge(
        &outcome.made,
        &settings.cpus,
        request.interval,
        machine.virtualisation.emulated,
        settings.seed,
    );
    let mut findings = [outcome.findings, measurement.findings].concat();
    findings.retain(|finding| !prepared.contains(finding));
    findings.extend(prepared);
    Ok(Blocktest {
        schema_version: BLOCKTEST_SCHEMA_VERSION,
        tool_version: request.tool_version.to_owned(),
        settings,
        made: outcome.made,
        count: outcome.count,
        cpus,
        findings,
    })
}

struct BlocktestRun<'a> {
    blocks: Blocks,
    latencies: BlocktestLatencies,
    began: bool,
    /// End of the measurement; `None` until the last block is made.
    end: Option<Nanos>,
    failed: Option<BlocksError>,
    interrupted: &'a AtomicBool,
    made: &'a dyn Fn(u32),
}

impl BlocktestRun<'_> {
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
                        (self.made)(last.sequence + 1);
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
