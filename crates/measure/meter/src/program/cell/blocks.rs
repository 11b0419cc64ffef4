// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks that the cell makes on its own CPU, with interrupts masked.

use std::time::{Duration, Instant};

use rampart_model::{
    BlockSettings, BlockSpan, CpuId, Finding, Nanos, Refusal, RefusalKind, Severity,
};
use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Read, Reader};

use super::clock::CellClock;
use super::memory::{CellMemory, CellMemoryLocation, silent};
use crate::cell::orders::Block;
use crate::cell::records::CellRecord;
use crate::linux::clock;
use crate::program::blocker::spacing;

/// The longest block: that of the module.
pub(in crate::program) const LONGEST: Nanos = Nanos::SECOND;
/// The largest share of time, in percent.
pub(in crate::program) const SHARE: u32 = 50;

/// Time from the request to the first pause.
const LEAD: Nanos = Nanos::from_millis(1);
/// How long the cell may stay silent beyond the blocks and their pauses.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A cell that blocks itself.
#[derive(Debug)]
pub(in crate::program) struct CellBlocks {
    memory: CellMemory,
    clock: CellClock,
    /// The host's number of the cell's CPU.
    cpu: CpuId,
    /// Number of the order, and the time by which it has to be complete.
    order: Option<(u64, Instant)>,
    /// Sequence number of the next block to report.
    reported: u32,
    made: Option<u64>,
    latest: Nanos,
    lost: u64,
}

impl CellBlocks {
    /// Finds the cell.
    pub(in crate::program) fn prepare(
        location: &CellMemoryLocation,
        settings: &BlockSettings,
    ) -> Result<Self, Refusal> {
        let mut cpus = settings.cpus.iter();
        let (Some(cpu), None) = (cpus.next(), cpus.next()) else {
            let finding = Finding::new(
                Severity::Error,
                "cpus",
                "a cell without an operating system has one CPU",
            );
            return Err(Refusal {
                kind: RefusalKind::BadPlan,
                finding: finding.values(settings.cpus.to_string(), "one CPU"),
            });
        };
        let memory = CellMemory::open(location)?;
        let clock = CellClock::new(memory.scale()?);
        Ok(Self {
            memory,
            clock,
            cpu,
            order: None,
            reported: 0,
            made: None,
            latest: Nanos::ZERO,
            lost: 0,
        })
    }

    /// Starts the blocks.
    pub(in crate::program) fn go(&mut self, settings: &BlockSettings) -> Result<(), Refusal> {
        self.clock.update();
        let order = Block {
            spacing: spacing(settings),
            count: settings.count.into(),
            base: self.clock.cell_time(clock::monotonic() + LEAD),
        };
        let number = self.memory.orders()?.give_block(&order);
        // Pauses are random and at most one and a half times the mean.
        let limit = Duration::from(settings.duration()).mul_f64(1.5) + TIMEOUT;
        self.order = Some((number, Instant::now() + limit));
        Ok(())
    }

    /// Stops making blocks.
    pub(in crate::program) fn stop(&mut self) {
        if let (Some(_), None, Ok(orders)) = (self.order, self.made, self.memory.orders()) {
            let mut none = orders.block();
            if none.count > 0 {
                none.count = 0;
                orders.give_block(&none);
            }
        }
    }

    /// Returns the blocks since the last call, and whether they were the last.
    pub(in crate::program) fn take(&mut self) -> Result<(Vec<BlockSpan>, bool), Refusal> {
        let mut spans = Vec::new();
        let Some((number, limit)) = self.order else {
            return Ok((spans, false));
        };
        self.clock.update();
        let output = self.memory.output()?;
        // The ring holds more than a thousand blocks: read it from its start and skip the blocks
        // that were already reported.
        let Some(mut reader) = Reader::new(output.blocks()) else {
            return Err(silent("a ring for its blocks", Duration::ZERO));
        };
        let mut record_bytes = [0; MAXIMUM_RECORD_BYTES];
        loop {
            let record = match reader.read(&mut record_bytes) {
                Read::Record { kind, bytes } => CellRecord::read(kind, &record_bytes[..bytes]),
                Read::Nothing | Read::NoRing => break,
                Read::Lost(_) | Read::Damaged | Read::Began => None,
            };
            match record {
                Some(CellRecord::Blocked {
                    order,
                    sequence,
                    span: (start, end),
                }) if order == number => {
                    let Ok(sequence) = u32::try_from(sequence) else {
                        continue;
                    };
                    if sequence < self.reported {
                        continue;
                    }
                    self.lost += u64::from(sequence - self.reported);
                    self.reported = sequence + 1;
                    spans.push(BlockSpan {
                        cpu: self.cpu,
                        sequence,
                        start: self.clock.host_time(start),
                        end: self.clock.host_time(end),
                    });
                }
                Some(CellRecord::BlocksDone {
                    order,
                    made,
                    latest,
                }) if order == number => {
                    self.made = Some(made);
                    self.latest = latest;
                }
                _ => {}
            }
        }
        if self.made.is_none() && Instant::now() > limit {
            self.stop();
            return Err(silent("the end of its blocks", TIMEOUT));
        }
        Ok((spans, self.made.is_some()))
    }

    /// Returns the largest lateness of a block.
    pub(in crate::program) const fn latest(&self) -> Nanos {
        self.latest
    }

    /// Returns the findings at the end.
    pub(in crate::program) fn findings(&self) -> Vec<Finding> {
        if self.lost == 0 {
            return Vec::new();
        }
        let what = "some blocks were not read in time";
        vec![
            Finding::new(Severity::Warning, "blocks of the cell", what)
                .values(self.lost.to_string(), "0"),
        ]
    }
}
