// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes the host's kernel panic while every domain measures, to find out which domains survive.
//!
//! Two machines take part. On the crashed one, [`crash_host`] starts the domains, sends their last
//! signs of life, and makes the kernel panic. The other receives the stream of results;
//! [`crate::confirm_crash`] then turns the last signs of life into a record.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_host::{MachineRoot, PanicTrigger};
use rampart_model::{
    CpuSet, CrashRecord, CrashWitness, EvaluationSettings, Finding, MeterKind, MeterSettings,
    Nanos, Severity, SignPath,
};

use crate::EvaluateError;
use crate::domains::Domains;
use crate::store::ResultDirectory;
use crate::transfer::group::{Candidate, Group, Member, RunningGroup};

/// File in the result stream with the newest signs of life, a [`CrashRecord`].
pub const CRASH_SIGNS: &str = "crash.json";

/// Pause between two signs of life.
const SIGN: Nanos = Nanos::from_millis(100);
/// Interval between the batches of a meter; each batch is a sign of life.
const METER_BATCH: Nanos = Nanos::from_millis(100);
/// Time limit for all domains to start and measure.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Time during which all domains are watched to learn the largest age of a sign of life.
const WATCHED: Duration = Duration::from_secs(3);
/// Time from the choice of the crash time to the crash; signs are sent all the time. The agent of an emulated board
/// may need more than a second to send one.
const NOTICE: Duration = Duration::from_secs(4);
/// Time for data in transit, which is lost with the machine.
const ON_ITS_WAY: Nanos = Nanos::from_millis(500);
/// A meter ends after this time if the machine does not crash.
const LONGEST: Nanos = Nanos::from_secs(600);

/// Makes this machine's kernel panic while its domains measure. `running` has the running group.
/// Returns only if the crash did not happen, with the reason.
pub(crate) fn crash_host(
    settings: &EvaluationSettings,
    meter: &Path,
    directory: &ResultDirectory,
    (kept_domains, running): (&Domains, &mut RunningGroup),
    stop: &AtomicBool,
) -> Finding {
    let not_done = |what: String| Finding::new(Severity::Error, "crash:host", what);
    let trigger = match PanicTrigger::open(&MachineRoot::system()) {
        Ok(trigger) => trigger,
        Err(error) => return not_done(error.to_string()),
    };
    let (candidates, left_out) = candidates(settings, kept_domains, running);
    let wakeup = meter_plan(settings);
    let group = running.group(&candidates, meter, &settings.housekeeping, &wakeup);
    group.read_clocks();
    group.go();
    let until = Instant::now() + TIMEOUT;
    let mut cancelled = false;
    let is_settled = |member: &Member| member.is_done() || member.last_sign.is_some();
    group.read_until(
        |group| {
            cancelled = stop.load(Ordering::Relaxed);
            cancelled || Instant::now() > until || group.members.iter().all(is_settled)
        },
        &mut || {},
    );
    if cancelled {
        return not_done("the evaluation was ended before its turn came".to_owned());
    }
    // Guests may start slowly, so relate their clocks to the host's clock again close to the crash.
    group.read_clocks();

    // The largest age of the newest sign of each domain while all are alive.
    let mut oldest = vec![Nanos::ZERO; group.members.len()];
    let until = Instant::now() + WATCHED;
    group.read_until(
        |group| {
            let now = monotonic_now();
            for (oldest, member) in oldest.iter_mut().zip(&group.members) {
                if let Some(sign) = last_sign(member) {
                    *oldest = (*oldest).max(now.saturating_sub(sign));
                }
            }
            Instant::now() > until
        },
        &mut || {},
    );

    let at = monotonic_now() + Nanos::from(NOTICE);
    let mut next = monotonic_now();
    let mut failed: Option<EvaluateError> = None;
    let send = |group: &Group| {
        let record = record(group, &oldest, &left_out, at);
        let text = serde_json::to_vec(&record).unwrap_or_default();
        directory.write_beside(CRASH_SIGNS, &text).err()
    };
    group.read_until(
        |group| {
            let now = monotonic_now();
            if now >= next {
                next = now + SIGN;
                failed = send(group);
            }
            failed.is_some() || now >= at
        },
        &mut || {},
    );
    if let Some(error) = failed {
        return not_done(format!("cannot send the signs of life: {error}"));
    }
    let written = trigger.fire();
    // If execution continues after this, the machine did not crash.
    thread::sleep(Duration::from_secs(5));
    let answer = written.err().map_or_else(
        || "it accepted the command and continues".to_owned(),
        |error| error.to_string(),
    );
    not_done(format!("the kernel did not panic: {answer}"))
}

fn witness(domain: &str, why: Finding) -> CrashWitness {
    CrashWitness {
        domain: domain.to_owned(),
        last_sample: None,
        lived: None,
        uncertainty: Nanos::ZERO,
        signs: SignPath::ThroughHost,
        memory: None,
        after: None,
        invalid: vec![why],
    }
}

/// Returns all domains that can run at once: the largest group of the settings for disturbances,
/// and the domains with CPUs of their own. Returns the other domains with the reasons.
fn candidates<'a>(
    settings: &'a EvaluationSettings,
    kept_domains: &'a Domains,
    running: &RunningGroup,
) -> (Vec<Candidate<'a>>, Vec<CrashWitness>) {
    let group = settings
        .transfer
        .iter()
        .flat_map(|transfer| &transfer.groups)
        .max_by_key(|group| group.participants.len());
    let in_group = |name: &str| {
        group?
            .participants
            .iter()
            .find(|participant| participant.domain == name)
            .map(|participant| &participant.cpus)
    };
    let mut taken: CpuSet = group
        .iter()
        .flat_map(|group| &group.participants)
        .fold(CpuSet::new(), |taken, participant| {
            taken.union(&participant.cpus)
        });
    let (mut candidates, mut left_out) = (Vec::new(), Vec::new());
    for (index, domain) in settings.domains.iter().enumerate() {
        if let Some(why) = running.failures.left_out(&domain.name) {
            left_out.push(witness(&domain.name, why));
            continue;
        }
        let cpus = match in_group(&domain.name) {
            Some(cpus) => cpus,
            None if domain.cpus.intersection(&taken).is_empty() => {
                taken = taken.union(&domain.cpus);
                &domain.cpus
            }
            None => {
                let why = Finding::new(
                    Severity::Note,
                    domain.name.as_str(),
                    "there are not enough real-time CPUs for it to be up together with the others",
                );
                left_out.push(witness(&domain.name, why));
                continue;
            }
        };
        candidates.push(Candidate {
            name: &domain.name,
            domain: kept_domains.of(index),
            cpus,
            policy: domain.policy,
            stay_up: true,
        });
    }
    (candidates, left_out)
}

fn meter_plan(settings: &EvaluationSettings) -> MeterSettings {
    let mut wakeup = MeterSettings::new(MeterKind::Wakeup, CpuSet::new());
    let (policy, interval) = match (&settings.transfer, settings.meters.first()) {
        (Some(transfer), _) => (transfer.policy, transfer.interval),
        (None, Some(meter)) => (meter.policy, Nanos::from_millis(1)),
        (None, None) => (wakeup.policy, wakeup.interval),
    };
    wakeup.policy = policy;
    wakeup.interval = interval;
    wakeup.duration = LONGEST;
    wakeup.warm_up = METER_BATCH;
    wakeup.batch = METER_BATCH;
    wakeup
}

/// Returns the newest sign of life on the host's clock.
fn last_sign(member: &Member) -> Option<Nanos> {
    let far = member.last_sign?;
    // The last relation is the nearest in time.
    let Some(relation) = member.clock.last() else {
        return Some(far);
    };
    let host = i128::from(far.0) - i128::from(relation.offset.0);
    Some(Nanos(u64::try_from(host.max(0)).unwrap_or(u64::MAX)))
}

fn record(group: &Group, oldest: &[Nanos], left_out: &[CrashWitness], at: Nanos) -> CrashRecord {
    let mut witnesses: Vec<_> = group
        .members
        .iter()
        .zip(oldest)
        .map(|(member, oldest)| {
            let sign = last_sign(member);
            let mut invalid = member.invalid.clone();
            if sign.is_none() && invalid.is_empty() {
                invalid.push(Finding::new(
                    Severity::Error,
                    member.name.as_str(),
                    "its meter gave no sign of life before the crash",
                ));
            }
            let clock = member.clock.last().map(|relation| relation.uncertainty);
            CrashWitness {
                domain: member.name.clone(),
                last_sample: sign,
                lived: None,
                uncertainty: *oldest + SIGN + ON_ITS_WAY + clock.unwrap_or_default(),
                // This process reads its events and sends them on.
                signs: SignPath::ThroughHost,
                memory: member
                    .running
                    .as_ref()
                    .and_then(|running| running.sign_in_memory()),
                after: None,
                invalid,
            }
        })
        .collect();
    witnesses.extend_from_slice(left_out);
    CrashRecord {
        how: "a panic, requested with `c` in /proc/sysrq-trigger".to_owned(),
        at,
        confirmed: None,
        observed: Nanos::ZERO,
        witnesses,
    }
}

fn monotonic_now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither value is negative on this clock.
    Nanos::from_secs(now.tv_sec.unsigned_abs()) + Nanos(now.tv_nsec.unsigned_abs())
}
