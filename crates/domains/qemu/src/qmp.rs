// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A client of the QEMU Machine Protocol: commands, their answers, and a queue of events.
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

/// How long QEMU may take for one command. It answers in milliseconds, but may be delayed on a
/// machine with busy CPUs.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of queued events; the oldest are removed first.
const EVENTS_KEPT: usize = 1024;

/// An asynchronous event of QEMU.
#[derive(Debug, Clone, PartialEq)]
pub struct QmpEvent {
    /// Name, for example `GUEST_PANICKED` or `SHUTDOWN`.
    pub name: String,
    /// Data of the event, or null.
    pub data: Value,
}

/// A result, or the class and the description of an error.
type Answer = Result<Value, (String, String)>;

/// The data that the reading thread has received so far.
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

/// A connection to QEMU's monitor. All methods may be called from several threads.
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
    /// Reads the greeting, ends the negotiation of capabilities and starts the reading thread.
    ///
    /// # Errors
    /// Returns [`QmpError::NotQmp`] for another protocol, [`QmpError::Closed`] or
    /// [`QmpError::NoAnswer`] without an answer within `timeout`.
    pub fn new(stream: UnixStream, timeout: Duration) -> Result<Self, QmpError> {
        let mut reader = BufReader::new(stream.try_clone()?);
        stream.set_read_timeout(Some(timeout))?;
        let mut greeting = String::new();
        let read = reader.read_line(&mut greeting).map_err(|error| {
            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
                QmpError::NoAnswer {
                    command: "greeting".to_owned(),
                    limit: timeout,
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
        monitor.execute_within("qmp_capabilities", json!({}), timeout)?;
        Ok(monitor)
    }

    /// Executes a command and returns its result. `arguments` is an object, empty if there are
    /// none.
    ///
    /// # Errors
    /// Returns [`QmpError::Refused`] with QEMU's class and description, or another error if QEMU
    /// has ended or does not answer.
    pub fn execute(&self, command: &str, arguments: Value) -> Result<Value, QmpError> {
        self.execute_within(command, arguments, ANSWER_LIMIT)
    }

    /// Executes a command like [`execute`](Self::execute), with a time limit.
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
                    // The socket is full because QEMU does not read.
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

    /// Returns the oldest queued event; waits up to `timeout` for one. Returns `None` on a timeout,
    /// and at once if QEMU has ended and the queue is empty.
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

    /// Returns whether QEMU has closed the connection, as it does when it ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.lock().closed
    }
}

impl Drop for QmpMonitor {
    fn drop(&mut self) {
        // Ends the reading thread. Fails if the connection is already closed.
        if let Ok(writer) = self.writer.get_mut() {
            let _ = writer.stream.shutdown(Shutdown::Both);
        }
    }
}

/// Sorts messages of QEMU into answers and events until it closes the connection.
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
            // Answers this old are no longer awaited.
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

    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Returns a monitor whose peer answers each line with the next line of `script`.
    fn monitor_with(script: &'static [&'static str]) -> Result<QmpMonitor, QmpError> {
        let (near, far) = UnixStream::pair().expect("a pair");
        thread::spawn(move || {
            let mut reader = BufReader::new(far.try_clone().expect("a clone"));
            let mut far = far;
            let mut request = String::new();
            for line in script {
                far.write_all(line.as_bytes()).expect("written");
                far.write_all(b"\n").expect("written");
                request.clear();
                if reader.read_line(&mut request).expect("read") == 0 {
                    return;
                }
            }
        });
        QmpMonitor::new(near, TIMEOUT)
    }

    const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;
    const READY: &str = r#"{"return": {}, "id": 1}"#;

    #[test]
    fn assigns_answers_to_commands_and_queues_events() {
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
    fn refusal_contains_class_and_description() {
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
    fn reports_a_closed_connection_at_once() {
        let monitor = monitor_with(&[GREETING, READY]).expect("connected");
        let error = monitor.execute("quit", json!({})).expect_err("gone");
        assert!(matches!(error, QmpError::Closed { .. }), "{error}");
        assert!(monitor.next_event(TIMEOUT).is_none());
        assert!(monitor.is_closed());
    }

    #[test]
    fn respects_the_time_limit_with_a_silent_peer() {
        let monitor = monitor_with(&[GREETING, READY, "not JSON"]).expect("connected");
        // The peer waits for another line before it ends.
        let error = monitor
            .execute_within("query-status", json!({}), Duration::from_millis(50))
            .expect_err("no answer");
        assert!(matches!(error, QmpError::NoAnswer { .. }), "{error}");
    }

    #[test]
    fn refuses_another_protocol() {
        let error = monitor_with(&["SSH-2.0-OpenSSH_9.2"]).expect_err("not QMP");
        assert!(matches!(error, QmpError::NotQmp { .. }), "{error}");
    }
}
