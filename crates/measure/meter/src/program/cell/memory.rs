// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shared memory of a cell and the program in the cell.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rampart_model::{Finding, Refusal, RefusalKind, Severity};
use rampart_ring::mapping::SharedMapping;

use crate::cell::memory::{CellOutput, ORDERS_BYTES, OUTPUT_BYTES, REVISION, Word};
use crate::cell::orders::Orders;
use crate::linux::diagnosis;
use crate::timescale::Timescale;

/// How long the cell's program may take to begin.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_millis(2);
/// Location in findings about a cell.
pub(super) const PLACE: &str = "the cell's memory";

/// The two regions that root and cell share, in a file that maps them: `/dev/rampart`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellMemoryLocation {
    /// The file.
    pub file: PathBuf,
    /// Offset of the region that the cell writes, in bytes.
    pub output: u64,
    /// Offset of the region that the root writes, in bytes.
    pub orders: u64,
}

impl CellMemoryLocation {
    /// Parses the arguments `FILE OUTPUT ORDERS`. Returns `None` if they are invalid.
    #[must_use]
    pub fn parse(arguments: &[OsString]) -> Option<Self> {
        let [file, output, orders] = arguments else {
            return None;
        };
        let number = |text: &OsString| text.to_str()?.parse().ok();
        Some(Self {
            file: file.into(),
            output: number(output)?,
            orders: number(orders)?,
        })
    }
}

/// The mapped regions.
#[derive(Debug)]
pub(crate) struct CellMemory {
    output: SharedMapping,
    orders: SharedMapping,
}

impl CellMemory {
    pub(crate) fn open(location: &CellMemoryLocation) -> Result<Self, Refusal> {
        let region = |offset, bytes, writable| {
            map(&location.file, offset, bytes, writable).map_err(|cause| {
                let location = format!("{} at {offset:#x}", location.file.display());
                diagnosis::system(&location, "cannot map the memory of the cell", &cause)
            })
        };
        Ok(Self {
            output: region(location.output, OUTPUT_BYTES, false)?,
            orders: region(location.orders, ORDERS_BYTES, true)?,
        })
    }

    pub(super) fn output(&self) -> Result<CellOutput<'_>, Refusal> {
        CellOutput::new(self.output.words()).ok_or_else(too_small)
    }

    pub(super) fn orders(&self) -> Result<Orders<'_>, Refusal> {
        Orders::new(self.orders.words()).ok_or_else(too_small)
    }

    /// Waits until the cell's program has begun and returns the scale of its clock.
    pub(super) fn scale(&self) -> Result<Timescale, Refusal> {
        let output = self.output()?;
        let begin = Instant::now();
        while output.read(Word::Revision) == 0 && begin.elapsed() < BEGIN_TIMEOUT {
            std::thread::sleep(PAUSE);
        }
        let revision = output.read(Word::Revision);
        if revision != REVISION {
            let finding = if revision == 0 {
                let what = "the program in the cell has not started within 8 s";
                problem(what).fix("rampart cell list")
            } else {
                problem("the program in the cell has another revision")
                    .values(revision.to_string(), REVISION.to_string())
                    .fix("use rampart-meter and rampart-cell-meter of the same version")
            };
            return Err(refused(finding));
        }
        let hertz = output.read(Word::Frequency);
        Timescale::of_frequency(hertz).ok_or_else(|| {
            let finding = problem("the cell's counter is too slow to measure with");
            refused(finding.values(format!("{hertz} Hz"), "more than 16 kHz"))
        })
    }
}

/// Maps pages of a file.
pub(in crate::program) fn map(
    path: &Path,
    offset: u64,
    bytes: usize,
    writable: bool,
) -> io::Result<SharedMapping> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    SharedMapping::new(file, offset, bytes, writable)
}

fn problem(what: &str) -> Finding {
    Finding::new(Severity::Error, PLACE, what)
}

pub(super) fn refused(finding: Finding) -> Refusal {
    Refusal {
        kind: RefusalKind::System,
        finding,
    }
}

/// Returns the refusal for a cell that does not answer an order.
pub(super) fn silent(what: &str, waited: Duration) -> Refusal {
    let finding = problem("the program in the cell does not answer")
        .values(
            "silence",
            format!("{what} within {:.0} s", waited.as_secs_f64()),
        )
        .fix("rampart cell list");
    refused(finding)
}

fn too_small() -> Refusal {
    refused(problem(
        "the shared memory is smaller than the cell's program needs",
    ))
}
