// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The agent: `rampart-meter agent`.

mod continued;
mod init;
mod kernel_log;
mod leftovers;
mod outgoing;
mod port;
mod session;
mod signals;
mod started_program;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) use init::{load_modules, to_console};
use session::{End, Session};

use crate::MemoryRange;

/// Interval between two polls of shared memory without a client.
const LOOK_AGAIN: Duration = Duration::from_millis(32);

/// The options of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeOptions {
    /// Name of the virtio-serial port; `None` selects standard input and output.
    pub port: Option<String>,
    /// Shared memory to use instead: the memory to read, and the memory to write.
    pub memory: Option<(MemoryRange, MemoryRange)>,
    /// Shared memory for the kernel log.
    pub console: Option<MemoryRange>,
    /// Runs as process 1: prepares the machine, and powers it off at the end.
    pub init: bool,
    /// Waits for the next client when one disconnects, instead of ending.
    pub stay: bool,
    /// Maximum silence of a client before it counts as disconnected; `None`: only the end of the
    /// stream counts.
    pub silence: Option<Duration>,
}

/// The reason why the agent failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The arguments are invalid.
    #[error(
        "{0}; usage: rampart-meter agent [--port NAME | --reads START+BYTES --writes START+BYTES] [--console START+BYTES] [--init] [--stay] [--silence SECONDS]"
    )]
    Usage(String),
    /// The port does not exist.
    #[error(
        "no virtio-serial port `{name}` ({present}); fix: add a port of that name to the machine"
    )]
    NoPort {
        /// Name of the requested port.
        name: String,
        /// The existing ports.
        present: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// The failed operation.
        what: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl ServeError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

impl ServeOptions {
    /// Parses the arguments after `rampart-meter agent`.
    ///
    /// # Errors
    /// Returns an error for an unknown argument or a missing value.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, ServeError> {
        let mut options = Self::default();
        let (mut reads, mut writes) = (None, None);
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .and_then(|value| value.into_string().ok())
                    .ok_or_else(|| {
                        ServeError::Usage(format!("{} needs a value", argument.display()))
                    })
            };
            match argument.to_str() {
                Some("--reads") => reads = Some(range(value()?)?),
                Some("--writes") => writes = Some(range(value()?)?),
                Some("--console") => options.console = Some(range(value()?)?),
                Some("--port") => options.port = Some(value()?),
                Some("--init") => options.init = true,
                Some("--stay") => options.stay = true,
                Some("--silence") => {
                    let text = value()?;
                    let seconds = text.parse().map_err(|_| {
                        ServeError::Usage(format!("--silence: `{text}` is not a number of seconds"))
                    })?;
                    options.silence = Some(Duration::from_secs(seconds));
                }
                _ => {
                    let text = argument.display();
                    return Err(ServeError::Usage(format!("unknown argument `{text}`")));
                }
            }
        }
        options.memory = match (reads, writes) {
            (Some(reads), Some(writes)) if options.port.is_none() => Some((reads, writes)),
            (None, None) => None,
            _ => {
                let text = "--reads and --writes need each other, and exclude --port";
                return Err(ServeError::Usage(text.to_owned()));
            }
        };
        Ok(options)
    }
}

fn range(text: String) -> Result<MemoryRange, ServeError> {
    text.parse().map_err(ServeError::Usage)
}

/// Serves clients until the client disconnects or requests the end. As process 1 it does not
/// return: the machine is powered off in every case.
///
/// # Errors
/// Returns an error if the port does not exist, or a system call fails.
pub fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    if !options.init {
        return run(options, Vec::new()).map(|_| ());
    }
    let problems = init::prepare_machine(options.console.is_some());
    if let Err(error) = run(options, problems) {
        init::to_console(&error.to_string());
    }
    init::power_off()
}

fn run(options: &ServeOptions, mut problems: Vec<String>) -> Result<(), ServeError> {
    let signals = signals::Signals::take().map_err(ServeError::system("signals"))?;
    if let Err(error) = leftovers::adopt() {
        problems.push(format!("cannot adopt orphaned processes: {error}"));
    }
    if let Some(console) = options.console {
        let copied = console.map(true).and_then(kernel_log::copy_to);
        if let Err(error) = copied {
            problems.push(format!("{console}: cannot open the console: {error}"));
        }
    }
    if let Some((reads, writes)) = options.memory {
        let map = |range: MemoryRange, writable| {
            let what = "shared memory in /dev/mem";
            range.map(writable).map_err(ServeError::system(what))
        };
        let (reads, writes) = (map(reads, false)?, map(writes, true)?);
        return serve_memory(options, reads, writes, signals, &problems);
    }
    let (input, output) = match &options.port {
        Some(name) => port::open(name)?,
        None => port::standard().map_err(ServeError::system("standard input and output"))?,
    };
    let mut session = Session::new(options, input, output, signals, problems);
    loop {
        let end = session.serve().map_err(ServeError::system("poll"))?;
        session.end_programs().map_err(ServeError::system("poll"))?;
        leftovers::kill();
        if end == End::Rested {
            session.answer_resting();
        }
        match end {
            End::Lost | End::Rested if options.stay => session.reset(),
            End::Lost | End::Rested | End::Requested => return Ok(()),
        }
    }
}

/// Serves the clients over shared memory, one after the other.
fn serve_memory(
    options: &ServeOptions,
    reads: &'static [AtomicU64],
    writes: &'static [AtomicU64],
    mut signals: signals::Signals,
    problems: &[String],
) -> Result<(), ServeError> {
    loop {
        let failed = || ServeError::system("shared memory");
        let Some(stream) = crate::memory::answer(writes, reads).map_err(failed())? else {
            if signals.read().end {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
            continue;
        };
        stream.set_nonblocking(true).map_err(failed())?;
        let output = stream.try_clone().map_err(failed())?;
        let (input, output) = (stream.into(), OwnedFd::from(output));
        let mut session = Session::new(options, input, output, signals, problems.to_vec());
        let end = session.serve().map_err(ServeError::system("poll"))?;
        session.end_programs().map_err(ServeError::system("poll"))?;
        leftovers::kill();
        if end == End::Requested || !options.stay {
            return Ok(());
        }
        signals = session.into_signals();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ServeOptions, ServeError> {
        ServeOptions::parse(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn parses_its_arguments() {
        assert_eq!(parse("").expect("none"), ServeOptions::default());
        assert_eq!(
            parse("--port agent.0 --init --stay --silence 30").expect("all"),
            ServeOptions {
                port: Some("agent.0".to_owned()),
                init: true,
                stay: true,
                silence: Some(Duration::from_secs(30)),
                ..ServeOptions::default()
            }
        );
        let range = |start, bytes| MemoryRange { start, bytes };
        let text = "--reads 0x1000+0x2000 --writes 0x4000+0x1000 --console 0x8000+0x1000";
        assert_eq!(
            parse(text).expect("all"),
            ServeOptions {
                memory: Some((range(0x1000, 0x2000), range(0x4000, 0x1000))),
                console: Some(range(0x8000, 0x1000)),
                ..ServeOptions::default()
            }
        );
        for invalid in [
            "--port",
            "--silence soon",
            "unknown",
            "--silence",
            "--reads 0x1000+0x1000",
            "--port x --reads 0x1000+0x1000 --writes 0x2000+0x1000",
            "--console 0x1",
        ] {
            assert!(
                matches!(parse(invalid), Err(ServeError::Usage(_))),
                "{invalid}"
            );
        }
    }
}
