// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds a guest's initramfs: the meter as its only program, the modules that its kernel lacks,
//! and optionally a load program.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use rampart_agent::INIT;
use rampart_initramfs::Archive;

use super::program_libraries::Libraries;
use crate::DomainError;
use crate::kernel_modules::{self, Module};

/// The load program.
pub(super) const LOAD: &str = "/usr/bin/stress-ng";
/// Directories that the kernel or the agent expect.
const DIRECTORIES: [&str; 8] = ["dev", "proc", "sys", "tmp", "run", "root", "etc", "var"];

/// The contents of an initramfs.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    /// The static meter.
    pub(super) meter: &'a Path,
    /// Modules in loading order.
    pub(super) modules: &'a [Module],
    /// The load program with its libraries, if requested.
    pub(super) load: Option<&'a Libraries>,
}

/// Writes the archive.
pub(super) fn write(path: &Path, contents: &Contents<'_>) -> Result<(), DomainError> {
    let failed = || DomainError::file("write the guest's initramfs", path);
    let output = File::create(path).map_err(failed())?;
    fill(Archive::new(BufWriter::new(output)), contents).map_err(failed())
}

fn fill(mut archive: Archive<BufWriter<File>>, contents: &Contents<'_>) -> io::Result<()> {
    for directory in DIRECTORIES {
        archive.directory(directory)?;
    }
    archive.file(INIT, 0o755, &read(contents.meter)?)?;
    for (path, bytes) in kernel_modules::files(contents.modules) {
        archive.file(&path, 0o644, &bytes)?;
    }
    if let Some(load) = contents.load {
        archive.file(LOAD, 0o755, &read(&load.program)?)?;
        for library in &load.libraries {
            let path = library.display().to_string();
            archive.file(&path, 0o755, &read(library)?)?;
        }
    }
    archive.finish()?;
    Ok(())
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    fs::read(path).map_err(|cause| {
        let what = format!("cannot read {}: {cause}", path.display());
        io::Error::new(cause.kind(), what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rampart_agent::MODULE_LIST;
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
    fn archives_meter_modules_and_load_with_directories() {
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
        write(&path, &contents).expect("written");
        let bytes = fs::read(&path).expect("read");
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
            find(&MODULE_LIST[1..]).2,
            b"/lib/modules/virtio.ko\n/lib/modules/virtio_console.ko\n"
        );
        assert_eq!(find("lib/modules/virtio_console.ko").2, b"two");
        assert_eq!(find("usr/bin/stress-ng").2, b"METER");
        let inside = library.display().to_string();
        assert_eq!(find(inside.trim_start_matches('/')).2, b"LIBRARY");
        // Every file's directory precedes it.
        for (at, (name, _, _)) in entries.iter().enumerate() {
            if let Some((parent, _)) = name.rsplit_once('/') {
                let location = entries.iter().position(|(other, _, _)| other == parent);
                assert!(location.is_some_and(|location| location < at), "{name}");
            }
        }
    }

    #[test]
    fn names_a_missing_file() {
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
