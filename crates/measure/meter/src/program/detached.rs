// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A meter on a CPU that is taken from Linux: this process's only thread runs the loops of a cell without an
//! operating system ([`crate::cell`]) there, over the same shared memory, and makes no system call.
//!
//! It waits by spinning on the counter. No interrupt comes, so a block is made where the loops read the counter.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use rampart_detach::{Cpu, IS_BUILT};
use rampart_model::{ExitCode, Finding, Nanos, Severity};
use rampart_ring::mapping::SharedMapping;

use super::cell::{CellMemoryLocation, map};
use crate::cell::blocks::BlockMaker;
use crate::cell::loads::Loads;
use crate::cell::memory::{CellOutput, LOAD_BYTES, ORDERS_BYTES, OUTPUT_BYTES, REVISION, Word};
use crate::cell::orders::Orders;
use crate::cell::program::{Hardware, Program};
use crate::engine::{Clock, Counter, Page, Registers, Sleep};
use crate::linux::{counter, memory_locking};
use crate::timescale::Timescale;

/// Size of the smallest pages that Linux uses.
const SMALLEST_PAGE: usize = 4096;
/// Interval at which the program looks for orders while it does not measure.
const IDLE: Nanos = Nanos::from_millis(1);

/// The CPU, with the blocks that it makes.
#[derive(Debug)]
struct TakenCpu<'a> {
    scale: Timescale,
    blocks: RefCell<BlockMaker<'a>>,
    /// When the next block is due, in ticks.
    due: Cell<u64>,
}

impl TakenCpu<'_> {
    #[cold]
    fn block(&self) {
        // The block itself reads the clock.
        self.due.set(u64::MAX);
        let next = self.blocks.borrow_mut().step(self);
        if let Some(next) = next {
            self.due.set(self.scale.ticks(next));
        }
    }
}

#[cfg(not(test))]
use counter::hardware as ticks;

/// The counter of the tests: it counts its reads, so that no result depends on how busy the machine is.
#[cfg(test)]
fn ticks() -> u64 {
    thread_local!(static READS: Cell<u64> = const { Cell::new(0) });
    let reads = READS.get() + 1;
    READS.set(reads);
    reads * 100
}

impl Counter for TakenCpu<'_> {
    #[inline(always)]
    fn read(&self) -> u64 {
        let ticks = ticks();
        if ticks >= self.due.get() {
            self.block();
        }
        ticks
    }
}

impl Clock for TakenCpu<'_> {
    #[inline(always)]
    fn now(&self) -> Nanos {
        counter::fence();
        self.scale.moment(self.read())
    }
}

impl Sleep for TakenCpu<'_> {
    fn sleep_until(&self, at: Nanos) -> bool {
        while self.now() < at {
            std::hint::spin_loop();
        }
        true
    }
}

impl Registers for TakenCpu<'_> {
    fn accesses(&self, _: Option<Page>) -> Nanos {
        Nanos::ZERO
    }
}

impl Hardware for TakenCpu<'_> {
    const HAS_INTERRUPTS: bool = false;

    fn scale(&self) -> Timescale {
        self.scale
    }

    fn start_blocks(&self) {
        self.due.set(0);
    }

    fn start_timer(&self, _: Nanos) {}

    fn timer_taken(&self) -> Option<Nanos> {
        None
    }

    fn interrupt_at(&self, _: Nanos) {}
}

/// Measures on the CPU that the caller took and passed on, until the process is killed.
#[must_use]
pub fn run_detached(location: &CellMemoryLocation) -> ExitCode {
    let Err(finding) = measure(location);
    // Standard error may be closed.
    let _ = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("rampart-meter: {finding}\n").as_bytes(),
    );
    ExitCode::PreconditionMissing
}

fn measure(location: &CellMemoryLocation) -> Result<std::convert::Infallible, Finding> {
    let problem = |what: String| Finding::new(Severity::Error, "detached thread", what);
    if !IS_BUILT {
        return Err(problem(
            "rampart-meter was built without a C compiler for this architecture".to_owned(),
        )
        .fix("install one, and build it again"));
    }
    let region = |offset, bytes, writable| {
        map(&location.file, offset, bytes, writable)
            .map(SharedMapping::leak)
            .map_err(|cause| problem(format!("{}: {cause}", location.file.display())))
    };
    let written = region(location.output, OUTPUT_BYTES, true)?;
    let orders = region(location.orders, ORDERS_BYTES, false)?;
    let memory: Vec<AtomicU64> = (0..LOAD_BYTES as u64 / 8).map(AtomicU64::new).collect();
    let mut cpu = Cpu::passed().map_err(|cause| problem(cause.to_string()))?;
    let parts = || {
        let (output, orders) = (CellOutput::new(written)?, Orders::new(orders)?);
        let hardware = TakenCpu {
            scale: Timescale::of_frequency(cpu.clock_frequency())?,
            blocks: RefCell::new(BlockMaker::new(&output, orders)?),
            due: Cell::new(u64::MAX),
        };
        Some((output, orders, hardware))
    };
    let (output, orders, hardware) =
        parts().ok_or_else(|| problem("its memory is too small".to_owned()))?;
    let loads = Loads::new(output, orders, &memory);
    let mut program = Program::new(&hardware, (output, orders), loads)
        .ok_or_else(|| problem("its memory is too small".to_owned()))?;
    // A page fault would be an interrupt.
    memory_locking::lock().map_err(|cause| problem(format!("cannot lock its memory: {cause}")))?;
    memory_locking::prefault_stack();
    // Locking reads shared pages only (mm/gup.c: `populate_vma_page_range`). Processors that do not mark a page dirty
    // themselves (Arm ARM, FEAT_HAFDBS) fault at the first write.
    for word in written
        .iter()
        .step_by(SMALLEST_PAGE / size_of::<AtomicU64>())
    {
        word.fetch_or(0, Ordering::Relaxed);
    }
    let frequency = cpu.clock_frequency();
    cpu.run(|thread| {
        output.write(Word::Frequency, frequency);
        output.write(Word::Revision, REVISION);
        output.count(Word::Begun);
        while thread.is_detached() {
            program.serve();
            program.rest(hardware.now() + IDLE);
        }
    })
    .map_err(|cause| problem(cause.to_string()))?;
    Err(problem(
        "Linux has the thread again: a signal, an exception, or the CPU was given back".to_owned(),
    ))
}

#[cfg(test)]
mod tests {
    use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Read, Reader};

    use super::*;
    use crate::cell::orders::{Block, Measure, Meter};
    use crate::cell::records::CellRecord;
    use crate::engine::schedule::Spacing;

    const LENGTH: Nanos = Nanos::from_millis(5);

    fn words(bytes: usize) -> Vec<AtomicU64> {
        (0..bytes as u64 / 8).map(|_| AtomicU64::new(0)).collect()
    }

    fn records(memory: &[AtomicU64]) -> Vec<CellRecord> {
        let mut reader = Reader::new(memory).expect("a ring");
        let mut buffer = [0; MAXIMUM_RECORD_BYTES];
        let mut records = Vec::new();
        loop {
            match reader.read(&mut buffer) {
                Read::Record { kind, bytes } => {
                    records.extend(CellRecord::read(kind, &buffer[..bytes]));
                }
                Read::Nothing => return records,
                _ => {}
            }
        }
    }

    type Give<'a> = &'a dyn Fn(Orders<'_>, Nanos);

    /// Carries out orders, each as soon as `give` gives it, and returns the records of samples and of blocks.
    fn carried_out(give: &[Give<'_>]) -> [Vec<CellRecord>; 2] {
        let (output, orders) = (words(OUTPUT_BYTES), words(ORDERS_BYTES));
        let written = CellOutput::new(&output).expect("enough memory");
        let given = Orders::new(&orders).expect("enough memory");
        let hardware = TakenCpu {
            // A nominal frequency: all times of the test are on this clock.
            scale: Timescale::of_frequency(1_000_000_000).expect("fast"),
            blocks: RefCell::new(BlockMaker::new(&written, given).expect("enough memory")),
            due: Cell::new(u64::MAX),
        };
        let loads = Loads::new(written, given, &[]);
        let mut program = Program::new(&hardware, (written, given), loads).expect("enough memory");
        for order in give {
            order(given, hardware.now());
            program.serve();
        }
        [records(written.samples()), records(written.blocks())]
    }

    fn prepare(orders: Orders<'_>, meter: Meter) {
        orders.give_measure(&Measure::Prepare {
            meter,
            interval: Nanos::from_millis(1),
            work: Nanos::ZERO,
            threshold: Nanos::ZERO,
        });
    }

    #[test]
    fn blocks_delay_wake_ups() {
        let [samples, blocks] = carried_out(&[
            &|orders, _| prepare(orders, Meter::Wakeup),
            &|orders, now| {
                orders.give_measure(&Measure::Go {
                    start: now,
                    measured: now + Nanos::from_millis(1),
                    end: now + Nanos::from_millis(60),
                });
                orders.give_block(&Block {
                    spacing: Spacing {
                        length: LENGTH,
                        pause: Nanos::from_millis(10),
                        random: false,
                        seed: 0,
                    },
                    count: 2,
                    base: now,
                });
            },
        ]);
        // A block begins at most an interval before a planned wake-up.
        let late = samples.iter().filter(|record| match record {
            CellRecord::Sample(sample) => sample.value >= LENGTH.0 - 1_000_000,
            _ => false,
        });
        assert!(late.count() >= 2, "{samples:?}");
        let made = |record: &CellRecord| match record {
            CellRecord::Blocked { span, .. } => span.1 >= span.0 + LENGTH,
            _ => false,
        };
        assert_eq!(
            blocks.iter().filter(|record| made(record)).count(),
            2,
            "{blocks:?}"
        );
    }

    #[test]
    fn refuses_to_measure_interrupts() {
        for meter in [Meter::Irq, Meter::Mmio] {
            let [samples, _] = carried_out(&[&|orders, _| prepare(orders, meter)]);
            assert_eq!(samples, [CellRecord::Refused { order: 1 }]);
        }
    }
}
