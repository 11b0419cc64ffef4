// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whether a simulated machine is still there: who watches it, and how it was lost.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rampart_agent::{Agent, AgentError};
use rampart_qemu::Qemu;

use super::architecture::Architecture;
use super::error::SimError;
use super::panic_sign::PanicSign;

/// How often the machine is asked whether it is still there. Rarely: to answer is work that a
/// measurement may see.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// A machine that answers nothing for so long is hung. Longer than any load or block keeps a
/// process of ordinary priority from running, even where a CPU is shared with emulated others.
pub(super) const SILENCE_LIMIT: Duration = Duration::from_secs(60);

/// Pause between two looks while waiting.
pub(super) const LOOK_AGAIN: Duration = Duration::from_millis(100);

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
pub(super) struct Watch {
    loss: Mutex<Option<(Loss, Instant)>>,
    changed: Condvar,
    /// Physical addresses and lengths of what is to be read when its time after a panic is over.
    wanted: Mutex<Vec<(u64, u64)>>,
    /// Those addresses with what was there.
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

    /// Memory of the machine is to be read when its time after a panic is over.
    pub(super) fn read_at_end(&self, spans: Vec<(u64, u64)>) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = spans;
    }

    /// What was read of it.
    pub(super) fn memory_at_end(&self) -> Vec<(u64, Vec<u8>)> {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.clone()
    }

    fn read_memory(&self, qemu: &Qemu) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let found = wanted.iter().filter_map(|(address, bytes)| {
            // Nobody is there to be told: what is missing is not known.
            Some((*address, physical_memory(qemu, *address, *bytes).ok()?))
        });
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = found.collect();
    }

    /// How it was lost and when, if it was.
    pub(super) fn get(&self) -> Option<(Loss, Instant)> {
        self.loss
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Waits until it is lost, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) -> Option<(Loss, Instant)> {
        let guard = self.loss.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed
            .wait_timeout_while(guard, timeout, |loss| loss.is_none())
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clone()
    }

    /// Begins to watch. A machine that was lost is killed, `after_panic` later if its kernel
    /// panicked.
    pub(super) fn start(
        self: &Arc<Self>,
        qemu: &Arc<Qemu>,
        agent: Agent,
        mut losses: Losses,
        after_panic: Duration,
    ) -> Result<(), SimError> {
        let (qemu, watch) = (Arc::downgrade(qemu), Arc::clone(self));
        let asked = agent.clone();
        // Each in a thread of its own: an answer may take long, an event must not wait for it. Both
        // end soon after the machine.
        let start = |name: &str, body: Box<dyn FnOnce() + Send>| {
            thread::Builder::new()
                .name(name.to_owned())
                .spawn(body)
                .map_err(|error| SimError::Agent(AgentError::Io(error)))
        };
        start(
            "sim-ask",
            Box::new(move || {
                // Whatever comes is a sign of life, late answers and results as well.
                while asked.lost().is_none() {
                    let _ = asked.clock(1);
                    let _ = asked.wait_lost(ASK_EVERY);
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
                        // Whoever reads from a program inside learns by the end of the connection.
                        if qemu.wait(grace).is_none() {
                            watch.read_memory(&qemu);
                        }
                        qemu.kill();
                        return;
                    }
                }
            }),
        )?;
        Ok(())
    }
}

/// So many bytes of the machine's memory, as the machine has them (QMP, `pmemsave`).
fn physical_memory(qemu: &Qemu, address: u64, bytes: u64) -> Result<Vec<u8>, String> {
    let file = qemu.console().with_file_name("memory");
    let arguments = serde_json::json!({
        "val": address, "size": bytes, "filename": file.to_string_lossy()
    });
    let saved = qemu.qmp().execute("pmemsave", arguments);
    saved.map_err(|error| error.to_string())?;
    std::fs::read(&file).map_err(|error| error.to_string())
}

/// Sees when a machine is lost by what QEMU tells of it.
#[derive(Debug)]
pub(super) struct Losses {
    sign: Option<PanicSign>,
}

impl Losses {
    pub(super) fn of(architecture: &Architecture, qemu: &Qemu) -> Self {
        let told = architecture.panic_device.is_some();
        Self {
            sign: (!told).then(|| PanicSign::in_console(&qemu.console())),
        }
    }

    /// Waits a moment for an event by which a machine is lost.
    pub(super) fn next(&mut self, qemu: &Qemu) -> Option<Loss> {
        let panicked = self.sign.as_mut().is_some_and(PanicSign::is_seen);
        if panicked {
            return Some(Loss::Panicked);
        }
        next_event(qemu)
    }
}

fn next_event(qemu: &Qemu) -> Option<Loss> {
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
        return Some(Loss::Ended(format!(
            "QEMU: {status}; {}",
            qemu.stderr_tail()
        )));
    }
    if qemu.qmp().is_closed() {
        thread::sleep(LOOK_AGAIN);
    }
    None
}
