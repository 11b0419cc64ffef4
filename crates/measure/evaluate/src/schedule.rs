// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Orders the runs of the matrix. Pure.

use std::collections::BTreeSet;

use rampart_model::{EvaluationSettings, LoadKind, VariantSettings};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

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

/// Returns all runs in order. Each repetition visits every entry once before any entry repeats, so
/// that slow changes of the machine (heat, a co-located workload on the same host) affect all
/// domains and conditions alike. Within a condition the domains follow each other directly, in an
/// order that changes from repetition to repetition, so that no domain is always first. Under a load,
/// those on the same CPUs follow each other, because the load is elsewhere for the others. A meter
/// that cannot measure in a domain has no entry for it.
///
/// If variants of a plan are compared, each repetition visits all variants, and all entries in
/// each. Every second repetition visits the variants in the reverse order of the one before (A B, B
/// A): slow drift affects all variants alike, and the plan is switched no more often than needed.
#[must_use]
pub fn schedule(settings: &EvaluationSettings) -> Vec<MatrixEntry> {
    let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(settings.seed);
    let mut order = Vec::new();
    let mut variants = Vec::new();
    for repetition in 0..settings.repetitions {
        if repetition % 2 == 0 {
            variants = order_of_variants(&settings.variants, &mut generator);
        } else {
            variants.reverse();
        }
        for variant in &variants {
            visit(settings, *variant, &mut generator, &mut order);
        }
    }
    order
}

/// Returns more runs of these entries, each this often, in the order of [`schedule`].
pub(crate) fn more(
    settings: &EvaluationSettings,
    entries: &BTreeSet<MatrixEntry>,
    times: u32,
    seed: u64,
) -> Vec<MatrixEntry> {
    let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(seed);
    let mut order = Vec::new();
    for _ in 0..times {
        visit(settings, 0, &mut generator, &mut order);
    }
    order.retain(|entry| entries.contains(entry));
    order
}

/// Appends every entry once.
fn visit(
    settings: &EvaluationSettings,
    variant: usize,
    generator: &mut rand_pcg::Pcg64Mcg,
    order: &mut Vec<MatrixEntry>,
) {
    let mut groups: Vec<(usize, usize)> = (0..settings.meters.len())
        .flat_map(|meter| (0..settings.conditions.len()).map(move |condition| (meter, condition)))
        .collect();
    groups.shuffle(generator);
    for (meter, condition) in groups {
        let mut domains: Vec<usize> = (0..settings.domains.len())
            .filter(|domain| {
                let selection = &settings.domains[*domain].selection;
                settings.meters[meter].meter.measures_in(selection)
            })
            .collect();
        domains.shuffle(generator);
        let idle = settings.conditions[condition].load == LoadKind::Idle;
        while let Some(first) = domains.first().copied() {
            let together = |domain: &usize| {
                idle || settings.domains[*domain].cpus == settings.domains[first].cpus
            };
            let (turn, rest): (Vec<usize>, Vec<usize>) = domains.into_iter().partition(together);
            domains = rest;
            order.extend(turn.into_iter().map(|domain| MatrixEntry {
                variant,
                domain,
                meter,
                condition,
            }));
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
pub(crate) mod tests {
    use super::*;
    use rampart_model::{
        Condition, CpuSet, DomainKind, DomainSelection, EvaluatedDomain, LoadKind, LoadLocation,
        MeterKind, MeterSettings, Nanos, PlanVariant,
    };
    use std::collections::BTreeSet;

    pub(crate) fn plan(domains: usize, repetitions: u32, seed: u64) -> EvaluationSettings {
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
            look: 1,
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
    fn visits_every_entry_before_repeating_one() {
        for seed in 0..20 {
            let order = schedule(&plan(3, 4, seed));
            assert_eq!(order.len(), 24);
            for repetition in order.chunks(6) {
                assert_eq!(repetition.iter().collect::<BTreeSet<_>>().len(), 6);
                for domains in repetition.chunks(3) {
                    assert!(
                        domains
                            .iter()
                            .all(|entry| entry.condition == domains[0].condition)
                    );
                }
            }
        }
    }

    #[test]
    fn under_a_load_domains_on_the_same_cpus_follow_each_other() {
        let mut plan = plan(3, 20, 1);
        for (domain, cpus) in plan.domains.iter_mut().zip(["0", "1", "1"]) {
            domain.cpus = cpus.parse().expect("CPUs");
        }
        let host_first_or_last = |idle: bool| {
            schedule(&plan)
                .chunks(3)
                .filter(|turn| (plan.conditions[turn[0].condition] == Condition::IDLE) == idle)
                .all(|turn| turn[1].domain != 0)
        };
        assert!(host_first_or_last(false) && !host_first_or_last(true));
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
    fn turns(settings: &EvaluationSettings) -> Vec<usize> {
        schedule(settings)
            .chunks(settings.domains.len() * settings.conditions.len())
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
