// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domains of an evaluation, and the noisy guests that run beside them.

use std::path::Path;

use rampart_domain::{Domain, IsolationChoice, Running, Start, domain_with_isolation};
use rampart_host::StateDirectory;
use rampart_model::{CpuSet, EvaluatedDomain, Finding, MeterKind, MeterSettings, Severity};

use crate::run::reason;

/// The domains, kept for the whole evaluation. A part that stays up between two runs ends when its
/// domain is dropped. The last is dropped first, since isolation is removed in reverse order.
#[derive(Debug)]
pub(crate) struct Domains(Vec<Box<dyn Domain>>);

impl Domains {
    pub(crate) fn new(domains: &[EvaluatedDomain]) -> Self {
        Self::with_isolation(domains, &|_| IsolationChoice::Usual)
    }

    /// Creates each domain with the isolation that is chosen for it.
    fn with_isolation(
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

    /// Returns the domain at this index of the settings.
    pub(crate) fn of(&self, index: usize) -> &dyn Domain {
        self.0[index].as_ref()
    }

    /// Ends all that stayed up.
    pub(crate) fn renew(&mut self, domains: &[EvaluatedDomain]) {
        self.end();
        *self = Self::new(domains);
    }

    /// Ends all that stayed up. From now on each domain has the isolation that is chosen for it.
    pub(crate) fn renew_with_isolation(
        &mut self,
        domains: &[EvaluatedDomain],
        isolation: &dyn Fn(&EvaluatedDomain) -> IsolationChoice,
    ) {
        self.end();
        *self = Self::with_isolation(domains, isolation);
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

/// Guests that run and are loaded for the whole evaluation, and are not measured.
#[derive(Debug)]
pub(crate) struct NoisyGuests {
    running: Vec<(String, Box<dyn Running>)>,
    /// Dropped after the running guests.
    _domains: Domains,
}

impl NoisyGuests {
    /// Starts the guests. The evaluation continues without a guest that does not start, with an entry in
    /// `findings`.
    pub(crate) fn start(
        domains: &[EvaluatedDomain],
        meter: &Path,
        housekeeping: &CpuSet,
        findings: &mut Vec<Finding>,
    ) -> Self {
        let kept_domains = Domains::new(domains);
        let mut running = Vec::new();
        for (index, domain) in domains.iter().enumerate() {
            let plan = MeterSettings::new(MeterKind::Wakeup, domain.cpus.clone());
            let started = kept_domains.of(index).start(&Start {
                meter,
                settings: &plan,
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
                        "this noisy neighbour did not start, so the figures are without it: {}",
                        reason(&domain.name, &error).what
                    ),
                    ..reason(&domain.name, &error)
                }),
            }
        }
        Self {
            running,
            _domains: kept_domains,
        }
    }

    /// Places new threads of the guests. Returns a finding for each guest that has ended.
    pub(crate) fn update(&mut self) -> Vec<Finding> {
        let mut findings = Vec::new();
        self.running.retain_mut(|(name, running)| {
            match running.next_event(std::time::Duration::ZERO) {
                Ok(_) => true,
                Err(error) => {
                    findings.push(Finding::new(
                        Severity::Warning,
                        name.as_str(),
                        format!("this noisy neighbour ended early, so later figures are without it: {error}"),
                    ));
                    false
                }
            }
        });
        findings
    }

    /// Ends the guests. Returns a finding for each failure.
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
