// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A load in one domain of a group: by this kernel where it is the domain's, otherwise inside.

use std::io::Read;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_domain::{Inside, InsideProcess};
use rampart_load::{Load, command_inside, record_inside};
use rampart_model::{
    Condition, CpuId, CpuSet, Finding, LoadKind, LoadPlace, LoadRecord, Nanos, Severity,
};

use super::group::Member;
use crate::run::reason;

/// A load inside ends by itself so long after the round at the latest: its program and the meter
/// take their time to start.
const MARGIN: Nanos = Nanos::from_secs(3);
/// How long it may take beyond that, where its kernel is slow.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running load.
pub(crate) enum Loading {
    Here(Load),
    Inside(Vec<StressorInside>),
}

/// One stressor in a guest.
pub(crate) struct StressorInside {
    command: Vec<String>,
    cpu: CpuId,
    said: Receiver<String>,
    /// Dropping it ends the program.
    _handle: Box<dyn Send>,
}

impl Loading {
    /// Starts the load on all CPUs of a member, for a round of `duration`.
    pub(crate) fn start(
        load: LoadKind,
        member: &Member,
        duration: Nanos,
        scratch: &Path,
    ) -> Result<Self, Finding> {
        let problem = |what: String| Finding::new(Severity::Problem, member.name.as_str(), what);
        let Some(running) = member.running.as_ref() else {
            return Err(problem("it is not up".to_owned()));
        };
        if let Some(inside) = running.inside() {
            let stressors = member
                .cpus
                .iter()
                .map(|cpu| start_inside(inside, load, member, cpu, duration))
                .collect::<Result<_, _>>()?;
            return Ok(Self::Inside(stressors));
        }
        let condition = Condition {
            load,
            place: Some(LoadPlace::Same),
        };
        Load::start(
            condition,
            &member.cpus,
            &CpuSet::new(),
            running.shield(),
            scratch,
        )
        .map(Self::Here)
        .map_err(|error| problem(error.to_string()))
    }

    /// Looks whether it still runs; what is amiss is told at its end.
    pub(crate) fn watch(&mut self) {
        if let Self::Here(load) = self {
            // Told when it is stopped.
            let _ = load.alive();
        }
    }

    /// Ends it and tells what ran.
    pub(crate) fn end(self) -> LoadRecord {
        match self {
            Self::Here(load) => load.stop(),
            Self::Inside(stressors) => {
                let limit = Instant::now() + Duration::from(MARGIN) + PATIENCE;
                let stressors: Vec<_> = stressors
                    .into_iter()
                    .map(|stressor| {
                        let said = hear(&stressor.said, limit);
                        record_inside(stressor.command, stressor.cpu, &said)
                    })
                    .collect();
                LoadRecord {
                    version: "stress-ng, in the guest".to_owned(),
                    ran: stressors.iter().all(|stressor| stressor.failure.is_none()),
                    stressors,
                }
            }
        }
    }
}

fn start_inside(
    inside: &dyn Inside,
    load: LoadKind,
    member: &Member,
    cpu: CpuId,
    duration: Nanos,
) -> Result<StressorInside, Finding> {
    let number = inside.cpu_inside(cpu).ok_or_else(|| {
        Finding::new(
            Severity::Problem,
            member.name.as_str(),
            format!("it has no CPU of its own on the host's CPU {cpu}"),
        )
    })?;
    let command = command_inside(load, number, duration + MARGIN);
    let InsideProcess {
        mut output, handle, ..
    } = inside
        .spawn(&command)
        .map_err(|error| reason(&member.name, &error))?;
    let (sender, said) = channel();
    // Ends with the program, whose output ends when it is dropped.
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
        said,
        _handle: handle,
    })
}

/// All that it says until its end.
fn hear(said: &Receiver<String>, limit: Instant) -> String {
    let mut all = String::new();
    loop {
        let patience = limit.saturating_duration_since(Instant::now());
        match said.recv_timeout(patience) {
            Ok(text) => all.push_str(&text),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return all,
        }
    }
}
