// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the kernel unpacks first: the first process, the modules that lead to the root file
//! system, and what is carried over it. Made anew for each boot, because it carries the programs of
//! this build.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use cpio::newc::{Builder, ModeFileType, trailer};

use super::architecture::Architecture;
use super::error::SimError;
use super::image::Image;
use super::modules::Dependencies;
use super::options::SimOptions;

/// Where the first process is in the machine once it has its root.
pub(super) const METER: &str = "/usr/bin/rampart-meter";

/// A small archive in the form `newc` (Linux, Documentation/driver-api/early-userspace/
/// buffer-format.rst).
#[derive(Debug, Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: u32,
    directories: BTreeSet<String>,
}

impl Archive {
    fn add(&mut self, path: &str, kind: ModeFileType, permissions: u32, content: &[u8]) {
        self.entries += 1;
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let mut writer = Builder::new(path)
            .ino(self.entries)
            .mode(permissions)
            .set_mode_file_type(kind)
            .write(&mut self.bytes, length);
        // Writing to memory does not fail; a content over 4 GiB would, and is cut.
        let _ = writer.write_all(content);
        let _ = writer.finish();
    }

    /// A file, after the directories that lead to it.
    fn file(&mut self, path: &str, permissions: u32, content: &[u8]) {
        let path = path.trim_start_matches('/');
        for (at, _) in path.match_indices('/') {
            let directory = &path[..at];
            if self.directories.insert(directory.to_owned()) {
                self.add(directory, ModeFileType::Directory, 0o755, &[]);
            }
        }
        self.add(path, ModeFileType::Regular, permissions, content);
    }

    fn finish(mut self) -> Vec<u8> {
        let _ = trailer(&mut self.bytes);
        self.bytes
    }
}

/// The archive for one boot.
pub(super) fn make(
    image: &Image,
    architecture: &Architecture,
    options: &SimOptions,
) -> Result<Vec<u8>, SimError> {
    let release = &image.record().kernel_release;
    let dependencies = Dependencies::read(&image.modules())?;
    let ordered = |names: &[&'static str]| {
        dependencies
            .order(names.iter().copied())
            .map(|paths| paths.into_iter().map(str::to_owned).collect::<Vec<_>>())
            .map_err(|name| SimError::Image(format!("its kernel has no module {name}")))
    };
    let meter = fs::read(&options.meter).map_err(SimError::file("read", &options.meter))?;
    let mut archive = Archive::default();
    archive.file("/init", 0o755, &meter);
    archive.file(&format!("/carried{METER}"), 0o755, &meter);

    let early = ordered(architecture.early_modules)?;
    let mut list = String::new();
    for module in &early {
        let path = image.modules().join(module);
        let content = fs::read(&path).map_err(SimError::file("read", &path))?;
        archive.file(&format!("/modules/{module}"), 0o644, &content);
        list.push_str(&format!("/modules/{module}\n"));
    }
    archive.file("/etc/rampart/modules", 0o644, list.as_bytes());

    let mut names = architecture.late_modules.to_vec();
    if !options.forwards.is_empty() {
        names.push("virtio_net");
    }
    let below = format!("/usr/lib/modules/{release}");
    let mut list: String = ordered(&names)?
        .iter()
        .filter(|module| !early.contains(module))
        .map(|module| format!("{below}/{module}\n"))
        .collect();
    for (name, content) in own_modules(options, release)? {
        let path = format!("{below}/extra/{name}");
        archive.file(&format!("/carried{path}"), 0o644, &content);
        list.push_str(&path);
        list.push('\n');
    }
    archive.file("/carried/etc/rampart/modules", 0o644, list.as_bytes());
    Ok(archive.finish())
}

/// Modules of ours for this kernel, if any were built.
fn own_modules(options: &SimOptions, release: &str) -> Result<Vec<(String, Vec<u8>)>, SimError> {
    let Some(directory) = options.own_modules.as_ref().map(|all| all.join(release)) else {
        return Ok(Vec::new());
    };
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut modules = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|end| end == "ko")
            && let Some(name) = path.file_name().and_then(|name| name.to_str())
        {
            let content = fs::read(&path).map_err(SimError::file("read", &path))?;
            modules.push((name.to_owned(), content));
        }
    }
    modules.sort();
    Ok(modules)
}

/// Writes the archive to a file.
pub(super) fn write(
    to: &Path,
    image: &Image,
    architecture: &Architecture,
    options: &SimOptions,
) -> Result<(), SimError> {
    let bytes = make(image, architecture, options)?;
    fs::write(to, bytes).map_err(SimError::file("write", to))
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use cpio::newc::Reader;

    use super::*;

    #[test]
    fn each_directory_comes_once_and_before_its_files() {
        let mut archive = Archive::default();
        archive.file("/init", 0o755, b"program");
        archive.file("/a/b/one", 0o644, b"1");
        archive.file("/a/b/two", 0o644, b"22");
        let bytes = archive.finish();
        let mut rest = &bytes[..];
        let mut found = Vec::new();
        loop {
            let mut reader = Reader::new(rest).expect("an entry");
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).expect("read");
            let entry = reader.entry();
            found.push((entry.name().to_owned(), entry.mode(), content.len()));
            rest = reader.finish().expect("the next");
        }
        assert_eq!(
            found,
            [
                ("init".to_owned(), 0o100_755, 7),
                ("a".to_owned(), 0o040_755, 0),
                ("a/b".to_owned(), 0o040_755, 0),
                ("a/b/one".to_owned(), 0o100_644, 1),
                ("a/b/two".to_owned(), 0o100_644, 2),
            ]
        );
    }
}
