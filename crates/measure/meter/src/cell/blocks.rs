// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cell's own blocks: its CPU spins with interrupts masked for a known length, in the handler of
//! an interrupt of their own. What measures in the cell must see them; nobody else may.

use rampart_model::Nanos;
use rampart_ring::records::Writer;

use super::memory::CellOutput;
use super::orders::{Block, Orders};
use super::records::Record;
use crate::engine::Clock;
use crate::engine::schedule::Schedule;

/// What makes them. All of it belongs to the handler alone.
#[derive(Debug)]
pub struct Blocks<'a> {
    orders: Orders<'a>,
    writer: Writer<'a>,
    /// Of the order that is carried out, or was.
    number: u64,
    order: Option<(Block, Schedule)>,
    made: u64,
    latest: Nanos,
}

impl<'a> Blocks<'a> {
    /// Ready for the first order that comes from now on; none if its ring has no room.
    #[must_use]
    pub fn new(output: &CellOutput<'a>, orders: Orders<'a>) -> Option<Self> {
        Some(Self {
            orders,
            writer: Writer::begin(output.blocks())?,
            number: orders.block_number(),
            order: None,
            made: 0,
            latest: Nanos::ZERO,
        })
    }

    /// The interrupt has come: takes a new order, makes the block whose moment has come. When to
    /// come again; none where nothing is left to do.
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
        Record::Blocked {
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

    /// Tells that the order before is over, if there is one.
    fn finish(&mut self) {
        if self.order.take().is_some() {
            Record::BlocksDone {
                order: self.number,
                made: self.made,
                latest: self.latest,
            }
            .write(&mut self.writer);
        }
    }
}
