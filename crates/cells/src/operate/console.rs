// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cell's console: records of text in a shared region that the cell writes. It is the region that
//! begins as a ring of records does (`crates/ring`).

use rampart_hypervisor_core::format::MemoryFlags;
use rampart_model::{Finding, Severity};
use rampart_ring::records::{MAGIC, MAXIMUM_RECORD_BYTES, Read, Reader};

use super::{OperateError, Operator};
use crate::device::Device;
use crate::resolve::CellInUse;
use crate::shared::SharedMemory;

/// The most that one look gives.
const MOST_EVENTS: usize = 1024;

/// What one look at a console gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConsoleEvent {
    /// A line.
    Line(String),
    /// So many bytes were overwritten before they were read.
    Lost(u64),
    /// The writer began anew: what it had written and was not read is gone.
    Began,
    /// What is there makes no sense; reading goes on after it.
    Damaged,
}

/// A console.
#[derive(Debug)]
pub struct Console(SharedMemory);

impl Console {
    /// The console of a cell.
    ///
    /// # Errors
    /// If there is no such cell, or it has written none.
    pub fn open(operator: &Operator, name: &str) -> Result<Self, OperateError> {
        let cell = operator.cell(name)?;
        let found = regions(operator.device(), &cell)
            .into_iter()
            .find(|memory| memory.load(0) == Some(MAGIC));
        let memory = found.ok_or_else(|| {
            OperateError::refused(
                Finding::new(
                    Severity::Problem,
                    format!("cell {name}"),
                    "it has no console",
                )
                .values(
                    "no shared region begins as a ring of records",
                    "a cell whose program writes one (crates/ring)",
                )
                .mend(format!(
                    "start it first: rampart cell start {name}; rampart cell list shows its state"
                )),
            )
        })?;
        Ok(Self(memory))
    }

    /// Reads from the oldest record that is whole. `take` gets what is new at each look, which may be
    /// nothing, and says whether to look again.
    pub fn read(&self, mut take: impl FnMut(Vec<ConsoleEvent>) -> bool) {
        let Some(mut reader) = Reader::new(self.0.words()) else {
            return;
        };
        let mut room = [0; MAXIMUM_RECORD_BYTES];
        loop {
            let mut found = Vec::new();
            // One that writes all the time shall not keep us here.
            while found.len() < MOST_EVENTS {
                found.push(match reader.read(&mut room) {
                    Read::Record { bytes, .. } => {
                        let text = String::from_utf8_lossy(&room[..bytes]);
                        ConsoleEvent::Line(text.trim_end_matches(['\n', '\r']).to_owned())
                    }
                    Read::Lost(words) => ConsoleEvent::Lost(words.saturating_mul(8)),
                    Read::Began => ConsoleEvent::Began,
                    Read::Damaged => ConsoleEvent::Damaged,
                    Read::Nothing | Read::NoRing => break,
                });
            }
            if !take(found) {
                return;
            }
        }
    }
}

/// The shared regions that the root may read.
fn regions(device: &Device, cell: &CellInUse) -> Vec<SharedMemory> {
    let shared = cell.shared();
    let readable = shared.filter(|region| region.flags().contains(MemoryFlags::ROOT_READ));
    readable
        .filter_map(|region| {
            device
                .map_shared(region.physical, region.bytes as usize, false)
                .ok()
        })
        .collect()
}
