// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running simulated machine.

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError};
use rampart_qemu::{Qemu, QemuCommand, escaped};

use super::architecture::{Architecture, BoardTree, Devices};
use super::arguments::{BootFiles, machine_arguments, port_name, qemu_arguments};
use super::board_memory::BoardMemory;
use super::cache::{Cache, RunDirectory};
use super::disk::{Disk, MOUNTED};
use super::error::SimError;
use super::image::{BuildStep, Image};
use super::init::{Init, SYSTEMD_PACKAGE};
use super::options::SimOptions;
use super::watch::{Loss, Losses, POLL_INTERVAL, SILENCE_LIMIT, Watch};
use super::{board_tree, emulator, initramfs};

/// Number of lines of the console in a message.
const TAIL: usize = 20;

/// A simulated machine of this process. It ends when this value is dropped or the process ends.
#[derive(Debug)]
pub struct Sim {
    // Drop order: the connection, the machine, its files.
    agent: Agent,
    qemu: Arc<Qemu>,
    watch: Arc<Watch>,
    image: Image,
    architecture: &'static Architecture,
    boot_time: Duration,
    directory: RunDirectory,
}

impl Sim {
    /// Returns the image of an architecture. Builds it if there is none, with calls of `progress`;
    /// does not look for newer packages.
    ///
    /// # Errors
    /// Returns an error if there is none and it cannot be built.
    pub fn image(
        architecture: &'static Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Image, SimError> {
        let cache = Cache::of_this_user()?;
        emulator::prepare(&cache, architecture, false, progress)?;
        match Image::present(&cache, architecture)? {
            Some(image) => Ok(image),
            None => Image::build(&cache, architecture, progress),
        }
    }

    /// Returns the image, rebuilt if the archive has other versions of its packages.
    ///
    /// # Errors
    /// Returns an error if the archive cannot be reached or the image cannot be built.
    pub fn build(
        architecture: &'static Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Image, SimError> {
        let cache = Cache::of_this_user()?;
        emulator::prepare(&cache, architecture, true, progress)?;
        Image::build(&cache, architecture, progress)
    }

    /// Boots a machine and waits for its agent.
    ///
    /// # Errors
    /// Returns an error if the options contradict each other or QEMU does not start. If the machine
    /// panics, ends or does not boot in time, the error contains the end of its console.
    pub fn boot(image: Image, options: &SimOptions) -> Result<Self, SimError> {
        options.check()?;
        let packages = &image.record().packages;
        if options.init == Init::Systemd
            && !packages
                .iter()
                .any(|package| package.name == SYSTEMD_PACKAGE)
        {
            return Err(SimError::Options(
                "--init is systemd, but the image does not contain it; fix: rampart sim build"
                    .to_owned(),
            ));
        }
        let began = Instant::now();
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
        initramfs::write(&archive, &image, options)?;
        let emulator = emulator::command(&cache, architecture)?;
        let tree = match (&architecture.tree, architecture.smmu) {
            (Some(tree), _) => Some(write_tree(directory.path(), &image, tree)?),
            (None, Some(smmu)) => Some(write_own_tree(directory.path(), &emulator, options, smmu)?),
            (None, None) => None,
        };
        let memory = match architecture.devices {
            Devices::Board { memory, .. } => Some(BoardMemory::new(options.mebibytes, memory)?),
            Devices::Virtio(_) => None,
        };
        let memory_path = memory.as_ref().map(BoardMemory::path);
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
        let qemu = Qemu::start_by(&emulator, arguments, directory.path())?;
        let (stream, connection) = match &memory {
            Some(memory) => {
                let (stream, connection) = memory.call()?;
                (stream, Some(connection))
            }
            None => (qemu.socket(&port_name(0))?, None),
        };
        let agent = wait_until_up(architecture, &qemu, stream, options.boot_timeout)?;
        let sim = Self {
            watch: Arc::default(),
            qemu: Arc::new(qemu),
            agent,
            image,
            architecture,
            boot_time: began.elapsed(),
            directory,
        };
        sim.watch.start(
            &sim.qemu,
            sim.agent.clone(),
            connection,
            Losses::of(architecture, &sim.qemu),
            options.after_panic,
        )?;
        if disk.is_some() {
            sim.mount_disk()?;
        }
        if !options.forwards.is_empty() {
            sim.set_up_network()?;
        }
        Ok(sim)
    }

    /// Boots as [`Sim::boot`] until `stop` is set. An interrupted boot ends with this process.
    ///
    /// # Errors
    /// Returns the errors of [`Sim::boot`], and [`SimError::Interrupted`] if `stop` was set.
    pub fn boot_unless(
        stop: &AtomicBool,
        image: Image,
        options: SimOptions,
    ) -> Result<Self, SimError> {
        let booting = thread::Builder::new()
            .name("boot".to_owned())
            .spawn(move || Self::boot(image, &options))
            .map_err(|error| SimError::Agent(AgentError::Io(error)))?;
        while !booting.is_finished() {
            if stop.load(Ordering::Relaxed) {
                return Err(SimError::Interrupted);
            }
            thread::sleep(Duration::from_millis(20));
        }
        booting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Returns the agent, which starts programs inside.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the emulator.
    #[must_use]
    pub fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    /// Returns its architecture.
    #[must_use]
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// Returns the image that it booted.
    #[must_use]
    pub fn booted_image(&self) -> &Image {
        &self.image
    }

    /// Returns the time from the start to the first answer of the agent.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Returns how it was lost; `None` if it is alive.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.watch.get().map(|(loss, _)| loss)
    }

    /// Waits at most `timeout` for its loss. Returns how and when it was lost.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<(Loss, Instant)> {
        self.watch.wait(timeout)
    }

    /// Requests parts of its memory, by physical address and length in bytes. They are read before a
    /// machine that panicked is ended.
    pub fn read_at_end(&self, spans: Vec<(u64, u64)>) {
        self.watch.read_at_end(spans);
    }

    /// Returns the memory requested by [`Sim::read_at_end`], with the addresses.
    #[must_use]
    pub fn memory_at_end(&self) -> Vec<(u64, Vec<u8>)> {
        self.watch.memory_at_end()
    }

    /// Returns by which means a panic of its kernel is detected.
    #[must_use]
    pub fn panic_sign(&self) -> &'static str {
        match self.architecture.panic_device {
            Some(_) => "QEMU: the kernel reported a panic to its pvpanic device",
            None => "its console: the kernel reported a panic",
        }
    }

    /// Returns the error for its loss, with the end of its console; `None` if it is alive.
    #[must_use]
    pub fn loss_error(&self) -> Option<SimError> {
        let console = self.qemu.console_tail(TAIL);
        self.loss().map(|loss| match loss {
            Loss::Panicked => SimError::Panicked { console },
            Loss::Ended(how) => SimError::Ended { how, console },
            Loss::Hung => SimError::Hung {
                silence: SILENCE_LIMIT,
                console,
            },
        })
    }

    /// Converts an error of the agent: into the error of its loss if the machine was lost.
    #[must_use]
    pub fn explain(&self, error: AgentError) -> SimError {
        if !matches!(error, AgentError::Lost(_)) {
            return SimError::Agent(error);
        }
        // The loss of the connection may be noticed a moment before its reason.
        let _ = self.wait_lost(Duration::from_secs(2));
        self.loss_error().unwrap_or(SimError::Agent(error))
    }

    /// Starts the agents for commands that join.
    pub(super) fn serve_others(&self) -> Result<Vec<rampart_agent::AgentProcess>, SimError> {
        (1..self.architecture.devices.agents())
            .map(|number| {
                let words = [initramfs::METER, "agent", "--stay"].map(str::to_owned);
                let reached = self.architecture.devices.agent_arguments(number);
                let command = AgentCommand::new(words.into_iter().chain(reached));
                self.agent
                    .spawn(&command)
                    .map_err(|error| self.explain(error))
            })
            .collect()
    }

    /// Configures the addresses of QEMU's user network (QEMU, "Using the user mode network stack").
    fn set_up_network(&self) -> Result<(), SimError> {
        let script = "set -e; ip link set lo up; ip link set eth0 up; \
                      ip address add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2";
        self.run_script(script)
    }

    /// Mounts the directories of the disk at their paths. The rest of `/boot` is from the image.
    fn mount_disk(&self) -> Result<(), SimError> {
        let script = format!(
            "set -e; mkdir -p {MOUNTED} /var/lib/rampart /boot/extlinux; \
             mount -t ext4 /dev/vdb {MOUNTED}; \
             mount --bind {MOUNTED}/rampart /var/lib/rampart; \
             mount --bind {MOUNTED}/boot/extlinux /boot/extlinux"
        );
        self.run_script(&script)
    }

    /// Runs a shell script inside to its end.
    fn run_script(&self, script: &str) -> Result<(), SimError> {
        let process = self
            .agent
            .spawn(&AgentCommand::new(["/bin/sh", "-c", script]))
            .map_err(|error| self.explain(error))?;
        let limit = Duration::from_secs(60);
        match process.wait(limit).map_err(|error| self.explain(error))? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(SimError::ProgramFailed {
                command: script.to_owned(),
                status: status.to_string(),
                output: self.qemu.console_tail(3).join("; "),
            }),
            None => Err(SimError::Agent(AgentError::NoAnswer(limit))),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The watching thread may hold a reference to the emulator for a moment longer.
        self.qemu.kill();
    }
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
