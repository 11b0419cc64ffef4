// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisor in the simulated arm64 machine: what is carried there, and how its kernel's log is
//! looked through.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::limited::Limited as _;
use crate::programs::{alone, directory, exit_code, stdout};

/// What a kernel says when something is wrong with it.
const COMPLAINTS: [&str; 8] = [
    "WARNING",
    "BUG",
    "Call trace",
    "stall",
    "lockup",
    "scheduling while atomic",
    "blocked for more than",
    "Oops",
];

/// What is carried, and what builds it.
const PARTS: [(&str, &str); 3] = [
    ("hypervisor/rampart.bin", "make hypervisor"),
    ("aarch64/rampart-meter", "make build ARCH=aarch64"),
    ("modules", "make modules ARCH=aarch64"),
];

/// Unpacks in the machine what is carried, and loads the driver.
pub const BEGIN: &str = r#"
set -u
mkdir /tmp/cells && tar -x -C /tmp/cells && cd /tmp/cells || exit 9
# The CPUs are isolated; what is done here goes everywhere.
taskset -p -c 0-3 $$ >/dev/null
mkdir -p /lib/firmware && cp rampart.bin /lib/firmware/ || exit 9
# The machine loads the modules that it finds.
grep -q '^rampart ' /proc/modules && rmmod rampart
insmod modules/$(uname -r)/rampart.ko || exit 9
dmesg -C
"#;

/// Checks that the machine is as it was before, and tells its log.
pub const END: &str = r#"
[ "$(cat /sys/devices/virtual/misc/rampart/enabled)" = 0 ] || echo 'FAILED  still enabled'
[ "$(cat /sys/devices/system/cpu/online)" = 0-3 ] || echo 'FAILED  CPUs are missing'
rmmod rampart || echo 'FAILED  not unloaded'
echo finished
dmesg | sed 's/^/log /'
"#;

/// That all of it is built, by `make test` before this.
///
/// # Panics
/// If something is not.
pub fn programs_are_there() {
    for (part, command) in PARTS {
        let path = directory().join(part);
        assert!(
            path.exists(),
            "{}: not there; run `{command}`",
            path.display()
        );
    }
}

/// The built programs as a tar archive: the hypervisor, cells' programs and what the tests drive them
/// with, the modules, the meter.
///
/// # Panics
/// If something is not built.
#[must_use]
pub fn archive() -> Vec<u8> {
    archive_with(&[])
}

/// The same with more of `bin/`.
fn archive_with(more: &[&str]) -> Vec<u8> {
    let location = tempfile::tempdir().expect("a directory");
    let bin = directory();
    programs_are_there();
    copy(&bin.join("hypervisor/."), location.path());
    copy(&bin.join("modules"), location.path());
    copy(&bin.join("aarch64/rampart-meter"), location.path());
    for part in more {
        copy(&bin.join(part), location.path());
    }
    let archive = Command::new("tar")
        .args(["-c", "-C"])
        .arg(location.path())
        .arg(".")
        .finish()
        .expect("tar");
    assert!(archive.status.success(), "{archive:?}");
    archive.stdout
}

/// Carries them into a machine with four CPUs and so much memory, of which Linux has the first
/// 768 MiB, and runs a script there that finds the archive on its input; its output. With
/// `iomem=relaxed` the kernel lets reads of the hypervisor's memory through, so that it is stage 2 that
/// refuses them.
///
/// # Panics
/// If something is not built, or the script fails or takes longer than `limit`.
#[must_use]
pub fn run_with_hypervisor(script: &str, memory_mebibytes: u32, limit: Duration) -> String {
    run(script, memory_mebibytes, limit, archive(), &[])
}

/// The same in a machine with two security states, as boards with firmware at EL3 have.
///
/// # Panics
/// As [`run_with_hypervisor`].
#[must_use]
pub fn run_with_two_security_states(script: &str, memory: u32, limit: Duration) -> String {
    run(script, memory, limit, archive(), &["--two-security-states"])
}

/// The same with the command `rampart` beside the rest.
///
/// # Panics
/// As [`run_with_hypervisor`].
#[must_use]
pub fn run_with_command(script: &str, memory_mebibytes: u32, limit: Duration) -> String {
    let archive = archive_with(&["aarch64/rampart"]);
    run(script, memory_mebibytes, limit, archive, &[])
}

fn run(
    script: &str,
    memory_mebibytes: u32,
    limit: Duration,
    archive: Vec<u8>,
    more: &[&str],
) -> String {
    let _machine = alone();
    let output = Command::new(directory().join("rampart"))
        .args(["sim", "--architecture", "aarch64", "run", "--own"])
        .args(["--cpus", "4", "--memory", &memory_mebibytes.to_string()])
        .args(["--append", "mem=768M iomem=relaxed"])
        .args(more)
        .args(["--", "bash", "-c", script])
        .env_remove("RAMPART_METER")
        .finish_within(limit, archive)
        .expect("rampart starts");
    let text = stdout(&output, 0);
    format!("{text}\n{}", String::from_utf8_lossy(&output.stderr))
}

/// The lines that begin with one of these words and in which a kernel complains.
#[must_use]
pub fn complaints<'a>(text: &'a str, words: &[&str]) -> Vec<&'a str> {
    let is_log = |line: &&str| words.iter().any(|word| line.starts_with(word));
    let complains = |line: &&str| COMPLAINTS.iter().any(|complaint| line.contains(complaint));
    text.lines().filter(is_log).filter(complains).collect()
}

fn copy(from: &Path, to: &Path) {
    let mut command = Command::new("cp");
    let output = command.arg("-R").arg(from).arg(to).finish().expect("cp");
    assert_eq!(exit_code(&output), 0, "{output:?}");
}
