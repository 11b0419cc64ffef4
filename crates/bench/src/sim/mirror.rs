// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where packages come from.

use std::process::Command;

use super::packages::KEYRING;
use super::program::said;

/// The suite, and what its archives add to their address.
const SUITE: &str = "bookworm";

/// Debian's own archive; a network of mirrors behind one name.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// Where the archive of security updates is, next to the archive itself.
const SECURITY_SUFFIX: &str = "-security";

/// Names another archive: `URL`, or `URL URL-OF-SECURITY-UPDATES`.
const MIRROR_VARIABLE: &str = "RAMPART_DEBIAN_MIRROR";

/// Where packages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirror {
    pub(super) archive: String,
    security: String,
}

impl Mirror {
    /// From `RAMPART_DEBIAN_MIRROR`, else what this machine's own apt uses for the same suite,
    /// else Debian's.
    pub(super) fn find() -> Self {
        if let Ok(text) = std::env::var(MIRROR_VARIABLE)
            && let Some(mirror) = Self::parse(&text)
        {
            return mirror;
        }
        // What apt makes of its sources, so that there is no second reader of its two formats.
        let mut command = Command::new("apt-get");
        command.args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)"]);
        Self::among(&said(command))
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

    /// From lines of an address and a suite.
    fn among(targets: &str) -> Self {
        let of = |suite: &str| {
            targets
                .lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(_, release)| *release == suite)
                .map(|(address, _)| address.trim_end_matches('/').to_owned())
        };
        let archive = of(SUITE).unwrap_or_else(|| DEFAULT_MIRROR.to_owned());
        let security = of(&format!("{SUITE}-security"))
            .unwrap_or_else(|| format!("{archive}{SECURITY_SUFFIX}"));
        Self { archive, security }
    }

    /// The lines of its `sources.list`.
    pub(super) fn sources(&self) -> String {
        let Self { archive, security } = self;
        let line = |address: &str, suite: &str| {
            format!("deb [signed-by={KEYRING}] {address} {suite} main\n")
        };
        line(archive, SUITE)
            + &line(archive, &format!("{SUITE}-updates"))
            + &line(security, &format!("{SUITE}-security"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_named_then_the_machines_own_then_debians() {
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
            "https://packages.example/apt nodistro\nhttp://near/deb/ bookworm\nhttp://sec/x bookworm-security\n",
        );
        assert_eq!(own.archive, "http://near/deb");
        assert_eq!(own.security, "http://sec/x");
        let none = Mirror::among("http://archive.ubuntu.com/ubuntu jammy\n");
        assert_eq!(none.archive, DEFAULT_MIRROR);
        assert!(
            none.sources()
                .contains("http://deb.debian.org/debian-security bookworm-security main")
        );
    }
}
