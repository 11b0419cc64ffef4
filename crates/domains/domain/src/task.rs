// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The domain `task`: the meter as a process inside a shield.

use std::path::Path;
use std::process::Command;

use rampart_host::StateDirectory;
use rampart_model::{
    Availability, DomainKind, DomainSelection, EffectiveSettings, Finding, Machine,
};
use rampart_rules::{Rule, rule_of_knob};

use crate::running_process::RunningProcess;
use crate::session::{Session, Tie};
use crate::shielded_process::{self, Environment, IsolationChoice};
use crate::{Domain, DomainError, METER_FIX, Running, Start};

/// A process inside a shield.
#[derive(Debug, Clone)]
pub(crate) struct TaskDomain {
    pub(crate) state: StateDirectory,
    pub(crate) isolation: IsolationChoice,
}

impl Domain for TaskDomain {
    fn selection(&self) -> DomainSelection {
        DomainSelection {
            guest: None,
            cell: None,
            kind: DomainKind::Task,
            engine: None,
        }
    }

    fn availability(&self, machine: &Machine) -> Availability {
        Availability {
            domain: self.selection(),
            available: true,
            description: format!("a process {}", expected_isolation(machine)),
            findings: weaknesses(machine),
        }
    }

    fn start(&self, start: &Start<'_>) -> Result<Box<dyn Running>, DomainError> {
        let plan = shielded_process::plan_inside(start.settings);
        let environment = Environment::raise(&self.state, self.isolation, start)?;
        let command = Command::new(start.meter);
        let program = start.meter.display().to_string();
        let session = Session::start(command, &program, Tie::Killed, METER_FIX)?;
        let process = session.process();
        environment.admit(process)?;
        let mut running = RunningProcess {
            process,
            container: None,
            session,
            environment: Some(environment),
            effective_settings: EffectiveSettings::default(),
        };
        running.session.prepare(&plan)?;
        running.place(&plan, "")?;
        Ok(Box::new(running))
    }
}

/// Describes the isolation to expect on this machine, as the end of a sentence. Each record holds
/// the isolation in effect.
pub(crate) fn expected_isolation(machine: &Machine) -> &'static str {
    if machine.topology.online.len() < 2 || !rustix::process::geteuid().is_root() {
        return "bound to its CPUs, without isolation";
    }
    match machine.control_groups.as_str() {
        "v2" => "in an isolated partition (cgroup v2), interrupts and workqueues moved away",
        "v1" | "hybrid" if Path::new("/proc/self/cpuset").exists() => {
            "in a cpuset of its own (cgroup v1), interrupts and workqueues moved away"
        }
        _ => "bound to its CPUs, interrupts and workqueues moved away",
    }
}

/// The rule about the number of CPUs.
pub(crate) const ENOUGH_CPUS: Rule = rule_of_knob("enough-cpus");

/// Returns the weaknesses of isolation on this machine, whatever runs inside.
pub(crate) fn weaknesses(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    if machine.topology.online.len() < 2 {
        findings.push(
            ENOUGH_CPUS
                .finding(
                    "CPUs",
                    "the only CPU is needed for ordinary work, so it cannot be isolated",
                )
                .values("1 online", "at least 2")
                .fix("add a second CPU to the machine"),
        );
    }
    if !rustix::process::geteuid().is_root() {
        findings.push(rampart_host::root_missing());
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_a_machine_with_one_cpu() {
        let mut machine = rampart_host::read_machine(&rampart_host::MachineRoot::system());
        machine.topology.online = "0".parse().expect("a CPU");
        assert!(weaknesses(&machine)[0].to_string().contains("second CPU"));
        assert!(expected_isolation(&machine).contains("without isolation"));
    }
}
