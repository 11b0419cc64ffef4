// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The environment of a meter's process: its shield, if there is one, and the placement of its
//! threads.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rampart_host::{Shield, StateDirectory, active_domain};
use rampart_model::{
    CpuSet, Finding, IsolationMechanism, MeterSettings, Nanos, PlacedBy, Severity, ShieldReport,
};

use crate::meter_placement::{self, MeterThreads};
use crate::process_settings::Thread;
use crate::{DomainError, Start};

/// Real-time budget of a meter's control group per second: the kernel's default for the whole
/// machine, so that a group of its own makes no difference.
pub(crate) const REAL_TIME_BUDGET: Nanos = Nanos::from_millis(950);

/// The isolation of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolationChoice {
    /// The isolation of an applied plan around its CPUs, or, without such a plan, a shield for as
    /// long as the domain is up.
    #[default]
    Usual,
    /// None: the threads are bound to its CPUs, which other work may use too.
    Bare,
}

/// The shield, if there is one, and the weaknesses found.
#[derive(Debug)]
pub(crate) struct Environment {
    /// Shared with other domains on the same CPUs that are up at the same time.
    shield: Option<Arc<Shield>>,
    cpus: CpuSet,
    housekeeping: CpuSet,
    /// The process whose group has a real-time budget.
    budget_of: Option<u32>,
    /// The group in which the measuring threads were created.
    group: Option<String>,
    findings: Vec<Finding>,
}

impl Environment {
    /// Applies a shield to the plan's CPUs, or enters the isolation of an applied plan. There is
    /// none, and a finding, if no CPU would be left for ordinary work or `isolation` is `Bare`.
    pub(crate) fn raise(
        state: &StateDirectory,
        isolation: IsolationChoice,
        start: &Start<'_>,
    ) -> Result<Self, DomainError> {
        let cpus = start.settings.cpus.clone();
        let mut findings = Vec::new();
        let active = match isolation {
            IsolationChoice::Usual => active_domain(state, &cpus)?,
            IsolationChoice::Bare => None,
        };
        let shield = if let Some(domain) = active {
            Some(Arc::new(Shield::of_active_domain(state, &domain)?))
        } else if isolation == IsolationChoice::Bare {
            findings.push(no_isolation_requested(&cpus));
            None
        } else if can_be_shielded(&cpus, start.housekeeping) {
            Some(shared_shield(state, &cpus, start.housekeeping)?)
        } else {
            findings.push(no_shield(&cpus, start.housekeeping));
            None
        };
        Ok(Self {
            shield,
            cpus,
            housekeeping: start.housekeeping.clone(),
            budget_of: None,
            group: None,
            findings,
        })
    }

    /// Returns an environment without a shield, for domains on the housekeeping CPUs.
    pub(crate) fn none(start: &Start<'_>) -> Self {
        Self {
            shield: None,
            cpus: start.housekeeping.clone(),
            housekeeping: start.housekeeping.clone(),
            budget_of: None,
            group: None,
            findings: Vec::new(),
        }
    }

    pub(crate) fn shield(&self) -> Option<&Shield> {
        self.shield.as_deref()
    }

    /// Lets a process into the shield.
    pub(crate) fn admit(&self, process: u32) -> Result<(), DomainError> {
        match &self.shield {
            Some(shield) => Ok(shield.admit(process)?),
            None => Ok(()),
        }
    }

    /// Adds a finding once.
    pub(crate) fn note(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Places each thread of a prepared meter: a measuring thread on its CPU under its policy, all
    /// others on the housekeeping CPUs. Returns a measuring thread.
    pub(crate) fn place(
        &mut self,
        process: u32,
        settings: &MeterSettings,
    ) -> Result<u32, DomainError> {
        let MeterThreads { measuring, others } =
            meter_placement::find_threads(process, &settings.cpus)?;
        if let Some(shield) = &self.shield {
            match &self.group {
                // The others are outside already, and so are threads that they create.
                Some(group) => {
                    for (_, thread) in &measuring {
                        shield.move_thread_in(thread.id, group)?;
                    }
                }
                None => {
                    let first = measuring.first();
                    self.group = first.and_then(|(_, thread)| shield.group_of(thread.id));
                }
            }
        }
        let mut shares = false;
        for thread in &others {
            shares |= !self.move_outside(process, thread, &self.housekeeping)?;
        }
        if shares {
            self.note(shared_cpu(process, settings));
        }
        if settings.policy.is_real_time() {
            self.grant_budget(process)?;
        }
        for (cpu, thread) in &measuring {
            meter_placement::bind(process, thread, &CpuSet::single(*cpu))?;
            meter_placement::schedule(process, thread, settings.policy)?;
        }
        Ok(measuring.first().map_or(process, |(_, thread)| thread.id))
    }

    /// Moves a thread of an admitted process out of the shield and binds it to `cpus` outside.
    /// Returns whether it is outside.
    pub(crate) fn move_outside(
        &self,
        process: u32,
        thread: &Thread,
        cpus: &CpuSet,
    ) -> Result<bool, DomainError> {
        let out = match &self.shield {
            Some(shield) => shield.move_thread_out(thread.id)?,
            None => true,
        };
        if out && !cpus.is_empty() {
            meter_placement::bind(process, thread, cpus)?;
        }
        Ok(out)
    }

    /// Lets the threads of an admitted process use real-time policies.
    pub(crate) fn grant_budget(&mut self, process: u32) -> Result<(), DomainError> {
        if self.budget_of == Some(process) {
            return Ok(());
        }
        if let Some(shield) = &self.shield {
            let budget = shield.set_real_time_budget(process, REAL_TIME_BUDGET)?;
            // A guest that replaces another has another process, and perhaps another group.
            self.budget_of = Some(process);
            for finding in budget.findings {
                self.note(finding);
            }
        }
        Ok(())
    }

    /// Returns the isolation in effect with its weaknesses.
    pub(crate) fn report(&self) -> ShieldReport {
        let mut report = match &self.shield {
            Some(shield) => shield.report().clone(),
            None => no_isolation(self.cpus.clone()),
        };
        report.findings.extend(self.findings.iter().cloned());
        report
    }

    /// Removes the shield, unless another domain is in it, and returns the isolation that was in
    /// effect.
    pub(crate) fn lower(self) -> Result<ShieldReport, DomainError> {
        let mut report = match self.shield.map(Arc::try_unwrap) {
            Some(Ok(shield)) => shield.lower()?,
            Some(Err(shared)) => shared.report().clone(),
            None => no_isolation(self.cpus),
        };
        report.findings.extend(self.findings);
        Ok(report)
    }
}

/// The shields of this process that domains share, by state directory, CPUs and housekeeping CPUs.
static SHARED: Mutex<Vec<SharedShield>> = Mutex::new(Vec::new());

type SharedShield = ((PathBuf, CpuSet, CpuSet), Weak<Shield>);

/// Returns the shield of these CPUs: that of another domain of this process, or a new one.
fn shared_shield(
    state: &StateDirectory,
    cpus: &CpuSet,
    housekeeping: &CpuSet,
) -> Result<Arc<Shield>, DomainError> {
    let key = (state.path().to_owned(), cpus.clone(), housekeeping.clone());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.retain(|(_, shield)| shield.strong_count() > 0);
    let known = shared.iter().find(|(known, _)| *known == key);
    if let Some(shield) = known.and_then(|(_, shield)| shield.upgrade()) {
        return Ok(shield);
    }
    let shield = Arc::new(Shield::raise(state, cpus, housekeeping)?);
    shared.push((key, Arc::downgrade(&shield)));
    Ok(shield)
}

fn no_isolation(cpus: CpuSet) -> ShieldReport {
    ShieldReport {
        cpus,
        isolation: IsolationMechanism::AffinityOnly,
        partition: None,
        interrupts: Vec::new(),
        workqueues: None,
        resume_latency: None,
        tasks_moved: 0,
        tasks_left: 0,
        findings: Vec::new(),
    }
}

/// Returns the settings for a meter whose threads are placed from outside, and which cannot reach
/// the housekeeping CPUs.
pub(crate) fn plan_inside(settings: &MeterSettings) -> MeterSettings {
    MeterSettings {
        placed_by: PlacedBy::Outside,
        housekeeping: CpuSet::new(),
        ..settings.clone()
    }
}

/// Returns whether a shield of these CPUs leaves one for ordinary work.
pub(crate) fn can_be_shielded(cpus: &CpuSet, housekeeping: &CpuSet) -> bool {
    !housekeeping.is_empty() && cpus.intersection(housekeeping).is_empty()
}

fn no_shield(cpus: &CpuSet, housekeeping: &CpuSet) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("shield of {}", cpus.named()),
        "the measured CPUs are not isolated: ordinary work runs on them too, so the figures show a policy and an affinity alone",
    )
    .values(
        format!("housekeeping on {}", housekeeping.named()),
        "a housekeeping CPU that is not measured",
    )
    .fix("add a second CPU to the machine, or measure fewer")
}

fn no_isolation_requested(cpus: &CpuSet) -> Finding {
    Finding::new(
        Severity::Note,
        cpus.named().to_string(),
        "measured without isolation, as requested, for comparison",
    )
}

fn shared_cpu(process: u32, settings: &MeterSettings) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("process {process}"),
        "the threads of the meter that write results share the measured CPUs, because cgroup v2 keeps all threads of a process together (they wake about 20 times a second under the time-sharing policy)",
    )
    .values(settings.cpus.named().to_string(), "the housekeeping CPUs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a set of CPUs")
    }

    #[test]
    fn leaves_a_cpu_for_ordinary_work() {
        assert!(can_be_shielded(&set("1"), &set("0")));
        assert!(!can_be_shielded(&set("0"), &set("0")));
        assert!(!can_be_shielded(&set("0-1"), &set("1-2")));
        assert!(!can_be_shielded(&set("1"), &set("")));
    }
}
