// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `vm:noisy`: a noisy neighbour, not measured and not real-time, on the housekeeping
//! CPUs, loaded from its start to its end.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::Shield;
use rampart_model::{
    EffectiveSettings, Finding, GuestReport, MeterEvent, MeterSettings, Nanos, Severity,
    ShieldReport,
};

use super::guest::{self, Guest};
use crate::session::MeterProcess;
use crate::shielded_process::Environment;
use crate::{DomainError, Inside, Running};

/// Interval between two checks of the guest.
const TEND: Duration = Duration::from_millis(200);
/// The message of stress-ng when it starts its workers (stress-ng(1), without `--quiet`).
const DISPATCHING: &str = "dispatching hogs";
/// CPU time of the guest after that message from which it counts as loaded.
const ENOUGH_TO_COUNT: Nanos = Nanos::from_millis(100);
/// Share of the available CPU time below which the guest is not noisy.
const HARDLY: f64 = 0.1;
/// Bytes of the load's output that are kept, from its end.
const OUTPUT_KEPT: usize = 2048;

/// Returns the load's arguments: CPUs, caches, memory and scheduler, until it is ended.
pub(super) fn load(cpus: usize) -> Vec<String> {
    let cpus = cpus.max(1).to_string();
    [
        "stress-ng",
        "--cpu",
        &cpus,
        "--cache",
        "1",
        "--vm",
        "1",
        "--vm-bytes",
        "64M",
        "--switch",
        "1",
        "--timeout",
        "0",
        "--stdout",
    ]
    .map(str::to_owned)
    .into()
}

/// The output of the load.
#[derive(Debug, Clone, Default)]
struct Output(Arc<Mutex<OutputState>>);

#[derive(Debug, Default)]
struct OutputState {
    tail: VecDeque<u8>,
    dispatching: bool,
}

impl Output {
    /// Reads an output to its end in a thread, so that the program does not block on a full pipe.
    fn listen(&self, output: impl Read + Send + 'static) {
        let this = self.clone();
        thread::spawn(move || this.read(output));
    }

    fn read(&self, mut output: impl Read) {
        let mut piece = [0; 512];
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let mut state = self.state();
            state.tail.extend(piece.iter().take(length));
            let surplus = state.tail.len().saturating_sub(OUTPUT_KEPT);
            if !state.dispatching {
                state.dispatching = text(&state.tail).contains(DISPATCHING);
            }
            state.tail.drain(..surplus);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dispatching(&self) -> bool {
        self.state().dispatching
    }

    fn tail(&self) -> String {
        text(&self.state().tail)
    }
}

fn text(bytes: &VecDeque<u8>) -> String {
    let bytes: Vec<u8> = bytes.iter().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A noisy neighbour. The fields are dropped in order: load, guest, environment.
pub(super) struct NoisyNeighbour {
    load: Box<dyn MeterProcess>,
    output: Output,
    guest: Guest,
    environment: Environment,
    effective_settings: EffectiveSettings,
    /// The time at which the load was seen to run, and the guest's CPU time then.
    loaded: (Instant, Nanos),
    tended: Instant,
}

impl std::fmt::Debug for NoisyNeighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NoisyNeighbour")
            .field("guest", &self.guest)
            .finish_non_exhaustive()
    }
}

impl NoisyNeighbour {
    /// Loads the guest and waits until the load runs.
    pub(super) fn start(guest: Guest, environment: Environment) -> Result<Self, DomainError> {
        let (streams, load) = guest.start(&load(guest.description.cpus.len()))?;
        let output = Output::default();
        for stream in [streams.output, streams.errors].into_iter().flatten() {
            output.listen(stream);
        }
        let mut running = Self {
            load,
            output,
            effective_settings: guest::effective_settings(&guest),
            loaded: (Instant::now(), guest.cpu_time()),
            guest,
            environment,
            tended: Instant::now(),
        };
        running.wait_until_loaded()?;
        Ok(running)
    }

    fn wait_until_loaded(&mut self) -> Result<(), DomainError> {
        let (begin, limit) = (Instant::now(), self.guest.timeout());
        let mut dispatched = None;
        loop {
            self.tend()?;
            let used = self.guest.cpu_time();
            match dispatched {
                None if self.output.is_dispatching() => dispatched = Some(used),
                Some(before) if used.saturating_sub(before) >= ENOUGH_TO_COUNT => {
                    self.loaded = (Instant::now(), used);
                    return Ok(());
                }
                _ => {}
            }
            if begin.elapsed() >= limit {
                return Err(DomainError::NoAnswer {
                    program: self.name(),
                    process: self.load.id(),
                    what: match dispatched {
                        None => "report that it starts its workers",
                        Some(_) => "use 100 ms of CPU time",
                    },
                    waited: limit,
                    stderr: self.output.tail(),
                });
            }
            thread::sleep(TEND.min(limit));
        }
    }

    fn name(&self) -> String {
        format!("stress-ng in the guest {}", self.guest.description.name)
    }

    /// Checks the guest and its load.
    fn tend(&mut self) -> Result<(), DomainError> {
        self.tended = Instant::now();
        self.guest.tend(&self.environment)?;
        match self.load.exit_status() {
            None => Ok(()),
            Some(status) => Err(DomainError::Ended {
                program: self.name(),
                process: self.load.id(),
                status,
                stderr: self.output.tail(),
            }),
        }
    }

    /// Reports the CPU time that the load has used so far.
    fn load_finding(&self) -> Finding {
        let (since, before) = self.loaded;
        used(
            &self.guest.description.name,
            self.guest.cpu_time().saturating_sub(before),
            since.elapsed().into(),
            self.guest
                .description
                .cpus
                .len()
                .min(self.guest.description.housekeeping.len()),
        )
    }
}

fn used(guest: &str, used: Nanos, elapsed: Nanos, cpus: usize) -> Finding {
    let share = used.as_secs_f64() / (elapsed.as_secs_f64() * cpus.max(1) as f64).max(1e-9);
    let hardly = share < HARDLY;
    let present = format!(
        "{:.1} s of CPU time in {:.1} s on {cpus} {}",
        used.as_secs_f64(),
        elapsed.as_secs_f64(),
        if cpus == 1 { "CPU" } else { "CPUs" }
    );
    let needed = format!("at least {:.0} % of it", HARDLY * 100.0);
    let location = format!("load of the guest {guest}");
    if hardly {
        Finding::new(
            Severity::Warning,
            location,
            "it hardly ran, so the figures measured meanwhile are without a noisy neighbour",
        )
        .values(present, needed)
        .fix("end the other programs on the housekeeping CPUs")
    } else {
        Finding::new(
            Severity::Note,
            location,
            format!(
                "it used {:.0} % of the available CPU time, as counted for its virtual CPUs",
                share * 100.0
            ),
        )
        .values(present, needed)
    }
}

impl Running for NoisyNeighbour {
    /// Checks the guest, whose load has run since its start.
    fn go(&mut self) -> Result<(), DomainError> {
        self.tend()
    }

    /// Returns no event. Returns an error if the guest or its load has ended.
    fn next_event(&mut self, timeout: Duration) -> Result<Option<MeterEvent>, DomainError> {
        let begin = Instant::now();
        loop {
            if self.tended.elapsed() >= TEND {
                self.tend()?;
            }
            let left = timeout.saturating_sub(begin.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            thread::sleep(left.min(TEND));
        }
    }

    fn stop(&mut self) {}

    /// Changes nothing: the load runs until the end, whatever the plan.
    fn rearm(&mut self, _plan: &MeterSettings) -> Result<bool, DomainError> {
        Ok(true)
    }

    fn shield(&self) -> Option<&Shield> {
        None
    }

    fn isolation(&self) -> Option<ShieldReport> {
        None
    }

    fn effective_settings(&self) -> EffectiveSettings {
        self.effective_settings.clone()
    }

    fn inside(&self) -> Option<&dyn Inside> {
        Some(&self.guest)
    }

    fn guest(&self) -> Option<GuestReport> {
        let mut report = self.guest.report(Vec::new());
        report.findings.push(self.load_finding());
        Some(report)
    }

    fn finish(self: Box<Self>) -> Result<Option<ShieldReport>, DomainError> {
        let Self { load, guest, .. } = *self;
        drop(load);
        guest.end();
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detects_the_load_in_split_output() {
        struct Pieces(Vec<&'static [u8]>);
        impl Read for Pieces {
            fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
                let Some(piece) = self.0.pop() else {
                    return Ok(0);
                };
                to[..piece.len()].copy_from_slice(piece);
                Ok(piece.len())
            }
        }
        let output = Output::default();
        output.read(Pieces(vec![&b"setting to run\n"[..]]));
        assert!(!output.is_dispatching());
        // The pieces are read from the last to the first.
        output.read(Pieces(vec![
            &b"hing hogs: 2 cpu\n"[..],
            &b"stress-ng: info: [7] dispatc"[..],
        ]));
        assert!(output.is_dispatching());
        output.read(std::io::repeat(b'x').take(100_000));
        assert!(output.is_dispatching());
        assert_eq!(output.tail().len(), OUTPUT_KEPT);
        assert!(!load(2).iter().any(|word| word == "--quiet"));
    }

    #[test]
    fn reports_a_neighbour_that_hardly_ran() {
        let loud = used("noisy", Nanos::from_secs(15), Nanos::from_secs(10), 2);
        assert_eq!(loud.severity, Severity::Note);
        let text = loud.to_string();
        assert!(text.contains("15.0 s of CPU time in 10.0 s on 2 CPUs"));
        assert!(text.contains("it used 75 % of"), "{text}");
        let half = used("noisy", Nanos::from_secs(2), Nanos::from_secs(10), 1).to_string();
        assert!(
            half.contains("on 1 CPU)") || half.contains("on 1 CPU,"),
            "{half}"
        );
        assert!(half.contains("it used 20 % of") && !half.contains("all the time"));
        let quiet = used("noisy", Nanos::from_secs(1), Nanos::from_secs(10), 2);
        assert_eq!(quiet.severity, Severity::Warning);
        assert!(quiet.fix.is_some());
        assert_eq!(
            used("noisy", Nanos::ZERO, Nanos::ZERO, 0).severity,
            Severity::Warning
        );
    }
}
