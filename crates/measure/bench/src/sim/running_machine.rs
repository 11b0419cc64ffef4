// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running simulated machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError};
use rampart_qemu::Qemu;

use super::architecture::Architecture;
use super::cache::{Cache, RunDirectory};
use super::disk::MOUNTED;
use super::error::SimError;
use super::image::{BuildStep, Image};
use super::init::{Init, SYSTEMD_PACKAGE};
use super::options::SimOptions;
use super::start::{Start, Started};
use super::watch::{Loss, Losses, SILENCE_LIMIT, Watch};
use super::{emulator, initramfs};

/// Number of lines of the console in a message.
pub(super) const TAIL: usize = 20;

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
    is_restored: bool,
    notes: Vec<String>,
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

    /// Boots a machine and waits for its agent. A machine that is like one that was saved continues from there
    /// instead; one that can be saved is booted, saved and continued.
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
        let start = Start::prepare(&image, options)?;
        let started = start.run()?;
        let (directory, has_disk) = start.into_directory();
        let architecture = options.architecture;
        let Started {
            qemu,
            agent,
            connection,
            is_restored,
            notes,
        } = started;
        let sim = Self {
            watch: Arc::default(),
            qemu: Arc::new(qemu),
            agent,
            image,
            architecture,
            boot_time: began.elapsed(),
            is_restored,
            notes,
            directory,
        };
        sim.watch.start(
            &sim.qemu,
            sim.agent.clone(),
            connection,
            Losses::of(architecture, &sim.qemu),
            options.after_panic,
        )?;
        if has_disk {
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

    /// Returns whether it was restored from a saved machine instead of booted.
    #[must_use]
    pub fn is_restored(&self) -> bool {
        self.is_restored
    }

    /// Returns what a person should know of its start: for each snapshot that could not be made or used, the reason.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
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
