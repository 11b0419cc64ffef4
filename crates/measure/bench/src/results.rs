// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A result directory that arrives as a tar stream. A file is sent again each time it was written,
//! and the last copy is kept, so results survive the loss of the machine.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use rampart_host::replace_file;

/// Longest accepted file. No result is longer, and a broken stream must not fill the disk.
const LONGEST: u64 = 4 << 30;

/// The directory for results from another machine.
#[derive(Debug, Clone)]
pub struct Results {
    directory: PathBuf,
}

/// What a tar stream contained.
#[derive(Debug)]
pub struct Unpacked {
    /// Number of received files, counting repeated ones.
    pub files: u64,
    /// Why the stream ended before the end of the archive; `None` if it is complete.
    pub broken: Option<io::Error>,
}

impl Results {
    /// Creates a value for an existing directory.
    #[must_use]
    pub fn into_directory(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// Unpacks until the stream ends. Each file atomically replaces its predecessor. `edit` gets the
    /// name and content of every file and returns the content to write.
    pub fn unpack(
        &self,
        stream: impl Read,
        mut edit: impl FnMut(&str, Vec<u8>) -> Vec<u8>,
    ) -> Unpacked {
        let mut archive = tar::Archive::new(stream);
        let mut files = 0;
        let broken = (|| {
            for entry in archive.entries()? {
                self.take(entry?, &mut edit)?;
                files += 1;
            }
            Ok(())
        })()
        .err();
        Unpacked { files, broken }
    }

    fn take(
        &self,
        mut entry: tar::Entry<'_, impl Read>,
        edit: &mut impl FnMut(&str, Vec<u8>) -> Vec<u8>,
    ) -> io::Result<()> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
        let path = entry.path()?.into_owned();
        let name = path.to_string_lossy().into_owned();
        let inside = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if !inside || name.is_empty() || !entry.header().entry_type().is_file() {
            return Err(invalid(format!(
                "`{name}` is not a file of a result directory"
            )));
        }
        if entry.size() > LONGEST {
            return Err(invalid(format!("`{name}` has {} bytes", entry.size())));
        }
        let mut content = Vec::new();
        entry.read_to_end(&mut content)?;
        if content.len() as u64 != entry.size() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let content = edit(&name, content);
        let target = self.directory.join(&path);
        replace_file(&target, &content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn archive(files: &[(&str, &str)]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o644);
            archive
                .append_data(&mut header, name, content.as_bytes())
                .expect("appended");
        }
        archive.into_inner().expect("finished")
    }

    #[test]
    fn keeps_the_last_copy_of_a_file_as_edited() {
        let directory = tempfile::tempdir().expect("a directory");
        let results = Results::into_directory(directory.path());
        let bytes = archive(&[("a", "1"), ("h/0001.hlog", "x"), ("a", "2")]);
        let unpacked = results.unpack(bytes.as_slice(), |name, content| {
            if name == "a" {
                [content, b"!".to_vec()].concat()
            } else {
                content
            }
        });
        assert!(unpacked.broken.is_none());
        assert_eq!(unpacked.files, 3);
        let read = |name| fs::read_to_string(directory.path().join(name)).expect(name);
        assert_eq!(read("a"), "2!");
        assert_eq!(read("h/0001.hlog"), "x");
        assert_eq!(fs::read_dir(directory.path()).expect("listed").count(), 2);
    }

    #[test]
    fn keeps_complete_files_of_a_broken_stream() {
        let directory = tempfile::tempdir().expect("a directory");
        let results = Results::into_directory(directory.path());
        let long = "y".repeat(5000);
        let bytes = archive(&[("a", "1"), ("a", &long)]);
        for length in [512, 1024, 2000, 6000] {
            let unpacked = results.unpack(&bytes[..length], |_, content| content);
            assert_eq!(unpacked.files, u64::from(length >= 1024), "{length}");
            assert!(length == 1024 || unpacked.broken.is_some(), "{length}");
        }
        let content = fs::read_to_string(directory.path().join("a")).expect("read");
        assert_eq!(content, "1");
    }

    #[test]
    fn refuses_paths_outside_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let inside = directory.path().join("inside");
        fs::create_dir(&inside).expect("a directory");
        let results = Results::into_directory(&inside);
        let mut bytes = archive(&[("aaaaaa", "1")]);
        bytes[..6].copy_from_slice(b"../abc");
        // The header's checksum has to match the new name.
        let sum: u32 = bytes[..512]
            .iter()
            .enumerate()
            .map(|(at, byte)| {
                if (148..156).contains(&at) {
                    32
                } else {
                    u32::from(*byte)
                }
            })
            .sum();
        bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let unpacked = results.unpack(bytes.as_slice(), |_, content| content);
        assert_eq!(unpacked.files, 0);
        assert!(unpacked.broken.is_some());
        assert!(!directory.path().join("abc").exists());
    }
}
