// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Blocks the cell's CPU: it spins with interrupts masked for a known length, in the handler of a
//! separate interrupt. A meter in the cell must measure these blocks; no other cell may notice
//! them.

use rampart_model::Nanos;
use rampart_ring::records::RecordWriter;

use super::memory::CellOutput;
use super::orders::{Block, Orders};
use super::records::CellRecord;
use crate::engine::Clock;
use crate::engine::schedule::Schedule;

/// The state of the blocks. Only the handler uses it.
#[derive(Debug)]
pub struct BlockMaker<'a> {
    orders: Orders<'a>,
    writer: RecordWriter<'a>,
    /// Number of the present or last order.
    number: u64,
    order: Option<(Block, Schedule)>,
    made: u64,
    latest: Nanos,
}

impl<'a> BlockMaker<'a> {
    /// Creates the state; the next order is the first. Returns `None` if the ring of `output` is
    /// too small.
    #[must_use]
    pub fn new(output: &CellOutput<'a>, orders: Orders<'a>) -> Option<Self> {
        Some(Self {
            orders,
            writer: RecordWriter::begin(output.blocks())?,
            number: orders.block_number(),
            order: None,
            made: 0,
            latest: Nanos::ZERO,
        })
    }

    /// Handles the interrupt: takes a new order and makes the block that is due. Returns when to
    /// interrupt again, or `None` if no block is left.
    pub fn step(&mut self, clock: &impl Clock) -> Option<Nanos> {
        let number = self.orders.block_number();
        if number != self.number {
            self.finish();
            self.begin(number);
        }
        let (order, schedule) = self.order.as_mut()?;
        let start = clock.now();
        if start < schedule.next() {
            return Some(schedule.next());
        }
        while clock.now() < start + order.spacing.length {
            core::hint::spin_loop();
        }
        let end = clock.now();
        self.latest = self.latest.max(schedule.lateness(start));
        schedule.advance(end);
        let (sequence, next) = (self.made, schedule.next());
        let is_last = sequence + 1 >= order.count;
        self.made += 1;
        CellRecord::Blocked {
            order: number,
            sequence,
            span: (start, end),
        }
        .write(&mut self.writer);
        if is_last {
            self.finish();
            return None;
        }
        Some(next)
    }

    fn begin(&mut self, number: u64) {
        let order = self.orders.block();
        self.number = number;
        (self.made, self.latest) = (0, Nanos::ZERO);
        if order.count > 0 {
            self.order = Some((order, Schedule::new(order.spacing, order.base)));
        }
    }

    /// Reports the end of the previous order, if there is one.
    fn finish(&mut self) {
        if self.order.take().is_some() {
            CellRecord::BlocksDone {
                order: self.number,
                made: self.made,
                latest: self.latest,
            }
            .write(&mut self.writer);
        }
    }
}
