// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Starts the emulator: a machine boots, or continues from a saved one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError, MemoryConnection};
use rampart_qemu::{Qemu, QemuCommand, escaped};

use super::architecture::{Architecture, BoardTree, Devices};
use super::arguments::{BootFiles, machine_arguments, port_name, qemu_arguments};
use super::board_memory::BoardMemory;
use super::cache::{Cache, RunDirectory};
use super::disk::Disk;
use super::error::SimError;
use super::image::Image;
use super::options::SimOptions;
use super::running_machine::TAIL;
use super::snapshot::{Absent, KeyBuilder, Memory, Snapshot, Snapshots};
use super::watch::{Loss, Losses, POLL_INTERVAL};
use super::{board_tree, emulator, initramfs};

/// Time limit for the agent of a restored machine to answer, which it does in milliseconds on an idle machine.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What QEMU is started with.
#[derive(Debug)]
pub(super) struct Start<'a> {
    options: &'a SimOptions,
    emulator: QemuCommand,
    arguments: Vec<OsString>,
    board: Option<BoardMemory>,
    has_disk: bool,
    snapshots: Snapshots,
    /// The name of its snapshot; `None` if the machine is not to be saved.
    key: Option<String>,
    directory: RunDirectory,
}

/// A machine whose agent answers.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) qemu: Qemu,
    pub(super) agent: Agent,
    /// The connection to the agent of a board.
    pub(super) connection: Option<MemoryConnection>,
    /// Whether it was restored.
    pub(super) is_restored: bool,
    /// What a person should know, such as a snapshot that was damaged.
    pub(super) notes: Vec<String>,
}

impl<'a> Start<'a> {
    /// Writes the files of a machine.
    pub(super) fn prepare(image: &Image, options: &'a SimOptions) -> Result<Self, SimError> {
        let architecture = options.architecture;
        let disk = options.disk.as_ref();
        let disk = disk.map(|path| Disk::open(path, &options.machine_line()));
        let disk = disk.transpose()?;
        let line = match &disk {
            Some(disk) => options.with_append(&disk.kernel_command_line()?),
            None => options.kernel_command_line(),
        };
        let cache = Cache::of_this_user()?;
        let directory = cache.running()?;
        let archive = directory.path().join("initramfs");
        initramfs::write(&archive, image, options)?;
        let emulator = emulator::command(&cache, architecture)?;
        let tree = match (&architecture.tree, architecture.smmu) {
            (Some(tree), _) => Some(write_tree(directory.path(), image, tree)?),
            (None, Some(smmu)) => Some(write_own_tree(directory.path(), &emulator, options, smmu)?),
            (None, None) => None,
        };
        let board = match architecture.devices {
            Devices::Board { memory, .. } => Some(BoardMemory::new(options.mebibytes, memory)?),
            Devices::Virtio(_) => None,
        };
        let memory_path = board.as_ref().map(BoardMemory::path);
        let firmware = architecture.firmware;
        let firmware = firmware.map(|firmware| options.firmware_file(firmware));
        let firmware = firmware.transpose()?;
        let initramfs = fs::metadata(&archive).map_err(SimError::file("read", &archive))?;
        let files = BootFiles {
            kernel: &image.kernel(),
            initramfs: &archive,
            root: &image.root(),
            directory: directory.path(),
            disk: disk.as_ref().map(Disk::path),
            firmware: architecture
                .firmware
                .zip(firmware.as_deref())
                .map(|(firmware, path)| (firmware, path, initramfs.len())),
            tree: tree.as_deref(),
            memory: memory_path.as_deref(),
            line: &line,
        };
        let arguments = qemu_arguments(options, &files);
        let mut key = None;
        if options.can_be_saved() {
            let mut builder = KeyBuilder::new(&emulator);
            builder.add_arguments(&arguments, directory.path());
            for file in [image.kernel(), image.root()].into_iter().chain(firmware) {
                builder.add_file(&file);
            }
            // A tree that QEMU writes depends on what is in the key already, and on random numbers.
            builder.add(&fs::read(&archive).map_err(SimError::file("read", &archive))?);
            key = Some(builder.finish());
        }
        Ok(Self {
            options,
            emulator,
            arguments,
            board,
            has_disk: disk.is_some(),
            snapshots: cache.snapshots(),
            key,
            directory,
        })
    }

    /// Returns the directory of the machine, and whether it has a disk.
    pub(super) fn into_directory(self) -> (RunDirectory, bool) {
        (self.directory, self.has_disk)
    }

    /// Starts the machine.
    pub(super) fn run(&self) -> Result<Started, SimError> {
        let mut notes = Vec::new();
        let restored = match &self.key {
            Some(key) => self.restore_or_make(key, &mut notes)?,
            None => None,
        };
        let is_restored = restored.is_some();
        let (qemu, agent, connection) = match restored {
            Some((qemu, agent)) => (qemu, agent, None),
            None => self.boot(None)?,
        };
        Ok(Started {
            qemu,
            agent,
            connection,
            is_restored,
            notes,
        })
    }

    /// Continues from the saved machine, which is made if there is none. Returns `None` if it cannot be made or used,
    /// with the reason in `notes`.
    fn restore_or_make(
        &self,
        key: &str,
        notes: &mut Vec<String>,
    ) -> Result<Option<(Qemu, Agent)>, SimError> {
        if let Some(restored) = self.restore(key, notes) {
            return Ok(Some(restored));
        }
        let Some(_lock) = self.lock_for_making(key, notes)? else {
            return Ok(None);
        };
        // Another process may have made it meanwhile.
        if let Some(restored) = self.restore(key, notes) {
            return Ok(Some(restored));
        }
        if let Err(error) = self.make(key)? {
            notes.push(format!("{error}; it is booted instead"));
            return Ok(None);
        }
        Ok(self.restore(key, notes))
    }

    /// Takes the lock for making the snapshot. Returns `None` if the machine has to be booted without one.
    fn lock_for_making(
        &self,
        key: &str,
        notes: &mut Vec<String>,
    ) -> Result<Option<File>, SimError> {
        let limit = self.options.boot_timeout;
        let lock = self.snapshots.lock_for_making(key, limit)?;
        if lock.is_none() {
            let seconds = limit.as_secs();
            notes.push(format!(
                "another process has not saved this machine within {seconds} s; it is booted instead"
            ));
            return Ok(None);
        }
        if !self.snapshots.has_space(self.options.mebibytes) {
            notes
                .push("the disk has no space for a saved machine; it is booted instead".to_owned());
            return Ok(None);
        }
        Ok(lock)
    }

    /// Continues from a saved machine. Returns `None` if there is none, or if it cannot be used; it is removed then,
    /// with the reason in `notes`.
    fn restore(&self, key: &str, notes: &mut Vec<String>) -> Option<(Qemu, Agent)> {
        let snapshot = match self.snapshots.open(key) {
            Ok(snapshot) => snapshot,
            Err(Absent::NotMade) => return None,
            Err(Absent::Damaged(reason)) => {
                notes.push(discarded(&reason));
                return None;
            }
        };
        match self.continue_from(&snapshot) {
            Ok((qemu, agent, problem)) => {
                if !problem.is_empty() {
                    notes.push(format!("the restored machine: {problem}"));
                }
                Some((qemu, agent))
            }
            Err(reason) => {
                snapshot.discard();
                notes.push(discarded(&reason));
                None
            }
        }
    }

    /// Starts QEMU with a saved machine. Returns also what the agent could not adjust.
    fn continue_from(&self, snapshot: &Snapshot) -> Result<(Qemu, Agent, String), String> {
        let ram = snapshot.ram();
        let (qemu, stream) = self.emulate(Some(Memory::Restored(&ram))).map_err(text)?;
        snapshot.restore(&qemu)?;
        let architecture = self.options.architecture;
        let agent = wait_until_up(architecture, &qemu, stream, ANSWER_LIMIT).map_err(text)?;
        let problem = agent.continued(ANSWER_LIMIT).map_err(text)?;
        Ok((qemu, agent, problem))
    }

    /// Boots the machine and saves it. An outer error is one of the machine itself, an inner one of saving it.
    fn make(&self, key: &str) -> Result<Result<(), SimError>, SimError> {
        let unfinished = match self.snapshots.begin() {
            Ok(unfinished) => unfinished,
            Err(error) => return Ok(Err(error)),
        };
        let ram = unfinished.ram();
        let (qemu, agent, _) = self.boot(Some(Memory::Saved(&ram)))?;
        if let Err(error) = agent.rest(ANSWER_LIMIT) {
            return Ok(Err(error.into()));
        }
        Ok(self.snapshots.finish(unfinished, &qemu, key))
    }

    /// Boots the machine and waits for its agent.
    fn boot(
        &self,
        memory: Option<Memory<'_>>,
    ) -> Result<(Qemu, Agent, Option<MemoryConnection>), SimError> {
        let (qemu, stream, connection) = match &self.board {
            Some(board) => {
                let qemu = self.start_qemu(None)?;
                let (stream, connection) = board.call()?;
                (qemu, stream, Some(connection))
            }
            None => {
                let (qemu, stream) = self.emulate(memory)?;
                (qemu, stream, None)
            }
        };
        let limit = self.options.boot_timeout;
        let agent = wait_until_up(self.options.architecture, &qemu, stream, limit)?;
        Ok((qemu, agent, connection))
    }

    /// Starts QEMU, and connects to the port of the first agent.
    fn emulate(&self, memory: Option<Memory<'_>>) -> Result<(Qemu, UnixStream), SimError> {
        let qemu = self.start_qemu(memory)?;
        let stream = qemu.socket(&port_name(0))?;
        Ok((qemu, stream))
    }

    fn start_qemu(&self, memory: Option<Memory<'_>>) -> Result<Qemu, SimError> {
        let mut arguments = self.arguments.clone();
        if let Some(memory) = memory {
            arguments.extend(memory.arguments(self.options.mebibytes));
        }
        let directory = self.directory.path();
        Ok(Qemu::start_by(&self.emulator, arguments, directory)?)
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn discarded(reason: &str) -> String {
    format!("a saved machine is discarded, and a new one is booted: {reason}")
}

/// Writes the device tree of a board for one boot.
fn write_tree(directory: &Path, image: &Image, tree: &BoardTree) -> Result<PathBuf, SimError> {
    let from = image.tree(tree.file);
    let bytes = fs::read(&from).map_err(SimError::file("read", &from))?;
    let bytes = board_tree::with_enabled(&bytes, tree.enabled)
        .map_err(|reason| SimError::Image(format!("{}: {reason}", from.display())))?;
    let path = directory.join("tree.dtb");
    fs::write(&path, bytes).map_err(SimError::file("write", &path))?;
    Ok(path)
}

/// Writes QEMU's own device tree for one boot, in which the SMMU is left to the hypervisor.
fn write_own_tree(
    directory: &Path,
    emulator: &QemuCommand,
    options: &SimOptions,
    smmu: &str,
) -> Result<PathBuf, SimError> {
    let path = directory.join("tree.dtb");
    let mut dump = OsString::from("dumpdtb=");
    dump.push(escaped(&path));
    let output = Command::new(&emulator.program)
        .envs(
            emulator
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .args(&emulator.arguments)
        .args(machine_arguments(options))
        .args([
            "-nodefaults".into(),
            "-display".into(),
            "none".into(),
            "-machine".into(),
            dump,
        ])
        .output()
        .map_err(SimError::file("start", Path::new(&emulator.program)))?;
    let bytes = fs::read(&path).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        SimError::Image(format!("QEMU writes no device tree: {error}; {said}"))
    })?;
    let bytes = board_tree::with_reserved(&bytes, smmu)
        .map_err(|reason| SimError::Image(format!("QEMU's device tree: {reason}")))?;
    fs::write(&path, bytes).map_err(SimError::file("write", &path))?;
    Ok(path)
}

/// Waits for the agent. Returns an error if the machine is lost before.
fn wait_until_up(
    architecture: &Architecture,
    qemu: &Qemu,
    stream: UnixStream,
    timeout: Duration,
) -> Result<Agent, SimError> {
    let (sender, connected) = channel();
    thread::Builder::new()
        .name("sim-connect".to_owned())
        .spawn(move || {
            // The receiver is gone if the machine was lost meanwhile.
            let _ = sender.send(Agent::connect(stream, timeout));
        })
        .map_err(|error| SimError::Agent(AgentError::Io(error)))?;
    let mut losses = Losses::of(architecture, qemu);
    let deadline = Instant::now() + timeout + POLL_INTERVAL;
    let never = || SimError::NeverUp {
        limit: timeout,
        console: qemu.console_tail(TAIL),
    };
    loop {
        match connected.recv_timeout(Duration::from_millis(1)) {
            Ok(Ok(agent)) => return Ok(agent),
            Ok(Err(AgentError::NoAnswer(_))) => return Err(never()),
            // It ended; the next event reports how.
            Ok(Err(AgentError::Lost(_))) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(RecvTimeoutError::Disconnected) if Instant::now() > deadline => {
                return Err(never());
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
        match losses.next(qemu) {
            Some(Loss::Panicked) => {
                // The kernel writes to the console after it has notified QEMU of the panic.
                let _ = qemu.wait(Duration::from_millis(500));
                return Err(SimError::Panicked {
                    console: qemu.console_tail(TAIL),
                });
            }
            Some(Loss::Ended(how)) => {
                return Err(SimError::Ended {
                    how,
                    console: qemu.console_tail(TAIL),
                });
            }
            Some(Loss::Hung) => return Err(never()),
            None => {}
        }
    }
}
