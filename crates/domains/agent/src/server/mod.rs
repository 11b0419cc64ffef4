// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The far side: `rampart-meter agent`.

mod init;
mod kernel_log;
mod leftovers;
mod outgoing;
mod port;
mod program;
mod session;
mod signals;

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

pub(crate) use init::{load_modules, to_console};
use session::{End, Session};

use crate::MemoryPlace;

/// How often shared memory is looked at while nobody calls there.
const LOOK_AGAIN: Duration = Duration::from_millis(32);

/// How the agent is reached and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeOptions {
    /// Name of the virtio-serial port that it speaks on; none: standard input and output.
    pub port: Option<String>,
    /// Shared memory that it speaks over instead: what it reads, and what it writes.
    pub memory: Option<(MemoryPlace, MemoryPlace)>,
    /// Shared memory into which it carries the kernel's log.
    pub console: Option<MemoryPlace>,
    /// It is process 1: make the machine ready first, power it off at the end.
    pub init: bool,
    /// When the near side goes away, wait for the next instead of ending.
    pub stay: bool,
    /// Take it for gone when it says nothing for so long; none: only when the stream ends.
    pub silence: Option<Duration>,
}

/// Why the agent ended without having served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The arguments make no sense.
    #[error(
        "{0}; usage: rampart-meter agent [--port NAME | --reads START+BYTES --writes START+BYTES] [--console START+BYTES] [--init] [--stay] [--silence SECONDS]"
    )]
    Usage(String),
    /// The port is not there.
    #[error(
        "no virtio-serial port `{name}` ({present}); fix: give the machine a port of that name"
    )]
    NoPort {
        /// The name asked for.
        name: String,
        /// The ports that there are.
        present: String,
    },
    /// The system said no.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl ServeError {
    fn system(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what, source }
    }
}

impl ServeOptions {
    /// Reads the arguments behind `rampart-meter agent`.
    ///
    /// # Errors
    /// If one of them is unknown, or a value is missing.
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
                Some("--reads") => reads = Some(place(value()?)?),
                Some("--writes") => writes = Some(place(value()?)?),
                Some("--console") => options.console = Some(place(value()?)?),
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

fn place(text: String) -> Result<MemoryPlace, ServeError> {
    text.parse().map_err(ServeError::Usage)
}

/// Serves the near side until it goes away or says so. As process 1 it does not return: the
/// machine is powered off, whatever happens.
///
/// # Errors
/// If the port is not there, or a system call that cannot fail does.
pub fn serve(options: &ServeOptions) -> Result<(), ServeError> {
    if !options.init {
        return run(options, Vec::new()).map(|_| ());
    }
    let problems = init::make_ready(options.console.is_some());
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
        let carried = console.map(true).and_then(kernel_log::carry);
        if let Err(error) = carried {
            problems.push(format!("{console}: cannot open the console: {error}"));
        }
    }
    if let Some((reads, writes)) = options.memory {
        let map = |location: MemoryPlace, writable| {
            let what = "shared memory in /dev/mem";
            location.map(writable).map_err(ServeError::system(what))
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
        match end {
            End::Lost if options.stay => session.forget_caller(),
            End::Lost | End::Requested => return Ok(()),
        }
    }
}

/// Serves who calls over shared memory, one after the other.
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
    fn reads_its_arguments() {
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
        let location = |start, bytes| MemoryPlace { start, bytes };
        let text = "--reads 0x1000+0x2000 --writes 0x4000+0x1000 --console 0x8000+0x1000";
        assert_eq!(
            parse(text).expect("all"),
            ServeOptions {
                memory: Some((location(0x1000, 0x2000), location(0x4000, 0x1000))),
                console: Some(location(0x8000, 0x1000)),
                ..ServeOptions::default()
            }
        );
        for wrong in [
            "--port",
            "--silence soon",
            "unknown",
            "--silence",
            "--reads 0x1000+0x1000",
            "--port x --reads 0x1000+0x1000 --writes 0x2000+0x1000",
            "--console 0x1",
        ] {
            assert!(matches!(parse(wrong), Err(ServeError::Usage(_))), "{wrong}");
        }
    }
}
