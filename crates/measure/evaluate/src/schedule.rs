// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders the runs of the matrix. Pure.

use std::collections::BTreeSet;

use rampart_model::{EvaluationSettings, LoadKind, VariantSettings};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::matrix_time::repetitions_in_a_phase;

/// One entry of the matrix, as indices into the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatrixEntry {
    /// Index of the variant of the plan; 0 if nothing is compared.
    pub variant: usize,
    /// Index of the domain.
    pub domain: usize,
    /// Index of the meter.
    pub meter: usize,
    /// Index of the condition.
    pub condition: usize,
}

/// Returns all runs in order. Conditions follow each other in phases of a few seconds. In a phase
/// the domains are measured in turn, as often as short runs fit into it, in an order that changes
/// from turn to turn, so that slow changes of the machine (heat, a co-located workload on the same
/// host) affect all domains alike. Domains on other CPUs need the load elsewhere, so under a load
/// those on the same CPUs take turns. Every phase comes once before any comes again. A meter that
/// cannot measure in a domain has no entry for it.
///
/// If variants of a plan are compared, each repetition visits all variants, and all entries in
/// each. Every second repetition visits the variants in the reverse order of the one before (A B, B
/// A): slow drift affects all variants alike, and the plan is switched no more often than needed.
#[must_use]
pub fn schedule(plan: &EvaluationSettings) -> Vec<MatrixEntry> {
    let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(plan.seed);
    let mut order = Vec::new();
    let mut variants = Vec::new();
    let in_a_phase = if plan.variants.is_empty() {
        repetitions_in_a_phase(plan.run_duration)
    } else {
        1
    };
    let mut made = 0;
    while made < plan.repetitions {
        let times = in_a_phase.min(plan.repetitions - made);
        if made % 2 == 0 || in_a_phase > 1 {
            variants = order_of_variants(&plan.variants, &mut generator);
        } else {
            variants.reverse();
        }
        for variant in &variants {
            phases(plan, *variant, times, &mut generator, &mut order);
        }
        made += times;
    }
    order
}

/// Returns more runs of these entries, each this often, in phases as [`schedule`] has them.
pub(crate) fn more(
    plan: &EvaluationSettings,
    entries: &BTreeSet<MatrixEntry>,
    times: u32,
    seed: u64,
) -> Vec<MatrixEntry> {
    let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let in_a_phase = repetitions_in_a_phase(plan.run_duration);
    let mut order = Vec::new();
    let mut left = times;
    while left > 0 {
        let now = left.min(in_a_phase);
        phases(plan, 0, now, &mut generator, &mut order);
        left -= now;
    }
    order.retain(|entry| entries.contains(entry));
    order
}

/// Appends every entry this many times, by condition.
fn phases(
    plan: &EvaluationSettings,
    variant: usize,
    times: u32,
    generator: &mut rand_pcg::Pcg64Mcg,
    order: &mut Vec<MatrixEntry>,
) {
    let mut groups: Vec<(usize, usize)> = (0..plan.meters.len())
        .flat_map(|meter| (0..plan.conditions.len()).map(move |condition| (meter, condition)))
        .collect();
    groups.shuffle(generator);
    for (meter, condition) in groups {
        let mut domains: Vec<usize> = (0..plan.domains.len())
            .filter(|domain| {
                let selection = &plan.domains[*domain].selection;
                plan.meters[meter].meter.measures_in(selection)
            })
            .collect();
        domains.shuffle(generator);
        let idle = plan.conditions[condition].load == LoadKind::Idle;
        while let Some(first) = domains.first().copied() {
            let takes_turns = |domain: &usize| {
                times == 1 || idle || plan.domains[*domain].cpus == plan.domains[first].cpus
            };
            let (mut turn, rest): (Vec<usize>, Vec<usize>) =
                domains.into_iter().partition(takes_turns);
            domains = rest;
            for _ in 0..times {
                order.extend(turn.iter().map(|domain| MatrixEntry {
                    variant,
                    domain: *domain,
                    meter,
                    condition,
                }));
                turn.shuffle(generator);
            }
        }
    }
}

/// Returns the variants of one repetition in random order; the repeated one is spread evenly among
/// the others.
fn order_of_variants(
    variants: &[VariantSettings],
    generator: &mut rand_pcg::Pcg64Mcg,
) -> Vec<usize> {
    let Some((first, rest)) = variants.split_first() else {
        return vec![0];
    };
    let mut others: Vec<usize> = (1..=rest.len()).collect();
    others.shuffle(generator);
    let visits = first.visits.max(1) as usize;
    let mut turn = Vec::with_capacity(visits + others.len());
    for visit in 0..visits {
        turn.push(0);
        let part = visit * others.len() / visits..(visit + 1) * others.len() / visits;
        turn.extend_from_slice(&others[part]);
    }
    if generator.random::<bool>() {
        turn.reverse();
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{
        Condition, CpuSet, DomainKind, DomainSelection, EvaluatedDomain, LoadKind, LoadLocation,
        MeterKind, MeterSettings, Nanos, PlanVariant,
    };
    use std::collections::BTreeSet;

    fn plan(domains: usize, repetitions: u32, seed: u64) -> EvaluationSettings {
        let domain = |number: usize| EvaluatedDomain {
            policy: None,
            deadline: None,
            name: number.to_string(),
            selection: DomainSelection {
                guest: None,
                cell: None,
                kind: DomainKind::Host,
                engine: None,
            },
            cpus: CpuSet::new(),
            description: String::new(),
        };
        EvaluationSettings {
            measured: None,
            variants: Vec::new(),
            transfer: None,
            housekeeping: CpuSet::new(),
            domains: (0..domains).map(domain).collect(),
            meters: vec![MeterSettings::new(MeterKind::Wakeup, CpuSet::new())],
            conditions: vec![
                Condition::IDLE,
                Condition {
                    load: LoadKind::Cpu,
                    location: Some(LoadLocation::Others),
                },
            ],
            repetitions,
            run_duration: Nanos::SECOND,
            deadline: Nanos::SECOND,
            deadline_from_user: false,
            until_decided: None,
            total: Nanos::SECOND,
            seed,
            findings: Vec::new(),
        }
    }

    #[test]
    fn skips_domains_that_a_meter_cannot_measure() {
        let mut plan = plan(3, 2, 7);
        plan.domains[1].selection = DomainSelection::of(DomainKind::Cell);
        plan.meters
            .push(MeterSettings::new(MeterKind::Mmio, CpuSet::new()));
        let order = schedule(&plan);
        let of = |meter| order.iter().filter(move |entry| entry.meter == meter);
        assert_eq!(of(0).count(), 3 * 2 * 2);
        assert_eq!(of(1).count(), 2 * 2);
        assert!(of(1).all(|entry| entry.domain == 1));
    }

    #[test]
    fn measures_all_conditions_before_repeating_one() {
        for seed in 0..20 {
            // Two runs of a second are a phase.
            let order = schedule(&plan(3, 4, seed));
            assert_eq!(order.len(), 24);
            for all in order.chunks(12) {
                let conditions: BTreeSet<usize> = all.iter().map(|entry| entry.condition).collect();
                assert_eq!(conditions.len(), 2);
                for phase in all.chunks(6) {
                    assert!(
                        phase
                            .iter()
                            .all(|entry| entry.condition == phase[0].condition)
                    );
                    for turn in phase.chunks(3) {
                        assert_eq!(turn.iter().collect::<BTreeSet<_>>().len(), 3);
                    }
                }
            }
        }
    }

    #[test]
    fn under_a_load_domains_on_the_same_cpus_take_turns() {
        let mut plan = plan(3, 4, 1);
        plan.run_duration = Nanos::from_millis(500);
        for (domain, cpus) in plan.domains.iter_mut().zip(["0", "1", "1"]) {
            domain.cpus = cpus.parse().expect("CPUs");
        }
        let order = schedule(&plan);
        for phase in order.chunks(12) {
            let on = |entry: &MatrixEntry| plan.domains[entry.domain].cpus.clone();
            let changes = phase
                .windows(2)
                .filter(|pair| on(&pair[0]) != on(&pair[1]))
                .count();
            let idle = plan.conditions[phase[0].condition] == Condition::IDLE;
            assert!(if idle { changes > 1 } else { changes == 1 }, "{phase:?}");
        }
    }

    #[test]
    fn more_runs_are_of_the_open_entries_alone() {
        let plan = plan(3, 4, 1);
        let open = BTreeSet::from([schedule(&plan)[0]]);
        let order = more(&plan, &open, 3, 5);
        assert_eq!(order.len(), 3);
        assert!(order.iter().all(|entry| open.contains(entry)));
    }

    fn compared(others: usize, visits: u32, repetitions: u32, seed: u64) -> EvaluationSettings {
        let change = |number: usize| rampart_model::PlanChange {
            kind: rampart_model::StepKind::Knob,
            name: number.to_string(),
            title: String::new(),
        };
        let after = VariantSettings {
            variant: PlanVariant::After,
            visits,
        };
        let rest = (0..others).map(|number| VariantSettings {
            variant: match number {
                0 => PlanVariant::Before,
                _ => PlanVariant::Without(change(number)),
            },
            visits: 1,
        });
        EvaluationSettings {
            variants: [after].into_iter().chain(rest).collect(),
            ..plan(2, repetitions, seed)
        }
    }

    /// Returns the variants in the order of their turns; equal adjacent ones of a turn count once.
    fn turns(plan: &EvaluationSettings) -> Vec<usize> {
        schedule(plan)
            .chunks(plan.domains.len() * plan.conditions.len())
            .map(|visit| {
                assert!(visit.iter().all(|entry| entry.variant == visit[0].variant));
                assert_eq!(visit.iter().collect::<BTreeSet<_>>().len(), visit.len());
                visit[0].variant
            })
            .collect()
    }

    #[test]
    fn alternates_which_of_two_variants_is_first() {
        let mut firsts = BTreeSet::new();
        for seed in 0..20 {
            let turns = turns(&compared(1, 1, 6, seed));
            assert_eq!(turns.len(), 12);
            for four in turns.chunks(4) {
                assert!(four == [0, 1, 1, 0] || four == [1, 0, 0, 1], "{turns:?}");
            }
            firsts.insert(turns[0]);
        }
        assert_eq!(firsts.len(), 2);
    }

    #[test]
    fn spreads_the_whole_plan_evenly_among_the_variants() {
        for seed in 0..20 {
            for repetition in turns(&compared(9, 3, 4, seed)).chunks(12) {
                let mut counts = [0; 10];
                repetition.iter().for_each(|variant| counts[*variant] += 1);
                assert_eq!(counts[0], 3);
                assert!(counts[1..].iter().all(|count| *count == 1));
                let locations: Vec<usize> =
                    (0..12).filter(|index| repetition[*index] == 0).collect();
                assert!(
                    locations.windows(2).all(|pair| pair[1] - pair[0] == 4),
                    "{locations:?}"
                );
            }
        }
    }

    #[test]
    fn order_depends_on_the_seed() {
        assert_eq!(schedule(&plan(3, 3, 7)), schedule(&plan(3, 3, 7)));
        assert_ne!(schedule(&plan(3, 3, 7)), schedule(&plan(3, 3, 8)));
    }
}
