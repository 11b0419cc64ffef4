// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Creates the initramfs of a Linux cell.

use std::io;

use rampart_agent::INIT;
use rampart_initramfs::Archive;

/// Mount points of the agent, and directories that programs expect.
const DIRECTORIES: [&str; 8] = ["dev", "proc", "sys", "tmp", "run", "root", "etc", "var"];
/// `/dev/null` (Linux, admin-guide/devices.txt): a program that starts without open files, like the
/// first one on a kernel without a console, opens it instead of them.
const NULL: (u32, u32) = (1, 3);

/// Creates an archive with the static `rampart-meter` as the first program, and files with their
/// permissions.
///
/// # Errors
/// Returns an error if a file exceeds the limit of the format, 4 GiB.
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
