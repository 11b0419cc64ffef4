// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distribution's packages, fetched by this machine's `apt-get` into a directory of the cache.
//! This needs no root and installs nothing.
//!
//! apt starts with an empty state, so that it resolves all dependencies, down to the C library, in
//! the same way on every machine. It checks the archive's signature with the distribution's keyring.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::build_programs::{Program, output_of};
use super::cache::create_directory;
use super::error::SimError;
use super::image::BuildStep;
use super::mirror::Sources;

/// The packages for all architectures: what an evaluation needs, and common tools for a shell.
pub(super) const PACKAGES: &[&str] = &[
    "bash",
    "base-files",
    "coreutils",
    "cpio",
    "dash",
    "dbus",
    "diffutils",
    "file",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "iputils-ping",
    "irqbalance",
    "klibc-utils",
    "kmod",
    "less",
    "mount",
    "openssh-server",
    "procps",
    "psmisc",
    "rtla",
    "rt-tests",
    "runc",
    "sed",
    "strace",
    "stress-ng",
    "systemd",
    "tar",
    "util-linux",
    "vim-tiny",
    "xz-utils",
];

/// The keys that sign the archive.
pub(super) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

const APT_GET: Program = Program {
    name: "apt-get",
    purpose: "fetch packages",
    package: "apt",
};

/// One package of the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SimPackage {
    /// Its name.
    pub name: String,
    /// Its version, with the epoch.
    pub version: String,
    /// Name of its file.
    pub file: String,
    /// Size of the file in bytes.
    pub bytes: u64,
    /// SHA-256 of the file in hexadecimal; empty before it is fetched.
    pub sha256: String,
}

/// apt with its own lists, state and cache.
#[derive(Debug)]
pub(super) struct Apt {
    directory: PathBuf,
    archive: String,
    packages: Vec<&'static str>,
}

impl Apt {
    /// Writes its configuration, for packages of an architecture by Debian's name. The sources are those of
    /// an archive.
    pub(super) fn prepare(
        directory: &Path,
        architecture: &str,
        sources: &Sources,
        packages: Vec<&'static str>,
    ) -> Result<Self, SimError> {
        for part in ["lists/partial", "archives/partial", "etc", "log"] {
            create_directory(&directory.join(part))?;
        }
        if !Path::new(KEYRING).is_file() {
            return Err(SimError::Image(format!(
                "{KEYRING} does not exist, needed to check the signatures of Debian's archive; \
                 fix: apt-get install debian-archive-keyring"
            )));
        }
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(SimError::file("write", &path))
        };
        write("status", "")?;
        write("sources.list", &sources.lines)?;
        write(
            "apt.conf",
            &configuration(directory, architecture, &acquisition_of_this_machine()),
        )?;
        Ok(Self {
            directory: directory.to_owned(),
            archive: sources.archive.clone(),
            packages,
        })
    }

    /// Fetches the lists.
    pub(super) fn update(&self) -> Result<(), SimError> {
        let lists = self.directory.join("lists");
        let fetched = self.run(&["-qq", "--error-on=any", "update"], &mut || {
            bytes_in(&[&lists, &lists.join("partial")])
        });
        self.fetching(fetched).map(|_| ())
    }

    /// Returns all packages that the machine needs, by name. Uses the lists, not the network.
    pub(super) fn resolve(&self) -> Result<Vec<SimPackage>, SimError> {
        // apt does not list packages that are in its archive, so this uses an empty one.
        let empty = self.directory.join("none");
        create_directory(&empty.join("partial"))?;
        let elsewhere = format!("Dir::Cache::archives={}", empty.display());
        let mut arguments = vec!["-qq", "-y", "--print-uris", "-o", &elsewhere, "install"];
        arguments.extend(&self.packages);
        let output = self.run(&arguments, &mut || 0)?;
        let mut packages = parse_addresses(&output)?;
        packages.sort();
        Ok(packages)
    }

    /// Fetches the missing packages, and fills in the hashes of all. Calls `progress` with the number
    /// of bytes fetched.
    fn download(
        &self,
        packages: &mut [SimPackage],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SimError> {
        let mut arguments = vec!["-qq", "-y", "--download-only", "install"];
        arguments.extend(&self.packages);
        let archives = self.archives();
        let partial = archives.join("partial");
        let fetched = self.run(&arguments, &mut || {
            let here = bytes_in(&[&archives, &partial]);
            progress(here);
            here
        });
        self.fetching(fetched)?;
        for package in packages.iter_mut() {
            let path = self.path(package);
            package.sha256 = sha256_of(&path)?;
        }
        self.remove_others(packages);
        Ok(())
    }

    /// Fetches as [`Apt::download`], with the steps of a build.
    pub(super) fn download_with_progress(
        &self,
        packages: &mut [SimPackage],
        progress: &mut dyn FnMut(BuildStep),
    ) -> Result<(), SimError> {
        let total = packages.iter().map(|package| package.bytes).sum();
        self.download(packages, &mut |done| {
            progress(BuildStep::Fetch {
                done: done.min(total),
                total,
            });
        })
    }

    /// Returns the path of a fetched package.
    pub(super) fn path(&self, package: &SimPackage) -> PathBuf {
        self.archives().join(&package.file)
    }

    fn archives(&self) -> PathBuf {
        self.directory.join("archives")
    }

    /// Removes the files of packages that are no longer needed.
    fn remove_others(&self, packages: &[SimPackage]) {
        let Ok(entries) = fs::read_dir(self.archives()) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_package = Path::new(&name).extension().is_some_and(|end| end == "deb");
            if is_package && !packages.iter().any(|package| *package.file == *name) {
                // An error here only costs disk space.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn fetching<T>(&self, result: Result<T, SimError>) -> Result<T, SimError> {
        result.map_err(|source| match source {
            SimError::ProgramFailed { .. } | SimError::ProgramHung { .. } => SimError::NotFetched {
                mirror: self.archive.clone(),
                source: Box::new(source),
            },
            other => other,
        })
    }

    /// Runs `apt-get`; `progress` as with [`Program::run`].
    fn run(
        &self,
        arguments: &[&str],
        progress: &mut dyn FnMut() -> u64,
    ) -> Result<String, SimError> {
        let mut command = Command::new(APT_GET.name);
        command
            .args(arguments)
            .env("APT_CONFIG", self.directory.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        APT_GET.run(command, progress)
    }
}

/// Returns the configuration, apt.conf(5). `Dir::Etc` excludes this machine's own configuration;
/// only its settings for fetching (proxies, certificates, retries) are copied.
fn configuration(directory: &Path, debian: &str, acquisition: &str) -> String {
    let directory = directory.display();
    format!(
        "{acquisition}\
         Dir \"{directory}\";\n\
         Dir::State \"{directory}\";\n\
         Dir::State::status \"{directory}/status\";\n\
         Dir::Cache \"{directory}\";\n\
         Dir::Cache::pkgcache \"\";\n\
         Dir::Cache::srcpkgcache \"\";\n\
         Dir::Etc \"{directory}/etc\";\n\
         Dir::Etc::sourcelist \"{directory}/sources.list\";\n\
         Dir::Etc::sourceparts \"/dev/null\";\n\
         Dir::Etc::parts \"/dev/null\";\n\
         Dir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::Log \"{directory}/log\";\n\
         APT::Architecture \"{debian}\";\n\
         APT::Architectures {{ \"{debian}\"; }};\n\
         APT::Install-Recommends \"false\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n"
    )
}

/// Returns this machine's settings for fetching, from `apt-config dump`.
fn acquisition_of_this_machine() -> String {
    let mut command = Command::new("apt-config");
    command.arg("dump");
    acquisition(&output_of(command))
}

fn acquisition(dump: &str) -> String {
    dump.lines()
        .filter(|line| {
            ["http", "https", "ftp"]
                .iter()
                .any(|way| line.starts_with(&format!("Acquire::{way}::")))
                || line.starts_with("Acquire::Retries")
        })
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Parses lines `'URL' NAME_VERSION_ARCHITECTURE.deb BYTES HASH` of `apt-get --print-uris`.
fn parse_addresses(output: &str) -> Result<Vec<SimPackage>, SimError> {
    output
        .lines()
        .filter(|line| line.starts_with('\''))
        .map(|line| {
            let mut words = line.split(' ').skip(1);
            let package = || {
                let file = words.next()?;
                let bytes = words.next()?.parse().ok()?;
                let (name, rest) = file.split_once('_')?;
                let (version, _) = rest.rsplit_once('_')?;
                Some(SimPackage {
                    name: name.to_owned(),
                    version: version.replace("%3a", ":"),
                    file: file.to_owned(),
                    bytes,
                    sha256: String::new(),
                })
            };
            let mut package = package;
            package().ok_or_else(|| {
                SimError::Image(format!(
                    "apt-get --print-uris printed `{line}`, expected an address, a file name and a \
                     size"
                ))
            })
        })
        .collect()
}

/// Returns the sum of the file sizes directly in these directories.
fn bytes_in(directories: &[&Path]) -> u64 {
    directories
        .iter()
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.metadata().ok())
        .filter(fs::Metadata::is_file)
        .map(|metadata| metadata.len())
        .sum()
}

fn sha256_of(path: &Path) -> Result<String, SimError> {
    let mut file = fs::File::open(path).map_err(SimError::file("open", path))?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = io::Read::read(&mut file, &mut buffer).map_err(SimError::file("read", path))?;
        if count == 0 {
            break;
        }
        digest.update(&buffer[..count]);
    }
    Ok(hexadecimal(&digest.finalize()))
}

/// Formats bytes in hexadecimal.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_addresses_with_epochs() {
        let output = "Reading package lists...\n\
            'http://deb.debian.org/x/qemu_7.2.deb' qemu-system-x86_1%3a7.2+dfsg-7+deb12u18_amd64.deb 9281168 SHA256:ab\n";
        let packages = parse_addresses(output).expect("parsed");
        assert_eq!(packages.len(), 1);
        assert_eq!(packages[0].name, "qemu-system-x86");
        assert_eq!(packages[0].version, "1:7.2+dfsg-7+deb12u18");
        assert_eq!(packages[0].bytes, 9_281_168);
        let error = parse_addresses("'http://x' nothing\n").expect_err("no size");
        assert!(error.to_string().contains("nothing"), "{error}");
    }

    #[test]
    fn copies_only_the_settings_for_fetching() {
        let dump = "APT::Architecture \"arm64\";\n\
            Acquire::http::Proxy \"http://proxy:3142\";\n\
            Acquire::Languages:: \"de\";\n\
            Dir::Etc \"etc/apt\";\n\
            Acquire::Retries \"3\";\n";
        assert_eq!(
            acquisition(dump),
            "Acquire::http::Proxy \"http://proxy:3142\";\nAcquire::Retries \"3\";\n"
        );
    }
}
