// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What stands around a meter's process while it measures: the shield if there is one, and the
//! places of its threads.

use rampart_host::{Shield, StateDirectory, active_domain};
use rampart_model::{
    CpuSet, Finding, IsolationMechanism, MeterSettings, Nanos, PlacedBy, Severity, ShieldReport,
};

use crate::meter_placement::{self, MeterThreads};
use crate::process_settings::Thread;
use crate::{DomainError, Start};

/// The real-time budget asked for a meter's control group in each second: what the kernel
/// grants the whole machine by default, so that a group of its own makes no difference.
pub(crate) const REAL_TIME_BUDGET: Nanos = Nanos::from_millis(950);

/// The wall that a domain stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsolationChoice {
    /// The one that an applied plan keeps around its CPUs; without such a plan one that is raised
    /// for the time that it is up.
    #[default]
    Usual,
    /// None: its threads are bound to its CPUs, and nothing keeps others away.
    Bare,
}

/// A shield, or the lack of one, and what was found weak on the way.
#[derive(Debug)]
pub(crate) struct Environment {
    shield: Option<Shield>,
    cpus: CpuSet,
    housekeeping: CpuSet,
    /// The process whose group has been given a real-time budget.
    budget_of: Option<u32>,
    /// The group that the measuring threads were born in at first.
    group: Option<String>,
    findings: Vec<Finding>,
}

impl Environment {
    /// Raises a shield around the plan's CPUs. Where no CPU would be left for ordinary work
    /// there is none, and a finding says what that costs.
    ///
    /// The wall of an applied plan is entered instead, and where none is wanted there is none.
    pub(crate) fn raise(
        state: &StateDirectory,
        isolation: IsolationChoice,
        start: &Start<'_>,
    ) -> Result<Self, DomainError> {
        let cpus = start.plan.cpus.clone();
        let mut findings = Vec::new();
        let standing = match isolation {
            IsolationChoice::Usual => active_domain(state, &cpus)?,
            IsolationChoice::Bare => None,
        };
        let shield = if let Some(domain) = standing {
            Some(Shield::of_active_domain(state, &domain)?)
        } else if isolation == IsolationChoice::Bare {
            findings.push(no_wall_wanted(&cpus));
            None
        } else if can_be_shielded(&cpus, start.housekeeping) {
            Some(Shield::raise(state, &cpus, start.housekeeping)?)
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

    /// No shield at all, for what belongs on the housekeeping CPUs.
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
        self.shield.as_ref()
    }

    /// Lets a process into the shield.
    pub(crate) fn admit(&self, process: u32) -> Result<(), DomainError> {
        match &self.shield {
            Some(shield) => Ok(shield.admit(process)?),
            None => Ok(()),
        }
    }

    /// Keeps what was found weak, once.
    pub(crate) fn note(&mut self, finding: Finding) {
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Puts each thread of a meter that waits in its place: a measuring thread on its CPU under
    /// its policy, every other one on the housekeeping CPUs. Returns a measuring thread.
    pub(crate) fn place(&mut self, process: u32, plan: &MeterSettings) -> Result<u32, DomainError> {
        let MeterThreads { measuring, others } =
            meter_placement::find_threads(process, &plan.cpus)?;
        if let Some(shield) = &self.shield {
            match &self.group {
                // The others are out already, and so are threads that they make.
                Some(group) => {
                    for (_, thread) in &measuring {
                        shield.bring_back(thread.id, group)?;
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
            shares |= !self.house(process, thread, &self.housekeeping)?;
        }
        if shares {
            self.note(shared_cpu(process, plan));
        }
        if plan.policy.is_real_time() {
            self.grant_budget(process)?;
        }
        for (cpu, thread) in &measuring {
            meter_placement::bind(process, thread, &CpuSet::single(*cpu))?;
            meter_placement::schedule(process, thread, plan.policy)?;
        }
        Ok(measuring.first().map_or(process, |(_, thread)| thread.id))
    }

    /// Moves a thread of an admitted process out of the shield and binds it to `cpus` outside.
    /// Says whether it is out.
    pub(crate) fn house(
        &self,
        process: u32,
        thread: &Thread,
        cpus: &CpuSet,
    ) -> Result<bool, DomainError> {
        let out = match &self.shield {
            Some(shield) => shield.send_home(thread.id)?,
            None => true,
        };
        if out && !cpus.is_empty() {
            meter_placement::bind(process, thread, cpus)?;
        }
        Ok(out)
    }

    /// Lets the threads of an admitted process have real-time policies.
    pub(crate) fn grant_budget(&mut self, process: u32) -> Result<(), DomainError> {
        if self.budget_of == Some(process) {
            return Ok(());
        }
        if let Some(shield) = &self.shield {
            let budget = shield.grant_real_time_budget(process, REAL_TIME_BUDGET)?;
            // A guest that is replaced has another process, whose group may be another.
            self.budget_of = Some(process);
            for finding in budget.findings {
                self.note(finding);
            }
        }
        Ok(())
    }

    /// What stands, and what was found weak about it.
    pub(crate) fn report(&self) -> ShieldReport {
        let mut report = match &self.shield {
            Some(shield) => shield.report().clone(),
            None => no_isolation(self.cpus.clone()),
        };
        report.findings.extend(self.findings.iter().cloned());
        report
    }

    /// Lowers the shield and tells what stood.
    pub(crate) fn lower(self) -> Result<ShieldReport, DomainError> {
        let mut report = match self.shield {
            Some(shield) => shield.lower()?,
            None => no_isolation(self.cpus),
        };
        report.findings.extend(self.findings);
        Ok(report)
    }
}

fn no_isolation(cpus: CpuSet) -> ShieldReport {
    ShieldReport {
        cpus,
        isolation: IsolationMechanism::AffinityOnly,
        partition: None,
        interrupts: Vec::new(),
        workqueues: None,
        tasks_moved: 0,
        tasks_left: 0,
        findings: Vec::new(),
    }
}

/// The plan as the meter inside gets it: its threads are placed from outside, and the
/// housekeeping CPUs, which are not to be reached from inside, are left to that too.
pub(crate) fn plan_inside(plan: &MeterSettings) -> MeterSettings {
    MeterSettings {
        placed_by: PlacedBy::Outside,
        housekeeping: CpuSet::new(),
        ..plan.clone()
    }
}

/// Whether ordinary work keeps a CPU when these are shielded.
pub(crate) fn can_be_shielded(cpus: &CpuSet, housekeeping: &CpuSet) -> bool {
    !housekeeping.is_empty() && cpus.intersection(housekeeping).is_empty()
}

fn no_shield(cpus: &CpuSet, housekeeping: &CpuSet) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("shield of {}", cpus.named()),
        "ordinary work runs on the measured CPUs too, so the figures show what a policy and an affinity alone are worth; the CPUs are not isolated",
    )
    .values(
        format!("housekeeping on {}", housekeeping.named()),
        "a housekeeping CPU that is not measured",
    )
    .fix("give the machine a second CPU, or measure fewer")
}

fn no_wall_wanted(cpus: &CpuSet) -> Finding {
    Finding::new(
        Severity::Note,
        cpus.named().to_string(),
        "measured without isolation, as requested, for comparison",
    )
}

fn shared_cpu(process: u32, plan: &MeterSettings) -> Finding {
    Finding::new(
        Severity::Warning,
        format!("process {process}"),
        "the threads of the meter that write results share the measured CPUs, because cgroup v2 keeps all threads of a process together; they wake some twenty times a second under the time-sharing policy",
    )
    .values(plan.cpus.named().to_string(), "the housekeeping CPUs")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(text: &str) -> CpuSet {
        text.parse().expect("a set of CPUs")
    }

    #[test]
    fn a_shield_leaves_ordinary_work_a_cpu() {
        assert!(can_be_shielded(&set("1"), &set("0")));
        assert!(!can_be_shielded(&set("0"), &set("0")));
        assert!(!can_be_shielded(&set("0-1"), &set("1-2")));
        assert!(!can_be_shielded(&set("1"), &set("")));
    }
}
