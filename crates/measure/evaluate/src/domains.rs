// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What starts the domains of an evaluation, and the neighbours that are up beside them.

use std::path::Path;

use rampart_domain::{Domain, IsolationChoice, Running, Start, domain_with_isolation};
use rampart_host::StateDirectory;
use rampart_model::{CpuSet, EvaluatedDomain, Finding, MeterKind, MeterSettings, Severity};

use crate::run::reason;

/// One starter for each domain of the plan, kept for the whole evaluation: what stays up between
/// two starts stays with it, and ends when it is dropped. Walls are lowered in the opposite order
/// of their raising, so they are dropped the last first.
#[derive(Debug)]
pub(crate) struct Domains(Vec<Box<dyn Domain>>);

impl Domains {
    pub(crate) fn new(domains: &[EvaluatedDomain]) -> Self {
        Self::behind(domains, &|_| IsolationChoice::Usual)
    }

    /// Each behind the wall that is chosen for it.
    fn behind(
        domains: &[EvaluatedDomain],
        isolation: &dyn Fn(&EvaluatedDomain) -> IsolationChoice,
    ) -> Self {
        let state = StateDirectory::standard();
        Self(
            domains
                .iter()
                .map(|domain| domain_with_isolation(domain.selection, isolation(domain), &state))
                .collect(),
        )
    }

    /// What starts the domain at this place of the plan.
    pub(crate) fn of(&self, location: usize) -> &dyn Domain {
        self.0[location].as_ref()
    }

    /// Ends all that stayed up.
    pub(crate) fn renew(&mut self, domains: &[EvaluatedDomain]) {
        self.end();
        *self = Self::new(domains);
    }

    /// Ends all that stayed up; from now on each stands behind the wall that is chosen for it.
    pub(crate) fn renew_behind(
        &mut self,
        domains: &[EvaluatedDomain],
        isolation: &dyn Fn(&EvaluatedDomain) -> IsolationChoice,
    ) {
        self.end();
        *self = Self::behind(domains, isolation);
    }

    fn end(&mut self) {
        while self.0.pop().is_some() {}
    }
}

impl Drop for Domains {
    fn drop(&mut self) {
        self.end();
    }
}

/// Guests that are up and loaded for the whole evaluation, and not measured.
#[derive(Debug)]
pub(crate) struct NoisyGuests {
    running: Vec<(String, Box<dyn Running>)>,
    /// Outlive what they started.
    _starters: Domains,
}

impl NoisyGuests {
    /// Starts them; one that does not come up is told in `findings`, and the evaluation goes on
    /// without it.
    pub(crate) fn start(
        domains: &[EvaluatedDomain],
        meter: &Path,
        housekeeping: &CpuSet,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let starters = Domains::new(domains);
        let mut running = Vec::new();
        for (location, domain) in domains.iter().enumerate() {
            let plan = MeterSettings::new(MeterKind::Wakeup, domain.cpus.clone());
            let started = starters.of(location).start(&Start {
                meter,
                plan: &plan,
                housekeeping,
                name: &domain.name,
                stay_up: true,
            });
            let up = started.and_then(|mut up| up.go().map(|()| up));
            match up {
                Ok(up) => running.push((domain.name.clone(), up)),
                Err(error) => findings.push(Finding {
                    severity: Severity::Warning,
                    what: format!(
                        "this neighbour did not come up, so the figures are without it: {}",
                        reason(&domain.name, &error).what
                    ),
                    ..reason(&domain.name, &error)
                }),
            }
        }
        Self {
            running,
            _starters: starters,
        }
    }

    /// Looks after them, so that threads that were born meanwhile find their place; one that is
    /// gone is told, and the figures from here on are without it.
    pub(crate) fn tend(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.running.retain_mut(|(name, running)| {
            match running.next_event(std::time::Duration::ZERO) {
                Ok(_) => true,
                Err(error) => {
                    findings.push(Finding::new(
                        Severity::Warning,
                        name.as_str(),
                        format!("this neighbour ended early, so that later figures are without it: {error}"),
                    ));
                    false
                }
            }
        });
        findings
    }

    /// Ends them; what went wrong is told.
    pub(crate) fn finish(mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        while let Some((name, running)) = self.running.pop() {
            if let Err(error) = running.finish() {
                findings.push(
                    Finding::new(Severity::Warning, name, error.to_string()).fix("rampart release"),
                );
            }
        }
        findings
    }
}
