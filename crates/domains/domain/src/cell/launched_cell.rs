// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A created cell: its name, its exits, its failure.

use std::collections::BTreeMap;
use std::time::Instant;

use rampart_cells::operate::Operator;
use rampart_cells::resolve::Resolved;
use rampart_hypervisor_core::interface::REVISION;
use rampart_model::{CellExitReport, CellExits, CellPayload, CpuSet, Finding, Nanos};

use super::cell_records::CellFile;
use crate::DomainError;

/// The exit counts of a cell at one moment.
#[derive(Debug, Clone)]
struct Look {
    at: Instant,
    by_reason: BTreeMap<String, u64>,
    because_of_interrupts: u64,
    interrupts: Option<u64>,
}

/// A cell of this process. Dropping it removes its record, and perhaps ends the hypervisor, so the
/// owner drops the cell first.
#[derive(Debug)]
pub(super) struct Launched {
    operator: Operator,
    payload: CellPayload,
    program: String,
    cpus: CpuSet,
    memory_bytes: u64,
    findings: Vec<Finding>,
    looks: Option<(Look, Option<Look>)>,
    file: CellFile,
}

impl Launched {
    /// Describes a cell that was resolved and is about to be created.
    pub(super) fn new(
        operator: Operator,
        file: CellFile,
        resolved: &Resolved,
        (payload, program): (CellPayload, String),
    ) -> Self {
        Self {
            operator,
            payload,
            program,
            cpus: resolved.cpus.iter().copied().collect(),
            memory_bytes: resolved.memory.guest_bytes(),
            findings: resolved.findings.clone(),
            looks: None,
            file,
        }
    }

    pub(super) const fn operator(&self) -> &Operator {
        &self.operator
    }

    pub(super) fn name(&self) -> &str {
        self.file.name()
    }

    /// Returns its CPUs, as the host numbers them.
    pub(super) const fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Adds a weakness.
    pub(super) fn note(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Returns the reason why it does not run, or `None` if it runs.
    pub(super) fn failure(&self) -> Option<String> {
        let reason = |report: rampart_model::CellListEntry| {
            let reason = report.stop_reason.unwrap_or_else(|| report.state.clone());
            let failure = report.failure.map(|failure| {
                format!(
                    "; {} at {} of its program, syndrome {}",
                    failure.reason, failure.program_counter, failure.syndrome
                )
            });
            (report.state != "running")
                .then(|| format!("{}: {reason}{}", report.state, failure.unwrap_or_default()))
        };
        match self.operator.report(self.name()) {
            Ok(report) => reason(report),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Returns the cell's own failure if there is one, or else `error`.
    pub(super) fn best_error(&self, error: DomainError) -> DomainError {
        match self.failure() {
            Some(failure) => self.error(failure),
            None => error,
        }
    }

    /// Returns an error for a failure of this cell.
    pub(super) fn error(&self, what: String) -> DomainError {
        DomainError::Cell {
            cell: self.name().to_owned(),
            what,
        }
    }

    fn look(&self, interrupts: Option<u64>) -> Option<Look> {
        let report = self.operator.report(self.name()).ok()?;
        let mut look = Look {
            at: Instant::now(),
            by_reason: BTreeMap::new(),
            because_of_interrupts: 0,
            interrupts,
        };
        for cpu in report.by_cpu {
            look.because_of_interrupts += cpu.interrupt_exits;
            for exits in cpu.by_reason {
                *look.by_reason.entry(exits.reason).or_default() += exits.count;
            }
        }
        Some(look)
    }

    /// Records the counts before a measurement; `interrupts` is the cell's own count so far.
    pub(super) fn begin(&mut self, interrupts: Option<u64>) {
        self.looks = self.look(interrupts).map(|look| (look, None));
    }

    /// Records the counts after a measurement.
    pub(super) fn end(&mut self, interrupts: Option<u64>) {
        let now = self.look(interrupts);
        if let Some((_, last)) = &mut self.looks {
            *last = now;
        }
    }

    /// Returns the report, or `None` if its exits could not be read.
    pub(super) fn report(&self) -> Option<CellExitReport> {
        let (Look { by_reason, .. }, Some(last)) = self.looks.as_ref()? else {
            return None;
        };
        let first = &self.looks.as_ref()?.0;
        let exits = last.by_reason.iter().filter_map(|(reason, count)| {
            let before = by_reason.get(reason).copied().unwrap_or(0);
            let count = count.saturating_sub(before);
            (count > 0).then(|| CellExits {
                reason: reason.clone(),
                count,
            })
        });
        let interrupts = last.interrupts.zip(first.interrupts);
        Some(CellExitReport {
            payload: self.payload,
            program: self.program.clone(),
            revision: REVISION,
            cpus: self.cpus.clone(),
            memory_bytes: self.memory_bytes,
            observed: Nanos::from(last.at.duration_since(first.at)),
            exits: exits.collect(),
            interrupt_exits: last
                .because_of_interrupts
                .saturating_sub(first.because_of_interrupts),
            interrupts: interrupts.map(|(last, first)| last.saturating_sub(first)),
            failure: self.failure(),
            findings: self.findings.clone(),
        })
    }
}
