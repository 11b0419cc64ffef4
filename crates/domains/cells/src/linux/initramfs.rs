// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a Linux in a cell finds in its memory when it boots.

use std::io;

use rampart_agent::INIT;
use rampart_initramfs::Archive;

/// Directories on which the agent mounts, or which programs expect.
const DIRECTORIES: [&str; 8] = ["dev", "proc", "sys", "tmp", "run", "root", "etc", "var"];
/// `/dev/null` (Linux, admin-guide/devices.txt): a program that is started without any open file, as
/// the first one is where the kernel has no console, opens it in their place.
const NULL: (u32, u32) = (1, 3);

/// An archive with the static meter as the first program, and files with their permissions.
///
/// # Errors
/// If a file is larger than the format allows, 4 GiB.
pub fn initramfs(meter: &[u8], files: &[(&str, u32, &[u8])]) -> io::Result<Vec<u8>> {
    let mut archive = Archive::new(Vec::new());
    for directory in DIRECTORIES {
        archive.directory(directory)?;
    }
    archive.character_device("dev/null", 0o666, NULL)?;
    archive.file(INIT, 0o755, meter)?;
    for (path, permissions, content) in files {
        archive.file(path, *permissions, content)?;
    }
    archive.finish()
}
