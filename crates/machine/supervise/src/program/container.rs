// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container. Its engine runs it in the foreground as a child, below the domain's control group if
//! the engine accepts one. Its threads are placed from outside, so that it needs no privilege for
//! scheduling.

use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::Duration;

use rampart_domain::{ContainerOrder, PlannedContainer};
use rampart_host::{PlacementGroup, ThreadPlacement, descendants, place_process};
use rampart_model::{ContainerSource, Finding, Severity, SupervisedContainer};

use super::{Program, ProgramExit, StartRequest, ThreadPlacer, end, judge, logged, wait};
use crate::SuperviseError;

/// Time limit for the container's first process; the engine may have to fetch an image.
const START_LIMIT: Duration = Duration::from_secs(300);

struct Container {
    child: Child,
    container: PlannedContainer,
    process: u32,
    threads: ThreadPlacer,
    record: SupervisedContainer,
}

pub(super) fn start(
    order: &StartRequest<'_>,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let nothing = ContainerSource::default();
    let destination = order.destination;
    // Engines take the group relative to the root of each hierarchy.
    let parent = destination.group.in_hierarchy();
    let parent = parent.map(|group| group.display().to_string());
    run(order, &nothing, parent, destination.group.clone())
}

fn run(
    order: &StartRequest<'_>,
    nothing: &ContainerSource,
    parent: Option<String>,
    group: PlacementGroup,
) -> Result<(Box<dyn Program>, Vec<Finding>), SuperviseError> {
    let (container, command) = PlannedContainer::prepare(&ContainerOrder {
        name: &order.domain.name,
        source: order.domain.container.as_ref().unwrap_or(nothing),
        run: &order.domain.run,
        cpus: &order.destination.cpus,
        parent,
        directory: order.files.inside(),
    })?;
    let mut child = spawn(command, order)?;
    let process = container.process(START_LIMIT, || {
        order.stop.load(Ordering::Relaxed) || child.try_wait().ok().flatten().is_some()
    });
    let Some(process) = process else {
        let ended = wait(&mut child, Duration::ZERO);
        end(&mut child, Duration::from_secs(1));
        let _ = container.remove();
        let log = crate::log::tail(&order.files.log(), 3).join("; ");
        return Err(SuperviseError::Missing(
            Finding::new(
                Severity::Error,
                format!("domain {}", order.domain.name),
                match ended {
                    Some(ended) => format!("the container ended before it ran: {}", ended.status),
                    None => format!("no container within {} s", START_LIMIT.as_secs()),
                },
            )
            .fix(format!(
                "less {} (it ends with: {log})",
                order.files.log().display()
            )),
        ));
    };
    let mut program = Container {
        record: SupervisedContainer {
            engine: container.engine(),
            program: container.program().display().to_string(),
            directory: order.files.inside().display().to_string(),
        },
        child,
        process,
        threads: ThreadPlacer::new(order),
        container,
    };
    match program.place(order, group) {
        Ok(mut findings) => {
            findings.extend(program.place_new_threads());
            Ok((Box::new(program), findings))
        }
        Err(error) => {
            program.stop(Duration::from_secs(1));
            Err(error)
        }
    }
}

fn spawn(command: Command, order: &StartRequest<'_>) -> Result<Child, SuperviseError> {
    let program = command.get_program().to_string_lossy().into_owned();
    logged(command, order.files)?
        .spawn()
        .map_err(|cause| SuperviseError::NotStarted {
            program,
            cause,
            fix: "reinstall the container engine".to_owned(),
        })
}

impl Container {
    /// Gives all threads the domain's CPUs and policy, and the domain's group if the engine chose
    /// another.
    fn place(
        &self,
        order: &StartRequest<'_>,
        group: PlacementGroup,
    ) -> Result<Vec<Finding>, SuperviseError> {
        let location = ThreadPlacement {
            group: if self.container.takes_parent() {
                PlacementGroup::AsIs
            } else {
                group
            },
            cpus: Some(order.destination.cpus.clone()),
            policy: order.destination.policy,
            nice: None,
        };
        let mut placed = place_process(self.process, &location)?;
        for child in descendants(self.process) {
            // A process that has ended meanwhile needs no placement.
            placed.extend(place_process(child, &location).unwrap_or_default());
        }
        judge(placed)
    }
}

impl Program for Container {
    fn process(&self) -> Option<u32> {
        Some(self.process)
    }

    fn ended(&mut self) -> Option<ProgramExit> {
        let ended = self
            .child
            .try_wait()
            .ok()
            .flatten()
            .map(ProgramExit::from)?;
        // The next start empties a directory that remains.
        let _ = self.container.remove();
        Some(ended)
    }

    fn place_new_threads(&mut self) -> Vec<Finding> {
        self.threads.place_new_threads(self.process)
    }

    fn stop(&mut self, limit: Duration) -> ProgramExit {
        let requested = self.container.stop(limit);
        let mut ended = wait(&mut self.child, limit);
        if ended.is_none() || requested.is_err() {
            // The engine removes the container by force.
            let _ = self.container.remove();
            ended = ended.map(Some).unwrap_or_else(|| {
                wait(&mut self.child, Duration::from_secs(10)).map(|ended| ProgramExit {
                    status: format!(
                        "{}, removed because it did not stop within {} s",
                        ended.status,
                        limit.as_secs_f64()
                    ),
                    success: false,
                })
            });
        }
        let ended = ended.unwrap_or_else(|| end(&mut self.child, Duration::from_secs(1)));
        let _ = self.container.remove();
        ended
    }

    fn container(&self) -> Option<SupervisedContainer> {
        Some(self.record.clone())
    }
}
