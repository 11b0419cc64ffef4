// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The distribution's packages: fetched by the machine's own `apt-get` into directories of ours,
//! as any user, without installing anything.
//!
//! apt's state is empty here, so that it solves the whole closure, down to the C library, the same
//! way on every machine. It checks the archive's signature with the distribution's keyring.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use rampart_host::{AtOurEnd, spawn_tied};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::architecture::Architecture;
use super::cache::make_directory;
use super::error::SimError;

/// What every architecture's machine holds: what an evaluation needs, and what a person expects
/// of a shell.
const PACKAGES: &[&str] = &[
    "bash",
    "base-files",
    "coreutils",
    "dash",
    "diffutils",
    "file",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "iputils-ping",
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
    "tar",
    "util-linux",
    "vim-tiny",
    "xz-utils",
];

/// The suite, and what its archives add to their address.
const SUITE: &str = "bookworm";

/// Debian's own archive; a network of mirrors behind one name.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// Where the archive of security updates is, next to the archive itself.
const SECURITY_SUFFIX: &str = "-security";

/// Names another archive: `URL`, or `URL URL-OF-SECURITY-UPDATES`.
const MIRROR_VARIABLE: &str = "RAMPART_DEBIAN_MIRROR";

/// The keys that the archive is signed with, and the package that brings them.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One package of the machine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Package {
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

/// Where packages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mirror {
    archive: String,
    security: String,
}

impl Mirror {
    /// From `RAMPART_DEBIAN_MIRROR`, else what this machine's own apt uses for the same suite,
    /// else Debian's.
    pub(super) fn find() -> Self {
        if let Ok(text) = std::env::var(MIRROR_VARIABLE)
            && let Some(mirror) = Self::parse(&text)
        {
            return mirror;
        }
        // What apt makes of its sources, so that there is no second reader of its two formats.
        let output = Command::new("apt-get")
            .args(["indextargets", "--format", "$(REPO_URI) $(RELEASE)"])
            .stdin(Stdio::null())
            .output();
        let targets = output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        Self::among(&targets)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        let archive = words.next()?.trim_end_matches('/').to_owned();
        let security = words.next().map_or_else(
            || format!("{archive}{SECURITY_SUFFIX}"),
            |word| word.trim_end_matches('/').to_owned(),
        );
        Some(Self { archive, security })
    }

    /// From lines of an address and a suite.
    fn among(targets: &str) -> Self {
        let of = |suite: &str| {
            targets
                .lines()
                .filter_map(|line| line.split_once(' '))
                .find(|(_, release)| *release == suite)
                .map(|(address, _)| address.trim_end_matches('/').to_owned())
        };
        let archive = of(SUITE).unwrap_or_else(|| DEFAULT_MIRROR.to_owned());
        let security = of(&format!("{SUITE}-security"))
            .unwrap_or_else(|| format!("{archive}{SECURITY_SUFFIX}"));
        Self { archive, security }
    }

    fn sources(&self) -> String {
        let Self { archive, security } = self;
        let line = |address: &str, suite: &str| {
            format!("deb [signed-by={KEYRING}] {address} {suite} main\n")
        };
        line(archive, SUITE)
            + &line(archive, &format!("{SUITE}-updates"))
            + &line(security, &format!("{SUITE}-security"))
    }
}

/// apt with lists, state and cache of its own.
#[derive(Debug)]
pub(super) struct Apt {
    directory: PathBuf,
    mirror: Mirror,
    packages: Vec<&'static str>,
}

impl Apt {
    /// Writes its configuration.
    pub(super) fn prepare(
        directory: &Path,
        architecture: &Architecture,
        mirror: Mirror,
    ) -> Result<Self, SimError> {
        for part in ["lists/partial", "archives/partial", "etc", "log"] {
            make_directory(&directory.join(part))?;
        }
        if !Path::new(KEYRING).is_file() {
            return Err(SimError::Image(format!(
                "{KEYRING} is not there; needed to check the signatures of Debian's archive; \
                 mend: apt-get install debian-archive-keyring"
            )));
        }
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).map_err(SimError::file("write", &path))
        };
        write("status", "")?;
        write("sources.list", &mirror.sources())?;
        write(
            "apt.conf",
            &configuration(directory, architecture, &acquisition_of_this_machine()),
        )?;
        let packages = PACKAGES
            .iter()
            .chain(architecture.packages)
            .copied()
            .collect();
        Ok(Self {
            directory: directory.to_owned(),
            mirror,
            packages,
        })
    }

    /// Fetches the lists.
    pub(super) fn update(&self) -> Result<(), SimError> {
        let fetched = self.run("apt-get", &["-qq", "--error-on=any", "update"]);
        self.fetching(fetched).map(|_| ())
    }

    /// Every package that the machine needs, in order of names; from the lists, no network.
    pub(super) fn resolve(&self) -> Result<Vec<Package>, SimError> {
        // A package that is here already would not be listed: look as if none were.
        let empty = self.directory.join("none");
        make_directory(&empty.join("partial"))?;
        let elsewhere = format!("Dir::Cache::archives={}", empty.display());
        let mut arguments = vec!["-qq", "-y", "--print-uris", "-o", &elsewhere, "install"];
        arguments.extend(&self.packages);
        let output = self.run("apt-get", &arguments)?;
        let mut packages = parse_addresses(&output)?;
        packages.sort();
        Ok(packages)
    }

    /// Fetches those packages that are not here yet, and fills in their hashes. `progress` is
    /// told how many bytes are here.
    pub(super) fn download(
        &self,
        packages: &mut [Package],
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SimError> {
        let mut arguments = vec!["-qq", "-y", "--download-only", "install"];
        arguments.extend(&self.packages);
        let here = || -> u64 {
            [self.archives(), self.archives().join("partial")]
                .iter()
                .filter_map(|directory| fs::read_dir(directory).ok())
                .flat_map(|entries| entries.flatten())
                .filter_map(|entry| entry.metadata().ok())
                .filter(fs::Metadata::is_file)
                .map(|metadata| metadata.len())
                .sum()
        };
        let fetched = self.run_watched("apt-get", &arguments, &mut || progress(here()));
        self.fetching(fetched)?;
        for package in packages.iter_mut() {
            let path = self.path(package);
            package.sha256 = sha256_of(&path)?;
        }
        self.remove_others(packages);
        Ok(())
    }

    /// Where a fetched package is.
    pub(super) fn path(&self, package: &Package) -> PathBuf {
        self.archives().join(&package.file)
    }

    fn archives(&self) -> PathBuf {
        self.directory.join("archives")
    }

    /// Removes the files of packages that are no longer needed.
    fn remove_others(&self, packages: &[Package]) {
        let Ok(entries) = fs::read_dir(self.archives()) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let is_package = Path::new(&name).extension().is_some_and(|end| end == "deb");
            if is_package && !packages.iter().any(|package| *package.file == *name) {
                // It only takes room.
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn fetching<T>(&self, result: Result<T, SimError>) -> Result<T, SimError> {
        result.map_err(|source| match source {
            SimError::ProgramFailed { .. } => SimError::NotFetched {
                mirror: self.mirror.archive.clone(),
                source: Box::new(source),
            },
            other => other,
        })
    }

    fn run(&self, program: &'static str, arguments: &[&str]) -> Result<String, SimError> {
        self.run_watched(program, arguments, &mut || ())
    }

    fn run_watched(
        &self,
        program: &'static str,
        arguments: &[&str],
        meanwhile: &mut dyn FnMut(),
    ) -> Result<String, SimError> {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("APT_CONFIG", self.directory.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8")
            .env("DEBIAN_FRONTEND", "noninteractive");
        run(command, program, "fetch packages", "apt", meanwhile)
    }
}

/// Runs a program of this machine to its end, telling `meanwhile` every so often; its output.
pub(super) fn run(
    mut command: Command,
    program: &'static str,
    purpose: &'static str,
    package: &'static str,
    meanwhile: &mut dyn FnMut(),
) -> Result<String, SimError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let told = format!("{command:?}");
    let missing = |source: io::Error| SimError::ProgramMissing {
        program,
        purpose,
        package,
        source,
    };
    let child = spawn_tied(command, AtOurEnd::Kill).map_err(missing)?;
    let waiter = thread::Builder::new()
        .name(program.to_owned())
        .spawn(move || child.wait_with_output())
        .map_err(missing)?;
    while !waiter.is_finished() {
        meanwhile();
        thread::sleep(Duration::from_millis(20));
    }
    let Output {
        status,
        stdout,
        stderr,
    } = waiter
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("its thread has failed")))
        .map_err(missing)?;
    if !status.success() {
        let text = String::from_utf8_lossy(&stderr);
        let lines: Vec<_> = text.lines().rev().take(5).collect();
        return Err(SimError::ProgramFailed {
            command: told.chars().take(200).collect(),
            status: status.to_string(),
            said: lines.into_iter().rev().collect::<Vec<_>>().join("; "),
        });
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// apt.conf(5). The machine's own configuration is not read because `Dir::Etc` is ours; of it only
/// how to fetch (proxies, certificates, retries) is taken over.
fn configuration(directory: &Path, architecture: &Architecture, acquisition: &str) -> String {
    let directory = directory.display();
    let debian = architecture.debian;
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

/// The lines of `apt-config dump` that say how to fetch.
fn acquisition_of_this_machine() -> String {
    let output = Command::new("apt-config")
        .arg("dump")
        .stdin(Stdio::null())
        .output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    acquisition(&text)
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

/// Lines as `'URL' NAME_VERSION_ARCHITECTURE.deb BYTES HASH`, from `apt-get --print-uris`.
fn parse_addresses(output: &str) -> Result<Vec<Package>, SimError> {
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
                Some(Package {
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
                    "apt-get --print-uris says `{line}`, needed an address, a file name and a size"
                ))
            })
        })
        .collect()
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

/// Bytes as text.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_packages_with_epochs() {
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
    fn the_mirror_is_the_one_named_then_the_machines_own_then_debians() {
        let named = Mirror::parse(" http://near/debian/ ").expect("named");
        assert_eq!(named.archive, "http://near/debian");
        assert_eq!(named.security, "http://near/debian-security");
        let both = Mirror::parse("http://a http://b").expect("named");
        assert_eq!(
            (both.archive, both.security),
            ("http://a".to_owned(), "http://b".to_owned())
        );
        assert_eq!(Mirror::parse("  "), None);
        let own = Mirror::among(
            "https://packages.example/apt nodistro\nhttp://near/deb/ bookworm\nhttp://sec/x bookworm-security\n",
        );
        assert_eq!(own.archive, "http://near/deb");
        assert_eq!(own.security, "http://sec/x");
        let none = Mirror::among("http://archive.ubuntu.com/ubuntu jammy\n");
        assert_eq!(none.archive, DEFAULT_MIRROR);
        assert!(
            none.sources()
                .contains("http://deb.debian.org/debian-security bookworm-security main")
        );
    }

    #[test]
    fn only_how_to_fetch_is_taken_from_the_machine() {
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
