// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Isolation by cgroup v2: an isolated cpuset partition
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

/// The group for processes in a shield whose own group cannot be threaded. The shield's group then
/// contains no processes, because a group with processes cannot enable controllers for the group of
/// a container.
const PROCESSES: &str = "processes";

/// Creates the partition in the hierarchy mounted at `root`.
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
    // A container runtime enables every controller on the path to its group, so all disabled ones
    // are recorded, not only the one enabled here. Only by the first shield, which is lowered last,
    // when no group of a later one uses them.
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
    // The last change is undone first: the shield's group is removed with the groups below it.
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
                "cannot enable the cpuset controller",
                &error,
            )]));
        }
    }
    let make = |group: &Path| -> Result<Option<Attempt>, HostError> {
        changes.step()?;
        Ok(kernel
            .make_directory(group)
            .err()
            .map(|error| Attempt::Refused(vec![refused(group, "cannot create the group", &error)])))
    };
    if let Some(refused) = make(&shield)? {
        return Ok(refused);
    }
    // With a threaded group single threads of a process can be inside the shield
    // (Documentation/admin-guide/cgroup-v2.rst, "Threads"). The kernel may refuse it below another
    // group than the root; then all threads of a process are inside.
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
            "cannot set the CPUs of the group",
            &error,
        )]));
    }
    // From 6.7: exclusive CPUs, so that a sibling group that only lists the CPUs does not make the
    // partition invalid. If the kernel refuses, the partition file contains the reason.
    let exclusive = shield.join("cpuset.cpus.exclusive");
    if kernel.exists(&exclusive) {
        let _ = kernel.write(&exclusive, &request.cpus.to_string());
    }
    changes.step()?;
    let partition_file = shield.join("cpuset.cpus.partition");
    if let Err(error) = kernel.write(&partition_file, "isolated") {
        return Ok(Attempt::Refused(vec![refused(
            &partition_file,
            "cannot make the group an isolated partition",
            &error,
        )]));
    }
    changes.step()?;
    // The write succeeds even if the partition is then invalid.
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
                "the kernel changed the CPUs of the partition",
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
        // The kernel moved most of them when it created the partition.
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

/// Returns the tasks that requested certain CPUs. Their groups lose CPUs and get them back; before 6.2
/// the kernel then forgets the requested affinities, also those of its own threads on other CPUs
/// (`update_tasks_cpumask` in kernel/cgroup/cpuset.c), such as those that isolcpus= keeps on the
/// first CPU.
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

/// Returns the number of threads that may run on some of the CPUs.
fn touching(kernel: &dyn Kernel, cpus: &CpuSet) -> u32 {
    let count = each_thread(kernel)
        .filter(|(task, _)| !task.affinity.intersection(cpus).is_empty())
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Binds movable kernel threads that the partition did not move to the housekeeping CPUs.
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
    // Threads that the kernel does not move are counted in `tasks_left`.
    changes.set_affinities(wanted)?;
    Ok(())
}
