// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An emulator that is not installed: packages of a newer Debian, unpacked in the cache. The program is started
//! by the loader and with the libraries of these packages (ld.so(8)), so that it does not depend on this machine's.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rampart_qemu::QemuCommand;

use super::architecture::{ARCHITECTURES, Architecture, Emulator};
use super::cache::{Cache, create_directory};
use super::content::unpack;
use super::error::SimError;
use super::image::{BuildStep, identity};
use super::mirror::Mirror;
use super::modules::loader_and_libraries;
use super::packages::Apt;

/// The suite of the packages.
const SUITE: &str = "trixie";

/// The link to the unpacked packages in use.
const CURRENT: &str = "current";

/// Returns the command of a machine's emulator.
///
/// # Errors
/// Returns an error if the emulator is not installed and was not fetched ([`prepare`]).
pub(super) fn command(cache: &Cache, architecture: &Architecture) -> Result<QemuCommand, SimError> {
    match architecture.emulator {
        Emulator::Installed(program) => Ok(QemuCommand {
            program: program.into(),
            ..QemuCommand::default()
        }),
        Emulator::Fetched { program, package } => {
            let root = directory(cache, package).join(CURRENT);
            let root = root.canonicalize().map_err(SimError::file("find", &root))?;
            unpacked(&root, program)
        }
    }
}

/// Returns the command of the newer QEMU for arm64 with which boards are emulated, and fetches it if it is not present.
///
/// # Errors
/// Returns an error if this machine cannot run it, the archive cannot be reached, or a package cannot be unpacked.
pub fn newer_qemu() -> Result<QemuCommand, SimError> {
    let cache = Cache::of_this_user()?;
    let mut boards = ARCHITECTURES.iter();
    let Some(board) = boards.find(|one| matches!(one.emulator, Emulator::Fetched { .. })) else {
        return Ok(QemuCommand::default());
    };
    prepare(&cache, board, false, &mut |_| {})?;
    command(&cache, board)
}

fn unpacked(root: &Path, program: &str) -> Result<QemuCommand, SimError> {
    let (loader, libraries) = loader_and_libraries(root)?;
    let arguments: [OsString; 8] = [
        "--argv0".into(),
        program.into(),
        "--inhibit-cache".into(),
        "--library-path".into(),
        libraries.clone().into(),
        root.join("usr/bin").join(program).into(),
        "-L".into(),
        root.join("usr/share/qemu").into(),
    ];
    Ok(QemuCommand {
        program: loader,
        // Otherwise it tries the modules of an installed QEMU.
        environment: vec![("QEMU_MODULE_DIR".into(), libraries.join("qemu").into())],
        arguments: arguments.into(),
    })
}

fn directory(cache: &Cache, package: &str) -> PathBuf {
    cache.emulators().join(package)
}

/// Fetches and unpacks a machine's emulator if it has to be and is not present. With `update` it looks for newer
/// packages.
///
/// # Errors
/// Returns an error if this machine cannot run it, the archive cannot be reached, or a package cannot be unpacked.
pub(super) fn prepare(
    cache: &Cache,
    architecture: &Architecture,
    update: bool,
    progress: &mut dyn FnMut(BuildStep),
) -> Result<(), SimError> {
    let Emulator::Fetched { package, .. } = architecture.emulator else {
        return Ok(());
    };
    let directory = directory(cache, package);
    let current = directory.join(CURRENT);
    if !update && current.is_dir() {
        return Ok(());
    }
    let _lock = cache.lock_for_building(&mut || progress(BuildStep::Waiting))?;
    // Another process may have fetched it meanwhile.
    if !update && current.is_dir() {
        return Ok(());
    }
    progress(BuildStep::Lists);
    let apt = Apt::prepare(
        &directory.join("apt"),
        debian_of_this_machine()?,
        &Mirror::find().sources(SUITE, None),
        vec![package],
    )?;
    apt.update()?;
    let mut packages = apt.resolve()?;
    let unpacked = directory.join(identity(&packages));
    if !unpacked.is_dir() {
        apt.download_with_progress(&mut packages, progress)?;
        let work = tempfile::Builder::new()
            .prefix(".building-")
            .tempdir_in(&directory)
            .map_err(SimError::file("create a directory in", &directory))?;
        let root = work.path().join("root");
        create_directory(&root)?;
        unpack(&root, &apt, &packages, progress)?;
        fs::rename(&root, &unpacked).map_err(SimError::file("rename to", &unpacked))?;
    }
    super::image::point_to(&directory, &unpacked)
}

/// Returns Debian's name of this machine's architecture.
fn debian_of_this_machine() -> Result<&'static str, SimError> {
    let present = std::env::consts::ARCH;
    let own = ARCHITECTURES
        .iter()
        .find(|machine| machine.processor == present);
    own.map(|machine| machine.debian)
        .ok_or_else(|| SimError::NoArchitecture {
            present,
            known: Architecture::names().to_vec(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_the_unpacked_program_by_its_own_loader() {
        let root = tempfile::tempdir().expect("a directory");
        let libraries = root.path().join("usr/lib/x86_64-linux-gnu");
        fs::create_dir_all(&libraries).expect("made");
        for file in ["libc.so.6", "ld-linux-x86-64.so.2"] {
            fs::write(libraries.join(file), "").expect("written");
        }
        let command = unpacked(root.path(), "qemu-system-aarch64").expect("a command");
        assert_eq!(command.program, libraries.join("ld-linux-x86-64.so.2"));
        let program = root.path().join("usr/bin/qemu-system-aarch64");
        assert!(command.arguments.contains(&program.into_os_string()));
        let empty = tempfile::tempdir().expect("a directory");
        assert!(unpacked(empty.path(), "qemu-system-aarch64").is_err());
    }
}
