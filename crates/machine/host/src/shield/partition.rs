// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wall of cgroup v2: an isolated cpuset partition
//! (Documentation/admin-guide/cgroup-v2.rst, "Cpuset Interface Files").

use std::io;
use std::path::Path;

use rampart_model::{CpuSet, Finding, IsolationMechanism, Severity};

use super::{Attempt, ControlGroup, ControlGroupVersion, Raised, Request};
use crate::HostError;
use crate::changes::Changes;
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::notation::Notation;
use crate::tasks::{self, Task};

/// The group for processes inside a shield whose own group could not be made threaded. That one
/// stays empty of processes, so that controllers can be switched on for a container's group
/// beside it: a group with processes of its own cannot hand controllers down.
const PROCESSES: &str = "processes";

/// Raises the wall in the hierarchy mounted at `root`.
pub(super) fn raise(
    changes: &mut Changes,
    root: &Path,
    request: &Request<'_>,
) -> Result<Attempt, HostError> {
    let kernel = changes.kernel();
    let shield = root.join(&request.name);
    let controllers = root.join("cgroup.subtree_control");
    let enabled = kernel.read(&controllers).unwrap_or_default();
    let is_enabled = |wanted: &str| enabled.split_whitespace().any(|name| name == wanted);

    let before = touching(&*kernel, request.cpus);
    let mut intended = Vec::new();
    let affinities = affinities_at_risk(&*kernel);
    if !affinities.is_empty() {
        intended.push(Change::Affinities {
            tasks: affinities.clone(),
        });
    }
    // A container runtime switches on every controller on the way to its group, so all that are
    // off now are recorded, not only the one that is switched on here. With the first wall alone: it
    // is taken down last, when no group of a later one uses them any more.
    let present = kernel.read(&root.join("cgroup.controllers"));
    for controller in present.unwrap_or_default().split_whitespace() {
        let change = Change::Controller {
            path: controllers.clone(),
            controller: controller.to_owned(),
        };
        if !is_enabled(controller) && !changes.has(&change) {
            intended.push(change);
        }
    }
    // The shield's group goes first when changes are undone from the last to the first, and
    // takes the groups below it along.
    intended.push(Change::Group {
        path: shield.clone(),
        home: Some(root.to_owned()),
    });
    changes.prepare(intended)?;

    if !is_enabled("cpuset") {
        changes.step()?;
        if let Err(error) = kernel.write(&controllers, "+cpuset") {
            return Ok(Attempt::Refused(vec![refused(
                &controllers,
                "the cpuset controller cannot be switched on",
                &error,
            )]));
        }
    }
    let make = |group: &Path| -> Result<Option<Attempt>, HostError> {
        changes.step()?;
        Ok(kernel
            .make_directory(group)
            .err()
            .map(|error| Attempt::Refused(vec![refused(group, "a group cannot be made", &error)])))
    };
    if let Some(refused) = make(&shield)? {
        return Ok(refused);
    }
    // In a threaded group single threads of a process can stand inside the shield and the others
    // outside (Documentation/admin-guide/cgroup-v2.rst, "Threads"). Below another group than the
    // root the kernel may refuse; then a process stands inside as a whole.
    let threaded = kernel
        .write(&shield.join("cgroup.type"), "threaded")
        .is_ok();
    let admit_to = if threaded {
        shield.clone()
    } else {
        let processes = shield.join(PROCESSES);
        if let Some(refused) = make(&processes)? {
            return Ok(refused);
        }
        processes
    };
    changes.step()?;
    let cpus_file = shield.join("cpuset.cpus");
    if let Err(error) = kernel.write(&cpus_file, &request.cpus.to_string()) {
        return Ok(Attempt::Refused(vec![refused(
            &cpus_file,
            "the group cannot have its CPUs",
            &error,
        )]));
    }
    // From 6.7: a claim of its own, so that a group beside it that merely lists the CPUs does
    // not make the partition invalid. Where it is refused, the partition file says why.
    let exclusive = shield.join("cpuset.cpus.exclusive");
    if kernel.exists(&exclusive) {
        let _ = kernel.write(&exclusive, &request.cpus.to_string());
    }
    changes.step()?;
    let partition_file = shield.join("cpuset.cpus.partition");
    if let Err(error) = kernel.write(&partition_file, "isolated") {
        return Ok(Attempt::Refused(vec![refused(
            &partition_file,
            "the group cannot become an isolated partition",
            &error,
        )]));
    }
    changes.step()?;
    // The write succeeds even where the kernel then calls the partition invalid.
    let partition = kernel.read(&partition_file).unwrap_or_default();
    let partition = partition.trim().to_owned();
    if partition != "isolated" {
        return Ok(Attempt::Refused(vec![invalid(
            &*kernel, root, &shield, &partition, request,
        )]));
    }
    let effective = kernel
        .read(&shield.join("cpuset.cpus.effective"))
        .unwrap_or_default();
    if !Notation::List.same(&effective, &request.cpus.to_string()) {
        return Ok(Attempt::Refused(vec![
            Finding::new(
                Severity::Warning,
                shield.join("cpuset.cpus.effective").display().to_string(),
                "the partition does not have the CPUs that it was given",
            )
            .values(effective.trim(), request.cpus.to_string()),
        ]));
    }
    let narrower = affinities
        .into_iter()
        .map(|task| {
            let kept = task.affinity.difference(request.cpus);
            (task, kept)
        })
        .filter(|(_, kept)| !kept.is_empty())
        .collect();
    super::affinity::keep(changes, narrower)?;
    move_kernel_threads(changes, request)?;
    let tasks_left = touching(&*kernel, request.cpus);
    Ok(Attempt::Raised(Raised {
        isolation: IsolationMechanism::IsolatedPartition,
        partition: Some(partition),
        admit_to: Some(admit_to),
        group: Some(ControlGroup {
            version: ControlGroupVersion::V2,
            path: format!("/{}", request.name),
        }),
        // The kernel moved most of them itself when the partition took the CPUs.
        tasks_moved: before.saturating_sub(tasks_left),
        tasks_left,
        findings: Vec::new(),
    }))
}

fn refused(location: &Path, what: &str, error: &io::Error) -> Finding {
    Finding::new(
        Severity::Warning,
        location.display().to_string(),
        format!("{what}: {error}"),
    )
    .fix("run where the control group hierarchy can be written, not in a container")
}

fn invalid(
    kernel: &dyn Kernel,
    root: &Path,
    shield: &Path,
    partition: &str,
    request: &Request<'_>,
) -> Finding {
    let rivals: Vec<String> = kernel
        .names(root)
        .into_iter()
        .map(|name| root.join(name))
        .filter(|group| group != shield)
        .filter(|group| {
            kernel
                .read(&group.join("cpuset.cpus"))
                .ok()
                .and_then(|text| Notation::List.cpus(&text))
                .is_some_and(|cpus| !cpus.intersection(request.cpus).is_empty())
        })
        .map(|group| group.display().to_string())
        .collect();
    let finding = Finding::new(
        Severity::Warning,
        shield.join("cpuset.cpus.partition").display().to_string(),
        "the kernel does not accept the isolated partition",
    )
    .values(partition, "isolated");
    if rivals.is_empty() {
        finding.fix("choose other CPUs, or lower the other partitions")
    } else {
        finding.fix(format!(
            "remove the CPUs {} from cpuset.cpus of {}",
            request.cpus,
            rivals.join(", ")
        ))
    }
}

/// Tasks that asked for certain CPUs, some of them now to be shielded. Their groups lose those
/// CPUs and get them back; before 6.2 the kernel forgets the tasks' wish on the way, that of its own
/// threads too, whatever CPUs they are on (`update_tasks_cpumask` in kernel/cgroup/cpuset.c): those
/// that isolcpus= keeps on the first CPU are then everywhere.
fn affinities_at_risk(kernel: &dyn Kernel) -> Vec<Task> {
    let online = super::online(kernel);
    each_thread(kernel)
        .filter(|(task, stat)| {
            !stat.is_bound() && task.affinity != online && !task.affinity.is_empty()
        })
        .map(|(task, _)| task)
        .collect()
}

fn each_thread(kernel: &dyn Kernel) -> impl Iterator<Item = (Task, tasks::TaskStat)> + '_ {
    tasks::processes(kernel)
        .into_iter()
        .flat_map(|process| tasks::threads_of(kernel, process))
        .filter_map(|thread| {
            let stat = tasks::stat_of(kernel, thread)?;
            let affinity = kernel.affinity(thread).ok()?;
            let task = Task {
                thread,
                start: stat.start,
                affinity,
            };
            Some((task, stat))
        })
}

/// How many threads may run on some of the CPUs.
fn touching(kernel: &dyn Kernel, cpus: &CpuSet) -> u32 {
    let count = each_thread(kernel)
        .filter(|(task, _)| !task.affinity.intersection(cpus).is_empty())
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Binds kernel threads that may be moved to the housekeeping CPUs, where the partition left
/// them as they were.
fn move_kernel_threads(changes: &mut Changes, request: &Request<'_>) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let wanted = each_thread(&*kernel)
        .filter(|(task, stat)| {
            stat.is_kernel_thread()
                && !stat.is_bound()
                && !task.affinity.intersection(request.cpus).is_empty()
        })
        .map(|(task, _)| {
            let kept = task.affinity.intersection(request.housekeeping);
            let new = if kept.is_empty() {
                request.housekeeping.clone()
            } else {
                kept
            };
            (task, new)
        })
        .collect();
    // Those that the kernel refuses are counted among the tasks that stay.
    changes.set_affinities(wanted)?;
    Ok(())
}
