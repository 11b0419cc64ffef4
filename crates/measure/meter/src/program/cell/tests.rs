// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the program of a cell in a thread of this machine that shares a file with the other side.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rampart_model::{
    BlockSettings, BlockSpread, CpuId, CpuSet, MeterKind, MeterSettings, Nanos, RefusalKind,
};

use super::blocks::CellBlocks;
use super::load::CellLoad;
use super::memory::{CellMemory, CellMemoryLocation, map};
use super::relay::relay;
use crate::cell::blocks::BlockMaker;
use crate::cell::loads::Loads;
use crate::cell::memory::{CellOutput, ORDERS_BYTES, OUTPUT_BYTES, REVISION, Word};
use crate::cell::orders::Orders;
use crate::cell::program::{Hardware, Program};
use crate::engine::load::LoadForm;
use crate::engine::mmio::ACCESSES;
use crate::engine::noise::NoiseTotals;
use crate::engine::{Clock, Counter, Page, Registers, Sample, Sleep};
use crate::linux::counter::{self, CounterKind};
use crate::program::thread::{Assignment, Boundary, Command, EngineDetail, Outcome, Report};
use crate::ring::ring;
use crate::timescale::Timescale;

/// The hardware of a cell, simulated by a thread: it polls for interrupts while the program sleeps.
struct Thread<'a> {
    scale: Timescale,
    blocks: RefCell<BlockMaker<'a>>,
    next: Cell<Option<Nanos>>,
    timer: Cell<Nanos>,
}

impl Clock for Thread<'_> {
    fn now(&self) -> Nanos {
        self.scale.moment(counter::hardware())
    }
}

impl Counter for Thread<'_> {
    fn read(&self) -> u64 {
        counter::hardware()
    }
}

impl Sleep for Thread<'_> {
    fn sleep_until(&self, at: Nanos) -> bool {
        while self.now() < at {
            if self.next.get().is_some_and(|next| next <= self.now()) {
                self.next.set(self.blocks.borrow_mut().step(self));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        true
    }
}

impl Hardware for Thread<'_> {
    fn scale(&self) -> Timescale {
        self.scale
    }

    fn start_blocks(&self) {
        self.next.set(Some(Nanos::ZERO));
    }

    /// Does nothing: the kernel of this machine preempts the thread.
    fn interrupt_at(&self, _: Nanos) {}

    fn start_timer(&self, at: Nanos) {
        self.timer.set(at);
    }

    fn timer_taken(&self) -> Option<Nanos> {
        let now = self.now();
        (now >= self.timer.get()).then_some(now)
    }
}

/// A trapped access takes ten readings of the counter, a mapped one takes one.
impl Registers for Thread<'_> {
    fn accesses(&self, page: Option<Page>) -> Nanos {
        let turns = match page {
            None => 0,
            Some(Page::Mapped) => ACCESSES,
            Some(Page::Trapped) => 10 * ACCESSES,
        };
        let before = self.read();
        for _ in 0..turns {
            std::hint::black_box(self.read());
        }
        self.scale.length(self.read().saturating_sub(before))
    }
}

/// A cell that runs until this is dropped.
struct Running {
    location: CellMemoryLocation,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Running {
    fn start(revision: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("memory");
        let bytes = vec![0; OUTPUT_BYTES + ORDERS_BYTES];
        std::fs::write(&file, bytes).expect("written");
        let location = CellMemoryLocation {
            file,
            output: 0,
            orders: OUTPUT_BYTES as u64,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let (there, ended) = (location.clone(), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let output = map(&there.file, 0, OUTPUT_BYTES, true).expect("output");
            let orders = map(&there.file, there.orders, ORDERS_BYTES, false);
            let orders = orders.expect("orders");
            let output = CellOutput::new(output.words()).expect("enough memory");
            let orders = Orders::new(orders.words()).expect("enough memory");
            let hertz = CounterKind::Hardware.first_scale().expect("it moves");
            let hertz = hertz.ticks(Nanos::SECOND);
            let hardware = Thread {
                scale: Timescale::of_frequency(hertz).expect("a counter"),
                blocks: RefCell::new(BlockMaker::new(&output, orders).expect("enough memory")),
                next: Cell::new(None),
                timer: Cell::default(),
            };
            let memory: Vec<AtomicU64> = (0..1 << 12).map(AtomicU64::new).collect();
            let loads = Loads::new(output, orders, &memory);
            let program = Program::new(&hardware, (output, orders), loads);
            let mut program = program.expect("enough memory");
            output.write(Word::Frequency, hertz);
            output.write(Word::Revision, revision);
            while !ended.load(Ordering::Relaxed) {
                program.serve();
                program.rest(hardware.now() + Nanos::from_millis(1));
            }
        });
        Self {
            location,
            stop,
            thread: Some(thread),
            _directory: directory,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn plan(meter: MeterKind) -> MeterSettings {
    MeterSettings {
        interval: Nanos::from_millis(2),
        warm_up: Nanos::from_millis(20),
        duration: Nanos::from_millis(100),
        work: Nanos::from_micros(100),
        ..MeterSettings::new(meter, CpuSet::single(CpuId(5)))
    }
}

/// Runs one measurement. Returns its outcome, its samples, the end of the warm-up among them, and
/// the threshold.
fn measured(cell: &Running, meter: MeterKind) -> (Outcome, Vec<Sample>, u64, Nanos) {
    let memory = CellMemory::open(&cell.location).expect("memory");
    let (producer, mut consumer) = ring(1 << 16);
    let (commands, output) = channel();
    let (sender, reports) = channel();
    let boundary = Arc::new(Boundary::default());
    let assignment = Assignment {
        cpu: CpuId(5),
        settings: Arc::new(plan(meter)),
        location: 0,
        allowed: CpuSet::new(),
        counter: CounterKind::Clock,
        scale: Timescale::IDENTITY,
        producer,
        boundary: Arc::clone(&boundary),
        stop: Arc::default(),
        commands: output,
        reports: sender,
    };
    let thread = std::thread::spawn(move || relay(assignment, &memory));
    let answer = || match reports.recv_timeout(Duration::from_secs(30)) {
        Ok((cpu, Report::Refused(refusal))) => panic!("{cpu}: {refusal:?}"),
        Ok((cpu, report)) => {
            assert_eq!(cpu, CpuId(5));
            report
        }
        Err(error) => panic!("{error}"),
    };
    assert!(matches!(answer(), Report::Placed(_)));
    commands.send(Command::Verify).expect("listens");
    assert!(matches!(answer(), Report::Verified));
    let start = crate::linux::clock::monotonic() + Nanos::from_millis(20);
    commands.send(Command::Start(start)).expect("listens");
    let Report::Done(outcome) = answer() else {
        panic!("not done");
    };
    thread.join().expect("it ends");
    let mut samples = Vec::new();
    consumer.drain(|part| samples.extend_from_slice(part));
    // The ring is not read while the loop runs, and a busy machine has more gaps than the ring
    // holds.
    assert!(consumer.lost() == 0 || meter == MeterKind::Noise);
    (
        *outcome,
        samples,
        boundary.samples.load(Ordering::Relaxed),
        start,
    )
}

#[test]
fn every_period_is_a_sample_or_missed_on_the_clock_of_the_root() {
    let cell = Running::start(REVISION);
    // Twice, to check that the second measurement ignores the records of the first.
    for _ in 0..2 {
        let (outcome, samples, warm, start) = measured(&cell, MeterKind::Wakeup);
        let missed: u64 = samples.iter().map(|sample| sample.missed).sum();
        assert_eq!(samples.len() as u64 + missed, 60, "{samples:?}");
        let (before, after) = samples.split_at(warm as usize);
        let missed: u64 = before.iter().map(|sample| sample.missed).sum();
        assert_eq!(before.len() as u64 + missed, 10);
        assert!(!after.is_empty());
        assert_eq!(outcome.duration, Nanos::from_millis(100));
        assert!(matches!(outcome.detail, EngineDetail::Wakeup));
        // The clocks are the same, so the moments are those of the plan.
        let slack = 5_000_000;
        for sample in &samples {
            let planned = sample.at - sample.value;
            let since = planned.abs_diff(start.0) % 2_000_000;
            assert!(planned + slack > start.0, "{sample:?} {start}");
            assert!(!(slack.min(200_000)..1_800_000).contains(&since), "{since}");
        }
    }
}

#[test]
fn runs_the_other_loops() {
    let cell = Running::start(REVISION);
    let (outcome, samples, ..) = measured(&cell, MeterKind::Loop);
    assert!(matches!(outcome.detail, EngineDetail::Loop { turns } if turns > 0));
    let missed: u64 = samples.iter().map(|sample| sample.missed).sum();
    assert_eq!(samples.len() as u64 + missed, 60);
    let (outcome, samples, ..) = measured(&cell, MeterKind::Fwq);
    assert!(!samples.is_empty());
    assert!(matches!(outcome.detail, EngineDetail::Fwq { turns, .. } if turns > 0));
    let (outcome, samples, ..) = measured(&cell, MeterKind::Irq);
    assert!(matches!(outcome.detail, EngineDetail::Irq));
    let missed: u64 = samples.iter().map(|sample| sample.missed).sum();
    assert_eq!(samples.len() as u64 + missed, 60);
    let (outcome, samples, ..) = measured(&cell, MeterKind::Mmio);
    assert!(matches!(outcome.detail, EngineDetail::Mmio));
    let missed: u64 = samples.iter().map(|sample| sample.missed).sum();
    assert_eq!(samples.len() as u64 + missed, 60);
    // The ratio is ten to one. An interruption lengthens a batch, and a coarse clock may show none of a
    // short one, so the test compares medians.
    let median = |value: fn(&Sample) -> u64| {
        let mut values: Vec<u64> = samples.iter().map(value).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    let trapped = median(|sample| sample.value);
    let mapped = median(|sample| sample.start);
    assert!(trapped > mapped && mapped > 0, "{samples:?}");
    // Lengths are in nanoseconds: the measured part and little more. A thread that starts late on a
    // busy machine measures less, so the test tries several times.
    let whole = (0..10).any(|_| noise(&cell).length >= 99_000_000);
    assert!(whole, "{:?}", noise(&cell));
}

fn noise(cell: &Running) -> NoiseTotals {
    let (outcome, ..) = measured(cell, MeterKind::Noise);
    let EngineDetail::Noise { totals, threshold } = outcome.detail else {
        panic!("{:?}", outcome.detail);
    };
    assert!(threshold >= Nanos(200));
    assert!(
        totals.turns > 0 && totals.stolen <= totals.length,
        "{totals:?}"
    );
    totals
}

#[test]
fn cell_blocks_itself_as_often_and_as_long_as_ordered() {
    let cell = Running::start(REVISION);
    let plan = BlockSettings {
        cpus: CpuSet::single(CpuId(5)),
        length: Nanos::from_millis(3),
        count: 7,
        pause: Nanos::from_millis(6),
        spread: BlockSpread::Random,
        seed: 3,
        kind: None,
    };
    for _ in 0..2 {
        let mut blocks = CellBlocks::prepare(&cell.location, &plan).expect("a cell");
        let before = crate::linux::clock::monotonic();
        blocks.go(&plan).expect("goes");
        let (mut spans, until) = (Vec::new(), Instant::now() + Duration::from_secs(60));
        loop {
            let (new, ended) = blocks.take().expect("answers");
            spans.extend(new);
            if ended || Instant::now() > until {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let numbers: Vec<u32> = spans.iter().map(|span| span.sequence).collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 6]);
        assert!(spans.iter().all(|span| span.cpu == CpuId(5)));
        // Exact to a microsecond, because the relation of the two clocks is updated meanwhile.
        let shortest = Nanos::from_micros(2_900);
        assert!(
            spans.iter().all(|span| span.length() >= shortest),
            "{spans:?}"
        );
        assert!(spans[0].start + Nanos::from_millis(1) >= before);
    }
}

#[test]
fn refuses_a_program_of_another_revision() {
    let cell = Running::start(REVISION + 1);
    let memory = CellMemory::open(&cell.location).expect("memory");
    let refusal = memory.scale().expect_err("another revision");
    assert_eq!(refusal.kind, RefusalKind::System);
    assert_eq!(refusal.finding.found, Some((REVISION + 1).to_string()));
    let nowhere = CellMemoryLocation {
        file: "/nowhere".into(),
        ..cell.location.clone()
    };
    assert!(CellMemory::open(&nowhere).is_err());
}

#[test]
fn load_runs_during_a_measurement_and_ends_on_time() {
    let cell = Running::start(REVISION);
    let load = CellLoad::give(&cell.location, LoadForm::Cache, Nanos::from_millis(400));
    let load = load.expect("given");
    wait_for("its begin", || load.has_begun());
    let (_, samples, _, _) = measured(&cell, MeterKind::Wakeup);
    assert!(samples.len() > 10, "{}", samples.len());
    wait_for("its end", || load.has_ended());
    let time = load.time();
    assert!(
        time > Nanos::ZERO && time < Nanos::from_millis(600),
        "{time}"
    );
    // A later order gives a later end.
    let mut next =
        CellLoad::give(&cell.location, LoadForm::Cpu, Nanos::from_secs(600)).expect("given");
    wait_for("the next one's begin", || next.has_begun());
    assert!(!next.has_ended());
    next.end().expect("output");
    wait_for("its early end", || next.has_ended());
    assert!(next.time() > Nanos::ZERO, "the finished part counts");
}

fn wait_for(what: &str, mut seen: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !seen() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{what} was not seen"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
