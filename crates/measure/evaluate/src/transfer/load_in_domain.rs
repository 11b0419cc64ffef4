// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs a load in one domain of a group: from this kernel if the domain uses it, otherwise inside
//! the domain.
//!
//! The load must run before the meters begin, and must still run when they have ended.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_domain::{Inside, InsideProcess};
use rampart_load::{
    Load, LoadProgram, SHARE_NEEDED, command_inside, has_begun, has_ended, meter_command_inside,
    record_inside,
};
use rampart_model::{
    Condition, CpuId, CpuSet, Finding, LoadKind, LoadLocation, LoadRecord, Nanos, Severity,
};

use super::group::Member;
use crate::run::reason;

/// Time after the round at which a load inside ends by itself at the latest. The meters need time
/// to start, more on an emulated machine.
const MARGIN: Nanos = Nanos::from_secs(3);
const EMULATED_MARGIN: Nanos = Nanos::from_secs(8);
/// The same for the meter's own loads. It may be longer because they are stopped explicitly, but
/// stays below `END_TIMEOUT`.
const METERS_MARGIN: Nanos = Nanos::from_secs(20);
/// Time limit for the start of a load.
const START_TIMEOUT: Duration = Duration::from_secs(30);
const EMULATED_START_TIMEOUT: Duration = Duration::from_secs(90);
/// Time limit for the end of a load beyond the margin, for a slow kernel.
const END_TIMEOUT: Duration = Duration::from_secs(20);
/// Part of the time that a load inside an emulated domain must run. The meter beside it needs far more
/// CPU time there.
const EMULATED_SHARE: f64 = 0.1;
/// Interval between checks.
const PAUSE: Duration = Duration::from_millis(50);

/// The program that makes loads if there is no other.
const METER: &str = "rampart-meter";

/// The parameters of a load.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadRequest<'a> {
    pub(crate) load: LoadKind,
    /// Duration of the round, including warm-up.
    pub(crate) duration: Nanos,
    /// The program of loads on the host's kernel; in a guest it is the one that the guest has.
    pub(crate) load_program: &'a LoadProgram,
    /// Directory for its files.
    pub(crate) scratch: &'a Path,
    /// Whether the machine or guest is emulated and slow.
    pub(crate) emulated: bool,
}

/// A running load.
pub(crate) enum Loading {
    Here(Load),
    Inside(Vec<StressorInside>),
}

/// One stressor in a guest.
pub(crate) struct StressorInside {
    command: Vec<String>,
    cpu: CpuId,
    /// The time during which it must run.
    measured: Nanos,
    /// The part of it that it must use of its CPU.
    share: f64,
    output: Receiver<String>,
    /// The whole output so far.
    printed: String,
    /// Dropping it ends the meter's own loads, which have a long time limit for this reason.
    input: Option<Box<dyn Write + Send>>,
    /// Dropping it ends the program.
    _handle: Option<Box<dyn Send>>,
}

impl Loading {
    /// Starts the load on all CPUs of a member, and returns when it runs. Calls `tick` meanwhile;
    /// `stop` cancels the start.
    pub(crate) fn start(
        request: &LoadRequest<'_>,
        member: &Member,
        tick: &mut dyn FnMut(),
        stop: &AtomicBool,
    ) -> Result<Self, Finding> {
        let problem = |what: String| Finding::new(Severity::Error, member.name.as_str(), what);
        let Some(running) = member.running.as_ref() else {
            return Err(problem("it is not up".to_owned()));
        };
        if let Some(inside) = running.inside() {
            let mut stressors = member
                .cpus
                .iter()
                .map(|cpu| start_inside(inside, request, member, cpu))
                .collect::<Result<Vec<_>, _>>()?;
            let timeout = if request.emulated {
                EMULATED_START_TIMEOUT
            } else {
                START_TIMEOUT
            };
            let limit = Instant::now() + timeout;
            for stressor in &mut stressors {
                stressor
                    .wait_until_it_runs(limit, tick, stop)
                    .map_err(problem)?;
            }
            return Ok(Self::Inside(stressors));
        }
        let condition = Condition {
            load: request.load,
            location: Some(LoadLocation::Same),
        };
        let mut load = Load::start(
            request.load_program,
            condition,
            &member.cpus,
            &CpuSet::new(),
            running.shield().as_slice(),
            request.scratch,
        )
        .map_err(|error| problem(error.to_string()))?;
        load.share_with(&running.measuring_threads());
        Ok(Self::Here(load))
    }

    /// Checks whether it still runs; problems are reported at its end.
    pub(crate) fn watch(&mut self) {
        if let Self::Here(load) = self {
            // Reported when it is stopped.
            let _ = load.alive();
        }
    }

    /// Ends the load after the meters, and returns its record. A load that has ended before did not
    /// run throughout, whatever it reports.
    pub(crate) fn end(self) -> LoadRecord {
        let mut stressors = match self {
            Self::Here(load) => return load.stop(),
            Self::Inside(stressors) => stressors,
        };
        for stressor in &mut stressors {
            stressor.read_output();
        }
        let too_early: Vec<bool> = stressors
            .iter()
            .map(|stressor| has_ended(&stressor.printed))
            .collect();
        for stressor in &mut stressors {
            stressor.input = None;
        }
        let limit = Instant::now() + Duration::from(EMULATED_MARGIN) + END_TIMEOUT;
        let stressors: Vec<_> = stressors
            .into_iter()
            .zip(too_early)
            .map(|(mut stressor, too_early)| {
                stressor.read_to_the_end(limit);
                let mut record = record_inside(
                    stressor.command,
                    stressor.cpu,
                    &stressor.printed,
                    stressor.measured,
                    stressor.share,
                );
                if too_early && record.failure.is_none() {
                    record.failure = Some("it ended before the meters did".to_owned());
                }
                record
            })
            .collect();
        let is_meter = stressors.iter().all(|stressor| {
            stressor
                .command
                .first()
                .is_some_and(|program| program == METER)
        });
        let version = if is_meter {
            "rampart-meter, in the domain"
        } else {
            "stress-ng, in the guest"
        };
        LoadRecord {
            version: version.to_owned(),
            ran: stressors.iter().all(|stressor| stressor.failure.is_none()),
            stressors,
        }
    }
}

fn start_inside(
    inside: &dyn Inside,
    request: &LoadRequest<'_>,
    member: &Member,
    cpu: CpuId,
) -> Result<StressorInside, Finding> {
    let number = inside.cpu_inside(cpu).ok_or_else(|| {
        Finding::new(
            Severity::Error,
            member.name.as_str(),
            format!("it has no CPU of its own on the host's CPU {cpu}"),
        )
    })?;
    let margin = if request.emulated {
        EMULATED_MARGIN
    } else {
        MARGIN
    };
    let command = if inside.has_only_the_meter() {
        let longest = request.duration + METERS_MARGIN;
        meter_command_inside(request.load, number, longest).ok_or_else(|| {
            Finding::new(
                Severity::Error,
                member.name.as_str(),
                "it contains only the meter, which does not make this load",
            )
            .values(request.load.word(), "cpu, memory or cache")
        })?
    } else {
        command_inside(request.load, number, request.duration + margin)
    };
    let InsideProcess {
        input,
        mut output,
        handle,
    } = inside
        .spawn(&command)
        .map_err(|error| reason(&member.name, &error))?;
    let (sender, received) = channel();
    // The thread ends with the program, whose output closes when it is dropped.
    thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(length @ 1..) = output.read(&mut piece) {
            let text = String::from_utf8_lossy(&piece[..length]).into_owned();
            if sender.send(text).is_err() {
                return;
            }
        }
    });
    Ok(StressorInside {
        command,
        cpu,
        measured: request.duration,
        share: match request.load {
            // It waits for the disk.
            LoadKind::Io => 0.0,
            _ if request.emulated => EMULATED_SHARE,
            _ => SHARE_NEEDED,
        },
        output: received,
        printed: String::new(),
        input: Some(input),
        _handle: Some(handle),
    })
}

impl StressorInside {
    /// Waits until the stressor reports that it runs.
    fn wait_until_it_runs(
        &mut self,
        limit: Instant,
        tick: &mut dyn FnMut(),
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            let gone = match self.output.recv_timeout(PAUSE) {
                Ok(text) => {
                    self.printed.push_str(&text);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            if has_begun(&self.printed) {
                return Ok(());
            }
            if gone || Instant::now() > limit || stop.load(Ordering::Relaxed) {
                let how = if gone { "it has ended" } else { "it runs" };
                return Err(format!(
                    "its load did not begin within {} ms: {how}, last output: {}",
                    begin.elapsed().as_millis(),
                    self.printed.lines().last().unwrap_or("nothing")
                ));
            }
            tick();
        }
    }

    /// Reads the pending output.
    fn read_output(&mut self) {
        self.printed.extend(self.output.try_iter());
    }

    /// Reads the output to its end.
    fn read_to_the_end(&mut self, limit: Instant) {
        loop {
            let timeout = limit.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(timeout) {
                Ok(text) => self.printed.push_str(&text),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stressor(output: &[&str]) -> (StressorInside, std::sync::mpsc::Sender<String>) {
        let (sender, receiver) = channel();
        for text in output {
            sender.send((*text).to_owned()).expect("a receiver");
        }
        let stressor = StressorInside {
            command: Vec::new(),
            cpu: CpuId(1),
            measured: Nanos::SECOND,
            share: SHARE_NEEDED,
            output: receiver,
            printed: String::new(),
            input: None,
            _handle: None,
        };
        (stressor, sender)
    }

    const STARTED: &str = "stress-ng: debug: [7] cpu: started [7] (instance 0)\n";
    const OVER: &str = "\
stress-ng: debug: [7] cpu: exited [7] (instance 0)
stress-ng: metrc: [6] cpu 64 2.00 1.95 0.01 31.99 1011.68
";

    #[test]
    fn a_load_starts_when_the_stressor_runs() {
        let wait = |output: &[&str], gone: bool| {
            let (mut stressor, sender) = stressor(output);
            if gone {
                drop(sender);
            }
            let limit = Instant::now() + Duration::from_millis(120);
            stressor.wait_until_it_runs(limit, &mut || {}, &AtomicBool::new(false))
        };
        let (first, rest) = STARTED.split_at(20);
        assert_eq!(wait(&["dispatching hogs\n", first, rest], false), Ok(()));
        let late = wait(&["stress-ng: info: [6] dispatching hogs: 1 cpu\n"], false);
        assert!(late.is_err_and(|why| why.contains("dispatching")));
        assert!(wait(&["no such stressor"], true).is_err_and(|why| why.contains("ended")));
    }

    #[test]
    fn a_load_that_ends_before_the_meters_did_not_run_throughout() {
        let (over, sender) = stressor(&[STARTED, OVER]);
        drop(sender);
        let record = Loading::Inside(vec![over]).end();
        assert!(!record.ran);
        assert!(
            record
                .failures()
                .is_some_and(|why| why.contains("before the meters"))
        );

        let (running, sender) = stressor(&[STARTED]);
        let end = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            sender.send(OVER.to_owned())
        });
        let record = Loading::Inside(vec![running]).end();
        assert!(record.ran, "{record:?}");
        assert!(end.join().expect("a thread").is_ok());
    }
}
