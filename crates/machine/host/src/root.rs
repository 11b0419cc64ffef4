// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The root directory from which a machine is read: the running one, or a recorded one.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The directory that contains a machine's `proc`, `sys` and `etc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRoot(PathBuf);

impl MachineRoot {
    /// Returns the root of the running machine.
    #[must_use]
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// Returns the root of a recorded machine.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns whether this is the running machine, of which more than files can be read.
    pub(crate) fn is_system(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// Returns the full path of `inside`, which has no leading slash.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside)
    }

    /// Returns whether a file or directory exists.
    pub(crate) fn exists(&self, inside: &str) -> bool {
        self.path(inside).exists()
    }

    /// Reads the bytes of a file.
    pub(crate) fn bytes(&self, inside: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(inside)).ok()
    }

    /// Reads the text of a file. Replaces bytes that are not UTF-8.
    pub(crate) fn text(&self, inside: &str) -> Option<String> {
        self.bytes(inside)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Reads the text of a file without surrounding space and the NUL bytes at the end of device tree
    /// strings. Returns `None` if it is empty.
    pub(crate) fn line(&self, inside: &str) -> Option<String> {
        let text = self.text(inside)?;
        let line = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// Parses a file's text.
    pub(crate) fn value<T: FromStr>(&self, inside: &str) -> Option<T> {
        self.line(inside)?.parse().ok()
    }

    /// Returns the names in a directory in alphabetical order.
    pub(crate) fn names(&self, inside: &str) -> Vec<String> {
        sorted_names(&self.path(inside), |_| true)
    }

    /// Returns the names of the directories in a directory in alphabetical order.
    pub(crate) fn directories(&self, inside: &str) -> Vec<String> {
        sorted_names(&self.path(inside), |entry| {
            entry.file_type().is_ok_and(|kind| kind.is_dir())
        })
    }

    /// Returns the numbers of names such as `node0`, in ascending order.
    pub(crate) fn numbered(&self, inside: &str, prefix: &str) -> Vec<u32> {
        let mut numbers: Vec<u32> = self
            .names(inside)
            .iter()
            .filter_map(|name| name.strip_prefix(prefix)?.parse().ok())
            .collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Returns the names of a directory's entries for which `keep` is true, in alphabetical order.
pub(crate) fn sorted_names(
    directory: &Path,
    keep: impl Fn(&std::fs::DirEntry) -> bool,
) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(keep)
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
