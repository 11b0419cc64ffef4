// SPDX-License-Identifier: Apache-2.0 OR MIT
//! In what order the cells of the matrix are measured. Pure.

use rampart_model::ExperimentPlan;
use rand::SeedableRng;
use rand::seq::SliceRandom;

/// One cell of the matrix, as indices into the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Cell {
    /// Index of the domain.
    pub(crate) domain: usize,
    /// Index of the meter.
    pub(crate) meter: usize,
    /// Index of the condition.
    pub(crate) condition: usize,
}

/// The order of all runs. Each repetition visits every cell once before any cell comes again, so
/// that a slow change of the machine (heat, a neighbour on the same host) meets every domain
/// alike; within a condition the domains follow each other directly, in an order that changes
/// from repetition to repetition, so that none is always the first.
#[must_use]
pub(crate) fn schedule(plan: &ExperimentPlan) -> Vec<Cell> {
    let mut generator = rand_pcg::Pcg64Mcg::seed_from_u64(plan.seed);
    let mut order = Vec::new();
    for _ in 0..plan.repetitions {
        let mut groups: Vec<(usize, usize)> = (0..plan.meters.len())
            .flat_map(|meter| (0..plan.conditions.len()).map(move |condition| (meter, condition)))
            .collect();
        groups.shuffle(&mut generator);
        for (meter, condition) in groups {
            let mut domains: Vec<usize> = (0..plan.domains.len()).collect();
            domains.shuffle(&mut generator);
            order.extend(domains.into_iter().map(|domain| Cell {
                domain,
                meter,
                condition,
            }));
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_model::{
        Condition, CpuSet, DomainKind, DomainPlan, DomainSelection, LoadKind, LoadPlace, MeterKind,
        MeterPlan, Nanos,
    };
    use std::collections::BTreeSet;

    fn plan(domains: usize, repetitions: u32, seed: u64) -> ExperimentPlan {
        let domain = |number: usize| DomainPlan {
            name: number.to_string(),
            selection: DomainSelection {
                guest: None,
                kind: DomainKind::Host,
                engine: None,
            },
            cpus: CpuSet::new(),
            description: String::new(),
        };
        ExperimentPlan {
            transfer: None,
            housekeeping: CpuSet::new(),
            domains: (0..domains).map(domain).collect(),
            meters: vec![MeterPlan::new(MeterKind::Wakeup, CpuSet::new())],
            conditions: vec![
                Condition::IDLE,
                Condition {
                    load: LoadKind::Cpu,
                    place: Some(LoadPlace::Others),
                },
            ],
            repetitions,
            run_duration: Nanos::SECOND,
            deadline: Nanos::SECOND,
            deadline_from_user: false,
            total: Nanos::SECOND,
            seed,
            findings: Vec::new(),
        }
    }

    #[test]
    fn no_cell_comes_again_before_every_other_came() {
        for seed in 0..20 {
            let order = schedule(&plan(3, 4, seed));
            assert_eq!(order.len(), 24);
            for repetition in order.chunks(6) {
                assert_eq!(repetition.iter().collect::<BTreeSet<_>>().len(), 6);
                for domains in repetition.chunks(3) {
                    assert!(
                        domains
                            .iter()
                            .all(|cell| cell.condition == domains[0].condition)
                    );
                }
            }
        }
    }

    #[test]
    fn the_seed_decides_the_order() {
        assert_eq!(schedule(&plan(3, 3, 7)), schedule(&plan(3, 3, 7)));
        assert_ne!(schedule(&plan(3, 3, 7)), schedule(&plan(3, 3, 8)));
    }
}
