// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The far side: `rampart-meter agent`.

mod init;
mod leftovers;
mod outgoing;
mod port;
mod program;
mod session;
mod signals;

use std::ffi::OsString;
use std::io;
use std::time::Duration;

pub(crate) use init::{load_modules, to_console};
use session::{End, Session};

/// How the agent is reached and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServeOptions {
    /// Name of the virtio-serial port that it speaks on; none: standard input and output.
    pub port: Option<String>,
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
    #[error("{0}; write rampart-meter agent [--port NAME] [--init] [--stay] [--silence SECONDS]")]
    Usage(String),
    /// The port is not there.
    #[error(
        "there is no virtio-serial port `{name}` ({present}); give the machine one of that name"
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
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .and_then(|value| value.into_string().ok())
                    .ok_or_else(|| {
                        ServeError::Usage(format!("{} lacks its value", argument.display()))
                    })
            };
            match argument.to_str() {
                Some("--port") => options.port = Some(value()?),
                Some("--init") => options.init = true,
                Some("--stay") => options.stay = true,
                Some("--silence") => {
                    let text = value()?;
                    let seconds = text.parse().map_err(|_| {
                        ServeError::Usage(format!("--silence is `{text}`, not a number of seconds"))
                    })?;
                    options.silence = Some(Duration::from_secs(seconds));
                }
                _ => {
                    let text = argument.display();
                    return Err(ServeError::Usage(format!(
                        "`{text}` is no argument of agent"
                    )));
                }
            }
        }
        Ok(options)
    }
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
    let problems = init::make_ready();
    if let Err(error) = run(options, problems) {
        init::to_console(&error.to_string());
    }
    init::power_off()
}

fn run(options: &ServeOptions, mut problems: Vec<String>) -> Result<(), ServeError> {
    let signals = signals::Signals::take().map_err(ServeError::system("signals"))?;
    if let Err(error) = leftovers::adopt() {
        problems.push(format!("orphans cannot be adopted: {error}"));
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
            End::Lost | End::Told => return Ok(()),
        }
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
            parse("--port hand.0 --init --stay --silence 30").expect("all"),
            ServeOptions {
                port: Some("hand.0".to_owned()),
                init: true,
                stay: true,
                silence: Some(Duration::from_secs(30)),
            }
        );
        for wrong in ["--port", "--silence soon", "hand", "--silence"] {
            assert!(matches!(parse(wrong), Err(ServeError::Usage(_))), "{wrong}");
        }
    }
}
