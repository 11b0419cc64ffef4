// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often each cell came to the hypervisor, over all that was measured in it.

use std::collections::BTreeMap;

use rampart_model::{CellReport, Evaluation, Nanos};

/// The sum of a cell's reports: its valid runs, and its valid parts of rounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CellSum<'a> {
    /// Name of the domain.
    pub(crate) domain: &'a str,
    /// The last of its reports.
    pub(crate) last: &'a CellReport,
    /// How many there are.
    pub(crate) reports: usize,
    pub(crate) observed: Nanos,
    pub(crate) exits: BTreeMap<&'a str, u64>,
    pub(crate) interrupt_exits: u64,
    /// None where one of them does not tell.
    pub(crate) interrupts: Option<u64>,
    pub(crate) failures: Vec<&'a str>,
}

impl CellSum<'_> {
    /// Exits because of interrupts for each interrupt.
    pub(crate) fn exits_per_interrupt(&self) -> Option<f64> {
        let interrupts = self.interrupts.filter(|count| *count > 0)?;
        Some(self.interrupt_exits as f64 / interrupts as f64)
    }

    pub(crate) fn all_exits(&self) -> u64 {
        self.exits.values().sum()
    }
}

/// All cells, in the order of the plan.
pub(crate) fn sums(evaluation: &Evaluation) -> Vec<CellSum<'_>> {
    let domains = evaluation.plan.domains.iter();
    domains
        .filter_map(|domain| sum(evaluation, &domain.name))
        .collect()
}

fn sum<'a>(evaluation: &'a Evaluation, domain: &'a str) -> Option<CellSum<'a>> {
    let runs = evaluation
        .records
        .iter()
        .filter(|record| record.domain == domain)
        .flat_map(|record| &record.runs)
        .filter(|run| run.invalid.is_empty())
        .filter_map(|run| run.cell.as_ref());
    let rounds = evaluation
        .transfers
        .iter()
        .flat_map(|round| &round.watched)
        .filter(|watched| watched.domain == domain && watched.invalid.is_empty())
        .filter_map(|watched| watched.cell.as_ref());
    let all: Vec<&CellReport> = runs.chain(rounds).collect();
    let mut sum = CellSum {
        domain,
        last: all.last()?,
        reports: all.len(),
        observed: Nanos::ZERO,
        exits: BTreeMap::new(),
        interrupt_exits: 0,
        interrupts: Some(0),
        failures: Vec::new(),
    };
    for report in all {
        sum.observed += report.observed;
        sum.interrupt_exits += report.interrupt_exits;
        sum.interrupts = sum.interrupts.zip(report.interrupts).map(|(a, b)| a + b);
        for exits in &report.exits {
            *sum.exits.entry(&exits.reason).or_default() += exits.count;
        }
        sum.failures.extend(report.failure.as_deref());
    }
    Some(sum)
}
