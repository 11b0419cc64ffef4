// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carries out orders to measure, one after the other.

use core::cell::{Cell, RefCell};

use rampart_model::Nanos;
use rampart_ring::records::RecordWriter;

use super::loads::Loads;
use super::memory::{CellOutput, Word};
use super::orders::{Measure, Meter, Orders};
use super::records::{CellRecord, Done};
use crate::engine::control_loop::ControlLoop;
use crate::engine::fwq::FixedWork;
use crate::engine::irq::Irq;
use crate::engine::mmio::Mmio;
use crate::engine::noise::{Noise, NoiseTotals, own_period};
use crate::engine::wakeup::Wakeup;
use crate::engine::work::{arithmetic, calibrate};
use crate::engine::{
    Clock, Counter, InterruptSource, Page, Processor, ProcessorWatch, Registers, Sample, Sink,
    Sleep, Stop, Work,
};
use crate::timescale::Timescale;

/// Longest sleep between two checks whether the measurement is still wanted.
const LONGEST_SLEEP: Nanos = Nanos::from_millis(100);
/// The shortest default threshold of `noise`.
const SHORTEST_THRESHOLD: Nanos = Nanos(200);

/// The hardware of the cell. The clock is `scale` of the counter. A sleep may end early and need
/// not check for stop requests.
pub trait Hardware: Clock + Counter + Sleep + Registers {
    /// Whether it has a timer with an interrupt, and device registers.
    const HAS_INTERRUPTS: bool = true;

    /// Returns the conversion of counter ticks to moments and lengths.
    fn scale(&self) -> Timescale;

    /// Triggers the interrupt of the blocks, which takes the order.
    fn start_blocks(&self);

    /// Sets the timer to this moment, or to now if it has passed.
    fn start_timer(&self, at: Nanos);

    /// Returns when the handler of the timer's interrupt first read the counter, if it has run
    /// since [`Hardware::start_timer`].
    fn timer_taken(&self) -> Option<Nanos>;

    /// Sets an interrupt of the timer at this moment without waiting for it.
    fn interrupt_at(&self, at: Nanos);
}

/// The prepared measurement.
#[derive(Debug, Clone, Copy)]
enum Prepared {
    Wakeup(Nanos),
    Noise(Noise),
    Fwq(u64),
    Loop(Nanos, u64),
    Irq(Nanos),
    Mmio(Nanos),
}

/// The loop of a measurement.
enum Engine {
    Wakeup(Wakeup),
    Noise(Noise),
    Fwq(FixedWork),
    Loop(ControlLoop),
    Irq(Irq),
    Mmio(Mmio),
}

/// The program.
#[derive(Debug)]
pub struct Program<'a, H> {
    hardware: &'a H,
    output: CellOutput<'a>,
    orders: Orders<'a>,
    writer: RecordWriter<'a>,
    /// Number of the order that was executed last.
    executed: u64,
    /// Number of the last block order for which the interrupt was triggered.
    blocks: Cell<u64>,
    /// Borrowed for one slice at a time.
    loads: RefCell<Loads<'a>>,
    prepared: Option<Prepared>,
}

impl<'a, H: Hardware> Program<'a, H> {
    /// Creates the program; the next order is the first. Returns `None` if the ring of `output` is
    /// too small.
    #[must_use]
    pub fn new(
        hardware: &'a H,
        (output, orders): (CellOutput<'a>, Orders<'a>),
        loads: Loads<'a>,
    ) -> Option<Self> {
        Some(Self {
            hardware,
            output,
            orders,
            writer: RecordWriter::begin(output.samples())?,
            executed: orders.measure_number(),
            blocks: Cell::new(orders.block_number()),
            loads: RefCell::new(loads),
            prepared: None,
        })
    }

    /// Waits until this moment; runs the load, if one is ordered.
    pub fn rest(&self, until: Nanos) {
        let loaded = load_until(self.hardware, &self.loads, until, &|| false);
        if !loaded {
            self.hardware.sleep_until(until);
        }
    }

    /// Executes the orders since the last call.
    pub fn serve(&mut self) {
        look_for_blocks(self.hardware, self.orders, &self.blocks);
        let number = self.orders.measure_number();
        if number == self.executed {
            return;
        }
        self.executed = number;
        match self.orders.measure() {
            Some(Measure::Prepare {
                meter: Meter::Irq | Meter::Mmio,
                ..
            }) if !H::HAS_INTERRUPTS => {
                CellRecord::Refused { order: number }.write(&mut self.writer)
            }
            Some(Measure::Prepare {
                meter,
                interval,
                work,
                threshold,
            }) => self.prepare(number, meter, (interval, work, threshold)),
            Some(Measure::Go {
                start,
                measured,
                end,
            }) => match self.prepared.take() {
                Some(prepared) => self.measure(number, prepared, (start, measured, end)),
                None => CellRecord::Refused { order: number }.write(&mut self.writer),
            },
            None => CellRecord::Refused { order: number }.write(&mut self.writer),
        }
    }

    fn inside(&mut self, number: u64, is_noise: bool) -> Inside<'_, 'a, H> {
        Inside {
            hardware: self.hardware,
            output: self.output,
            orders: self.orders,
            writer: &mut self.writer,
            blocks: &self.blocks,
            loads: &self.loads,
            number,
            scale: is_noise.then(|| self.hardware.scale()),
        }
    }

    fn prepare(
        &mut self,
        number: u64,
        meter: Meter,
        (interval, work, threshold): (Nanos, Nanos, Nanos),
    ) {
        let scale = self.hardware.scale();
        let mut inside = self.inside(number, meter == Meter::Noise);
        let (prepared, threshold) = match meter {
            Meter::Wakeup => (Prepared::Wakeup(interval), Nanos::ZERO),
            Meter::Irq => (Prepared::Irq(interval), Nanos::ZERO),
            Meter::Mmio => (Prepared::Mmio(interval), Nanos::ZERO),
            Meter::Fwq => (Prepared::Fwq(calibrate(&inside, work)), Nanos::ZERO),
            Meter::Loop => (
                Prepared::Loop(interval, calibrate(&inside, work)),
                Nanos::ZERO,
            ),
            Meter::Noise => {
                let threshold = if threshold == Nanos::ZERO {
                    let own = scale.length(own_period(&mut inside, &scale));
                    Nanos(own.0 * 3 / 1024).max(SHORTEST_THRESHOLD)
                } else {
                    threshold
                };
                // If the counter ticks slowly, every gap of more than one tick is recorded.
                let ticks = scale.ticks(threshold).max(2);
                (Prepared::Noise(Noise::new(ticks)), scale.length(ticks))
            }
        };
        self.prepared = Some(prepared);
        CellRecord::Ready {
            order: number,
            threshold,
        }
        .write(&mut self.writer);
    }

    fn measure(
        &mut self,
        number: u64,
        prepared: Prepared,
        (start, measured, end): (Nanos, Nanos, Nanos),
    ) {
        let mut engine = match prepared {
            Prepared::Wakeup(interval) => Engine::Wakeup(Wakeup::new(start, interval)),
            Prepared::Noise(noise) => Engine::Noise(noise),
            Prepared::Irq(interval) => Engine::Irq(Irq::new(start, interval)),
            Prepared::Mmio(interval) => Engine::Mmio(Mmio::new(start, interval)),
            Prepared::Fwq(turns) => Engine::Fwq(FixedWork::new(turns)),
            Prepared::Loop(interval, turns) => {
                Engine::Loop(ControlLoop::new(start, interval, turns))
            }
        };
        let is_noise = matches!(engine, Engine::Noise(_));
        let output = self.output;
        let orders = self.orders;
        let mut inside = self.inside(number, is_noise);
        inside.sleep_until(start);
        engine.run(&mut inside, measured);
        if let Engine::Fwq(fixed_work) = &mut engine {
            fixed_work.restart();
        }
        CellRecord::WarmedUp { order: number }.write(inside.writer);
        let begun = inside.now();
        let interrupts = output.read(Word::Interrupts);
        let noise = engine.run(&mut inside, end);
        let (turns, shortest, lowered) = match &engine {
            Engine::Fwq(work) => (
                work.turns(),
                work.shortest().unwrap_or_default(),
                work.lowered(),
            ),
            Engine::Loop(control) => (control.turns(), Nanos::ZERO, Nanos::ZERO),
            _ => (0, Nanos::ZERO, Nanos::ZERO),
        };
        let done = Done {
            begun,
            ended: inside.now(),
            stopped: orders.ends(number),
            interrupts: output.read(Word::Interrupts).wrapping_sub(interrupts),
            turns,
            shortest,
            lowered,
            noise,
        };
        CellRecord::Done {
            order: number,
            done,
        }
        .write(inside.writer);
    }
}

impl Engine {
    fn run<H: Hardware>(&mut self, inside: &mut Inside<'_, '_, H>, until: Nanos) -> NoiseTotals {
        // A cell has one CPU, so no migration is possible.
        let mut watch = ProcessorWatch::default();
        let scale = inside.hardware.scale();
        match self {
            Self::Wakeup(wakeup) => wakeup.run(inside, &mut watch, until),
            Self::Irq(irq) => irq.run(inside, &mut watch, until),
            Self::Mmio(mmio) => mmio.run(inside, &mut watch, until),
            Self::Fwq(fixed_work) => fixed_work.run(inside, &mut watch, until),
            Self::Loop(control_loop) => control_loop.run(inside, &mut watch, until),
            Self::Noise(noise) => return noise.run(inside, &mut watch, &scale, until),
        }
        NoiseTotals::default()
    }
}

/// Triggers the interrupt of the blocks if there is a new order for it.
#[inline(always)]
fn look_for_blocks(hardware: &impl Hardware, orders: Orders<'_>, seen: &Cell<u64>) {
    let number = orders.block_number();
    if number != seen.get() {
        seen.set(number);
        hardware.start_blocks();
    }
}

/// Runs the ordered load until this moment or until it is to stop. Returns `false` if there is no
/// load to run.
fn load_until(
    hardware: &impl Hardware,
    loads: &RefCell<Loads<'_>>,
    until: Nanos,
    stop: &dyn Fn() -> bool,
) -> bool {
    let Ok(mut loads) = loads.try_borrow_mut() else {
        return false;
    };
    if !loads.step(hardware) {
        return false;
    }
    // An interrupt ends the load at this moment, as it ends a sleep.
    hardware.interrupt_at(until);
    while hardware.now() < until && !stop() {
        if !loads.step(hardware) {
            return false;
        }
    }
    true
}

/// The environment of the loops in a cell.
struct Inside<'p, 'a, H> {
    hardware: &'a H,
    output: CellOutput<'a>,
    orders: Orders<'a>,
    writer: &'p mut RecordWriter<'a>,
    blocks: &'p Cell<u64>,
    loads: &'p RefCell<Loads<'a>>,
    number: u64,
    /// Set if samples are in ticks.
    scale: Option<Timescale>,
}

impl<H: Hardware> Clock for Inside<'_, '_, H> {
    #[inline(always)]
    fn now(&self) -> Nanos {
        self.hardware.now()
    }
}

impl<H: Hardware> Counter for Inside<'_, '_, H> {
    #[inline(always)]
    fn read(&self) -> u64 {
        self.hardware.read()
    }
}

impl<H: Hardware> Work for Inside<'_, '_, H> {
    fn work(&self, turns: u64) {
        arithmetic(turns);
    }
}

impl<H: Hardware> Processor for Inside<'_, '_, H> {
    #[inline(always)]
    fn processor(&self) -> u32 {
        0
    }
}

impl<H: Hardware> Stop for Inside<'_, '_, H> {
    #[inline(always)]
    fn stop_requested(&self) -> bool {
        look_for_blocks(self.hardware, self.orders, self.blocks);
        self.orders.ends(self.number)
    }
}

impl<H: Hardware> Sleep for Inside<'_, '_, H> {
    fn sleep_until(&self, at: Nanos) -> bool {
        loop {
            if self.stop_requested() {
                return false;
            }
            let now = self.hardware.now();
            if now >= at {
                return true;
            }
            let until = at.min(now + LONGEST_SLEEP);
            let stop = || self.stop_requested();
            if !load_until(self.hardware, self.loads, until, &stop) {
                self.hardware.sleep_until(until);
            }
        }
    }
}

impl<H: Hardware> InterruptSource for Inside<'_, '_, H> {
    fn interrupt_at(&self, at: Nanos) -> Option<Nanos> {
        self.hardware.start_timer(at);
        loop {
            if let Some(taken) = self.hardware.timer_taken() {
                return Some(taken);
            }
            if self.stop_requested() {
                return None;
            }
            core::hint::spin_loop();
        }
    }
}

impl<H: Hardware> Registers for Inside<'_, '_, H> {
    fn accesses(&self, page: Option<Page>) -> Nanos {
        self.hardware.accesses(page)
    }
}

impl<H: Hardware> Sink for Inside<'_, '_, H> {
    fn push(&mut self, sample: Sample) {
        let sample = match &self.scale {
            Some(scale) => Sample {
                at: scale.moment(sample.at).0,
                value: scale.length(sample.value).0,
                ..sample
            },
            None => sample,
        };
        CellRecord::Sample(sample).write(self.writer);
        self.output.write(Word::LastSample, sample.at);
    }
}
