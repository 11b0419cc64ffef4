// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks a machine for real-time work on the CPUs that an evaluation would measure.

use rampart_host::{
    MachineRoot, StateDirectory, active_plan_of_this_boot, read_detach_driver, read_knob_values,
    read_machine, shield_in_use,
};
use rampart_model::{Check, CpuList, CpuSet};
use rampart_rules::{Subject, real_time_cpus_of};

use crate::{EvaluateError, ProposedCpus, propose_cpus};

/// Checks the machine below `root` with these real-time CPUs, by default with those that `evaluate`
/// would measure.
///
/// # Errors
/// If the machine does not have the CPUs.
pub fn check(
    root: &MachineRoot,
    cpus: Option<&CpuList>,
    tool_version: &str,
) -> Result<Check, EvaluateError> {
    let mut machine = read_machine(root);
    let isolated = isolated_by_rampart(root);
    if let Some((cpus, _)) = &isolated {
        // The isolation removed them from the affinity of this process.
        machine.topology.allowed = machine.topology.allowed.union(cpus);
    }
    if machine.virtualisation.container.is_none()
        && let Some(found) = real_time_cpus_of(&machine.topology)
    {
        // They are judged whether this process may use them or not.
        machine.topology.allowed = machine.topology.allowed.union(&found.cpus);
    }
    let is_isolated = isolated.is_some();
    let asked = match cpus {
        None => None,
        Some(list) => {
            let cpus = list.resolve(&machine.topology.online);
            Some(cpus.map_err(EvaluateError::InvalidCpus)?)
        }
    };
    let (real_time, chosen_by) = match isolated {
        Some(isolated) if asked.is_none() => isolated,
        _ => {
            let ProposedCpus { cpus, chosen_by } = propose_cpus(&machine, asked.as_ref())?;
            (cpus, chosen_by)
        }
    };
    let readings = read_knob_values(root, &real_time);
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    let isolation = subject.isolation(real_time);
    let mut check = rampart_rules::check(
        subject,
        &isolation,
        &chosen_by,
        read_detach_driver(root),
        tool_version,
    );
    if is_isolated {
        // A plan, or a shield, is in effect already.
        check
            .findings
            .iter_mut()
            .for_each(|finding| finding.by_plan = false);
    }
    Ok(check)
}

/// Returns the CPUs that Rampart itself isolates on the running machine, and by what.
fn isolated_by_rampart(root: &MachineRoot) -> Option<(CpuSet, String)> {
    if *root != MachineRoot::system() {
        return None;
    }
    if let Some(shield) = shield_in_use(root) {
        let by = if shield.is_running {
            "in use by a running evaluation"
        } else {
            "left isolated by a killed run, which `rampart release` undoes"
        };
        return Some((shield.cpus, by.to_owned()));
    }
    // A plan that cannot be read is reported by `rampart status`.
    let plan = active_plan_of_this_boot(&StateDirectory::standard()).ok()??;
    Some((
        plan.resolved.real_time,
        "isolated by the active plan".to_owned(),
    ))
}
