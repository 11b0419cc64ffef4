// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Isolation by cgroup v1: a cpuset for the shielded CPUs, and one for all other tasks
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

/// Creates the cpusets in the hierarchy mounted at `root`.
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

    // First, so that it is undone last: the kernel refuses the CPUs of the shield's group to others.
    shrink_others(changes, root, request, &mut findings)?;
    prepare_groups(changes, hierarchies, root, &shield, &rest)?;
    for group in [&rest, &shield] {
        changes.step()?;
        if let Err(error) = kernel.make_directory(group) {
            return Ok(Attempt::Refused(vec![refused(
                group,
                "cannot create the group",
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
        // Not recorded: these files are removed with the groups.
        let values = [
            ("cpuset.mems", memory.trim().to_owned()),
            ("cpuset.cpus", cpus.to_string()),
        ];
        for (name, value) in values {
            changes.step()?;
            if let Err(error) = kernel.write(&group.join(name), &value) {
                return Ok(Attempt::Refused(vec![refused(
                    &group.join(name),
                    &format!("the kernel refuses `{value}`"),
                    &error,
                )]));
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
            .fix("remove the shielded CPUs from cpuset.cpus of its sibling groups"),
        );
    }
    // A container's group below inherits CPUs and nodes from this one.
    let _ = kernel.write(&shield.join("cgroup.clone_children"), "1");

    let moved = move_tasks(changes, root, &rest, request, &mut findings)?;
    stop_balancing(changes, root, &shield, &mut findings)?;

    let got = kernel.read(&shield.join("cpuset.cpus")).unwrap_or_default();
    if !Notation::List.same(&got, &request.cpus.to_string()) {
        return Ok(Attempt::Refused(vec![
            Finding::new(
                Severity::Warning,
                shield.join("cpuset.cpus").display().to_string(),
                "the kernel changed the CPUs of the group",
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
    // A container runtime creates a group below the shield's in every hierarchy. It removes the
    // leaf but not the parents, so Rampart removes them.
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

/// Removes the shielded CPUs from other groups, the deepest first, because a group's CPUs must be a
/// subset of its parent's.
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
                "the shielded CPUs were removed from this group until the shield is lowered",
            ),
            Err(error) => Finding::new(
                Severity::Warning,
                location,
                format!("cannot remove the shielded CPUs from this group: {error}"),
            )
            .fix(format!(
                "echo {} > {}",
                setting.value,
                setting.path.display()
            )),
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

/// Moves every movable task of the root group, thread by thread: the threads of a process may be in
/// different groups, and each is moved back to its own.
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
    // Tasks fork while others are moved, so the list is read until it has no new task.
    for _ in 0..50 {
        let mut batch = Vec::new();
        for thread in tasks::listed(&*kernel, &source) {
            let Some((task, stat)) = task(&*kernel, thread) else {
                continue;
            };
            if !seen.insert((task.thread, task.start)) {
                continue;
            }
            // The kernel keeps kthreadd in the root group.
            if stat.is_bound() || (stat.is_kernel_thread() && stat.name == "kthreadd") {
                let is_on_shielded = !task.affinity.intersection(request.cpus).is_empty();
                result.left += u32::from(is_on_shielded && stat.is_bound());
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
                    "cannot move {} tasks off the shielded CPUs, first {}",
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
                "tasks that were bound to shielded CPUs run on the housekeeping CPUs {} until the shield is lowered: {bound_by_owner}",
                request.housekeeping
            ),
        ));
    }
    Ok(result)
}

/// Removes the shielded CPUs from the scheduler's load balancing. A group's setting has no effect
/// while the root group balances over all CPUs.
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
                    format!("the scheduler still balances load over the shielded CPUs: {error}"),
                )
                .values("1", "0"),
            );
        }
    }
    Ok(())
}
