// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traces the CPUs during a measurement with the kernel's own tracing.
//!
//! A separate instance of the kernel's tracing records on `CLOCK_MONOTONIC` what the measured CPUs
//! execute. If the kernel has the osnoise tracer and it can run without its own load (kernel document
//! `trace/osnoise-tracer.rst`, option `OSNOISE_WORKLOAD`), its events report each interrupt, softirq,
//! NMI and thread with its length; otherwise the same is reconstructed from the events of the
//! scheduler and of interrupts, which every kernel has. The journal contains the instance, and the
//! two machine-wide settings of the osnoise tracer.

mod assemble;
mod explain;
mod line;
mod reader;
#[cfg(test)]
mod tests;
pub(crate) mod tracefs;
pub(crate) mod undo;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use rampart_model::{CpuId, CpuSet, ExplainedWorst, Finding, Nanos, Severity};

pub use assemble::{TraceInterval, TraceSpan};
pub use explain::{Measurer, TracedSample, explain};

use crate::changes::Changes;
use crate::kernel::{Kernel, RunningKernel};
use crate::lock::{Lock, SharedLock};
use crate::release::release_first;
use crate::state_directory::is_root;
use crate::{HostError, MachineRoot, StateDirectory};

/// The source of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The osnoise tracer's events.
    Osnoise,
    /// The events of the scheduler and of interrupts.
    Events,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Osnoise => "the osnoise tracer",
            Self::Events => "events of the scheduler and of interrupts",
        })
    }
}

/// A trace that is being recorded. Dropping it ends it and restores its changes.
#[derive(Debug)]
pub struct Tracing {
    changes: Changes,
    instance: PathBuf,
    source: Source,
    reader: reader::Reader,
    findings: Vec<Finding>,
    ended: bool,
    _lock: Arc<Lock>,
}

/// A recorded trace.
#[derive(Debug)]
pub struct KernelTrace {
    /// Its source.
    pub source: Source,
    /// The intervals of each CPU, in the order of their ends.
    pub intervals: BTreeMap<CpuId, Vec<TraceInterval>>,
    /// The times of each CPU that are not or not completely known.
    pub lost: BTreeMap<CpuId, Vec<TraceSpan>>,
    /// Restrictions of the trace.
    pub findings: Vec<Finding>,
    /// Limits of the scheduler for real-time threads that were in effect.
    limits: Vec<explain::SchedulerLimit>,
}

impl Tracing {
    /// Starts to record what `cpus` execute. Reads the trace on the CPUs of `housekeeping`, if there
    /// are any.
    ///
    /// Starting and ending disturbs all CPUs (the kernel changes its own code), so do both outside of
    /// a measurement.
    ///
    /// # Errors
    /// Without root, if the kernel has no tracing, or another process is changing the machine.
    /// Changes made until then are undone.
    pub fn start(
        state: &StateDirectory,
        cpus: &CpuSet,
        housekeeping: &CpuSet,
    ) -> Result<Self, HostError> {
        if !is_root() {
            return Err(HostError::Request {
                location: "/sys/kernel/tracing".to_owned(),
                what: "only root may trace the kernel".to_owned(),
                found: format!("user {}", rustix::process::geteuid().as_raw()),
                expected: "root".to_owned(),
                fix: "run the same command with sudo".to_owned(),
            });
        }
        let kernel: Arc<dyn Kernel> = Arc::new(RunningKernel);
        let lock = SharedLock::take(state, true)?;
        // The journals of this process's other changes are in use.
        let mut findings = if lock.first {
            release_first(&*kernel, state)?
        } else {
            Vec::new()
        };
        let mut changes = Changes::new(kernel, state);
        let begun = tracefs::find(&mut changes)
            .and_then(|root| tracefs::start(&mut changes, &root, cpus))
            .and_then(|instance| {
                let reader = reader::Reader::start(&instance.path, cpus, housekeeping);
                match reader {
                    Ok(reader) => Ok((instance, reader)),
                    Err(cause) => Err(HostError::file(
                        "read the trace",
                        &instance.path,
                        cause,
                        "run `dmesg`",
                    )),
                }
            });
        match begun {
            Ok((instance, reader)) => {
                findings.extend(instance.findings);
                Ok(Self {
                    changes,
                    instance: instance.path,
                    source: instance.source,
                    reader,
                    findings,
                    ended: false,
                    _lock: lock.lock,
                })
            }
            Err(error) => {
                // If this fails too, the journal still contains the changes.
                let _ = changes.undo();
                Err(error)
            }
        }
    }

    /// Ends the recording and restores its changes.
    ///
    /// # Errors
    /// If something could not be restored; it stays in the journal for [`crate::release`].
    pub fn finish(mut self) -> Result<KernelTrace, HostError> {
        let read = self.end();
        let undone = self.changes.undo()?;
        let mut findings = std::mem::take(&mut self.findings);
        findings.extend(undone.left);
        let (mut intervals, mut lost) = (BTreeMap::new(), BTreeMap::new());
        for (cpu, assembler) in read {
            if assembler.lost + assembler.dropped > 0 {
                findings.push(Finding::new(
                    Severity::Warning,
                    format!("trace of CPU {cpu}"),
                    format!(
                        "{} events were lost and {} of the oldest intervals were dropped; samples of that time are explained partly or not at all",
                        assembler.lost, assembler.dropped
                    ),
                ));
            }
            let (kept, missing) = assembler.finish();
            intervals.insert(cpu, kept);
            lost.insert(cpu, missing);
        }
        Ok(KernelTrace {
            source: self.source,
            intervals,
            lost,
            findings,
            limits: limits(&MachineRoot::system()),
        })
    }

    fn end(&mut self) -> BTreeMap<CpuId, assemble::Assembler> {
        self.ended = true;
        // Without it the trace only continues a little longer.
        let _ = RunningKernel.write(&self.instance.join("tracing_on"), "0");
        self.reader.finish()
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if !self.ended {
            self.end();
            // The journal keeps what fails.
            let _ = self.changes.undo();
        }
    }
}

impl KernelTrace {
    /// Returns the causes of a sample.
    #[must_use]
    pub fn explain(&self, sample: &TracedSample) -> ExplainedWorst {
        let start = sample.event.at.saturating_sub(sample.window);
        let intervals = self.intervals.get(&sample.cpu).map(Vec::as_slice);
        let intervals = intervals.unwrap_or_default();
        // They are in the order of their ends.
        let first = intervals.partition_point(|interval| interval.end < start);
        let lost = self.lost.get(&sample.cpu).map(Vec::as_slice);
        let mut explained = explain(
            sample,
            intervals.get(first..).unwrap_or_default(),
            lost.unwrap_or_default(),
        );
        explain::name_limit(&mut explained, &self.limits);
        explained
    }

    /// Returns a trace without restrictions, of intervals that are known.
    #[must_use]
    pub fn known(source: Source, intervals: BTreeMap<CpuId, Vec<TraceInterval>>) -> Self {
        Self {
            source,
            intervals,
            lost: BTreeMap::new(),
            findings: Vec::new(),
            limits: Vec::new(),
        }
    }
}

/// Returns the limit of real-time threads that leaves a CPU idle: throttling, unless it is off. The fair server runs other
/// threads meanwhile, which the trace names.
fn limits(root: &MachineRoot) -> Vec<explain::SchedulerLimit> {
    let micros = |file: &str| {
        let value: Option<u64> = root.value(&format!("proc/sys/kernel/{file}"));
        value.map(Nanos::from_micros)
    };
    let (runtime, period) = (micros("sched_rt_runtime_us"), micros("sched_rt_period_us"));
    let of = runtime.zip(period).map(|(runtime, period)| {
        let taken = period.saturating_sub(runtime);
        explain::SchedulerLimit {
            name: format!("real-time throttling, {taken} in each {period}"),
            taken,
        }
    });
    of.into_iter().collect()
}
