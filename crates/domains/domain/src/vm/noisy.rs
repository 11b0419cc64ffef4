// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `vm:noisy`: a guest that is no domain to be measured but a neighbour: not real-time, on the
//! housekeeping CPUs, loaded from its start until its end.

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

/// How often it is looked at.
const TEND: Duration = Duration::from_millis(200);
/// What stress-ng says when it starts its workers (stress-ng(1), without `--quiet`).
const DISPATCHING: &str = "dispatching hogs";
/// CPU time of the guest after that, from which on it counts as loaded.
const ENOUGH_TO_COUNT: Nanos = Nanos::from_millis(100);
/// Below this part of the CPU time that there is for it, a guest is hardly a noisy one.
const HARDLY: f64 = 0.1;
/// How much of what the load says is kept: the end of it.
const SAID_KEPT: usize = 2048;

/// What loads it: its CPUs, its caches, its memory and its scheduler, until it is told to end.
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

/// What the load has said.
#[derive(Debug, Clone, Default)]
struct Said(Arc<Mutex<Words>>);

#[derive(Debug, Default)]
struct Words {
    tail: VecDeque<u8>,
    dispatching: bool,
}

impl Said {
    /// Listens to an output until its end, so that the program is not held up by it.
    fn listen(&self, output: impl Read + Send + 'static) {
        let said = self.clone();
        thread::spawn(move || said.hear(output));
    }

    fn hear(&self, mut output: impl Read) {
        let mut piece = [0; 512];
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let mut words = self.words();
            words.tail.extend(piece.iter().take(length));
            let surplus = words.tail.len().saturating_sub(SAID_KEPT);
            if !words.dispatching {
                words.dispatching = text(&words.tail).contains(DISPATCHING);
            }
            words.tail.drain(..surplus);
        }
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Words> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dispatching(&self) -> bool {
        self.words().dispatching
    }

    fn tail(&self) -> String {
        text(&self.words().tail)
    }
}

fn text(bytes: &VecDeque<u8>) -> String {
    let bytes: Vec<u8> = bytes.iter().copied().collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Dropped in the order of the fields.
pub(super) struct RunningNeighbour {
    load: Box<dyn MeterProcess>,
    said: Said,
    guest: Guest,
    environment: Environment,
    effective_settings: EffectiveSettings,
    /// When the load was seen to run, and the CPU time of the guest then.
    loaded: (Instant, Nanos),
    tended: Instant,
}

impl std::fmt::Debug for RunningNeighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningNeighbour")
            .field("guest", &self.guest)
            .finish_non_exhaustive()
    }
}

impl RunningNeighbour {
    /// Loads the guest, and comes back when it is seen to be.
    pub(super) fn start(guest: Guest, environment: Environment) -> Result<Self, DomainError> {
        let (streams, load) = guest.start(&load(guest.description.cpus.len()))?;
        let said = Said::default();
        for output in [streams.output, streams.errors].into_iter().flatten() {
            said.listen(output);
        }
        let mut running = Self {
            load,
            said,
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
        let (begin, limit) = (Instant::now(), self.guest.patience());
        let mut dispatched = None;
        loop {
            self.tend()?;
            let used = self.guest.cpu_time();
            match dispatched {
                None if self.said.is_dispatching() => dispatched = Some(used),
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
                        None => "say that it starts its workers",
                        Some(_) => "use 100 ms of CPU time",
                    },
                    waited: limit,
                    stderr: self.said.tail(),
                });
            }
            thread::sleep(TEND.min(limit));
        }
    }

    fn name(&self) -> String {
        format!("stress-ng in the guest {}", self.guest.description.name)
    }

    /// Looks after the guest and after its load.
    fn tend(&mut self) -> Result<(), DomainError> {
        self.tended = Instant::now();
        self.guest.tend(&self.environment)?;
        match self.load.exit_status() {
            None => Ok(()),
            Some(status) => Err(DomainError::Ended {
                program: self.name(),
                process: self.load.id(),
                status,
                stderr: self.said.tail(),
            }),
        }
    }

    /// What the load used so far of what there was for it.
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
    let needed = format!("{:.0} % of it at least", HARDLY * 100.0);
    let location = format!("load of the guest {guest}");
    if hardly {
        Finding::new(
            Severity::Warning,
            location,
            "it hardly got to run, so that the figures beside it show no noisy neighbour",
        )
        .values(present, needed)
        .fix("leave the housekeeping CPUs to it: end what else runs there")
    } else {
        Finding::new(
            Severity::Note,
            location,
            format!(
                "it used {:.0} % of the CPU time that there was for it, by the time of its virtual CPUs",
                share * 100.0
            ),
        )
        .values(present, needed)
    }
}

impl Running for RunningNeighbour {
    /// There is nothing to be let go: the load runs already.
    fn go(&mut self) -> Result<(), DomainError> {
        self.tend()
    }

    /// Never an event; an error if the guest or its load is gone.
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

    /// It goes on all the time.
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
    fn the_load_is_seen_to_start_however_its_words_come() {
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
        let said = Said::default();
        said.hear(Pieces(vec![&b"setting to run\n"[..]]));
        assert!(!said.is_dispatching());
        // The last is read first.
        said.hear(Pieces(vec![
            &b"hing hogs: 2 cpu\n"[..],
            &b"stress-ng: info: [7] dispatc"[..],
        ]));
        assert!(said.is_dispatching());
        said.hear(std::io::repeat(b'x').take(100_000));
        assert!(said.is_dispatching());
        assert_eq!(said.tail().len(), SAID_KEPT);
        assert!(!load(2).iter().any(|word| word == "--quiet"));
    }

    #[test]
    fn a_neighbour_that_hardly_ran_is_told_as_such() {
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
