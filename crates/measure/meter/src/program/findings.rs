// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks a request to measure before it is carried out, and creates the findings about it.

use rampart_model::{
    Finding, METER_PROTOCOL_VERSION, MeterRequest, MeterSettings, Nanos, Refusal, RefusalKind,
    SchedulingPolicy, Severity,
};

use super::conversation::{Requests, refuse_plan};
use crate::linux::{clock, diagnosis};

/// The coarsest timer resolution that permits a measurement.
const COARSEST_CLOCK: Nanos = Nanos::from_micros(1);

/// The protocol of measurements.
pub(super) const REQUESTS: Requests = Requests {
    protocol: METER_PROTOCOL_VERSION,
    command: "rampart measure",
    schema: "meter-request",
};

/// Returns the plan of the first request if it is valid.
pub(super) fn plan(request: MeterRequest) -> Result<MeterSettings, Refusal> {
    let MeterRequest::Prepare {
        protocol,
        settings: plan,
    } = request
    else {
        return Err(REQUESTS.out_of_turn("prepare"));
    };
    REQUESTS.check_protocol(protocol)?;
    refuse_plan(plan.findings())?;
    Ok(plan)
}

/// Returns a refusal if the clock is not suitable for the measurement.
pub(super) fn unsuitable_clock(settings: &MeterSettings) -> Option<Refusal> {
    const PLACE: &str = "CLOCK_MONOTONIC";
    let refusal = |finding| Refusal {
        kind: RefusalKind::ClockUnsuitable,
        finding,
    };
    let resolution = match clock::resolution() {
        Ok(resolution) => resolution,
        Err(cause) => {
            return Some(diagnosis::system(
                PLACE,
                "cannot read its resolution",
                &cause,
            ));
        }
    };
    let sleeps = settings.meter.is_periodic();
    if sleeps && resolution > COARSEST_CLOCK {
        return Some(refusal(
            Finding::new(
                Severity::Error,
                PLACE,
                "the timers are too coarse: high-resolution timers are off",
            )
            .values(resolution.to_string(), "1 ns")
            .fix("boot without highres=off, on a kernel with CONFIG_HIGH_RES_TIMERS"),
        ));
    }
    None
}

/// Returns the refusal for a meter that does not run under an operating system.
pub(super) fn no_bare_metal(settings: &MeterSettings) -> Refusal {
    let mut finding = settings.meter.not_here("meter");
    finding.severity = Severity::Error;
    Refusal {
        kind: RefusalKind::NeedsBareMetal,
        finding,
    }
}

/// Returns the refusal for a counter of `noise` that does not advance.
pub(super) fn stuck_counter() -> Refusal {
    Refusal {
        kind: RefusalKind::ClockUnsuitable,
        finding: Finding::new(
            Severity::Error,
            "the CPU's counter",
            "the counter does not advance with CLOCK_MONOTONIC",
        ),
    }
}

/// Returns a finding about the plan, if there is one.
pub(super) fn remarks(settings: &MeterSettings) -> Option<Finding> {
    matches!(settings.policy, SchedulingPolicy::Deadline { .. }).then(|| {
        Finding::new(
            Severity::Note,
            "affinity",
            "deadline threads must be allowed on each CPU of their root domain, so they are not bound; cpus_seen lists the CPUs of the samples",
        )
    })
}

/// Returns the refusal for a measuring thread that does not answer. The kernel's state of all
/// threads shows the reason: a thread that waits for its CPU, or one that was not woken from its
/// sleep.
pub(super) fn silent() -> Refusal {
    let mut threads: Vec<String> = std::fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| thread_state(&entry.path()))
        .collect();
    threads.sort();
    Refusal {
        kind: RefusalKind::System,
        finding: Finding::new(
            Severity::Error,
            "a measuring thread",
            "the thread does not answer: a thread of higher priority occupies its CPU, or its real-time budget is used up",
        )
        .values(threads.join("; "), "an answer")
        .fix("ps -eLo pid,tid,class,rtprio,psr,comm --sort=-rtprio"),
    }
}

/// Returns the state of a measuring thread (proc_pid_stat(5)), its run time and its wait time
/// (kernel document scheduler/sched-stats.rst).
fn thread_state(task: &std::path::Path) -> Option<String> {
    let stat = std::fs::read_to_string(task.join("stat")).ok()?;
    let (head, tail) = stat.rsplit_once(')')?;
    let name = head.split_once('(')?.1;
    if !name.starts_with("meter/") {
        return None;
    }
    let state = tail.split_whitespace().next()?;
    let times = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let mut times = times
        .split_whitespace()
        .filter_map(|time| time.parse().ok());
    let mut next = || Nanos(times.next().unwrap_or_default());
    Some(format!(
        "{name} in state {state}, has run for {} and waited for {}",
        next(),
        next()
    ))
}
