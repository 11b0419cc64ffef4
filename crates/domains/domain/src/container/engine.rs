// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds container runtimes and engines, and builds their command lines.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rampart_model::{ContainerEngine, CpuSet, Finding, Machine, Severity};
use rampart_rules::{CONTAINER_NEEDS_ROOT, Package};
use rustix::process::Resource;

use super::bundle::METER_PATH;
use super::container_directories::Container;
use super::helper_program;
use crate::{DomainError, install_command};

/// Time limit for a runtime to write the container's process id.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(10);

/// The privilege with which the meter may lock its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryGrant {
    /// It does not lock memory.
    Nothing,
    /// An unlimited `RLIMIT_MEMLOCK`, the weakest sufficient grant.
    Limit,
    /// `CAP_IPC_LOCK`, if this process may not raise the limit (no `CAP_SYS_RESOURCE`).
    Capability,
}

impl MemoryGrant {
    /// Returns the grant for a meter that locks its memory and is started by a child of this
    /// process.
    pub(super) fn to_lock() -> Self {
        let hard = rustix::process::getrlimit(Resource::Memlock).maximum;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        if hard.is_none() || may_raise_limits(&status) {
            Self::Limit
        } else {
            Self::Capability
        }
    }
}

/// Returns whether `CAP_SYS_RESOURCE` (24 of include/uapi/linux/capability.h) is in effect.
fn may_raise_limits(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << 24 != 0)
}

/// A program that can run a container here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Engine {
    /// Its kind.
    pub(super) kind: ContainerEngine,
    /// The program.
    pub(super) program: PathBuf,
    /// Its name and version, for example `runc 1.1.5`.
    pub(super) version: String,
    /// Whether it filters system calls.
    pub(super) seccomp: bool,
    /// Options before the command, for podman.
    options: Vec<String>,
    /// Whether it accepts any control group as a parent; with systemd it accepts only slices.
    takes_parent: bool,
}

/// Options of an engine for one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RunOptions {
    /// The CPUs of its control group; `None` for the engine's default.
    pub(super) cpus: Option<CpuSet>,
    /// The control group above its own; `None` for the engine's default.
    pub(super) parent: Option<String>,
    /// The grant to lock memory.
    pub(super) memory: MemoryGrant,
    /// Limit of open files.
    pub(super) open_files: u64,
    /// Limit of processes and threads of its user.
    pub(super) processes: u64,
}

/// Returns `wanted`, or this process's hard limit of `resource` if that is lower: raising it needs
/// `CAP_SYS_RESOURCE`.
pub(super) fn within_our_limit(resource: Resource, wanted: u64) -> u64 {
    let hard = rustix::process::getrlimit(resource).maximum;
    hard.map_or(wanted, |hard| hard.min(wanted))
}

impl Engine {
    /// Finds a program for `kind` that works here.
    pub(super) fn find(kind: ContainerEngine, control_groups: &str) -> Result<Self, Box<Finding>> {
        match kind {
            ContainerEngine::Embedded => embedded(control_groups),
            ContainerEngine::Podman => podman(control_groups),
            ContainerEngine::Docker => docker(control_groups),
        }
    }

    /// Returns whether a container can be started below a control group of Rampart's.
    pub(super) fn takes_parent(&self) -> bool {
        self.takes_parent
    }

    /// Returns the options before any command.
    pub(super) fn options(&self) -> &[String] {
        &self.options
    }

    /// Returns the command that runs the container in the foreground, with the meter's streams.
    pub(super) fn run(&self, container: &Container, options: &RunOptions) -> Command {
        let mut command = Command::new(&self.program);
        match self.kind {
            ContainerEngine::Embedded => {
                command
                    .arg("--root")
                    .arg(container.runtime_state())
                    .arg("run")
                    .arg("--bundle")
                    .arg(&container.directory)
                    .arg("--pid-file")
                    .arg(container.process_file())
                    .arg(&container.record.id);
            }
            ContainerEngine::Podman => {
                command.args(&self.options);
                command.args(run_arguments(&container.record.id, options));
                command.args([
                    "--log-driver",
                    "none",
                    "--read-only-tmpfs=false",
                    "--rootfs",
                ]);
                command.arg(container.directory.join("rootfs"));
                command.arg(METER_PATH);
            }
            ContainerEngine::Docker => {
                command.args(run_arguments(&container.record.id, options));
                command.args(["--log-driver", "none", "--pull", "never"]);
                command.arg(container.image());
                command.arg(METER_PATH);
            }
        }
        command
    }

    /// Creates what the engine needs before [`Engine::run`] besides the root file system.
    pub(super) fn prepare(&self, container: &Container) -> Result<(), DomainError> {
        if self.kind != ContainerEngine::Docker {
            return Ok(());
        }
        // docker accepts no directory as a root, so the root becomes a local image.
        let archive = container.directory.join("rootfs.tar");
        let mut tar = Command::new("tar");
        tar.arg("-C")
            .arg(container.directory.join("rootfs"))
            .args(["--owner=0", "--group=0", "-cf"])
            .arg(&archive)
            .arg(".")
            .stdin(Stdio::null());
        helper_program::finish(tar)?;
        let archive = archive.display().to_string();
        helper_program::run(&self.program, &["import", &archive, &container.image()])?;
        Ok(())
    }

    /// Returns the container's first process, as this process numbers it.
    pub(super) fn process(&self, container: &Container) -> Result<u32, DomainError> {
        let id = &container.record.id;
        let (text, location) = match self.kind {
            ContainerEngine::Embedded => {
                let path = container.process_file();
                (read_process_file(&path)?, path)
            }
            ContainerEngine::Podman | ContainerEngine::Docker => {
                let arguments = ["inspect", "--format", "{{.State.Pid}}", id];
                let text = helper_program::run(&self.program, &arguments)?;
                (text, self.program.clone())
            }
        };
        match text.trim().parse() {
            Ok(process) if process > 0 => Ok(process),
            _ => Err(DomainError::File {
                action: "read the container's process from",
                path: location,
                source: std::io::Error::other(format!("`{}` is no process", text.trim())),
            }),
        }
    }
}

/// Waits for the file that the runtime renames into place after it has started the container; the
/// meter inside may answer before.
fn read_process_file(path: &Path) -> Result<String, DomainError> {
    let begin = Instant::now();
    loop {
        match std::fs::read_to_string(path) {
            Ok(text) => return Ok(text),
            Err(error)
                if error.kind() == std::io::ErrorKind::NotFound
                    && begin.elapsed() < PROCESS_TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(error) => {
                return Err(DomainError::file("read the container's process from", path)(error));
            }
        }
    }
}

/// Returns the arguments that podman and docker share.
fn run_arguments(id: &str, options: &RunOptions) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "run",
        "--name",
        id,
        "--rm",
        "--interactive",
        "--network",
        "none",
        "--read-only",
        "--cap-drop",
        "all",
        "--security-opt",
        "no-new-privileges",
    ]
    .map(str::to_owned)
    .to_vec();
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|&word| word.to_owned()));
    // Engines raise these two to their own maximum, which may exceed the limit here.
    for (name, most) in [("nofile", options.open_files), ("nproc", options.processes)] {
        add(&["--ulimit", &format!("{name}={most}:{most}")]);
    }
    match options.memory {
        MemoryGrant::Nothing => add(&["--user", "65534:65534"]),
        MemoryGrant::Limit => add(&["--user", "65534:65534", "--ulimit", "memlock=-1:-1"]),
        // Without ambient capabilities in the engine, only root gets a capability.
        MemoryGrant::Capability => add(&["--user", "0:0", "--cap-add", "IPC_LOCK"]),
    }
    if let Some(cpus) = &options.cpus {
        add(&["--cpuset-cpus", &cpus.to_string()]);
    }
    if let Some(parent) = &options.parent {
        add(&["--cgroup-parent", parent]);
    }
    arguments
}

/// Returns `runc 1.1.5` from the first line of `runc --version`.
fn version(name: &str, answer: &str) -> String {
    let number = answer
        .lines()
        .next()
        .and_then(|line| line.split_once("version "))
        .and_then(|(_, rest)| rest.split([' ', ',']).next())
        .unwrap_or("of unknown version");
    format!("{name} {number}")
}

fn missing(name: &str, package: Package) -> Box<Finding> {
    Box::new(
        Finding::new(Severity::Error, name, "the program is not installed")
            .fix(install_command(package)),
    )
}

fn not_usable(program: &Path, error: &DomainError, fix: impl Into<String>) -> Box<Finding> {
    Box::new(
        Finding::new(
            Severity::Error,
            program.display().to_string(),
            format!("the program does not work: {error}"),
        )
        .fix(fix),
    )
}

/// Finds `runc`, or else `crun` unless cgroup v1 and v2 are mounted side by side, which it refuses.
fn embedded(control_groups: &str) -> Result<Engine, Box<Finding>> {
    let mut reason = missing("runc", Package::ContainerRuntime);
    for name in ["runc", "crun"] {
        let Some(program) = helper_program::find(name) else {
            continue;
        };
        if name == "crun" && control_groups == "hybrid" {
            reason = Box::new(
                Finding::new(
                    Severity::Error,
                    program.display().to_string(),
                    "crun refuses control groups of version 1 and 2 side by side, and runc is not installed",
                )
                .values("hybrid", "v1 or v2 alone")
                .fix(install_command(Package::ContainerRuntime)),
            );
            continue;
        }
        match helper_program::run(&program, &["--version"]) {
            Ok(answer) => {
                return Ok(Engine {
                    kind: ContainerEngine::Embedded,
                    program,
                    version: version(name, &answer),
                    seccomp: filters(&answer),
                    options: Vec::new(),
                    takes_parent: true,
                });
            }
            Err(error) => {
                let fix = install_command(Package::ContainerRuntime);
                reason = not_usable(&program, &error, fix);
            }
        }
    }
    Err(reason)
}

/// Returns whether the answer to `--version` names libseccomp (`runc`) or `+SECCOMP` (`crun`).
fn filters(answer: &str) -> bool {
    answer.contains("libseccomp") || answer.contains("+SECCOMP")
}

fn podman(control_groups: &str) -> Result<Engine, Box<Finding>> {
    let program =
        helper_program::find("podman").ok_or_else(|| missing("podman", Package::Podman))?;
    let answer = helper_program::run(&program, &["--version"])
        .map_err(|error| not_usable(&program, &error, install_command(Package::Podman)))?;
    let systemd = Path::new("/run/systemd/system").exists();
    let mut options = Vec::new();
    // systemd cannot name a shield's group; without systemd podman creates groups itself.
    let takes_parent = control_groups != "v2" || !systemd;
    if takes_parent {
        options.extend(["--cgroup-manager", "cgroupfs"].map(str::to_owned));
    }
    if control_groups == "hybrid" {
        let runc = helper_program::find("runc").ok_or_else(|| {
            Box::new(
                Finding::new(
                    Severity::Error,
                    "runc",
                    "podman's own runtime refuses control groups of version 1 and 2 side by side",
                )
                .values("not installed", "runc")
                .fix(install_command(Package::ContainerRuntime)),
            )
        })?;
        options.extend(["--runtime".to_owned(), runc.display().to_string()]);
    }
    Ok(Engine {
        kind: ContainerEngine::Podman,
        version: version("podman", &answer),
        program,
        seccomp: true,
        options,
        takes_parent,
    })
}

fn docker(control_groups: &str) -> Result<Engine, Box<Finding>> {
    const FIX: &str = "systemctl start docker";
    let program =
        helper_program::find("docker").ok_or_else(|| missing("docker", Package::Docker))?;
    let format = "{{.ServerVersion}} {{.CgroupDriver}}";
    let answer = helper_program::run(&program, &["info", "--format", format]).map_err(|error| {
        Box::new(
            Finding::new(
                Severity::Error,
                program.display().to_string(),
                format!("the docker daemon does not answer: {error}"),
            )
            .fix(FIX),
        )
    })?;
    let (version, driver) = answer.trim().split_once(' ').unwrap_or((answer.trim(), ""));
    // Some releases answer with an empty version, and success, if no daemon runs.
    if version.is_empty() {
        return Err(Box::new(
            Finding::new(
                Severity::Error,
                program.display().to_string(),
                "the docker daemon does not answer",
            )
            .fix(FIX),
        ));
    }
    Ok(Engine {
        kind: ContainerEngine::Docker,
        version: format!("docker {version}"),
        takes_parent: driver == "cgroupfs" && control_groups != "v2",
        program,
        seccomp: true,
        options: Vec::new(),
    })
}

/// Returns the engine of this kind, if it can run containers here, with the findings about it.
pub(super) fn availability(
    kind: ContainerEngine,
    machine: &Machine,
) -> (Option<Engine>, Vec<Finding>) {
    let mut findings = Vec::new();
    let engine = match Engine::find(kind, &machine.control_groups) {
        Ok(engine) => Some(engine),
        Err(finding) => {
            findings.push(*finding);
            None
        }
    };
    let user = rustix::process::geteuid();
    if !user.is_root() {
        findings.push(
            CONTAINER_NEEDS_ROOT
                .finding("privilege", "placing the threads of a container needs root")
                .values(format!("user {}", user.as_raw()), "root")
                .fix("run the same command with sudo"),
        );
        return (None, findings);
    }
    if let Some(engine) = &engine
        && !engine.seccomp
    {
        findings.push(
            Finding::new(
                Severity::Note,
                engine.program.display().to_string(),
                "this build has no seccomp support, so system calls are not filtered",
            )
            .fix("install a build with libseccomp"),
        );
    }
    (engine, findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_host::StateDirectory;

    fn engine(kind: ContainerEngine) -> Engine {
        Engine {
            kind,
            program: "/usr/bin/engine".into(),
            version: "engine 1".to_owned(),
            seccomp: true,
            options: vec!["--cgroup-manager".to_owned(), "cgroupfs".to_owned()],
            takes_parent: true,
        }
    }

    fn line(kind: ContainerEngine, memory: MemoryGrant, parent: Option<&str>) -> String {
        let directory = tempfile::tempdir().expect("directory");
        let state = StateDirectory::at(directory.path());
        // An engine that does not exist, because removing the container must not start one.
        let container = Container::create(&state, ContainerEngine::Embedded, Path::new("/nowhere"))
            .expect("container");
        let (id, path) = (container.record.id.clone(), container.directory.clone());
        let options = RunOptions {
            cpus: parent.map(|_| "2-3".parse().expect("cpus")),
            parent: parent.map(str::to_owned),
            memory,
            open_files: 1024,
            processes: 4096,
        };
        let command = engine(kind).run(&container, &options);
        let words: Vec<String> = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        words
            .join(" ")
            .replace(&path.display().to_string(), "DIRECTORY")
            .replace(&id, "ID")
    }

    #[test]
    fn builds_the_embedded_command() {
        assert_eq!(
            line(ContainerEngine::Embedded, MemoryGrant::Limit, Some("/s")),
            "--root DIRECTORY/runtime run --bundle DIRECTORY --pid-file DIRECTORY/process ID"
        );
    }

    #[test]
    fn builds_the_podman_command() {
        assert_eq!(
            line(ContainerEngine::Podman, MemoryGrant::Limit, Some("/shield")),
            "--cgroup-manager cgroupfs run --name ID --rm --interactive --network none \
             --read-only --cap-drop all --security-opt no-new-privileges --ulimit \
             nofile=1024:1024 --ulimit nproc=4096:4096 --user 65534:65534 --ulimit memlock=-1:-1 --cpuset-cpus 2-3 \
             --cgroup-parent /shield --log-driver none --read-only-tmpfs=false --rootfs \
             DIRECTORY/rootfs /rampart-meter"
        );
    }

    #[test]
    fn builds_the_docker_command() {
        assert_eq!(
            line(ContainerEngine::Docker, MemoryGrant::Capability, None),
            "run --name ID --rm --interactive --network none --read-only --cap-drop all \
             --security-opt no-new-privileges --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
             --user 0:0 --cap-add \
             IPC_LOCK --log-driver none --pull never rampart-meter:ID /rampart-meter"
        );
    }

    #[test]
    fn reads_versions() {
        assert_eq!(
            version("runc", "runc version 1.1.5+ds1\ncommit: 1"),
            "runc 1.1.5+ds1"
        );
        assert_eq!(version("crun", "crun version 1.8.1\n"), "crun 1.8.1");
        assert_eq!(version("x", "nonsense"), "x of unknown version");
        assert!(filters("libseccomp: 2.5.4") && filters("+SYSTEMD +SECCOMP"));
        assert!(!filters("runc version 1.1.5"));
    }

    #[test]
    fn chooses_the_grant_by_privilege() {
        assert!(may_raise_limits("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_raise_limits("CapEff:\t000001fffeffffff\n"));
        assert!(!may_raise_limits(""));
    }
}
