// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state directory.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The directory of the journals, the active plan and the lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDirectory(PathBuf);

impl StateDirectory {
    /// Returns `$RAMPART_STATE_DIR`, or `/var/lib/rampart` for root, or `$XDG_STATE_HOME/rampart`, or
    /// `~/.local/state/rampart` (XDG Base Directory Specification).
    #[must_use]
    pub fn standard() -> Self {
        Self::choose(|name| std::env::var_os(name), is_root())
    }

    /// Returns this directory as a state directory. The first write creates it.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn choose(variable: impl Fn(&str) -> Option<OsString>, root: bool) -> Self {
        // The specification requires absolute paths.
        let absolute = |name: &str| {
            variable(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let named = variable("RAMPART_STATE_DIR")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from);
        Self(named.unwrap_or_else(|| {
            if root {
                return PathBuf::from("/var/lib/rampart");
            }
            absolute("XDG_STATE_HOME")
                .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
                .unwrap_or_else(std::env::temp_dir)
                .join("rampart")
        }))
    }
}

/// Returns whether this process may change the machine.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_by_variable_then_user() {
        let choose = |variables: &[(&str, &str)], root| {
            let find = |name: &str| {
                variables
                    .iter()
                    .find(|(key, _)| *key == name)
                    .map(|(_, value)| OsString::from(value))
            };
            StateDirectory::choose(find, root).0
        };
        let home = ("HOME", "/home/ada");
        assert_eq!(
            choose(&[("RAMPART_STATE_DIR", "/x")], true),
            Path::new("/x")
        );
        assert_eq!(choose(&[home], true), Path::new("/var/lib/rampart"));
        assert_eq!(
            choose(&[("XDG_STATE_HOME", "/s"), home], false),
            Path::new("/s/rampart")
        );
        assert_eq!(
            choose(&[("XDG_STATE_HOME", "relative"), home], false),
            Path::new("/home/ada/.local/state/rampart")
        );
    }
}
