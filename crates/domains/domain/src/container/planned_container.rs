// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A container of a plan, in the foreground of its engine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rampart_model::{ContainerEngine, ContainerSource, CpuSet, Finding, Severity};

use super::bundle;
use super::engine::{Engine, MemoryGrant};
use super::helper_program;
use crate::DomainError;

/// Pause between two checks for a container's process.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A container that a plan requests.
#[derive(Debug, Clone)]
pub struct ContainerOrder<'a> {
    /// Name of its domain.
    pub name: &'a str,
    /// Its image or root directory, and its engine.
    pub source: &'a ContainerSource,
    /// Program and arguments inside; empty for the image's own.
    pub run: &'a [String],
    /// Its CPUs.
    pub cpus: &'a CpuSet,
    /// The control group above its own, relative to the hierarchy's root; `None` for the engine's
    /// default.
    pub parent: Option<String>,
    /// A directory of its own for the runtime; emptied first.
    pub directory: PathBuf,
}

/// A container of a plan, started or about to be.
#[derive(Debug, Clone)]
pub struct PlannedContainer {
    kind: ContainerEngine,
    program: PathBuf,
    id: String,
    directory: PathBuf,
}

impl PlannedContainer {
    /// Finds the engine, writes its input files, removes a leftover container of that name,
    /// and returns the command that runs the container in the foreground.
    ///
    /// # Errors
    /// Returns an error if no engine works here, or the engine does not support the source.
    pub fn prepare(order: &ContainerOrder<'_>) -> Result<(Self, Command), DomainError> {
        let kind = order.source.engine.unwrap_or(ContainerEngine::Embedded);
        let engine = Engine::find(kind, rampart_host::control_group_layout())
            .map_err(|finding| DomainError::Unavailable(*finding))?;
        let container = Self::left(
            order.name,
            kind,
            engine.program.clone(),
            order.directory.clone(),
        );
        container.remove()?;
        fs::create_dir_all(&order.directory)
            .map_err(DomainError::file("make the directory", &order.directory))?;
        let parent = order.parent.as_deref().filter(|_| engine.takes_parent());
        let mut command = Command::new(&engine.program);
        if kind == ContainerEngine::Embedded {
            let root = runnable_root(order)?;
            bundle::write_planned(
                &order.directory,
                &bundle::PlannedContents {
                    name: order.name,
                    root: &root,
                    run: order.run,
                    cpus: order.cpus,
                    control_group: format!("{}/{}", parent.unwrap_or(""), container.id),
                    memory: MemoryGrant::to_lock(),
                },
            )?;
            command
                .arg("--root")
                .arg(container.runtime_state())
                .arg("run")
                .arg("--bundle")
                .arg(&order.directory)
                .arg("--pid-file")
                .arg(container.process_file())
                .arg(&container.id);
        } else {
            command.args(engine.options());
            command.args(arguments(order, &container.id, kind, parent)?);
        }
        Ok((container, command))
    }

    /// Returns a container from the record of the supervisor that started it.
    #[must_use]
    pub fn left(name: &str, kind: ContainerEngine, program: PathBuf, directory: PathBuf) -> Self {
        Self {
            kind,
            program,
            id: format!("rampart-{name}"),
            directory,
        }
    }

    /// Returns the container's engine.
    #[must_use]
    pub fn engine(&self) -> ContainerEngine {
        self.kind
    }

    /// Returns the program of the runtime or engine.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Returns whether the container's control group is below the requested one.
    #[must_use]
    pub fn takes_parent(&self) -> bool {
        Engine::find(self.kind, rampart_host::control_group_layout())
            .is_ok_and(|engine| engine.takes_parent())
    }

    /// Waits for the container's first process. Returns `None` if there is no process within
    /// `limit`, or if `gone` reports that the container's command has ended.
    pub fn process(&self, limit: Duration, mut gone: impl FnMut() -> bool) -> Option<u32> {
        let begin = Instant::now();
        loop {
            let text = match self.kind {
                ContainerEngine::Embedded => fs::read_to_string(self.process_file()).ok(),
                ContainerEngine::Podman | ContainerEngine::Docker => helper_program::run(
                    &self.program,
                    &["inspect", "--format", "{{.State.Pid}}", &self.id],
                )
                .ok(),
            };
            let process = text.and_then(|text| text.trim().parse().ok());
            if let Some(process) = process.filter(|process| *process > 0) {
                return Some(process);
            }
            if gone() || begin.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Makes the engine end the container. After `limit` the engine kills the container.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn stop(&self, limit: Duration) -> Result<(), DomainError> {
        if self.kind == ContainerEngine::Embedded {
            // The caller waits for the process and so gets the result.
            let root = self.runtime_state().display().to_string();
            return helper_program::run(
                &self.program,
                &["--root", &root, "kill", &self.id, "TERM"],
            )
            .map(drop);
        }
        let seconds = limit.as_secs().max(1).to_string();
        let mut command = Command::new(&self.program);
        command.args(["stop", "--time", &seconds, &self.id]);
        helper_program::finish_within(command, limit + Duration::from_secs(20)).map(drop)
    }

    /// Removes the container, running or not, and its directory. A missing container is no error.
    ///
    /// # Errors
    /// If the engine fails.
    pub fn remove(&self) -> Result<(), DomainError> {
        let id = self.id.as_str();
        match self.kind {
            ContainerEngine::Embedded => {
                let root = self.runtime_state();
                if root.join(id).exists() {
                    let root = root.display().to_string();
                    helper_program::persist(
                        &self.program,
                        &["--root", &root, "delete", "--force", id],
                    )?;
                }
            }
            ContainerEngine::Podman => {
                let arguments = ["rm", "--force", "--ignore", "--time", "0", id];
                helper_program::persist(&self.program, &arguments)?;
            }
            ContainerEngine::Docker => {
                // For docker a missing container is an error.
                let _ = helper_program::run(&self.program, &["rm", "--force", id]);
            }
        }
        match fs::remove_dir_all(&self.directory) {
            Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => Err(DomainError::file(
                "remove the directory",
                &self.directory,
            )(cause)),
            _ => Ok(()),
        }
    }

    fn runtime_state(&self) -> PathBuf {
        self.directory.join("runtime")
    }

    fn process_file(&self) -> PathBuf {
        self.directory.join("process")
    }
}

fn cannot(order: &ContainerOrder<'_>, what: &str, fix: &str) -> DomainError {
    DomainError::Unavailable(
        Finding::new(Severity::Error, format!("domain {}", order.name), what).fix(fix),
    )
}

/// Returns the root directory of a container without an engine.
fn runnable_root(order: &ContainerOrder<'_>) -> Result<PathBuf, DomainError> {
    let Some(root) = &order.source.rootfs else {
        return Err(cannot(
            order,
            "the container has neither an image nor a root directory",
            "write container = { rootfs = \"DIRECTORY\" }, or { engine = \"podman\", image = \"NAME\" }",
        ));
    };
    if order.run.is_empty() {
        return Err(cannot(
            order,
            "a container with a root directory needs a program to run",
            "write run = [\"/path/inside\"]",
        ));
    }
    fs::canonicalize(root).map_err(DomainError::file("find the root directory", root))
}

/// Returns the arguments for podman and docker.
fn arguments(
    order: &ContainerOrder<'_>,
    id: &str,
    kind: ContainerEngine,
    parent: Option<&str>,
) -> Result<Vec<String>, DomainError> {
    let mut list: Vec<String> = ["run", "--name", id, "--rm", "--log-driver", "none"]
        .map(str::to_owned)
        .to_vec();
    let mut add = |words: &[&str]| list.extend(words.iter().map(|&word| word.to_owned()));
    match MemoryGrant::to_lock() {
        MemoryGrant::Capability => add(&["--cap-add", "IPC_LOCK"]),
        _ => add(&["--ulimit", "memlock=-1:-1"]),
    }
    // Without the parent the container has to be moved into its group afterwards, and the engine's
    // own group may not have the CPUs.
    if let Some(parent) = parent {
        add(&["--cpuset-cpus", &order.cpus.to_string()]);
        add(&["--cgroup-parent", parent]);
    }
    match (&order.source.image, &order.source.rootfs) {
        (Some(image), _) => add(&[image]),
        (None, Some(root)) if kind == ContainerEngine::Podman => add(&["--rootfs", root]),
        (None, Some(_)) => {
            return Err(cannot(
                order,
                "docker runs only images, not root directories",
                "write { engine = \"podman\", rootfs = … }, or import the directory: tar -C DIRECTORY -c . | docker import - NAME",
            ));
        }
        (None, None) => {
            return Err(cannot(
                order,
                "the container has neither an image nor a root directory",
                "write container = { engine = \"podman\", image = \"NAME\" }",
            ));
        }
    }
    list.extend(order.run.iter().cloned());
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order<'a>(
        source: &'a ContainerSource,
        run: &'a [String],
        cpus: &'a CpuSet,
    ) -> ContainerOrder<'a> {
        ContainerOrder {
            name: "logger",
            source,
            run,
            cpus,
            parent: Some("/rampart-logger".to_owned()),
            directory: "/nowhere".into(),
        }
    }

    #[test]
    fn passes_image_cpus_and_group_to_the_engine() {
        let source = ContainerSource {
            engine: Some(ContainerEngine::Podman),
            image: Some("registry.example/logger:1".to_owned()),
            rootfs: None,
        };
        let (run, cpus) = (["log".to_owned()], "2-3".parse().expect("CPUs"));
        let order = order(&source, &run, &cpus);
        let words = |parent| {
            arguments(&order, "rampart-logger", ContainerEngine::Podman, parent)
                .expect("arguments")
                .join(" ")
                .replace("--ulimit memlock=-1:-1", "LOCK")
                .replace("--cap-add IPC_LOCK", "LOCK")
        };
        assert_eq!(
            words(Some("/rampart-logger")),
            "run --name rampart-logger --rm --log-driver none LOCK \
             --cpuset-cpus 2-3 --cgroup-parent /rampart-logger registry.example/logger:1 log"
        );
        assert!(!words(None).contains("cpuset"));
    }

    #[test]
    fn refuses_unsupported_sources_with_a_fix() {
        let root = ContainerSource {
            engine: None,
            image: None,
            rootfs: Some("/srv".to_owned()),
        };
        let cpus = CpuSet::new();
        let nothing = order(&root, &[], &cpus);
        let docker = arguments(&nothing, "id", ContainerEngine::Docker, None);
        assert!(
            docker
                .expect_err("refused")
                .to_string()
                .contains("docker import")
        );
        let no_program = runnable_root(&nothing).expect_err("no program");
        assert!(no_program.to_string().contains("run = ["), "{no_program}");
        let empty = ContainerSource::default();
        let no_source = order(&empty, &[], &cpus);
        assert!(runnable_root(&no_source).is_err());
        assert!(arguments(&no_source, "id", ContainerEngine::Podman, None).is_err());
    }
}
