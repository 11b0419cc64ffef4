// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the archive that a kernel unpacks into its first root file system: cpio in the `newc`
//! format (Linux documents `filesystems/ramfs-rootfs-initramfs.rst` and
//! `driver-api/early-userspace/buffer-format.rst`).
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::io::{self, Write};

use cpio::newc::{Builder, ModeFileType, trailer};

/// An archive that is being written.
#[derive(Debug)]
pub struct Archive<Output> {
    output: Output,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<Output: Write> Archive<Output> {
    /// Creates an empty archive.
    pub fn new(output: Output) -> Self {
        Self {
            output,
            entries: 0,
            directories: BTreeSet::new(),
        }
    }

    /// Adds a directory and its missing parents. Has no effect if the directory exists.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        let parents = path.match_indices('/').map(|(at, _)| at);
        for end in parents.chain([path.len()]) {
            let directory = &path[..end];
            if !directory.is_empty() && self.directories.insert(directory.to_owned()) {
                self.add(directory, ModeFileType::Directory, 0o755, &[])?;
            }
        }
        Ok(())
    }

    /// Adds a file with these permissions and its missing parent directories.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written, or if the file exceeds the limit of the
    /// format, 4 GiB.
    pub fn file(&mut self, path: &str, permissions: u32, content: &[u8]) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if let Some((directory, _)) = path.rsplit_once('/') {
            self.directory(directory)?;
        }
        self.add(path, ModeFileType::Regular, permissions, content)
    }

    /// Adds a character device (numbers: Linux, admin-guide/devices.txt) and its missing parent
    /// directories, for a first program that runs before `/dev` is mounted.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn character_device(
        &mut self,
        path: &str,
        permissions: u32,
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        let path = path.trim_start_matches('/');
        if let Some((directory, _)) = path.rsplit_once('/') {
            self.directory(directory)?;
        }
        self.entries += 1;
        Builder::new(path)
            .ino(self.entries)
            .mode(permissions)
            .set_mode_file_type(ModeFileType::Char)
            .nlink(1)
            .rdev_major(major)
            .rdev_minor(minor)
            .write(&mut self.output, 0)
            .finish()?;
        Ok(())
    }

    /// Ends the archive and returns the output.
    ///
    /// # Errors
    /// Returns an error if the output cannot be written.
    pub fn finish(mut self) -> io::Result<Output> {
        trailer(&mut self.output)?;
        self.output.flush()?;
        Ok(self.output)
    }

    fn add(
        &mut self,
        path: &str,
        kind: ModeFileType,
        permissions: u32,
        content: &[u8],
    ) -> io::Result<()> {
        let length = u32::try_from(content.len()).map_err(|_| {
            io::Error::other(format!(
                "{path} has {} bytes; an initramfs holds files of at most {}",
                content.len(),
                u32::MAX
            ))
        })?;
        // Two entries with the same number would be read as hard links of one file.
        self.entries += 1;
        let links = match kind {
            ModeFileType::Directory => 2,
            _ => 1,
        };
        let mut writer = Builder::new(path)
            .ino(self.entries)
            .mode(permissions)
            .set_mode_file_type(kind)
            .nlink(links)
            .write(&mut self.output, length);
        writer.write_all(content)?;
        writer.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use cpio::newc::Reader;

    use super::*;

    fn read_back(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let (mut rest, mut found) = (bytes, Vec::new());
        loop {
            let mut reader = Reader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                return found;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).expect("read");
            let entry = reader.entry();
            found.push((entry.name().to_owned(), entry.mode(), content));
            rest = reader.finish().expect("the next");
        }
    }

    #[test]
    fn adds_each_directory_once_and_before_its_files() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("/dev").expect("written");
        archive.file("/init", 0o755, b"program").expect("written");
        archive.file("/a/b/one", 0o644, b"1").expect("written");
        archive.file("a/b/two", 0o644, b"22").expect("written");
        archive.directory("a/c/").expect("written");
        archive
            .character_device("/dev/null", 0o666, (1, 3))
            .expect("written");
        let found = read_back(&archive.finish().expect("ended"));
        let entries: Vec<(&str, u32, usize)> = found
            .iter()
            .map(|(name, mode, content)| (name.as_str(), *mode, content.len()))
            .collect();
        assert_eq!(
            entries,
            [
                ("dev", 0o040_755, 0),
                ("init", 0o100_755, 7),
                ("a", 0o040_755, 0),
                ("a/b", 0o040_755, 0),
                ("a/b/one", 0o100_644, 1),
                ("a/b/two", 0o100_644, 2),
                ("a/c", 0o040_755, 0),
                ("dev/null", 0o020_666, 0),
            ]
        );
    }

    #[test]
    fn reports_a_failed_write() {
        // An output that accepts only this number of entries.
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 = self
                    .0
                    .checked_sub(bytes.len())
                    .ok_or(io::ErrorKind::StorageFull)?;
                Ok(bytes.len())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut archive = Archive::new(Full(200));
        archive.file("/one", 0o644, b"1").expect("there is room");
        let error = archive.file("/two", 0o644, &[0; 500]).expect_err("full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        archive.finish().map(|_| ()).expect_err("nor its end");
    }
}
