// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The wall of cgroup v1: a cpuset for the shielded CPUs, and one for everybody else
//! (Documentation/admin-guide/cgroup-v1/cpusets.rst).

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rampart_model::{Finding, IsolationMechanism, Severity};

use super::{Attempt, ControlGroup, ControlGroupVersion, Raised, Request};
use crate::HostError;
use crate::changes::{Changes, Setting};
use crate::groups::{self, Hierarchies};
use crate::journal::Change;
use crate::kernel::Kernel;
use crate::notation::Notation;
use crate::tasks::{self, Task};

/// Raises the wall in the hierarchy mounted at `root`.
pub(super) fn raise(
    changes: &mut Changes,
    hierarchies: &Hierarchies,
    root: &Path,
    request: &Request<'_>,
) -> Result<Attempt, HostError> {
    let kernel = changes.kernel();
    let shield = root.join(&request.name);
    let rest = root.join(format!("{}-rest", request.name));
    let mut findings = Vec::new();

    // First, so that it is undone last: as long as the shield's group stands, the kernel refuses
    // its CPUs to others.
    shrink_others(changes, root, request, &mut findings)?;
    prepare_groups(changes, hierarchies, root, &shield, &rest)?;
    for group in [&rest, &shield] {
        changes.step()?;
        if let Err(error) = kernel.make_directory(group) {
            return Ok(Attempt::Refused(vec![refused(
                group,
                "a group cannot be made",
                &error,
            )]));
        }
        changes.step()?;
    }
    let memory = kernel
        .read(&root.join("cpuset.effective_mems"))
        .or_else(|_| kernel.read(&root.join("cpuset.mems")))
        .unwrap_or_else(|_| "0".to_owned());
    for (group, cpus) in [(&rest, request.housekeeping), (&shield, request.cpus)] {
        // These files came with the groups and go with them, so nothing is to be recorded.
        let values = [
            ("cpuset.mems", memory.trim().to_owned()),
            ("cpuset.cpus", cpus.to_string()),
        ];
        for (name, value) in values {
            changes.step()?;
            if let Err(error) = kernel.write(&group.join(name), &value) {
                return Ok(Attempt::Refused(vec![
                    refused(&group.join(name), "the group cannot have its CPUs", &error)
                        .values(value, "to be accepted"),
                ]));
            }
        }
    }
    let exclusive = shield.join("cpuset.cpu_exclusive");
    if let Err(error) = kernel.write(&exclusive, "1") {
        findings.push(
            Finding::new(
                Severity::Warning,
                exclusive.display().to_string(),
                format!("the kernel refuses to keep other groups off the CPUs: {error}"),
            )
            .values("0", "1")
            .fix("remove the shielded CPUs from cpuset.cpus of the groups beside it"),
        );
    }
    // A container's group below starts with the CPUs and nodes of this one.
    let _ = kernel.write(&shield.join("cgroup.clone_children"), "1");

    let moved = move_tasks(changes, root, &rest, request, &mut findings)?;
    stop_balancing(changes, root, &shield, &mut findings)?;

    let got = kernel.read(&shield.join("cpuset.cpus")).unwrap_or_default();
    if !Notation::List.same(&got, &request.cpus.to_string()) {
        return Ok(Attempt::Refused(vec![
            Finding::new(
                Severity::Warning,
                shield.join("cpuset.cpus").display().to_string(),
                "the group does not have the CPUs that it was given",
            )
            .values(got.trim(), request.cpus.to_string()),
        ]));
    }
    Ok(Attempt::Raised(Raised {
        isolation: IsolationMechanism::CpusetV1,
        partition: None,
        admit_to: Some(shield),
        group: Some(ControlGroup {
            version: ControlGroupVersion::V1,
            path: format!("/{}", request.name),
        }),
        tasks_moved: moved.moved,
        tasks_left: moved.left,
        findings,
    }))
}

fn refused(location: &Path, what: &str, error: &io::Error) -> Finding {
    Finding::new(
        Severity::Warning,
        location.display().to_string(),
        format!("{what}: {error}"),
    )
    .fix("run where the cpuset hierarchy can be written, not in a container")
}

fn prepare_groups(
    changes: &mut Changes,
    hierarchies: &Hierarchies,
    root: &Path,
    shield: &Path,
    rest: &Path,
) -> Result<(), HostError> {
    let mut intended: Vec<Change> = [shield, rest]
        .into_iter()
        .map(|group| Change::Group {
            path: group.to_owned(),
            home: Some(root.to_owned()),
        })
        .collect();
    // A container's group below the shield's is made in every hierarchy, by its runtime.
    // The runtime removes the leaf and leaves the parents, so these are Rampart's to remove.
    let kernel = changes.kernel();
    let name = shield.file_name().unwrap_or_default();
    for (mount, _) in &hierarchies.legacy {
        let path = mount.join(name);
        if mount != root && !kernel.exists(&path) {
            intended.push(Change::Group { path, home: None });
        }
    }
    if let Some(mount) = &hierarchies.unified {
        intended.push(Change::Group {
            path: mount.join(name),
            home: None,
        });
    }
    changes.prepare(intended)
}

/// Takes the shielded CPUs from the groups of others, the deepest first, because a group's CPUs
/// must lie within its parent's.
fn shrink_others(
    changes: &mut Changes,
    root: &Path,
    request: &Request<'_>,
    findings: &mut Vec<Finding>,
) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let mut settings = Vec::new();
    let mut affinities = Vec::new();
    for group in groups::below(&*kernel, root) {
        let path = group.join("cpuset.cpus");
        let Some(present) = kernel
            .read(&path)
            .ok()
            .and_then(|text| Notation::List.cpus(&text))
        else {
            continue;
        };
        if present.intersection(request.cpus).is_empty() {
            continue;
        }
        let kept = present.difference(request.cpus);
        if kept.is_empty() {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    path.display().to_string(),
                    "this group has only shielded CPUs, so its tasks stay on them",
                )
                .values(present.to_string(), "none of the shielded CPUs")
                .fix(format!(
                    "echo {} > {}",
                    request.housekeeping,
                    path.display()
                )),
            );
            continue;
        }
        let members = groups::members_file(&*kernel, &group);
        affinities.extend(
            tasks::listed(&*kernel, &members)
                .into_iter()
                .filter_map(|thread| task(&*kernel, thread))
                .map(|(task, _)| task)
                .filter(|task| task.affinity != present),
        );
        settings.push(Setting::list(path, &kept));
    }
    if !affinities.is_empty() {
        changes.prepare(vec![Change::Affinities { tasks: affinities }])?;
    }
    for (setting, answer) in settings.iter().zip(changes.set(&settings)?) {
        let location = setting.path.display().to_string();
        findings.push(match answer {
            Ok(_) => Finding::new(
                Severity::Note,
                location,
                "this group of another manager lost the shielded CPUs for as long as the shield stands",
            ),
            Err(error) => Finding::new(
                Severity::Warning,
                location,
                format!("this group includes shielded CPUs and cannot be changed: {error}"),
            )
            .fix(format!("echo {} > {}", setting.value, setting.path.display())),
        });
    }
    Ok(())
}

#[derive(Default)]
struct Moved {
    moved: u32,
    left: u32,
}

fn task(kernel: &dyn Kernel, thread: u32) -> Option<(Task, tasks::TaskStat)> {
    let stat = tasks::stat_of(kernel, thread)?;
    let affinity = kernel.affinity(thread).ok()?;
    let task = Task {
        thread,
        start: stat.start,
        affinity,
    };
    Some((task, stat))
}

/// Moves every task of the root group that can be moved, thread by thread: the threads of one
/// process may be in different groups, and each must find back to its own.
fn move_tasks(
    changes: &mut Changes,
    root: &Path,
    rest: &Path,
    request: &Request<'_>,
    findings: &mut Vec<Finding>,
) -> Result<Moved, HostError> {
    let kernel = changes.kernel();
    let source = root.join("tasks");
    let target = rest.join("tasks");
    let mut seen: BTreeSet<(u32, u64)> = BTreeSet::new();
    let mut result = Moved::default();
    let mut stuck: Vec<String> = Vec::new();
    let mut bound_by_owner = 0;
    // Tasks fork while others are moved, so the list is read again until it brings no news.
    for _ in 0..50 {
        let mut batch = Vec::new();
        for thread in tasks::listed(&*kernel, &source) {
            let Some((task, stat)) = task(&*kernel, thread) else {
                continue;
            };
            if !seen.insert((task.thread, task.start)) {
                continue;
            }
            // Number 2 is kthreadd, which the kernel leaves in the root group.
            if stat.is_bound() || (stat.is_kernel_thread() && stat.name == "kthreadd") {
                let here = !task.affinity.intersection(request.cpus).is_empty();
                result.left += u32::from(here && stat.is_bound());
                continue;
            }
            batch.push((task, stat));
        }
        if batch.is_empty() {
            break;
        }
        changes.prepare(vec![Change::Tasks {
            from: root.to_owned(),
            to: rest.to_owned(),
            sweep: true,
            tasks: batch.iter().map(|(task, _)| task.clone()).collect(),
        }])?;
        let mut narrower = Vec::new();
        for (task, stat) in batch {
            changes.step()?;
            match kernel.write(&target, &task.thread.to_string()) {
                Ok(()) => {
                    result.moved += 1;
                    let kept = task.affinity.intersection(request.housekeeping);
                    bound_by_owner += u32::from(kept.is_empty() && !stat.is_kernel_thread());
                    if !kept.is_empty() && kept != *request.housekeeping {
                        narrower.push((task, kept));
                    }
                }
                Err(error) if groups::is_gone(&error) => {}
                Err(error) => stuck.push(format!("{} ({}): {error}", stat.name, task.thread)),
            }
        }
        super::affinity::keep(changes, narrower)?;
    }
    if !stuck.is_empty() {
        findings.push(
            Finding::new(
                Severity::Warning,
                source.display().to_string(),
                format!(
                    "{} tasks cannot be moved off the shielded CPUs, first {}",
                    stuck.len(),
                    stuck[0]
                ),
            )
            .fix("end them, or bind them to other CPUs with taskset"),
        );
    }
    if bound_by_owner > 0 {
        findings.push(Finding::new(
            Severity::Warning,
            source.display().to_string(),
            format!(
                "{bound_by_owner} tasks that were bound to shielded CPUs by their owner run on the housekeeping CPUs {} for as long as the shield stands",
                request.housekeeping
            ),
        ));
    }
    Ok(result)
}

/// Takes the shielded CPUs out of the scheduler's balancing. As long as the root group balances
/// over all CPUs, what a group says about it is without effect.
fn stop_balancing(
    changes: &mut Changes,
    root: &Path,
    shield: &Path,
    findings: &mut Vec<Finding>,
) -> Result<(), HostError> {
    let kernel = changes.kernel();
    let file = "cpuset.sched_load_balance";
    let answer = changes.set(&[Setting::text(root.join(file), "0")])?;
    let answers = [
        answer
            .into_iter()
            .next()
            .unwrap_or(Ok(String::new()))
            .map(|_| ()),
        kernel.write(&shield.join(file), "0"),
    ];
    for (group, answer) in [root, shield].into_iter().zip(answers) {
        if let Err(error) = answer {
            findings.push(
                Finding::new(
                    Severity::Warning,
                    group.join(file).display().to_string(),
                    format!("the scheduler goes on balancing over the shielded CPUs: {error}"),
                )
                .values("1", "0"),
            );
        }
    }
    Ok(())
}
