// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell without an operating system: `rampart-cell-meter` runs in the cell, and `rampart-meter
//! cell` here is its proxy.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rampart_cells::device::DEVICE;
use rampart_cells::operate::Operator;
use rampart_cells::resolve::{CellRequest, CpuSelection, SharedRequest, Writer};
use rampart_cells::shared_memory::SharedMemory;
use rampart_host::{OnParentExit, StateDirectory, end_child, spawn_tied};
use rampart_meter::cell::memory::{CellOutput, LOAD_BYTES, ORDERS_BYTES, OUTPUT_BYTES, Word};
use rampart_meter::timescale::Timescale;
use rampart_model::{CellPayload, ClockRelation, CpuId, CpuSet, Finding, Nanos, Severity};
use rampart_model::{SignForm, SignInMemory, SignedNanos};

use super::availability::{self, BARE_PROGRAM};
use super::cell_records::CellFile;
use super::launched_cell::Launched;
use crate::session::{Session, Tie};
use crate::{DomainError, Inside, InsideProcess, METER_FIX, Start};

/// Its own memory in bytes: the small program, then the memory that loads use.
pub(super) const MEMORY_BYTES: u64 = (2 << 20) + LOAD_BYTES as u64;

/// A cell without an operating system. Dropping it destroys the cell; end its sessions first,
/// because their shared memory disappears with it.
#[derive(Debug)]
pub(super) struct BareCell {
    output: SharedMemory,
    /// Offsets in the driver's device of the region that the cell writes and of the one that it
    /// reads.
    locations: (u64, u64),
    meter: PathBuf,
    pub(super) launched: Launched,
}

/// Creates, loads and starts a cell.
pub(super) fn boot(state: &StateDirectory, start: &Start<'_>) -> Result<BareCell, DomainError> {
    let unavailable = |finding: Box<Finding>| DomainError::Unavailable(*finding);
    let program = availability::program(BARE_PROGRAM).map_err(unavailable)?;
    let bytes = std::fs::read(&program).map_err(DomainError::file("read", &program))?;
    let file = CellFile::create(state, start.name, &availability::order())?;
    let operator = Operator::open()?;
    let own = |bytes: usize, writer| SharedRequest::Own {
        name: None,
        bytes: bytes as u64,
        writer,
    };
    let request = CellRequest {
        cpus: CpuSelection::List(start.plan.cpus.clone()),
        memory_bytes: MEMORY_BYTES,
        shared: vec![
            own(OUTPUT_BYTES, Writer::Cell),
            own(ORDERS_BYTES, Writer::Root),
        ],
        ..CellRequest::new(file.name())
    };
    let resolved = operator.resolved(&request, start.housekeeping)?;
    let locations = match resolved.shared.as_slice() {
        [output, orders] => (output.physical, orders.physical),
        _ => (0, 0),
    };
    operator.create(&resolved)?;
    let started = || {
        let output = operator
            .device()
            .map_shared(locations.0, OUTPUT_BYTES, false);
        let output = output.map_err(DomainError::file("see the cell's memory at", DEVICE))?;
        operator.load(file.name(), None, &bytes)?;
        operator.start(file.name())?;
        Ok(output)
    };
    let output = match started() {
        Ok(output) => output,
        Err(error) => {
            // Report the first error.
            let _ = operator.destroy(file.name());
            return Err(error);
        }
    };
    let name = program.display().to_string();
    Ok(BareCell {
        output,
        locations,
        meter: start.meter.to_owned(),
        launched: Launched::new(operator, file, &resolved, (CellPayload::BareMetal, name)),
    })
}

impl BareCell {
    /// Returns a command of the proxy, with `words` before the location of the cell's memory and
    /// `rest` after it.
    fn command(&self, words: &[&str], rest: &[&str]) -> Command {
        let mut command = Command::new(&self.meter);
        command
            .args(words)
            .arg(Path::new(DEVICE))
            .args([self.locations.0.to_string(), self.locations.1.to_string()])
            .args(rest);
        command
    }

    /// Starts a session with the meter.
    pub(super) fn session(&self) -> Result<Session, DomainError> {
        let program = format!(
            "{} for the cell {}",
            self.meter.display(),
            self.launched.name()
        );
        Session::start(
            self.command(&["cell"], &[]),
            &program,
            Tie::Killed,
            METER_FIX,
        )
    }

    /// Returns the location of its last sample, or `None` if its clock cannot be read here.
    pub(super) fn sign_in_memory(&self) -> Option<SignInMemory> {
        let output = CellOutput::new(self.output.words())?;
        let scale = Timescale::of_frequency(output.read(Word::Frequency))?;
        let (before, cell, after) = (
            clock_monotonic(),
            scale.moment(counter()?),
            clock_monotonic(),
        );
        let host = Nanos(before.0.midpoint(after.0));
        Some(SignInMemory {
            address: self.locations.0 + 8 * Word::LastSample as u64,
            bytes: 8,
            form: SignForm::LastSample,
            offset: cell.signed_since(host),
        })
    }

    /// Returns the number of interrupts that it has handled since its start.
    pub(super) fn interrupts(&self) -> Option<u64> {
        CellOutput::new(self.output.words()).map(|output| output.read(Word::Interrupts))
    }
}

impl Drop for BareCell {
    fn drop(&mut self) {
        // `release_cells` finds what cannot be removed.
        let _ = self.launched.operator().destroy(self.launched.name());
    }
}

impl Inside for BareCell {
    fn spawn(&self, command: &[String]) -> Result<InsideProcess, DomainError> {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut command = match words.as_slice() {
            ["rampart-meter", "block"] => self.command(&["block", "cell"], &[]),
            ["rampart-meter", "load", request @ ..] => self.command(&["load", "cell"], request),
            _ => {
                return Err(DomainError::Unavailable(
                    Finding::new(
                        Severity::Note,
                        self.launched.name(),
                        "a cell without an operating system runs only the meter",
                    )
                    .values(command.join(" "), "blocks and loads of its own program")
                    .fix("load a cell with Linux: --domains cell:linux"),
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

    fn has_only_the_meter(&self) -> bool {
        true
    }

    /// The cell has no kernel that renumbers its CPUs.
    fn cpu_inside(&self, cpu: CpuId) -> Option<CpuId> {
        self.launched.cpus().contains(cpu).then_some(cpu)
    }

    /// The proxy translates the cell's times into the host's by a counter that both can read; the
    /// uncertainty is that of reading two clocks together.
    fn clock(&self) -> Result<ClockRelation, DomainError> {
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
        Ok(ClockRelation {
            at,
            offset: SignedNanos(0),
            uncertainty: Nanos::from(reading),
            exchanges: EXCHANGES,
        })
    }
}

/// Reads the counter that cells and Linux share, CNTVCT_EL0 (Arm ARM D24.10.24). `None` on other
/// processors.
fn counter() -> Option<u64> {
    #[cfg(target_arch = "aarch64")]
    {
        let value: u64;
        // SAFETY: Linux leaves the virtual count readable from user space (CNTKCTL_EL1.EL0VCTEN).
        unsafe {
            core::arch::asm!("isb", "mrs {}, cntvct_el0", out(reg) value, options(nostack));
        }
        Some(value)
    }
    #[cfg(not(target_arch = "aarch64"))]
    None
}

fn clock_monotonic() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * Nanos::SECOND.0 + now.tv_nsec as u64)
}

/// A program that is killed when it is dropped.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = end_child(&mut self.0);
    }
}

/// Returns the CPUs that a cell's proxy may use.
pub(super) fn beside(start: &CpuSet, cell: &CpuSet) -> CpuSet {
    start.difference(cell)
}
