// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine that runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError};
use rampart_qemu::Qemu;

use super::architecture::Architecture;
use super::arguments::{AGENTS, BootFiles, port_name, qemu_arguments};
use super::cache::{Cache, RunDirectory};
use super::disk::{Disk, MOUNTED};
use super::error::SimError;
use super::image::{BuildStep, Image};
use super::init::{Init, SYSTEMD_PACKAGE};
use super::initramfs;
use super::options::SimOptions;
use super::watch::{LOOK_AGAIN, Loss, Losses, SILENCE_LIMIT, Watch};

/// Lines of the console that a message shows.
const TAIL: usize = 20;

/// A simulated machine of ours. It ends when this is dropped, or this process ends in whatever way.
#[derive(Debug)]
pub struct Sim {
    // In this order: the connection, the machine, its files.
    agent: Agent,
    qemu: Arc<Qemu>,
    watch: Arc<Watch>,
    image: Image,
    architecture: &'static Architecture,
    boot_time: Duration,
    directory: RunDirectory,
}

impl Sim {
    /// The image of an architecture, built now if there is none; `progress` is told what is done
    /// then. It is not looked whether a newer one could be built.
    ///
    /// # Errors
    /// If there is none and it cannot be built.
    pub fn image(
        architecture: &'static Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Image, SimError> {
        let cache = Cache::of_this_user()?;
        match Image::present(&cache, architecture)? {
            Some(image) => Ok(image),
            None => Image::build(&cache, architecture, progress),
        }
    }

    /// The image, made anew if the archive has other versions of its packages.
    ///
    /// # Errors
    /// If the archive cannot be asked, or the image not be made.
    pub fn build(
        architecture: &'static Architecture,
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<Image, SimError> {
        Image::build(&Cache::of_this_user()?, architecture, progress)
    }

    /// Boots a machine and waits for its agent.
    ///
    /// # Errors
    /// If the options make no sense, QEMU does not start, or the machine panics, ends or does not
    /// come up in time; then with the end of its console.
    pub fn boot(image: Image, options: &SimOptions) -> Result<Self, SimError> {
        options.check()?;
        let packages = &image.record().packages;
        if options.init == Init::Systemd
            && !packages
                .iter()
                .any(|package| package.name == SYSTEMD_PACKAGE)
        {
            return Err(SimError::Options(
                "--init is systemd, and the image was made without it; fix: rampart sim build"
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
        let directory = Cache::of_this_user()?.running()?;
        let archive = directory.path().join("initramfs");
        initramfs::write(&archive, &image, options)?;
        let files = BootFiles {
            kernel: &image.kernel(),
            initramfs: &archive,
            root: &image.root(),
            directory: directory.path(),
            disk: disk.as_ref().map(Disk::path),
            line: &line,
        };
        let arguments = qemu_arguments(options, &files);
        let qemu = Qemu::start(architecture.emulator, arguments, directory.path())?;
        let agent = wait_until_up(architecture, &qemu, options.patience)?;
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

    /// The same until `stop` is set. The boot goes on then, and ends with this process.
    ///
    /// # Errors
    /// As [`Sim::boot`]; [`SimError::Interrupted`] if it was stopped.
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
        // Its only panic would be a bug of ours.
        booting
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// The agent inside, which starts programs there.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The emulator.
    #[must_use]
    pub fn qemu(&self) -> &Qemu {
        &self.qemu
    }

    /// What it simulates.
    #[must_use]
    pub fn architecture(&self) -> &'static Architecture {
        self.architecture
    }

    /// What it booted.
    #[must_use]
    pub fn booted_image(&self) -> &Image {
        &self.image
    }

    /// From the start until the first word of the agent.
    #[must_use]
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    pub(super) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// How it was lost, if it was.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.watch.get().map(|(loss, _)| loss)
    }

    /// Waits until it is lost, at most `timeout`: how and when.
    #[must_use]
    pub fn wait_lost(&self, timeout: Duration) -> Option<(Loss, Instant)> {
        self.watch.wait(timeout)
    }

    /// Parts of its memory, by physical address and length in bytes, are to be read when its time after
    /// a panic is over.
    pub fn read_at_end(&self, spans: Vec<(u64, u64)>) {
        self.watch.read_at_end(spans);
    }

    /// What was read so, with the addresses.
    #[must_use]
    pub fn memory_at_end(&self) -> Vec<(u64, Vec<u8>)> {
        self.watch.memory_at_end()
    }

    /// How a panic of its kernel comes to be known.
    #[must_use]
    pub fn panic_sign(&self) -> &'static str {
        match self.architecture.panic_device {
            Some(_) => "QEMU: the kernel reported a panic to its pvpanic device",
            None => "its console: the kernel reported a panic",
        }
    }

    /// The error that tells how it was lost, with the end of its console.
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

    /// What an error of the agent means: if the machine is lost, that; else the error itself.
    #[must_use]
    pub fn explain(&self, error: AgentError) -> SimError {
        if !matches!(error, AgentError::Lost(_)) {
            return SimError::Agent(error);
        }
        // The connection may be known to be gone a moment before the reason is.
        let _ = self.wait_lost(Duration::from_secs(2));
        self.loss_error().unwrap_or(SimError::Agent(error))
    }

    /// Starts the agents that serve those who join.
    pub(super) fn serve_others(&self) -> Result<Vec<rampart_agent::AgentProcess>, SimError> {
        (1..AGENTS)
            .map(|number| {
                let command = AgentCommand::new([
                    initramfs::METER,
                    "agent",
                    "--stay",
                    "--port",
                    &port_name(number),
                ]);
                self.agent
                    .spawn(&command)
                    .map_err(|error| self.explain(error))
            })
            .collect()
    }

    /// Addresses of QEMU's user network (QEMU, "Using the user mode network stack").
    fn set_up_network(&self) -> Result<(), SimError> {
        let script = "set -e; ip link set lo up; ip link set eth0 up; \
                      ip address add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2";
        self.run_script(script)
    }

    /// What is on the disk appears where it belongs. The rest of `/boot` is the image's.
    fn mount_disk(&self) -> Result<(), SimError> {
        let script = format!(
            "set -e; mkdir -p {MOUNTED} /var/lib/rampart /boot/extlinux; \
             mount -t ext4 /dev/vdb {MOUNTED}; \
             mount --bind {MOUNTED}/rampart /var/lib/rampart; \
             mount --bind {MOUNTED}/boot/extlinux /boot/extlinux"
        );
        self.run_script(&script)
    }

    /// Runs commands of a shell inside to their end.
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
                said: self.qemu.console_tail(3).join("; "),
            }),
            None => Err(SimError::Agent(AgentError::NoAnswer(limit))),
        }
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The thread that watches may hold the emulator for a moment longer.
        self.qemu.kill();
    }
}

/// Waits for the agent, and sees if the machine is lost before.
fn wait_until_up(
    architecture: &Architecture,
    qemu: &Qemu,
    patience: Duration,
) -> Result<Agent, SimError> {
    let stream = qemu.socket(&port_name(0))?;
    let (sender, connected) = channel();
    thread::Builder::new()
        .name("sim-connect".to_owned())
        .spawn(move || {
            // Nobody waits any longer if the machine was lost meanwhile.
            let _ = sender.send(Agent::connect(stream, patience));
        })
        .map_err(|error| SimError::Agent(AgentError::Io(error)))?;
    let mut losses = Losses::of(architecture, qemu);
    let deadline = Instant::now() + patience + LOOK_AGAIN;
    let never = || SimError::NeverUp {
        limit: patience,
        console: qemu.console_tail(TAIL),
    };
    loop {
        match connected.recv_timeout(Duration::from_millis(1)) {
            Ok(Ok(agent)) => return Ok(agent),
            Ok(Err(AgentError::NoAnswer(_))) => return Err(never()),
            // It ended: the next event tells how.
            Ok(Err(AgentError::Lost(_))) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(RecvTimeoutError::Disconnected) if Instant::now() > deadline => {
                return Err(never());
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
        match losses.next(qemu) {
            Some(Loss::Panicked) => {
                // The report of a panic goes on after QEMU was told.
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
