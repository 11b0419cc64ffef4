// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recorded machines for tests without the hardware: one archive each, in `machines/`.
//!
//! `machines/README.md` describes each machine and how to add or change one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::read::GzDecoder;

/// Returns the directory of the recorded machine `name`, with its `proc` and `sys`.
///
/// The first call for an archive unpacks it below `target/recorded-machines`; later calls, of other
/// test programs too, use that directory. Tests must not write to it.
///
/// # Panics
/// Panics if no archive has this name, or if it cannot be unpacked.
#[must_use]
pub fn directory(name: &str) -> PathBuf {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("machines/{name}.tar.gz"));
    unpack(name, &archive)
        .unwrap_or_else(|error| panic!("cannot unpack {}: {error}", archive.display()))
}

fn unpack(name: &str, archive: &Path) -> io::Result<PathBuf> {
    let changed = fs::metadata(archive)?.modified()?;
    let version = changed
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos());
    let parent = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/recorded-machines");
    let directory = parent.join(format!("{name}-{version:x}"));
    if directory.is_dir() {
        return Ok(directory);
    }
    fs::create_dir_all(&parent)?;
    // Several test programs may unpack the same archive: the first rename wins.
    let unpacked = tempfile::tempdir_in(&parent)?;
    tar::Archive::new(GzDecoder::new(File::open(archive)?)).unpack(unpacked.path())?;
    let unpacked = unpacked.keep();
    if let Err(error) = fs::rename(&unpacked, &directory) {
        fs::remove_dir_all(&unpacked)?;
        if !directory.is_dir() {
            return Err(error);
        }
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacks_each_archive_once() {
        for name in ["board", "laptop", "server", "simulated", "virtual-machine"] {
            let first = directory(name);
            assert!(first.join("proc/cpuinfo").is_file(), "{name}");
            assert!(
                first.join("sys/devices/system/cpu/online").is_file(),
                "{name}"
            );
            assert_eq!(directory(name), first);
        }
    }
}
