// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packages of Debian, fetched with the package lists of the simulated machines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::limited::Limited as _;
use crate::programs::{directory, exit_code};

const LIMIT: Duration = Duration::from_secs(600);

/// Returns the directory with the package lists and packages of the simulated arm64 machine. Builds the
/// image, which fetches them, if there is none yet.
///
/// # Panics
/// If the image cannot be built.
#[must_use]
pub fn cache() -> PathBuf {
    cache_of("aarch64")
}

/// Returns the same for the simulated machine of an architecture.
///
/// # Panics
/// If the image cannot be built.
#[must_use]
pub fn cache_of(architecture: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").expect("HOME")).join(".cache");
    let cache = cache
        .unwrap_or_else(home)
        .join("rampart/sim/apt")
        // Of another suite's kernel: sim/architecture.rs, `image_name`.
        .join(architecture.replace("-backports", "-bookworm-backports"));
    if newest(&cache.join("archives"), "linux-image-6.1").is_none() {
        let built = Command::new(directory().join("rampart"))
            .args(["sim", "--architecture", architecture, "build"])
            .finish_within(LIMIT, Vec::new())
            .expect("rampart starts");
        assert_eq!(exit_code(&built), 0);
    }
    cache
}

/// Returns the newest package in a directory whose name begins with `begin`.
#[must_use]
pub fn newest(directory: &Path, begin: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(begin) && name.ends_with(".deb")
        })
        .collect();
    found.sort();
    found.pop()
}

/// Runs one of apt's programs with those lists in this directory.
///
/// # Panics
/// If it does not start or takes longer than ten minutes.
pub fn apt(program: &str, arguments: &[&str], directory: &Path) -> Output {
    apt_of("aarch64", program, arguments, directory)
}

/// Downloads a package into a directory, where it appears when it is complete: tests run beside each other, and apt
/// writes into a file with the final name.
fn download(architecture: &str, name: &str, directory: &Path) {
    fs::create_dir_all(directory).expect("a directory");
    let partial = tempfile::tempdir_in(directory).expect("a directory");
    apt_of(architecture, "apt-get", &["download", name], partial.path());
    if let Some(package) = newest(partial.path(), "") {
        let to = directory.join(package.file_name().expect("a name"));
        fs::rename(&package, to).expect("a package");
    }
}

fn apt_of(architecture: &str, program: &str, arguments: &[&str], directory: &Path) -> Output {
    fs::create_dir_all(directory).expect("a directory");
    Command::new(program)
        .args(arguments)
        .env("APT_CONFIG", cache_of(architecture).join("apt.conf"))
        .current_dir(directory)
        .finish_within(LIMIT, Vec::new())
        .unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// Returns the package of this name, and fetches it into a directory unless it is there. Returns `None` if
/// Debian does not have it.
#[must_use]
pub fn fetched(name: &str, directory: &Path) -> Option<PathBuf> {
    fetched_of("aarch64", name, directory)
}

/// Returns the same for an architecture.
#[must_use]
pub fn fetched_of(architecture: &str, name: &str, directory: &Path) -> Option<PathBuf> {
    let begin = format!("{name}_");
    if newest(directory, &begin).is_none() {
        download(architecture, name, directory);
    }
    newest(directory, &begin)
}

/// Unpacks the files of a package that match these patterns.
///
/// # Panics
/// If it cannot be unpacked, or has no file for a pattern.
pub fn unpack(package: &Path, patterns: &[&str], to: &Path) {
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .expect("dpkg-deb starts");
    let stream = archive.stdout.take().expect("a pipe");
    let mut tar = Command::new("tar");
    tar.args(["-x", "-f", "-", "-C"])
        .arg(to)
        .arg("--wildcards")
        .args(patterns)
        .stdin(stream);
    let unpacked = tar.status().expect("tar starts");
    assert!(unpacked.success(), "{}", package.display());
    assert!(archive.wait().expect("dpkg-deb").success());
}
