// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes one round: all domains of a group run, at most one is disturbed, all are watched. A fault
//! is recorded as a reason why the round, or a domain's part of it, is not valid.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rampart_load::LoadProgram;
use rampart_model::{
    BlocksMade, CpuSet, Disturbance, DisturbanceKind, Finding, GuestRole, LoadKind, LoadRecord,
    MeterKind, MeterSettings, Nanos, Severity, Side, Timeline, TransferRecord, TransferSettings,
    Watched,
};

use super::block_in_domain::Blocking;
use super::block_length::BlockLength;
use super::group::{Candidate, Group, Member, RunningGroup};
use super::load_in_domain::{LoadRequest, Loading};
use super::windows::{Clock, Margins, filled, spans_on, windows};
use crate::calendar_time;
use crate::outside_influence::MeasuredDomain;
use crate::run::GUEST_TIMEOUT;

/// Time that meters may be silent beyond the expected end before they count as lost.
const TIMEOUT: Duration = GUEST_TIMEOUT;
const WARM_UP: Nanos = Nanos::from_millis(300);
/// Slots of rounds without blocks: fine enough to show a load over time.
const COARSE_SLOT: Nanos = Nanos::from_millis(20);
/// Interval between the batches of a meter.
const METER_BATCH: Nanos = Nanos::from_millis(500);
/// In a round of blocks, a meter runs until it is stopped, at most for this time.
const LONGEST_BLOCK_ROUND: Nanos = Nanos::from_secs(600);

/// The parameters of a round.
#[derive(Debug)]
pub(crate) struct RoundRequest<'a> {
    pub(crate) id: String,
    pub(crate) group: u32,
    pub(crate) order: u32,
    pub(crate) plan: &'a TransferSettings,
    pub(crate) candidates: &'a [Candidate<'a>],
    pub(crate) disturbance: Option<&'a Disturbance>,
    /// Duration of a quiet round or a round under load.
    pub(crate) duration: Nanos,
    /// Length of blocks from the quiet round before; `None` if that round failed.
    pub(crate) block: Option<BlockLength>,
    pub(crate) meter: &'a Path,
    pub(crate) load_program: &'a LoadProgram,
    pub(crate) housekeeping: &'a CpuSet,
    pub(crate) scratch: &'a Path,
    pub(crate) seed: u64,
    /// Whether the machine is emulated and slow.
    pub(crate) emulated: bool,
}

/// The disturbance that was made in a round, complete or not.
#[derive(Debug, Default)]
struct Done {
    blocks: Option<BlocksMade>,
    load: Option<LoadRecord>,
    length: Duration,
    invalid: Vec<Finding>,
    findings: Vec<Finding>,
}

impl Done {
    fn fail(&mut self, location: &str, what: impl Into<String>) {
        self.invalid
            .push(Finding::new(Severity::Error, location, what));
    }
}

/// Makes one round, with the running domains if they are the requested ones. Returns `None` if the
/// round was cancelled because `stop` was set.
pub(crate) fn make_round(
    request: &RoundRequest<'_>,
    running: &mut RunningGroup,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) -> Option<TransferRecord> {
    let started = calendar_time::timestamp(calendar_time::since_epoch());
    let is_blocks = request
        .disturbance
        .is_some_and(|disturbance| disturbance.kind == DisturbanceKind::Block);
    let mut done = Done::default();
    let mut watched = Vec::new();
    if is_blocks && request.block.is_none() {
        done.fail(
            &request.id,
            "no quiet round before it counts, so that the length of its blocks is not known",
        );
    } else if let Some(why) = request
        .disturbance
        .and_then(|disturbance| running.failures.left_out(&disturbance.domain))
    {
        done.invalid.push(why);
    } else {
        let plan = meter_plan(request, is_blocks);
        let group = running.group(
            request.candidates,
            request.meter,
            request.housekeeping,
            &plan,
        );
        group.read_clocks();
        let (running_members, domains) = measured_domains(group);
        let mut outside_influence = std::mem::take(&mut group.outside_influence);
        outside_influence.watch(domains);
        let tick = &mut || {
            outside_influence.look();
            tick();
        };
        match (request.disturbance, request.block) {
            (Some(disturbance), Some(length)) if is_blocks => {
                blocks(request, group, disturbance, length, &mut done, tick, stop);
            }
            (Some(disturbance), _) => load(request, group, disturbance, &mut done, tick, stop),
            (None, _) => {
                group.go();
                read_to_the_end(request, group, &mut done, tick, stop);
            }
        }
        for influence in outside_influence.end() {
            match influence.domain {
                Some(domain) => {
                    let member = &mut group.members[running_members[domain]];
                    member.invalid.push(influence.finding);
                }
                None => done.invalid.push(influence.finding),
            }
        }
        if request.disturbance.is_none() {
            done.findings.extend(outside_influence.others_finding());
        }
        group.outside_influence = outside_influence;
        group.read_clocks();
        group.read_reports();
        let members = group.members.iter().enumerate();
        watched = members
            .flat_map(|(index, member)| self::watched(request, member, index, &done))
            .collect();
    }
    // A start that Ctrl-C interrupted is not a failure.
    tick();
    if stop.load(Ordering::Relaxed) {
        return None;
    }
    if !watched.is_empty() {
        running.count_failures();
    }
    Some(TransferRecord {
        id: request.id.clone(),
        group: request.group,
        order: request.order,
        disturbance: request.disturbance.cloned(),
        started,
        duration: Nanos::from(done.length),
        blocks: done.blocks,
        load: done.load,
        watched,
        invalid: done.invalid,
        findings: done.findings,
    })
}

/// Returns the indices of the members that run, and what is watched of each.
fn measured_domains(group: &Group) -> (Vec<usize>, Vec<MeasuredDomain>) {
    let members = group.members.iter().enumerate();
    members
        .filter_map(|(index, member)| {
            let running = member.running.as_deref()?;
            Some((index, MeasuredDomain::of(running, &member.cpus)))
        })
        .unzip()
}

/// Returns the settings of every meter.
fn meter_plan(request: &RoundRequest<'_>, is_blocks: bool) -> MeterSettings {
    let slot = match request.block {
        Some(length) if is_blocks => length.slot(),
        _ => COARSE_SLOT,
    };
    MeterSettings {
        policy: request.plan.policy,
        interval: request.plan.interval,
        duration: if is_blocks {
            LONGEST_BLOCK_ROUND
        } else {
            request.duration
        },
        warm_up: WARM_UP,
        batch: Nanos(slot.0 * METER_BATCH.0.div_ceil(slot.0)),
        timeline: Some(slot),
        ..MeterSettings::new(MeterKind::Wakeup, CpuSet::new())
    }
}

/// Blocks the CPUs of one domain repeatedly, then stops the meters.
fn blocks(
    request: &RoundRequest<'_>,
    group: &mut Group,
    disturbance: &Disturbance,
    length: BlockLength,
    done: &mut Done,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) {
    let Some(member) = disturbed(request, group, disturbance, done) else {
        return;
    };
    let plan = length.plan(&member.cpus, request.plan, request.duration, request.seed);
    let started = Blocking::start(request.meter, member, disturbance.side, plan);
    let mut blocking = match started {
        Ok(blocking) => blocking,
        Err(finding) => {
            done.invalid.push(finding);
            return;
        }
    };
    group.go();
    if !wait_until_warm(request, group, done, tick, stop) {
        return;
    }
    let began = Instant::now();
    let limit = blocking.timeout() + TIMEOUT;
    if let Err(finding) = blocking.go() {
        done.invalid.push(finding);
    }
    let mut failure = None;
    let mut over = false;
    group.read_until(
        |group| {
            if stop.load(Ordering::Relaxed) || group.is_done() {
                return true;
            }
            match blocking.read_progress() {
                Ok(ended) => over = ended,
                Err(finding) => failure = Some(finding),
            }
            over || failure.is_some() || began.elapsed() > limit
        },
        tick,
    );
    if !over && failure.is_none() && !stop.load(Ordering::Relaxed) {
        let what = if group.is_done() {
            "the meters ended before the blocks"
        } else {
            "the blocks do not come to an end"
        };
        done.fail(&request.id, what);
    }
    done.invalid.extend(failure);
    // The window of the last block, and time for a quiet one.
    let tail = Instant::now() + Duration::from(length.window(request.plan)) * 3;
    group.read_until(
        |_| Instant::now() >= tail || stop.load(Ordering::Relaxed),
        tick,
    );
    done.length = began.elapsed();
    group.stop();
    read_last_events(group, tick);
    let (mut made, findings) = blocking.end();
    if let Some(member) = group.member(&disturbance.domain)
        && disturbance.side == Side::Inside
    {
        made.clock.clone_from(&member.clock);
    }
    if made.spans.is_empty() {
        done.fail(&request.id, "no block was made");
    }
    done.findings.extend(length.findings());
    done.findings.extend(findings);
    done.blocks = Some(made);
}

/// Runs a load in one domain for the whole round.
fn load(
    request: &RoundRequest<'_>,
    group: &mut Group,
    disturbance: &Disturbance,
    done: &mut Done,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) {
    let kind = match disturbance.kind {
        DisturbanceKind::Load(load) => load,
        DisturbanceKind::Block => LoadKind::Idle,
    };
    let Some(member) = disturbed(request, group, disturbance, done) else {
        return;
    };
    let is_emulated_guest = request.candidates.iter().any(|candidate| {
        candidate.name == disturbance.domain
            && candidate.domain.selection().guest == Some(GuestRole::Emulated)
    });
    let load = LoadRequest {
        load: kind,
        duration: WARM_UP + request.duration,
        load_program: request.load_program,
        scratch: request.scratch,
        emulated: request.emulated || is_emulated_guest,
    };
    let mut loading = match Loading::start(&load, member, tick, stop) {
        Ok(loading) => loading,
        Err(finding) => {
            done.invalid.push(finding);
            return;
        }
    };
    group.go();
    read_to_the_end(
        request,
        group,
        done,
        &mut || {
            loading.watch();
            tick();
        },
        stop,
    );
    let record = loading.end();
    if let Some(failures) = record.failures() {
        done.fail(&request.id, failures);
    }
    done.load = Some(record);
}

/// Returns the member to disturb, if it runs.
fn disturbed<'g>(
    request: &RoundRequest<'_>,
    group: &'g Group,
    disturbance: &Disturbance,
    done: &mut Done,
) -> Option<&'g Member> {
    let member = group
        .member(&disturbance.domain)
        .filter(|member| member.running.is_some());
    if member.is_none() {
        done.fail(
            &request.id,
            format!(
                "{} is not up, so it cannot be disturbed",
                disturbance.domain
            ),
        );
    }
    member
}

/// Waits for the end of the warm-up of every running meter. Returns whether all reached it.
fn wait_until_warm(
    request: &RoundRequest<'_>,
    group: &mut Group,
    done: &mut Done,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) -> bool {
    let begin = Instant::now();
    let warm = Duration::from(WARM_UP) + Duration::from_millis(100);
    let mut all_warm = false;
    group.read_until(
        |group| {
            all_warm = !group.is_done()
                && group
                    .members
                    .iter()
                    .filter(|member| !member.is_done())
                    .all(|member| {
                        member
                            .started
                            .is_some_and(|(_, received)| received.elapsed() >= warm)
                    });
            all_warm || group.is_done() || stop.load(Ordering::Relaxed) || begin.elapsed() > TIMEOUT
        },
        tick,
    );
    if !all_warm && !stop.load(Ordering::Relaxed) {
        group.give_up(
            |member| member.started.is_none(),
            "its meter did not start to measure",
        );
        done.fail(&request.id, "not every meter came to measure");
    }
    all_warm
}

/// Reads events until every meter has ended by its own plan.
fn read_to_the_end(
    request: &RoundRequest<'_>,
    group: &mut Group,
    done: &mut Done,
    tick: &mut dyn FnMut(),
    stop: &AtomicBool,
) {
    let limit = Instant::now() + Duration::from(WARM_UP + request.duration) + TIMEOUT;
    group.read_until(
        |group| group.is_done() || stop.load(Ordering::Relaxed) || Instant::now() > limit,
        tick,
    );
    done.length = Duration::from(request.duration);
    if stop.load(Ordering::Relaxed) {
        group.stop();
    }
    read_last_events(group, tick);
}

/// Reads the last events. Adds a reason to each meter that has not reported its end.
fn read_last_events(group: &mut Group, tick: &mut dyn FnMut()) {
    let limit = Instant::now() + TIMEOUT;
    group.read_until(|group| group.is_done() || Instant::now() > limit, tick);
    let what = format!(
        "its meter sent nothing for {} s after its time was over",
        TIMEOUT.as_secs()
    );
    group.give_up(|_| true, &what);
}

/// Returns the results of a member, one entry for each of its CPUs.
fn watched(request: &RoundRequest<'_>, member: &Member, index: usize, done: &Done) -> Vec<Watched> {
    let timelines: Vec<&Timeline> = member
        .received
        .values()
        .filter_map(|received| received.timeline.as_ref())
        .collect();
    let cut = match (&done.blocks, request.block, request.disturbance) {
        (Some(made), Some(length), Some(disturbance)) => {
            // If source and victim have the same clock, no conversion is needed.
            let own = disturbance.domain == member.name && disturbance.side == Side::Inside;
            let (source, victim) = if own {
                (Clock::default(), Clock::default())
            } else {
                (Clock(&made.clock), Clock(&member.clock))
            };
            let margins = Margins {
                uncertainty: source.uncertainty() + victim.uncertainty(),
                after: length.after(request.plan),
            };
            let spans = spans_on(&made.spans, source, victim);
            let seed = request.seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            windows(&spans, &timelines, margins, seed)
        }
        _ => Vec::new(),
    };
    member
        .cpus
        .iter()
        .enumerate()
        .map(|(nth, cpu)| {
            let received = member.received.get(&cpu);
            let timeline = received.and_then(|received| received.timeline.clone());
            let mut invalid = member.invalid.clone();
            if timeline.is_none() && invalid.is_empty() {
                invalid.push(Finding::new(
                    Severity::Error,
                    format!("{}, CPU {cpu}", member.name),
                    "there is no sample",
                ));
            }
            let timeline = timeline.unwrap_or_else(|| Timeline {
                start: Nanos::ZERO,
                slot: COARSE_SLOT,
                worst: Vec::new(),
            });
            Watched {
                domain: member.name.clone(),
                cpu,
                clock: member.clock.clone(),
                windows: filled(&cut, &timeline),
                timeline,
                seen: received
                    .map(|received| received.seen.clone())
                    .unwrap_or_default(),
                corrected: received.and_then(|received| received.corrected.clone()),
                missed: received.map(|received| received.missed).unwrap_or_default(),
                guest: (nth == 0).then(|| member.guest.clone()).flatten(),
                cell: (nth == 0).then(|| member.cell.clone()).flatten(),
                detached: member.detached,
                invalid,
                findings: member.findings.clone(),
            }
        })
        .collect()
}
