// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter without an operating system: the programs here that speak for it over shared memory, and its clock.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use rampart_host::{OnParentExit, end_child, spawn_tied};
use rampart_meter::cell::memory::{CellOutput, Word};
use rampart_meter::timescale::Timescale;
use rampart_model::{ClockRelation, Finding, Nanos, Severity, SignForm, SignInMemory, SignedNanos};

use crate::session::{Session, Tie};
use crate::{DomainError, InsideProcess, METER_FIX};

/// The programs that speak for a meter.
#[derive(Debug)]
pub(crate) struct Proxies {
    pub(crate) meter: PathBuf,
    /// The file that maps its memory.
    pub(crate) file: PathBuf,
    /// Offsets of the region that the meter writes and of the one that it reads.
    pub(crate) locations: (u64, u64),
    /// Its name in messages.
    pub(crate) name: String,
}

impl Proxies {
    /// Returns a command with `words` before the location of the memory and `rest` after it.
    pub(crate) fn command(&self, words: &[&str], rest: &[&str]) -> Command {
        let mut command = Command::new(&self.meter);
        command
            .args(words)
            .arg(&self.file)
            .args([self.locations.0.to_string(), self.locations.1.to_string()])
            .args(rest);
        command
    }

    /// Starts a session with the meter.
    pub(crate) fn session(&self) -> Result<Session, DomainError> {
        let program = format!("{} for {}", self.meter.display(), self.name);
        Session::start(
            self.command(&["cell"], &[]),
            &program,
            Tie::Killed,
            METER_FIX,
        )
    }

    /// Starts blocks or a load, as [`crate::Inside::spawn`].
    pub(crate) fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut command = match words.as_slice() {
            ["rampart-meter", "block"] => self.command(&["block", "cell"], &[]),
            ["rampart-meter", "load", request @ ..] => self.command(&["load", "cell"], request),
            _ => {
                return Err(DomainError::Unavailable(
                    Finding::new(
                        Severity::Note,
                        self.name.as_str(),
                        "a meter without an operating system has no other program beside it",
                    )
                    .values(command.join(" "), "its own blocks and loads")
                    .fix("measure a domain with a kernel: --domains vm or cell:linux"),
                ));
            }
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let not_started = |source| DomainError::NotStarted {
            program: self.meter.display().to_string(),
            source,
            fix: METER_FIX.to_owned(),
        };
        let mut child = spawn_tied(command, OnParentExit::Kill).map_err(not_started)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(not_started(std::io::ErrorKind::BrokenPipe.into()));
        };
        Ok(InsideProcess {
            input: Box::new(input),
            output: Box::new(output),
            handle: Box::new(Ended(child)),
        })
    }
}

/// Returns the relation of the host's clock to times that a proxy has translated: both sides read the same counter,
/// and the uncertainty is that of reading two clocks together.
pub(crate) fn translated_clock() -> ClockRelation {
    const EXCHANGES: u32 = 16;
    let at = clock_monotonic();
    let reading = (0..EXCHANGES)
        .map(|_| {
            let begin = Instant::now();
            let _ = clock_monotonic();
            begin.elapsed()
        })
        .min()
        .unwrap_or_default();
    ClockRelation {
        at,
        offset: SignedNanos(0),
        uncertainty: Nanos::from(reading),
        exchanges: EXCHANGES,
    }
}

/// Returns the location of a meter's last sample, or `None` if its clock cannot be read here. `physical` is the
/// address of the region that it writes.
pub(crate) fn sign_in_memory(output: &[AtomicU64], physical: u64) -> Option<SignInMemory> {
    let output = CellOutput::new(output)?;
    let scale = Timescale::of_frequency(output.read(Word::Frequency))?;
    let (before, own, after) = (
        clock_monotonic(),
        scale.moment(counter()?),
        clock_monotonic(),
    );
    let host = Nanos(before.0.midpoint(after.0));
    Some(SignInMemory {
        address: physical + 8 * Word::LastSample as u64,
        bytes: 8,
        form: SignForm::LastSample,
        offset: own.signed_since(host),
    })
}

/// Reads the counter that the meter and Linux share: the time stamp counter, or CNTVCT_EL0 (Arm ARM D24.10.24).
/// `None` on other processors.
fn counter() -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 processor has the instruction, and Linux permits it in user space.
        Some(unsafe { core::arch::x86_64::_rdtsc() })
    }
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: Linux leaves the virtual count readable from user space (CNTKCTL_EL1.EL0VCTEN).
        unsafe {
            core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack));
        }
        Some(value)
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    None
}

fn clock_monotonic() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * Nanos::SECOND.0 + now.tv_nsec as u64)
}

/// A program that is killed when it is dropped.
pub(crate) struct Ended(pub(crate) std::process::Child);

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ended").field(&self.0.id()).finish()
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = end_child(&mut self.0);
    }
}
