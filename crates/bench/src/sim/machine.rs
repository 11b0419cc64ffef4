// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A simulated machine that runs.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentCommand, AgentError};
use rampart_qemu::Qemu;

use super::architecture::Architecture;
use super::arguments::{AGENTS, BootFiles, port_name, qemu_arguments};
use super::cache::{Cache, RunDirectory};
use super::error::SimError;
use super::image::{BuildStep, Image};
use super::initramfs;
use super::options::SimOptions;

/// Lines of the console that a message shows.
const TAIL: usize = 20;

/// How often the machine is asked whether it is still there. Rarely: to answer is work that a
/// measurement may see.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// A machine that answers nothing for so long is hung. Longer than any load or block keeps a
/// process of ordinary priority from running, even where a CPU is shared with emulated others.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks while waiting.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How a machine that was up was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Its kernel panicked: it told QEMU.
    Panicked,
    /// It was switched off or reset, or QEMU ended; in QEMU's words.
    Ended(String),
    /// It answers nothing.
    Hung,
}

/// What the thread that watches has seen.
#[derive(Debug, Default)]
struct Watch {
    loss: Mutex<Option<(Loss, Instant)>>,
    changed: Condvar,
}

impl Watch {
    fn set(&self, loss: Loss) {
        let mut seen = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none() {
            *seen = Some((loss, Instant::now()));
        }
        drop(seen);
        self.changed.notify_all();
    }

    fn get(&self) -> Option<(Loss, Instant)> {
        self.loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// A simulated machine of ours. It ends when this is dropped, or this process ends in whatever way.
#[derive(Debug)]
pub struct Sim {
    // In this order: the connection, the machine, its files.
    agent: Agent,
    qemu: Arc<Qemu>,
    watch: Arc<Watch>,
    image: Image,
    boot_time: Duration,
    directory: RunDirectory,
}

impl Sim {
    /// The image of the architecture of this machine, built now if there is none; `progress` is
    /// told what is done then. It is not looked whether a newer one could be built.
    ///
    /// # Errors
    /// If there is none and it cannot be built.
    pub fn image(progress: &mut dyn FnMut(BuildStep)) -> Result<Image, SimError> {
        let cache = Cache::of_this_user()?;
        let architecture = Architecture::of_this_machine();
        match Image::present(&cache, architecture)? {
            Some(image) => Ok(image),
            None => Image::build(&cache, architecture, progress),
        }
    }

    /// The image, made anew if the archive has other versions of its packages.
    ///
    /// # Errors
    /// If the archive cannot be asked, or the image not be made.
    pub fn build(progress: &mut dyn FnMut(BuildStep)) -> Result<Image, SimError> {
        let cache = Cache::of_this_user()?;
        Image::build(&cache, Architecture::of_this_machine(), progress)
    }

    /// Boots a machine and waits for its agent.
    ///
    /// # Errors
    /// If the options make no sense, QEMU does not start, or the machine panics, ends or does not
    /// come up in time; then with the end of its console.
    pub fn boot(image: Image, options: &SimOptions) -> Result<Self, SimError> {
        options.check()?;
        let began = Instant::now();
        let architecture = Architecture::of_this_machine();
        let directory = Cache::of_this_user()?.running()?;
        let archive = directory.path().join("initramfs");
        initramfs::write(&archive, &image, architecture, options)?;
        let files = BootFiles {
            kernel: &image.kernel(),
            initramfs: &archive,
            root: &image.root(),
            directory: directory.path(),
        };
        let arguments = qemu_arguments(architecture, options, &files);
        let qemu = Qemu::start(architecture.emulator, arguments, directory.path())?;
        let agent = wait_until_up(&qemu, options.patience)?;
        let sim = Self {
            watch: Arc::default(),
            qemu: Arc::new(qemu),
            agent,
            image,
            boot_time: began.elapsed(),
            directory,
        };
        sim.start_watching(options.after_panic)?;
        if !options.forwards.is_empty() {
            sim.set_up_network()?;
        }
        Ok(sim)
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
        let guard = self
            .watch
            .loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.watch
            .changed
            .wait_timeout_while(guard, timeout, |loss| loss.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
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
            None => Err(SimError::Agent(AgentError::Silent(limit))),
        }
    }

    /// Ends it: at once, because nothing in it is to be kept.
    pub fn end(self) {}

    fn start_watching(&self, after_panic: Duration) -> Result<(), SimError> {
        let (qemu, watch, agent) = (
            Arc::downgrade(&self.qemu),
            Arc::clone(&self.watch),
            self.agent.clone(),
        );
        let heard = Arc::new(Mutex::new(Instant::now()));
        let asking = Arc::clone(&heard);
        // Each in a thread of its own: an answer may take long, an event must not wait for it. Both
        // end soon after the machine.
        let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|error| SimError::Agent(AgentError::Here(error)))
        };
        start(
            "sim-ask",
            Box::new(move || {
                while agent.lost().is_none() {
                    if agent.clock(1).is_ok()
                        && let Ok(mut heard) = asking.lock()
                    {
                        *heard = Instant::now();
                    }
                    let _ = agent.wait_lost(ASK_EVERY);
                }
            }),
        )?;
        start(
            "sim-watch",
            Box::new(move || {
                while let Some(qemu) = qemu.upgrade() {
                    let silent = heard
                        .lock()
                        .is_ok_and(|heard| heard.elapsed() > SILENCE_LIMIT);
                    let loss = if silent {
                        Some(Loss::Hung)
                    } else {
                        next_loss(&qemu)
                    };
                    if let Some(loss) = loss {
                        let grace = match loss {
                            Loss::Panicked => after_panic,
                            Loss::Ended(_) | Loss::Hung => Duration::ZERO,
                        };
                        watch.set(loss);
                        // Whoever reads from a program inside learns by the end of the connection.
                        let _ = qemu.wait(grace);
                        qemu.kill();
                        return;
                    }
                }
            }),
        )?;
        Ok(())
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The thread that watches may hold the emulator for a moment longer.
        self.qemu.kill();
    }
}

/// Waits a moment for an event by which a machine is lost.
fn next_loss(qemu: &Qemu) -> Option<Loss> {
    if let Some(event) = qemu.qmp().next_event(LOOK_AGAIN) {
        return match event.name.as_str() {
            "GUEST_PANICKED" => Some(Loss::Panicked),
            "SHUTDOWN" => {
                let reason = event.data["reason"].as_str().unwrap_or("unknown");
                Some(Loss::Ended(reason.to_owned()))
            }
            _ => None,
        };
    }
    if let Some(status) = qemu.ended() {
        return Some(Loss::Ended(format!("QEMU: {status}; {}", qemu.said())));
    }
    if qemu.qmp().is_closed() {
        thread::sleep(LOOK_AGAIN);
    }
    None
}

/// Waits for the agent, and sees if the machine is lost before.
fn wait_until_up(qemu: &Qemu, patience: Duration) -> Result<Agent, SimError> {
    let stream = qemu.socket(&port_name(0))?;
    let (sender, connected) = channel();
    thread::Builder::new()
        .name("sim-connect".to_owned())
        .spawn(move || {
            // Nobody waits any longer if the machine was lost meanwhile.
            let _ = sender.send(Agent::connect(stream, patience));
        })
        .map_err(|error| SimError::Agent(AgentError::Here(error)))?;
    let deadline = Instant::now() + patience + LOOK_AGAIN;
    let never = || SimError::NeverUp {
        limit: patience,
        console: qemu.console_tail(TAIL),
    };
    loop {
        match connected.recv_timeout(Duration::from_millis(1)) {
            Ok(Ok(agent)) => return Ok(agent),
            Ok(Err(AgentError::Silent(_))) => return Err(never()),
            // It ended: the next event tells how.
            Ok(Err(AgentError::Lost(_))) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Err(error)) => return Err(error.into()),
            Err(RecvTimeoutError::Disconnected) if Instant::now() > deadline => {
                return Err(never());
            }
            Err(RecvTimeoutError::Disconnected) => {}
        }
        match next_loss(qemu) {
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
