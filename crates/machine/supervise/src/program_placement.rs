// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Moves this process or others into a domain of the active plan, or to CPUs without a plan.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rampart_host::{
    PlacementGroup, StateDirectory, ThreadPlacement, check_that_cpus_are_free, is_leader,
    place_process, place_this_process, place_thread,
};
use rampart_model::{CpuSet, Finding, PlacedThread, SchedulingPolicy, Severity};

use crate::{Destination, LoadedPlan, SuperviseError};

/// Where programs are started or moved to.
#[derive(Debug)]
pub enum PlacementTarget {
    /// A destination of the active plan, and the CPUs of it to use; `None` for all.
    Destination(Box<LoadedPlan>, Destination, Option<CpuSet>),
    /// CPUs, because no plan is active.
    Cpus(CpuSet),
}

impl PlacementTarget {
    /// Returns the target with this name. Without a name: the destination with these CPUs, the CPUs
    /// themselves if no plan is active, or the only domain.
    ///
    /// # Errors
    /// If there is no such destination, or a plan is needed and none is active.
    pub fn find(
        state: &StateDirectory,
        name: Option<&str>,
        cpus: Option<CpuSet>,
    ) -> Result<Self, SuperviseError> {
        let plan = match (name, &cpus) {
            (None, Some(cpus)) => match LoadedPlan::load(state)? {
                Some(plan) => plan,
                None => return Ok(Self::Cpus(cpus.clone())),
            },
            _ => LoadedPlan::required(state)?,
        };
        let destination = destination(&plan, name, cpus.as_ref())?;
        Ok(Self::Destination(Box::new(plan), destination, cpus))
    }

    /// Returns the warning that no plan isolates the CPUs; `None` if one does.
    #[must_use]
    pub fn warning(&self) -> Option<Finding> {
        let Self::Cpus(cpus) = self else {
            return None;
        };
        let finding = Finding::new(
            Severity::Warning,
            cpus.named().to_string(),
            "no plan is active: other programs, interrupts and kernel threads also run on these CPUs",
        );
        Some(finding.fix("rampart apply PLAN"))
    }

    /// Returns the placement of a process.
    ///
    /// # Errors
    /// As [`LoadedPlan::placement`].
    pub fn placement(
        &self,
        process: u32,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<ThreadPlacement, SuperviseError> {
        match self {
            Self::Cpus(cpus) => Ok(ThreadPlacement {
                group: PlacementGroup::AsIs,
                cpus: Some(cpus.clone()),
                policy,
                nice,
            }),
            Self::Destination(plan, destination, cpus) => {
                plan.placement(destination, process, cpus.as_ref(), policy, nice)
            }
        }
    }

    /// Returns, if threads of the target leave Linux, the placement of a process that starts them, and
    /// the CPUs to take from Linux for it.
    ///
    /// # Errors
    /// As [`LoadedPlan::detaching`].
    pub fn detaching(
        &self,
        process: u32,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<Option<(ThreadPlacement, CpuSet)>, SuperviseError> {
        match self {
            Self::Cpus(_) => Ok(None),
            Self::Destination(plan, destination, cpus) => {
                plan.detaching(destination, process, cpus.as_ref(), policy, nice)
            }
        }
    }

    /// Moves all threads of a process, or a single thread.
    ///
    /// # Errors
    /// Returns the reason why none was moved.
    pub fn move_there(
        &self,
        number: u32,
        single_thread: bool,
        policy: Option<SchedulingPolicy>,
        nice: Option<i32>,
    ) -> Result<Vec<PlacedThread>, Finding> {
        let refused =
            |what: String| Finding::new(Severity::Error, format!("process {number}"), what);
        if !single_thread && is_leader(number) == Some(false) {
            return Err(refused("it is a thread, not a process".to_owned()).fix("add --thread"));
        }
        let placement = self.placement(number, policy, nice);
        let placement = placement.map_err(|error| refused(error.to_string()))?;
        let mut held = Vec::new();
        let (cpus, policy) = (placement.cpus.as_ref(), placement.policy);
        check_and_warn(number, cpus, policy, |finding| held.push(finding.clone())).map_err(
            |error| match error {
                SuperviseError::Missing(finding) => finding,
                error => refused(error.to_string()),
            },
        )?;
        let placed = if single_thread {
            place_thread(number, &placement).map(|thread| vec![thread])
        } else {
            place_process(number, &placement)
        };
        let mut placed = placed.map_err(|error| refused(error.to_string()))?;
        if let Some(first) = placed.first_mut() {
            first.notes.extend(held);
        }
        Ok(placed)
    }
}

/// Calls `warn` with each thread of another process that keeps one of these CPUs. Without a policy that of `process` counts.
///
/// # Errors
/// If a program with this policy would never run on them.
pub(crate) fn check_and_warn(
    process: u32,
    cpus: Option<&CpuSet>,
    policy: Option<SchedulingPolicy>,
    warn: impl FnMut(&Finding),
) -> Result<(), SuperviseError> {
    let Some(cpus) = cpus else { return Ok(()) };
    let policy = policy
        .or_else(|| rampart_host::thread_policy(process).ok())
        .unwrap_or(SchedulingPolicy::Other);
    let warnings =
        check_that_cpus_are_free(process, cpus, policy).map_err(SuperviseError::Missing)?;
    warnings.iter().for_each(warn);
    Ok(())
}

/// Returns the destination of this name, or the one with these CPUs, or the only domain.
fn destination(
    plan: &LoadedPlan,
    name: Option<&str>,
    cpus: Option<&CpuSet>,
) -> Result<Destination, SuperviseError> {
    if let Some(name) = name {
        return plan.destination(name);
    }
    let all = plan.destinations();
    let found = match cpus {
        Some(cpus) => all
            .iter()
            .find(|destination| !cpus.is_empty() && cpus.is_subset(&destination.cpus)),
        // The last destination is housekeeping.
        None if all.len() == 2 => all.first(),
        None => None,
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = all
            .iter()
            .map(|destination| destination.name.as_str())
            .collect();
        let what = match cpus {
            Some(cpus) => format!("no domain of the plan has all of {}", cpus.named()),
            None => "the plan has several domains".to_owned(),
        };
        let fix = format!("name one of {}", names.join(", "));
        let finding = Finding::new(Severity::Error, plan.plan.file.clone(), what);
        SuperviseError::Usage(finding.fix(fix))
    })
}

/// Moves this process and executes a program in its place, with one more environment variable if
/// there is one. Calls `warn` with each thread that keeps a CPU of the placement. Returns only the
/// failure. Without `with_input` the program gets no standard input.
pub fn execute_there(
    placement: &ThreadPlacement,
    words: &[String],
    with_input: bool,
    variable: Option<(&str, String)>,
    warn: fn(&Finding),
) -> SuperviseError {
    let (cpus, policy) = (&placement.cpus, placement.policy);
    if let Err(error) = check_and_warn(std::process::id(), cpus.as_ref(), policy, warn) {
        return error;
    }
    if let Err(error) = place_this_process(placement) {
        return error.into();
    }
    let (program, rest) = words
        .split_first()
        .map_or(("", words), |(first, rest)| (first, rest));
    let mut command = Command::new(program);
    command.args(rest).envs(variable);
    if !with_input {
        command.stdin(Stdio::null());
    }
    SuperviseError::NotStarted {
        program: program.to_owned(),
        cause: command.exec(),
        fix: "give the path of an executable file".to_owned(),
    }
}
