// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bench that a user names.

use std::fmt;
use std::str::FromStr;

use rampart_model::nearest;

use crate::sim::{Architecture, SimError};

/// Where to run: `local`, `sim`, `sim:ARCHITECTURE` or `ssh:[USER@]HOST[:PORT]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum BenchSelection {
    /// This machine.
    #[default]
    Local,
    /// A simulated machine, booted for this run; of this machine's architecture if `None`.
    Sim(Option<&'static Architecture>),
    /// Another machine.
    Ssh(SshHost),
}

/// A machine in the syntax of `ssh`. The name may be a host alias of the user's ssh configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshHost {
    /// As the user wrote it.
    text: String,
    /// `[USER@]HOST`.
    destination: String,
    port: Option<u16>,
}

impl SshHost {
    /// Returns `[USER@]HOST` for the command line of `ssh`. It never begins with `-`.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.destination
    }

    /// Returns the port, if one is named.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.port
    }
}

impl fmt::Display for SshHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Display for BenchSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.pad("local"),
            Self::Sim(None) => f.pad("sim"),
            Self::Sim(Some(architecture)) => f.pad(&format!("sim:{architecture}")),
            Self::Ssh(host) => f.pad(&format!("ssh:{host}")),
        }
    }
}

/// The error of a text that names no bench.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a bench{}; fix: write local, sim, {}, or ssh:[USER@]HOST[:PORT]",
    meant(text),
    Architecture::names().map(|name| format!("sim:{name}")).join(", ")
)]
pub struct ParseBenchError {
    text: String,
}

/// Returns the bench that a text resembles, or that is another machine of this name.
fn meant(text: &str) -> String {
    let simulated = Architecture::names().map(|name| format!("sim:{name}"));
    let known = ["local", "sim"]
        .into_iter()
        .chain(simulated.iter().map(String::as_str));
    match nearest(text, known) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if !text.contains(':') && text.parse::<SshHost>().is_ok() => {
            format!("; did you mean `ssh:{text}`?")
        }
        None => String::new(),
    }
}

impl ParseBenchError {
    fn of(text: &str) -> Self {
        Self {
            text: text.to_owned(),
        }
    }
}

impl BenchSelection {
    /// Returns the architecture of the simulated machine; `None` if the bench is not simulated.
    ///
    /// # Errors
    /// Returns an error if none is named and this machine's architecture cannot be simulated.
    pub fn simulated(&self) -> Result<Option<&'static Architecture>, SimError> {
        match self {
            Self::Local | Self::Ssh(_) => Ok(None),
            Self::Sim(Some(architecture)) => Ok(Some(architecture)),
            Self::Sim(None) => Architecture::of_this_machine().map(Some),
        }
    }
}

impl FromStr for BenchSelection {
    type Err = ParseBenchError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "local" => Ok(Self::Local),
            "sim" => Ok(Self::Sim(None)),
            _ => {
                let simulated = || Architecture::named(text.strip_prefix("sim:")?);
                let other = || text.strip_prefix("ssh:")?.parse().ok().map(Self::Ssh);
                simulated()
                    .map(|architecture| Self::Sim(Some(architecture)))
                    .or_else(other)
                    .ok_or_else(|| ParseBenchError::of(text))
            }
        }
    }
}

impl FromStr for SshHost {
    type Err = ParseBenchError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseBenchError::of(text);
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        // An IPv6 address is in brackets if a port follows.
        let (host, port) = match host.strip_prefix('[') {
            Some(address) => {
                let (host, rest) = address.split_once(']').ok_or_else(error)?;
                let port = match rest {
                    "" => None,
                    _ => Some(rest.strip_prefix(':').ok_or_else(error)?),
                };
                (host, port)
            }
            None => match host.split_once(':') {
                Some((_, rest)) if rest.contains(':') => (host, None),
                Some((host, port)) => (host, Some(port)),
                None => (host, None),
            },
        };
        let port = port.map(str::parse).transpose().map_err(|_| error())?;
        let odd = |part: &str| {
            part.is_empty() || part.starts_with('-') || part.contains(char::is_whitespace)
        };
        if odd(host) || user.is_some_and(odd) || port == Some(0) {
            return Err(error());
        }
        Ok(Self {
            text: text.to_owned(),
            destination: match user {
                Some(user) => format!("{user}@{host}"),
                None => host.to_owned(),
            },
            port,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_benches() {
        let cases = [
            ("ssh:board", "board", None),
            ("ssh:root@board:2222", "root@board", Some(2222)),
            ("ssh:root@[::1]:2222", "root@::1", Some(2222)),
            ("ssh:fe80::1", "fe80::1", None),
            ("ssh:a@b@c", "a@b@c", None),
        ];
        for (text, destination, port) in cases {
            let bench: BenchSelection = text.parse().expect(text);
            assert_eq!(bench.to_string(), text);
            let BenchSelection::Ssh(host) = bench else {
                panic!("{text}");
            };
            assert_eq!((host.destination(), host.port()), (destination, port));
        }
        assert_eq!("sim".parse(), Ok(BenchSelection::Sim(None)));
        for name in ["x86_64", "aarch64"] {
            let text = format!("sim:{name}");
            let bench: BenchSelection = text.parse().expect("known");
            assert_eq!(bench.to_string(), text);
            let architecture = bench.simulated().expect("named").expect("simulated");
            assert_eq!(architecture.name(), name);
        }
        assert_eq!(BenchSelection::Local.simulated().expect("none"), None);
        assert_eq!("local".parse(), Ok(BenchSelection::Local));
        for text in [
            "",
            "sim:",
            "sim:riscv64",
            "ssh",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:root@-x",
            "ssh:@board",
            "ssh:board:0",
            "ssh:board:many",
            "ssh:[::1",
            "ssh:[::1]2",
            "ssh:a b",
            "board",
        ] {
            assert!(text.parse::<BenchSelection>().is_err(), "{text}");
        }
        for (text, meant) in [
            ("root@board", "`ssh:root@board`?"),
            ("lokal", "`local`?"),
            ("sim:aarch46", "`sim:aarch64`?"),
        ] {
            let error = text.parse::<BenchSelection>().expect_err(text).to_string();
            assert!(error.contains(meant), "{error}");
        }
    }
}
