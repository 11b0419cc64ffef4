// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart check`: judges whether a machine is fit for real-time work.

use rampart_evaluate::ProposedCpus;
use rampart_host::{
    MachineRoot, StateDirectory, active_plan_of_this_boot, read_knob_values, read_machine,
    shield_in_use,
};
use rampart_model::{CpuList, CpuSet, ExitCode};
use rampart_rules::{Isolation, Subject};

use crate::arguments::Check;
use crate::commands::VERSION;
use crate::failure::Failure;
use crate::output;

pub(crate) fn run(arguments: &Check, colour: bool) -> Result<ExitCode, Failure> {
    let check = check(&arguments.recorded.root()?, arguments.cpus.as_ref())?;
    if arguments.json {
        output::print_json(&check)?;
    } else {
        let elements = rampart_present::check(&check, arguments.verbose);
        output::print_elements(&elements, colour)?;
    }
    Ok(ExitCode::of_check(!check.is_unfit()))
}

/// Checks the machine below `root` with these real-time CPUs, by default with those that `evaluate`
/// would measure.
pub(super) fn check(
    root: &MachineRoot,
    cpus: Option<&CpuList>,
) -> Result<rampart_model::Check, Failure> {
    let mut machine = read_machine(root);
    let isolated = isolated_by_rampart(root);
    if let Some((cpus, _)) = &isolated {
        // The isolation removed them from the affinity of this process.
        machine.topology.allowed = machine.topology.allowed.union(cpus);
    }
    let asked = match cpus {
        None => None,
        Some(list) => {
            let cpus = list.resolve(&machine.topology.online);
            Some(cpus.map_err(Failure::usage)?)
        }
    };
    let (real_time, chosen_by) = match isolated {
        Some(isolated) if asked.is_none() => isolated,
        _ => {
            let ProposedCpus { cpus, chosen_by } =
                rampart_evaluate::propose_cpus(&machine, asked.as_ref())?;
            (cpus, chosen_by)
        }
    };
    let readings = read_knob_values(root, &real_time);
    let isolation = Isolation {
        housekeeping: machine.topology.online.difference(&real_time),
        has_guests: readings.hosts_guests,
        real_time,
        ..Isolation::default()
    };
    let subject = Subject {
        machine: &machine,
        readings: &readings,
    };
    Ok(rampart_rules::check(
        subject, &isolation, chosen_by, VERSION,
    ))
}

/// Returns the CPUs that Rampart itself isolates on the running machine, and by what.
fn isolated_by_rampart(root: &MachineRoot) -> Option<(CpuSet, &'static str)> {
    if *root != MachineRoot::system() {
        return None;
    }
    if let Some(shield) = shield_in_use(root) {
        let by = if shield.is_running {
            "in use by a running evaluation"
        } else {
            "left isolated by a killed run, which `rampart release` undoes"
        };
        return Some((shield.cpus, by));
    }
    // A plan that cannot be read is reported by `rampart status`.
    let plan = active_plan_of_this_boot(&StateDirectory::standard()).ok()??;
    Some((plan.resolved.real_time, "isolated by the active plan"))
}
