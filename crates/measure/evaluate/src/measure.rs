// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a single run of one meter without a document on disk, for `rampart measure`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_domain::{Domain, DomainError, Start};
use rampart_model::{
    Batch, CpuSet, MEASUREMENT_SCHEMA_VERSION, Measurement, MeterEvent, MeterSettings, Nanos,
};

use crate::EvaluateError;
use crate::calendar_time::timestamp;
use crate::collect::Collected;
use crate::explain::Explaining;
use crate::run::timeout;
use crate::store::HistogramLog;

/// The environment of a single measurement.
#[derive(Debug, Clone, Copy)]
pub struct MeasureContext<'a> {
    /// The static meter program.
    pub meter: &'a Path,
    /// The housekeeping CPUs.
    pub housekeeping: &'a CpuSet,
    /// Path of a histogram log to write, batch by batch.
    pub histogram_log: Option<&'a Path>,
    /// Whether to explain the worst samples from a kernel trace.
    pub explain: bool,
    /// Version of the tool, for the document.
    pub tool_version: &'a str,
}

/// Runs one meter in one domain. Calls `received` with each batch as it arrives, including warm-up,
/// and with `None` a few times a second.
///
/// # Errors
/// Returns an error if the meter cannot get the requested settings, or a file cannot be written.
pub fn measure(
    domain: &dyn Domain,
    settings: &MeterSettings,
    context: &MeasureContext<'_>,
    received: &mut dyn FnMut(Option<&Batch>),
    stop: &AtomicBool,
) -> Result<Measurement, EvaluateError> {
    let problems = settings.findings();
    if !problems.is_empty() {
        return Err(EvaluateError::BadPlan { findings: problems });
    }
    let output = |source| EvaluateError::Output {
        path: context.histogram_log.unwrap_or(Path::new("")).to_owned(),
        source,
    };
    let mut log = context
        .histogram_log
        .map(HistogramLog::create)
        .transpose()
        .map_err(output)?;
    let start = Start {
        meter: context.meter,
        settings,
        housekeeping: context.housekeeping,
        name: "measure",
        stay_up: false,
    };
    let explaining = Explaining::start(
        context.explain,
        domain.selection().kind,
        settings,
        context.housekeeping,
    );
    let mut running = domain.start(&start)?;
    running.go()?;
    let mut collected = Collected::default();
    let (mut started, mut offset) = (Nanos::ZERO, Nanos::ZERO);
    let mut stopped = false;
    let timeout = timeout(domain.selection().kind);
    let mut limit = Instant::now() + Duration::from(settings.warm_up + settings.duration) + timeout;
    let (threads, mut findings) = loop {
        if stop.load(Ordering::Relaxed) && !stopped {
            running.stop();
            stopped = true;
            limit = limit.min(Instant::now() + timeout);
        }
        if Instant::now() > limit {
            return Err(EvaluateError::Silent {
                domain: domain.selection().to_string(),
                waited: timeout,
            });
        }
        match running.next_event(Duration::from_millis(200))? {
            Some(MeterEvent::Started {
                at,
                realtime_offset,
            }) => (started, offset) = (at, realtime_offset),
            Some(MeterEvent::Batch(batch)) => {
                if let Some(log) = &mut log {
                    log.append(&batch, (started, started + offset))
                        .map_err(output)?;
                }
                received(Some(&batch));
                collected.add(&batch);
            }
            Some(MeterEvent::Finished { threads, findings }) => break (threads, findings),
            Some(MeterEvent::Refused(refusal)) => return Err(DomainError::Refused(refusal).into()),
            Some(MeterEvent::Ready(_)) | None => received(None),
        }
    };
    let effective_settings = running.effective_settings();
    let guest = running.guest();
    let cell = running.cell();
    let detached = running.detached();
    let shield = running.finish()?;
    let (explained, notes) = explaining.finish(settings, &threads, guest.as_ref());
    findings.extend(notes);
    Ok(Measurement {
        explained,
        guest,
        cell,
        detached,
        schema_version: MEASUREMENT_SCHEMA_VERSION,
        tool_version: context.tool_version.to_owned(),
        started: timestamp(started + offset),
        started_monotonic: started,
        ended_early: stopped
            || threads
                .iter()
                .any(|thread| thread.duration.0 < settings.duration.0 / 100 * 99),
        domain: domain.selection().to_string(),
        settings: settings.clone(),
        cpus: collected.into_cpus(),
        threads,
        shield,
        effective_settings,
        findings,
    })
}
