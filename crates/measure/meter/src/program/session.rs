// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One conversation about measurements, from the first request to the last event.

mod finish;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rampart_model::{
    CpuId, CpuSet, ExitCode, Finding, METER_PROTOCOL_VERSION, MeterEvent, MeterKind, MeterReady,
    MeterRequest, MeterSettings, Nanos, PlacedBy, Refusal, Severity, ThreadReady,
};

use super::cell::{self, CellMemory, CellMemoryLocation, relay};
use super::collector::{Collector, CounterClock};
use super::console::{Console, OutputClosed};
use super::conversation::{End, REQUEST, conclude, ignored};
use super::findings::{self, REQUESTS};
use super::housekeeping::{self, Housekeeping};
use super::thread::{self, Assignment, Boundary, Command, Outcome, Report};
use crate::linux::counter::{self, CounterKind};
use crate::linux::usage::Steal;
use crate::linux::{clock, continued, diagnosis, memory_locking, scheduling, wake};
use crate::ring::ring;
use crate::timescale::Timescale;

/// Interval between two reads of the rings, in ms. The rings hold at least a second.
const TICK: i32 = 50;

/// Time from the start command to the start.
const LEAD: Nanos = Nanos::from_millis(20);

/// How long a thread may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many ticks a thread may take to end after its time. Counted in ticks, so that they do not
/// pass while the process is stopped.
const LAST_TICKS: u32 = 600;

/// Size of a measuring thread's stack.
const STACK: usize = 128 * 1024;

/// Holds the conversation on standard input and output, about the CPUs of this kernel or of a cell
/// without an operating system. Returns the exit code: 0 after `finished`, 2 for an invalid plan, 4
/// for another refusal, 1 if the output was closed early.
#[must_use]
pub fn run(cell: Option<&CellMemoryLocation>) -> ExitCode {
    let mut console = Console::new();
    let ended = converse(cell, &mut console);
    conclude(&mut console, ended, MeterEvent::Refused)
}

/// Carries out measurements one after the other until the input ends.
fn converse(cell: Option<&CellMemoryLocation>, console: &mut Console) -> Result<(), End> {
    // Between two measurements the main thread is on its housekeeping CPUs, so the initial affinity
    // is read here.
    let allowed = scheduling::affinity()
        .map_err(|cause| diagnosis::system("the program", "cannot read its affinity", &cause))?;
    let Some(line) = console.wait_for_line()? else {
        return Err(REQUESTS.none().into());
    };
    let cell = match cell {
        Some(location) => Some(Arc::new(CellMemory::open(location)?)),
        None => None,
    };
    measure_once(&line, &allowed, cell.as_ref(), console)?;
    loop {
        // A closed output is no error after the last event.
        let line = match console.wait_for_line() {
            Ok(Some(line)) => line,
            Ok(None) | Err(OutputClosed) => return Ok(()),
        };
        // A stop may arrive after the end of the measurement that it should stop.
        if !matches!(REQUESTS.read(&line), Ok(MeterRequest::Stop {})) {
            measure_once(&line, &allowed, cell.as_ref(), console)?;
        }
    }
}

/// Carries out one measurement, from the request in `line` to its last event.
fn measure_once(
    line: &[u8],
    allowed: &CpuSet,
    cell: Option<&Arc<CellMemory>>,
    console: &mut Console,
) -> Result<(), End> {
    let plan = Arc::new(findings::plan(REQUESTS.read(line)?)?);
    // Threads that something else places inherit what it gave to this one.
    if plan.placed_by == PlacedBy::Itself {
        scheduling::run_before_loads();
    }
    let mut session = Session::prepare(Arc::clone(&plan), allowed, cell.cloned())?;
    console.send(&session.ready());
    console.flush()?;
    match console.wait_for_line()?.map(|line| REQUESTS.read(&line)) {
        Some(Ok(MeterRequest::Go {})) => {}
        None | Some(Ok(MeterRequest::Stop {})) => {
            console.send(&MeterEvent::Finished {
                threads: Vec::new(),
                findings: vec![Finding::new(
                    Severity::Note,
                    REQUEST,
                    "the measurement was stopped before it began",
                )],
            });
            return Ok(console.flush()?);
        }
        Some(Ok(MeterRequest::Prepare { .. })) => return Err(REQUESTS.out_of_turn("go").into()),
        Some(Err(refusal)) => return Err(refusal.into()),
    }
    session.verify(console)?;
    session.measure(console)?;
    let finished = session.finished(console);
    console.send(&finished);
    Ok(console.flush()?)
}

struct Measuring {
    collector: Collector,
    handle: JoinHandle<()>,
    thread: u32,
    commands: Sender<Command>,
    outcome: Option<Outcome>,
}

struct Session {
    plan: Arc<MeterSettings>,
    threads: Vec<Measuring>,
    /// The cell that measures, if it is not this kernel.
    cell: Option<Arc<CellMemory>>,
    reports: Receiver<(CpuId, Report)>,
    stop: Arc<AtomicBool>,
    housekeeping: Housekeeping,
    memory_locked: bool,
    counter: CounterKind,
    scale: Timescale,
    clock_source: String,
    findings: Vec<Finding>,
    steal: [Steal; 2],
    /// Conversion of the counter of `noise`.
    counter_clock: Option<CounterClock>,
    /// Whether a request arrived that is not allowed during a measurement.
    out_of_turn: bool,
}

impl Session {
    fn prepare(
        plan: Arc<MeterSettings>,
        allowed: &CpuSet,
        cell: Option<Arc<CellMemory>>,
    ) -> Result<Self, Refusal> {
        if let Some(refusal) = findings::unsuitable_clock(&plan) {
            return Err(refusal);
        }
        let inside = plan.placed_by == PlacedBy::Itself;
        let unusable = match &cell {
            None if plan.meter.needs_bare_metal() => Some(findings::no_bare_metal(&plan)),
            None => diagnosis::unusable_cpu(&plan.cpus, allowed, inside),
            Some(_) => cell::too_many_cpus(&plan),
        };
        if let Some(refusal) = unusable {
            return Err(refusal);
        }
        let (counter, mut findings) = match cell {
            None => counter::choose(),
            // The cell's own counter, converted to nanoseconds before its samples arrive here.
            Some(_) => (CounterKind::Clock, Vec::new()),
        };
        let scale = if plan.meter == MeterKind::Noise && cell.is_none() {
            counter.first_scale().ok_or_else(findings::stuck_counter)?
        } else {
            Timescale::IDENTITY
        };
        findings.extend(findings::remarks(&plan));
        let (sender, reports) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let mut session = Self {
            threads: Vec::with_capacity(plan.cpus.len()),
            reports,
            stop,
            housekeeping: Housekeeping::default(),
            memory_locked: false,
            counter,
            scale,
            clock_source: match cell {
                None => counter::clock_source(),
                Some(_) => cell::COUNTER.to_owned(),
            },
            findings,
            steal: [Steal::default(), Steal::default()],
            counter_clock: None,
            out_of_turn: false,
            plan,
            cell,
        };
        session.start_threads(allowed, &sender)?;
        session.housekeeping = housekeeping::settle(&session.plan)?;
        for _ in 0..session.threads.len() {
            if let (cpu, Report::Placed(thread)) = session.answer()?
                && let Some(measuring) = session.of(cpu)
            {
                measuring.thread = thread;
            }
        }
        Ok(session)
    }

    fn start_threads(
        &mut self,
        allowed: &CpuSet,
        reports: &Sender<(CpuId, Report)>,
    ) -> Result<(), Refusal> {
        wake::prepare();
        continued::watch();
        let whole = Arc::clone(&self.plan);
        for (location, cpu) in whole.cpus.iter().enumerate() {
            // Each thread only knows its own period.
            let plan = Arc::new(MeterSettings {
                interval: whole.interval_of(location),
                ..(*whole).clone()
            });
            let (producer, consumer) = ring(ring_capacity(&plan));
            let (commands, receiver) = channel();
            let boundary = Arc::new(Boundary::default());
            let assignment = Assignment {
                cpu,
                settings: Arc::clone(&plan),
                location,
                allowed: allowed.clone(),
                counter: self.counter,
                scale: self.scale,
                producer,
                boundary: Arc::clone(&boundary),
                stop: Arc::clone(&self.stop),
                commands: receiver,
                reports: reports.clone(),
            };
            let handle = std::thread::Builder::new()
                .name(thread::name(cpu))
                .stack_size(STACK)
                .spawn(match self.cell.clone() {
                    None => Box::new(move || assignment.carry_out()) as Box<dyn FnOnce() + Send>,
                    Some(cell) => Box::new(move || relay(assignment, &cell)),
                })
                .map_err(|cause| {
                    let location = format!("thread {}", thread::name(cpu));
                    diagnosis::system(&location, "cannot create it", &cause)
                })?;
            self.threads.push(Measuring {
                collector: Collector::new(cpu, &plan, consumer, boundary),
                handle,
                thread: 0,
                commands,
                outcome: None,
            });
        }
        Ok(())
    }

    fn of(&mut self, cpu: CpuId) -> Option<&mut Measuring> {
        self.threads
            .iter_mut()
            .find(|measuring| measuring.collector.cpu() == cpu)
    }

    /// Waits for the next report; a refusal is returned as an error.
    fn answer(&self) -> Result<(CpuId, Report), Refusal> {
        match self.reports.recv_timeout(TIMEOUT) {
            Ok((_, Report::Refused(refusal))) => Err(refusal),
            Ok(answer) => Ok(answer),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                Err(findings::silent())
            }
        }
    }

    fn ready(&self) -> MeterEvent {
        MeterEvent::Ready(MeterReady {
            protocol: METER_PROTOCOL_VERSION,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            process: std::process::id(),
            threads: self
                .threads
                .iter()
                .map(|measuring| {
                    let cpu = measuring.collector.cpu();
                    ThreadReady {
                        cpu,
                        name: thread::name(cpu),
                        thread: measuring.thread,
                    }
                })
                .collect(),
        })
    }

    fn send_all(&self, command: Command) {
        for measuring in &self.threads {
            // A thread that has ended sent a refusal, which the next answer returns.
            let _ = measuring.commands.send(command);
        }
    }

    /// Locks memory, lets every thread verify its placement and prepare, and sends `ready`.
    fn verify(&mut self, console: &mut Console) -> Result<(), End> {
        // The caller may have moved the main thread too.
        self.housekeeping = housekeeping::settle(&self.plan)?;
        self.findings.extend(self.housekeeping.finding.take());
        if self.plan.lock_memory {
            memory_locking::lock().map_err(|cause| diagnosis::memory_not_locked(&cause))?;
            self.memory_locked = true;
        }
        self.send_all(Command::Verify);
        for _ in 0..self.threads.len() {
            self.answer()?;
        }
        if self.plan.meter == MeterKind::Noise && self.cell.is_none() {
            self.counter_clock = Some(CounterClock::new(self.counter, self.scale));
        }
        let (monotonic, realtime) = (clock::monotonic(), clock::realtime());
        let at = monotonic + LEAD;
        for measuring in &mut self.threads {
            measuring.collector.start(at, &self.plan);
        }
        self.send_all(Command::Start(at));
        console.send(&MeterEvent::Started {
            at,
            realtime_offset: realtime.saturating_sub(monotonic),
        });
        self.steal[0] = Steal::now();
        Ok(console.flush()?)
    }

    /// Reads the rings until every thread has reported.
    fn measure(&mut self, console: &mut Console) -> Result<(), End> {
        let mut steal_taken = false;
        let mut ticks_late = 0;
        let end = clock::monotonic() + LEAD + self.plan.warm_up + self.plan.duration;
        while self.threads.iter().any(|thread| thread.outcome.is_none()) {
            console.wait(pause(end.saturating_sub(clock::monotonic())))?;
            while let Some(line) = console.next_line() {
                match REQUESTS.read(&line) {
                    Ok(MeterRequest::Stop {}) => self.stop.store(true, Ordering::Relaxed),
                    _ => self.out_of_turn = true,
                }
            }
            if console.end_wanted() {
                self.stop.store(true, Ordering::Relaxed);
            }
            let now = clock::monotonic();
            self.read(now, console);
            self.take_outcomes()?;
            if !steal_taken && self.threads.iter().any(|each| each.collector.measuring()) {
                steal_taken = true;
                self.steal[0] = Steal::now();
            }
            let stopping = self.stop.load(Ordering::Relaxed);
            if stopping {
                self.wake_sleepers();
            }
            if stopping || now > end {
                ticks_late += 1;
                if ticks_late > LAST_TICKS {
                    return Err(findings::silent().into());
                }
            }
        }
        self.steal[1] = Steal::now();
        self.read(clock::monotonic(), console);
        if self.out_of_turn {
            self.findings.push(ignored("during the measurement"));
        }
        Ok(())
    }

    fn read(&mut self, now: Nanos, console: &mut Console) {
        if let Some(clock) = &mut self.counter_clock {
            clock.update();
        }
        for measuring in &mut self.threads {
            measuring
                .collector
                .read(now, self.counter_clock.as_ref(), console);
        }
    }

    fn take_outcomes(&mut self) -> Result<(), Refusal> {
        while let Ok((cpu, report)) = self.reports.try_recv() {
            match report {
                Report::Refused(refusal) => return Err(refusal),
                Report::Done(outcome) => {
                    if let Some(measuring) = self.of(cpu) {
                        measuring.outcome = Some(*outcome);
                    }
                }
                Report::Placed(_) | Report::Verified => {}
            }
        }
        Ok(())
    }

    /// Interrupts the sleep of threads that have not ended, so that they see the stop request. A
    /// signal that arrives just before the sleep is repeated at the next tick.
    fn wake_sleepers(&self) {
        for measuring in self.threads.iter().filter(|each| each.outcome.is_none()) {
            wake::wake(measuring.thread);
        }
    }
}

/// Returns how long to wait before the next read of the rings, in ms: until the end if that is
/// sooner than usual, so that a short measurement ends when its time is over.
fn pause(left: Nanos) -> i32 {
    match left.0.div_ceil(1_000_000) {
        0 => TICK,
        left => i32::try_from(left + 1).map_or(TICK, |left| left.min(TICK)),
    }
}

/// Returns a capacity for at least a second of samples, within limits.
fn ring_capacity(settings: &MeterSettings) -> usize {
    const MOST: u64 = 1 << 20;
    let apart = match settings.meter {
        MeterKind::Wakeup | MeterKind::Loop | MeterKind::Irq | MeterKind::Mmio => settings.interval,
        MeterKind::Fwq => settings.work,
        // Gaps are irregular; one every 10 µs is a very noisy machine.
        MeterKind::Noise => Nanos::from_micros(10),
    };
    (Nanos::SECOND.0 / apart.0.max(1) * 5 / 4).clamp(1024, MOST) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_no_longer_than_the_measurement() {
        assert_eq!(pause(Nanos::SECOND), TICK);
        assert_eq!(pause(Nanos(u64::MAX)), TICK);
        // A millisecond more, so that the time is over then.
        assert_eq!(pause(Nanos::from_micros(3_500)), 5);
        // Over: the rest arrives within the usual time.
        assert_eq!(pause(Nanos::ZERO), TICK);
    }
}
