// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds a program with its shared libraries, to copy them into a guest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader as _};
use rampart_host::run_within;

/// Time limit for a loader: it takes milliseconds, and seconds on an emulated machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A program and its libraries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Libraries {
    /// The program.
    pub(super) program: PathBuf,
    /// Its libraries and its loader, by the paths that the loader uses.
    pub(super) libraries: Vec<PathBuf>,
}

impl Libraries {
    /// Finds `name` in `PATH` with everything that its loader loads. Returns `None` if there is no
    /// such program, or its loader cannot load it.
    pub(super) fn of_program(name: &str) -> Option<Self> {
        let path = std::env::var_os("PATH")?;
        let program = std::env::split_paths(&path)
            .map(|directory| directory.join(name))
            .find(|candidate| candidate.is_file())?;
        Self::of(&program)
    }

    fn of(program: &Path) -> Option<Self> {
        let bytes = fs::read(program).ok()?;
        let Some(loader) = interpreter(&bytes) else {
            // Static programs need nothing.
            return ElfFile64::<object::Endianness>::parse(bytes.as_slice())
                .ok()
                .map(|_| Self {
                    program: program.to_owned(),
                    libraries: Vec::new(),
                });
        };
        // ld.so(8): `--list` prints the libraries, with all search paths applied, and does not run
        // the program. musl's loader supports it too.
        let mut command = Command::new(&loader);
        command.arg("--list").arg(program).env_remove("LD_PRELOAD");
        let answer = run_within(command, TIMEOUT).ok()?;
        if !answer.status?.success() {
            return None;
        }
        let mut libraries = listed(&answer.output);
        if !libraries.contains(&loader) {
            libraries.push(loader);
        }
        libraries
            .iter()
            .all(|library| library.is_file())
            .then(|| Self {
                program: program.to_owned(),
                libraries,
            })
    }
}

/// Returns the path of the program's loader (`PT_INTERP`), or `None` for a static program.
fn interpreter(program: &[u8]) -> Option<PathBuf> {
    let file = ElfFile64::<object::Endianness>::parse(program).ok()?;
    let endian = file.endian();
    let header = file
        .elf_program_headers()
        .iter()
        .find(|header| header.p_type(endian) == elf::PT_INTERP)?;
    let data = header.data(endian, program).ok()?;
    let text = data.split(|byte| *byte == 0).next()?;
    Some(PathBuf::from(std::str::from_utf8(text).ok()?))
}

/// Returns the paths in lines such as `libc.so.6 => /lib/libc.so.6 (0x…)` and `/lib64/ld.so (0x…)`.
/// An entry without a path (`linux-vdso.so.1`) is no file.
fn listed(text: &str) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let path = match words.as_slice() {
            [_, "=>", path, ..] => path,
            [path, ..] => path,
            [] => continue,
        };
        let path = PathBuf::from(path);
        if path.is_absolute() && !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_loaders_list() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc1)\n\tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n\tlibgone.so => not found\n";
        assert_eq!(
            listed(text),
            [
                "/lib/x86_64-linux-gnu/libm.so.6",
                "/lib/x86_64-linux-gnu/libc.so.6",
                "/lib64/ld-linux-x86-64.so.2"
            ]
            .map(PathBuf::from)
        );
    }

    #[test]
    fn finds_the_loader_of_a_program() {
        let Some(found) = Libraries::of_program("sh") else {
            return;
        };
        assert!(found.libraries.iter().all(|path| path.is_file()));
        let bytes = fs::read(&found.program).expect("the program");
        if let Some(loader) = interpreter(&bytes) {
            assert!(found.libraries.contains(&loader));
        }
    }

    #[test]
    fn returns_none_for_an_invalid_program() {
        let directory = tempfile::tempdir().expect("directory");
        let script = directory.path().join("script");
        fs::write(&script, "#!/bin/sh\n").expect("file");
        assert_eq!(Libraries::of(&script), None);
        assert_eq!(Libraries::of_program("no-such-program-anywhere"), None);
    }
}
