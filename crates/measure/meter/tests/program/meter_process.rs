// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the program and communicates with it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rampart_model::{
    Batch, CpuId, CpuSet, Finding, METER_PROTOCOL_VERSION, MeterEvent, MeterKind, MeterReady,
    MeterRequest, MeterSettings, Nanos, Phase, Refusal, SchedulingPolicy, ThreadOutcome,
};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_rampart-meter");

/// Prints why a test was skipped.
#[expect(clippy::print_stderr, reason = "a skipped test says why")]
pub(crate) fn skip(reason: &str) {
    eprintln!("skipped: {reason}");
}

pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|metadata| {
        use std::os::unix::fs::MetadataExt;
        metadata.uid() == 0
    })
}

/// Returns the CPUs that this test may run on.
pub(crate) fn allowed() -> CpuSet {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("Cpus_allowed_list");
    list.trim().parse().expect("a list of CPUs")
}

/// Returns the CPU to measure on: the last one, which leaves the others for the rest of the test.
pub(crate) fn cpu() -> CpuId {
    allowed().iter().next_back().expect("a CPU")
}

/// Returns a short plan that needs no privilege.
pub(crate) fn plan(meter: MeterKind) -> MeterSettings {
    MeterSettings {
        policy: SchedulingPolicy::Other,
        duration: Nanos::from_millis(600),
        warm_up: Nanos::from_millis(100),
        batch: Nanos::from_millis(200),
        lock_memory: false,
        ..MeterSettings::new(meter, CpuSet::single(cpu()))
    }
}

pub(crate) fn prepare(settings: &MeterSettings) -> MeterRequest {
    MeterRequest::Prepare {
        protocol: METER_PROTOCOL_VERSION,
        settings: settings.clone(),
    }
}

/// The running program.
pub(crate) struct Meter {
    pub(crate) child: Child,
    pub(crate) input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// All events of a finished conversation.
pub(crate) struct Finished {
    pub(crate) started: Nanos,
    pub(crate) batches: Vec<Batch>,
    pub(crate) threads: Vec<ThreadOutcome>,
    pub(crate) findings: Vec<Finding>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        Self::start_by(&mut Command::new(PROGRAM))
    }

    /// Starts the program with a command that ends in executing it.
    pub(crate) fn start_by(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self {
            child,
            input,
            output,
        }
    }

    pub(crate) fn send_line(&mut self, text: &str) {
        let input = self.input.as_mut().expect("open");
        // The program may have refused and exited already.
        let _ = writeln!(input, "{text}");
    }

    pub(crate) fn ask(&mut self, request: &MeterRequest) {
        self.send_line(&serde_json::to_string(request).expect("a request is JSON"));
    }

    pub(crate) fn event(&mut self) -> MeterEvent {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("readable");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in: {line}"))
    }

    pub(crate) fn ready(&mut self, settings: &MeterSettings) -> MeterReady {
        self.ask(&prepare(settings));
        match self.event() {
            MeterEvent::Ready(ready) => ready,
            other => panic!("not ready: {other:?}"),
        }
    }

    /// Closes the output and waits for the exit code.
    pub(crate) fn exit_code(mut self) -> Option<i32> {
        drop(self.input.take());
        drop(self.output);
        self.child.wait().expect("it ends").code()
    }

    /// Returns the refusal, which must be the next and last event, and the exit code.
    pub(crate) fn refusal(mut self) -> (Refusal, i32) {
        let refusal = match self.event() {
            MeterEvent::Refused(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        };
        let mut rest = String::new();
        self.output.read_line(&mut rest).expect("readable");
        assert_eq!(rest, "", "something came after the refusal");
        (refusal, self.exit_code().expect("no signal"))
    }

    /// Returns the events from `started` to `finished`, and waits for the end of the program.
    pub(crate) fn finish(mut self) -> Finished {
        let finished = self.measured();
        assert_eq!(self.exit_code(), Some(0));
        finished
    }

    /// Returns the events from `started` to `finished`.
    pub(crate) fn measured(&mut self) -> Finished {
        let MeterEvent::Started { at: started, .. } = self.event() else {
            panic!("not started");
        };
        let mut batches = Vec::new();
        loop {
            match self.event() {
                MeterEvent::Batch(batch) => batches.push(batch),
                MeterEvent::Finished { threads, findings } => {
                    return Finished {
                        started,
                        batches,
                        threads,
                        findings,
                    };
                }
                other => panic!("neither batch nor end: {other:?}"),
            }
        }
    }
}

/// Runs a plan to its end.
pub(crate) fn run(settings: &MeterSettings) -> Finished {
    let mut meter = Meter::start();
    meter.ready(settings);
    meter.ask(&MeterRequest::Go {});
    meter.finish()
}

/// Returns the refusal of a plan after `prepare` and `go`.
pub(crate) fn refused(settings: &MeterSettings, command: &mut Command) -> (Refusal, i32) {
    let mut meter = Meter::start_by(command);
    meter.ask(&prepare(settings));
    meter.ask(&MeterRequest::Go {});
    let mut first = String::new();
    meter.output.read_line(&mut first).expect("readable");
    if let Ok(MeterEvent::Refused(refusal)) = serde_json::from_str(&first) {
        return (refusal, meter.exit_code().expect("no signal"));
    }
    meter.refusal()
}

impl Finished {
    /// Returns the timeline of the measurement.
    pub(crate) fn slots(&self) -> Vec<Option<Nanos>> {
        let measured = self
            .batches
            .iter()
            .filter(|batch| batch.phase == Phase::Measured);
        measured.flat_map(|batch| batch.timeline.clone()).collect()
    }

    /// Checks that the batches of the measurement are contiguous and add up to the totals of the
    /// thread.
    pub(crate) fn check(&self, settings: &MeterSettings) {
        assert_eq!(
            self.threads.len(),
            settings.cpus.len(),
            "{:?}",
            self.findings
        );
        for (thread, cpu) in self.threads.iter().zip(settings.cpus.iter()) {
            assert_eq!(thread.cpu, cpu);
            assert_eq!(thread.lost, 0);
            let of = |phase| {
                self.batches
                    .iter()
                    .filter(move |batch| batch.cpu == cpu && batch.phase == phase)
            };
            let samples = |batch: &Batch| batch.series[0].seen.samples;
            assert_eq!(
                of(Phase::Measured).map(samples).sum::<u64>(),
                thread.samples
            );
            assert_eq!(
                of(Phase::WarmUp).map(samples).sum::<u64>(),
                thread.warm_up.samples
            );
            assert_eq!(
                of(Phase::Measured).map(|batch| batch.missed).sum::<u64>(),
                thread.missed
            );
            let over = |batch: &Batch| batch.over_deadline;
            assert_eq!(
                of(Phase::Measured).map(over).sum::<u64>(),
                thread.over_deadline
            );
            let end = self.started + settings.warm_up + thread.duration;
            // A meter that spins begins late by the last gap of its warm-up, and its duration is counted from there.
            let spins = matches!(settings.meter, MeterKind::Noise | MeterKind::Fwq);
            let ends = |at| at == end || (spins && at > end);
            let mut at = self.started;
            for batch in of(Phase::WarmUp).chain(of(Phase::Measured)) {
                assert_eq!(batch.at, at, "batches are seamless");
                at += batch.length;
                let slots = match settings.timeline {
                    Some(slot) => batch.length.0.div_ceil(slot.0) as usize,
                    None => 0,
                };
                if ends(at) || at == self.started + settings.warm_up {
                    // Includes the slots of samples that ended late.
                    assert!(batch.timeline.len() >= slots);
                } else {
                    assert_eq!(batch.timeline.len(), slots);
                }
                if settings.timeline.is_some() {
                    let worst = batch.timeline.iter().flatten().max();
                    assert_eq!(worst.copied(), batch.series[0].seen.max);
                }
                for series in &batch.series {
                    let counts: u64 = series.seen.buckets.iter().map(|bucket| bucket.1).sum();
                    assert_eq!(counts, series.seen.samples);
                }
                if let Some(corrected) = &batch.series[0].corrected {
                    assert_eq!(corrected.samples, samples(batch) + batch.missed);
                }
            }
            assert!(ends(at), "{at:?} {end:?}");
            let max = of(Phase::Measured)
                .filter_map(|batch| batch.series[0].seen.max)
                .max();
            assert_eq!(thread.worst.first().map(|worst| worst.value), max);
            assert!(thread.worst.is_sorted_by(|a, b| a.value >= b.value));
            assert!(thread.worst.len() as u64 <= thread.samples.min(settings.worst.into()));
        }
    }

    pub(crate) fn thread(&self) -> &ThreadOutcome {
        &self.threads[0]
    }
}
