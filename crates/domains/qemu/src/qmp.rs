// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The QEMU Machine Protocol: commands and their answers, and a queue of events.
//!
//! Source of the format: QEMU's `docs/interop/qmp-spec`.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::QmpError;

/// How long QEMU may take for one command. It answers in milliseconds; a machine with all its
/// CPUs busy may keep it waiting.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Events kept until someone asks; the oldest go first.
const EVENTS_KEPT: usize = 1024;

/// Something that happened in QEMU by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct QmpEvent {
    /// Its name, as `GUEST_PANICKED` or `SHUTDOWN`.
    pub name: String,
    /// What belongs to it; null if nothing does.
    pub data: Value,
}

/// A result, or the class and the words of a refusal.
type Answer = Result<Value, (String, String)>;

/// What the reading thread has seen so far.
#[derive(Debug, Default)]
struct Seen {
    events: VecDeque<QmpEvent>,
    answers: VecDeque<(u64, Answer)>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Seen>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection to QEMU's monitor. All its methods may be called from several threads.
#[derive(Debug)]
pub struct QmpMonitor {
    writer: Mutex<Writer>,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Writer {
    stream: UnixStream,
    next: u64,
}

impl QmpMonitor {
    /// Reads the greeting, leaves the negotiation of capabilities and starts to listen.
    ///
    /// # Errors
    /// [`QmpError::NotQmp`] if something else answers, [`QmpError::Closed`] or
    /// [`QmpError::NoAnswer`] if nothing does within `patience`.
    pub fn new(stream: UnixStream, patience: Duration) -> Result<Self, QmpError> {
        let mut reader = BufReader::new(stream.try_clone()?);
        stream.set_read_timeout(Some(patience))?;
        let mut greeting = String::new();
        let read = reader.read_line(&mut greeting).map_err(|error| {
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                QmpError::NoAnswer {
                    command: "greeting".to_owned(),
                    limit: patience,
                }
            } else {
                QmpError::Connection(error)
            }
        })?;
        if read == 0 {
            return Err(QmpError::Closed {
                command: "greeting".to_owned(),
            });
        }
        let is_greeting =
            serde_json::from_str::<Value>(&greeting).is_ok_and(|value| value.get("QMP").is_some());
        if !is_greeting {
            return Err(QmpError::NotQmp {
                text: greeting.trim().chars().take(200).collect(),
            });
        }
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let shared = Arc::new(Shared::default());
        let listening = Arc::clone(&shared);
        thread::Builder::new()
            .name("qmp".to_owned())
            .spawn(move || listen(reader, &listening))?;
        let monitor = Self {
            writer: Mutex::new(Writer { stream, next: 1 }),
            shared,
        };
        monitor.execute_within("qmp_capabilities", json!({}), patience)?;
        Ok(monitor)
    }

    /// Runs a command and gives its result. `arguments` is an object, empty where there are none.
    ///
    /// # Errors
    /// [`QmpError::Refused`] with QEMU's class and words; the rest if QEMU is gone or silent.
    pub fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, ANSWER_LIMIT)
    }

    /// Runs a command as [`execute`](Self::execute) does, and waits at most `limit`.
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn execute_within(
        &self,
        command: &str,
        arguments: Value,
        limit: Duration,
    ) -> Result<Value, QmpError> {
        let deadline = Instant::now() + limit;
        let id = {
            let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
            let id = writer.next;
            writer.next += 1;
            let mut line =
                json!({"execute": command, "arguments": arguments, "id": id}).to_string();
            line.push('\n');
            writer.stream.write_all(line.as_bytes()).map_err(|error| {
                match error.kind() {
                    ErrorKind::BrokenPipe => QmpError::Closed {
                        command: command.to_owned(),
                    },
                    // QEMU has not read for so long that the socket is full.
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => QmpError::NoAnswer {
                        command: command.to_owned(),
                        limit: ANSWER_LIMIT,
                    },
                    _ => QmpError::Connection(error),
                }
            })?;
            id
        };
        let mut seen = self.shared.lock();
        loop {
            if let Some(location) = seen.answers.iter().position(|(of, _)| *of == id)
                && let Some((_, answer)) = seen.answers.remove(location)
            {
                return answer.map_err(|(class, description)| QmpError::Refused {
                    command: command.to_owned(),
                    class,
                    description,
                });
            }
            if seen.closed {
                return Err(QmpError::Closed {
                    command: command.to_owned(),
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(QmpError::NoAnswer {
                    command: command.to_owned(),
                    limit,
                });
            }
            seen = self
                .shared
                .changed
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// The oldest event that nobody has taken yet; waits up to `timeout` for one. None when the
    /// time is over, and at once when QEMU is gone and no event is left.
    pub fn next_event(&self, timeout: Duration) -> Option<QmpEvent> {
        let deadline = Instant::now() + timeout;
        let mut seen = self.shared.lock();
        loop {
            if let Some(event) = seen.events.pop_front() {
                return Some(event);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if seen.closed || left.is_zero() {
                return None;
            }
            seen = self
                .shared
                .changed
                .wait_timeout(seen, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Whether QEMU has closed the connection, which it does when it ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }
}

impl Drop for QmpMonitor {
    fn drop(&mut self) {
        // Ends the listening thread; a connection that is gone already needs nothing.
        if let Ok(writer) = self.writer.get_mut() {
            let _ = writer.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Sorts what QEMU says into answers and events until it closes the connection.
fn listen(mut reader: BufReader<UnixStream>, shared: &Shared) {
    let mut line = String::new();
    loop {
        line.clear();
        match reader.read_line(&mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let mut seen = shared.lock();
        if let Some(name) = message["event"].as_str() {
            if seen.events.len() == EVENTS_KEPT {
                seen.events.pop_front();
            }
            seen.events.push_back(QmpEvent {
                name: name.to_owned(),
                data: message["data"].clone(),
            });
        } else if let Some(id) = message["id"].as_u64() {
            let answer = match message.get("error") {
                Some(error) => Err((text(&error["class"]), text(&error["desc"]))),
                None => Ok(message["return"].clone()),
            };
            // Nobody waits any longer for answers this old.
            if seen.answers.len() == EVENTS_KEPT {
                seen.answers.pop_front();
            }
            seen.answers.push_back((id, answer));
        }
        drop(seen);
        shared.changed.notify_all();
    }
    shared.lock().closed = true;
    shared.changed.notify_all();
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A monitor whose other side answers with `script`, a line for each line it reads.
    fn monitor_with(script: &'static [&'static str]) -> Result<QmpMonitor, QmpError> {
        let (near, far) = UnixStream::pair().expect("a pair");
        thread::spawn(move || {
            let mut reader = BufReader::new(far.try_clone().expect("a clone"));
            let mut far = far;
            let mut heard = String::new();
            for line in script {
                far.write_all(line.as_bytes()).expect("written");
                far.write_all(b"\n").expect("written");
                heard.clear();
                if reader.read_line(&mut heard).expect("read") == 0 {
                    return;
                }
            }
        });
        QmpMonitor::new(near, PATIENCE)
    }

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;
    const READY: &str = r#"{"return": {}, "id": 1}"#;

    #[test]
    fn answers_find_their_command_and_events_wait_in_order() {
        let monitor = monitor_with(&[
            GREETING,
            READY,
            concat!(
                r#"{"event": "STOP", "timestamp": {}}"#,
                "\n",
                r#"{"event": "GUEST_PANICKED", "data": {"action": "pause"}}"#,
                "\n",
                r#"{"return": {"running": false}, "id": 2}"#
            ),
        ])
        .expect("connected");
        let result = monitor
            .execute("query-status", json!({}))
            .expect("answered");
        assert_eq!(result["running"], json!(false));
        let names: Vec<_> = std::iter::from_fn(|| monitor.next_event(Duration::ZERO))
            .map(|event| (event.name, event.data["action"].clone()))
            .collect();
        assert_eq!(
            names,
            [
                ("STOP".to_owned(), Value::Null),
                ("GUEST_PANICKED".to_owned(), json!("pause"))
            ]
        );
    }

    #[test]
    fn a_refusal_carries_class_and_words() {
        let monitor = monitor_with(&[
            GREETING,
            READY,
            r#"{"error": {"class": "CommandNotFound", "desc": "no such"}, "id": 2}"#,
        ])
        .expect("connected");
        let error = monitor.execute("dance", json!({})).expect_err("refused");
        assert_eq!(
            error.to_string(),
            "QEMU refuses `dance`: CommandNotFound: no such"
        );
    }

    #[test]
    fn a_peer_that_goes_away_is_told_at_once() {
        let monitor = monitor_with(&[GREETING, READY]).expect("connected");
        let error = monitor.execute("quit", json!({})).expect_err("gone");
        assert!(matches!(error, QmpError::Closed { .. }), "{error}");
        assert!(monitor.next_event(PATIENCE).is_none());
        assert!(monitor.is_closed());
    }

    #[test]
    fn a_silent_peer_is_not_waited_for_longer_than_asked() {
        let monitor = monitor_with(&[GREETING, READY, "not JSON"]).expect("connected");
        // The peer waits for another line before it ends.
        let error = monitor
            .execute_within("query-status", json!({}), Duration::from_millis(50))
            .expect_err("no answer");
        assert!(matches!(error, QmpError::NoAnswer { .. }), "{error}");
    }

    #[test]
    fn another_protocol_is_refused() {
        let error = monitor_with(&["SSH-2.0-OpenSSH_9.2"]).expect_err("not QMP");
        assert!(matches!(error, QmpError::NotQmp { .. }), "{error}");
    }
}
