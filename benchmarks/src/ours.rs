// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs `rampart-meter` once, with the protocol of [`rampart_model::MeterRequest`].

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rampart_model::{
    Distribution, METER_PROTOCOL_VERSION, MeterEvent, MeterRequest, MeterSettings, Nanos, Phase,
    ThreadOutcome,
};

use crate::child;

/// The result of a run with one measuring thread.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The primary series as seen, without the warm-up.
    pub(crate) seen: Distribution,
    /// The final report of the thread.
    pub(crate) outcome: ThreadOutcome,
    /// CPU time of the process.
    pub(crate) cpu_time: Nanos,
    /// Version of the program.
    pub(crate) version: String,
}

impl Measured {
    /// Returns the number of all wakeups, warm-up included, because the CPU time includes it too.
    pub(crate) fn wakeups(&self) -> u64 {
        self.outcome.samples + self.outcome.warm_up.samples
    }
}

/// Returns the time limit of a run: much longer than planned, because valgrind is slow.
fn limit(settings: &MeterSettings) -> Duration {
    Duration::from(settings.duration + settings.warm_up) * 3 + Duration::from_secs(30)
}

/// Runs the program at `meter`, prefixed with the command `wrapper` (for example valgrind).
///
/// # Errors
/// If the meter refuses, violates the protocol, loses samples or exits with a failure.
pub(crate) fn measure(
    meter: &Path,
    wrapper: &[String],
    settings: &MeterSettings,
) -> Result<Measured> {
    let command = match wrapper {
        [] => Command::new(meter),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(meter);
            command
        }
    };
    let ended = child::run(command, limit(settings), |input, output| {
        converse(input, output, settings)
    })?;
    let (version, seen, outcome) = ended.talk;
    Ok(Measured {
        seen,
        outcome,
        cpu_time: ended.cpu_time,
        version,
    })
}

fn converse(
    input: &mut dyn Write,
    output: &mut dyn Read,
    settings: &MeterSettings,
) -> Result<(String, Distribution, ThreadOutcome)> {
    let mut send = |request: &MeterRequest| -> Result<()> {
        writeln!(input, "{}", serde_json::to_string(request)?).context("writing to the meter")?;
        input.flush().context("writing to the meter")
    };
    send(&MeterRequest::Prepare {
        protocol: METER_PROTOCOL_VERSION,
        settings: settings.clone(),
    })?;
    let (mut version, mut seen) = (None, Distribution::default());
    let mut lost = 0;
    for line in BufReader::new(output).lines() {
        let line = line.context("reading from the meter")?;
        let event: MeterEvent = serde_json::from_str(&line)
            .with_context(|| format!("the meter wrote an invalid event: {line}"))?;
        match event {
            MeterEvent::Ready(ready) => {
                version = Some(ready.version);
                send(&MeterRequest::Go {})?;
            }
            MeterEvent::Started { .. } => {}
            MeterEvent::Batch(batch) => {
                lost += batch.lost;
                if batch.phase == Phase::Measured
                    && let Some(series) = batch.series.first()
                {
                    seen.merge(&series.seen);
                }
            }
            MeterEvent::Finished { threads, .. } => {
                let outcome = threads
                    .into_iter()
                    .next()
                    .context("the meter reported no thread")?;
                if lost + outcome.lost > 0 {
                    bail!("the meter lost {} samples", lost + outcome.lost);
                }
                return Ok((version.unwrap_or_default(), seen, outcome));
            }
            MeterEvent::Refused(refusal) => {
                bail!("the meter refused to measure: {}", refusal.finding)
            }
        }
    }
    bail!("the meter ended without a result")
}
