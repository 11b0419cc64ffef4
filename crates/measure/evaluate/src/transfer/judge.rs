// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Derives verdicts from the rounds of [`crate::transfer`]. Pure.

use rampart_model::{
    Condition, CpuSet, Crossed, Disturbance, DisturbanceKind, EvaluationSettings, Exposure,
    Finding, Interval, LoadLocation, MeterKind, MeterSettings, Nanos, Question, Side, SignedNanos,
    TransferRecord, Verdict, VerdictFigures, VerdictOutcome, Watched,
};
use rampart_stats::{
    CROSSED, CROSSED_EMULATED, Resampling, Slice, TRANSFER_RISK, TRANSFER_TOLERANCE, Transfer,
    Visit, transfer,
};

use super::session::faults;
use crate::interference::{IdleSide, judge_interference};
use crate::questions;
use crate::statements;

/// Smallest lower limit of the transfer of a positive control. It is less than 1 because the part
/// of the period before the block is missing, and because the kernel may run other work while a
/// thread spins on the stopped CPU.
const CONTROL_LEAST: f64 = 0.5;

/// The verdicts on disturbances. A verdict depends on the rounds of its own disturbance and, for
/// loads, on the quiet rounds, and on the look; it is cached until one of these changes.
#[derive(Debug, Default)]
pub(crate) struct TransferVerdicts {
    drawn: Vec<Drawn>,
}

/// The effects of one disturbance on each domain, before the check of its positive control.
#[derive(Debug)]
struct Drawn {
    disturbance: Disturbance,
    /// The rounds that it rests on, and the look.
    rests_on: (Vec<String>, u32),
    verdicts: Vec<Verdict>,
}

impl TransferVerdicts {
    /// Returns all verdicts: by disturbance, then by domain, in the plan's order.
    pub(crate) fn judge(
        &mut self,
        settings: &EvaluationSettings,
        rounds: &[TransferRecord],
        emulated: bool,
    ) -> Vec<Verdict> {
        let mut disturbances: Vec<&Disturbance> = Vec::new();
        for round in rounds {
            if let Some(disturbance) = &round.disturbance
                && !disturbances.contains(&disturbance)
            {
                disturbances.push(disturbance);
            }
        }
        let index = |name: &str| {
            settings
                .domains
                .iter()
                .position(|domain| domain.name == name)
        };
        disturbances.sort_by_key(|one| (one.kind, one.side, index(&one.domain)));
        let mut verdicts = Vec::new();
        for disturbance in disturbances {
            let drawn = self.drawn(settings, disturbance, rounds, emulated).to_vec();
            verdicts.extend(match disturbance.kind {
                DisturbanceKind::Block => {
                    let known =
                        disturbance.side == Side::Under && host_is_stopped(settings, &verdicts);
                    with_control(disturbance, drawn, known)
                }
                DisturbanceKind::Load(_) => drawn,
            });
        }
        verdicts
    }

    fn drawn(
        &mut self,
        settings: &EvaluationSettings,
        disturbance: &Disturbance,
        rounds: &[TransferRecord],
        emulated: bool,
    ) -> &[Verdict] {
        let row = Row::new(disturbance, rounds);
        let rests_on = (row.rests_on(), settings.look);
        let index = self
            .drawn
            .iter()
            .position(|one| one.disturbance == *disturbance);
        let index = match index {
            Some(index) if self.drawn[index].rests_on == rests_on => index,
            known => {
                let new = Drawn {
                    disturbance: disturbance.clone(),
                    rests_on,
                    verdicts: row.verdicts(settings, emulated),
                };
                match known {
                    Some(index) => {
                        self.drawn[index] = new;
                        index
                    }
                    None => {
                        self.drawn.push(new);
                        self.drawn.len() - 1
                    }
                }
            }
        };
        &self.drawn[index].verdicts
    }
}

/// Returns whether the blocks of the host's kernel stop the host itself. If so, this kernel also
/// makes the blocks under a guest, and a guest that they do not stop does not depend on the host's
/// kernel. Blocks from inside are judged before those from under.
fn host_is_stopped(settings: &EvaluationSettings, verdicts: &[Verdict]) -> bool {
    verdicts.iter().any(|verdict| {
        let is_host = settings
            .domains
            .iter()
            .any(|domain| domain.name == verdict.domain && domain.selection.kind.is_housekeeping());
        let own = verdict
            .disturbance
            .as_ref()
            .is_some_and(|by| by.domain == verdict.domain && by.side == Side::Inside);
        is_host && own && is_stopped(verdict)
    })
}

/// Returns whether the blocks stopped the domain for most of their length.
fn is_stopped(verdict: &Verdict) -> bool {
    match &verdict.figures {
        Some(VerdictFigures::Transfer {
            transfer, p_value, ..
        }) => stops(transfer, *p_value),
        _ => false,
    }
}

/// Returns whether these figures belong to a CPU that the blocks stopped for most of their length.
pub(crate) fn stops(transfer: &Interval, p_value: f64) -> bool {
    transfer.low > CONTROL_LEAST && p_value < TRANSFER_RISK
}

/// The rounds of one disturbance.
struct Row<'a> {
    disturbance: &'a Disturbance,
    rounds: Vec<Numbered<'a>>,
    /// The quiet rounds of the same groups, for comparison with loads; empty for blocks.
    quiet: Vec<Numbered<'a>>,
}

/// A round with its number among all rounds of its kind, valid or not, so that rounds with the same
/// number are neighbours in time. The repetition of an invalid round has the number of that round.
pub(super) type Numbered<'a> = (u32, &'a TransferRecord);

/// Numbers the rounds of one kind, which is that of the rounds for which `is_it` returns true.
pub(super) fn numbered<'a>(
    all: &'a [TransferRecord],
    is_it: impl Fn(&TransferRecord) -> bool,
) -> Vec<Numbered<'a>> {
    let mut found: Vec<Numbered<'a>> = Vec::new();
    let mut before: Option<&TransferRecord> = None;
    for round in all {
        if is_it(round) {
            // An invalid round is repeated at once.
            let repeats = before.is_some_and(|before| {
                is_it(before) && before.group == round.group && faults(before) > 0
            });
            let last = found.last().map(|(number, _)| *number);
            let number = last.map_or(0, |last| last + u32::from(!repeats));
            found.push((number, round));
        }
        before = Some(round);
    }
    found
}

/// The results of one domain in the valid rounds.
#[derive(Default)]
pub(super) struct Shown {
    exposure: Exposure,
    records: Vec<String>,
    /// Why rounds are not valid.
    reasons: Vec<Finding>,
}

impl<'a> Row<'a> {
    fn new(disturbance: &'a Disturbance, all: &'a [TransferRecord]) -> Self {
        let rounds = numbered(all, |round| round.disturbance.as_ref() == Some(disturbance));
        let is_load = disturbance.kind != DisturbanceKind::Block;
        let quiet = numbered(all, |round| {
            is_load
                && round.disturbance.is_none()
                && rounds.iter().any(|(_, own)| own.group == round.group)
        });
        Self {
            disturbance,
            rounds,
            quiet,
        }
    }

    /// Returns the ids of the rounds on which its verdicts rest.
    fn rests_on(&self) -> Vec<String> {
        let rounds = self.rounds.iter().chain(&self.quiet);
        rounds.map(|(_, round)| round.id.clone()).collect()
    }

    /// Returns its effect on each domain, in the plan's order.
    fn verdicts(&self, settings: &EvaluationSettings, emulated: bool) -> Vec<Verdict> {
        settings
            .domains
            .iter()
            .filter(|domain| self.watches(&domain.name))
            .map(|domain| match self.disturbance.kind {
                DisturbanceKind::Block => self.transfer(settings, &domain.name, emulated),
                DisturbanceKind::Load(_) => {
                    let emulated = emulated || domain.selection.is_emulated();
                    self.interference(settings, &domain.name, emulated)
                }
            })
            .collect()
    }

    fn watches(&self, domain: &str) -> bool {
        self.rounds
            .iter()
            .any(|(_, round)| of_domain(round, domain).next().is_some())
    }

    fn is_own(&self, domain: &str) -> bool {
        self.disturbance.domain == domain
    }

    /// Returns the rounds with valid figures of this domain, and their summary.
    fn valid(&self, domain: &str) -> (Vec<Numbered<'a>>, Shown) {
        valid(&self.rounds, domain)
    }

    fn verdict(&self, question: Question, domain: &str, shown: Shown) -> Verdict {
        let condition = match self.disturbance.kind {
            DisturbanceKind::Block => Condition::IDLE,
            DisturbanceKind::Load(load) => Condition {
                load,
                location: Some(if self.is_own(domain) {
                    LoadLocation::Same
                } else {
                    LoadLocation::Others
                }),
            },
        };
        let statement = match shown.reasons.first() {
            Some(reason) => format!("the round is invalid: {reason}"),
            None => "no valid run was measured".to_owned(),
        };
        Verdict {
            id: question.id(domain, MeterKind::Wakeup, self.disturbance),
            question,
            domain: domain.to_owned(),
            meter: MeterKind::Wakeup,
            condition,
            disturbance: Some(self.disturbance.clone()),
            outcome: VerdictOutcome::Inconclusive,
            statement,
            figures: None,
            exposure: shown.exposure,
            records: shown.records,
        }
    }

    fn transfer(&self, settings: &EvaluationSettings, domain: &str, emulated: bool) -> Verdict {
        let (rounds, shown) = self.valid(domain);
        let mut verdict = self.verdict(Question::Transfer, domain, shown);
        let Some(windows) = Windows::of(&rounds, domain) else {
            return verdict;
        };
        let found = transfer(
            &windows.with_block,
            &windows.without_block,
            windows.length,
            crossing(emulated),
            &questions::risk_of_blocks(settings, emulated),
            &Resampling {
                seed: settings.seed,
                ..Resampling::default()
            },
        );
        let Some(found) = found else {
            verdict.statement = format!(
                "not enough data: {} windows with a block and {} without",
                windows.with_block.len(),
                windows.without_block.len()
            );
            return verdict;
        };
        verdict.outcome = found.outcome;
        verdict.statement = statements::transfer(
            &found,
            windows.length,
            windows.kind,
            (windows.with_block.len(), windows.without_block.len()),
        );
        verdict.figures = Some(figures(&found, &windows));
        verdict
    }

    fn interference(&self, settings: &EvaluationSettings, domain: &str, emulated: bool) -> Verdict {
        let (loaded, mut shown) = self.valid(domain);
        let (quiet, beside) = valid(&self.quiet, domain);
        shown.records.extend(beside.records);
        let mut verdict = self.verdict(Question::Interference, domain, shown);
        let visit_in = |(number, round): &Numbered<'_>| visit(*number, round, domain);
        let visits: Vec<Visit> = loaded.iter().map(visit_in).collect();
        let without = quiet
            .iter()
            .map(|round| (visit_in(round), round.1.findings.as_slice()));
        let idle = quiet.first().map_or("", |(_, round)| round.id.as_str());
        let quiet = IdleSide::new(idle, without);
        let meter = MeterSettings {
            interval: settings
                .transfer
                .as_ref()
                .map_or(Nanos::from_millis(1), |transfer| transfer.interval),
            ..MeterSettings::new(MeterKind::Wakeup, CpuSet::new())
        };
        let asked = questions::interference(settings, &meter, domain);
        match judge_interference(&visits, &quiet, &asked, emulated) {
            Some((outcome, statement, figures)) => {
                (verdict.outcome, verdict.statement) = (outcome, statement);
                verdict.figures = Some(figures);
            }
            None if !loaded.is_empty() => {
                verdict.statement = statements::too_little(&verdict.exposure);
            }
            None => {}
        }
        verdict
    }
}

fn of_domain<'a>(
    round: &'a TransferRecord,
    domain: &'a str,
) -> impl Iterator<Item = &'a Watched> + 'a {
    round
        .watched
        .iter()
        .filter(move |watched| watched.domain == domain)
}

pub(super) fn valid<'a>(rounds: &[Numbered<'a>], domain: &str) -> (Vec<Numbered<'a>>, Shown) {
    let (mut counting, mut shown) = (Vec::new(), Shown::default());
    for (number, round) in rounds {
        let of: Vec<&Watched> = round
            .watched
            .iter()
            .filter(|watched| watched.domain == domain)
            .collect();
        let reasons: Vec<&Finding> = round
            .invalid
            .iter()
            .chain(of.iter().flat_map(|watched| &watched.invalid))
            .collect();
        if of.is_empty() {
            continue;
        }
        if !reasons.is_empty() {
            shown.reasons.extend(reasons.into_iter().cloned());
            continue;
        }
        let exposure = &mut shown.exposure;
        exposure.samples += of.iter().map(|watched| watched.seen.samples).sum::<u64>();
        exposure.missed += of.iter().map(|watched| watched.missed).sum::<u64>();
        exposure.duration += round.duration;
        exposure.cpus = exposure
            .cpus
            .max(u32::try_from(of.len()).unwrap_or(u32::MAX));
        exposure.runs += 1;
        shown.records.push(round.id.clone());
        counting.push((*number, *round));
    }
    (counting, shown)
}

/// Returns what a domain measured in a round, over all its CPUs.
fn visit(number: u32, round: &TransferRecord, domain: &str) -> Visit {
    let mut whole = Slice::default();
    for watched in of_domain(round, domain) {
        whole.merge(&Slice {
            seen: watched.seen.clone(),
            corrected: watched.corrected.clone(),
            observed: round.duration,
        });
    }
    Visit {
        number,
        started: Nanos::ZERO,
        slices: vec![whole],
    }
}

/// The windows of all rounds of one pair.
struct Windows {
    with_block: Vec<Nanos>,
    without_block: Vec<Nanos>,
    length: Nanos,
    kind: rampart_model::BlockKind,
}

impl Windows {
    /// Merges the windows of all rounds. Rounds of the same pair in different groups have blocks of
    /// different lengths; their windows are scaled to the first length, so that a part of a block
    /// stays the same part.
    fn of(rounds: &[Numbered<'_>], domain: &str) -> Option<Self> {
        let mut all: Option<Self> = None;
        for (_, round) in rounds {
            let Some(blocks) = &round.blocks else {
                continue;
            };
            let mut lengths: Vec<Nanos> = blocks.spans.iter().map(|span| span.length()).collect();
            lengths.sort_unstable();
            let Some(length) = lengths.get(lengths.len() / 2).copied() else {
                continue;
            };
            let all = all.get_or_insert_with(|| Self {
                with_block: Vec::new(),
                without_block: Vec::new(),
                length,
                kind: blocks.kind,
            });
            let scale = all.length.0 as f64 / length.0.max(1) as f64;
            for (is_blocked, worst) in worst_of_all_cpus(round, domain) {
                let worst = Nanos((worst.0 as f64 * scale) as u64);
                if is_blocked {
                    all.with_block.push(worst);
                } else {
                    all.without_block.push(worst);
                }
            }
        }
        all
    }
}

/// Returns the worst latency of a domain's CPUs in each window, and whether it contained a block.
/// The windows of all CPUs cover the same times.
fn worst_of_all_cpus(round: &TransferRecord, domain: &str) -> Vec<(bool, Nanos)> {
    let count = of_domain(round, domain)
        .map(|watched| watched.windows.len())
        .min()
        .unwrap_or(0);
    (0..count)
        .filter_map(|index| {
            let windows = || of_domain(round, domain).filter_map(move |of| of.windows.get(index));
            let worst = windows().filter_map(|window| window.worst).max()?;
            let blocked = windows().any(|window| window.block.is_some());
            Some((blocked, worst))
        })
        .collect()
}

fn figures(found: &Transfer, windows: &Windows) -> VerdictFigures {
    let count = |of: &[Nanos]| u32::try_from(of.len()).unwrap_or(u32::MAX);
    VerdictFigures::Transfer {
        transfer: found.transfer,
        p_value: found.p_value,
        excess: SignedNanos(found.excess.round() as i64),
        kind: windows.kind,
        length: windows.length,
        with_block: count(&windows.with_block),
        without_block: count(&windows.without_block),
        tolerance: TRANSFER_TOLERANCE,
        crossed: Some(crossed(found)),
    }
}

/// Returns the smallest part of a block that counts as crossing into a window.
pub(crate) const fn crossing(emulated: bool) -> f64 {
    if emulated { CROSSED_EMULATED } else { CROSSED }
}

/// Returns the number of windows that are late by a part of a block.
pub(crate) fn crossed(found: &Transfer) -> Crossed {
    let count = |of: usize| u32::try_from(of).unwrap_or(u32::MAX);
    Crossed {
        level: found.crossing,
        with_block: count(found.crossed.0),
        without_block: count(found.crossed.1),
        at_most: found.part_at_most,
    }
}

/// Checks the row against its positive control: blocks without effect in the blocked domain itself
/// prove nothing about the others, unless their source is `known` to work.
fn with_control(disturbance: &Disturbance, mut row: Vec<Verdict>, known: bool) -> Vec<Verdict> {
    let is_own = |verdict: &Verdict| verdict.domain == disturbance.domain;
    let affected = row
        .iter()
        .any(|verdict| is_own(verdict) && is_stopped(verdict));
    let control = Question::Transfer.id(&disturbance.domain, MeterKind::Wakeup, disturbance);
    for verdict in &mut row {
        if affected {
            if is_own(verdict) {
                verdict.statement = format!("positive control: {}", verdict.statement);
            }
        } else if !known {
            if is_own(verdict) {
                verdict.statement = format!(
                    "the positive control fails: its own blocks do not stop it for most of their length. {}",
                    verdict.statement
                );
            } else if verdict.figures.is_some() {
                verdict.statement = format!(
                    "the positive control failed: the blocks do not stop {} itself ({control}). {}",
                    disturbance.domain, verdict.statement
                );
            }
            verdict.outcome = VerdictOutcome::Inconclusive;
        }
    }
    row
}
