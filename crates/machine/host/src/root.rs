// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a machine is read from: the running one, or a recorded one.

use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The directory that holds a machine's `proc`, `sys` and `etc`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineRoot(PathBuf);

impl MachineRoot {
    /// The running machine.
    #[must_use]
    pub fn system() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A recorded machine.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Whether it is the running machine, which can be asked more than its files say.
    pub(crate) fn is_system(&self) -> bool {
        self.0 == Path::new("/")
    }

    /// A path inside, given without a leading slash.
    pub(crate) fn path(&self, inside: &str) -> PathBuf {
        self.0.join(inside)
    }

    /// Whether there is a file or directory.
    pub(crate) fn exists(&self, inside: &str) -> bool {
        self.path(inside).exists()
    }

    /// The bytes of a file.
    pub(crate) fn bytes(&self, inside: &str) -> Option<Vec<u8>> {
        std::fs::read(self.path(inside)).ok()
    }

    /// The text of a file; bytes that are no text are replaced.
    pub(crate) fn text(&self, inside: &str) -> Option<String> {
        self.bytes(inside)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The text of a file without space around it and without the zero bytes that device trees
    /// end their texts with; none if nothing is left.
    pub(crate) fn line(&self, inside: &str) -> Option<String> {
        let text = self.text(inside)?;
        let line = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        (!line.is_empty()).then(|| line.to_owned())
    }

    /// A file's text as a value.
    pub(crate) fn value<T: FromStr>(&self, inside: &str) -> Option<T> {
        self.line(inside)?.parse().ok()
    }

    /// Names in a directory in alphabetical order.
    pub(crate) fn names(&self, inside: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(inside))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// Names of the directories in a directory in alphabetical order.
    pub(crate) fn directories(&self, inside: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.path(inside))
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names
    }

    /// The numbers of names such as `node0`, in rising order.
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
