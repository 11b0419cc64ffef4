// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thread that represents a measuring cell to the rest of the program.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rampart_model::{
    CpuId, CpuSet, MeterKind, MeterSettings, Nanos, Refusal, SchedulingPolicy, ThreadCounters,
};
use rampart_ring::records::{MAXIMUM_RECORD_BYTES, Read, Reader};

use super::clock::CellClock;
use super::memory::{CellMemory, refused, silent};
use crate::cell::orders::{Measure, Meter, Orders};
use crate::cell::records::{CellRecord, Done};
use crate::engine::Sample;
use crate::engine::noise::NoiseTotals;
use crate::linux::{clock, thread_id};
use crate::program::thread::{Assignment, Boundary, Command, EngineDetail, Outcome, Report};
use crate::ring::Producer;
use crate::timescale::Timescale;

/// Interval between two reads of the cell's ring, which holds more than ten seconds at a sample per
/// millisecond.
const PAUSE: Duration = Duration::from_millis(2);
/// How long the cell may take to prepare, including the calibration of its work.
const READY_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the cell may stay silent after its time.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Words of a sample in the ring, including the header of the record.
const SAMPLE_WORDS: u64 = 5;

/// Runs the thread. It ends without an error if the main thread no longer receives.
pub(in crate::program) fn relay(assignment: Assignment, memory: &CellMemory) {
    let (cpu, reports) = (assignment.cpu, assignment.reports.clone());
    if let Err(refusal) = carry_out(assignment, memory) {
        // If the receiver is gone, the program is ending.
        let _ = reports.send((cpu, Report::Refused(refusal)));
    }
}

/// The reader of the cell's ring.
struct CellRing<'a> {
    reader: Reader<'a>,
    buffer: Box<[u8; MAXIMUM_RECORD_BYTES]>,
    /// Samples that were overwritten before they could be read.
    lost: u64,
}

impl CellRing<'_> {
    /// Returns the next record, or `None` if there is none.
    fn next(&mut self) -> Option<CellRecord> {
        loop {
            match self.reader.read(&mut self.buffer) {
                Read::Record { kind, bytes } => match CellRecord::read(kind, &self.buffer[..bytes])
                {
                    Some(record) => return Some(record),
                    None => self.lost += 1,
                },
                Read::Lost(words) => self.lost += words.div_ceil(SAMPLE_WORDS),
                Read::Damaged => self.lost += 1,
                Read::Began => {}
                Read::Nothing | Read::NoRing => return None,
            }
        }
    }
}

fn carry_out(assignment: Assignment, memory: &CellMemory) -> Result<(), Refusal> {
    let Assignment {
        cpu,
        settings,
        mut producer,
        boundary,
        stop,
        commands,
        reports,
        ..
    } = assignment;
    let send = |report| reports.send((cpu, report)).is_ok();
    boundary.read_until.store(0, Ordering::Release);
    let output = memory.output()?;
    let orders = memory.orders()?;
    if !send(Report::Placed(thread_id())) {
        return Ok(());
    }
    let Ok(Command::Verify) = commands.recv() else {
        return Ok(());
    };
    let scale = memory.scale()?;
    let reader = Reader::new(output.samples())
        .ok_or_else(|| silent("a ring for its samples", Duration::ZERO))?;
    let mut cell = CellRing {
        reader,
        buffer: Box::new([0; MAXIMUM_RECORD_BYTES]),
        lost: 0,
    };
    let threshold = prepare(&settings, orders, &mut cell)?;
    cell.lost = 0;
    if !send(Report::Verified) {
        return Ok(());
    }
    let Ok(Command::Start(start)) = commands.recv() else {
        return Ok(());
    };
    let mut clock = CellClock::new(scale);
    let warm_up_end = start + settings.warm_up;
    let number = orders.give_measure(&Measure::Go {
        start: clock.cell_time(start),
        measured: clock.cell_time(warm_up_end),
        end: clock.cell_time(warm_up_end + settings.duration),
    });
    let limit = Instant::now() + Duration::from(settings.warm_up + settings.duration) + END_TIMEOUT;
    let done = loop {
        if stop.load(Ordering::Relaxed) {
            orders.end(number);
        }
        let before = clock::monotonic();
        let done = take(&mut cell, number, &mut clock, &mut producer, &boundary)?;
        producer.count_lost(std::mem::take(&mut cell.lost));
        boundary.read_until.store(before.0, Ordering::Release);
        if let Some(done) = done {
            break done;
        }
        if Instant::now() > limit {
            orders.end(number);
            return Err(silent("the end of a measurement", END_TIMEOUT));
        }
        std::thread::sleep(PAUSE);
    };
    // If the end of the warm-up was lost, it is over now.
    if boundary.samples.load(Ordering::Relaxed) == u64::MAX {
        turn(&boundary, &producer);
    }
    boundary.read_until.store(u64::MAX, Ordering::Release);
    send(Report::Done(Box::new(outcome(
        cpu, &settings, &done, threshold, &scale,
    ))));
    Ok(())
}

/// Ends the cell's present measurement, if any, and prepares the cell. Returns the shortest gap
/// that it will record.
fn prepare(
    settings: &MeterSettings,
    orders: Orders<'_>,
    cell: &mut CellRing<'_>,
) -> Result<Nanos, Refusal> {
    orders.end(orders.measure_number());
    let number = orders.give_measure(&Measure::Prepare {
        meter: match settings.meter {
            MeterKind::Wakeup => Meter::Wakeup,
            MeterKind::Noise => Meter::Noise,
            MeterKind::Fwq => Meter::Fwq,
            MeterKind::Loop => Meter::Loop,
            MeterKind::Irq => Meter::Irq,
            MeterKind::Mmio => Meter::Mmio,
        },
        interval: settings.interval,
        work: settings.work,
        threshold: settings.threshold.unwrap_or_default(),
    });
    let begin = Instant::now();
    while begin.elapsed() < READY_TIMEOUT {
        // Records from before this order are ignored.
        while let Some(record) = cell.next() {
            match record {
                CellRecord::Ready { order, threshold } if order == number => return Ok(threshold),
                CellRecord::Refused { order } if order == number => return Err(not_understood()),
                _ => {}
            }
        }
        std::thread::sleep(PAUSE);
    }
    Err(silent("an answer", READY_TIMEOUT))
}

/// Forwards the samples in the ring. Returns the result once the measurement is over.
fn take(
    cell: &mut CellRing<'_>,
    number: u64,
    clock: &mut CellClock,
    producer: &mut Producer,
    boundary: &Boundary,
) -> Result<Option<Done>, Refusal> {
    // Samples up to this moment are on the line that ends here.
    clock.update();
    while let Some(record) = cell.next() {
        match record {
            CellRecord::Sample(sample) => producer.push(Sample {
                at: clock.host_time(Nanos(sample.at)).0,
                ..sample
            }),
            CellRecord::WarmedUp { order } if order == number => turn(boundary, producer),
            CellRecord::Done { order, done } if order == number => return Ok(Some(done)),
            CellRecord::Refused { order } if order == number => return Err(not_understood()),
            _ => {}
        }
    }
    Ok(None)
}

/// Marks the end of the warm-up: the samples that follow are measured.
fn turn(boundary: &Boundary, producer: &Producer) {
    boundary.lost.store(producer.lost(), Ordering::Relaxed);
    let written = producer.written();
    boundary.samples.store(written, Ordering::Release);
}

fn not_understood() -> Refusal {
    refused(
        rampart_model::Finding::new(
            rampart_model::Severity::Error,
            super::memory::PLACE,
            "the program in the cell does not know an order",
        )
        .fix("use rampart-meter and rampart-cell-meter of the same version"),
    )
}

/// Returns the outcome in the form of a measuring thread. The counters of an operating system are
/// missing.
fn outcome(
    cpu: CpuId,
    settings: &MeterSettings,
    done: &Done,
    threshold: Nanos,
    scale: &Timescale,
) -> Outcome {
    let measured = done.ended.saturating_sub(done.begun);
    let periodic = settings.meter.is_periodic();
    let whole = periodic && !done.stopped;
    Outcome {
        policy: SchedulingPolicy::Other,
        affinity: CpuSet::single(cpu),
        cpus_seen: CpuSet::single(cpu),
        migrations: 0,
        counters: ThreadCounters {
            cpu_time: measured,
            process_cpu_time: measured,
            ..ThreadCounters::default()
        },
        warm_up: settings.warm_up,
        // The last planned moment is up to an interval before the end.
        duration: if whole { settings.duration } else { measured },
        detail: match settings.meter {
            MeterKind::Wakeup => EngineDetail::Wakeup,
            MeterKind::Loop => EngineDetail::Loop { turns: done.turns },
            MeterKind::Irq => EngineDetail::Irq,
            MeterKind::Mmio => EngineDetail::Mmio,
            MeterKind::Fwq => EngineDetail::Fwq {
                turns: done.turns,
                shortest: done.shortest,
                lowered: done.lowered,
            },
            MeterKind::Noise => EngineDetail::Noise {
                totals: in_nanoseconds(&done.noise, scale),
                threshold,
            },
        },
    }
}

/// Converts lengths to nanoseconds, because the rest of the program takes a tick of a cell as one.
fn in_nanoseconds(ticks: &NoiseTotals, scale: &Timescale) -> NoiseTotals {
    NoiseTotals {
        stolen: scale.length(ticks.stolen).0,
        recording: scale.length(ticks.recording).0,
        shortest: ticks.shortest.map(|shortest| scale.length(shortest).0),
        length: scale.length(ticks.length).0,
        ..*ticks
    }
}
