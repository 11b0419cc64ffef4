// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The archive that packages come from.

use std::process::Command;

use super::build_programs::output_of;
use super::packages::KEYRING;

/// The suite of the packages in the machine.
pub(super) const SUITE: &str = "bookworm";

/// Debian's own archive; a network of mirrors behind one name.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// Suffix of the security archive's address and suite.
const SECURITY_SUFFIX: &str = "-security";

/// The variable that names another archive: `URL`, or `URL URL-OF-SECURITY-UPDATES`.
const MIRROR_VARIABLE: &str = "RAMPART_DEBIAN_MIRROR";

/// The addresses of an archive and of its security updates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) archive: String,
    security: String,
}

/// The sources of one suite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sources {
    /// Address of the archive, for messages.
    pub(super) archive: String,
    /// The lines of `sources.list`.
    pub(super) lines: String,
}

impl Mirror {
    /// Returns the mirror of `RAMPART_DEBIAN_MIRROR`, else the mirror of this machine's apt for the
    /// same or another suite of Debian (an archive has all suites), else Debian's own archive.
    pub(super) fn find() -> Self {
        if let Ok(text) = std::env::var(MIRROR_VARIABLE)
            && let Some(mirror) = Self::parse(&text)
        {
            return mirror;
        }
        // apt itself reads its sources, which have two formats.
        let mut command = Command::new("apt-get");
        command.args([
            "indextargets",
            "--format",
            "$(RELEASE) $(REPO_URI) $(ORIGIN)",
        ]);
        Self::among(&output_of(command))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let archive = words.next()?.trim_end_matches('/').to_owned();
        let security = words.next().map_or_else(
            || format!("{archive}{SECURITY_SUFFIX}"),
            |word| word.trim_end_matches('/').to_owned(),
        );
        Some(Self { archive, security })
    }

    /// Selects a mirror from lines of suite, address and origin. Other vendors have a suite
    /// `bookworm` too; backports have another origin (`Debian Backports`).
    fn among(targets: &str) -> Self {
        let debians: Vec<(&str, &str)> = targets
            .lines()
            .filter_map(|line| {
                let (suite, rest) = line.split_once(' ')?;
                let (address, origin) = rest.split_once(' ')?;
                (origin.trim_end() == "Debian").then_some((suite, address))
            })
            .collect();
        let of = |ending: &str| {
            let own = format!("{SUITE}{ending}");
            let same = debians.iter().find(|(suite, _)| *suite == own);
            let other = || {
                debians
                    .iter()
                    .find(|(suite, _)| suite.ends_with(SECURITY_SUFFIX) != ending.is_empty())
            };
            same.or_else(other)
                .map(|(_, address)| address.trim_end_matches('/').to_owned())
        };
        let archive = of("").unwrap_or_else(|| DEFAULT_MIRROR.to_owned());
        let security = of(SECURITY_SUFFIX).unwrap_or_else(|| format!("{archive}{SECURITY_SUFFIX}"));
        Self { archive, security }
    }

    /// Returns the sources of a suite and of a further one without updates.
    pub(super) fn sources(&self, suite: &str, further: Option<&str>) -> Sources {
        let Self { archive, security } = self;
        let line = |address: &str, suite: &str| {
            format!("deb [signed-by={KEYRING}] {address} {suite} main\n")
        };
        Sources {
            archive: archive.clone(),
            lines: line(archive, suite)
                + &line(archive, &format!("{suite}-updates"))
                + &line(security, &format!("{suite}-security"))
                + &further
                    .map(|suite| line(archive, suite))
                    .unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefers_the_named_mirror_then_the_machines_then_debians() {
        let named = Mirror::parse(" http://near/debian/ ").expect("named");
        assert_eq!(named.archive, "http://near/debian");
        assert_eq!(named.security, "http://near/debian-security");
        let both = Mirror::parse("http://a http://b").expect("named");
        assert_eq!(
            (both.archive, both.security),
            ("http://a".to_owned(), "http://b".to_owned())
        );
        assert_eq!(Mirror::parse("  "), None);
        let own = Mirror::among(
            "nodistro https://packages.example/apt Example\n\
             bookworm https://download.docker.example/linux/debian Docker\n\
             bookworm-backports http://near/backports Debian Backports\n\
             bookworm http://near/deb/ Debian\nbookworm-security http://sec/x Debian\n",
        );
        assert_eq!(own.archive, "http://near/deb");
        assert_eq!(own.security, "http://sec/x");
        // A machine with Debian 13: the same archive has the older suite.
        let newer = Mirror::among(
            "trixie-security http://near/debian-security/ Debian\n\
             trixie http://near/debian/ Debian\ntrixie-updates http://near/debian/ Debian\n",
        );
        assert_eq!(newer.archive, "http://near/debian");
        assert_eq!(newer.security, "http://near/debian-security");
        assert!(
            newer
                .sources(SUITE, None)
                .lines
                .contains("http://near/debian bookworm main\n")
        );
        let none = Mirror::among(
            "jammy http://archive.ubuntu.com/ubuntu Ubuntu\nbookworm http://vendor/apt Vendor\n",
        );
        assert_eq!(none.archive, DEFAULT_MIRROR);
        assert!(
            none.sources(SUITE, None)
                .lines
                .contains("http://deb.debian.org/debian-security bookworm-security main")
        );
    }
}
