// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes all rounds, group by group: first a quiet round, which determines the length of the
//! blocks, then the others in an order derived from the seed.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use rampart_host::{MachineRoot, read_machine};
use rampart_load::LoadProgram;
use rampart_model::{
    CpuSet, Disturbance, DisturbanceKind, EvaluatedDomain, Nanos, TransferRecord, TransferSettings,
};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::block_length::BlockLength;
use super::group::{Candidate, RunningGroup};
use super::round::{RoundRequest, make_round};
use crate::domains::Domains;
use crate::failures::Failures;

/// A planned round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedRound {
    /// Index of the group in the plan.
    pub(crate) group: usize,
    /// The disturbance; `None` for a quiet round.
    pub(crate) disturbance: Option<Disturbance>,
    /// Number of earlier rounds of this kind in the group.
    pub(crate) number: u32,
    /// Its length, unless it is a round of blocks.
    pub(crate) duration: Nanos,
}

impl PlannedRound {
    /// Returns `quiet/GROUP/NUMBER` or `DISTURBANCE/GROUP/NUMBER`.
    pub(crate) fn id(&self) -> String {
        let what = match &self.disturbance {
            Some(disturbance) => disturbance.to_string(),
            None => "quiet".to_owned(),
        };
        format!("{what}/{}/{}", self.group, self.number)
    }
}

/// Returns all rounds in order. Each group begins with the quiet round. A repeated disturbance
/// occurs once in each turn, and each turn with loads has another quiet round, so that slow changes
/// of the machine affect all alike. The order within a turn depends on the seed.
pub(crate) fn order(plan: &TransferSettings, seed: u64) -> Vec<PlannedRound> {
    let mut generator = Pcg64Mcg::seed_from_u64(seed);
    let mut rounds = Vec::new();
    for (group, members) in plan.groups.iter().enumerate() {
        let mut turns: Vec<Vec<PlannedRound>> = Vec::new();
        for (index, disturbance) in members.disturbances.iter().enumerate() {
            let before = members.disturbances[..index]
                .iter()
                .filter(|one| *one == disturbance)
                .count();
            if turns.len() <= before {
                turns.resize(before + 1, Vec::new());
            }
            turns[before].push(PlannedRound {
                group,
                disturbance: Some(disturbance.clone()),
                number: u32::try_from(before).unwrap_or(u32::MAX),
                duration: plan.loaded,
            });
        }
        let mut quiet = 0..;
        let mut next_quiet = |duration| PlannedRound {
            group,
            disturbance: None,
            number: quiet.next().unwrap_or(u32::MAX),
            duration,
        };
        rounds.push(next_quiet(plan.quiet));
        for (number, mut turn) in turns.into_iter().enumerate() {
            turn.shuffle(&mut generator);
            let has_loads = turn.iter().any(|round| {
                round
                    .disturbance
                    .as_ref()
                    .is_some_and(|one| one.kind != DisturbanceKind::Block)
            });
            if has_loads && number > 0 {
                let middle = turn.len() / 2;
                turn.insert(middle, next_quiet(plan.loaded));
            }
            rounds.extend(turn);
        }
    }
    rounds
}

/// Returns `turns` further turns of the disturbances that are open, in order, after the rounds that were made. Blocks
/// have the lengths of before, so that only groups with loads have quiet rounds again.
pub(crate) fn more_rounds(
    plan: &TransferSettings,
    open: &BTreeSet<Disturbance>,
    turns: usize,
    made: &[TransferRecord],
    seed: u64,
) -> Vec<PlannedRound> {
    let mut again = plan.clone();
    for group in &mut again.groups {
        let of_group: BTreeSet<&Disturbance> = group.disturbances.iter().collect();
        let once: Vec<Disturbance> = of_group
            .intersection(&open.iter().collect())
            .copied()
            .cloned()
            .collect();
        group.disturbances = std::iter::repeat_n(once, turns).flatten().collect();
    }
    let mut rounds = order(&again, seed);
    rounds.retain(|round| {
        let mut others = again.groups[round.group].disturbances.iter();
        round.disturbance.is_some() || others.any(|other| other.kind != DisturbanceKind::Block)
    });
    for round in &mut rounds {
        let same = made.iter().filter(|record| {
            record.group as usize == round.group && record.disturbance == round.disturbance
        });
        round.number += u32::try_from(same.count()).unwrap_or(u32::MAX);
        round.duration = plan.loaded;
    }
    rounds
}

/// Returns the number of invalid parts of a round.
pub(super) fn faults(record: &TransferRecord) -> usize {
    let watched = record.watched.iter();
    record.invalid.len() + watched.map(|one| one.invalid.len()).sum::<usize>()
}

/// Decides which rounds are repeated. A hanging guest or a busy CPU must not leave a gap in the
/// matrix, but a round that never succeeds is not repeated for ever.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    /// Rounds that are repetitions.
    made: BTreeSet<String>,
    /// Number of successive repetitions without improvement.
    in_vain: u32,
}

/// Limit of successive repetitions without improvement.
const MOST_IN_VAIN: u32 = 2;

impl Repeats {
    /// Returns the repetition of a round that was just made, if it is useful. `all` are the rounds
    /// made and planned.
    pub(crate) fn after<'r>(
        &mut self,
        round: &PlannedRound,
        record: &TransferRecord,
        all: impl Iterator<Item = &'r PlannedRound>,
    ) -> Option<PlannedRound> {
        let is_sound = faults(record) == 0;
        if self.made.contains(&round.id()) {
            self.in_vain = if is_sound { 0 } else { self.in_vain + 1 };
            return None;
        }
        if is_sound || self.in_vain >= MOST_IN_VAIN {
            return None;
        }
        let same = |other: &&PlannedRound| {
            (other.group, &other.disturbance) == (round.group, &round.disturbance)
        };
        let last = all.filter(same).map(|other| other.number).max();
        let repeat = PlannedRound {
            number: last.unwrap_or(round.number) + 1,
            ..round.clone()
        };
        self.made.insert(repeat.id());
        Some(repeat)
    }
}

/// The environment of the rounds besides the plan.
#[derive(Debug)]
pub(crate) struct Environment<'a> {
    pub(crate) plan: &'a TransferSettings,
    /// The domains of the evaluation and those that are kept up, in the same order.
    pub(crate) domains: &'a [EvaluatedDomain],
    pub(crate) kept_domains: &'a Domains,
    pub(crate) meter: &'a Path,
    pub(crate) load_program: &'a LoadProgram,
    pub(crate) housekeeping: &'a CpuSet,
    pub(crate) scratch: &'a Path,
    pub(crate) seed: u64,
    /// Whether domains may stay up from one round to the next.
    pub(crate) stay_up: bool,
    /// Whether the machine is emulated and slow.
    pub(crate) emulated: bool,
}

impl<'a> Environment<'a> {
    /// Returns the members of a group with their kept domains, without those that fail repeatedly.
    fn candidates(&self, group: usize, failures: &Failures) -> Vec<Candidate<'a>> {
        let participants = self
            .plan
            .groups
            .get(group)
            .map_or(&[][..], |group| group.participants.as_slice());
        participants
            .iter()
            .filter(|participant| failures.left_out(&participant.domain).is_none())
            .filter_map(|participant| {
                let index = self
                    .domains
                    .iter()
                    .position(|domain| domain.name == participant.domain)?;
                Some(Candidate {
                    name: &self.domains[index].name,
                    domain: self.kept_domains.of(index),
                    cpus: &participant.cpus,
                    policy: self.domains[index].policy,
                    stay_up: self.stay_up,
                })
            })
            .collect()
    }

    /// Makes a round. `before` are the rounds made so far, `running` is the running group. Returns
    /// `None` if the round was cancelled.
    pub(crate) fn make(
        &self,
        round: &PlannedRound,
        order: u32,
        before: &[TransferRecord],
        running: &mut RunningGroup,
        tick: &mut dyn FnMut(),
        stop: &AtomicBool,
    ) -> Option<TransferRecord> {
        let group = u32::try_from(round.group).unwrap_or(u32::MAX);
        let is_blocks = round
            .disturbance
            .as_ref()
            .is_some_and(|one| one.kind == DisturbanceKind::Block);
        let quiet = before
            .iter()
            .filter(|record| record.group == group && record.disturbance.is_none())
            .min_by_key(|record| faults(record));
        let request = RoundRequest {
            id: round.id(),
            group,
            order,
            plan: self.plan,
            candidates: &self.candidates(round.group, &running.failures),
            disturbance: round.disturbance.as_ref(),
            duration: round.duration,
            block: quiet
                .filter(|_| is_blocks)
                .and_then(|quiet| BlockLength::of(self.plan, quiet, round.duration)),
            meter: self.meter,
            load_program: self.load_program,
            housekeeping: self.housekeeping,
            scratch: self.scratch,
            seed: self.seed ^ u64::from(order).wrapping_mul(0x9e37_79b9_7f4a_7c15),
            emulated: self.emulated,
        };
        make_round(&request, running, tick, stop)
    }
}

/// The environment of rounds outside of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct TransferContext<'a> {
    /// The static meter program.
    pub meter: &'a Path,
    /// The housekeeping CPUs.
    pub housekeeping: &'a CpuSet,
    /// A directory for the files of loads.
    pub scratch: &'a Path,
    /// Seed of the order, the blocks and the windows.
    pub seed: u64,
}

/// Makes all rounds of a plan. The caller must ensure that no two domains of a group share a CPU.
/// Calls `made` after each round; `stop` cancels the rest.
#[must_use]
pub fn measure_transfers(
    plan: &TransferSettings,
    domains: &[EvaluatedDomain],
    context: &TransferContext<'_>,
    made: &mut dyn FnMut(&TransferRecord),
    stop: &AtomicBool,
) -> Vec<TransferRecord> {
    let kept_domains = Domains::new(domains);
    let environment = Environment {
        plan,
        domains,
        kept_domains: &kept_domains,
        meter: context.meter,
        load_program: &LoadProgram::find(context.meter),
        housekeeping: context.housekeeping,
        scratch: context.scratch,
        seed: context.seed,
        stay_up: false,
        emulated: read_machine(&MachineRoot::system()).virtualisation.emulated,
    };
    let mut running = RunningGroup::default();
    let mut records = Vec::new();
    for (index, round) in order(plan, context.seed).iter().enumerate() {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let record = environment.make(round, index, &records, &mut running, &mut || {}, stop);
        let Some(record) = record else {
            break;
        };
        made(&record);
        records.push(record);
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{SchedulingPolicy, TransferGroup};

    fn plan(disturbances: &[&str]) -> TransferSettings {
        TransferSettings {
            groups: vec![TransferGroup {
                participants: Vec::new(),
                disturbances: disturbances
                    .iter()
                    .map(|text| text.parse().expect("a disturbance"))
                    .collect(),
            }],
            interval: Nanos::from_millis(1),
            policy: SchedulingPolicy::Fifo(80),
            quiet: Nanos::from_secs(2),
            loaded: Nanos::from_secs(3),
            blocks: 40,
            block_factor: 5,
            shortest_block: Nanos::from_millis(1),
            findings: Vec::new(),
        }
    }

    #[test]
    fn a_quiet_round_is_first_and_in_each_turn_of_loads() {
        let words = [
            "block:host",
            "block:task",
            "cpu:host",
            "cpu:task",
            "cpu:host",
            "cpu:task",
            "cpu:host",
            "cpu:task",
        ];
        for seed in 0..20 {
            let ids: Vec<String> = order(&plan(&words), seed)
                .iter()
                .map(PlannedRound::id)
                .collect();
            assert_eq!(ids.len(), 11);
            assert_eq!(ids[0], "quiet/0/0");
            let mut unique = ids.clone();
            unique.sort();
            unique.dedup();
            assert_eq!(unique.len(), ids.len(), "{ids:?}");
            let turn = |from: usize, to: usize| {
                let mut turn = ids[from..to].to_vec();
                turn.sort();
                turn
            };
            assert_eq!(
                turn(1, 5),
                [
                    "block:host/0/0",
                    "block:task/0/0",
                    "cpu:host/0/0",
                    "cpu:task/0/0"
                ]
            );
            assert_eq!(turn(5, 8), ["cpu:host/0/1", "cpu:task/0/1", "quiet/0/1"]);
            assert_eq!(turn(8, 11), ["cpu:host/0/2", "cpu:task/0/2", "quiet/0/2"]);
        }
        let orders = |seed| order(&plan(&words), seed);
        assert_eq!(orders(3), orders(3));
        assert!((0..20).any(|seed| orders(seed) != orders(3)));
    }

    fn record(faults: usize) -> TransferRecord {
        TransferRecord {
            id: String::new(),
            group: 0,
            order: 0,
            disturbance: None,
            started: String::new(),
            duration: Nanos::SECOND,
            blocks: None,
            load: None,
            watched: Vec::new(),
            invalid: vec![
                rampart_model::Finding::new(rampart_model::Severity::Error, "x", "y");
                faults
            ],
            findings: Vec::new(),
        }
    }

    #[test]
    fn repeats_invalid_rounds_a_limited_number_of_times() {
        let rounds = order(&plan(&["block:host", "block:task", "block:container"]), 1);
        let mut repeats = Repeats::default();
        let quiet = &rounds[0];
        assert_eq!(repeats.after(quiet, &record(0), rounds.iter()), None);
        let again = |repeats: &mut Repeats, round: &PlannedRound, faults| {
            repeats.after(round, &record(faults), rounds.iter())
        };
        let repeat = again(&mut repeats, quiet, 1).expect("a repeat");
        assert_eq!(repeat.id(), "quiet/0/1");
        assert_eq!(again(&mut repeats, &repeat, 1), None);
        let second = again(&mut repeats, &rounds[1], 1).expect("a repeat");
        assert_eq!(again(&mut repeats, &second, 1), None);
        assert_eq!(again(&mut repeats, &rounds[2], 1), None, "all was in vain");
    }

    #[test]
    fn open_disturbances_have_further_rounds() {
        let mut plan = plan(&["block:host", "block:task", "cpu:host", "cpu:host"]);
        plan.groups.push(plan.groups[0].clone());
        plan.groups[1].disturbances.truncate(2);
        let made: Vec<TransferRecord> = order(&plan, 1)
            .iter()
            .map(|round| TransferRecord {
                group: round.group as u32,
                disturbance: round.disturbance.clone(),
                ..record(0)
            })
            .collect();
        let more = |words: &[&str], turns| {
            let open = words
                .iter()
                .map(|word| word.parse().expect("a disturbance"));
            let mut ids: Vec<String> = more_rounds(&plan, &open.collect(), turns, &made, 1)
                .iter()
                .map(PlannedRound::id)
                .collect();
            ids.sort();
            ids
        };
        assert_eq!(
            more(&["block:task"], 2),
            [
                "block:task/0/1",
                "block:task/0/2",
                "block:task/1/1",
                "block:task/1/2"
            ]
        );
        assert_eq!(
            more(&["cpu:host", "block:host"], 1),
            [
                "block:host/0/1",
                "block:host/1/1",
                "cpu:host/0/2",
                "quiet/0/2"
            ]
        );
        assert!(more(&["block:container"], 3).is_empty());
    }

    #[test]
    fn blocks_need_a_single_quiet_round() {
        let ids: Vec<String> = order(&plan(&["block:host"]), 1)
            .iter()
            .map(PlannedRound::id)
            .collect();
        assert_eq!(ids, ["quiet/0/0", "block:host/0/0"]);
    }
}
