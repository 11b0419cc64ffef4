// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds the verdicts of disturbances.

use rampart_model::{Question, Verdict, VerdictFigures};

/// Returns the verdict on what a disturbance does to a domain.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn find_verdict<'a>(
    verdicts: &'a [Verdict],
    question: Question,
    domain: &str,
    disturbance: &str,
) -> &'a Verdict {
    verdicts
        .iter()
        .find(|verdict| {
            let of = verdict.disturbance.as_ref().map(ToString::to_string);
            verdict.question == question
                && verdict.domain == domain
                && of.as_deref() == Some(disturbance)
        })
        .unwrap_or_else(|| panic!("no verdict on {disturbance} in {domain}: {verdicts:#?}"))
}

/// Returns the share of a block that reached the domain.
///
/// # Panics
/// If the verdict has no such figure.
#[must_use]
pub fn transfer_of(verdict: &Verdict) -> f64 {
    match &verdict.figures {
        Some(VerdictFigures::Transfer { transfer, .. }) => transfer.estimate,
        other => panic!("{}: {other:?}: {}", verdict.id, verdict.statement),
    }
}

/// The result of `rampart blocktest` for one CPU.
#[derive(Debug)]
pub struct BlocktestResult<'a>(&'a serde_json::Value);

impl<'a> BlocktestResult<'a> {
    /// Returns the result for a CPU in the document of `rampart blocktest --json`.
    ///
    /// # Panics
    /// If the document has none.
    #[must_use]
    pub fn of(document: &'a serde_json::Value, cpu: u32) -> Self {
        let mut cpus = document["cpus"].as_array().expect("CPUs").iter();
        let result = cpus.find(|result| result["cpu"] == cpu);
        Self(&result.unwrap_or_else(|| panic!("no CPU {cpu} in {document}"))["transfer"])
    }

    /// Returns the outcome of its verdict.
    #[must_use]
    pub fn outcome(&self) -> &str {
        self.0["outcome"].as_str().unwrap_or_default()
    }

    /// Returns the share of a block that reached the CPU.
    ///
    /// # Panics
    /// If the document has no such figure.
    #[must_use]
    pub fn transfer(&self) -> f64 {
        let estimate = &self.0["interval"]["estimate"];
        estimate.as_f64().expect("an estimate")
    }

    /// Returns how probable the result is without a transfer.
    ///
    /// # Panics
    /// If the document has no such figure.
    #[must_use]
    pub fn p_value(&self) -> f64 {
        self.0["p_value"].as_f64().expect("a p-value")
    }
}
