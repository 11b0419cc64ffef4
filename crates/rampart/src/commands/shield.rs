// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `rampart shield`: a wall by hand. It is a plan of one domain, applied with nothing but its wall.

use std::path::Path;

use clap::Args;
use rampart_bench::BenchSelection;
use rampart_bench::sim::{USUAL_CPUS, USUAL_MEBIBYTES};
use rampart_host::{HostError, MachineRoot, StateDirectory, active_plan};
use rampart_model::{
    CpuRequest, CpuSet, DomainKind, Enforcement, ExitCode, Plan, PlannedDomain, PlannedPolicy,
    SchedulingPolicy, StepKind,
};
use rampart_supervise::LoadedPlan;

use super::{apply, on, plan, release, run};
use crate::arguments::Release;
use crate::failure::Failure;
use crate::output;

/// The domain of such a plan.
const NAME: &str = "shield";

const EXAMPLES: &str = "\
Examples:
  rampart shield 2-3                       a wall around CPUs 2 and 3
  rampart shield 3 --policy fifo:80 -- ./control
  rampart run shield -- ./program          into it later
  rampart shield --off                     as it was before

It stands until `--off` (or `rampart release`), whatever becomes of the program.";

/// Put a wall around CPUs by hand
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ShieldArguments {
    /// The CPUs
    #[arg(required_unless_present = "off")]
    cpus: Option<CpuSet>,

    /// Policy of what `run` starts there
    #[arg(long, value_name = "POLICY")]
    policy: Option<SchedulingPolicy>,

    /// Take it down
    #[arg(long, conflicts_with_all = ["cpus", "policy", "command"])]
    off: bool,

    /// A program to run behind it, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(arguments: &ShieldArguments) -> Result<ExitCode, Failure> {
    let state = StateDirectory::standard();
    let file = state.path().join("shield.toml");
    refuse_beside_another(&state, &file)?;
    let Some(cpus) = arguments.cpus.as_ref().filter(|_| !arguments.off) else {
        return release::run(&Release {
            json: false,
            on: on::On {
                on: BenchSelection::Local,
                sim_cpus: USUAL_CPUS,
                sim_memory: USUAL_MEBIBYTES,
                sim_real_time_cpus: None,
                sim_append: None,
            },
        });
    };
    rampart_host::check_that_no_plan_is_active(&state)
        .map_err(|error| Failure::new(ExitCode::PreconditionMissing, error))?;
    std::fs::create_dir_all(state.path())?;
    output::write(
        Some(&file),
        &rampart_plan::write(&planned(cpus, arguments.policy)),
    )?;
    let root = MachineRoot::system();
    let read = plan::read_plan(&file, &root)?;
    apply::refuse(&read)?;
    let mut changes = apply::change_list(&root, &read);
    changes
        .steps
        .retain(|step| step.kind == StepKind::Isolation);
    changes.boot_arguments.clear();
    let standing = apply::apply(&read, &changes)?;
    for finding in &standing.findings {
        output::say(&format!("rampart: {finding}"));
    }
    if arguments.command.is_empty() {
        output::say("rampart: the wall stands; `rampart shield --off` takes it down");
        return Ok(ExitCode::Success);
    }
    let standing = LoadedPlan::required(&state)?;
    let destination = standing.destination(NAME)?;
    let location = standing.placement(&destination, std::process::id(), None, None, None)?;
    run::enter(&location, &arguments.command, false)
}

/// What is known of another plan, also of one that waits for a restart or had one, would be gone with
/// a wall by hand: both are the one plan that is released.
fn refuse_beside_another(state: &StateDirectory, file: &Path) -> Result<(), Failure> {
    let refuse = |error| Failure::new(ExitCode::PreconditionMissing, error);
    let own = std::path::absolute(file)?.display().to_string();
    let Some(present) = active_plan(state).map_err(refuse)? else {
        return Ok(());
    };
    if present.file == own {
        return Ok(());
    }
    Err(refuse(HostError::Request {
        location: state.path().join("plan.json").display().to_string(),
        what: "a plan is applied that is no wall by hand, and `rampart shield` leaves it alone"
            .to_owned(),
        present: present.file,
        needed: format!("{own}, or no plan"),
        fix: "`rampart release` takes it back; `rampart status` shows what stands".to_owned(),
    }))
}

/// The plan of one task on these CPUs. Whoever raises a wall by hand is warned, and not refused for
/// what a plan would have to do beside it.
fn planned(cpus: &CpuSet, policy: Option<SchedulingPolicy>) -> Plan {
    let mut domain = PlannedDomain::new(NAME, DomainKind::Task);
    domain.cpus = Some(CpuRequest::List(cpus.clone()));
    domain.policy = policy.map(PlannedPolicy);
    let mut plan = Plan::default();
    plan.machine.policy = Enforcement::Warn;
    plan.domains.push(domain);
    plan
}
