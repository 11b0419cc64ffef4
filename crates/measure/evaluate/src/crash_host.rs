// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's kernel is made to panic while every domain measures: until when did each live?
//!
//! Two sides take part. On the machine itself [`crash_host`] brings the domains up, sends out when
//! each was last heard of, and ends the kernel. Elsewhere the stream of results is taken in, and
//! when it has ended [`crate::confirm_crash`] puts the last signs of life into a record.

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
use crate::transfer::group::{Candidate, Group, Member, Standing};

/// File in the result stream that holds the newest signs of life, as a [`CrashRecord`].
pub const CRASH_SIGNS: &str = "crash.json";

/// Pause between two signs of life.
const SIGN: Nanos = Nanos::from_millis(100);
/// A meter hands over its figures so often, which is what makes a sign of life.
const METER_BATCH: Nanos = Nanos::from_millis(100);
/// How long domains may take to come up and measure.
const PATIENCE: Duration = Duration::from_secs(120);
/// For so long all are watched alive: how old a sign of life may be is learnt here.
const WATCHED: Duration = Duration::from_secs(3);
/// From the choice of the moment until the moment, with signs going out all the time.
const NOTICE: Duration = Duration::from_secs(1);
/// What may be on its way and is lost with the machine.
const ON_ITS_WAY: Nanos = Nanos::from_millis(500);
/// A meter gives up after this, if the machine turns out not to die.
const LONGEST: Nanos = Nanos::from_secs(600);

/// Makes this machine's kernel panic while its domains measure; `standing` is what is up, and what
/// started it. Comes back only if that did not happen, with the reason.
pub(crate) fn crash_host(
    plan: &EvaluationSettings,
    meter: &Path,
    directory: &ResultDirectory,
    (starters, standing): (&Domains, &mut Standing),
    stop: &AtomicBool,
) -> Finding {
    let not_done = |what: String| Finding::new(Severity::Error, "crash:host", what);
    let trigger = match PanicTrigger::open(&MachineRoot::system()) {
        Ok(trigger) => trigger,
        Err(error) => return not_done(error.to_string()),
    };
    let (candidates, left_out) = candidates(plan, starters, standing);
    let wakeup = meter_plan(plan);
    let group = standing.group(&candidates, meter, &plan.housekeeping, &wakeup);
    group.read_clocks();
    group.go();
    let until = Instant::now() + PATIENCE;
    let mut broken_off = false;
    let everybody_lives = |member: &Member| member.is_done() || member.last_sign.is_some();
    group.listen(
        |group| {
            broken_off = stop.load(Ordering::Relaxed);
            broken_off || Instant::now() > until || group.members.iter().all(everybody_lives)
        },
        &mut || {},
    );
    if broken_off {
        return not_done("the evaluation was ended before its turn came".to_owned());
    }
    // Guests may have taken long: their clocks are related to the host's near the moment too.
    group.read_clocks();

    // How old the newest sign of each is at worst while all live.
    let mut oldest = vec![Nanos::ZERO; group.members.len()];
    let until = Instant::now() + WATCHED;
    group.listen(
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
    group.listen(
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
    // Where this goes on, the machine lives.
    thread::sleep(Duration::from_secs(5));
    let answer = written.err().map_or_else(
        || "it took the command and went on".to_owned(),
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

/// Every domain that can be up with the others: the largest group of the plan for disturbances,
/// and those whose CPUs nobody else has. The rest come back with the reason.
fn candidates<'a>(
    plan: &'a EvaluationSettings,
    starters: &'a Domains,
    standing: &Standing,
) -> (Vec<Candidate<'a>>, Vec<CrashWitness>) {
    let group = plan
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
    for (location, domain) in plan.domains.iter().enumerate() {
        if let Some(why) = standing.failures.left_out(&domain.name) {
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
            domain: starters.of(location),
            cpus,
            policy: domain.policy,
            stay_up: true,
        });
    }
    (candidates, left_out)
}

fn meter_plan(plan: &EvaluationSettings) -> MeterSettings {
    let mut wakeup = MeterSettings::new(MeterKind::Wakeup, CpuSet::new());
    let (policy, interval) = match (&plan.transfer, plan.meters.first()) {
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

/// The newest sign of life on the host's clock.
fn last_sign(member: &Member) -> Option<Nanos> {
    let far = member.last_sign?;
    // The relation that was taken last is the nearest to the moment.
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
                // Its events are read and sent on by this process.
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
        how: "a panic, asked for by `c` in /proc/sysrq-trigger".to_owned(),
        at,
        confirmed: None,
        observed: Nanos::ZERO,
        witnesses,
    }
}

fn monotonic_now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is ever negative on this clock.
    Nanos::from_secs(now.tv_sec.unsigned_abs()) + Nanos(now.tv_nsec.unsigned_abs())
}
