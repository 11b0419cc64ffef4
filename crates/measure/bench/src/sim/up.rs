// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One machine that several commands share: `sim up` runs it, `sim run` and `sim shell` join it.
//!
//! A command that joins connects to an agent inside over a socket of QEMU, without the process of
//! `sim up`. A lock for each socket prevents that two commands use the same agent.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError, AgentProcess};
use rampart_qemu::last_lines;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::architecture::Architecture;
use super::arguments::{AGENTS, port_name};
use super::cache::{Cache, lock_directory};
use super::error::SimError;
use super::running_machine::Sim;
use crate::monitor::monitor;

/// How long an agent may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// How long the removal of a command's files inside may take.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// How long `sim up` may take to end its machine.
const DOWN_LIMIT: Duration = Duration::from_secs(20);

/// Content of the file `up-ARCHITECTURE` in the cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UpFile {
    process: u32,
    directory: PathBuf,
}

impl UpFile {
    /// Reads the file. Returns `None` if no machine is up.
    fn read(cache: &Cache, architecture: &Architecture) -> Result<Option<Self>, SimError> {
        let path = cache.up(architecture);
        let Ok(text) = fs::read_to_string(&path) else {
            return Ok(None);
        };
        let up: Self = serde_json::from_str(&text)
            .map_err(|error| SimError::Image(format!("{}: {error}", path.display())))?;
        // Without a lock, `sim up` was killed, and its number may be that of another process.
        let is_locked = match lock_directory(&up.directory, FlockOperation::NonBlockingLockShared) {
            Ok(_) => false,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        };
        Ok(is_locked.then_some(up))
    }
}

/// A machine that other commands may join. Dropping it ends the machine.
#[derive(Debug)]
pub struct Up {
    path: PathBuf,
    sim: Sim,
    _agents: Vec<AgentProcess>,
}

impl Up {
    /// Checks that no machine of this architecture is up.
    ///
    /// # Errors
    /// Returns [`SimError::AlreadyUp`] if one is up.
    pub fn refuse_second(architecture: &'static Architecture) -> Result<(), SimError> {
        match UpFile::read(&Cache::of_this_user()?, architecture)? {
            Some(up) => Err(SimError::AlreadyUp {
                architecture,
                process: up.process,
            }),
            None => Ok(()),
        }
    }

    /// Admits other commands to a machine.
    ///
    /// # Errors
    /// Returns an error if another of its architecture is up, or the machine is lost.
    pub fn hold(sim: Sim) -> Result<Self, SimError> {
        let cache = Cache::of_this_user()?;
        let architecture = sim.architecture();
        if architecture.devices.agents() == 1 {
            return Err(SimError::Options(format!(
                "sim up: {architecture} has one agent, so no other command can join it; fix: use `sim run` \
                 or `--on {}`",
                architecture.bench_name()
            )));
        }
        let path = cache.up(architecture);
        let _turn = cache.lock_for_coming_up(architecture)?;
        Self::refuse_second(architecture)?;
        let agents = sim.serve_others()?;
        let up = UpFile {
            process: std::process::id(),
            directory: sim.directory().to_owned(),
        };
        let text = serde_json::to_string(&up)
            .map_err(|error| SimError::Image(format!("{}: {error}", path.display())))?;
        rampart_host::replace_file(&path, text.as_bytes())
            .map_err(SimError::file("write", &path))?;
        Ok(Self {
            path,
            sim,
            _agents: agents,
        })
    }

    /// Returns the machine.
    #[must_use]
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Ends the `sim up` of this architecture with SIGTERM, and waits for it.
    ///
    /// # Errors
    /// Returns [`SimError::NoneUp`] if none is up, and an error if it does not end.
    pub fn take_down(architecture: &'static Architecture) -> Result<(), SimError> {
        let cache = Cache::of_this_user()?;
        let none = || SimError::NoneUp { architecture };
        let up = UpFile::read(&cache, architecture)?.ok_or_else(none)?;
        let holder = i32::try_from(up.process).ok().and_then(Pid::from_raw);
        let holder = holder.ok_or_else(none)?;
        kill_process(holder, Signal::TERM).map_err(|error| {
            SimError::file("signal the process of", &up.directory)(error.into())
        })?;
        let deadline = Instant::now() + DOWN_LIMIT;
        while UpFile::read(&cache, architecture)?.is_some_and(|now| now == up) {
            if Instant::now() > deadline {
                return Err(SimError::Image(format!(
                    "process {holder} has not ended its simulated machine in {} s; fix: kill -9 {holder}",
                    DOWN_LIMIT.as_secs()
                )));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        // A file that remains is harmless, because its directory is not locked.
        let _ = fs::remove_file(&self.path);
    }
}

/// A machine that another process runs.
#[derive(Debug)]
pub struct Joined {
    agent: Agent,
    architecture: &'static Architecture,
    directory: PathBuf,
    /// Number of the agent, which no other command uses meanwhile.
    number: usize,
    /// The directory inside, once it is used.
    own_directory: OnceLock<String>,
    _lock: File,
}

impl Joined {
    /// Joins the machine of this architecture that is up. Returns `None` if none is up.
    ///
    /// # Errors
    /// Returns an error if all its agents are in use, or its agent does not answer.
    pub fn join(architecture: &'static Architecture) -> Result<Option<Self>, SimError> {
        let Some(up) = UpFile::read(&Cache::of_this_user()?, architecture)? else {
            return Ok(None);
        };
        for number in 1..AGENTS {
            let name = port_name(number);
            if let Some(lock) = try_lock(&up.directory.join(format!("{name}.lock")))? {
                let path = up.directory.join(name);
                let stream =
                    UnixStream::connect(&path).map_err(SimError::file("connect to", &path))?;
                return Ok(Some(Self {
                    agent: Agent::connect(stream, TIMEOUT)?,
                    architecture,
                    directory: up.directory,
                    number,
                    own_directory: OnceLock::new(),
                    _lock: lock,
                }));
            }
        }
        Err(SimError::Busy { limit: AGENTS - 1 })
    }

    /// Returns the agent, which starts programs inside.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the architecture of the machine.
    #[must_use]
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Returns the directory inside for the files of this command. It is removed when this value
    /// is dropped; the files of a killed command are replaced by the next that uses the same agent.
    pub(crate) fn own_directory(&self) -> &str {
        self.own_directory
            .get_or_init(|| format!("/tmp/rampart-bench-{}", self.number))
    }

    /// Converts an error of the agent: into [`SimError::Ended`] if the machine was lost.
    #[must_use]
    pub fn explain(&self, error: AgentError) -> SimError {
        if !matches!(error, AgentError::Lost(_)) {
            return SimError::Agent(error);
        }
        SimError::Ended {
            how: "see the output of its `rampart sim up`".to_owned(),
            console: last_lines(&self.directory.join("console.log"), 20).unwrap_or_default(),
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        let Some(directory) = self.own_directory.get() else {
            return;
        };
        // This fails if the machine is lost, and the files with it.
        if let Ok(process) = self
            .agent
            .spawn(&AgentCommand::new(["rm", "-rf", directory]))
        {
            let (streams, process) = monitor(process);
            drop(streams);
            let _ = process.wait(REMOVAL_LIMIT);
        }
    }
}

fn try_lock(path: &Path) -> Result<Option<File>, SimError> {
    let file = File::create(path).map_err(SimError::file("create", path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(SimError::file("lock", path)(error.into())),
    }
}
