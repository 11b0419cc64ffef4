// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Files of Debian's packages, unpacked once: a kernel's package takes six seconds, and a dozen tests boot it.

use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use rampart_tests::packages::{cache_of, fetched_of, unpack};

/// Returns a directory with the files of a package that match these patterns, for the simulated machine of an architecture.
///
/// # Panics
/// If Debian has no such package, or it has no file for a pattern.
pub(crate) fn unpacked(architecture: &str, name: &str, patterns: &[&str]) -> PathBuf {
    let cache = cache_of(architecture).join("stock-kernel");
    let package = fetched_of(architecture, name, &cache);
    let package = package.unwrap_or_else(|| panic!("the archive has no {name}"));
    let mut hasher = DefaultHasher::new();
    patterns.hash(&mut hasher);
    let file = package.file_stem().expect("a name").to_string_lossy();
    let directory = cache
        .join("unpacked")
        .join(format!("{file}-{:016x}", hasher.finish()));
    if !directory.exists() {
        let parent = directory.parent().expect("a directory");
        fs::create_dir_all(parent).expect("a directory");
        // It appears when it is complete: tests run beside each other.
        let partial = tempfile::tempdir_in(parent).expect("a directory");
        unpack(&package, patterns, partial.path());
        let renamed = fs::rename(partial.path(), &directory);
        assert!(renamed.is_ok() || directory.exists(), "{renamed:?}");
    }
    directory
}
