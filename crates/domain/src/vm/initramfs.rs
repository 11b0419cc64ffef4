// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest finds in its memory when it boots: the meter as its only program, the modules that
//! its kernel lacks, and a load program where one is wanted
//! (Linux document `filesystems/ramfs-rootfs-initramfs.rst`: a cpio archive of the format `newc`).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use cpio::newc::{Builder, ModeFileType, trailer};

use super::libraries::Libraries;
use super::modules::Module;
use crate::DomainError;

/// The first program, which is the meter.
pub(super) const INIT: &str = "/init";
/// The load program.
pub(super) const LOAD: &str = "/usr/bin/stress-ng";
/// The list of modules that the agent loads, in order.
const MODULE_LIST: &str = "etc/rampart/modules";
/// Directories that the kernel or the agent expects.
const DIRECTORIES: [&str; 8] = ["dev", "proc", "sys", "tmp", "run", "root", "etc", "var"];

/// What goes in.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    /// The static meter.
    pub(super) meter: &'a Path,
    /// Modules in the order in which they are loaded.
    pub(super) modules: &'a [Module],
    /// The load program with its libraries, where one is wanted.
    pub(super) load: Option<&'a Libraries>,
}

/// One thing in the archive.
#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Directory(String),
    File {
        path: String,
        mode: u32,
        from: Source,
    },
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    Bytes(Vec<u8>),
    Path(PathBuf),
}

/// Writes the archive and tells its length in bytes.
pub(super) fn write(path: &Path, contents: &Contents<'_>) -> Result<u64, DomainError> {
    let failed = || DomainError::file("write the guest's initramfs", path);
    let file = File::create(path).map_err(failed())?;
    let mut output = BufWriter::new(file);
    archive(&mut output, &entries(contents)).map_err(failed())?;
    let file = output
        .into_inner()
        .map_err(|error| failed()(error.into_error()))?;
    Ok(file.metadata().map_err(failed())?.len())
}

fn entries(contents: &Contents<'_>) -> Vec<Entry> {
    let mut files = vec![Entry::File {
        path: INIT.trim_start_matches('/').to_owned(),
        mode: 0o755,
        from: Source::Path(contents.meter.to_owned()),
    }];
    let mut list = String::new();
    for module in contents.modules {
        let path = format!("lib/modules/{}.ko", module.name);
        list.push_str(&format!("/{path}\n"));
        files.push(Entry::File {
            path,
            mode: 0o644,
            from: Source::Bytes(module.bytes.clone()),
        });
    }
    files.push(Entry::File {
        path: MODULE_LIST.to_owned(),
        mode: 0o644,
        from: Source::Bytes(list.into_bytes()),
    });
    if let Some(load) = contents.load {
        files.push(Entry::File {
            path: LOAD.trim_start_matches('/').to_owned(),
            mode: 0o755,
            from: Source::Path(load.program.clone()),
        });
        for library in &load.libraries {
            files.push(Entry::File {
                path: library
                    .display()
                    .to_string()
                    .trim_start_matches('/')
                    .to_owned(),
                mode: 0o755,
                from: Source::Path(library.clone()),
            });
        }
    }
    let mut directories: BTreeSet<String> = DIRECTORIES.map(str::to_owned).into();
    for entry in &files {
        if let Entry::File { path, .. } = entry {
            directories.extend(
                Path::new(path)
                    .ancestors()
                    .skip(1)
                    .map(|parent| parent.display().to_string())
                    .filter(|parent| !parent.is_empty()),
            );
        }
    }
    // A directory comes before what is in it, which the order of the alphabet gives.
    directories
        .into_iter()
        .map(Entry::Directory)
        .chain(files)
        .collect()
}

fn archive(output: &mut impl Write, entries: &[Entry]) -> io::Result<()> {
    for (number, entry) in entries.iter().enumerate() {
        // Two entries with one number would be taken for one file with two names.
        let number = u32::try_from(number + 1).map_err(io::Error::other)?;
        match entry {
            Entry::Directory(path) => {
                Builder::new(path)
                    .ino(number)
                    .mode(0o755)
                    .set_mode_file_type(ModeFileType::Directory)
                    .nlink(2)
                    .write(&mut *output, 0)
                    .finish()?;
            }
            Entry::File { path, mode, from } => {
                let read;
                let bytes = match from {
                    Source::Bytes(bytes) => bytes,
                    Source::Path(source) => {
                        read = fs::read(source).map_err(|cause| {
                            io::Error::new(
                                cause.kind(),
                                format!("{} cannot be read: {cause}", source.display()),
                            )
                        })?;
                        &read
                    }
                };
                let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
                let mut file = Builder::new(path)
                    .ino(number)
                    .mode(*mode)
                    .set_mode_file_type(ModeFileType::Regular)
                    .nlink(1)
                    .write(&mut *output, length);
                file.write_all(bytes)?;
                file.finish()?;
            }
        }
    }
    trailer(output)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;

    fn read_back(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut input = bytes;
        let mut found = Vec::new();
        loop {
            let mut reader = cpio::newc::Reader::new(input).expect("an entry");
            if reader.entry().is_trailer() {
                return found;
            }
            let (name, mode) = (reader.entry().name().to_owned(), reader.entry().mode());
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).expect("contents");
            found.push((name, mode, bytes));
            input = reader.finish().expect("the next");
        }
    }

    #[test]
    fn the_archive_holds_the_meter_modules_and_load_with_their_directories() {
        let directory = tempfile::tempdir().expect("directory");
        let meter = directory.path().join("meter");
        let library = directory.path().join("libx.so");
        fs::write(&meter, b"METER").expect("file");
        fs::write(&library, b"LIBRARY").expect("file");
        let modules = [("virtio", "one"), ("virtio_console", "two")].map(|(name, bytes)| Module {
            name: name.to_owned(),
            bytes: bytes.as_bytes().to_vec(),
        });
        let load = Libraries {
            program: meter.clone(),
            libraries: vec![library.clone()],
        };
        let path = directory.path().join("initramfs");
        let contents = Contents {
            meter: &meter,
            modules: &modules,
            load: Some(&load),
        };
        let length = write(&path, &contents).expect("written");
        let bytes = fs::read(&path).expect("read");
        assert_eq!(bytes.len() as u64, length);
        let entries = read_back(&bytes);
        let find = |name: &str| {
            entries
                .iter()
                .find(|(path, _, _)| path == name)
                .unwrap_or_else(|| panic!("no {name}"))
        };
        assert_eq!(find("init").1, 0o100_755);
        assert_eq!(find("init").2, b"METER");
        assert_eq!(find("dev").1, 0o040_755);
        assert_eq!(
            find(MODULE_LIST).2,
            b"/lib/modules/virtio.ko\n/lib/modules/virtio_console.ko\n"
        );
        assert_eq!(find("lib/modules/virtio_console.ko").2, b"two");
        assert_eq!(find("usr/bin/stress-ng").2, b"METER");
        let inside = library.display().to_string();
        assert_eq!(find(inside.trim_start_matches('/')).2, b"LIBRARY");
        // Every file's directory is there before it.
        for (at, (name, _, _)) in entries.iter().enumerate() {
            if let Some((parent, _)) = name.rsplit_once('/') {
                let place = entries.iter().position(|(other, _, _)| other == parent);
                assert!(place.is_some_and(|place| place < at), "{name}");
            }
        }
    }

    #[test]
    fn a_file_that_is_gone_is_named() {
        let directory = tempfile::tempdir().expect("directory");
        let contents = Contents {
            meter: Path::new("/nowhere/meter"),
            modules: &[],
            load: None,
        };
        let error = write(&directory.path().join("initramfs"), &contents).expect_err("must fail");
        assert!(error.to_string().contains("/nowhere/meter"), "{error}");
    }
}
