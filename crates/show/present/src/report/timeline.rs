// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Latencies of a pair in time, with the blocks of its round, on the host's clock.

use std::collections::{BTreeSet, HashMap};

use rampart_model::{
    ClockRelation, Distribution, Finding, Nanos, TransferRecord, Verdict, VerdictFigures, Watched,
    Window, plural,
};

use super::findings::findings;
use super::interval::TimeAxis;
use super::matrix::block_count;
use super::{Report, once};
use crate::charts::{PairRound, Trace, TraceBlock, TraceLine, TraceWindow};
use crate::element::{
    Column, ColumnKind, Drawing, Element, Entry, Pair, Row, SpanStyle, Table, TableStyle, Text,
};
use crate::format;

/// The traces so far; each round and domain has one.
pub(super) struct Traces<'r, 'a> {
    pub(super) report: &'r Report<'a>,
    pub(super) all: Vec<Trace>,
    known: HashMap<(String, String), usize>,
}

impl<'r, 'a> Traces<'r, 'a> {
    pub(super) fn new(report: &'r Report<'a>) -> Self {
        Self {
            report,
            all: Vec::new(),
            known: HashMap::new(),
        }
    }

    fn number(&mut self, round: &TransferRecord, domain: &str) -> usize {
        let key = (round.id.clone(), domain.to_owned());
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let number = self.all.len();
        let curve = self.report.curve(domain);
        self.all.push(trace(round, &View::of(round, domain), curve));
        self.known.insert(key, number);
        number
    }
}

/// Returns the worst latency of each moment of a round over all CPUs of a domain.
struct View {
    cpus: String,
    clock: Vec<ClockRelation>,
    start: Nanos,
    slot: Nanos,
    worst: Vec<Option<Nanos>>,
    windows: Vec<Window>,
    seen: Distribution,
    missed: u64,
    findings: Vec<Finding>,
}

impl View {
    fn of(round: &TransferRecord, domain: &str) -> Self {
        let all: Vec<&Watched> = round
            .watched
            .iter()
            .filter(|watched| watched.domain == domain)
            .collect();
        let first = all.first();
        let slot = first.map_or(Nanos(1), |first| first.timeline.slot);
        let started = || all.iter().filter(|of| !of.timeline.worst.is_empty());
        let start = started()
            .map(|of| of.timeline.start)
            .min()
            .unwrap_or_default();
        let mut worst: Vec<Option<Nanos>> = Vec::new();
        for of in started() {
            let shift = (of.timeline.start.0 - start.0 + slot.0 / 2) / slot.0.max(1);
            for (index, value) in of.timeline.worst.iter().enumerate() {
                let at = index + shift as usize;
                if worst.len() <= at {
                    worst.resize(at + 1, None);
                }
                worst[at] = worst[at].max(*value);
            }
        }
        let windows = first.iter().flat_map(|first| &first.windows).enumerate();
        let windows = windows.map(|(index, window)| Window {
            worst: all
                .iter()
                .filter_map(|of| of.windows.get(index)?.worst)
                .max(),
            ..*window
        });
        let mut seen = Distribution::default();
        for of in &all {
            seen.merge(&of.seen);
        }
        let cpus: Vec<String> = all.iter().map(|of| of.cpu.to_string()).collect();
        let findings = all
            .iter()
            .flat_map(|of| of.invalid.iter().chain(&of.findings));
        Self {
            cpus: cpus.join(","),
            clock: first.map_or_else(Vec::new, |first| first.clock.clone()),
            start,
            slot,
            worst,
            windows: windows.collect(),
            seen,
            missed: all.iter().map(|of| of.missed).sum(),
            findings: findings.cloned().collect(),
        }
    }
}

/// Returns a moment of a far clock on the host's clock, in ns. Between two readings of the far
/// clock its offset changes evenly; before the first and after the last it stays.
fn to_host(relations: &[ClockRelation], far: Nanos) -> i128 {
    let far = i128::from(far.0);
    let (Some(first), Some(last)) = (relations.first(), relations.last()) else {
        return far;
    };
    let offset = |host: i128| {
        let at = |of: &ClockRelation| i128::from(of.at.0);
        if host <= at(first) {
            return i128::from(first.offset.0);
        }
        let Some(pair) = relations.windows(2).find(|pair| at(&pair[1]) >= host) else {
            return i128::from(last.offset.0);
        };
        let change = i128::from(pair[1].offset.0) - i128::from(pair[0].offset.0);
        let span = (at(&pair[1]) - at(&pair[0])).max(1);
        i128::from(pair[0].offset.0) + change * (host - at(&pair[0])) / span
    };
    // The offset changes by parts in a million: each turn is that much nearer to the moment.
    let mut host = far - i128::from(first.offset.0);
    for _ in 0..4 {
        host = far - offset(host);
    }
    host
}

fn uncertainty(relations: &[ClockRelation]) -> Nanos {
    let all = relations.iter().map(|relation| relation.uncertainty);
    all.max().unwrap_or_default()
}

fn trace(round: &TransferRecord, of: &View, curve: usize) -> Trace {
    let blocked = round
        .blocks
        .as_ref()
        .map_or(&[][..], |blocks| &blocks.clock);
    let spans = round
        .blocks
        .as_ref()
        .map_or(&[][..], |blocks| &blocks.spans);
    // Without latencies the first block is as good a start as any.
    let start = match (of.worst.is_empty(), spans.first()) {
        (true, Some(first)) => to_host(blocked, first.start),
        _ => to_host(&of.clock, of.start),
    };
    let seconds = |clock: &[ClockRelation], at: Nanos| {
        let nanos = to_host(clock, at) - start;
        // A tenth of a microsecond is less than a pixel at any zoom.
        (nanos as f64 / 100.0).round() / 1e7
    };
    let same_clock = of.clock.as_slice() == blocked;
    Trace {
        curve,
        slot: of.slot.as_secs_f64(),
        worst: of
            .worst
            .iter()
            .map(|worst| worst.map(|worst| worst.0))
            .collect(),
        blocks: spans
            .iter()
            .map(|span| TraceBlock {
                from: seconds(blocked, span.start),
                to: seconds(blocked, span.end),
                sequence: span.sequence,
                cpu: span.cpu.0,
            })
            .collect(),
        windows: of
            .windows
            .iter()
            .map(|window| TraceWindow {
                from: seconds(&of.clock, window.start),
                to: seconds(&of.clock, window.end),
                block: window.block,
                worst: window.worst.map(|worst| worst.0),
            })
            .collect(),
        uncertainty: if same_clock {
            0.0
        } else {
            (uncertainty(&of.clock) + uncertainty(blocked)).as_secs_f64()
        },
    }
}

/// Returns the rounds of a pair as they are shown.
pub(super) fn pair_rounds(
    traces: &mut Traces<'_, '_>,
    rounds: &[&TransferRecord],
    domain: &str,
    verdict: Option<&Verdict>,
) -> Vec<PairRound> {
    let shown = rounds.iter().map(|round| {
        let view = View::of(round, domain);
        let everyone = once(round.watched.iter().map(|watched| watched.domain.as_str()));
        let everyone = everyone.into_iter().map(|name| TraceLine {
            title: name.to_owned(),
            trace: traces.number(round, name),
        });
        let everyone = everyone.collect();
        let own = traces.number(round, domain);
        let quiet = match round.blocks {
            None => quiet_round(traces.report, round, domain),
            Some(_) => None,
        };
        let line = |title: String, trace| TraceLine { title, trace };
        let pair = match quiet {
            None => vec![line(domain.to_owned(), own)],
            Some(quiet) => vec![
                line(format!("{domain}, under the load"), own),
                line(format!("{domain}, quiet"), traces.number(quiet, domain)),
            ],
        };
        let mut elements = vec![
            Element::remark(clocks(round, &view, domain)),
            Element::Columns {
                columns: vec![
                    vec![facts(round, &view, domain, verdict)],
                    windows(&view).into_iter().collect(),
                ],
                framed: false,
            },
        ];
        let all = round
            .invalid
            .iter()
            .chain(&round.findings)
            .chain(&view.findings);
        elements.extend(findings(all, ""));
        PairRound {
            id: round.id.clone(),
            pair_name: if round.blocks.is_some() {
                "the pair"
            } else {
                "with and without"
            },
            pair,
            everyone,
            legend: legend(round, &view, traces.report.curve(domain)),
            elements,
        }
    });
    shown.collect()
}

/// Returns the quiet round of the same group that is nearest in the order.
fn quiet_round<'a>(
    report: &Report<'a>,
    near: &TransferRecord,
    domain: &str,
) -> Option<&'a TransferRecord> {
    let rounds = report.evaluation.transfers.iter();
    rounds
        .filter(|round| round.disturbance.is_none() && round.invalid.is_empty())
        .filter(|round| round.group == near.group)
        .filter(|round| round.watched.iter().any(|watched| watched.domain == domain))
        .min_by_key(|round| round.order.abs_diff(near.order))
}

/// Returns the legend of the shades.
fn legend(round: &TransferRecord, of: &View, curve: usize) -> Vec<(String, String)> {
    let entry = |name: &str, words: &str| (name.to_owned(), words.to_owned());
    let slot = format!(
        "worst sample of each {}, where it ended",
        format::time(of.slot)
    );
    let mut all = vec![(format!("curve-{curve}"), slot)];
    all.extend(round.blocks.is_some().then(|| entry("block", "block")));
    if !of.windows.is_empty() {
        all.push(entry("with", "window with a block"));
        all.push(entry("control", "control window"));
    }
    all
}

/// Returns the relation of the clocks of latencies and blocks.
fn clocks(round: &TransferRecord, of: &View, domain: &str) -> String {
    let mut words = Vec::new();
    let mut state = |whose: &str, relations: &[ClockRelation]| {
        let (Some(first), Some(last)) = (relations.first(), relations.last()) else {
            return;
        };
        let side = if first.offset.0 < 0 {
            "is behind"
        } else {
            "is ahead of"
        };
        let span = last.at.0.saturating_sub(first.at.0) as f64;
        let drift = if span > 0.0 {
            (last.offset.0 - first.offset.0) as f64 / span * 1e6
        } else {
            0.0
        };
        let ran = if drift.abs() >= 0.05 {
            let word = if drift > 0.0 { "fast" } else { "slow" };
            format!(", and ran {word} by {:.1} ppm", drift.abs())
        } else {
            String::new()
        };
        words.push(format!(
            "{whose} clock {side} the host's by {}, known within ±{} from {} before and after{ran}.",
            format::time(Nanos(first.offset.0.unsigned_abs())),
            format::time(uncertainty(relations)),
            plural(first.exchanges, "exchange"),
        ));
    };
    let blocked = round
        .blocks
        .as_ref()
        .map_or(&[][..], |blocks| &blocks.clock);
    state(&format!("{domain}'s"), &of.clock);
    if of.clock.as_slice() != blocked {
        let whose = round.disturbance.as_ref();
        let whose = whose.map_or_else(|| "The blocked kernel".to_owned(), |of| of.domain.clone());
        state(&format!("{whose}'s"), blocked);
    }
    if words.is_empty() && round.blocks.is_some() {
        words.push("Latencies and blocks were read on the same clock.".to_owned());
    }
    words.push("Drag to zoom, double-click to see all.".to_owned());
    words.join(" ")
}

fn facts(round: &TransferRecord, of: &View, domain: &str, verdict: Option<&Verdict>) -> Element {
    let mut pairs = Vec::new();
    let figures = verdict.and_then(|verdict| verdict.figures.as_ref());
    if let Some(blocks) = &round.blocks {
        let median = match figures {
            Some(VerdictFigures::Transfer { length, .. }) => {
                format!(", {} in the median", format::time(*length))
            }
            _ => String::new(),
        };
        let by = format::block_kind(blocks.kind);
        let count = plural(block_count(round), "block");
        let asked = format::time(blocks.length);
        pairs.push(Pair::new(
            "blocks",
            format!("{count} of {asked} requested{median}, {by}"),
        ));
    }
    let stressors = round.load.iter().flat_map(|load| &load.stressors);
    let lines: Vec<Text> = stressors
        .map(|one| {
            let rest = format!(
                " on {}, {} of CPU time",
                one.cpus.named(),
                format::time(one.cpu_time)
            );
            let text =
                Text::of(SpanStyle::Code, format::shell(&one.command)).and(SpanStyle::Plain, rest);
            match &one.failure {
                Some(failure) => text.and(SpanStyle::Wrong, format!(": {failure}")),
                None => text,
            }
        })
        .collect();
    if !lines.is_empty() {
        pairs.push(Pair::lines("load", lines));
    }
    match figures {
        Some(VerdictFigures::Transfer {
            transfer,
            excess,
            p_value,
            ..
        }) => {
            let three = |value| format::fraction(value, 3);
            pairs.push(Pair::new(
                "transfer",
                format!(
                    "τ = {}, from {} to {} ({}): median excess {} ÷ length of a block",
                    three(transfer.estimate),
                    three(transfer.low),
                    three(transfer.high),
                    format::confidence(transfer.confidence),
                    excess.to_string().replace(' ', "\u{a0}"),
                ),
            ));
            let p = if *p_value < 0.001 {
                format!("{p_value:.0e}")
            } else {
                format!("{p_value:.2}")
            };
            pairs.push(Pair::new(
                "permutation test",
                format!("p = {p}: the chance of so large an excess if blocks have no effect"),
            ));
        }
        Some(VerdictFigures::Interference { factors, .. }) if !factors.is_empty() => {
            let all = factors.iter().map(|(part, one)| {
                format!(
                    "{} ×{} ({}–{})",
                    format::quantile_name(*part),
                    format::factor(one.estimate),
                    format::factor(one.low),
                    format::factor(one.high)
                )
            });
            pairs.push(Pair::new("factors", all.collect::<Vec<_>>().join(", ")));
        }
        _ => {}
    }
    pairs.push(Pair::new(
        "watched",
        format!(
            "{domain} on CPU {}: {} samples in {}, worst {}, {} missed",
            of.cpus,
            format::grouped(of.seen.samples),
            format::time(round.duration),
            format::time_or_dash(of.seen.max),
            plural(of.missed, "period")
        ),
    ));
    if let Some(verdict) = verdict {
        let rests = format::exposure(&verdict.exposure);
        let records = verdict.records.iter().map(Text::from);
        let lines = std::iter::once(Text::from(rests)).chain(records);
        pairs.push(Pair::lines("verdict rests on", lines.collect()));
    }
    let began = format::moment(&round.started, Nanos::ZERO, false);
    pairs.push(Pair::new(
        "round",
        format!("{}, number {}, began {began}", round.id, round.order),
    ));
    Element::Pairs { pairs }
}

/// Returns the compared latencies: the worst of each window with a block and of each without.
fn windows(of: &View) -> Option<Element> {
    let worst = |with_block: bool| -> Vec<Nanos> {
        let windows = of.windows.iter();
        windows
            .filter(|window| window.block.is_some() == with_block)
            .filter_map(|window| window.worst)
            .collect()
    };
    let rows = [
        ("with a block", worst(true), "block"),
        ("without", worst(false), "control"),
    ];
    let all: Vec<Nanos> = rows
        .iter()
        .flat_map(|(_, values, _)| values.clone())
        .collect();
    if all.is_empty() {
        return None;
    }
    let axis = TimeAxis::of(&all);
    let rows = rows.map(|(name, values, shade)| {
        let median = median(&values);
        let text = median.map_or_else(|| "–".to_owned(), |value| format::time(Nanos(value as u64)));
        let drawing = Drawing::Dots {
            label: format!("{} windows {name}, median {text}", values.len()),
            values: values.iter().map(|value| axis.at(value.0 as f64)).collect(),
            median: median.map(|value| axis.at(value)),
            shade,
        };
        Row::new(vec![
            name.into(),
            values.len().to_string().into(),
            text.into(),
            Entry {
                drawing: Some(drawing),
                ..Entry::default()
            },
        ])
    });
    let figure = |name| Column::new(ColumnKind::Figure, name);
    let columns = vec![
        Column::new(ColumnKind::Text, "worst latency of each window"),
        figure("windows"),
        figure("median"),
        Column {
            axis: Some(axis.axis()),
            ..Column::new(ColumnKind::Text, "").detail()
        },
    ];
    let caption = "Worst latency of each window";
    Some(Element::Table(
        Table::new(TableStyle::Drawings, caption, columns, rows.into()).class("windows"),
    ))
}

/// Returns the middle value in ns; of two the mean.
fn median(values: &[Nanos]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let high = sorted.get(sorted.len() / 2)?;
    let low = sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(low.0 as f64, high.0 as f64))
}

/// Returns the uncertainty of the clocks, and the minimum number of exchanges.
pub(super) fn known_within(relations: &[ClockRelation]) -> Option<(Nanos, u32)> {
    let exchanges: BTreeSet<u32> = relations
        .iter()
        .map(|relation| relation.exchanges)
        .collect();
    Some((uncertainty(relations), *exchanges.first()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{CpuId, Evaluation, SignedNanos};

    fn transfers() -> Evaluation {
        let text = include_str!("../../tests/documents/transfers.json");
        serde_json::from_str(text).expect("an evaluation")
    }

    fn relation(at: u64, offset: i64) -> ClockRelation {
        ClockRelation {
            at: Nanos(at),
            offset: SignedNanos(offset),
            uncertainty: Nanos(5),
            exchanges: 3,
        }
    }

    #[test]
    fn converts_a_far_clock_with_its_drift() {
        assert_eq!(to_host(&[], Nanos(123)), 123);
        assert_eq!(to_host(&[relation(1000, -400)], Nanos(700)), 1100);
        // The far clock gains 100 in 1000: at 500 it shows 500 − 200 + 50.
        let clock = [relation(0, -200), relation(1000, -100)];
        for (far, host) in [(350, 500), (900, 1000), (4900, 5000)] {
            assert!((to_host(&clock, Nanos(far)) - host).abs() <= 1, "{far}");
        }
        let clock = [relation(0, 0), relation(1000, 100), relation(2000, 100)];
        for (far, host) in [(550, 500), (1600, 1500)] {
            assert!((to_host(&clock, Nanos(far)) - host).abs() <= 1, "{far}");
        }
        // After days of uptime a ns is still a ns.
        let days = 30 * 86_400_000_000_000;
        let far = Nanos(days - 31_000_000_000 + 7);
        assert_eq!(
            to_host(&[relation(days, -31_000_000_000)], far),
            i128::from(days) + 7
        );
    }

    #[test]
    fn has_blocks_and_latencies_on_one_clock() {
        let evaluation = transfers();
        let report = Report::new(&evaluation);
        let blocked = evaluation
            .transfers
            .iter()
            .filter(|round| round.blocks.is_some());
        for round in blocked {
            for domain in &report.domains {
                let trace = trace(round, &View::of(round, domain), 0);
                let end = trace.worst.len() as f64 * trace.slot;
                assert_eq!(trace.blocks.len(), 20, "{}", round.id);
                for block in &trace.blocks {
                    assert!(block.from > 0.0 && block.to < end, "{} {domain}", round.id);
                    let mut windows = trace.windows.iter();
                    let window = windows.find(|window| window.block == Some(block.sequence));
                    let window = window.expect("a window of the block");
                    assert!((window.from - block.from).abs() < 1e-3 && window.to > block.to);
                }
                let made_in_guest = round.id.starts_with("block:vm");
                let two_clocks = (*domain == "vm") != made_in_guest;
                assert_eq!(trace.uncertainty > 0.0, two_clocks, "{} {domain}", round.id);
            }
        }
    }

    #[test]
    fn a_round_in_which_nothing_was_measured_still_has_its_blocks() {
        let mut evaluation = transfers();
        let mut rounds = evaluation.transfers.iter_mut();
        let round = rounds.find(|round| round.id.starts_with("block:task"));
        let round = round.expect("a round");
        for watched in &mut round.watched {
            watched.timeline.start = Nanos::ZERO;
            watched.timeline.worst.clear();
            watched.windows.clear();
        }
        let trace = trace(round, &View::of(round, "host"), 0);
        assert!(trace.worst.is_empty() && trace.windows.is_empty());
        assert_eq!(trace.blocks.len(), 20);
        let begin = trace.blocks[0].from;
        assert!(begin.abs() < 1e-6, "{begin}");
        let end = trace.blocks[19].to;
        assert!(end > begin && end < 10.0, "{end}");
    }

    #[test]
    fn takes_the_worst_of_a_domains_cpus() {
        let evaluation = transfers();
        let mut round = evaluation.transfers[1].clone();
        let alone = View::of(&round, "host");
        let mut second = round.watched[0].clone();
        assert_eq!(second.domain, "host");
        // It began a slot later, and its third sample is the worst of all.
        second.cpu = CpuId(9);
        second.missed = 3;
        second.timeline.start = alone.start + alone.slot;
        second.timeline.worst = vec![None, Some(Nanos(1)), Some(Nanos::from_secs(9))];
        round.watched.push(second);
        let both = View::of(&round, "host");
        let mut expected = alone.worst.clone();
        expected[3] = Some(Nanos::from_secs(9));
        assert_eq!(both.worst, expected);
        assert_eq!(both.missed, alone.missed + 3);
        assert_eq!(both.seen.samples, 2 * alone.seen.samples);
        assert!(both.cpus.ends_with(",9"), "{}", both.cpus);
    }

    #[test]
    fn compares_a_load_with_the_nearest_quiet_round() {
        let evaluation = transfers();
        let report = Report::new(&evaluation);
        let mut loaded = evaluation
            .transfers
            .iter()
            .filter(|round| round.load.is_some());
        let mut loaded = loaded.next().expect("a round with a load").clone();
        let quiet = quiet_round(&report, &loaded, "task");
        assert_eq!(quiet.map(|round| round.id.as_str()), Some("quiet/0/0"));
        loaded.group = 7;
        assert_eq!(quiet_round(&report, &loaded, "task"), None);
    }

    #[test]
    fn computes_the_median() {
        let median_of =
            |values: &[u64]| median(&values.iter().copied().map(Nanos).collect::<Vec<_>>());
        assert_eq!(median_of(&[]), None);
        assert_eq!(median_of(&[3, 1]), Some(2.0));
        assert_eq!(median_of(&[9, 1, 4]), Some(4.0));
    }
}
