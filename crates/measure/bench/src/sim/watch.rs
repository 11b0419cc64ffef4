// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Detection of the loss of a simulated machine.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError, MemoryConnection};
use rampart_qemu::Qemu;

use super::architecture::Architecture;
use super::error::SimError;
use super::panic_sign::PanicSign;

/// Interval of the keep-alive requests. It is long, because an answer is work that a measurement may
/// see.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// A machine that is silent for longer counts as hung. No load or block keeps a process of ordinary
/// priority from running for so long, even if emulated CPUs share a CPU.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Interval at which events are polled.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How a machine that was up was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// Its kernel panicked.
    Panicked,
    /// It was switched off or reset, or QEMU ended; with the reason that QEMU reports.
    Ended(String),
    /// It does not respond.
    Hung,
}

/// The observations of the watching thread.
#[derive(Debug, Default)]
pub(super) struct Watch {
    loss: Mutex<Option<(Loss, Instant)>>,
    changed: Condvar,
    /// Physical addresses and lengths of the memory to read before a panicked machine is ended.
    wanted: Mutex<Vec<(u64, u64)>>,
    /// These addresses with their content.
    read: Mutex<Vec<(u64, Vec<u8>)>>,
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

    /// Requests memory to be read before a panicked machine is ended.
    pub(super) fn read_at_end(&self, spans: Vec<(u64, u64)>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = spans;
    }

    /// Returns the requested memory that was read.
    pub(super) fn memory_at_end(&self) -> Vec<(u64, Vec<u8>)> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.clone()
    }

    fn read_memory(&self, qemu: &Qemu) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let found = wanted.iter().filter_map(|(address, bytes)| {
            // Memory that cannot be read is left out.
            Some((*address, physical_memory(qemu, *address, *bytes).ok()?))
        });
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = found.collect();
    }

    /// Returns how and when the machine was lost; `None` if it is alive.
    pub(super) fn get(&self) -> Option<(Loss, Instant)> {
        self.loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits at most `timeout` for the loss of the machine.
    pub(super) fn wait(&self, timeout: Duration) -> Option<(Loss, Instant)> {
        let guard = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed
            .wait_timeout_while(guard, timeout, |loss| loss.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
    }

    /// Starts the watching threads. They kill a machine that was lost; after a panic they wait
    /// `after_panic` before. A `connection` over the machine's memory, which does not end with the machine, is closed
    /// then.
    pub(super) fn start(
        self: &Arc<Self>,
        qemu: &Arc<Qemu>,
        agent: Agent,
        mut connection: Option<MemoryConnection>,
        mut losses: Losses,
        after_panic: Duration,
    ) -> Result<(), SimError> {
        let (qemu, watch) = (Arc::downgrade(qemu), Arc::clone(self));
        let asked = agent.clone();
        // Two threads, because an event must not wait for an answer. Both end soon after the machine.
        let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|error| SimError::Agent(AgentError::Io(error)))
        };
        start(
            "sim-ask",
            Box::new(move || {
                // Every message counts as alive, also late answers and results.
                while asked.lost().is_none() {
                    let _ = asked.clock(1);
                    let _ = asked.wait_lost(KEEP_ALIVE_INTERVAL);
                }
            }),
        )?;
        start(
            "sim-watch",
            Box::new(move || {
                while let Some(qemu) = qemu.upgrade() {
                    let loss = if agent.quiet() > SILENCE_LIMIT {
                        Some(Loss::Hung)
                    } else {
                        losses.next(&qemu)
                    };
                    if let Some(loss) = loss {
                        let grace = match loss {
                            Loss::Panicked => after_panic,
                            Loss::Ended(_) | Loss::Hung => Duration::ZERO,
                        };
                        watch.set(loss);
                        // The end of the connection notifies readers of programs inside.
                        if qemu.wait(grace).is_none() {
                            watch.read_memory(&qemu);
                        }
                        qemu.kill();
                        if let Some(connection) = connection.take() {
                            connection.close();
                        }
                        return;
                    }
                }
            }),
        )?;
        Ok(())
    }
}

/// Reads `bytes` of the machine's physical memory (QMP, `pmemsave`).
fn physical_memory(qemu: &Qemu, address: u64, bytes: u64) -> Result<Vec<u8>, String> {
    let file = qemu.console().with_file_name("memory");
    let arguments = serde_json::json!({
        "val": address, "size": bytes, "filename": file.to_string_lossy()
    });
    let saved = qemu.qmp().execute("pmemsave", arguments);
    saved.map_err(|error| error.to_string())?;
    std::fs::read(&file).map_err(|error| error.to_string())
}

/// Detects the loss of a machine from QEMU's events and its console.
#[derive(Debug)]
pub(super) struct Losses {
    sign: Option<PanicSign>,
}

impl Losses {
    pub(super) fn of(architecture: &Architecture, qemu: &Qemu) -> Self {
        let has_device = architecture.panic_device.is_some();
        Self {
            sign: (!has_device).then(|| PanicSign::in_console(&qemu.console())),
        }
    }

    /// Waits up to [`POLL_INTERVAL`] for an event that means the loss of the machine.
    pub(super) fn next(&mut self, qemu: &Qemu) -> Option<Loss> {
        let panicked = self.sign.as_mut().is_some_and(PanicSign::is_seen);
        if panicked {
            return Some(Loss::Panicked);
        }
        next_event(qemu)
    }
}

fn next_event(qemu: &Qemu) -> Option<Loss> {
    if let Some(event) = qemu.qmp().next_event(POLL_INTERVAL) {
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
        return Some(Loss::Ended(format!(
            "QEMU: {status}; {}",
            qemu.stderr_tail()
        )));
    }
    if qemu.qmp().is_closed() {
        thread::sleep(POLL_INTERVAL);
    }
    None
}
