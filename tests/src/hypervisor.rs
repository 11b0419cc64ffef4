// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs the hypervisor in the simulated arm64 machine, and searches the kernel log for errors.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::detached_programs::compile;
use crate::limited::Limited as _;
use crate::programs::{archive as tar, beside_others, directory, exit_code, left_out, stdout};

/// Words of a kernel log that indicate an error, of arm64 and x86.
const KERNEL_ERRORS: [&str; 11] = [
    "WARNING",
    "BUG",
    "Call trace",
    "Call Trace",
    "stall",
    "lockup",
    "scheduling while atomic",
    "blocked for more than",
    "Oops",
    "general protection",
    "No irq handler for vector",
];

/// Memory of the machines in MiB, of which Linux has the first 768 and cells 512. It is the same for all tests, because
/// machines with the same options continue from the same snapshot.
const MEBIBYTES: u32 = 1280;

/// The files that are copied into the machine, and the commands that build them.
const PARTS: [(&str, &str); 5] = [
    ("hypervisor/rampart.bin", "make hypervisor"),
    ("hypervisor/rampart-gicv2.bin", "make hypervisor"),
    ("hypervisor/rampart-smmu.bin", "make hypervisor"),
    ("aarch64/rampart-meter", "make build ARCH=aarch64"),
    ("modules", "make modules ARCH=aarch64"),
];

/// Unpacks the archive in the machine and loads the driver.
pub const BEGIN: &str = r#"
set -u
mkdir /tmp/cells && tar -x -C /tmp/cells && cd /tmp/cells || exit 9
# The CPUs are isolated, so the script gets all of them.
taskset -p -c 0-3 $$ >/dev/null
mkdir -p /lib/firmware && cp rampart.bin rampart-gicv2.bin rampart-smmu.bin /lib/firmware/ || exit 9
# The machine has loaded the module at boot.
grep -q '^rampart ' /proc/modules && rmmod rampart
insmod modules/$(uname -r)/rampart.ko || exit 9
dmesg -C
"#;

/// Checks that the machine is in its initial state again, and prints the kernel log.
pub const END: &str = r#"
[ "$(cat /sys/devices/virtual/misc/rampart/enabled)" = 0 ] || echo 'FAILED  still enabled'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || echo 'FAILED  CPUs are offline'
rmmod rampart || echo 'FAILED  not unloaded'
echo finished
dmesg | sed 's/^/log /'
"#;

/// Asserts that all files are built; `make test` builds them.
///
/// # Panics
/// If a file is missing.
pub fn assert_programs_built() {
    for (part, command) in PARTS {
        let path = directory().join(part);
        assert!(
            path.exists(),
            "{} does not exist; run `{command}`",
            path.display()
        );
    }
}

/// Returns a tar archive of what a script needs in the machine: the hypervisor, the programs of cells, and those test
/// drivers and modules that the script mentions. The machine reads it by an emulated port, some MiB in a second.
///
/// # Panics
/// If a file is missing.
#[must_use]
pub fn archive(script: &str) -> Vec<u8> {
    archive_with(script, &[], |_| ())
}

/// Returns the archive with the command `rampart`.
///
/// # Panics
/// If a file is missing.
#[must_use]
pub fn archive_with_command(script: &str) -> Vec<u8> {
    archive_with(script, &["aarch64/rampart"], |_| ())
}

/// Returns the archive with further files of `bin/`, and with those that `add` creates.
fn archive_with(script: &str, more: &[&str], add: impl FnOnce(&Path)) -> Vec<u8> {
    let location = tempfile::tempdir().expect("a directory");
    let bin = directory();
    assert_programs_built();
    for (name, path) in entries(&bin.join("hypervisor")) {
        let always = name.ends_with(".bin") || name.starts_with("rampart-cell-");
        if always || script.contains(&name) {
            copy(&path, location.path());
        }
    }
    // The machines have PREEMPT_RT kernels.
    for (release, modules) in entries(&bin.join("modules")) {
        if !release.ends_with("-rt-arm64") {
            continue;
        }
        let to = location.path().join("modules").join(release);
        std::fs::create_dir_all(&to).expect("a directory");
        for (name, path) in entries(&modules) {
            if script.contains(name.trim_end_matches(".ko")) {
                copy(&path, &to);
            }
        }
    }
    if script.contains("rampart-meter") {
        copy(&bin.join("aarch64/rampart-meter"), location.path());
    }
    for part in more {
        copy(&bin.join(part), location.path());
    }
    add(location.path());
    tar(location.path(), &["."])
}

/// Returns the names and paths of a directory's entries.
fn entries(directory: &Path) -> Vec<(String, PathBuf)> {
    let entries = std::fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let entries = entries.map(|entry| entry.expect("an entry"));
    entries
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, entry.path())
        })
        .collect()
}

/// Runs a script in a machine with four CPUs, with the archive on its standard input, and returns its output. With `iomem=relaxed` the kernel permits
/// reads of the hypervisor's memory, so that stage 2 has to refuse them.
///
/// # Panics
/// If a file is missing, or the script fails or takes longer than `limit`.
#[must_use]
pub fn run_with_hypervisor(script: &str, limit: Duration) -> String {
    run(script, limit, archive(script), &[])
}

/// Like [`run_with_hypervisor`], with further options of the simulated machine.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_options(script: &str, limit: Duration, options: &[&str]) -> String {
    run(script, limit, archive(script), options)
}

/// Like [`run_with_hypervisor`], with the newest kernel for the distribution, and further kernel arguments.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_newest_kernel(script: &str, limit: Duration, kernel_arguments: &str) -> String {
    let machine = "aarch64-backports";
    run_in(
        machine,
        script,
        limit,
        archive(script),
        kernel_arguments,
        &[],
    )
}

/// Like [`run_with_hypervisor`], in a machine with two security states, as on boards with firmware at EL3.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_two_security_states(script: &str, limit: Duration) -> String {
    run(script, limit, archive(script), &["--two-security-states"])
}

/// Like [`run_with_hypervisor`], in a machine with a GICv2.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_gicv2(script: &str, limit: Duration) -> String {
    run(script, limit, archive(script), &["--gicv2"])
}

/// Like [`run_with_hypervisor`], in a machine whose PCI functions are behind an SMMU of the hypervisor, with a disk for
/// `/var/lib/rampart`.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_behind_smmu(script: &str, limit: Duration) -> String {
    let location = tempfile::tempdir().expect("a directory");
    let disk = location.path().join("disk");
    let disk = disk.to_str().expect("a path in UTF-8");
    let machine = "aarch64-smmu";
    run_in(
        machine,
        script,
        limit,
        archive(script),
        "",
        &["--disk", disk],
    )
}

/// Like [`run_with_two_security_states`], in a machine with Trusted Firmware-A. Returns `None`, and reports it, if that
/// could not be built.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_firmware(machine: &str, script: &str, limit: Duration) -> Option<String> {
    if !directory().join("firmware/version").exists() {
        left_out(&format!(
            "{machine}: scripts/firmware could not build its firmware"
        ));
        return None;
    }
    let text = run_in(machine, script, limit, archive(script), "", &[]);
    Some(text)
}

/// Like [`run_with_hypervisor`], with the command `rampart` in the archive.
///
/// # Panics
/// As for [`run_with_hypervisor`].
#[must_use]
pub fn run_with_command(script: &str, limit: Duration) -> String {
    let archive = archive_with_command(script);
    run(script, limit, archive, &[])
}

/// Like [`run_with_command`], with the programs that detach threads in the archive.
///
/// # Panics
/// As for [`run_with_hypervisor`], or if the programs do not compile.
#[must_use]
pub fn run_with_detached_threads(script: &str, limit: Duration) -> String {
    let archive = archive_with(script, &["aarch64/rampart"], |to| compile("aarch64", to));
    run(script, limit, archive, &[])
}

fn run(script: &str, limit: Duration, archive: Vec<u8>, more: &[&str]) -> String {
    run_in("aarch64", script, limit, archive, "", more)
}

fn run_in(
    machine: &str,
    script: &str,
    limit: Duration,
    archive: Vec<u8>,
    kernel_arguments: &str,
    more: &[&str],
) -> String {
    let _machine = beside_others();
    let append = format!("mem=768M iomem=relaxed {kernel_arguments}");
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "--architecture", machine, "run", "--own"])
        .args(["--cpus", "4", "--memory", &MEBIBYTES.to_string()])
        .args(["--append", append.trim_end()])
        .args(more)
        .args(["--", "bash", "-c", script])
        .env_remove("RAMPART_METER")
        .finish_within(limit, archive)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    format!("{text}\n{}", String::from_utf8_lossy(&output.stderr))
}

/// Asserts that a driver of tests reported no failure. The report has the failed checks first.
///
/// # Panics
/// If a line contains `FAILED`.
pub fn assert_nothing_failed(text: &str) {
    let failed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("FAILED"))
        .collect();
    assert!(failed.is_empty(), "{failed:#?}\n{text}");
}

/// Returns the lines that start with one of these words and contain an error of the kernel.
#[must_use]
pub fn kernel_errors<'a>(text: &'a str, words: &[&str]) -> Vec<&'a str> {
    let is_log = |line: &&str| words.iter().any(|word| line.starts_with(word));
    let has_error = |line: &&str| KERNEL_ERRORS.iter().any(|error| line.contains(error));
    text.lines().filter(is_log).filter(has_error).collect()
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let output = command.arg("-R").arg(from).arg(to).finish().expect("cp");
    assert_eq!(exit_code(&output), 0, "{output:?}");
}
