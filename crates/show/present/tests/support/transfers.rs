// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Made-up rounds: who is disturbed, and what the others see of it.

use rampart_model::{
    BlockKind, BlockSpan, BlocksMade, ClockRelation, CpuId, Distribution, Disturbance,
    DisturbanceKind, EvaluatedDomain, Finding, LoadKind, LoadRecord, Nanos, Severity, Side,
    SignedNanos, StressorRecord, Timeline, TransferRecord, Watched, Window,
};

use super::guest;
use super::measure::{Random, coarse};

pub(crate) const LENGTH: Nanos = Nanos::from_millis(32);
const SLOT: Nanos = Nanos::from_millis(4);
const LOADED_SLOT: Nanos = Nanos::from_millis(16);
const BLOCKS: u32 = 20;
/// A block's window ends this long after it: a period and the worst quiet latency.
const AFTER: Nanos = Nanos::from_millis(8);
/// Samples in a slot.
const SAMPLES: u32 = 4;

/// The part of a block that crosses into a domain, or the factor by which a load slows it.
pub(crate) fn crossing(disturbance: &Disturbance, watched: &str) -> f64 {
    let own = disturbance.domain == watched;
    match (disturbance.kind, disturbance.side) {
        (DisturbanceKind::Block, _) if own => 0.99,
        // The emulator's other threads share the host's CPU.
        (DisturbanceKind::Block, _) if disturbance.domain == "host" && watched == "vm" => 0.21,
        (DisturbanceKind::Block, _) if disturbance.domain == "task" && watched == "vm" => 0.128,
        (DisturbanceKind::Block, _) => 0.0,
        (DisturbanceKind::Load(LoadKind::Cache), _) if own => 2.6,
        (DisturbanceKind::Load(LoadKind::Cache), _) => 1.0 + 0.35 * watched.len() as f64 / 4.0,
        (DisturbanceKind::Load(_), _) if own => 1.4,
        (DisturbanceKind::Load(_), _) => 1.04,
    }
}

/// Every disturbance of these domains, blocks first.
pub(crate) fn disturbances(domains: &[EvaluatedDomain]) -> Vec<Disturbance> {
    let of = |kind, side, domain: &EvaluatedDomain| Disturbance {
        kind,
        side,
        domain: domain.name.clone(),
    };
    let mut all: Vec<Disturbance> = domains
        .iter()
        .map(|domain| of(DisturbanceKind::Block, Side::Inside, domain))
        .collect();
    let guests = domains
        .iter()
        .filter(|domain| domain.selection.guest.is_some());
    all.extend(guests.map(|domain| of(DisturbanceKind::Block, Side::Under, domain)));
    for load in [LoadKind::Cpu, LoadKind::Cache] {
        let loads = domains
            .iter()
            .map(|domain| of(DisturbanceKind::Load(load), Side::Inside, domain));
        all.extend(loads);
    }
    all
}

/// One round of the host's clock; none: a quiet one.
pub(crate) fn round(
    domains: &[EvaluatedDomain],
    disturbance: Option<&Disturbance>,
    order: u32,
) -> TransferRecord {
    let start = Nanos::from_secs(412) + Nanos(u64::from(order) * 5_300_000_000);
    let mut random = Random(77 + u64::from(order));
    let blocked = disturbance.filter(|of| of.kind == DisturbanceKind::Block);
    let spans = blocked.map_or_else(Vec::new, |of| spans(domains, of, start, &mut random));
    let duration = spans.last().map_or(Nanos::from_secs(2), |last| {
        last.end.saturating_sub(start) + Nanos::from_millis(90)
    });
    let duration = Nanos(duration.0 / LOADED_SLOT.0 * LOADED_SLOT.0);
    let watched = domains
        .iter()
        .map(|domain| watch(domain, disturbance, &spans, (start, duration), &mut random))
        .collect();
    let in_guest = blocked.is_some_and(|of| of.domain == "vm" && of.side == Side::Inside);
    let died = disturbance.is_some_and(|of| of.to_string() == "cache:container");
    TransferRecord {
        id: format!(
            "{}/0/{}",
            disturbance.map_or_else(|| "quiet".to_owned(), ToString::to_string),
            u32::from(disturbance.is_none() && order > 0),
        ),
        group: 0,
        order,
        disturbance: disturbance.cloned(),
        started: format!(
            "2026-11-21T22:{:02}:{:02}Z",
            4 + order * 6 / 60,
            order * 6 % 60
        ),
        duration,
        blocks: blocked.map(|_| BlocksMade {
            kind: BlockKind::Module,
            length: LENGTH,
            clock: clocks(in_guest, start, duration),
            spans: spans
                .iter()
                .map(|span| BlockSpan {
                    start: far(in_guest, span.start),
                    end: far(in_guest, span.end),
                    cpu: if in_guest { CpuId(1) } else { span.cpu },
                    ..*span
                })
                .collect(),
        }),
        load: disturbance.and_then(|of| load(domains, of, died)),
        watched,
        invalid: died
            .then(|| {
                Finding::new(
                    Severity::Error,
                    "stress-ng",
                    "the load ended before the round did",
                )
                .values("exit status 2 after 0.4 s", "running")
                .fix("free some memory, or disturb with a smaller load")
            })
            .into_iter()
            .collect(),
        findings: Vec::new(),
    }
}

fn clocks(elsewhere: bool, start: Nanos, duration: Nanos) -> Vec<ClockRelation> {
    if elsewhere {
        vec![guest::clock(start), guest::clock(start + duration)]
    } else {
        Vec::new()
    }
}

/// A moment of the host's on the guest's clock.
fn far(elsewhere: bool, at: Nanos) -> Nanos {
    if !elsewhere {
        return at;
    }
    let SignedNanos(offset) = guest::clock(at).offset;
    Nanos(at.0.saturating_add_signed(offset))
}

fn cpu(domains: &[EvaluatedDomain], name: &str) -> CpuId {
    let domain = domains.iter().find(|domain| domain.name == name);
    let cpu = domain.and_then(|domain| domain.cpus.iter().next());
    cpu.expect("a domain with a CPU")
}

/// Blocks on the host's clock.
fn spans(
    domains: &[EvaluatedDomain],
    of: &Disturbance,
    start: Nanos,
    random: &mut Random,
) -> Vec<BlockSpan> {
    let mut at = start;
    (0..BLOCKS)
        .map(|sequence| {
            at += Nanos(((0.5 + random.unit()) * 110e6) as u64);
            let begin = at;
            at += LENGTH + Nanos((random.unit() * 40e3) as u64);
            BlockSpan {
                cpu: cpu(domains, &of.domain),
                sequence,
                start: begin,
                end: at,
            }
        })
        .collect()
}

fn watch(
    domain: &EvaluatedDomain,
    disturbance: Option<&Disturbance>,
    spans: &[BlockSpan],
    (start, duration): (Nanos, Nanos),
    random: &mut Random,
) -> Watched {
    let is_guest = domain.selection.guest.is_some();
    let crossing = disturbance.map_or(0.0, |of| crossing(of, &domain.name));
    let loaded = disturbance.is_some_and(|of| of.kind != DisturbanceKind::Block);
    let usual = 400e3 * if is_guest { 1.9 } else { 1.0 } * if loaded { crossing } else { 1.0 };
    let late: Vec<(Nanos, Nanos)> = spans
        .iter()
        .filter(|_| crossing > 0.0)
        .map(|span| {
            let wobble = 1.0 + if crossing < 0.2 { 0.2 } else { 0.02 } * random.bell();
            (
                span.start,
                Nanos((crossing * wobble * LENGTH.0 as f64) as u64),
            )
        })
        .collect();
    let slot = if spans.is_empty() { LOADED_SLOT } else { SLOT };
    let mut all = Vec::new();
    let worst: Vec<Option<Nanos>> = (0..duration.0 / slot.0)
        .map(|index| {
            let (from, to) = (
                start + Nanos(index * slot.0),
                start + Nanos((index + 1) * slot.0),
            );
            if late
                .iter()
                .any(|(begin, length)| *begin < from && to <= *begin + *length)
            {
                return None;
            }
            let held = late
                .iter()
                .find(|(begin, length)| (from..to).contains(&(*begin + *length)));
            let samples = (0..SAMPLES).map(|_| {
                let tail = if random.unit() < 0.008 {
                    random.unit().powi(3) * 5e6
                } else {
                    0.0
                };
                coarse(usual + usual * 0.12 * random.bell() + tail)
            });
            let samples: Vec<Nanos> = samples
                .chain(held.map(|(_, length)| coarse(length.0 as f64)))
                .collect();
            all.extend(&samples);
            samples.into_iter().max()
        })
        .collect();
    let timeline = Timeline {
        start: far(is_guest, start),
        slot,
        worst,
    };
    Watched {
        domain: domain.name.clone(),
        cpu: domain.cpus.iter().next().expect("a CPU"),
        clock: clocks(is_guest, start, duration),
        windows: windows(spans, is_guest, &timeline),
        timeline,
        seen: Distribution::from_values(all),
        corrected: None,
        missed: late.iter().map(|(_, length)| length.0 / 1_000_000).sum(),
        guest: is_guest.then(|| guest::report(start, start + duration)),
        cell: None,
        invalid: Vec::new(),
        findings: Vec::new(),
    }
}

/// A window for each block and a control window in each pause that is long enough.
fn windows(spans: &[BlockSpan], is_guest: bool, timeline: &Timeline) -> Vec<Window> {
    let window = |start: Nanos, end: Nanos, block: Option<u32>| {
        let (start, end) = (far(is_guest, start), far(is_guest, end));
        let slot = |at: Nanos| (at.saturating_sub(timeline.start).0 / timeline.slot.0) as usize;
        let inside = timeline.worst.iter().take(slot(end) + 1).skip(slot(start));
        Window {
            start,
            end,
            block,
            worst: inside.flatten().copied().max(),
        }
    };
    let mut all = Vec::new();
    for (index, span) in spans.iter().enumerate() {
        all.push(window(span.start, span.end + AFTER, Some(span.sequence)));
        let length = span.length() + AFTER;
        let begin = span.end + AFTER + AFTER;
        let next = spans
            .get(index + 1)
            .map_or(Nanos(u64::MAX), |next| next.start);
        if begin + length < next {
            all.push(window(begin, begin + length, None));
        }
    }
    all
}

fn load(domains: &[EvaluatedDomain], of: &Disturbance, died: bool) -> Option<LoadRecord> {
    let DisturbanceKind::Load(kind) = of.kind else {
        return None;
    };
    let on = cpu(domains, &of.domain);
    Some(LoadRecord {
        version: "stress-ng 0.15.06".to_owned(),
        stressors: vec![StressorRecord {
            command: [
                "stress-ng",
                &format!("--{}", kind.word()),
                "1",
                "--taskset",
                &on.to_string(),
            ]
            .map(str::to_owned)
            .to_vec(),
            cpus: guest::one(on.0),
            cpu_time: Nanos::from_millis(if died { 390 } else { 1_870 }),
            failure: died.then(|| "stress-ng: fail: out of memory (exit status 2)".to_owned()),
        }],
        ran: !died,
    })
}
